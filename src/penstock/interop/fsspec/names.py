"""Conversion of fsspec's file names to URLs and back: a name omits the file system's own scheme, and no other."""

from __future__ import annotations

import re

from penstock.errors import InvalidURL

__all__ = ["parent", "stripped", "url_of"]

_QUALIFIED = re.compile(r"([A-Za-z][A-Za-z0-9+.-]*)://(.*)", re.DOTALL)


def stripped(path: str, scheme: str) -> str:
    """Return the name of ``path`` in the file system of ``scheme``: without that scheme and without trailing ``/``.

    A URL of another scheme keeps its scheme.
    """
    own = f"{scheme}://"
    if path.startswith(own):
        return path[len(own) :].rstrip("/")
    found = _QUALIFIED.fullmatch(path)
    return f"{found[1]}://{found[2].rstrip('/')}" if found else path.rstrip("/")


def parent(name: str) -> str:
    """Return the parent of a name; for a bucket only the scheme, or an empty name."""
    found = _QUALIFIED.fullmatch(name)
    head, rest = (f"{found[1]}://", found[2]) if found else ("", name)
    return head + rest.rpartition("/")[0]


def url_of(name: str, scheme: str) -> str:
    """Return the URL of a name; raise ``InvalidURL`` if it has no bucket."""
    if _QUALIFIED.fullmatch(name):
        return name
    if not name:
        raise InvalidURL(f"buckets are not listed: name one, {scheme}://bucket/…")
    return f"{scheme}://{name}"
