"""Selection of the table rows that a catalog shows, and its entries: objects, or byte ranges of objects.

``divide_rows`` draws the part of each entry for random splits, by its name and a seed, or counts within each class.
"""

from __future__ import annotations

import hashlib
import math
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, NamedTuple, overload

import numpy as np

from penstock.data.catalog.columns.column import Numbers, blocks, encode, list_rows, pack, taken
from penstock.data.catalog.columns.table import TableBuilder, gather_regions
from penstock.data.catalog.labels import label_of, mask_labels, names, number_labels
from penstock.engine.listing.select import selector
from penstock.errors import Unusable
from penstock.values import Span, check_choice

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from numpy.typing import NDArray

    from penstock.data.catalog.columns.column import Rows
    from penstock.data.catalog.columns.table import Table

_new = tuple.__new__


class Picked(Sequence[int]):
    """Row numbers in any order, in memory that workers map: 4 bytes each (8 beyond 2³¹ rows); ``values`` has all."""

    __slots__ = ("_numbers", "_part", "_view", "values")

    def __init__(self, numbers: Numbers, part: range | None = None) -> None:
        self._numbers = numbers
        self._part = range(len(numbers)) if part is None else part
        start, stop, step = self._part.start, self._part.stop, self._part.step
        self.values = numbers.values[start : None if stop < 0 else stop : step]
        self._view = memoryview(self.values)  # type: ignore[arg-type]  # an array is a buffer

    def __len__(self) -> int:
        return len(self._part)

    @overload
    def __getitem__(self, index: int) -> int: ...
    @overload
    def __getitem__(self, index: slice) -> Picked: ...
    def __getitem__(self, index: int | slice) -> int | Picked:
        return Picked(self._numbers, self._part[index]) if isinstance(index, slice) else self._view[index]

    def __reduce__(self) -> tuple[Callable[..., Picked], tuple[Numbers, range]]:
        return Picked, (self._numbers, self._part)


def at(rows: Rows, chosen: NDArray[np.int64]) -> NDArray[np.int64]:
    return rows.start + chosen * rows.step if isinstance(rows, range) else rows[chosen].astype(np.int64)


def pick_rows(rows: Rows, chosen: NDArray[np.int64]) -> Picked:
    numbers = at(rows, chosen)
    small = np.int32 if not len(numbers) or numbers.max() < 1 << 31 else np.int64
    return Picked(pack([numbers.astype(small)])[0])


def positions(index: object, total: int) -> NDArray[np.int64]:
    """Return the positions that indices (a list, an array or a tensor) or a mask of ``total`` booleans select."""
    array = _array(index, "a catalog is indexed by numbers: catalog[0], catalog[:10], catalog[[3, 5]]")
    if array.dtype == bool:
        return np.flatnonzero(_mask(array, total))
    if not len(array):
        return np.zeros(0, np.int64)
    if array.dtype.kind not in "iu":
        raise Unusable(f"indices must be whole numbers, got {array.dtype}; filter(include=…) chooses by name")
    outside = (array < -total) | (array >= total) if array.dtype.kind == "i" else array >= total
    if outside.any():
        raise IndexError(f"index {array[outside][0]} is outside a catalog of {total} objects")
    chosen = array.astype(np.int64)
    return np.where(chosen < 0, chosen + total, chosen)


def _mask(mask: object, total: int) -> NDArray[np.bool_]:
    array = _array(mask, "a mask is one bool for each object")
    if array.dtype != bool:
        raise Unusable(f"a mask must be bool, got {array.dtype}: compare (sizes > 0), or take catalog[indices]")
    if len(array) != total:
        raise Unusable(f"a mask must have {total} bools, one for each object, got {len(array)}")
    return array


class Conditions(NamedTuple):
    """The arguments of ``Catalog.filter``."""

    size: object
    include: tuple[str, ...]
    exclude: tuple[str, ...]
    mask: object
    labels: object


