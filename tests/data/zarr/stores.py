"""Zarr arrays for tests: written by zarr itself, with the values that a sample should have."""

import numpy as np
import zarr

from penstock.data.zarr.arrays.opening import Manner, open_inputs

__all__ = ["arrays_at", "numbered", "write"]

WHOLE = {"chunks": (4, 6, 8)}
SPATIAL = {"chunks": (3, 4, 5)}
SHARDED = {"chunks": (2, 3, 8), "shards": (8, 6, 8)}
V2 = {"chunks": (5, 6, 3), "zarr_format": 2, "fill_value": -1}
LAYOUTS = {"whole": WHOLE, "spatial": SPATIAL, "sharded": SHARDED, "v2": V2}


def numbered(shape, dtype="f4"):
    """Return an array whose elements all differ."""
    return np.arange(np.prod(shape), dtype=dtype).reshape(shape)


def write(path, values, dims=None, **layout):
    """Write an array below a local path, or to a store; return it."""
    if layout.get("zarr_format") != 2:
        layout["dimension_names"] = dims
    elif dims:
        layout["attributes"] = {"_ARRAY_DIMENSIONS": list(dims), **layout.get("attributes", {})}
    store = str(path) if not hasattr(path, "supports_writes") else path
    array = zarr.create_array(store, shape=values.shape, dtype=values.dtype, **layout)
    array[...] = values
    return array


def arrays_at(given, **options):
    """Return the arrays of what a dataset may be given as its samples."""
    return open_inputs(given, "samples", Manner(None, **options))
