"""Zarr arrays in every store: ``Store(url)`` is a ``zarr.abc.store.Store``, for zarr and xarray; ``copy`` re-chunks."""

from penstock.errors import needing

with needing("a Store is for zarr", zarr="zarr"):
    from penstock.interop.zarr.rechunk.run import copy
    from penstock.interop.zarr.store import Store

__all__ = ["Store", "copy"]
