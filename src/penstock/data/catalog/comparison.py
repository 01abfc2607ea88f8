"""Comparison of catalogs: which entries were added, removed or changed, and an identity that counts versions.

Names are matched by 64-bit numbers made of them, in arrays; then the bytes of every matched pair are compared, so that
two names with one number are never taken for one.
"""

from __future__ import annotations

import hashlib
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Any

import numpy as np

from penstock.data.catalog.columns.column import blocks, decode, encode, taken
from penstock.data.catalog.columns.compact import Versioned
from penstock.data.catalog.rows import hash_entries
from penstock.data.catalog.saved import strip_base
from penstock.errors import Unusable, kind_of

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from numpy.typing import NDArray

    from penstock.data.catalog.columns.column import Rows
    from penstock.data.catalog.columns.table import Table

    # Lengths of some texts, and all their bytes.
    Texts = tuple[NDArray[np.int64], NDArray[np.uint8]]

_BLOCK = 1 << 15  # pairs whose texts are compared together


@dataclass(frozen=True, slots=True, repr=False)
class CatalogDiff:
    """The differences of two catalogs, each as a catalog over the same memory.

    Entries are matched by their names below ``base``, and ranges also by their first bytes; an entry that is there
    twice is matched twice. An entry has changed if its size differs, or its ETag where both catalogs have one, or its
    version id where both record them. Copies of an object may have different ETags.

    Attributes:
        added: Entries of the later catalog that the earlier one lacks.
        removed: Entries of the earlier catalog that the later one lacks.
        changed: Entries with another size or ETag, as in the later catalog.
        before: The same entries, as in the earlier catalog.
        unproven: Entries of the later catalog that seem equal, where a size or an ETag is missing in one of them.
        equal: Number of entries with equal sizes and ETags.

    Example:
        >>> before = ps.Catalog.scan("s3://bucket/train/", include="3/*")
        >>> found = before.diff(ps.Catalog.scan("s3://bucket/train/", include="[34]/*"))
        >>> len(found.added), found.added[0].key, found.equal
        (60, 'train/4/0000.png', 60)
    """

    added: Any
    removed: Any
    changed: Any
    before: Any
    unproven: Any
    equal: int

    @classmethod
    def of(cls, first: Any, mine: ComparedRows, second: Any, theirs: ComparedRows) -> CatalogDiff:  # noqa: ANN401  catalogs
        """Compare two catalogs, by their rows."""
        found = _compare_rows(mine, theirs)
        of = {name: first if name in ("removed", "before") else second for name in found if name != "equal"}
        return cls(**{name: each[found[name]] for name, each in of.items()}, equal=len(found["equal"]))

    def __repr__(self) -> str:
        counts = {name: len(getattr(self, name)) for name in ("added", "removed", "changed")} | {"equal": self.equal}
        counts |= {"unproven, for lack of an ETag or a size": len(self.unproven)} if len(self.unproven) else {}
        return f"<CatalogDiff: {', '.join(f'{count:,} {name}' for name, count in counts.items())}>"


class ComparedRows:
    """Rows of a catalog to be compared: their names, first bytes, sizes and ETags."""

    def __init__(self, table: Table, rows: Rows, base: str) -> None:
        if table.group is not None:
            raise Unusable("cannot compare samples of several objects: compare the catalogs that they were made of")
        self.numbers = np.asarray(rows, dtype=np.int64)
        self._table, self._base = table, np.frombuffer(encode(base), np.uint8)

    def hashes(self) -> NDArray[np.uint64]:
        return hash_entries(self._table, self.numbers, len(self._base))

    def names(self, at: NDArray[np.int64]) -> Texts:
        lengths, data = strip_base(self._table.keys, self._objects(at), self._base)
        return lengths, np.frombuffer(data, np.uint8)

    @property
    def versioned(self) -> bool:
        """Whether version ids are recorded."""
        return isinstance(self._table.etags, Versioned)

    def etags(self, at: NDArray[np.int64], *, plain: bool = False) -> Texts:
        """Return the ETags; if ``plain``, without version ids."""
        etags = self._table.etags
        column = etags.etags if plain and isinstance(etags, Versioned) else etags
        ends, data = column.joined(self._objects(at))
        return np.diff(ends), data

    def sizes(self, at: NDArray[np.int64]) -> NDArray[np.int64]:
        return taken(self._table.sizes.values, self.numbers[at]).astype(np.int64)

    def offsets(self, at: NDArray[np.int64]) -> NDArray[np.int64]:
        ranges = self._table.ranges
        if ranges is None:
            return np.full(len(at), -1, np.int64)
        return taken(ranges.offsets.values, self.numbers[at]).astype(np.int64)

    def key(self, at: int) -> tuple[bytes, int]:
        one = np.array([at])
        return self.names(one)[1].tobytes(), int(self.offsets(one)[0])

    def _objects(self, at: NDArray[np.int64]) -> Rows:
        return self._table.objects(self.numbers[at])


