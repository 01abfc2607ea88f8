"""References in Parquet are found by the number of a chunk; their files are read when needed, once, and checked."""

from __future__ import annotations

import json
import pickle
import tracemalloc
import uuid

import pytest

from penstock.data.zarr.format import references as records
from penstock.data.zarr.format.metadata import open_arrays
from penstock.data.zarr.format.references import ChunkLocation, Records, references_of_records
from penstock.errors import Damaged, DatasetChanged, Unsupported
from penstock.source import open_source
from tests.data.zarr.format.test_documents import V2
from tests.data.zarr.referencefiles import put_references, record

ENTRIES = {
    "tas/.zarray": json.dumps(V2 | {"shape": [10, 8]}),  # of chunks (3, 4): 4 by 2 of them
    "tas/0.0": ["s3://other/a.nc", 10, 20],
    "tas/0.1": ["s3://other/b.nc"],
    "tas/2.0": "base64:AAEC",
    "tas/3.1": ["s3://other/a.nc", 30, 40],
    "deep/er/.zarray": json.dumps(V2 | {"shape": [], "chunks": []}),
    "deep/er/0": "text",
}


@pytest.fixture
def source():
    return open_source(f"memory://records-{uuid.uuid4().hex}/x")[0]


def references(source, folder="refs.parq"):
    return references_of_records(open_arrays(source, folder), source, f"{folder}/")


def reads(source, monkeypatch):
    """Return a list that each file which is looked for is appended to."""
    asked = []
    stat = type(source).stat_existing
    monkeypatch.setattr(type(source), "stat_existing", lambda self, keys: asked.extend(keys) or stat(self, keys))
    return asked


@pytest.mark.parametrize("categories", [False, True], ids=["plain", "categories"])
@pytest.mark.parametrize("size", [1, 3, 8, 100])
def test_references_are_those_of_the_json(source, size, categories):
    put_references(source, "refs.parq", ENTRIES, size, categories=categories)
    found = pickle.loads(pickle.dumps(references(source)))
    tas = found.arrays["tas"]
    assert found.at(tas.object_key((0, 0))) == ChunkLocation("s3://other/a.nc", 10, 30)
    assert found.at(tas.object_key((0, 1))) == ChunkLocation("s3://other/b.nc")
    assert found.at(tas.object_key((2, 0))) == b"\0\1\2"
    assert found.at(tas.object_key((3, 1))) == ChunkLocation("s3://other/a.nc", 30, 70)
    assert found.at(tas.object_key((1, 0))) is None
    assert found.at(found.arrays["deep/er"].object_key(())) == b"text"
    for key in ("tas/4.0", "tas/0.2", "tas/0", "tas/0.0.0", "tas/-1.0", "tas/" + "9" * 30 + ".0", "pr/0.0", "tas/", ""):
        assert found.at(key) is None


def test_files_are_read_when_they_are_needed_and_once(source, monkeypatch):
    put_references(source, "refs.parq", ENTRIES, 2)
    found = references(source)
    asked = reads(source, monkeypatch)
    assert found.known("tas/0.0") is None
    found.at("tas/0.0")
    found.at("tas/0.1")
    assert asked == ["refs.parq/tas/refs.0.parq"]
    assert found.known("tas/0.0") == ChunkLocation("s3://other/a.nc", 10, 30)
    found.records.prepare(["tas/0.0", "tas/2.0", "tas/2.1", "tas/3.1", "none"])
    assert asked[1:] == ["refs.parq/tas/refs.2.parq", "refs.parq/tas/refs.3.parq"]
    assert found.at("tas/3.1") == ChunkLocation("s3://other/a.nc", 30, 70)
    assert len(asked) == 3


def test_the_files_that_were_not_used_for_longest_are_let_go(source, monkeypatch):
    put_references(source, "refs.parq", ENTRIES, 1)
    found = references(source)
    monkeypatch.setattr(records, "_MOST_HELD_BYTES", 3000)  # of about 1300 each
    for key in ("tas/0.0", "tas/0.1", "tas/0.0", "tas/3.1"):
        found.at(key)
    asked = reads(source, monkeypatch)
    for key in ("tas/0.0", "tas/3.1", "tas/0.1"):
        found.at(key)
    assert asked == ["refs.parq/tas/refs.1.parq"]


