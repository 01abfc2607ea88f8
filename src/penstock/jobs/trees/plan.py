"""Planning rules of ``cp`` and ``mv``: the destination of each object, and refusals, without any request."""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache
from typing import TYPE_CHECKING, Literal

from penstock.engine.listing.select import selector
from penstock.errors import Unusable
from penstock.stores.urls import LOCAL_ROOT, Location, key_fault

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Sequence

    from penstock.stores.store import Store
    from penstock.values import ObjectMeta

# Maximum length of one path component, on every file system in use.
_NAME_BYTES = 255


@dataclass(frozen=True, slots=True)
class Origin:
    """Interpretation of one SOURCE argument, below the bucket ``root``."""

    root: str
    # an object's key; a tree's prefix, empty or with a / at its end; a glob's part before its first wildcard
    prefix: str
    kind: Literal["object", "tree", "glob"]
    lead: str = ""  # of names of a tree that is copied *into* a folder: ``dir/`` for ``dir``, empty for ``dir/``
    glob: str = ""  # for the part of the keys after ``prefix``

    def name(self, key: str) -> str:
        """Return the name of the object ``key`` below a destination folder."""
        if self.kind == "object":
            return key.rpartition("/")[2]
        return self.lead + key[len(self.prefix) :]


@dataclass(frozen=True, slots=True)
class Destination:
    """Interpretation of DEST: a key to write to or, with ``into``, a prefix that ends in ``/`` or is empty."""

    root: str
    key: str
    into: bool

    def place(self, origin: Origin, key: str) -> str:
        if self.into:
            return self.key + origin.name(key)
        return self.key if origin.kind == "object" else f"{self.key}/{key[len(origin.prefix) :]}"


@dataclass(frozen=True, slots=True)
class CopyStep:
    """Object and its destination key; ``fault`` says why it is refused, ``note`` why it is left out."""

    root: str
    meta: ObjectMeta
    to: str
    fault: str = ""
    note: str = ""


def refuse_self_copy(origins: Sequence[Origin], dest: Destination) -> None:
    base = dest.key if dest.into else f"{dest.key}/"
    for each in origins:
        if each.kind == "tree" and each.root == dest.root and base.startswith(each.prefix):
            raise Unusable("the destination is inside the source: choose another destination", url=dest.root + dest.key)


def plan(
    origins: Sequence[Origin],
    found: Iterable[tuple[Origin, ObjectMeta]],
    dest: Destination,
    fold: Callable[[str], str] | None = None,
) -> Iterator[CopyStep]:
    """Yield a step for each object found, in order; the objects of one origin come in key order.

    If two objects have the same destination, the first one gets it. ``fold`` maps names that a disk treats as equal to
    one name. Memory: one key per level of one tree; all keys if there are several origins or ``fold`` is given.
    """
    sources = _Sources(origins, dest.root)
    scheme, _, bucket = dest.root.removesuffix("/").partition("://")
    store = Location(scheme, bucket, "").store
    places = _TakenKeys(fold) if len(origins) > 1 or fold is not None else _Nested()
    for origin, meta in found:
        to = dest.place(origin, meta.key)
        note = fault = ""
        if not to or (dest.root == LOCAL_ROOT and to.endswith("/") and not meta.size):
            note = "a directory's marker"
        else:
            fault = (
                _unnameable(store, dest, to)
                or sources.hold(meta.size, to)
                or places.take(to, exclusive=dest.root == LOCAL_ROOT)
            )
        yield CopyStep(origin.root, meta, to, fault, note)


def _unnameable(store: Store, dest: Destination, to: str) -> str:
    """Return why ``to`` is not a valid name, or an empty text; a file is never put outside the destination."""
    if fault := key_fault(store, to):
        return fault
    if dest.root != LOCAL_ROOT:
        return ""
    folder, mark, name = (to[len(dest.key) :] if dest.into else to).rpartition("/")
    return (_unfit_folder(folder) if mark else "") or _unfit_name(name)


# Files of one folder come one after another.
@lru_cache(maxsize=64)
def _unfit_folder(folder: str) -> str:
    return next(filter(None, map(_unfit_name, folder.split("/"))), "")


def _unfit_name(name: str) -> str:
    if name in ("", ".", ".."):
        return f"no file can be called that: one of its names is {name!r}"
    if (size := len(name.encode("utf-8", "surrogateescape"))) > _NAME_BYTES:
        return f"no file can be called that: a name of {size} bytes, files have at most {_NAME_BYTES}"
    return ""


class _Sources:
    """Sources in the bucket of the destination."""

    def __init__(self, origins: Sequence[Origin], root: str) -> None:
        here = [each for each in origins if each.root == root]
        self._keys = {each.prefix for each in here if each.kind == "object"}
        self._trees = tuple(each.prefix for each in here if each.kind == "tree")
        self._globs = [(each.prefix, selector(each.glob)) for each in here if each.kind == "glob"]

    def hold(self, size: int, to: str) -> str:
        held = (
            to in self._keys
            or to.startswith(self._trees)
            or any(to.startswith(prefix) and chosen(to[len(prefix) :], size) for prefix, chosen in self._globs)
        )
        return "this would overwrite one of the sources" if held else ""


class _TakenKeys:
    """Taken destination keys, for objects in any order."""

    def __init__(self, fold: Callable[[str], str] | None) -> None:
        self._fold = fold
        self._taken: set[str] = set()
        self._folders: set[str] = set()

    def take(self, to: str, *, exclusive: bool) -> str:
        """Take a key, or return why it is not available; ``exclusive``: a file cannot also be a directory."""
        if self._fold is not None:
            to = self._fold(to)
        if to in self._taken:
            spelt = "" if self._fold is None else ", perhaps in another spelling, which this disk takes for the same"
            return f"two sources for one destination{spelt}: another source came first"
        above = [to[:at] for at in range(len(to)) if to[at] == "/"] if exclusive else []
        if to in self._folders or not self._taken.isdisjoint(above):
            return _BOTH
        self._taken.add(to)
        self._folders.update(above)
        return ""


class _Nested:
    """Taken destination keys, for objects in key order: memory for one path, as a key precedes the keys below it."""

    def __init__(self) -> None:
        self._above: list[str] = []

    def take(self, to: str, *, exclusive: bool) -> str:
        while self._above and not to.startswith(self._above[-1]):
            self._above.pop()
        if exclusive and any(to.startswith(f"{each}/") for each in self._above):
            return _BOTH
        self._above.append(to)
        return ""


_BOTH = "this path would have to be a file and a directory: another object took it"
