"""Arrays of a dataset: where each lies, and what its values are."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Literal, NamedTuple

from penstock.formats.zarr.cf import cf_of

if TYPE_CHECKING:
    from penstock.formats.zarr.cf import Decoding
    from penstock.formats.zarr.layout import Layout
    from penstock.source import Source

__all__ = ["Missing", "StoredArray"]

Missing = Literal["fill", "error"]

# Zarr v2's fill_value is CF's _FillValue in arrays that xarray wrote, which has them name their dimensions so.
_CF = {"scale_factor", "add_offset", "_FillValue", "missing_value", "_Unsigned", "_ARRAY_DIMENSIONS"}


class StoredArray(NamedTuple):
    """An array and where it lies.

    Attributes:
        source: The store.
        layout: Where its chunks lie there, and what they are.
        meaning: How stored values become those that are meant, by the CF attributes; None: they are the same.
        home: The number of its store among those of the dataset.

    """

    source: Source
    layout: Layout
    meaning: Decoding | None = None
    home: int = 0

    @classmethod
    def of(cls, source: Source, layout: Layout, *, decode_cf: bool | None) -> StoredArray:
        """Return an array; with ``decode_cf``, its values are those that the CF attributes say; None: if it has any.

        Raises:
            Damaged: These attributes cannot be applied.

        """
        if decode_cf is None:
            decode_cf = not _CF.isdisjoint(layout.attributes)
        return cls(source, layout, cf_of(layout, source.url(layout.key)) if decode_cf else None)

    @property
    def decoded(self) -> Layout:
        """The layout, with the type of the values that are delivered."""
        return self.layout if self.meaning is None else replace(self.layout, dtype=self.meaning.dtype)

    @property
    def url(self) -> str:
        """Where it lies."""
        return self.source.url(self.layout.key)
