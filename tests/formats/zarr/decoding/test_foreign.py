"""What only zarr decodes is decoded by zarr; code that the data brings is not run."""

from __future__ import annotations

import pickle
import sys

import numpy as np
import pytest

from penstock.errors import Damaged, MissingExtra, Unsupported
from penstock.formats.zarr.decoding.codecs import decoder_of
from penstock.formats.zarr.decoding.foreign import ForeignDecoder
from penstock.formats.zarr.documents import layout_of
from tests.formats.zarr.arrays import chunks_of, named, put, same
from tests.formats.zarr.test_documents import V2, V3

DELTA = [named("numcodecs.delta", dtype="<i4"), named("bytes", endian="little")]


class Exploit:
    def __reduce__(self):
        return pytest.fail, ("the data's code was run",)


@pytest.mark.parametrize("version", [2, 3])
@pytest.mark.parametrize("shape", [(), (7,), (5, 4)])
def test_chunks_are_decoded_by_zarr(version, shape):
    how = {"codecs": DELTA} if version == 3 else {"order": "F"}
    written = put(shape, dtype="i4", chunks=tuple(max(1, size // 2) for size in shape), zarr_format=version, **how)
    decoder = ForeignDecoder(written.layout, written.layout.document)
    whole = np.asarray(written.array[...])
    chunks = chunks_of(written)
    assert chunks
    for at, data in chunks.items():
        box = tuple(slice(a * n, (a + 1) * n) for a, n in zip(at, written.layout.chunks, strict=True))
        found = decoder.decode(data, None)
        assert found.shape == written.layout.chunks
        same(found[tuple(slice(0, n) for n in whole[box].shape)], whole[box])


def test_shards_within_shards_are_decoded_by_zarr():
    inner = named("sharding_indexed", chunk_shape=[1, 2], codecs=DELTA[1:], index_codecs=[DELTA[1]])
    outer = named("sharding_indexed", chunk_shape=[2, 4], codecs=[inner], index_codecs=[DELTA[1]])
    written = put((6, 8), dtype="i4", chunks=(4, 8), zarr_format=3, codecs=[outer])
    decoder = decoder_of(written.layout)
    assert decoder.foreign
    for at, data in chunks_of(written).items():
        same(decoder.decode(data), written.array[2 * at[0] : 2 * at[0] + 2, 4 * at[1] : 4 * at[1] + 4])


@pytest.mark.parametrize("data", [b"", b"x", bytes(47), bytes(49)])
def test_a_damaged_chunk_is_an_error_with_its_url(data):
    layout = layout_of({**V3, "data_type": "int32", "fill_value": 0, "codecs": DELTA})
    with pytest.raises(Damaged, match=r"does not decode.*s3://b/c/0"):
        decoder_of(layout).decode(data, url="s3://b/c/0")
    assert decoder_of(layout).decode(bytes(48)).shape == (3, 4)


@pytest.mark.parametrize(
    "document",
    [
        {**V2, "filters": [{"id": "pickle"}]},
        {**V2, "compressor": {"id": "pickle"}},
        {**V3, "codecs": [*V3["codecs"], {"name": "numcodecs.pickle"}]},
        {**V3, "codecs": [*V3["codecs"], "numcodecs.pickle"]},
        {**V3, "codecs": [named("sharding_indexed", chunk_shape=[3, 4], codecs=[named("numcodecs.pickle")])]},
    ],
)
def test_code_that_the_data_brings_is_not_run(document):
    with pytest.raises(Unsupported, match=r"pickle runs code.*s3://b/a"):
        decoder_of(layout_of(document), "s3://b/a").decode(pickle.dumps(Exploit()))


def test_without_zarr_the_extra_is_named(monkeypatch):
    layout = layout_of({**V3, "data_type": "int32", "fill_value": 0, "codecs": DELTA})
    monkeypatch.setitem(sys.modules, "zarr", None)
    with pytest.raises(MissingExtra, match=r"penstock\[zarr\]"):
        decoder_of(layout)
