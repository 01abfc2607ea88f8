"""Words for compressors: each makes a document that zarr takes, in both formats."""

from __future__ import annotations

import numpy as np
import pytest
import zarr
from zarr.storage import MemoryStore, StorePath

from penstock.errors import Unusable
from penstock.interop.zarr.documents import CODECS, codec_v2, codecs_v3, spell_codecs


@pytest.mark.parametrize("word", [*CODECS, "zstd:22", "zstd:-5", "gzip:9", "blosc-zstd:3"])
@pytest.mark.parametrize("zarr_format", [2, 3])
def test_zarr_encodes_and_decodes_with_every_one(word, zarr_format):
    values = np.arange(40, dtype="i4")
    made = zarr.create_array(MemoryStore(), shape=40, chunks=20, dtype="i4", zarr_format=zarr_format)
    document = made.metadata.to_dict()
    if zarr_format == 2:
        document["compressor"] = codec_v2(word)
    else:
        document["codecs"] = [document["codecs"][0], *codecs_v3(word, 4)]
    array = zarr.Array.from_dict(StorePath(MemoryStore(), "a"), document)
    array[:] = values
    assert np.array_equal(array[:], values)


@pytest.mark.parametrize(
    ("word", "said"),
    [
        ("zsdt", "did you mean 'zstd'"),
        ("blosc", "blosc-lz4"),
        ("xyzzy", "there are none, zstd, gzip, blosc-lz4"),
        ("gzip:10", "levels from 0 to 9"),
        ("zstd:fast", "whole number, as in zstd:0"),
        ("none:1", "has no level"),
    ],
)
def test_invalid_codec_name_is_refused_with_a_correction(word, said):
    for call in (lambda: codec_v2(word), lambda: codecs_v3(word, 4)):
        with pytest.raises(Unusable, match=said):
            call()


def test_codecs_are_spelled_as_they_are_written():
    assert spell_codecs(codecs_v3("zstd:5", 4)) == "zstd:5"
    assert spell_codecs([{"name": "bytes"}, *codecs_v3("blosc-lz4:3", 4)]) == "bytes+blosc-lz4:3"
    assert spell_codecs([codec_v2("gzip:6")]) == "gzip:6"
    assert spell_codecs([]) == "none"
    assert spell_codecs(["bytes"]) == "bytes"