def match_entries(table: Table, rows: Rows, skip: int, asked: Conditions) -> NDArray[np.int64]:
    """Return the positions in ``rows`` of the entries that meet all conditions; globs skip ``skip`` bytes of keys."""
    keep = np.ones(len(rows), bool) if asked.mask is None else _mask(asked.mask, len(rows)).copy()
    if asked.size is not None:
        sizes = taken(table.sizes.values, rows) if table.group is None else table.group.sizes(table, rows)
        keep &= _of_size(sizes, asked.size)
    if asked.labels is not None:
        keep &= mask_labels(table, rows, asked.labels)
    if asked.include or asked.exclude:
        chosen, left = selector(asked.include, asked.exclude, markers=True), np.flatnonzero(keep)
        blocks = names(table, at(rows, left), skip)
        keep[left] = np.fromiter((chosen(name, 1) for block in blocks for name in block), bool, len(left))
    return np.flatnonzero(keep)


def _of_size(sizes: NDArray[np.integer[Any]], size: object) -> NDArray[np.bool_]:
    """Return a mask of the sizes within ``(least, most)`` bytes, both inclusive, None for no bound."""
    pair = size if isinstance(size, (tuple, list)) else ()
    wrong = [each for each in pair if not (each is None or (hasattr(each, "__index__") and not isinstance(each, bool)))]
    if len(pair) != 2 or wrong:  # noqa: PLR2004  a pair
        raise Unusable(f"size must be (least, most) in bytes, both inclusive, None for no bound; got {size!r}")
    least, most = pair
    if least is not None and most is not None and least > most:
        raise Unusable(f"size=({least}, {most}): least must not exceed most")
    if (sizes < 0).any():
        message = f"{int((sizes < 0).sum())} objects have no known size (from_objects, manifests without sizes)"
        raise Unusable(f"{message}: scan the prefix, or put sizes into the manifest")
    within = np.ones(len(sizes), bool)
    if least is not None:
        within &= sizes >= least
    if most is not None:
        within &= sizes <= most
    return within


def _array(values: object, word: str) -> NDArray[Any]:
    if isinstance(values, (str, bytes, dict, set)) or not hasattr(values, "__len__"):
        raise Unusable(f"{word}; got {type(values).__name__}")
    try:
        array = np.asarray(values)
    except (TypeError, ValueError, RuntimeError) as error:  # ragged lists, tensors on a device
        raise Unusable(f"{word} ({error})") from error
    if array.ndim != 1:
        raise Unusable(f"{word}; got shape {array.shape}")
    return array


def unite_tables(first: Table, mine: Rows, second: Table, theirs: Rows) -> tuple[Table, Picked | None]:
    """Return a joined table, and the rows to show (None: all); parts of the same table are not copied."""
    if first is not second:
        return gather_regions(first.take(mine).plus(second.take(theirs))), None
    rows = np.concatenate([*map(list_rows, (mine, theirs))])
    return first, pick_rows(rows, np.arange(len(rows)))


class Entry(NamedTuple):
    """An entry of a catalog or a manifest: an object, or a byte range of an object.

    Attributes:
        key: Full key within the bucket; in a manifest, the key as written there.
        size: Bytes of the object, or of the range; -1 if unknown.
        label: The class number; or any JSON value from the manifest, None without a label.
        etag: ETag of the listed version, without quotes; empty if unknown. If its id is recorded, ``version=`` and the
            id follow, after a space.
        offset: The first byte of the range; -1 when the entry is the whole object.
    """

    key: str
    size: int = -1
    label: object = None
    etag: str = ""
    offset: int = -1


def entry_of(table: Table, row: int) -> Entry:
    ranges, of, offset = table.ranges, row, -1
    if ranges is not None:
        of, offset = ranges.objects.view[row], ranges.offsets.view[row]
    return Entry(table.keys.text(of), table.sizes.view[row], label_of(table, row), table.etags.text(of), offset)


def span_of(table: Table, row: int) -> Span:
    """Return the byte span of one row, pinned to the listed version; of a row in a unit, that of the unit."""
    size, of, ranges = table.sizes.view[row], row, table.ranges
    if ranges is not None:
        of, start = ranges.objects.view[row], ranges.offsets.view[row]
        if table.units is not None:
            return Span(table.keys.text(of), *table.units.cover(table.units.rows.view[row]), table.etags.text(of))
        if start >= 0:
            return _new(Span, (table.keys.text(of), start, start + size, table.etags.text(of), False, 0, None))
    # Build the tuple directly: calling the class runs a Python function.
    return _new(Span, (table.keys.text(of), 0, size if size >= 0 else None, table.etags.text(of), True, 0, None))


