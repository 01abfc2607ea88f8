"""Shapes of an array's chunks and shards, from the user's options; pure."""

from __future__ import annotations

from collections.abc import Mapping
from math import ceil
from typing import TYPE_CHECKING

from penstock.errors import Unusable
from penstock.options.table import meant

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

__all__ = ["Shapes", "filled", "parsed", "sharded"]
_WHOLE = -1  # the whole dimension


class Shapes:
    """The option ``chunks`` or ``shards`` of a copy, resolved for one array after another.

    A sequence applies to every array of that many dimensions. In a mapping, the name of a dimension gives the size
    along it in every array that has it, except coordinates (arrays of one dimension with the array's own name); the
    path of an array gives all of its sizes. -1 is the whole dimension.
    """

    def __init__(self, given: object, what: str) -> None:
        """Take ``given``, the value of the option ``what`` (chunks or shards); raise ``Unusable`` for other types."""
        self.what = what
        self.none = given == "none"
        self._by_rank: tuple[int, ...] | None = None
        self._by_name: dict[str, int | tuple[int, ...]] = {}
        self._used: set[object] = set()
        self._known: set[str] = set()
        if isinstance(given, Mapping):
            self._by_name = {str(name): self._sizes(each) for name, each in given.items()}
        elif given is not None and not self.none:
            sizes = self._sizes(given)
            self._by_rank = (sizes,) if isinstance(sizes, int) else sizes

    def of(self, path: str, shape: Sequence[int], dims: Sequence[str | None]) -> tuple[int, ...] | None:
        """Return the sizes requested for an array, -1 for a whole dimension, 0 for no change; None if there are none.

        Raises:
            Unusable: The number of sizes differs from the array's number of dimensions.

        """
        name = path.rpartition("/")[2]
        self._known |= {path, *filter(None, dims)}
        if path in self._by_name and not (isinstance(self._by_name[path], int) and path in dims):
            self._used.add(path)
            sizes = self._by_name[path]
            return self._checked((sizes,) if isinstance(sizes, int) else sizes, path, shape)
        if self._by_rank is not None and (len(self._by_rank) == len(shape) or not path):
            self._used.add(None)
            return self._checked(self._by_rank, path, shape)
        along = {dim: size for dim in dims if dim and isinstance(size := self._by_name.get(dim), int)}
        if not along or (len(dims) == 1 and dims[0] == name):
            return None
        self._used |= along.keys()
        return tuple(along.get(dim or "", 0) for dim in dims)  # 0: no change

    def check_used(self) -> None:
        """Raise ``Unusable`` for a name or shape that fits no array; the message suggests a similar name."""
        for name in self._by_name.keys() - self._used:
            known = sorted(self._known - {""})
            near = meant(name, known, f"; there are {', '.join(known)}" if known else "")
            raise Unusable(f"{self.what}: no array and no dimension is called {name!r}{near}")
        if self._by_rank is not None and not self._used:
            raise Unusable(f"{self.what} {self._by_rank} are {len(self._by_rank)}: no array has so many dimensions")

    def _checked(self, sizes: tuple[int, ...], path: str, shape: Sequence[int]) -> tuple[int, ...]:
        if len(sizes) != len(shape):
            where = f"array {path!r}" if path else "the array"
            raise Unusable(
                f"{self.what} {sizes} are {len(sizes)}, and {where} of shape {tuple(shape)} has {len(shape)}"
            )
        return sizes

    def _sizes(self, given: object) -> int | tuple[int, ...]:
        sizes = (given,) if isinstance(given, int) else given
        if not isinstance(sizes, list | tuple) or not all(
            type(each) is int and (each > 0 or each == _WHOLE) for each in sizes
        ):
            raise Unusable(f"{self.what}: {given!r} is no size: a whole number above 0, or -1 for the whole dimension")
        return given if isinstance(given, int) else tuple(sizes)


def filled(asked: Sequence[int], shape: Sequence[int], usual: Sequence[int]) -> tuple[int, ...]:
    """Return the sizes ``asked``, with -1 replaced by the whole dimension and 0 by the size in ``usual``."""
    whole = (max(size, 1) if each == _WHOLE else each for each, size in zip(asked, shape, strict=True))
    return tuple(each or other for each, other in zip(whole, usual, strict=True))


def sharded(asked: Sequence[int], shape: Sequence[int], chunks: Sequence[int], usual: Sequence[int]) -> tuple[int, ...]:
    """Return the shape of a shard; whole dimensions are rounded up to whole chunks.

    Raises:
        Unusable: The shape is not a multiple of the chunks; the message suggests the nearest one that is.

    """
    rounded = tuple(max(ceil(size / chunk), 1) * chunk for size, chunk in zip(shape, chunks, strict=True))
    sizes = filled(asked, rounded, usual)
    if any(size % chunk for size, chunk in zip(sizes, chunks, strict=True)):
        near = tuple(max(round(size / chunk), 1) * chunk for size, chunk in zip(sizes, chunks, strict=True))
        raise Unusable(f"shards {sizes} are no multiple of chunks {tuple(chunks)}: {near} would be one")
    return sizes


def parsed(words: Iterable[str], flag: str) -> object:
    """Parse the sizes of a command line: ``1,180,360``, ``time=1,lat=all``, ``tas:1,180,360``, ``none``.

    Raises:
        Unusable: The words have any other form.

    """
    given = [word.strip() for word in words]
    if not given:
        return None
    if given == ["none"]:
        return "none"
    named: dict[str, int | tuple[int, ...]] = {}
    for word in given:
        path, colon, rest = word.rpartition(":")
        if colon:
            named[path] = tuple(_size(each, flag, word) for each in rest.split(","))
        elif "=" in word:
            for each in word.split(","):
                dim, equals, size = each.partition("=")
                named[dim.strip()] = _size(size if equals else "", flag, word)
        elif len(given) == 1:
            return tuple(_size(each, flag, word) for each in word.split(","))
        else:
            raise Unusable(f"{flag} {word}: name the dimensions or the array where there are several of it")
    return named


def _size(text: str, flag: str, word: str) -> int:
    text = text.strip()
    if text in ("all", "-1"):
        return _WHOLE
    if not (text.isascii() and text.isdigit() and int(text)):
        raise Unusable(
            f"{flag} {word}: write 1,180,360, or time=1,lat=all by dimension, or tas:1,180,360 for one array"
        )
    return int(text)
