"""What only zarr decodes is decoded by zarr; code that the data brings is not run."""

from __future__ import annotations

import base64
import pickle
import sys
import tracemalloc

import numcodecs
import numpy as np
import pytest
from numcodecs.registry import codec_registry

from penstock.data.zarr.format.codecs import ForeignDecoder, decoder_of
from penstock.data.zarr.format.layout import layout_of
from penstock.errors import Damaged, MissingExtra, Unsupported
from tests.data.zarr.format.test_documents import V2, V3
from tests.data.zarr.memory_arrays import chunks_of, named, put, same

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
    with pytest.raises(Unsupported, match=r"pickle: it runs code.*s3://b/a"):
        decoder_of(layout_of(document), "s3://b/a").decode(pickle.dumps(Exploit()))


def test_without_zarr_the_extra_is_named(monkeypatch):
    layout = layout_of({**V3, "data_type": "int32", "fill_value": 0, "codecs": DELTA})
    monkeypatch.setitem(sys.modules, "zarr", None)
    with pytest.raises(MissingExtra, match=r"penstock\[zarr\]"):
        decoder_of(layout)


_BYTES = named("bytes", endian="little")


def _shards(*codecs, chunk=(3, 4)):
    """Return a codec of shards that only zarr decodes: within another one."""
    inner = named("sharding_indexed", chunk_shape=[*chunk], codecs=[_BYTES, *codecs], index_codecs=[_BYTES])
    return named("sharding_indexed", chunk_shape=[*chunk], codecs=[inner], index_codecs=[_BYTES])


def _shard(data, levels=1):
    for _ in range(levels):
        data = data + (0).to_bytes(8, "little") + len(data).to_bytes(8, "little")
    return data


COMPRESSORS = ["zstd", "blosc", "lz4", "zlib", "gzip", "bz2", "lzma"]


def _foreign(name, version, nested):
    if version == 2:
        return {**V2, "filters": [{"id": "base64"}], "compressor": {"id": name}}
    short = named(name) if name == "zstd" else named(f"numcodecs.{name}")
    codecs = [_shards(short)] if nested else [named("numcodecs.delta", dtype="<f4"), _BYTES, short]
    return {**V3, "data_type": "float32", "fill_value": 0, "codecs": codecs}


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("form", [(2, False), (3, False), (3, True)], ids=["v2", "v3", "shards"])
@pytest.mark.parametrize("name", COMPRESSORS)
def test_compressor_within_zarr_decodes_to_no_more_than_a_chunk_may_be(name, form):
    codec = numcodecs.get_codec({"id": name})
    decoder = decoder_of(layout_of(_foreign(name, *form)), "s3://b/a")
    assert decoder.foreign
    plain = np.zeros(12, "f4").tobytes()
    plain = base64.b64encode(plain) if form[0] == 2 else plain
    layers = 1 if form[1] else 0
    good = _shard(bytes(codec.encode(np.frombuffer(plain, "u1"))), layers)
    bomb = _shard(bytes(codec.encode(np.zeros(64 << 20, "u1"))), layers)
    assert not decoder.decode(good).any()
    tracemalloc.start()
    try:
        with pytest.raises(Damaged, match="does not decode"):
            decoder.decode(bomb, url="s3://b/k")
        assert tracemalloc.get_traced_memory()[1] < 16 << 20
    finally:
        tracemalloc.stop()


def test_frame_without_a_size_is_bounded_by_its_blocks():
    layout = layout_of(_foreign("zstd", 3, nested=False))
    head = b"\x28\xb5\x2f\xfd\x00\x58"  # no size, and a window of 2 MiB

    def raw(data, last):
        return (len(data) << 3 | last).to_bytes(3, "little") + data

    def rle(size, last):
        return (size << 3 | 2 | last).to_bytes(3, "little") + b"\0"

    decoder = decoder_of(layout)
    assert not decoder.decode(head + raw(bytes(40), 0) + rle(8, 1)).any()
    bomb = head + rle(128 << 10, 0) * 12_000 + rle(128 << 10, 1)
    assert len(bomb) < 49 << 10
    for damaged in (bomb, head, head + rle(8, 0), head + b"\x06\0\0", (head + raw(bytes(48), 1)) * 2):
        with pytest.raises(Damaged):
            decoder.decode(damaged)


@pytest.mark.parametrize("version", [2, 3])
def test_documents_may_not_name_the_bounded_codec_themselves(version):
    codec = {"codec": {"id": "zstd"}, "most_bytes": 1 << 60}
    document = (
        {**V2, "compressor": {"id": "penstock.bounded", **codec}}
        if version == 2
        else {**V3, "codecs": [*V3["codecs"], named("penstock.bounded", **codec)]}
    )
    with pytest.raises(Unsupported, match=r"penstock\.bounded"):
        decoder_of(layout_of(document))


def test_codec_of_grib_that_is_not_installed_is_named_with_its_package(monkeypatch):
    monkeypatch.delitem(codec_registry, "grib", raising=False)
    monkeypatch.setattr("numcodecs.registry.entries", {})
    with pytest.raises(Unsupported, match=r"codec not available.*pip install kerchunk eccodes"):
        decoder_of(layout_of({**V2, "filters": [{"id": "grib", "var": "t", "dtype": "float64"}]}))


def test_shards_within_very_many_shards_are_refused():
    codec = _BYTES
    for _ in range(200):
        codec = named("sharding_indexed", chunk_shape=[3, 4], codecs=[codec], index_codecs=[_BYTES])
    with pytest.raises(Unsupported, match="shards are nested deeper than 16"):
        decoder_of(layout_of({**V3, "codecs": [codec]}))
