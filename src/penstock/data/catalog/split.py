"""Random splits: the part of each entry, drawn by its name and a seed, or counted within each class."""

from __future__ import annotations

import hashlib
import math
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from penstock.data.catalog.labels import numbered
from penstock.data.catalog.storage.column import blocks
from penstock.errors import Unusable

if TYPE_CHECKING:
    from collections.abc import Sequence

    from numpy.typing import NDArray

    from penstock.data.catalog.storage.column import Rows
    from penstock.data.catalog.storage.table import Table

__all__ = ["Draw", "divided", "draws"]

# Part of the format, as is all of `draws`: another number would move objects from training to validation.
_ODD = 0x9E3779B97F4A7C15
_SHIFTS = ((30, 0xBF58476D1CE4E5B9), (27, 0x94D049BB133111EB))
_NEAR = 1e-9


class Draw(NamedTuple):
    """Parameters of a draw: first bytes of names to ``skip``, ``seed``, and ``by``: all samples or each label."""

    skip: int
    seed: int
    by: str


def divided(table: Table, rows: Rows, parts: Sequence[float], draw: Draw) -> list[NDArray[np.int64]]:
    """Return the positions in ``rows`` of each part's entries, in order: see ``Catalog.split``.

    Raises:
        Unusable: The parts do not add up, a part would be empty, or a class has fewer entries than there are parts.

    """
    if draw.by not in ("sample", "label"):
        raise Unusable(f'split is by="sample" or by="label", not {draw.by!r}')
    fractions, counts = _shares(parts, len(rows))
    drawn = draws(table, rows, draw.skip, draw.seed)
    if draw.by == "label":
        if counts:
            raise Unusable('by="label" divides every class alike, by fractions: split(0.9, by="label")')
        number = _by_class(drawn, *numbered(table, rows), fractions)
    else:
        number = _by_count(drawn, counts) if counts else _by_fraction(drawn, fractions)
    found = [np.flatnonzero(number == part) for part in range(len(counts or fractions))]
    if not all(map(len, found)):
        sizes = ", ".join(str(len(each)) for each in found)
        raise Unusable(
            f"fractions are drawn, and made parts of {sizes} objects: pass counts, they are exact: split(9, 1)"
        )
    return found


def draws(table: Table, rows: Rows, skip: int, seed: int) -> NDArray[np.uint64]:
    """Return a uniform 64-bit number for each entry, from its name (without ``skip`` bytes) and ``seed`` alone.

    The bytes of a name are the coefficients of a polynomial modulo 2⁶⁴, which splitmix64 then mixes with the seed.
    Ranges of the same object have the same name, so they are in the same part.
    """
    key = np.uint64(int.from_bytes(hashlib.sha256(f"penstock split {seed}".encode()).digest()[:8], "little"))
    pieces = [_mixed(_polynomial(table, block, skip) ^ key) for block in blocks(rows)]
    return np.concatenate(pieces) if pieces else np.zeros(0, np.uint64)


def _polynomial(table: Table, rows: Rows, skip: int) -> NDArray[np.uint64]:
    """Return Σ (byte + 1) · odd^position of each name, modulo 2⁶⁴."""
    ends, data = table.keys.joined(table.objects(rows))
    powers = np.multiply.accumulate(np.full(len(data) + 1, _ODD, np.uint64))
    inverse = np.multiply.accumulate(np.full(len(data) + 1, pow(_ODD, -1, 1 << 64), np.uint64))
    sums = np.concatenate(([np.uint64(0)], np.cumsum((data + np.uint64(1)) * powers[:-1], dtype=np.uint64)))
    starts = ends[:-1] + skip
    return (sums[ends[1:]] - sums[starts]) * inverse[starts]  # as if each name began at byte 0


def _mixed(numbers: NDArray[np.uint64]) -> NDArray[np.uint64]:
    numbers = numbers + np.uint64(_ODD)
    for shift, factor in _SHIFTS:
        numbers = (numbers ^ (numbers >> np.uint64(shift))) * np.uint64(factor)
    return numbers ^ (numbers >> np.uint64(31))


def _shares(parts: Sequence[Any], total: int) -> tuple[list[float], list[int]]:
    """Return the fractions, which sum to 1, or the counts, which sum to ``total``, of a split; the other list is [].

    A single number is the first of two parts.

    Raises:
        Unusable: ``parts`` are neither.

    """
    for each in parts:
        if isinstance(each, bool) or not (hasattr(each, "__index__") or isinstance(each, (float, np.floating))):
            raise Unusable(f"a part is a fraction (0.9) or a count (540), not {each!r}")
    if not parts:
        raise Unusable("split into what? 0.9 is nine tenths and the rest, (540, 60) are counts")
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
                f"parts of {', '.join(map(str, counts))} objects: counts are 1 or more, and make {total} together"
            )
        return [], counts
    fractions = [float(each) for each in parts]
    fractions += [1 - fractions[0]] if len(fractions) == 1 else []
    if not all(0 < each < 1 for each in fractions) or abs(math.fsum(fractions) - 1) > _NEAR:
        said = ", ".join(f"{float(each):g}" for each in parts)
        raise Unusable(f"fractions of {said}: each lies between 0 and 1, exclusive, and together they make 1")
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
    """Return each entry's part: each part has its fraction of every class, rounded, and at least one entry.

    Raises:
        Unusable: A class has fewer entries than there are parts.

    """
    order = np.lexsort((drawn, codes))
    counts = np.bincount(codes, minlength=len(names))
    short = [f"{names[code]!r} ({counts[code]})" for code in _where((counts > 0) & (counts < len(fractions)))]
    if short:
        few = ", ".join(short[:3]) + (", …" if len(short) > 3 else "")  # noqa: PLR2004  enough to find them
        raise Unusable(f"too few objects to have some in each of {len(fractions)} parts: {few}; filter(labels=…) first")
    taken = [_rounded(int(count), fractions) for count in counts if count]
    number = np.tile(np.arange(len(fractions), dtype=np.uint32), len(taken))
    parts = np.empty(len(drawn), np.uint32)
    parts[order] = np.repeat(number, np.array(taken, np.int64).ravel())
    return parts


def _where(mask: NDArray[np.bool_]) -> list[int]:
    found: list[int] = np.flatnonzero(mask).tolist()
    return found


def _rounded(count: int, fractions: Sequence[float]) -> list[int]:
    """Return integers that sum to ``count``, each at least 1, as near to the fractions as possible."""
    exact = [count * each for each in fractions]
    parts = [max(1, math.floor(each)) for each in exact]
    while sum(parts) != count:
        up = sum(parts) < count
        able = [at for at in range(len(parts)) if up or parts[at] > 1]
        at = max(able, key=lambda at: (exact[at] - parts[at]) * (1 if up else -1))
        parts[at] += 1 if up else -1
    return parts
