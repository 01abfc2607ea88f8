"""Compressed files are decoded as their formats allow, in linear time, and within a stated bound of memory."""

import bz2
import gzip
import io
import lzma
import struct
import subprocess
import sys
import zlib
from pathlib import Path
from shutil import which
from time import process_time

import numpy as np
import pytest

import penstock as ps
from penstock.data.unpacking import UNPACKED_VARIABLE, UnpackedFile, inflate_file, streams
from penstock.errors import ConfigError, Damaged, Unsupported
from tests.conftest import REQUIRE_SERVERS
from tests.data.shards.archives import tar, zipped
from tests.data.shards.test_compressed import zstd
from tests.refusals import refused

LINES = b"".join(b'{"number": %d}\n' % number for number in range(5000))
SKIPPED = struct.pack("<II", 0x184D2A5F, 3) + b"abc"
MAGIC, LAST = b"\x28\xb5\x2f\xfd", b"\1\0\0"  # and the block that ends a frame, of no bytes
NOTHING = {"gzip": gzip.compress(b""), "zstd": MAGIC + b"\x20\0" + LAST, "wide": MAGIC + b"\0\xa8" + LAST}
# A block of 128 KiB, one byte repeated.
ZEROS = struct.pack("<I", (128 << 10) << 3 | 1 << 1)[:3] + b"\0"


def widened(frame):
    """Return a frame whose header states a window of 2 GiB (``zstd --long=31``)."""
    assert frame[4] & 0x20 == 0
    return frame[:5] + bytes([21 << 3]) + frame[6:]


def resident(field):
    (line,) = [each for each in Path("/proc/self/status").read_text().splitlines() if each.startswith(field)]
    return int(line.split()[1]) << 10


@pytest.fixture
def _bound(monkeypatch):
    monkeypatch.setenv(UNPACKED_VARIABLE, "64MiB")


@pytest.mark.parametrize(
    "data",
    [
        gzip.compress(LINES[:9000]) + gzip.compress(b"") + gzip.compress(LINES[9000:]) + bytes(3000),
        zstd(LINES),
        SKIPPED + zstd(LINES),
        SKIPPED + zstd(LINES[:9000]) + SKIPPED * 2 + NOTHING["zstd"] + zstd(LINES[9000:]) + SKIPPED,
        widened(zstd(LINES)),
        widened(zstd(LINES[:9000])) + SKIPPED + zstd(LINES[9000:]),
    ],
    ids=["gzip", "zstd", "skippable-first", "many-frames", "wide-window", "wide-and-narrow"],
)
def test_streams_that_their_format_allows_are_read(data, tmp_path):
    assert bytes(inflate_file(memoryview(data))) == LINES
    assert io.BufferedReader(UnpackedFile(memoryview(data))).read() == LINES
    (tmp_path / ("a.jsonl.gz" if data[:2] == b"\x1f\x8b" else "a.jsonl.zst")).write_bytes(data)
    assert [sample["number"] for sample in ps.MapDataset.from_shards(tmp_path, fields=("number",))] == [*range(5000)]


@pytest.mark.parametrize("tool", [("pzstd", "-p2"), ("zstd", "--long=31")], ids=["pzstd", "long"])
def test_files_of_the_tools_of_zstd_are_read(tmp_path, tool):
    if which(tool[0]) is None:
        (pytest.fail if REQUIRE_SERVERS else pytest.skip)(f"{tool[0]} is not installed")
    (tmp_path / "a").write_bytes(LINES)
    for arguments, given in (([], LINES), ([str(tmp_path / "a")], None)):
        packed = subprocess.run([*tool, "-q", "-c", *arguments], input=given, capture_output=True, check=True).stdout
        assert bytes(inflate_file(memoryview(packed))) == LINES


def test_frame_of_a_wide_window_that_states_its_size_is_read_in_a_single_step():
    size = 1100 * (128 << 10)
    frame = MAGIC + bytes([0x80 | 0x20]) + struct.pack("<I", size) + ZEROS * 1100 + LAST
    found = inflate_file(memoryview(frame + SKIPPED))
    assert (len(found), np.frombuffer(found, "u1").any()) == (size, False)


def test_frame_of_a_wide_window_and_an_unknown_size_names_the_remedy(monkeypatch):
    monkeypatch.setitem(sys.modules, "zstandard", None)
    refused(Unsupported, "pip install zstandard", inflate_file, memoryview(MAGIC + b"\0\xa8" + ZEROS * 1100 + LAST))


def test_dictionary_of_zstd_is_refused_by_name():
    refused(Unsupported, "needs a dictionary", inflate_file, memoryview(MAGIC + b"\x21\7\0" + LAST))