def _compare_rows(first: ComparedRows, second: ComparedRows) -> dict[str, NDArray[np.int64]]:
    """Return the positions of each attribute of a ``CatalogDiff``, and of the ``equal`` ones."""
    mine, theirs = _match(first, second)
    order = np.argsort(theirs, kind="stable")
    mine, theirs = mine[order], theirs[order]
    changed, unproven = np.zeros(len(mine), bool), np.zeros(len(mine), bool)
    # An id is compared with an id; the ETag has to do if one of the catalogs has none.
    tags = [partial(each.etags, plain=first.versioned != second.versioned) for each in (first, second)]
    for at in range(0, len(mine), _BLOCK):
        some = slice(at, at + _BLOCK)
        one, other = mine[some], theirs[some]
        sizes, others = first.sizes(one), second.sizes(other)
        tagged = (tags[0](one)[0] > 0) & (tags[1](other)[0] > 0)
        sized = (sizes >= 0) & (others >= 0)
        changed[some] = (sized & (sizes != others)) | (tagged & _differ(tags[0], one, tags[1], other))
        unproven[some] = ~(tagged & sized)
    unproven &= ~changed
    return {
        "added": _lacking(len(second.numbers), theirs),
        "removed": _lacking(len(first.numbers), mine),
        "changed": theirs[changed],
        "before": mine[changed],
        "unproven": theirs[unproven],
        "equal": theirs[~(changed | unproven)],
    }


def _lacking(count: int, known: NDArray[np.int64]) -> NDArray[np.int64]:
    there = np.zeros(count, bool)
    there[known] = True
    return np.flatnonzero(~there)


def _match(first: ComparedRows, second: ComparedRows) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """Return the positions of the entries that both have: the n-th of equal ones belongs to the n-th."""
    mine, theirs = first.hashes(), second.hashes()
    by_mine, by_theirs = np.argsort(mine, kind="stable"), np.argsort(theirs, kind="stable")
    mine, theirs = mine[by_mine], theirs[by_theirs]
    at = np.searchsorted(theirs, mine) + np.arange(len(mine)) - np.searchsorted(mine, mine)
    found = at < len(theirs)
    found[found] = theirs[at[found]] == mine[found]
    one, other = by_mine[found], by_theirs[at[found]]
    wrong = np.zeros(len(one), bool)
    for start in range(0, len(one), _BLOCK):
        some = slice(start, start + _BLOCK)
        wrong[some] = _differ(first.names, one[some], second.names, other[some])
        wrong[some] |= first.offsets(one[some]) != second.offsets(other[some])
    if not wrong.any():
        return one, other
    # Different entries with one number, which are found by chance once in some million catalogs.
    numbers = np.unique(mine[found][wrong])
    kept = ~np.isin(mine[found], numbers)
    places: dict[tuple[bytes, int], list[int]] = {}
    for position in by_theirs[np.isin(theirs, numbers)][::-1].tolist():
        places.setdefault(second.key(position), []).append(position)
    pairs = [
        (position, same.pop())
        for position in by_mine[np.isin(mine, numbers)].tolist()
        if (same := places.get(first.key(position)))
    ]
    more = np.array(pairs, np.int64).reshape(-1, 2)
    return np.concatenate((one[kept], more[:, 0])), np.concatenate((other[kept], more[:, 1]))


def _differ(
    mine: Callable[[NDArray[np.int64]], Texts],
    one: NDArray[np.int64],
    theirs: Callable[[NDArray[np.int64]], Texts],
    other: NDArray[np.int64],
) -> NDArray[np.bool_]:
    """Return whether the texts of each pair differ."""
    (lengths, data), (others, more) = mine(one), theirs(other)
    if (lengths == others).all():
        counts = np.concatenate(([0], np.cumsum(data != more)))
        ends = np.concatenate(([0], np.cumsum(lengths)))
        return np.not_equal(counts[ends[1:]], counts[ends[:-1]])
    found = np.not_equal(lengths, others)
    same = ~found
    found[same] = _differ(mine, one[same], theirs, other[same])
    return found


def fingerprint_rows(table: Table, rows: Rows, base: str, digest: str) -> str:
    """Return the SHA-256 of a catalog's digest and the ETags of its rows, and how many have none."""
    whole = hashlib.sha256(f"penstock fingerprint 1\n{digest}\n".encode())
    known = total = 0
    for etags, numbers in _tagged_objects(table, rows, base):
        for block in blocks(numbers, _BLOCK):
            ends, data = etags.joined(block)
            lengths = np.diff(ends)
            whole.update(lengths.astype("<i8").tobytes())
            whole.update(data.tobytes())
            known, total = known + int((lengths > 0).sum()), total + len(lengths)
    lacking = f" ({total - known:,} of {total:,} without ETag)" if known < total else ""
    return f"sha256:{whole.hexdigest()}{lacking}"


def _tagged_objects(table: Table, rows: Rows, base: str) -> Iterator[tuple[Any, Rows]]:
    """Yield the ETags, and the numbers of the rows' objects; of samples of several objects, those of each field."""
    if table.group is None:
        yield table.etags, table.objects(rows)
        return
    for part in table.group.all("", decode(encode(base)), table.having(group=None)):
        mine = rows if part.places is None else taken(part.places.values, rows)
        mine = mine if isinstance(mine, range) else mine[mine >= 0]
        yield part.table.etags, part.table.objects(mine)


def check_comparable(other: object, kind: type) -> None:
    """Refuse anything but a catalog."""
    if not isinstance(other, kind):
        raise Unusable(f"diff takes a Catalog, got {kind_of(other)}")
