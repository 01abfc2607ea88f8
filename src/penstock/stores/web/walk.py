"""Tree of directories as one sorted listing: the next directory to read, and the files that can be listed already."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING

from penstock.errors import Damaged
from penstock.stores.direct import key_bytes
from penstock.stores.web.paths import canonical
from penstock.values import ObjectMeta, Page

if TYPE_CHECKING:
    from collections.abc import Iterable

    from penstock.stores.web.index import Named

__all__ = ["Walk"]

# Nested directories; beyond that, a link leads back into itself.
_MOST_DEEP = 100


@dataclass(frozen=True, slots=True)
class _Rest:
    """Remaining items of a directory, followed by those of its parent; immutable, and shared by walks."""

    items: tuple[ObjectMeta | str, ...]
    at: int
    above: _Rest | None


@dataclass(frozen=True, slots=True)
class Walk:
    """State of a listing in progress. In key order, a directory's ``name/`` takes the place of its contents.

    Attributes:
        prefix: Prefix of every key.
        after: Keys up to this one are left out.
        flat: Directories are listed by name and not entered: ``delimiter="/"``.
        directory: Key of the next directory to read, empty or ending in ``/``.
        first: ``directory`` is the first one of the listing.

    """

    prefix: str
    after: str = ""
    flat: bool = False
    directory: str = ""
    first: bool = True
    _rest: _Rest | None = field(default=None, repr=False)

    @classmethod
    def begin(cls, prefix: str, after: str = "", *, flat: bool = False) -> Walk:
        """Return a walk through all keys that begin with ``prefix`` and come after ``after`` (exclusive)."""
        return cls(prefix, after, flat, prefix[: prefix.rfind("/") + 1])

    def enter(self, found: Iterable[Named]) -> tuple[Page, Walk | None]:
        """Process the contents of the directory; return a page of items, and the walk to continue with, if any.

        Raises:
            Damaged: Directories are nested more than 100 deep.

        """
        if self.directory.count("/") > _MOST_DEEP + self.prefix.count("/"):
            raise Damaged(f"directories lie more than {_MOST_DEEP} deep: one of them is a link that leads back")
        items = sorted(self._wanted(found), key=_order)
        if self.flat:
            files = tuple([each for each in items if isinstance(each, ObjectMeta)])
            return Page(files, tuple([each for each in items if isinstance(each, str)])), None
        return self._tell(_Rest(tuple(items), 0, self._rest))

    def _wanted(self, found: Iterable[Named]) -> Iterable[ObjectMeta | str]:
        asked = canonical(self.prefix[len(self.directory) :]) if self.first else ""
        bound = key_bytes(self.after)
        for name, size, modified in found:
            if not name.startswith(asked):
                continue
            key = self.prefix + name[len(asked) :] if self.first else self.directory + name  # in the spelling asked for
            if key_bytes(key) > bound or (key.endswith("/") and not self.flat and self.after.startswith(key)):
                yield key if key.endswith("/") else ObjectMeta(key, size, modified=modified)

    def _tell(self, rest: _Rest | None) -> tuple[Page, Walk | None]:
        """Return a page of files up to the next directory, here or above."""
        files: list[ObjectMeta] = []
        while rest is not None:
            for at in range(rest.at, len(rest.items)):
                item = rest.items[at]
                if isinstance(item, str):
                    left = _Rest(rest.items, at + 1, rest.above) if at + 1 < len(rest.items) else rest.above
                    return Page(tuple(files)), replace(self, directory=item, first=False, _rest=left)
                files.append(item)
            rest = rest.above
        return Page(tuple(files)), None


def _order(item: ObjectMeta | str) -> bytes:
    return key_bytes(item if isinstance(item, str) else item.key)
