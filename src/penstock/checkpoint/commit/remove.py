"""Removal of one checkpoint by its URL: an object, or a folder's checkpoint files and no other files."""

from __future__ import annotations

import logging
import os
import re
from contextlib import suppress
from typing import TYPE_CHECKING

from penstock.checkpoint.integrity.manifest import MANIFEST, METADATA
from penstock.errors import Unusable
from penstock.source import open_source
from penstock.stores.protected import check_deletable
from penstock.stores.urls import parse

if TYPE_CHECKING:
    from collections.abc import Sequence

    from penstock.options import StoreOptions

__all__ = ["remove", "told_apart"]

_LOG = logging.getLogger("penstock")

# Files that mark a folder as a checkpoint: Penstock's, torch's (Lightning's FSDP writes it too), DeepSpeed's.
_MARKS = (MANIFEST, METADATA)
_DATA = re.compile(
    r"([0-9a-f]{32}/([0-9a-f]{2}/)?)?([0-9]+\.data|__[0-9]+_[0-9]+\.distcp|state\.pt)"
    r"|__[0-9]+\.metadata|[^/]+\.distcp|checkpoint/[^/]*rank_[0-9]+[^/]*_states\.pt"
)
# Further checkpoint files of a folder that holds a checkpoint.
_BESIDE = re.compile(r"meta\.pt|latest|zero_to_fp32\.py")
# Named in Penstock's manifests. Matched only beside a manifest: other programs may use such folder names too.
_NAMED = re.compile(r"[0-9a-f]{32}/.+", re.DOTALL)


def told_apart(names: Sequence[str]) -> tuple[list[str], list[str]]:
    """Return the files of a folder that belong to a checkpoint, and the others; all are named relative to the folder.

    The files that mark the folder as a checkpoint come first.
    """
    kinds = (_DATA, _BESIDE, _NAMED) if MANIFEST in names else (_DATA, _BESIDE)
    if not any(name in _MARKS or _DATA.fullmatch(name) for name in names):
        return [], list(names)
    made = [name for name in names if name in _MARKS or any(kind.fullmatch(name) for kind in kinds)]
    others = sorted(set(names) - set(made))
    return sorted(made, key=lambda name: name not in _MARKS), others


def remove(url: str | os.PathLike[str], store: StoreOptions | str | None) -> None:
    """Delete a checkpoint: an object, a link, or the checkpoint files of a folder. A missing one is not an error.

    In a folder the files that mark it as a checkpoint are deleted first. Other files stay, and a warning reports them.
    Costs a listing and a request for each object.

    Raises:
        InvalidURL: The URL is a bucket's root, the working directory, the home directory, or a parent of one of them.
        Unusable: The URL is a folder without a checkpoint.

    """
    location = parse(url)
    check_deletable(location)
    source, key = open_source(url, store)
    key = key.rstrip("/")
    path = f"/{key}" if location.local else ""
    if (path and not os.path.isdir(path)) or os.path.islink(path):  # noqa: PTH112, PTH114  pathlib changes names
        source.delete([key])
        return
    names = [each.key.removeprefix(f"{key}/") for page in source.pages(f"{key}/") for each in page.entries]
    made, others = told_apart(names)
    if others and not made and (path or source.stat_existing([key]) == [None]):
        raise Unusable(
            f"this is no checkpoint but a folder that holds {others[0]!r}: nothing was deleted", url=source.url(key)
        )
    marks = [name for name in made if name in _MARKS]
    # Marks first: no reader ever finds a checkpoint whose objects are gone.
    source.delete([f"{key}/{name}" for name in marks])
    source.delete([f"{key}/{name}" for name in made if name not in _MARKS])
    if path:
        _remove_empty(path)
    else:
        source.delete([key])
    if others:
        _LOG.warning(
            "%s stays: %d files in it are no checkpoint's, %r for one", source.url(key), len(others), others[0]
        )


def _remove_empty(path: str) -> None:
    """Remove a directory and its subdirectories if they are empty."""
    for at, _, _ in os.walk(path, topdown=False):
        with suppress(OSError):
            os.rmdir(at)  # noqa: PTH106  as above
