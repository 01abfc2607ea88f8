"""Each codec decodes what numcodecs encodes, into memory that is there, and never to more than its room."""

from __future__ import annotations

import bz2
import gzip
import lzma
import sys
from time import process_time

import numcodecs
import numpy as np
import pytest

from penstock.data.zarr.format import steps
from penstock.data.zarr.format.steps import BYTES, CRC_STEP, VALUES, Room, step_of
from penstock.errors import ChecksumMismatch, MissingExtra

VALUE = np.arange(300, dtype="<f4")
CONFIGURATIONS = {
    **{name: {"dtype": "<f4"} for name in ("delta", "fixedscaleoffset", "quantize")},
    "astype": {"encode_dtype": "<f8", "decode_dtype": "<f4"},
    "fixedscaleoffset": {"dtype": "<f4", "astype": "<i2", "offset": 1, "scale": 2},
    "bitround": {"keepbits": 20},
    "quantize": {"dtype": "<f4", "digits": 5},
}


def exact(size):
    return Room(size, size)


@pytest.mark.parametrize("name", sorted(BYTES | VALUES))
def test_codec_decodes_numcodecs_output_and_computes_its_encoded_size(name):
    value = VALUE > 5 if name == "packbits" else VALUE
    configuration = CONFIGURATIONS.get(name, {})
    encoded = numcodecs.get_codec({"id": name, **configuration}).encode(value)
    step = step_of(name, configuration)
    encoded = encoded if isinstance(encoded, bytes) else np.asarray(encoded).tobytes()
    assert step.encoded_size(value.nbytes) in {None, len(encoded)}
    decoded = step.decode(encoded, exact(value.nbytes), None)
    assert np.frombuffer(decoded, value.dtype).tobytes() == value.tobytes()
    if step.into:
        out = np.empty(value.nbytes, "u1")
        assert step.decode(encoded, exact(value.nbytes), out) is out
        assert out.tobytes() == value.tobytes()


def test_a_codec_of_others_is_not_known():
    assert step_of("pickle", {}) is None
    assert step_of("vlen-utf8", {}) is None


@pytest.mark.parametrize("name", ["gzip", "bz2"])
def test_several_streams_are_one_chunk(name):
    pack = {"gzip": gzip, "bz2": bz2}[name].compress
    data = pack(VALUE[:100].tobytes()) + pack(VALUE[100:].tobytes())
    assert step_of(name, {}).decode(data, exact(1200), None) == VALUE.tobytes()
    with pytest.raises(ValueError, match="1204 bytes, not 1200"):
        step_of(name, {}).decode(data + pack(b"abcd"), exact(1200), None)


