"""Write a series of weather-like fields as an array of zarr's, and print a digest of each sample that is compared.

float32, (samples, 180, 360), smooth in space and rounded as packed reanalysis is; a field's first value is its number.
"""

import json
import sys
import zlib

import numpy as np
import zarr
from zarr.codecs import ZstdCodec

Y, X, STEP = 180, 360, 0.005


def fields(count):
    """Yield each field: a mixture of eight smooth ones and some noise."""
    random = np.random.default_rng(0)
    wave = np.hypot(np.fft.fftfreq(Y)[:, None], np.fft.rfftfreq(X)[None, :])
    wave[0, 0] = 1
    power = wave**-1.6
    power[0, 0] = 0
    spectra = random.standard_normal((8, *wave.shape)) + 1j * random.standard_normal((8, *wave.shape))
    smooth = np.fft.irfft2(power * spectra, s=(Y, X))
    smooth /= smooth.std(axis=(1, 2), keepdims=True)
    for number in range(count):
        weights = random.standard_normal(8)
        field = 280 + 15 * np.tensordot(weights / np.linalg.norm(weights), smooth, 1)
        field = np.round((field + 0.1 * random.standard_normal((Y, X))) / STEP) * STEP
        field[0, 0] = number
        yield field.astype("float32")


place, prefix, count, per, shard, every = sys.argv[1], sys.argv[2], *map(int, sys.argv[3:])
array = zarr.create_group(place, zarr_format=3).create_array(
    "fields",
    shape=(count, Y, X),
    chunks=(per, Y, X),
    shards=(shard, Y, X) if shard else None,
    dtype="float32",
    compressors=ZstdCodec(),
    dimension_names=("time", "y", "x"),
)
digests, block = {}, []
for number, field in enumerate(fields(count)):
    if number % every == 0:
        digests[f"{prefix}/{number:06d}.bin"] = zlib.crc32(field)
    block.append(field)
    if len(block) == (shard or per) or number + 1 == count:
        array[number + 1 - len(block) : number + 1] = np.stack(block)
        block = []
zarr.consolidate_metadata(place)  # the server lists nothing, and xarray would have it list the group
print(json.dumps(digests))
