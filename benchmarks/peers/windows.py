"""zarr in one process: windows of shuffled chunks by one call of zarr each, one window ahead of the training."""

from concurrent.futures import ThreadPoolExecutor

import numpy as np
import torch
import zarr
from epochs import BATCH, WINDOW, consume, opened
from objectstore import store
from zarr.storage import ObjectStore


def read(**config):
    """Read epochs over obstore, with zarr configured so."""
    meter, name = opened()
    zarr.config.set({"async.concurrency": meter.threads, **config})
    array = zarr.open_array(ObjectStore(store(meter, name), read_only=True), mode="r")
    random = np.random.default_rng(0)
    consume(meter, iter(lambda: _epoch(array, random), None))


def _windows(array, random):
    """Yield the samples' numbers of each window."""
    per = array.chunks[0]
    chunks = random.permutation(-(-array.shape[0] // per))
    for at in range(0, len(chunks), WINDOW):
        numbers = (np.sort(chunks[at : at + WINDOW])[:, None] * per + np.arange(per)).ravel()
        yield numbers[numbers < array.shape[0]]


def _epoch(array, random):
    rest = np.empty((0, *array.shape[1:]), array.dtype)
    with ThreadPoolExecutor(1) as ahead:
        coming = None
        for numbers in [*_windows(array, random), None]:
            later = ahead.submit(array.get_orthogonal_selection, (numbers,)) if numbers is not None else None
            if coming is not None:
                fields = coming.result()
                fields = np.concatenate([rest, fields[random.permutation(len(fields))]])
                whole = len(fields) // BATCH * BATCH
                for at in range(0, whole, BATCH):
                    yield torch.from_numpy(fields[at : at + BATCH]).numpy()
                rest = fields[whole:]
            coming = later
    if len(rest):
        yield rest
