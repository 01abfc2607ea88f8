"""``xarray.open_zarr`` by URL, as in Multi-Storage Client up to 0.20; xarray itself accepts ``msc://``, too."""

from __future__ import annotations

from typing import Any

from penstock.compat.multistorageclient.zarr import wrap_store


def open_zarr(store: Any, *args: Any, msc_max_workers: int | None = None, **kwargs: Any) -> Any:
    """Open a dataset of arrays; ``msc_max_workers`` is accepted and ignored."""
    import xarray

    return xarray.open_zarr(wrap_store(store), *args, **kwargs)