def build_table(base: str, entries: Iterable[Entry]) -> tuple[str, Table]:
    """Return a table of entries, and ``base``, or "" if a key does not begin with it."""
    growing = TableBuilder()
    inside = True
    for key, size, label, etag, offset in entries:
        growing.add(encode(key), size, etag, label, offset)
        inside = inside and key.startswith(base)
    return base if inside else "", growing.freeze()


# Part of the format, as is all of `draws`: another number would move objects from training to validation.
_ODD = 0x9E3779B97F4A7C15
_SHIFTS = ((30, 0xBF58476D1CE4E5B9), (27, 0x94D049BB133111EB))
_NEAR = 1e-9


def divide_rows(
    table: Table, rows: Rows, parts: Sequence[float], skip: int, seed: int, by: str
) -> list[NDArray[np.int64]]:
    """Return the positions in ``rows`` of each part's entries, in order: see ``Catalog.split``."""
    check_choice(by, ("sample", "label"), "by")
    fractions, counts = shares(parts, len(rows))
    drawn = draws(table, rows, skip, seed)
    if by == "label":
        if counts:
            raise Unusable('by="label" divides every class alike, by fractions: split(0.9, by="label")')
        number = _by_class(drawn, *number_labels(table, rows), fractions)
    else:
        number = _by_count(drawn, counts) if counts else _by_fraction(drawn, fractions)
    found = [np.flatnonzero(number == part) for part in range(len(counts or fractions))]
    if not all(map(len, found)):
        sizes = ", ".join(str(len(each)) for each in found)
        raise Unusable(
            f"random fractions gave parts of {sizes} objects; pass counts for exact sizes, such as split(9, 1)"
        )
    return found


def draws(table: Table, rows: Rows, skip: int, seed: int) -> NDArray[np.uint64]:
    """Return a uniform 64-bit number for each entry, from its name (without ``skip`` bytes) and ``seed`` alone.

    The bytes of a name are the coefficients of a polynomial modulo 2⁶⁴, which splitmix64 then mixes with the seed.
    Ranges of the same object have the same name, so they are in the same part; but samples of a shard are drawn one by
    one, by their place, since a shard holds many.
    """
    key = np.uint64(int.from_bytes(hashlib.sha256(f"penstock split {seed}".encode()).digest()[:8], "little"))
    offsets = None if table.format is None or table.ranges is None else table.ranges.offsets.values
    pieces = []
    for block in blocks(rows):
        named = _polynomial(table, block, skip)
        if offsets is not None:
            named = named ^ _mix_bits(taken(offsets, block).astype(np.uint64))
        pieces.append(_mix_bits(named ^ key))
    return np.concatenate(pieces) if pieces else np.zeros(0, np.uint64)


def hash_entries(table: Table, rows: Rows, skip: int) -> NDArray[np.uint64]:
    """Return a 64-bit number for each entry, from its name (without ``skip`` bytes) and the first byte of a range."""
    offsets, pieces = None if table.ranges is None else table.ranges.offsets.values, [np.zeros(0, np.uint64)]
    for block in blocks(rows):
        named = _polynomial(table, block, skip)
        if offsets is not None:
            starts = taken(offsets, block)
            named = np.where(starts < 0, named, named ^ _mix_bits(starts.astype(np.uint64)))
        pieces.append(_mix_bits(named))
    return np.concatenate(pieces)


def _polynomial(table: Table, rows: Rows, skip: int) -> NDArray[np.uint64]:
    """Return Σ (byte + 1) · odd^position of each name, modulo 2⁶⁴."""
    ends, data = table.keys.joined(table.objects(rows))
    powers = np.multiply.accumulate(np.full(len(data) + 1, _ODD, np.uint64))
    inverse = np.multiply.accumulate(np.full(len(data) + 1, pow(_ODD, -1, 1 << 64), np.uint64))
    sums = np.concatenate(([np.uint64(0)], np.cumsum((data + np.uint64(1)) * powers[:-1], dtype=np.uint64)))
    starts = ends[:-1] + skip
    return (sums[ends[1:]] - sums[starts]) * inverse[starts]  # as if each name began at byte 0


def _mix_bits(numbers: NDArray[np.uint64]) -> NDArray[np.uint64]:
    numbers = numbers + np.uint64(_ODD)
    for shift, factor in _SHIFTS:
        numbers = (numbers ^ (numbers >> np.uint64(shift))) * np.uint64(factor)
    return numbers ^ (numbers >> np.uint64(31))


