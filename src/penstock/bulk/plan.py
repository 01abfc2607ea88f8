"""Which object goes where, and what must not: the rules of ``cp`` and ``mv``, without a look at any store."""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache
from typing import TYPE_CHECKING, Literal

from penstock.catalog.select import selector
from penstock.errors import Unusable
from penstock.providers.urls import LOCAL_ROOT, Location, key_fault

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence

    from penstock.providers.provider import Provider
    from penstock.values import ObjectMeta

__all__ = ["Destination", "Origin", "Step", "check", "plan"]

_NAME_BYTES = 255  # of one component of a path, on every file system in use


@dataclass(frozen=True, slots=True)
class Origin:
    """What one SOURCE means.

    Attributes:
        root: Its bucket's URL.
        prefix: An object's key; a tree's, ending in ``/`` or empty; a glob's up to its first component with a wildcard.
        kind: One object, all that lies under a prefix, or what a glob finds.
        lead: What the names of a tree begin with when it goes *into* something: ``dir/`` for ``dir``, nothing for
            ``dir/``.
        glob: Of the keys after ``prefix``.

    """

    root: str
    prefix: str
    kind: Literal["object", "tree", "glob"]
    lead: str = ""
    glob: str = ""

    def name(self, key: str) -> str:
        """Return the name that the object ``key`` keeps when it goes into something."""
        if self.kind == "object":
            return key.rpartition("/")[2]
        return self.lead + key[len(self.prefix) :]


@dataclass(frozen=True, slots=True)
class Destination:
    """What DEST means: a key to write to, or, when ``into``, a prefix that ends in ``/`` or is empty."""

    root: str
    key: str
    into: bool

    def place(self, origin: Origin, key: str) -> str:
        """Return where the object ``key`` goes."""
        if self.into:
            return self.key + origin.name(key)
        return self.key if origin.kind == "object" else f"{self.key}/{key[len(origin.prefix) :]}"


@dataclass(frozen=True, slots=True)
class Step:
    """One object and where it goes; or, with a ``fault`` or a ``note``, why it does not: refused, or left out."""

    root: str
    meta: ObjectMeta
    to: str
    fault: str = ""
    note: str = ""


def check(origins: Sequence[Origin], dest: Destination) -> None:
    """Refuse a tree that would be copied into itself: listing it would never end. Raises ``Unusable``."""
    base = dest.key if dest.into else f"{dest.key}/"
    for each in origins:
        if each.kind == "tree" and each.root == dest.root and base.startswith(each.prefix):
            raise Unusable(
                "the destination lies inside the source: copy to a place beside it", url=dest.root + dest.key
            )


def plan(origins: Sequence[Origin], found: Iterable[tuple[Origin, ObjectMeta]], dest: Destination) -> Iterator[Step]:
    """Yield a step for each object found, in order; one origin's come in the order of their keys.

    Of two that want one place the first gets it. Memory: one key for a level of one tree; all keys, where there are
    several origins.
    """
    sources = _Sources(origins, dest.root)
    scheme, _, bucket = dest.root.removesuffix("/").partition("://")
    provider = Location(scheme, bucket, "").provider
    places = _Places() if len(origins) > 1 else _Nested()
    for origin, meta in found:
        to = dest.place(origin, meta.key)
        note = fault = ""
        if not to or (dest.root == LOCAL_ROOT and to.endswith("/") and not meta.size):
            note = "a directory's marker"
        else:
            fault = (
                _unnameable(provider, dest, to)
                or sources.hold(meta.size, to)
                or places.take(to, exclusive=dest.root == LOCAL_ROOT)
            )
        yield Step(origin.root, meta, to, fault, note)


def _unnameable(provider: Provider, dest: Destination, to: str) -> str:
    """Say why nothing can be called ``to``; a file is never put outside of the destination."""
    if fault := key_fault(provider, to):
        return fault
    return _unfit(to[len(dest.key) :] if dest.into else to) if dest.root == LOCAL_ROOT else ""


def _unfit(path: str) -> str:
    """Say why a key cannot be the path of a file."""
    folder, mark, name = path.rpartition("/")
    return (_unfit_folder(folder) if mark else "") or _unfit_name(name)


@lru_cache(maxsize=64)  # files of one folder come one after another
def _unfit_folder(folder: str) -> str:
    return next(filter(None, map(_unfit_name, folder.split("/"))), "")


def _unfit_name(name: str) -> str:
    if name in ("", ".", ".."):
        return f"no file can be called that: one of its names is {name!r}"
    if (size := len(name.encode("utf-8", "surrogateescape"))) > _NAME_BYTES:
        return f"no file can be called that: a name of {size} bytes, files have at most {_NAME_BYTES}"
    return ""


class _Sources:
    """Everything that is to be read, as far as it lies where we write."""

    def __init__(self, origins: Sequence[Origin], root: str) -> None:
        here = [each for each in origins if each.root == root]
        self._keys = {each.prefix for each in here if each.kind == "object"}
        self._trees = tuple(each.prefix for each in here if each.kind == "tree")
        self._globs = [(each.prefix, selector(each.glob)) for each in here if each.kind == "glob"]

    def hold(self, size: int, to: str) -> str:
        """Say so if ``to`` is a source itself."""
        held = (
            to in self._keys
            or to.startswith(self._trees)
            or any(to.startswith(prefix) and chosen(to[len(prefix) :], size) for prefix, chosen in self._globs)
        )
        return "this would overwrite one of the sources" if held else ""


class _Places:
    """The places that are taken, when they come in any order."""

    def __init__(self) -> None:
        self._taken: set[str] = set()
        self._folders: set[str] = set()

    def take(self, to: str, *, exclusive: bool) -> str:
        """Take a place, or say who has it; ``exclusive`` where a file cannot be a directory too."""
        if to in self._taken:
            return "two sources for one destination: another one got there first"
        above = [to[:at] for at in range(len(to)) if to[at] == "/"] if exclusive else []
        if to in self._folders or not self._taken.isdisjoint(above):
            return _BOTH
        self._taken.add(to)
        self._folders.update(above)
        return ""


class _Nested:
    """The same for places in the order of their keys, in memory for one path: a key comes before what is under it."""

    def __init__(self) -> None:
        self._above: list[str] = []

    def take(self, to: str, *, exclusive: bool) -> str:
        """Take a place, or say why not."""
        while self._above and not to.startswith(self._above[-1]):
            self._above.pop()
        if exclusive and any(to.startswith(f"{each}/") for each in self._above):
            return _BOTH
        self._above.append(to)
        return ""


_BOTH = "this path would have to be a file and a directory: another object took it"