def test_held_memory_of_small_and_absent_record_files_is_counted(source):
    count = 1000
    array = json.dumps(V2 | {"shape": [2 * count], "chunks": [1]})
    put_references(source, "refs.parq", {"tas/.zarray": array}, 1)
    for number in range(count):
        source.put(f"refs.parq/tas/refs.{number}.parq", record({0: ["s3://other/a.nc", 10, 20]}, 1))
    found = references(source)
    found.at("tas/0")
    for numbers in (range(1, count), range(count, 2 * count)):
        counted = found.records._held_bytes
        tracemalloc.start()
        for number in numbers:
            found.at(f"tas/{number}")
        held, _ = tracemalloc.get_traced_memory()
        tracemalloc.stop()
        assert found.records._held_bytes - counted > held / 2


def test_a_file_that_is_not_there_has_no_references_as_long_as_the_metadata_is(source):
    put_references(source, "refs.parq", ENTRIES, 2)
    found = references(source)
    assert found.at("tas/1.0") is None
    source.delete(["refs.parq/.zmetadata"])
    assert found.at("tas/1.1") is None  # of the same file
    with pytest.raises(DatasetChanged, match=r"were deleted while they were read.*refs\.parq/\.zmetadata"):
        references_of_records(found.arrays, source, "refs.parq/").at("tas/1.0")


def test_missing_rows_and_empty_paths_resolve_to_none(source):
    put_references(source, "refs.parq", ENTRIES, 8)
    source.put("refs.parq/tas/refs.0.parq", record({0: ["", 0, 0], 1: ["s3://other/a", 0, 0]}, 2))
    found = references(source)
    assert found.at("tas/0.0") is None
    assert found.at("tas/0.1") == ChunkLocation("s3://other/a")  # as fsspec has it: no range is all of the object
    assert found.at("tas/3.1") is None


@pytest.mark.parametrize(
    ("row", "words"),
    [
        (["", 3, 4], "names a file or a profile"),
        (["s3://other/a", -1, 4], "has an invalid range"),
        (["s3://other/a", 1, -4], "has an invalid range"),
        (["s3://other/a", 1 << 62, 4], "has an invalid range"),
        (["quux://o/a", 1, 4], "has no URL"),
    ],
    ids=str,
)
def test_invalid_reference_row_raises_damaged_or_unsupported(source, row, words):
    put_references(source, "refs.parq", ENTRIES, 8)
    source.put("refs.parq/tas/refs.0.parq", record({0: row}, 8))
    found = references(source)
    found.records.prepare(["tas/0.0"])
    with pytest.raises((Damaged, Unsupported), match=words):
        found.at("tas/0.0")


@pytest.mark.parametrize("data", [b"", b"PAR1PAR1", b"{}"])
def test_damaged_record_file_raises_damaged_only_for_its_own_chunks(source, data):
    put_references(source, "refs.parq", ENTRIES, 2)
    source.put("refs.parq/tas/refs.0.parq", data)
    found = references(source)
    found.records.prepare(["tas/0.0", "tas/3.1"])
    with pytest.raises(Damaged, match=r"refs\.0\.parq"):
        found.at("tas/0.0")
    assert found.at("tas/3.1") == ChunkLocation("s3://other/a.nc", 30, 70)


def test_a_file_that_is_too_large_is_not_read(source, monkeypatch):
    put_references(source, "refs.parq", ENTRIES, 8)
    monkeypatch.setattr(records, "_MOST_FILE_BYTES", 10)
    with pytest.raises(Damaged, match="Penstock reads up to 256 MiB"):
        references(source).at("tas/0.0")


@pytest.mark.parametrize("size", [None, 0, -1, 1.5, "10", True, []], ids=repr)
def test_invalid_record_size_raises_damaged(source, size):
    with pytest.raises(Damaged, match="record_size"):
        Records(source, "refs.parq/", open_arrays_of(source), size)


def open_arrays_of(source):
    put_references(source, "refs.parq", ENTRIES, 8)
    return open_arrays(source, "refs.parq")


def test_data_that_is_base64_still_is_decoded_as_fsspec_does(source):
    put_references(source, "refs.parq", ENTRIES, 8)
    file = "refs.parq/tas/refs.0.parq"
    source.put(file, record({0: "base64:" + "YmFzZTY0OkFBRUM="}, 8))  # base64:AAEC
    assert references(source).at("tas/0.0") == b"\0\1\2"
    source.put(file, record({0: "base64:" + "YmFzZTY0Oj8="}, 8))  # base64:?
    with pytest.raises(Damaged, match="not Base64"):
        references(source).at("tas/0.0")
