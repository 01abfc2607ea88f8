"""Folders of a hierarchical namespace as one listing in the order of bytes: what to ask for next, what can be told.

Such an account compares paths part by part: it lists all of ``a/`` before ``a-b``, where the order of bytes wants it
after. So a folder that is larger than one answer is listed by itself, with its folders as common prefixes, and each of
them is entered where its ``name/`` stands in the order of bytes. An answer that holds all below a folder is sorted.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from penstock.drivers.azure.listing import utf_16
from penstock.drivers.direct import key_bytes
from penstock.errors import Damaged
from penstock.values import ObjectMeta, Page

if TYPE_CHECKING:
    from penstock.drivers.azure.listing import Blobs

__all__ = ["Walk"]

_MOST_CHARACTERS = 1024  # of a name; a folder whose name is longer lies in itself


@dataclass(frozen=True, slots=True)
class _Folder:
    """A folder that is being listed, shared by walks and never changed.

    Attributes:
        prefix: What is asked for.
        whole: All below is asked for; otherwise folders are common prefixes.
        above: Where the walk goes on afterwards.
        marker: Of the answer to ask for; empty for the first.
        ready: What can be told or entered, in the order of bytes: nothing to come belongs before it.
        at: What of it comes next.
        held: What is known, but something to come may belong before it.
        last: The last name so far.
        over: There are no more answers.

    """

    prefix: str
    whole: bool
    above: _Folder | None = None
    marker: str = ""
    ready: tuple[ObjectMeta | str, ...] = ()
    at: int = 0
    held: tuple[ObjectMeta | str, ...] = ()
    last: str = ""
    over: bool = False


@dataclass(frozen=True, slots=True)
class Walk:
    """A listing on its way.

    Attributes:
        prefix: What every key begins with.
        after: Keys up to this one are left out, or have been told.
        flat: Folders are named and not entered: ``delimiter="/"``.

    """

    prefix: str
    after: str
    flat: bool
    _folder: _Folder

    @classmethod
    def begin(cls, prefix: str, after: str = "", *, flat: bool = False) -> Walk:
        """Return a walk through all keys that begin with ``prefix`` and come after ``after`` (exclusive)."""
        return cls(prefix, after, flat, _Folder(prefix, whole=not flat))

    @property
    def query(self) -> dict[str, str]:
        """What to ask for next."""
        folder = self._folder
        return {"prefix": folder.prefix, "delimiter": "" if folder.whole else "/", "marker": folder.marker}

    def enter(self, found: Blobs) -> tuple[Page, Walk | None]:
        """Take in the answer to ``query``; returns what can be told now, and the walk to go on with, if any.

        Raises:
            Damaged: A name is outside of what was asked for, or too long to be one; or the names do not advance.

        """
        folder, advanced = self._folder, bool(found.last) or not found.marker
        if folder.whole and found.marker and _nested(found, folder.prefix):
            anew = replace(folder, whole=False, marker="", last="", held=())  # what was held comes again
            return Page((), advanced=True), replace(self, _folder=anew)
        if found.last and found.last <= folder.last and utf_16(found.last) <= utf_16(folder.last):
            raise Damaged(f"the listing does not advance: {found.last[:200]!r} came after {folder.last[:200]!r}")
        names: list[ObjectMeta | str] = [*found.entries, *(() if folder.whole else found.prefixes)]
        items = sorted((*folder.held, *names), key=_order)
        _check(folder.prefix, items)
        items = [each for each in items if self._wanted(each)]
        ready = len(items)
        if found.marker:
            bound = _bound(found.last)
            ready = next((at for at, each in enumerate(items) if _order(each) > bound), ready)
        state = replace(folder, marker=found.marker, last=found.last or folder.last, over=not found.marker)
        page, walk = self._tell(replace(state, ready=tuple(items[:ready]), at=0, held=tuple(items[ready:])))
        return replace(page, advanced=advanced), walk

    def _wanted(self, item: ObjectMeta | str) -> bool:
        if isinstance(item, str):
            return _order(item) > key_bytes(self.after) or (not self.flat and self.after.startswith(item))
        return _order(item) > key_bytes(self.after)

    def _tell(self, folder: _Folder | None) -> tuple[Page, Walk | None]:
        """Tell files up to the next folder, here or above, or up to the end of what is known."""
        files: list[ObjectMeta] = []
        prefixes: list[str] = []
        while folder is not None:
            for at in range(folder.at, len(folder.ready)):
                item = folder.ready[at]
                if isinstance(item, ObjectMeta):
                    files.append(item)
                elif self.flat:
                    prefixes.append(item)
                else:
                    return self._page(files, prefixes, _Folder(item, whole=True, above=_rest(folder, at + 1)))
            if not folder.over:
                return self._page(files, prefixes, replace(folder, ready=(), at=0))
            folder = folder.above
        return self._page(files, prefixes, None)

    def _page(self, files: list[ObjectMeta], prefixes: list[str], folder: _Folder | None) -> tuple[Page, Walk | None]:
        page = Page(tuple(files), tuple(prefixes))
        if folder is None:
            return page, None
        told = (self.after, *(each.key for each in files[-1:]), *prefixes[-1:])
        return page, replace(self, after=max(told, key=key_bytes), _folder=folder)


def _rest(folder: _Folder, at: int) -> _Folder | None:
    """Return where to go on after the item before ``at``."""
    return folder.above if folder.over and at == len(folder.ready) else replace(folder, at=at)


def _nested(found: Blobs, prefix: str) -> bool:
    """Say whether an answer goes deeper than one folder, and so may not be in the order of bytes."""
    base = prefix.rfind("/") + 1
    return found.folders or any("/" in each.key[base:] for each in found.entries)


def _check(prefix: str, items: list[ObjectMeta | str]) -> None:
    """Raise ``Damaged`` for names that would lead a walk elsewhere, or nowhere."""
    names = [each if isinstance(each, str) else each.key for each in items]
    astray = next((name for name in names if not name.startswith(prefix)), None)
    if astray is not None or prefix in (each for each in items if isinstance(each, str)):
        raise Damaged(f"the listing went astray: asked for what begins with {prefix!r}, it gave {astray or prefix!r}")
    deep = next((each for each in names if len(each) > _MOST_CHARACTERS), None)
    if deep is not None:
        raise Damaged(f"the listing has a name of {len(deep)} characters: {deep[:200]!r}…")


def _bound(last: str) -> bytes:
    """Return the greatest name that no name to come belongs before, where ``last`` was the last one.

    Names to come are greater, but that of a folder is compared with a "/" behind it, and the service's order is that of
    UTF-16, where characters beyond U+FFFF stand before those from U+E000 on: they wait for them.
    """
    beyond = next((at for at, character in enumerate(last) if character > "\uffff"), None)
    return key_bytes(last) if beyond is None else key_bytes(last[:beyond]) + b"\xee\x7f"  # U+E000 is EE 80 80


def _order(item: ObjectMeta | str) -> bytes:
    return key_bytes(item if isinstance(item, str) else item.key)
