"""Chunks in other files are found by references of kerchunk, in JSON or Parquet, and manifests of VirtualiZarr."""

from __future__ import annotations

import base64
import json
import pickle
import tracemalloc
import uuid
from contextlib import suppress
from itertools import product

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock.data.zarr.format import references as records
from penstock.data.zarr.format.codecs import decoder_of
from penstock.data.zarr.format.metadata import open_arrays
from penstock.data.zarr.format.references import (
    ChunkLocation,
    Records,
    References,
    references_of,
    references_of_manifests,
    references_of_records,
)
from penstock.errors import Damaged, DatasetChanged, NotFound, PenstockError, Unsupported
from penstock.source import open_source
from penstock.values import Span
from tests.data.zarr.format.test_documents import V2, V3, any_json
from tests.data.zarr.memory_arrays import put, same
from tests.data.zarr.referencefiles import put_references, record

URL = "s3://bucket/refs.json"


def refs(entries, **more):
    return {"version": 1, "refs": {"tas/.zarray": json.dumps(V2), "tas/.zattrs": "{}", **entries}, **more}


def found(entry, url=URL, **more):
    references = references_of(refs({"tas/0.0": entry}, **more), url)
    return references.at(references.arrays["tas"].object_key((0, 0)))


@pytest.mark.parametrize("version", [2, 3])
def test_chunks_within_another_file_are_read(version, tmp_path):
    written = put((7, 6), chunks=(3, 4), zarr_format=version)
    file, entries, size = tmp_path / "all.nc", {}, 3
    with file.open("wb") as stream:
        stream.write(b"???")
        for key, data in written.objects.items():
            stream.write(data)
            entries[f"tas/{key}"] = [f"file://{file}", size, len(data)]
            size += len(data)
    key = next(iter(entries))
    entries[key] = "base64:" + base64.b64encode(written.objects[key.removeprefix("tas/")]).decode()
    name = "zarr.json" if version == 3 else ".zarray"
    entries[f"tas/{name}"] = json.dumps(dict(written.layout.document))
    where = tmp_path / "refs.json"
    where.write_text(json.dumps({"version": 1, "refs": entries}))
    references = pickle.loads(pickle.dumps(references_of(where.read_bytes(), f"file://{where}")))
    layout, decoder = references.arrays["tas"], decoder_of(written.layout)
    whole = np.asarray(written.array[...])
    for chunk in product(*map(range, layout.grid)):
        target = references.at(layout.object_key(chunk))
        box = tuple(slice(at * n, (at + 1) * n) for at, n in zip(chunk, layout.chunks, strict=True))
        if isinstance(target, ChunkLocation):
            source, path = open_source(target.url)
            target = source.read(Span(path, target.start, target.stop))
        block = decoder.filled() if target is None else decoder.decode(target)
        same(np.ascontiguousarray(block[tuple(slice(0, n) for n in whole[box].shape)]), whole[box])


def test_a_reference_is_a_range_an_object_or_data():
    assert found(["s3://other/a.nc", 10, 20]) == ChunkLocation("s3://other/a.nc", 10, 30)
    assert found(["s3://other/a.nc"]) == ChunkLocation("s3://other/a.nc", 0, None)
    assert found("base64:AAEC") == b"\0\1\2"
    assert found("text") == b"text"


def test_an_absent_chunk_has_no_reference():
    references = references_of(refs({}), URL)
    assert references.at(references.arrays["tas"].object_key((1, 0))) is None
    with pytest.raises(NotFound, match="no array 'pr'; arrays are tas"):
        references.arrays["pr"]


def test_names_of_templates_are_filled_in_and_expressions_are_refused():
    assert found(["{{u}}/a.nc", 0, 5], templates={"u": "s3://other"}).url == "s3://other/a.nc"
    assert found(["{{ u }}/a.nc", 0, 5], templates={"u": "s3://other"}).url == "s3://other/a.nc"
    for text, templates in (("{{u}}", {}), ("{{u(i=3)}}", {"u": "s3://x"})):
        with pytest.raises(Unsupported, match=r"expression.*s3://bucket/refs\.json"):
            found([text, 0, 5], templates=templates)
    for more in ({"templates": {"u": "s3://{{c}}"}}, {"templates": {"u": 3}}, {"gen": [{"key": "x"}]}):
        with pytest.raises(Unsupported, match="write"):
            found(["s3://other/a.nc"], **more)


def test_the_flat_form_and_documents_as_objects_are_references():
    for document in (V2, json.dumps(V2), "base64:" + base64.b64encode(json.dumps(V2).encode()).decode()):
        references = references_of({"tas/.zarray": document, "tas/0.0": ["s3://other/a.nc", 1, 2]}, URL)
        assert references.at(references.arrays["tas"].object_key((0, 0))) == ChunkLocation("s3://other/a.nc", 1, 3)
    consolidated = {".zmetadata": json.dumps({"metadata": {"tas/.zarray": V2}}), "tas/0.0": ["s3://other/a.nc"]}
    references = references_of(consolidated, URL)
    assert references.at(references.arrays["tas"].object_key((0, 0))) == ChunkLocation("s3://other/a.nc")


