"""Parsers of shards read a damaged file or refuse it, in seconds and little memory; no error is Python's own."""

from __future__ import annotations

import gzip
import io
import struct
import zipfile
from functools import partial
from pathlib import Path
from time import thread_time

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import HealthCheck, given, settings
from pyarrow import parquet

from penstock.data.reading.objects import PARSING
from penstock.data.shards.compressed import CompressedJsonlFormat, CompressedTarFormat, CompressedTFRecordFormat
from penstock.data.shards.format import UnitPiece, run_walk
from penstock.data.shards.jsonl import JsonlFormat
from penstock.data.shards.litdata import CompressedLitDataFormat, LitDataFormat, described_chunks, form_of_rows
from penstock.data.shards.mds import CompressedMdsFormat, MdsFormat, stated_shards
from penstock.data.shards.parquet import ParquetFormat
from penstock.data.shards.side import side_walk, wids_shards
from penstock.data.shards.tar import TarFormat
from penstock.data.shards.tfrecord import TFRecordFormat
from penstock.data.shards.tokens import DatatroveIndex, MegatronIndex, TokenFile
from penstock.data.shards.zip import ZipFormat
from penstock.data.unpacking import UNPACKED_VARIABLE
from penstock.errors import Bug, PenstockError
from tests.amounts import examples
from tests.data.shards.archives import tar, tfrecord, zipped
from tests.data.shards.lightning import GOLDEN as LIGHTNING
from tests.data.shards.mosaic import COLUMNS
from tests.data.shards.mosaic import GOLDEN as MOSAIC
from tests.hostile.mutations import mutated

MOST_S = 5.0
MOST_BYTES = 512 << 20

_PAIRS = [("a.jpg", b"JPEG"), ("a.cls", b"1"), ("b/c.jpg", b"x" * 700), ("b/c.cls", b"")]
_LONG = [("n" * 120 + ".txt", b"t"), ("é.txt", b"u"), ("é.cls", b"2")]
_TAR = [tar(_PAIRS), tar(_LONG), tar(_LONG, 1)]
_ZIP = [zipped(_PAIRS), zipped(_PAIRS, zipfile.ZIP_DEFLATED, streamed=True), zipped(_LONG, wide=True)]
_LINES = [b'{"a": 1, "t": "x"}\n\n{"a": 2, "t": "y"}\r\n']
_RECORDS = [tfrecord([b"a", b"", b"c" * 40])]
_MEGATRON = [
    struct.pack("<9sQBQQ", b"MMIDIDX\0\0", 1, 8, 3, 3)
    + np.array([2, 3, 1], "<i4").tobytes()
    + np.array([0, 4, 10], "<i8").tobytes()
    + np.array([0, 2, 3], "<i8").tobytes()
]
_LLMC = [struct.pack("<256i", 20240520, 1, 30, *[0] * 253) + bytes(60)]
_WIDS = [b'{"wids_version": 1, "shardlist": [{"url": "a.tar", "nsamples": 2}]}']
_WDS = [b"v1.2 2\n.jpg 512 4 a.jpg .cls 1536 1 a.cls\n.jpg 2560 700 b/c.jpg .cls 4096 0 b/c.cls\n"]
_ENERGON = [np.array([0, 2048, 4608], "<u8").tobytes()]

_READ = tuple(name for name in COLUMNS if name != "pkl")


def _zstd(data):
    sink = pa.BufferOutputStream()
    with pa.CompressedOutputStream(sink, "zstd") as stream:
        stream.write(data)
    return struct.pack("<II", 0x184D2A50, 4) + bytes(4) + sink.getvalue().to_pybytes()


def _packed(seeds):
    return [each(data) for data in seeds for each in (gzip.compress, _zstd)]


def _npy():
    found = []
    for dtype in ("<u2", "|u1"):
        sink = io.BytesIO()
        np.save(sink, np.arange(30, dtype=dtype))
        found.append(sink.getvalue())
    return found


def _table():
    table = {
        "a": [*range(50)],
        "t": [f"text {at % 7}" for at in range(50)],
        "l": [[at] * 3 for at in range(50)],
        "w": [["x", "y"]] * 50,
        "b": [b"z" * 2000] * 50,
    }
    for options in (
        {},
        {"data_page_version": "2.0", "compression": "zstd"},
        {"compression": "none", "row_group_size": 20},
    ):
        sink = io.BytesIO()
        parquet.write_table(pa.table(table), sink, **options)
        yield sink.getvalue()


