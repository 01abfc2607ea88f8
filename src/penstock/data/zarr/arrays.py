"""Arrays of a dataset: location, layout and decoding of values."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Literal, NamedTuple

from penstock.data.zarr.format.cf import ATTRIBUTES, cf_of
from penstock.data.zarr.objects.joined import Stores
from penstock.data.zarr.objects.locations import OwnObjects

if TYPE_CHECKING:
    from collections.abc import Sequence

    from penstock.data.zarr.format.cf import Decoding
    from penstock.data.zarr.format.layout import Layout
    from penstock.data.zarr.objects.locations import Located
    from penstock.source import Source

__all__ = ["Missing", "StoredArray", "numbered"]

Missing = Literal["fill", "error"]

# In arrays that xarray wrote, Zarr v2's fill_value is CF's _FillValue; xarray names their dimensions in this attribute.
_CF = ATTRIBUTES | {"_ARRAY_DIMENSIONS"}


class StoredArray(NamedTuple):
    """Array and its location.

    Attributes:
        source: Store of the metadata.
        layout: Keys of the objects, and their format.
        objects: Actual locations of the objects.
        meaning: Decoding of stored values by the CF attributes; None: values are used as stored.

    """

    source: Source
    layout: Layout
    objects: Located
    meaning: Decoding | None = None

    @classmethod
    def of(
        cls, source: Source, layout: Layout, objects: Located | None = None, *, decode_cf: bool | None
    ) -> StoredArray:
        """Return an array; its objects are those of its store unless ``objects`` is given.

        With ``decode_cf`` True, values are decoded by the CF attributes. With None, only if the array has such
        attributes, or has floating-point numbers and was written by xarray.

        Raises:
            Damaged: The CF attributes cannot be applied.

        """
        decodes = not _CF.isdisjoint(layout.attributes) if decode_cf is None else decode_cf
        objects = OwnObjects(source) if objects is None else objects
        url = objects.url(layout.key)
        return cls(source, layout, objects, cf_of(layout, url, asked=bool(decode_cf)) if decodes else None)

    @property
    def decoded(self) -> Layout:
        """Layout with the type of the decoded values."""
        return self.layout if self.meaning is None else replace(self.layout, dtype=self.meaning.dtype)

    @property
    def url(self) -> str:
        """URL of the array."""
        return self.objects.url(self.layout.key)


def numbered(arrays: Sequence[StoredArray]) -> tuple[tuple[StoredArray, ...], Stores]:
    """Return the arrays, with the numbers of their stores set, and these stores."""
    stores = Stores()
    found = tuple(array._replace(objects=array.objects.numbered(stores.number)) for array in arrays)
    if not stores.sources:
        stores.number(arrays[0].source)
    stores.grow = any(array.objects.records is not None for array in arrays)
    return found, stores
