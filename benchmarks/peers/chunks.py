"""Write an array of zarr's into a folder, and print the CRC-32 of its values: weather-like, zstd at a ratio of 1.65."""

import json
import sys
import zlib

import numpy as np
import zarr
from zarr.codecs import ZstdCodec

place, size, count = sys.argv[1], int(sys.argv[2]), int(sys.argv[3])
length = size // 4
random = np.random.default_rng(0)
array = zarr.create_array(
    place, shape=(count * length,), chunks=(length,), dtype="float32", compressors=ZstdCodec(level=3), zarr_format=3
)
digest = 0
for number in range(count):
    smooth = 280 + 20 * np.sin(np.linspace(number, number + 3, length))
    noise = random.standard_normal(length) * 0.7
    chunk = (smooth + noise).astype("float32")
    chunk = (chunk.view("uint32") & np.uint32(0xFFFFFFE0)).view("float32")  # so that a quarter of the noise is cut
    array[number * length : (number + 1) * length] = chunk
    digest = zlib.crc32(chunk, digest)
print(json.dumps({"array": digest}))
