"""Decoded chunks are what zarr reads, bit for bit; damage is an error; what only zarr decodes is decoded by zarr."""

from __future__ import annotations

import base64
import os
import pickle
import sys
import tracemalloc
import zlib
from concurrent.futures import ThreadPoolExecutor

import numcodecs
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numcodecs.registry import codec_registry

from penstock.data.zarr.format.codecs import ForeignDecoder, chain_of, decoder_of
from penstock.data.zarr.format.layout import layout_of
from penstock.errors import ChecksumMismatch, Damaged, MissingExtra, Unsupported, Unusable
from tests.amounts import examples
from tests.data.zarr.format.test_documents import V2, V3
from tests.data.zarr.memory_arrays import arrays, chunks_of, named, put, read, same

COMPRESSORS = ["zstd", "blosc", "lz4", "zlib", "gzip", "bz2", "lzma"]
CHECKED = {  # by the format: every changed bit is found
    "crc32c": {"zarr_format": 3, "codecs": ["bytes", "crc32c"]},
    "zstd": {"zarr_format": 3, "codecs": ["bytes", {"name": "zstd", "configuration": {"level": 1, "checksum": True}}]},
    "gzip": {"zarr_format": 3, "codecs": ["bytes", {"name": "gzip", "configuration": {"level": 1}}]},
}


def little(codecs):
    return [{"name": "bytes", "configuration": {"endian": "little"}} if each == "bytes" else each for each in codecs]


def checked(name):
    how = CHECKED[name]
    codecs = [{"name": each} if isinstance(each, str) else each for each in little(how["codecs"])]
    return put((5, 6), chunks=(5, 6), zarr_format=3, codecs=codecs)


@settings(max_examples=examples(120))
@given(arrays(), st.data())
def test_any_selection_of_any_array_equals_the_zarr_result(written, data):
    ends = [sorted(data.draw(st.lists(st.integers(0, size), min_size=2, max_size=2))) for size in written.array.shape]
    whole = written.array[...]
    same(read(written, [0] * whole.ndim, whole.shape), whole)
    start, stop = [first for first, _ in ends], [last for _, last in ends]
    same(read(written, start, stop), np.asarray(whole)[tuple(map(slice, start, stop))])


@settings(max_examples=examples(60))
@given(arrays())
def test_a_chunk_is_decoded_into_memory_that_is_there(written):
    decoder = decoder_of(written.layout)
    for data in chunks_of(written).values():
        out = np.empty(written.layout.chunks, written.layout.dtype)
        assert decoder.decode(bytearray(data), out) is out
        same(out, decoder.decode(memoryview(data)))


@settings(max_examples=examples(60))
@given(arrays(), st.data())
def test_damaged_bytes_are_an_error_of_ours_or_another_chunk_of_the_same_size(written, data):
    chunk = data.draw(st.sampled_from(sorted(chunks_of(written).items())))[1]
    at = data.draw(st.integers(0, max(0, len(chunk) - 1)))
    kind = data.draw(st.sampled_from(["cut", "flipped", "longer", "other"]))
    other = {"cut": chunk[:at], "longer": chunk + chunk[: at + 1], "other": data.draw(st.binary(max_size=40))}
    flipped = chunk[:at] + bytes([chunk[at] ^ 1 << data.draw(st.integers(0, 7))]) + chunk[at + 1 :]
    decoder = decoder_of(written.layout)
    error = None
    try:
        found = decoder.decode(other.get(kind, flipped), url="s3://b/a/0.0")
    except Damaged as caught:
        error = caught
    if error:
        assert "s3://b/a/0.0" in str(error)
    else:
        assert found.shape == written.layout.chunks
        assert found.dtype == written.layout.dtype
        assert kind != "cut" or decoder.foreign


@pytest.mark.parametrize("name", CHECKED)
def test_every_flipped_bit_is_found_where_the_format_has_a_checksum(name):
    written = checked(name)
    (chunk,) = chunks_of(written).values()
    decoder = decoder_of(written.layout)
    wanted = decoder.decode(chunk).tobytes()
    for at in range(len(chunk)):
        for bit in (0, 7):
            damaged = bytearray(chunk)
            damaged[at] ^= 1 << bit
            try:
                found = decoder.decode(damaged, url="s3://b/a/c/0")
            except Damaged:
                continue
            assert found.tobytes() == wanted  # bits of gzip's header mean nothing


def test_wrong_checksum_raises_checksum_mismatch_with_the_url():
    for codecs in (["bytes", "crc32c"], ["bytes", {"name": "numcodecs.fletcher32", "configuration": {}}]):
        layout = layout_of({**V3, "codecs": little(codecs)})
        with pytest.raises(ChecksumMismatch, match="s3://b/k"):
            decoder_of(layout).decode(bytes(range(52)), url="s3://b/k")


