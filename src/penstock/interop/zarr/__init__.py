"""Zarr arrays in every store: ``Store(url)`` is a ``zarr.abc.store.Store``, for zarr and xarray; ``copy`` re-chunks.

1. ``store``: zarr asks for keys, and each read is one request, which zarr's event loop awaits (``interop/awaiting``).
2. ``documents``: ``copy`` opens the array or group and rewrites its metadata for other chunks, shards and codecs.
3. ``rechunk``: the array is divided into regions; each is read, written and compared (by ``jobs/tasks``), and
   the journal records it. The documents are published last, so a reader never sees half a copy.
4. ``parts``: the same with ``job``, by ranges of regions, on several machines or a Ray cluster.
"""

from penstock.errors import require_extras

with require_extras("a Store is for zarr", zarr="zarr"):
    from penstock.interop.zarr.parts import copy
    from penstock.interop.zarr.store import Store

__all__ = ["Store", "copy"]
