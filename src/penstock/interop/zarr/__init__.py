"""Zarr arrays in every store: ``Store(url)`` is a ``zarr.abc.store.Store``, for zarr and xarray; ``copy`` re-chunks."""

try:
    from penstock.interop.zarr.rechunk.run import copy
    from penstock.interop.zarr.store import Store
except ModuleNotFoundError as error:
    if (error.name or "").partition(".")[0] != "zarr":
        raise
    from penstock.errors import MissingExtra

    raise MissingExtra("a Store is for zarr: pip install 'penstock[zarr]'") from error

__all__ = ["Store", "copy"]
