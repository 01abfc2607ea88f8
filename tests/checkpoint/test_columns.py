"""Columns of an index: read whole or in part, each byte verified, and never beyond what the manifest describes."""

from __future__ import annotations

from uuid import uuid4

import numpy as np
import pytest

from penstock.checkpoint import columns as columns_module
from penstock.checkpoint.columns import INDEX, LAYOUT, ROW, IndexColumns, read_checksums
from penstock.checkpoint.commit import read_current
from penstock.checkpoint.integrity import BLOCK_BYTES, BlockChecksums
from penstock.errors import CheckpointError, ChecksumMismatch, NotFound, Truncated
from penstock.source import open_source
from tests.checkpoint.dcp.indexes import SAVE, publish_columns

OBJECTS = {
    "b": BlockChecksums(BLOCK_BYTES + 1, b"b" * 16),
    "a": BlockChecksums(0, b""),
    "c": BlockChecksums(1, b"c" * 8),
}


def _place():
    return open_source(f"memory://{uuid4().hex}/")


def _columns(rows):
    made = {name: np.zeros(0, dtype) for name, dtype in LAYOUT.items()}
    made["rows"] = np.array([(number % 7, number * 3) for number in range(rows)], ROW)
    made["text"] = np.arange(1000).astype(np.uint8)
    made["digests"] = np.frombuffer(b"b" * 16 + b"c" * 8, LAYOUT["digests"])
    return made


@pytest.fixture(params=[2 * BLOCK_BYTES, 0], ids=["whole", "in part"])
def _whole(request, monkeypatch):
    monkeypatch.setattr(columns_module, "_WHOLE_BYTES", request.param)


@pytest.mark.usefixtures("_whole")
@pytest.mark.parametrize("rows", [0, 1, 300_000])
def test_columns_and_ranges_are_read_as_they_were_written(rows):
    written = _columns(rows)
    committed = publish_columns(*_place(), written, OBJECTS)
    text, found = committed.columns.read("text", "rows")
    assert text.tolist() == written["text"].tolist()
    assert (found == written["rows"]).all()
    ranges = [("rows", start, min(rows, start + 3)) for start in (0, rows // 2, rows)]
    for (_, start, stop), each in zip(ranges, committed.columns.read_ranges(ranges), strict=True):
        assert (each == written["rows"][start:stop]).all()
    assert read_checksums(committed.columns, committed.manifest.indexed, ["c", "a", "b"]) == OBJECTS


@pytest.mark.usefixtures("_whole")
@pytest.mark.parametrize("damage", ["flip", "cut", "gone"])
def test_a_damaged_index_is_refused_by_its_digests(damage):
    source, folder = _place()
    committed = publish_columns(source, folder, _columns(300_000), OBJECTS)
    key = f"{folder}{SAVE}/{INDEX}"
    data = bytearray(read_current(source, key)[1])
    data[-20] ^= 1
    if damage == "gone":
        source.delete([key])
    else:
        source.put(key, bytes(data) if damage == "flip" else bytes(data[:-30]))
    with pytest.raises({"flip": ChecksumMismatch, "cut": Truncated, "gone": NotFound}[damage]):
        committed.columns.read("digests")


@pytest.mark.parametrize(
    "lengths",
    [{"rows": -1}, {"rows": 2.5}, {"rows": True}, {"rows": 4}, {"more": 0}, {"digests": 2}],
    ids=str,
)
def test_lengths_that_do_not_fit_the_object_are_refused_without_a_read(lengths):
    committed = publish_columns(*_place(), _columns(3), OBJECTS, **lengths)
    with pytest.raises(CheckpointError, match="the manifest describes an invalid index"):
        _ = committed.columns


def test_a_manifest_without_an_index_is_refused():
    source, folder = _place()
    committed = publish_columns(source, folder, _columns(3), OBJECTS)
    for content in (
        {},
        {"index": 7},
        {"index": {"object": "no", "columns": {}}},
        {"index": {"object": [], "columns": {}}},
    ):
        committed.manifest.content.clear()
        committed.manifest.content.update(content)
        with pytest.raises(CheckpointError, match="the manifest describes an invalid index"):
            IndexColumns(source, folder, committed.manifest)
