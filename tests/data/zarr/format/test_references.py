"""Chunks in other files are found by references of kerchunk and manifests of VirtualiZarr, which are checked."""

from __future__ import annotations

import base64
import json
import pickle
from contextlib import suppress
from itertools import product

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock.data.zarr.format.codecs import decoder_of
from penstock.data.zarr.format.references import ChunkLocation, References, references_of, references_of_manifests
from penstock.errors import Damaged, NotFound, PenstockError, Unsupported
from penstock.source import open_source
from penstock.values import Span
from tests.data.zarr.format.test_documents import V2, V3
from tests.data.zarr.memory_arrays import put, same

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
    with pytest.raises(NotFound, match="no array 'pr'; there are tas"):
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
    with pytest.raises(Unsupported, match="names a file or a profile"):
        found([url, 0, 10])
    with pytest.raises(Unsupported, match="names a file or a profile"):
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
    references = references_of_manifests({"tas": (V3, {"0.0": entry, "3.0": {**entry, "offset": 150}})}, URL)
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
        references_of_manifests({"tas": (V3, manifest)}, URL)


def test_a_manifest_is_checked_as_references_are():
    for entry in ({}, {"path": "s3://o/a", "offset": -1, "length": 2}, {"path": 3, "offset": 0, "length": 1}):
        references = references_of_manifests({"tas": (V3, {"0.0": entry})}, URL)
        with pytest.raises(Damaged):
            references.at(references.arrays["tas"].object_key((0, 0)))


ANY = st.recursive(
    st.none()
    | st.booleans()
    | st.integers()
    | st.text(max_size=9)
    | st.sampled_from(["s3://b/k", "/x", "base64:AA=="]),
    lambda inside: st.lists(inside, max_size=4) | st.dictionaries(st.text(max_size=3), inside, max_size=2),
    max_leaves=5,
)


@given(ANY)
def test_any_entry_is_a_reference_or_an_error_of_ours(entry):
    with suppress(PenstockError):
        assert isinstance(found(entry), ChunkLocation | bytes | None)


@given(st.dictionaries(st.sampled_from(["refs", "templates", "gen", "version", "a/.zarray", ".zmetadata"]), ANY))
def test_any_document_is_references_or_an_error_of_ours(document):
    with suppress(PenstockError):
        assert isinstance(references_of(document, URL), References)
