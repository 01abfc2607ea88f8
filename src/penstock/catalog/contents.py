"""What stands in a catalog: entry by entry, and as arrays."""

from __future__ import annotations

from functools import cached_property
from typing import TYPE_CHECKING, Any

import numpy as np

from penstock.catalog.entry import Entry, entry_of
from penstock.catalog.labels import label_of
from penstock.catalog.storage.digest import digest_of
from penstock.catalog.storage.strings import encode, taken
from penstock.errors import Unusable
from penstock.values import Span

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping

    from numpy.typing import NDArray

    from penstock.catalog.rows import Picked
    from penstock.catalog.storage.column import Categorical
    from penstock.catalog.storage.strings import Rows
    from penstock.catalog.storage.table import Table

__all__ = ["Contents"]

_new = tuple.__new__


class Contents:
    """Rows of a table, in a fixed order, as a catalog shows them: nothing here asks a store.

    Attributes:
        root: What every key is appended to to make its URL: ``s3://bucket/``.
        base: The prefix of all keys that does not count as part of their names; "" when they have none in common.

    """

    def __init__(self, root: str, base: str, table: Table, rows: range | Picked | None = None) -> None:
        """Show ``rows`` (default all) of a table whose keys all begin with ``base``; others make it for you."""
        self.root = root
        self.base = base
        self._table = table
        self._rows = range(table.rows) if rows is None else rows

    def __len__(self) -> int:
        """Return how many objects there are."""
        return len(self._rows)

    @property
    def classes(self) -> tuple[str, ...]:
        """The names of the classes, by label; () without them. A part has those of the whole."""
        return () if self._table.classes is None else self._table.classes.categories

    @property
    def labels(self) -> NDArray[np.int64]:
        """The labels as numbers of classes: int64, shape (len,), a copy.

        Raises:
            Unusable: The catalog has no classes.

        """
        if self._table.classes is None:
            raise Unusable('this catalog has no classes: scan(…, labels="folder"), or with_labels(…)')
        return taken(self._table.classes.numbers.values, self._indices).astype(np.int64)

    @property
    def columns(self) -> Mapping[str, NDArray[Any] | Categorical]:
        """The user's columns by name: arrays of numbers, or ``Categorical``, of ``len(self)``; read-only."""
        return {name: column.seen(self._indices) for name, column in self._table.columns.items()}

    def row(self, index: int) -> dict[str, Any]:
        """Return one entry's values of the user's columns, as Python objects."""
        table = self._table
        return (
            {name: column.value(self._rows[index]) for name, column in table.columns.items()} if table.columns else {}
        )

    @property
    def _indices(self) -> Rows:
        """The rows as arrays take them."""
        return self._rows if isinstance(self._rows, range) else self._rows.values

    def __iter__(self) -> Iterator[Entry]:
        """Yield the entries in order."""
        return (entry_of(self._table, row) for row in self._rows)

    def __repr__(self) -> str:
        """Say what and how much, not which."""
        return f"<Catalog of {len(self):,} objects under {self.root}{self.base}>"

    def span(self, index: int) -> Span:
        """Return the bytes of one entry, pinned to the version that was listed; ``stop`` is None for an unknown size.

        One call per sample: about 1 µs.
        """
        row, table = self._rows[index], self._table
        size, of, ranges = table.sizes.view[row], row, table.ranges
        if ranges is not None:
            of, start = ranges.objects.view[row], ranges.offsets.view[row]
            if start >= 0:
                return Span(table.keys.text(of), start, start + size, table.etags.text(of))
        # By position: naming the last one would take longer than reading the size.
        return Span(table.keys.text(of), 0, size if size >= 0 else None, table.etags.text(of), True)  # noqa: FBT003

    def spans(self, indices: Iterable[int]) -> Iterator[Span]:
        """Yield ``span`` of each entry; where the columns lie is looked up once."""
        rows, table = self._rows, self._table
        if table.ranges is not None:
            yield from map(self.span, indices)
            return
        sizes, key, etag = table.sizes.view, table.keys.text, table.etags.text
        for index in indices:
            row = rows[index]
            size = sizes[row]
            # The tuple itself: a call of the class is a function in Python.
            yield _new(Span, (key(row), 0, size if size >= 0 else None, etag(row), True, 0))

    @cached_property
    def bare(self) -> bool:
        """Whether the entries have neither labels nor values of the user's columns."""
        table = self._table
        return table.classes is None and not table.columns and not table.labels.parts

    def label(self, index: int) -> object:
        """Return one entry's label."""
        return label_of(self._table, self._rows[index])

    @property
    def sizes(self) -> NDArray[np.int64]:
        """Bytes of each entry, -1 where unknown: int64, shape (len,), read-only; a copy, some 1 ns per object."""
        sizes = taken(self._table.sizes.values, self._indices).astype(np.int64)
        sizes.flags.writeable = False
        return sizes

    @property
    def total_bytes(self) -> int:
        """Bytes of all objects together; -1 when one is unknown."""
        sizes = self.sizes
        if (sizes < 0).any():
            return -1
        return (int((sizes >> 32).sum()) << 32) + int((sizes & 0xFFFFFFFF).sum())  # the sum may pass 2⁶³

    @cached_property
    def digest(self) -> str:
        """SHA-256, in hex, of the names below ``base`` and the sizes, in order.

        Neither where they lie nor ETags count, so a copy elsewhere has the same one. Computed once, at about 0.1 µs per
        object, and carried along when pickled.
        """
        return digest_of(self._table, self._indices, encode(self.base))
