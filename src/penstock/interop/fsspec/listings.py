"""Listings that are kept, for those who ask for it: fsspec's ``use_listings_cache=True``. Otherwise none is."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from penstock.errors import Unusable
from penstock.interop.fsspec.names import parent

if TYPE_CHECKING:
    from fsspec.dircache import DirCache

__all__ = ["Listings", "check_limits"]


class Listings:
    """What ``ls`` returned, by directory; forgotten when the same file system writes there, and when it expires."""

    def __init__(self, kept: DirCache | None) -> None:
        """Keep listings in ``kept``, or keep none."""
        self._kept = kept

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

    def keep(self, name: str, found: list[dict[str, Any]]) -> None:
        """Keep what lies in a directory, if any is kept."""
        if self._kept is not None:
            self._kept[name] = found

    def forget(self, name: str | None) -> None:
        """Forget a name, what lies below, and all that it lies in; or everything."""
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
