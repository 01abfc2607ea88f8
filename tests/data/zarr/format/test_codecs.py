"""Decoded chunks are what zarr reads, bit for bit; damaged ones are errors; threads and forked children decode, too."""

from __future__ import annotations

import os
import pickle
import zlib
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from penstock.data.zarr.format.codecs import decoder_of
from penstock.data.zarr.format.layout import layout_of
from penstock.errors import ChecksumMismatch, Damaged, Unsupported, Unusable
from tests.amounts import examples
from tests.data.zarr.format.test_documents import V2, V3
from tests.data.zarr.memory_arrays import arrays, chunks_of, named, put, read, same

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
@pytest.mark.parametrize("name", ["zstd", "blosc", "lz4", "zlib", "gzip", "bz2", "lzma"])
def test_a_chunk_that_becomes_more_than_it_should_is_refused_before_it_does(name, more):
    numcodecs = pytest.importorskip("numcodecs")
    bomb = bytearray(numcodecs.get_codec({"id": name}).encode(np.zeros(48 + min(more, 1 << 20), "u1")))
    if more == 1 << 31 and name in {"blosc", "lz4"}:  # headers may say anything
        at = 4 if name == "blosc" else 0
        bomb[at : at + 4] = (2**31 - 1).to_bytes(4, "little")
    decoder = decoder_of(layout_of({**V2, "compressor": {"id": name}}))
    with pytest.raises(Damaged, match="k]"):
        decoder.decode(bomb, url="s3://b/k")
    with pytest.raises(Damaged):
        decoder.decode(bomb, np.empty((3, 4), "f4"))


@pytest.mark.parametrize("name", ["zstd", "blosc", "lz4", "zlib", "gzip", "bz2", "lzma"])
def test_a_chunk_that_becomes_less_than_it_should_is_refused(name):
    numcodecs = pytest.importorskip("numcodecs")
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
    "codecs",
    [
        *(["bytes"], ["bytes", {"name": "numcodecs.shuffle", "configuration": {"elementsize": "x"}}]),
        [{"name": "bytes", "configuration": {"endian": "middle"}}],
        [{"name": "transpose", "configuration": {"order": [0, 0]}}, "bytes"],
        [{"name": "transpose", "configuration": {"order": [0, 1, 2]}}, "bytes"],
    ],
)
def test_codecs_that_cannot_be_are_damage(codecs):
    with pytest.raises(Damaged, match=r"s3://b/zarr\.json"):
        decoder_of(layout_of({**V3, "codecs": codecs}), "s3://b/zarr.json")


@pytest.mark.parametrize(
    "filters", ["zlib", [3], [{"name": "zlib"}], [{"id": "delta", "dtype": "x"}], [{"id": "delta"}]]
)
def test_filters_that_cannot_be_are_damage(filters):
    with pytest.raises(Damaged, match=r"filters.*s3://b/\.zarray"):
        decoder_of(layout_of({**V2, "filters": filters}), "s3://b/.zarray")


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