@pytest.mark.parametrize("name", ["gzip", "bz2", "lzma"])
def test_very_many_streams_of_nothing_or_a_byte_take_linear_time(name):
    pack = {"gzip": gzip.compress, "bz2": bz2.compress, "lzma": lzma.compress}[name]
    step, began = step_of(name, {}), process_time()
    nothing = pack(b"") * ((1 << 20) // len(pack(b"")))
    assert step.decode(nothing + pack(b"abcd"), exact(4), None) == b"abcd"
    count = 10_000
    assert step.decode(pack(b"a") * count, exact(count), None) == b"a" * count
    assert step.decode(pack(b"a") + pack(b"") * 1000 + pack(b"b"), exact(2), None) == b"ab"
    assert process_time() - began < 4


def test_dictionary_of_lzma_that_no_chunk_needs_is_refused():
    data = lzma.compress(bytes(1200), filters=[{"id": lzma.FILTER_LZMA2, "dict_size": 1 << 30}])
    with pytest.raises(lzma.LZMAError, match=r"[Mm]emory"):
        step_of("lzma", {}).decode(data, exact(1200), None)


@pytest.mark.parametrize("dtype", ["V0", "S0", "O", "V4", "U1"])
def test_non_numeric_dtypes_are_refused_by_filter_codecs(dtype):
    for name, configuration in (
        ("delta", {"dtype": dtype}),
        ("delta", {"dtype": "<f4", "astype": dtype}),
        ("astype", {"encode_dtype": dtype, "decode_dtype": "<f4"}),
        ("fixedscaleoffset", {"dtype": dtype, "offset": 0, "scale": 1}),
    ):
        with pytest.raises((ValueError, TypeError)):
            step_of(name, configuration)


@pytest.mark.parametrize("name", ["zlib", "gzip", "bz2", "lzma"])
def test_a_stream_that_ends_early_is_refused(name):
    data = bytes(numcodecs.get_codec({"id": name}).encode(VALUE))
    for size in range(1, len(data), 37):
        with pytest.raises((ValueError, EOFError, OSError)):
            step_of(name, {}).decode(data[:size], exact(VALUE.nbytes), None)


def test_a_truncated_blosc_is_refused_though_numcodecs_decodes_it():
    data = bytes(numcodecs.Blosc("zstd").encode(VALUE))
    for size in range(len(data)):
        with pytest.raises(ValueError, match=r"too short|header declares"):
            step_of("blosc", {}).decode(data[:size], exact(VALUE.nbytes), None)


@pytest.mark.parametrize("size", [0, 1, 255, 256, 300, 65_791, 65_792, 70_000])
def test_zstd_frame_size_is_parsed_and_size_mismatch_raises(size):
    data = numcodecs.Zstd().encode(bytes(size) or b"")
    step = step_of("zstd", {})
    if size:
        assert bytes(step.decode(data, Room(0, size), None)) == bytes(size)
        with pytest.raises(ValueError, match=f"{size} bytes, not"):
            step.decode(data, Room(0, size - 1), None)
    with pytest.raises(ValueError, match=f"{size} bytes, not {size + 1}"):
        step.decode(data, exact(size + 1), None)


def test_the_checksum_of_the_specification():
    step = CRC_STEP
    data = bytes(numcodecs.CRC32C(location="end").encode(VALUE))
    assert step.verifies
    assert bytes(step.decode(data, exact(1200), None)) == VALUE.tobytes()
    assert step.encoded_size(1200) == 1204


def test_without_numcodecs_the_extra_is_named(monkeypatch):
    monkeypatch.setitem(sys.modules, "numcodecs", None)
    with pytest.raises(MissingExtra, match=r"penstock\[zarr\]"):
        step_of("zstd", {})


RFC = bytes.fromhex("00" * 32), bytes.fromhex("aa36918a")  # RFC 3720, B.4: 32 bytes of zeroes


@pytest.mark.parametrize("kind", [bytes, bytearray, memoryview])
def test_the_bytes_before_a_checksum_that_matches(kind):
    assert bytes(steps.verify_crc32c(kind(b"".join(RFC)), "it")) == RFC[0]


@pytest.mark.parametrize("at", [0, 31, 32, 35])
def test_a_flipped_bit_is_found(at):
    data = bytearray(b"".join(RFC))
    data[at] ^= 16
    with pytest.raises(ChecksumMismatch, match=r"CRC-32C of the index .*32 bytes.*s3://b/k"):
        steps.verify_crc32c(data, "the index", "s3://b/k")


@pytest.mark.parametrize("size", range(4))
def test_too_few_bytes_for_a_checksum(size):
    with pytest.raises(ChecksumMismatch):
        steps.verify_crc32c(bytes(size), "it")
    assert bytes(steps.verify_crc32c(bytes(4), "nothing")) == b""  # whose checksum is 0


def test_without_the_library_the_extra_is_named(monkeypatch):
    steps._load_crc32c.cache_clear()
    monkeypatch.setitem(sys.modules, "google_crc32c", None)
    with pytest.raises(MissingExtra, match=r"penstock\[zarr\]"):
        steps.verify_crc32c(b"".join(RFC), "it")