def read(form, data):
    """Read all samples of a shard."""
    found = run_walk(form.walk(len(data)), memoryview(data))
    form = form.having(found.schema)
    if found.units is None:
        places = zip(found.offsets.tolist(), found.sizes.tolist(), strict=True)
        return [form.sample(memoryview(data)[start : start + size]) for start, size in [*places][:100]]
    at, samples = 0, []
    for first, end in zip(found.units.firsts.tolist()[:20], found.units.ends.tolist(), strict=False):
        spans = [(int(found.units.starts[row]), int(found.units.stops[row])) for row in range(at, end)]
        unit = form.decode([UnitPiece(start, memoryview(data)[start:stop]) for start, stop in spans], first)
        samples += [form.row(unit, number) for number in range(1 if at else 2)]
        at = end
    return samples


def _side(side, data):
    tail = tar(_PAIRS)
    run_walk(side_walk(side, TarFormat(), data, len(tail)), memoryview(tail))


def _shard(folder, end):
    return [next(each for each in sorted(folder.rglob(end)) if each.is_file()).read_bytes()]


def _indexes(folder):
    return [each.read_bytes() for each in sorted(folder.rglob("index.json"))]


def _columns(packed):
    """Return a format of LitData with the columns of a golden folder."""
    return described_chunks((LIGHTNING / packed / "index.json").read_bytes(), LitDataFormat())[1]


PARSERS = {
    "tar": (_TAR, partial(read, TarFormat())),
    "tar of names": (_TAR, partial(read, TarFormat(fields=("jpg", "cls"), missing="none", skip=("n*",)))),
    "zip": (_ZIP, partial(read, ZipFormat())),
    "jsonl": (_LINES, partial(read, JsonlFormat(fields=("a", "t")))),
    "tfrecord": (_RECORDS, partial(read, TFRecordFormat())),
    "jsonl.gz": (_packed(_LINES), partial(read, CompressedJsonlFormat())),
    "tar.gz": (_packed(_TAR), partial(read, CompressedTarFormat())),
    "tfrecord.gz": (_packed(_RECORDS), partial(read, CompressedTFRecordFormat())),
    "parquet": ([*_table()], partial(read, ParquetFormat())),
    "mds": (_shard(MOSAIC, "*.mds"), partial(read, MdsFormat(_READ))),
    "mds.zst": (_packed(_shard(MOSAIC, "*.mds")), partial(read, CompressedMdsFormat(_READ))),
    "index of MDS": (_indexes(MOSAIC), stated_shards),
    "litdata": (_shard(LIGHTNING / "plain", "*.bin"), lambda data: read(_columns("plain"), data)),
    "litdata of frames": (_shard(LIGHTNING / "batch", "*.bin"), lambda data: read(_columns("batch"), data)),
    "litdata of rows": (
        _shard(LIGHTNING / "images", "*.bin"),
        lambda data: read(form_of_rows(_columns("images"), bytes(12)), data),
    ),
    "litdata of chunks": (_shard(LIGHTNING / "chunk", "*.bin"), lambda data: read(_columns("chunk"), data)),
    "index of LitData": (_indexes(LIGHTNING), lambda data: described_chunks(data, CompressedLitDataFormat())),
    "index of wids": (_WIDS, wids_shards),
    "index of wds2idx": (_WDS, partial(_side, "wds2idx")),
    "index of energon": (_ENERGON, partial(_side, "energon")),
    "npy": (_npy(), partial(read, TokenFile())),
    "llm.c": (_LLMC, partial(read, TokenFile())),
    "megatron": (_MEGATRON, partial(read, MegatronIndex("documents"))),
    "datatrove": ([np.array([3, 9, 20], "<u8").tobytes()], partial(read, DatatroveIndex())),
}


def _resident(field):
    (line,) = [each for each in Path("/proc/self/status").read_text().splitlines() if each.startswith(field)]
    return int(line.split()[1]) << 10


def attempted(parser, data):
    """Parse ``data``; raise AssertionError unless it is read or refused as a user may see it."""
    parse = PARSERS[parser][1]
    try:
        parse(data)
    except Bug as error:
        raise AssertionError("a bug") from error
    except PenstockError as error:
        str(error)
    except PARSING:
        # A dataset makes Damaged of these.
        pass


@pytest.mark.parametrize("parser", PARSERS)
def test_damaged_shards_are_read_or_refused_in_bounds(parser, monkeypatch):
    monkeypatch.setenv(UNPACKED_VARIABLE, "128MiB")

    @settings(max_examples=examples(30), suppress_health_check=list(HealthCheck))
    @given(mutated(PARSERS[parser][0]))
    def check(data):
        Path("/proc/self/clear_refs").write_text("5")  # the peak begins anew: proc(5)
        before, began = _resident("VmRSS"), thread_time()
        attempted(parser, data)
        assert thread_time() - began < MOST_S
        assert _resident("VmHWM") - before < MOST_BYTES

    check()
