"""Cache of listings, only with fsspec's ``use_listings_cache=True``; by default nothing is cached.

Conversion of fsspec's file names to URLs and back: a name omits the file system's own scheme, and no other.
"""

from __future__ import annotations

import re
from itertools import count
from typing import TYPE_CHECKING, Any
from weakref import ref

from penstock.errors import InvalidURL, Unusable

if TYPE_CHECKING:
    from fsspec.dircache import DirCache

    from penstock.source import Writer


__all__ = ["Listings", "check_limits", "parent", "stripped", "url_of"]


class Listings:
    """Results of ``ls``, by directory; dropped when they expire or when the same file system writes there."""

    def __init__(self, kept: DirCache | None) -> None:
        """Cache listings in ``kept``; None caches nothing."""
        self._kept = kept
        self._since = object()  # changes with every write
        self._number = count()
        self._writers: dict[int, ref[Writer]] = {}

    def get(self, name: str) -> list[dict[str, Any]] | None:
        """Return the entries of a directory; None if they are not cached."""
        if self._kept is None:
            return None
        try:
            found: list[dict[str, Any]] = self._kept[name]
        except KeyError:
            return None
        return found

    def find(self, name: str) -> dict[str, Any] | None:
        """Return the entry of a file or directory from its parent's listing; None if it is not cached."""
        return next((each for each in self.get(parent(name)) or () if each["name"] == name), None)

    def since(self) -> object:
        """Return the argument of ``keep`` for a listing that begins now; None while open files may appear in it."""
        # Read before the writers are checked: opening a file first adds a writer, and then changes _since.
        since = self._since
        for number, writer in self._writers.copy().items():
            if (found := writer()) is None or found.closed:
                self._writers.pop(number, None)
        return None if self._writers else since

    def keep(self, name: str, found: list[dict[str, Any]], since: object) -> None:
        """Cache the entries of a directory, unless something was written since the listing began."""
        if self._kept is not None and since is not None:
            self._kept[name] = found
            # Checked after the listing is stored: a write only drops listings that are stored before it.
            if since is not self._since:
                self._kept.pop(name, None)

    def wait_for(self, writer: Writer) -> None:
        """Cache no listing until a file is closed, because it appears then."""
        if self._kept is not None:
            self._writers[next(self._number)] = ref(writer)

    def forget(self, name: str | None) -> None:
        """Drop the listings of a name, of everything below and of its parents; for None, all listings."""
        self._since = object()
        if self._kept is None:
            return
        if name is None:
            self._kept.clear()
            return
        for each in [each for each in self._kept if each == name or each.startswith(f"{name}/")]:
            self._kept.pop(each, None)
        above = name
        while (above := parent(above)) and not above.endswith("://"):
            self._kept.pop(above, None)


def check_limits(limits: dict[str, object]) -> None:
    """Raise ``Unusable`` for limits of cached listings if none are cached: the limits would have no effect."""
    if not limits.get("use_listings_cache") and (idle := [each for each in limits if each != "use_listings_cache"]):
        raise Unusable(f"{', '.join(idle)}: no listing is kept unless use_listings_cache=True is passed, too")


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
