"""Zarr arrays for tests: written by zarr itself, with the values that a sample should have."""

from itertools import islice

import numpy as np
import zarr

from penstock.data.zarr.arrays.opening import Manner, open_inputs
from penstock.testing.servers import Scripted, reply


def numbered(shape, dtype="f4"):
    """Return an array whose elements all differ."""
    return np.arange(np.prod(shape), dtype=dtype).reshape(shape)


DIMS = ("time", "y", "x")
VALUES = numbered((21, 6, 8))
WHOLE = {"chunks": (4, 6, 8)}
SPATIAL = {"chunks": (3, 4, 5)}
SHARDED = {"chunks": (2, 3, 8), "shards": (8, 6, 8)}
V2 = {"chunks": (5, 6, 3), "zarr_format": 2, "fill_value": -1}
LAYOUTS = {"whole": WHOLE, "spatial": SPATIAL, "sharded": SHARDED, "v2": V2}


def large(count):
    """Return values of an array that is too large to be kept whole."""
    return numbered((count, 256, 256)).astype("f8")


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


def stacked(dataset):
    """Return the samples of an epoch as one array."""
    return np.stack([each.numpy() for each in dataset])


def files_of(folder):
    """Return the files below a folder, by their paths there."""
    return {path.relative_to(folder).as_posix(): path.read_bytes() for path in folder.rglob("*") if path.is_file()}


def upload(server, bucket, folder, name="", absent=()):
    """Put the files of a folder into a bucket, below its name or another, without some."""
    for path, data in files_of(folder).items():
        if path not in absent:
            server.put(bucket, f"{name or folder.name}/{path}", data)


def serve_objects(objects):
    """Return a web server of some objects, by path, which lists none."""

    def answer(received, send):
        data = objects.get(received.path)
        if data is None:
            send(reply(404))
            return False
        etag = f'"{hash(data):x}"'
        if received.method == "HEAD":
            send(reply(200, content_length=str(len(data)), etag=etag))
            return False
        start, stop = received.range or (0, len(data))
        part = data[start:stop]
        where = f"bytes {start}-{start + len(part) - 1}/{len(data)}"
        send(reply(206, part, content_range=where, etag=etag) if received.range else reply(200, data, etag=etag))
        return False

    return Scripted(answer)


def run_interrupted(load, worlds, stop, every, samples):
    """Return the batches of each rank: up to ``stop`` on some ranks, and the rest of ``samples`` on others."""
    first, then = worlds
    parts, states = [], []
    for loader in [load(rank, first) for rank in range(first)]:
        iterator = iter(loader)
        parts.append([*islice(iterator, stop)])
        states.append(loader.state_dict())
        iterator.close()
    assert all(state == states[0] for state in states)
    ended = len(parts[0]) < stop or len(parts[0]) * every >= samples
    for rank in range(0 if ended else then):
        loader = load(rank, then)
        loader.load_state_dict(states[0])
        parts.append([*loader])
    return parts
