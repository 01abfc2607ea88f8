"""Arrays of a dataset: where each lies, and what its values are."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Literal, NamedTuple

from penstock.datasets.zarr.objects.joined import Stores
from penstock.datasets.zarr.objects.locations import OwnObjects
from penstock.formats.zarr.cf import cf_of

if TYPE_CHECKING:
    from collections.abc import Sequence

    from penstock.datasets.zarr.objects.locations import Located
    from penstock.formats.zarr.cf import Decoding
    from penstock.formats.zarr.layout import Layout
    from penstock.source import Source

__all__ = ["Missing", "StoredArray", "numbered"]

Missing = Literal["fill", "error"]

# Zarr v2's fill_value is CF's _FillValue in arrays that xarray wrote, which has them name their dimensions so.
_CF = {"scale_factor", "add_offset", "_FillValue", "missing_value", "_Unsigned", "_ARRAY_DIMENSIONS"}


class StoredArray(NamedTuple):
    """An array and where it lies.

    Attributes:
        source: The store of its metadata.
        layout: What its objects are called, and what they are.
        objects: Where they really lie.
        meaning: How stored values become those that are meant, by the CF attributes; None: they are the same.

    """

    source: Source
    layout: Layout
    objects: Located
    meaning: Decoding | None = None

    @classmethod
    def of(
        cls, source: Source, layout: Layout, objects: Located | None = None, *, decode_cf: bool | None
    ) -> StoredArray:
        """Return an array, of its store's objects unless others are given.

        With ``decode_cf``, its values are those that the CF attributes say; None: if it has any.

        Raises:
            Damaged: These attributes cannot be applied.

        """
        if decode_cf is None:
            decode_cf = not _CF.isdisjoint(layout.attributes)
        objects = OwnObjects(source) if objects is None else objects
        return cls(source, layout, objects, cf_of(layout, objects.url(layout.key)) if decode_cf else None)

    @property
    def decoded(self) -> Layout:
        """The layout, with the type of the values that are delivered."""
        return self.layout if self.meaning is None else replace(self.layout, dtype=self.meaning.dtype)

    @property
    def url(self) -> str:
        """Where it lies."""
        return self.objects.url(self.layout.key)


def numbered(arrays: Sequence[StoredArray]) -> tuple[tuple[StoredArray, ...], Stores]:
    """Return the arrays with the numbers that their stores have among all of these, and the stores."""
    stores = Stores()
    found = tuple(array._replace(objects=array.objects.numbered(stores.number)) for array in arrays)
    if not stores.sources:
        stores.number(arrays[0].source)
    stores.grow = any(array.objects.records is not None for array in arrays)
    return found, stores
