"""``zarr.open_consolidated`` by URL, as in Multi-Storage Client up to 0.20; ``zarr.open`` accepts ``msc://``, too."""

from __future__ import annotations

from typing import Any

from penstock.compat.multistorageclient.pathlib import MultiStoragePath


def open_consolidated(store: Any, *args: Any, msc_max_workers: int | None = None, **kwargs: Any) -> Any:
    """Open a group whose metadata is in one object; ``msc_max_workers`` is accepted and ignored."""
    import zarr

    return zarr.open_consolidated(wrap_store(store), *args, **kwargs)


def wrap_store(store: Any) -> Any:
    """Return Penstock's store for a URL or an ``msc.Path``; return anything else unchanged."""
    if not (isinstance(store, MultiStoragePath) or (isinstance(store, str) and "://" in store)):
        return store
    from penstock.interop.zarr import Store

    return Store(str(MultiStoragePath(store)))
