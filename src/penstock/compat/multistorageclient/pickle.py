"""``pickle.load`` and ``dump`` by URL. Load only trusted files: a pickle runs code."""

from __future__ import annotations

import pickle
from typing import Any

from penstock.compat.multistorageclient.pathlib import MultiStoragePath
from penstock.compat.multistorageclient.shortcuts import open as open_url
from penstock.errors import Unusable


def load(file: Any, **options: Any) -> Any:
    """Load the pickle at a URL or a path, or in an open file."""
    if not isinstance(file, str | MultiStoragePath):
        return pickle.load(file, **options)  # noqa: S301  the caller's request
    with open_url(str(file)) as opened:
        return pickle.load(opened, **options)  # noqa: S301  the same


def dump(
    obj: Any,
    file_path: str | MultiStoragePath,
    protocol: int | None = None,
    *,
    fix_imports: bool = True,
    buffer_callback: Any = None,
    attributes: dict[str, Any] | None = None,
) -> None:
    """Save a value atomically; ``attributes`` are its object's metadata. Raise ``Unusable`` for an open file."""
    if not isinstance(file_path, str | MultiStoragePath):
        raise Unusable("dump takes a URL or a path; pickle.dump writes to an open file")
    with open_url(str(file_path), "wb", attributes=attributes) as opened:
        pickle.dump(obj, opened, protocol, fix_imports=fix_imports, buffer_callback=buffer_callback)