@pytest.mark.parametrize("more", [1, 1 << 20, 1 << 31])
@pytest.mark.parametrize("name", COMPRESSORS)
def test_a_chunk_that_becomes_more_than_it_should_is_refused_before_it_does(name, more):
    bomb = bytearray(numcodecs.get_codec({"id": name}).encode(np.zeros(48 + min(more, 1 << 20), "u1")))
    if more == 1 << 31 and name in {"blosc", "lz4"}:  # headers may say anything
        at = 4 if name == "blosc" else 0
        bomb[at : at + 4] = (2**31 - 1).to_bytes(4, "little")
    decoder = decoder_of(layout_of({**V2, "compressor": {"id": name}}))
    with pytest.raises(Damaged, match="k]"):
        decoder.decode(bomb, url="s3://b/k")
    with pytest.raises(Damaged):
        decoder.decode(bomb, np.empty((3, 4), "f4"))


@pytest.mark.parametrize("name", COMPRESSORS)
def test_a_chunk_that_becomes_less_than_it_should_is_refused(name):
    decoder = decoder_of(layout_of({**V2, "compressor": {"id": name}}))
    for data in (numcodecs.get_codec({"id": name}).encode(np.zeros(44, "u1")), b""):
        for out in (None, np.empty((3, 4), "f4")):
            with pytest.raises(Damaged):
                decoder.decode(data, out)


def test_a_frame_of_zstandard_need_not_say_its_size():
    values = np.arange(12, dtype="<f4")
    frame = b"\x28\xb5\x2f\xfd\x00\x58" + (len(values.tobytes()) << 3 | 1).to_bytes(3, "little") + values.tobytes()
    decoder = decoder_of(layout_of({**V2, "compressor": {"id": "zstd"}}))
    same(decoder.decode(frame), values.reshape(3, 4))
    for size in (44, 52):
        raw = bytes(size)
        with pytest.raises(Damaged):
            decoder.decode(frame[:6] + (size << 3 | 1).to_bytes(3, "little") + raw)
    twice = decoder_of(layout_of({**V2, "compressor": {"id": "zstd"}, "filters": [{"id": "zlib"}]}))
    data = zlib.compress(values.tobytes())
    same(twice.decode(frame[:6] + (len(data) << 3 | 1).to_bytes(3, "little") + data), values.reshape(3, 4))
    with pytest.raises(Damaged, match="may decode to"):
        twice.decode(frame[:6] + (128 << 13 | 2).to_bytes(4, "little") * 8 + (128 << 13 | 3).to_bytes(4, "little"))


def test_memory_of_another_kind_is_refused():
    decoder = decoder_of(layout_of(V2))
    for out in (np.empty((4, 3), "f4"), np.empty((3, 4), "f8"), np.empty((4, 3), "f4").T, np.empty((3, 4), ">f4")):
        with pytest.raises(Unusable, match="C-contiguous"):
            decoder.decode(bytes(48), out)


def test_an_absent_chunk_is_full_of_the_fill_value():
    filled = decoder_of(layout_of({**V3, "fill_value": "0x7fc00001"})).filled()
    assert filled.shape == (3, 4)
    assert (filled.view("u4") == 0x7FC00001).all() if filled.flags.c_contiguous else True
    assert not filled.flags.writeable
    assert np.ascontiguousarray(filled).view("u4").tolist() == [[0x7FC00001] * 4] * 3


@pytest.mark.parametrize(
    "document",
    [
        *({**V2, "filters": filters} for filters in ("zlib", [3], [{"name": "zlib"}])),
        *({**V2, "filters": [filters]} for filters in ({"id": "delta", "dtype": "x"}, {"id": "delta"})),
        {**V3, "codecs": ["bytes"]},
        {**V3, "codecs": ["bytes", {"name": "numcodecs.shuffle", "configuration": {"elementsize": "x"}}]},
        {**V3, "codecs": [{"name": "bytes", "configuration": {"endian": "middle"}}]},
        *(
            {**V3, "codecs": [{"name": "transpose", "configuration": {"order": order}}, "bytes"]}
            for order in ([0, 0], [0, 1, 2])
        ),
    ],
)
def test_codecs_and_filters_that_cannot_be_are_damage(document):
    field = "filters.*" if document.get("filters") else ""
    with pytest.raises(Damaged, match=rf"{field}s3://b/document"):
        decoder_of(layout_of(document), "s3://b/document")


@pytest.mark.parametrize(
    "document",
    [
        {**V2, "compressor": {"id": "nobodys"}},
        {**V3, "codecs": [*V3["codecs"], {"name": "nobodys"}]},
        {**V3, "codecs": ["vlen-utf8"]},
    ],
)
def test_unknown_codecs_raise_unsupported_with_their_name(document):
    with pytest.raises(Unsupported, match=r"nobodys|vlen-utf8"):
        decoder_of(layout_of(document))


def test_threads_decode_in_parallel_with_one_decoder():
    arrays = [put((40, 60), chunks=(5, 6), zarr_format=2, filters=[{"id": "delta", "dtype": "<f4"}])]
    arrays.append(put((40, 60), dtype="i4", chunks=(5, 6), zarr_format=3, codecs=[*foreign(), *little(["bytes"])]))
    with ThreadPoolExecutor(4) as pool:
        for written in arrays:
            decoder, chunks = decoder_of(written.layout), chunks_of(written)
            wanted = [decoder.decode(each).tobytes() for each in chunks.values()]
            found = [pool.map(decoder.decode, chunks.values()) for _ in range(4)]
            assert [[each.tobytes() for each in one] for one in found] == [wanted] * 4


