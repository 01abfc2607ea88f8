"""Listings that are kept, for those who ask for it: fsspec's ``use_listings_cache=True``. Otherwise none is."""

from __future__ import annotations

from itertools import count
from typing import TYPE_CHECKING, Any
from weakref import ref

from penstock.errors import Unusable
from penstock.interop.fsspec.names import parent

if TYPE_CHECKING:
    from fsspec.dircache import DirCache

    from penstock.source import Writer

__all__ = ["Listings", "check_limits"]


class Listings:
    """What ``ls`` returned, by directory; forgotten when the same file system writes there, and when it expires."""

    def __init__(self, kept: DirCache | None) -> None:
        """Keep listings in ``kept``, or keep none."""
        self._kept = kept
        self._since = object()  # changes with every write
        self._number = count()
        self._writers: dict[int, ref[Writer]] = {}

    def get(self, name: str) -> list[dict[str, Any]] | None:
        """Return what lies in a directory, None where that is not known."""
        if self._kept is None:
            return None
        try:
            found: list[dict[str, Any]] = self._kept[name]
        except KeyError:
            return None
        return found

    def find(self, name: str) -> dict[str, Any] | None:
        """Return the description of a file or directory, by the listing of what it lies in."""
        return next((each for each in self.get(parent(name)) or () if each["name"] == name), None)

    def since(self) -> object:
        """Return what ``keep`` takes of a listing that begins now; None where files are open that may come into it."""
        since = self._since  # before the files: who opens one adds it, and then changes this
        for number, writer in self._writers.copy().items():
            if (found := writer()) is None or found.closed:
                self._writers.pop(number, None)
        return None if self._writers else since

    def keep(self, name: str, found: list[dict[str, Any]], since: object) -> None:
        """Keep what lies in a directory, if any is kept, and unless something was written since the listing began."""
        if self._kept is not None and since is not None:
            self._kept[name] = found
            if since is not self._since:  # looked at last: who writes forgets what is kept by then
                self._kept.pop(name, None)

    def wait_for(self, writer: Writer) -> None:
        """Keep no listing until a file is closed: it appears then."""
        if self._kept is not None:
            self._writers[next(self._number)] = ref(writer)

    def forget(self, name: str | None) -> None:
        """Forget a name, what lies below, and all that it lies in; or everything."""
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
    """Refuse limits of listings where none is kept: they would have no effect. ``Unusable``."""
    if not limits.get("use_listings_cache") and (idle := [each for each in limits if each != "use_listings_cache"]):
        raise Unusable(f"{', '.join(idle)}: no listing is kept unless use_listings_cache=True is passed, too")
