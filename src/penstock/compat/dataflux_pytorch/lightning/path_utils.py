"""``dataflux_pytorch.lightning.path_utils`` over Penstock: bucket and key of a path."""

from __future__ import annotations

from pathlib import PurePath
from typing import TYPE_CHECKING

from penstock.errors import InvalidURL
from penstock.stores.urls import parse

if TYPE_CHECKING:
    import os


def process_input_path(path: str | os.PathLike[str]) -> str:
    """Return a path as text; restore the slash of ``gs://`` that a pathlib path has lost."""
    if isinstance(path, str):
        return path
    if not isinstance(path, PurePath):
        raise TypeError(f"path must be a str or a pathlib.Path, got {type(path).__name__}")
    return str(path).replace(":/", "://", 1)


def parse_gcs_path(path: str | os.PathLike[str]) -> tuple[str, str]:
    """Return the bucket and the key of a ``gs://`` or ``gcs://`` path; the key is empty for a bucket alone."""
    location = parse(gcs_url(path))
    return location.bucket, location.key


def gcs_url(path: str | os.PathLike[str]) -> str:
    """Return the URL of a ``gs://`` or ``gcs://`` path. Raise the errors of ``parse_gcs_path``."""
    url = process_input_path(path)
    if not url.startswith(("gs://", "gcs://")):
        raise InvalidURL("path must begin with gcs:// or gs://", url=url)
    parse(url)
    return url