def foreign():
    return [{"name": "numcodecs.delta", "configuration": {"dtype": "<i4"}}]


@pytest.mark.parametrize("codecs", [[], foreign()], ids=["numcodecs", "zarr"])
def test_forked_child_decodes_the_same_bytes_as_its_parent(codecs):
    blosc = named("blosc", typesize=4, cname="zstd", clevel=3, shuffle="shuffle", blocksize=0)
    written = put((10, 6), dtype="i4", chunks=(5, 6), zarr_format=3, codecs=[*codecs, *little(["bytes"]), blosc])
    decoder = decoder_of(written.layout)
    assert decoder.foreign == bool(codecs)
    chunk = next(iter(chunks_of(written).values()))
    wanted = decoder.decode(chunk).tobytes()
    child = os.fork()
    if not child:
        os._exit(decoder.decode(chunk).tobytes() != wanted)
    assert os.waitpid(child, 0)[1] == 0


@pytest.mark.parametrize("codecs", [[], foreign()], ids=["numcodecs", "zarr"])
def test_a_decoder_is_pickled_as_its_layout(codecs):
    written = put((10, 6), dtype="i4", chunks=(5, 6), zarr_format=3, codecs=[*codecs, *little(["bytes"])])
    decoder = decoder_of(written.layout)
    chunk = next(iter(chunks_of(written).values()))
    same(pickle.loads(pickle.dumps(decoder)).decode(chunk), decoder.decode(chunk))


BYTES = V3["codecs"][0]


def chain(document):
    layout = layout_of(document)
    return chain_of(layout, layout.document)


@pytest.mark.parametrize(
    ("change", "direct"),
    [
        ({"compressor": {"id": "zstd", "level": 3}}, True),
        ({"compressor": {"id": "zstd"}, "order": "F"}, False),
        ({"compressor": {"id": "zstd"}, "dtype": ">f4"}, False),
        ({"compressor": {"id": "zlib"}}, False),
        ({"compressor": {"id": "zstd"}, "filters": [{"id": "shuffle"}]}, False),
        ({"compressor": {"id": "zstd"}, "dtype": "|b1"}, True),
        ({}, False),
    ],
)
def test_only_a_compressor_alone_writes_into_the_chunk(change, direct):
    assert chain({**V2, "fill_value": 0, **change}).direct == direct


def test_steps_are_those_of_encoding_in_reverse_and_each_has_its_size():
    filters = [{"id": "astype", "encode_dtype": "<f8", "decode_dtype": "<f4"}, {"id": "crc32"}]
    steps = chain({**V2, "filters": filters, "compressor": {"id": "zlib"}}).steps
    assert [(step.name, *room) for step, room in steps] == [("zlib", 100, 100), ("crc32", 96, 96), ("astype", 48, 48)]


def test_between_two_compressors_there_is_a_bound():
    steps = chain({**V3, "codecs": [BYTES, {"name": "gzip"}, {"name": "zstd"}]}).steps
    assert [(step.name, *room) for step, room in steps] == [("zstd", 0, 16 * 48 + (1 << 20)), ("gzip", 48, 48)]


def test_several_transpositions_are_one():
    turns = [{"name": "transpose", "configuration": {"order": order}} for order in ([2, 0, 1], [1, 0, 2])]
    grid = {"name": "regular", "configuration": {"chunk_shape": [2, 3, 4]}}
    found = chain({**V3, "shape": [2, 3, 4], "chunk_grid": grid, "codecs": [*turns, BYTES]})
    values = np.arange(24, dtype="<f4").reshape(2, 3, 4)
    stored = values.transpose(2, 0, 1).transpose(1, 0, 2)
    assert found.shape == stored.shape
    assert (found.decode(stored.tobytes(), None) == values).all()


@pytest.mark.parametrize(
    "codecs",
    [
        [{"name": "numcodecs.delta", "configuration": {"dtype": "<f4"}}, BYTES],
        [BYTES, {"name": "numcodecs.zfpy"}],
        [BYTES, {"name": "zlib"}],
        [{"name": "numcodecs.pcodec"}],
    ],
)
def test_codecs_that_are_not_known_here_make_no_chain(codecs):
    assert chain({**V3, "codecs": codecs}) is None
    assert chain({**V2, "filters": [{"id": "pickle"}]}) is None


def test_a_chunk_of_another_size_is_damaged():
    for size in (0, 47, 49, 96):
        with pytest.raises(Damaged, match=f"{size} bytes, not 48"):
            chain(V2).decode(bytes(size), None)


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
    with pytest.raises(Damaged, match=r"cannot decode.*s3://b/c/0"):
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
        with pytest.raises(Damaged, match="cannot decode"):
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