@pytest.mark.parametrize(
    "entry",
    [
        *(None, [], {}, 3, True, [3], ["s3://o/a", 1], ["s3://o/a", 1, 2, 3], [None, 1, 2]),
        *(["s3://o/a", *span] for span in ([-1, 5], [0, -5], [1.5, 2], ["0", 1], [True, 1], [1 << 70, 1], [0, None])),
        *("base64:?", "base64:AAA"),
        *(["s3://"], ["s3://:@/\0"], ["s3://o/\0", 1, 2]),
    ],
    ids=str,
)
def test_invalid_reference_entry_raises_damaged(entry):
    with pytest.raises(Damaged, match=r"reference 'tas/0\.0'.*s3://bucket/refs\.json"):
        found(entry)


@pytest.mark.parametrize(
    "url",
    [
        "/etc/passwd",
        "file:///etc/passwd",
        "etc/passwd",
        "../../etc/passwd",
        "file:/etc/passwd",
        "file://localhost/etc/passwd",
        "FILE:///etc/passwd",
        "fsspec+file:///etc/passwd",
        "penstock://mine/x",
        "msc://mine/x",
    ],
)
def test_a_document_of_a_store_names_no_file_of_this_machine(url):
    with pytest.raises(Unsupported, match="names a file or profile"):
        found([url, 0, 10])
    with pytest.raises(Unsupported, match="names a file or profile"):
        found(["{{u}}", 0, 10], templates={"u": url})


def test_local_reference_document_may_name_any_url():
    for url in ("/data/a.nc", "file:///data/a.nc", "data/a.nc", "s3://other/a.nc"):
        for where in ("/data/refs.json", "file:///data/refs.json", ""):
            assert found([url, 0, 10], url=where) == ChunkLocation(url, 0, 10)


def test_file_urls_with_one_slash_or_this_host_are_paths():
    for url in ("file:/data/a.nc", "file://localhost/data/a.nc"):
        assert found([url, 0, 10], url="/data/refs.json") == ChunkLocation("file:///data/a.nc", 0, 10)
    for url in ("file:data/a.nc", "file://elsewhere/data/a.nc"):
        with pytest.raises(Damaged, match="has no URL"):
            found([url, 0, 10], url="/data/refs.json")


@pytest.mark.parametrize(
    "data", [b"", b"[]", b"{", b'{"refs": []}', b'{"refs": {}, "templates": []}', b'{"a/.zarray": 3}']
)
def test_invalid_reference_document_raises_damaged(data):
    with pytest.raises(Damaged, match=r"s3://bucket/refs\.json"):
        references_of(data, URL)


@pytest.mark.parametrize("name", ["../x", "x/..", "x//y"])
def test_a_name_that_leads_elsewhere_is_refused(name):
    with pytest.raises(Damaged, match="not the path"):
        references_of({f"{name}/.zarray": V2}, URL)
    with pytest.raises(Damaged, match="not the path"):
        references_of_manifests({name: (V3, {})})


def test_manifests_of_virtualizarr_are_references():
    entry = {"path": "s3://other/a.nc", "offset": 100, "length": 50}
    references = references_of_manifests({"tas": (V3, {"0.0": entry, "3.0": {**entry, "offset": 150}})})
    layout = references.arrays["tas"]
    assert references.at(layout.object_key((0, 0))) == ChunkLocation("s3://other/a.nc", 100, 150)
    assert references.at(layout.object_key((3, 0))) == ChunkLocation("s3://other/a.nc", 150, 200)
    assert references.at(layout.object_key((1, 0))) is None
    scalar = {**V3, "shape": [], "chunk_grid": {"name": "regular", "configuration": {"chunk_shape": []}}}
    for place in ("", "0"):
        references = references_of_manifests({"": (scalar, {place: entry})})
        assert references.at(references.arrays[""].object_key(())) == ChunkLocation("s3://other/a.nc", 100, 150)


@pytest.mark.parametrize(
    "manifest", [{"0": {}}, {"a.b": {}}, {"-1.0": {}}, {"0.0": 3}, {"0.0.0": {}}, {"9" * 30 + ".0": {}}]
)
def test_a_manifest_of_other_chunks_is_damage(manifest):
    with pytest.raises(Damaged, match="not a chunk"):
        references_of_manifests({"tas": (V3, manifest)})


def test_a_manifest_is_checked_as_references_are():
    for entry in ({}, {"path": "s3://o/a", "offset": -1, "length": 2}, {"path": 3, "offset": 0, "length": 1}):
        references = references_of_manifests({"tas": (V3, {"0.0": entry})})
        with pytest.raises(Damaged):
            references.at(references.arrays["tas"].object_key((0, 0)))


ANY = any_json(st.text(max_size=9) | st.sampled_from(["s3://b/k", "/x", "base64:AA=="]), st.text(max_size=3), 5)


@given(ANY)
def test_any_entry_is_a_reference_or_an_error_of_ours(entry):
    with suppress(PenstockError):
        assert isinstance(found(entry), ChunkLocation | bytes | None)


@given(st.dictionaries(st.sampled_from(["refs", "templates", "gen", "version", "a/.zarray", ".zmetadata"]), ANY))
def test_any_document_is_references_or_an_error_of_ours(document):
    with suppress(PenstockError):
        assert isinstance(references_of(document, URL), References)


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
    monkeypatch.setattr(records, "_MOST_HELD_BYTES", 3000)  # of about 1300 each
    found = references(source)
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
        counted = found.records.files.held_bytes
        tracemalloc.start()
        for number in numbers:
            found.at(f"tas/{number}")
        held, _ = tracemalloc.get_traced_memory()
        tracemalloc.stop()
        assert found.records.files.held_bytes - counted > held / 2


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
        (["", 3, 4], "names a file or profile"),
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