def shares(parts: Sequence[Any], total: int, things: str = "objects") -> tuple[list[float], list[int]]:
    """Return the fractions, which sum to 1, or the counts, which sum to ``total``, of a split; the other list is [].

    A single number is the first of two parts. Errors call the divided entries ``things``.
    """
    for each in parts:
        if isinstance(each, bool) or not (hasattr(each, "__index__") or isinstance(each, (float, np.floating))):
            raise Unusable(f"a part must be a fraction (0.9) or a count (540), got {each!r}")
    if not parts:
        raise Unusable("split needs fractions or counts: 0.9 is nine tenths and the rest, (540, 60) are counts")
    counts = [int(each) for each in parts if hasattr(each, "__index__")]
    if counts and len(counts) < len(parts):
        raise Unusable(f"{tuple(parts)} mixes fractions and counts: pass all of one kind (1.0 is all, 1 is one object)")
    if counts:
        if counts == [1]:
            raise Unusable(
                f"split(1) may mean one object or all of them: pass counts for all parts: split(1, {total - 1})"
            )
        counts += [total - counts[0]] if len(counts) == 1 else []
        if min(counts) <= 0 or sum(counts) != total:
            raise Unusable(
                f"parts of {', '.join(map(str, counts))} {things}: counts are 1 or more, and make {total} together"
            )
        return [], counts
    fractions = [float(each) for each in parts]
    fractions += [1 - fractions[0]] if len(fractions) == 1 else []
    if not all(0 < each < 1 for each in fractions) or abs(math.fsum(fractions) - 1) > _NEAR:
        said = ", ".join(f"{float(each):g}" for each in parts)
        raise Unusable(f"fractions must be above 0 and below 1, and their sum must be 1, got {said}")
    return fractions, []


def _by_fraction(drawn: NDArray[np.uint64], fractions: Sequence[float]) -> NDArray[np.uint32]:
    """Return each entry's part, which depends on its draw alone; the sizes of the parts are random."""
    bounds = [np.uint64(min(int(each * 2**64), 2**64 - 1)) for each in np.cumsum(fractions)[:-1]]
    return np.searchsorted(np.array(bounds, np.uint64), drawn, side="right").astype(np.uint32)


def _by_count(drawn: NDArray[np.uint64], counts: Sequence[int]) -> NDArray[np.uint32]:
    """Return each entry's part: the lowest draws are in the first part."""
    parts = np.empty(len(drawn), np.uint32)
    parts[np.argsort(drawn, kind="stable")] = np.repeat(np.arange(len(counts), dtype=np.uint32), counts)
    return parts


def _by_class(
    drawn: NDArray[np.uint64], codes: NDArray[Any], names: Sequence[object], fractions: Sequence[float]
) -> NDArray[np.uint32]:
    """Return each entry's part: each part has its fraction of every class, rounded, and at least one entry."""
    order = np.lexsort((drawn, codes))
    counts = np.bincount(codes, minlength=len(names))
    short = [
        f"{names[code]!r} ({counts[code]})"
        for code in np.flatnonzero((counts > 0) & (counts < len(fractions))).tolist()
    ]
    if short:
        few = ", ".join(short[:3]) + (", …" if len(short) > 3 else "")  # noqa: PLR2004  enough to find them
        raise Unusable(f"too few objects to have some in each of {len(fractions)} parts: {few}; filter(labels=…) first")
    taken = [round_counts(int(count), fractions) for count in counts if count]
    number = np.tile(np.arange(len(fractions), dtype=np.uint32), len(taken))
    parts = np.empty(len(drawn), np.uint32)
    parts[order] = np.repeat(number, np.array(taken, np.int64).ravel())
    return parts


def round_counts(count: int, fractions: Sequence[float]) -> list[int]:
    """Return integers that sum to ``count``, each at least 1, as near to the fractions as possible."""
    exact = [count * each for each in fractions]
    parts = [max(1, math.floor(each)) for each in exact]
    while sum(parts) != count:
        up = sum(parts) < count
        able = [at for at in range(len(parts)) if up or parts[at] > 1]
        at = max(able, key=lambda at: (exact[at] - parts[at]) * (1 if up else -1))
        parts[at] += 1 if up else -1
    return parts