@pytest.mark.parametrize("kind", [*NOTHING, "bz2", "lzma", "skipped"])
def test_many_streams_of_nothing_take_linear_time(kind):
    one = {"bz2": bz2.compress(b""), "lzma": lzma.compress(b""), "skipped": SKIPPED, **NOTHING}[kind]
    data, began = memoryview(one * ((2 << 20) // len(one))), process_time()
    if kind in ("bz2", "lzma"):
        found = b"".join(streams({"bz2": bz2.BZ2Decompressor, "lzma": lzma.LZMADecompressor}[kind], data))
    else:
        found = inflate_file(data)
    assert len(found) == 0
    assert process_time() - began < 5


@pytest.mark.parametrize("make", [bz2, lzma, gzip], ids=lambda each: each.__name__)
def test_blocks_of_several_streams_are_bounded_and_whole(make):
    raw = b"".join(b"%d," % number for number in range(30_000)) + bytes(1 << 20)
    kind = {bz2: bz2.BZ2Decompressor, lzma: lzma.LZMADecompressor, gzip: lambda: zlib.decompressobj(31)}[make]
    found = [*streams(kind, memoryview(make.compress(raw) * 3), block_bytes=1000)]
    assert b"".join(found) == raw * 3
    assert max(map(len, found)) <= 1000
    for stop in (1, 30, len(make.compress(raw)) - 1):
        with pytest.raises((EOFError, zlib.error)):
            [*streams(kind, memoryview(make.compress(raw))[:stop])]


@pytest.mark.parametrize("data", [zstd(LINES), SKIPPED + zstd(LINES), gzip.compress(LINES)])
def test_files_that_are_cut_off_are_refused(data):
    for stop in (0, 4, 8, 12, len(data) // 2, len(data) - 1):
        refused((Damaged, Unsupported), r"truncated|0 bytes|neither", inflate_file, memoryview(data)[:stop])
    with pytest.raises(Damaged):
        inflate_file(memoryview(data + b"garbage"))


BOMBS = {
    "gzip": gzip.compress(bytes(100 << 20)),
    "gzip of many members": gzip.compress(bytes(1 << 20)) * 100,
    "zstd": MAGIC + b"\0\x68" + ZEROS * 900 + LAST,
    "zstd that states its size": MAGIC + b"\xa0" + struct.pack("<I", 900 << 17) + ZEROS * 900 + LAST,
    "zstd of a wide window": MAGIC + b"\xa0" + struct.pack("<I", 1100 << 17) + ZEROS * 1100 + LAST,
}


@pytest.mark.skipif(sys.platform != "linux", reason="memory is measured by /proc")
@pytest.mark.parametrize("kind", BOMBS)
@pytest.mark.usefixtures("_bound")
def test_bombs_are_refused_within_the_bound(kind, tmp_path):
    (tmp_path / "a.tar.gz").write_bytes(BOMBS[kind])
    Path("/proc/self/clear_refs").write_text("5")
    before = resident("VmRSS")
    with pytest.raises(Damaged, match=r"at most 67108864 bytes.*PENSTOCK_UNPACKED_SIZE"):
        ps.Catalog.from_shards(tmp_path, progress=False)
    assert resident("VmHWM") - before < 200 << 20


@pytest.mark.skipif(sys.platform != "linux", reason="memory is measured by /proc")
@pytest.mark.usefixtures("_bound")
def test_sample_of_a_zip_file_is_inflated_within_the_bound(tmp_path):
    members = [(f"a.{number}", bytes(30 << 20)) for number in range(3)]
    (tmp_path / "a.zip").write_bytes(zipped(members, 8))
    dataset = ps.MapDataset.from_shards(tmp_path, progress=False)
    Path("/proc/self/clear_refs").write_text("5")
    before = resident("VmRSS")
    with pytest.raises(Damaged, match="PENSTOCK_UNPACKED_SIZE"):
        dataset[0]
    assert resident("VmHWM") - before < 200 << 20
    assert ps.MapDataset.from_shards(tmp_path, fields=("0", "1"), progress=False)[0]["1"].size == 30 << 20


def test_ratio_of_an_honest_file_does_not_matter(tmp_path):
    volumes = [(f"{number}.npy", bytes(9 << 20)) for number in range(10)]
    (tmp_path / "a.tar.gz").write_bytes(gzip.compress(tar(volumes)))
    assert [sample["npy"].size for sample in ps.MapDataset.from_shards(tmp_path, progress=False)] == [9 << 20] * 10


def test_bound_is_a_size_of_the_environment(monkeypatch):
    data = memoryview(gzip.compress(bytes(3000)))
    for text, fits in (("3000", True), ("2999", False), ("2K", False), ("1GiB", True), ("", True)):
        monkeypatch.setenv(UNPACKED_VARIABLE, text)
        if fits:
            assert len(inflate_file(data)) == 3000
        else:
            refused(Damaged, r"a compressed file of .* bytes must take at most", inflate_file, data)
    for text in ("many", "0", "-5", "1.5GiB"):
        monkeypatch.setenv(UNPACKED_VARIABLE, text)
        refused(ConfigError, f"PENSTOCK_UNPACKED_SIZE must be a size such as 8GiB, got '{text}'", inflate_file, data)


@pytest.mark.skipif(sys.platform != "linux", reason="memory is measured by /proc")
def test_errors_of_damaged_frames_keep_no_memory():
    data = MAGIC + b"\0\x48" + (8 << 3 | 2 << 1 | 1).to_bytes(3, "little") + b"\xff" * 8
    for count in (50, 400):
        before = resident("VmSize")
        for _ in range(count):
            with pytest.raises(Damaged):
                inflate_file(memoryview(data))
    assert resident("VmSize") - before < 200 << 20


def test_more_than_an_index_states_is_refused():
    data = memoryview(gzip.compress(bytes(3000)))
    assert len(inflate_file(data, 3000)) == 3000
    refused(Damaged, "decompress to more than the declared 2999", inflate_file, data, 2999)
