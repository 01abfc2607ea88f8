"""Arrays, groups and images that zarr and xarray wrote are opened with few requests; damage is named."""

from __future__ import annotations

import json
import pickle
import re
import tracemalloc
import uuid
import warnings
from unittest.mock import Mock

import numpy as np
import pytest
import xarray as xr
import zarr
from hypothesis import given
from hypothesis import strategies as st
from zarr.storage import MemoryStore

from penstock.data.zarr.format.metadata import Arrays, image_of, open_arrays
from penstock.errors import Damaged, Forbidden, NotFound, Unsupported
from penstock.source import open_source
from penstock.testing.faults import FAULTS, Match
from penstock.values import Span
from tests.data.zarr.format.test_documents import V2, V3, any_json


def bucket(objects):
    """Return a source and a key of a bucket in memory that holds ``objects`` below a folder."""
    source, key = open_source(f"memory://zarr-{uuid.uuid4().hex}/a/b")
    for name, value in objects.items():
        data = value if isinstance(value, bytes) else json.dumps(value).encode()
        source.put(f"{key}/{name}", data)
    return source, key


def written(version, *, consolidated):
    """Return the objects of a group that has two arrays and a group with two more, one of which is no tensor."""
    store = MemoryStore()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        root = zarr.open_group(store, mode="w", zarr_format=version)
        for name in ("tas", "time"):
            root.create_array(name, shape=(4, 3), chunks=(2, 3), dtype="f4", attributes={"units": "K"})[:] = 1
        below = root.create_group("more/below")
        below.create_array("x", shape=(2,), chunks=(2,), dtype="i2")[:] = 2
        below.create_array("label", shape=(2,), chunks=(2,), dtype=str)
        if consolidated:
            zarr.consolidate_metadata(store)
    return {key: value.to_bytes() for key, value in store._store_dict.items()}


@pytest.mark.parametrize("version", [2, 3])
@pytest.mark.parametrize("consolidated", [True, False], ids=["consolidated", "one by one"])
def test_all_arrays_of_a_group_are_opened(version, consolidated):
    source, key = bucket(written(version, consolidated=consolidated))
    arrays = open_arrays(source, key)
    assert sorted(arrays) == ["more/below/x", "tas", "time"]
    assert (arrays["tas"].key, arrays["tas"].name, arrays["tas"].attributes) == (f"{key}/tas/", "tas", {"units": "K"})
    assert (arrays["more/below/x"].key, arrays["more/below/x"].dtype) == (f"{key}/more/below/x/", np.dtype("i2"))
    with pytest.raises(Unsupported, match="variable length"):
        arrays["more/below/label"]
    with pytest.raises(NotFound, match=r"no array 'pr'; arrays are more/below/label, more/below/x, tas, time"):
        arrays["pr"]
    again = pickle.loads(pickle.dumps(arrays))
    assert (again, again.url, sorted(again.refused)) == (arrays, arrays.url, ["more/below/label"])
    assert isinstance(again, Arrays)


@pytest.mark.parametrize("version", [2, 3])
@pytest.mark.parametrize("slash", ["", "/"])
def test_an_array_is_opened_by_its_own_url(version, slash):
    source, key = bucket(written(version, consolidated=True))
    arrays = open_arrays(source, f"{key}/tas{slash}")
    assert list(arrays) == [""]
    assert (arrays[""].key, arrays[""].shape, arrays[""].attributes) == (f"{key}/tas/", (4, 3), {"units": "K"})
    assert source.read(Span(arrays[""].object_key((1, 0))))


def test_a_whole_bucket_may_be_an_array():
    source, _ = bucket({})
    source.put("zarr.json", json.dumps(V3).encode())
    assert open_arrays(source, "")[""].object_key((1, 0)) == "c/1/0"


@pytest.mark.parametrize("version", [2, 3])
def test_a_group_is_as_many_requests_as_promised(version, monkeypatch):
    asked = []
    for consolidated, wanted in ((True, [5]), (False, [5, 12, 4, 8])):
        source, key = bucket(written(version, consolidated=consolidated))
        lookahead = type(source).lookahead

        def counted(self, spans, workers=1, lookahead=lookahead):
            spans = list(spans)
            asked.append(len(spans))
            return lookahead(self, iter(spans), workers)

        with monkeypatch.context() as patch:
            patch.setattr(type(source), "lookahead", counted)
            open_arrays(source, key)
        assert asked == wanted
        asked.clear()


def test_a_dataset_of_xarray_is_opened():
    values = np.arange(12.0).reshape(4, 3)
    dataset = xr.Dataset({"tas": (("time", "x"), values, {"units": "K"})}, coords={"x": [1, 2, 3]})
    for version in (2, 3):
        store = MemoryStore()
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            dataset.to_zarr(store, zarr_format=version, consolidated=True)
        source, key = bucket({name: value.to_bytes() for name, value in store._store_dict.items()})
        arrays = open_arrays(source, key)
        assert arrays["tas"].dims == ("time", "x")
        assert arrays["x"].dims == ("x",)


@pytest.mark.parametrize("key", ["nothing", "a/b/zarr.json", "a/b/tas/c"])
def test_not_found_error_names_the_metadata_files_searched(key):
    source, _ = bucket(written(3, consolidated=True))
    with pytest.raises(NotFound, match=rf"zarr\.json, \.zarray, \.zgroup or \.zmetadata.*/{key}/"):
        open_arrays(source, key)


GROUP = {"zarr_format": 3, "node_type": "group"}


@pytest.mark.parametrize("document", [b"", b"{", b"[]", b"3", b"\xff\xfe{}", b"[" * 100_000, b"1" * 5000, b"null"])
@pytest.mark.parametrize("file", ["zarr.json", ".zarray", ".zmetadata"])
def test_metadata_document_with_invalid_json_raises_damaged(document, file):
    source, key = bucket({file: document})
    with pytest.raises(Damaged, match=f"Zarr metadata is damaged.*a/b/{re.escape(file)}"):
        open_arrays(source, key)[""]


@pytest.mark.parametrize("name", ["../x", "..", "x/../../y", "/x", "x//y", ".", "x/./y", "x\n", "...", "x\\y", "x\0"])
def test_a_name_that_leads_out_of_its_group_is_refused(name):
    for objects in (
        {"zarr.json": GROUP | {"consolidated_metadata": {"kind": "inline", "metadata": {name: V3}}}},
        {".zmetadata": {"metadata": {f"{name}/.zarray": V2}}, ".zgroup": {"zarr_format": 2}},
    ):
        source, key = bucket(objects)
        with pytest.raises(Damaged, match="is not the path"):
            open_arrays(source, key)


@pytest.mark.parametrize(
    "objects",
    [
        {".zmetadata": {"metadata": []}},
        {".zmetadata": {}},
        {"zarr.json": GROUP | {"consolidated_metadata": {"kind": "inline", "metadata": 3}}},
        {"zarr.json": {"zarr_format": 3}},
        {"zarr.json": {"zarr_format": 3, "node_type": "tree"}},
    ],
)
def test_a_damaged_group_is_refused(objects):
    source, key = bucket(objects)
    with pytest.raises(Damaged, match=r"Zarr metadata is damaged.*memory://"):
        open_arrays(source, key)


def test_an_array_that_is_damaged_does_not_keep_others_of_its_group():
    for objects in (
        {"zarr.json": GROUP | {"consolidated_metadata": {"metadata": {"bad": {**V3, "shape": -1}, "good": V3}}}},
        {"zarr.json": GROUP, "bad/zarr.json": {**V3, "shape": -1}, "good/zarr.json": V3},
        {".zgroup": {}, "bad/.zarray": {**V2, "shape": -1}, "good/.zarray": V2},
    ):
        arrays = open_arrays(*bucket(objects))
        assert list(arrays) == ["good"]
        with pytest.raises(Damaged, match="shape"):
            arrays["bad"]


def test_groups_that_never_end_are_refused():
    objects = {f"{'g/' * depth}zarr.json": GROUP for depth in range(20)}
    with pytest.raises(Unsupported, match="nested deeper than 16"):
        open_arrays(*bucket(objects))


@pytest.mark.parametrize("error", [Unsupported("no listing here"), Forbidden("you may not")])
def test_group_without_listing_is_refused_with_advice(error, monkeypatch):
    source, key = bucket(written(3, consolidated=False))

    monkeypatch.setattr(type(source), "pages", Mock(side_effect=error))
    with pytest.raises(Unsupported, match=r"each by its URL.*memory://"):
        open_arrays(source, key)


def test_server_errors_do_not_count_as_missing_metadata(s3_faults):
    s3_faults.make(name := f"test-{uuid.uuid4().hex}")
    for key, data in written(3, consolidated=True).items():
        s3_faults.put(name, f"a/{key}", data)
    source, key = open_source(f"s3://{name}/a", s3_faults.store)
    assert sorted(open_arrays(source, key)) == ["more/below/x", "tas", "time"]
    for missing in ("s3://not-there/a", f"s3://{name}/b"):
        with pytest.raises(NotFound, match=missing):
            open_arrays(*open_source(missing, s3_faults.store))
    s3_faults.fail(FAULTS["denied"], when=Match(key="a/.zmetadata", times=None))
    with pytest.raises(Forbidden):
        open_arrays(source, key)
    assert sorted(open_arrays(source, key, forbidden_is_missing=True)) == ["more/below/x", "tas", "time"]
    s3_faults.heal()
    s3_faults.fail(FAULTS["500"], when=Match(key="a/zarr.json"))
    assert sorted(open_arrays(source, key)) == ["more/below/x", "tas", "time"]


AXES = ("c", "y", "x")


def image(version, *, consolidated=False):
    """Return the objects of an OME-Zarr image of two levels, with labels, below the group ``cells``."""
    store, named = MemoryStore(), [{"name": axis} for axis in AXES]
    described = [{"axes": named, "datasets": [{"path": "0"}, {"path": "1"}]}]
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        root = zarr.open_group(store, mode="w", zarr_format=version)
        for name, factor in (("cells", 1), ("cells/labels/nuclei", 1), ("cells/other", 2)):
            group = root.create_group(name)
            if name != "cells/other":
                group.attrs.update({"multiscales": described} if version == 2 else {"ome": {"multiscales": described}})
            for level, size in (("0", 8), ("1", 4)):
                group.create_array(level, shape=(2, size, size * factor), chunks=(1, 4, 4), dtype="u1")[:] = 1
        if consolidated:
            zarr.consolidate_metadata(store)
    return {key: value.to_bytes() for key, value in store._store_dict.items()}


@pytest.mark.parametrize("version", [2, 3])
@pytest.mark.parametrize("consolidated", [True, False], ids=["consolidated", "one by one"])
def test_an_image_of_ome_zarr_names_the_dimensions_of_its_levels(version, consolidated):
    source, key = bucket(image(version, consolidated=consolidated))
    arrays = open_arrays(source, key)
    named = {name for name in arrays if arrays[name].dims == AXES}
    assert named == {"cells/0", "cells/1", "cells/labels/nuclei/0", "cells/labels/nuclei/1"}
    assert arrays["cells/other/0"].dims == (None, None, None)
    assert arrays.images.get("") is None, "the group of an image is no image"
    assert pickle.loads(pickle.dumps(open_arrays(source, f"{key}/cells"))).images[""] == "0"
    assert open_arrays(source, f"{key}/cells")["1"].dims == AXES


@pytest.mark.parametrize("version", [2, 3])
def test_a_level_that_is_opened_by_itself_has_the_names_of_its_image(version):
    source, key = bucket(image(version))
    assert open_arrays(source, f"{key}/cells/1")[""].dims == AXES
    assert open_arrays(source, f"{key}/cells/labels/nuclei/0")[""].dims == AXES
    assert open_arrays(source, f"{key}/cells/other/1")[""].dims == (None, None, None)


@pytest.mark.parametrize("above", [b"{", b"[]", b'{"multiscales": 5}', b'{"multiscales": [{"axes": ["x"]}]}'])
def test_damaged_parent_metadata_does_not_prevent_reading_an_array(above):
    source, key = bucket({"0/.zarray": V2, ".zattrs": above})
    assert {*open_arrays(source, f"{key}/0")[""].dims} == {None}


def test_names_that_an_array_has_are_its_own():
    described = {"multiscales": [{"axes": ["p", "q"], "datasets": [{"path": "0"}]}]}
    source, key = bucket({"0/.zarray": V2, "0/.zattrs": {"_ARRAY_DIMENSIONS": ["y", "x"]}, ".zattrs": described})
    assert open_arrays(source, f"{key}/0")[""].dims == ("y", "x")


@pytest.mark.parametrize("version", [2, 3])
def test_an_image_in_a_store_that_cannot_be_listed_has_its_levels(version, monkeypatch):
    source, key = bucket(image(version))

    monkeypatch.setattr(type(source), "pages", Mock(side_effect=NotFound("no page of this folder")))
    arrays = open_arrays(source, f"{key}/cells")
    assert (sorted(arrays), arrays.images.get(""), arrays["0"].dims) == (["0", "1"], "0", AXES)
    with pytest.raises(Unsupported, match="listing it failed"):
        open_arrays(source, key)


def test_pyramid_with_group_levels_does_not_count_as_an_image():
    levels = {"multiscales": [{"datasets": [{"path": "0"}, {"path": "1"}], "type": "reduce"}]}
    group = {"zarr_format": 2}
    source, key = bucket(
        {".zgroup": group, ".zattrs": levels, "0/.zgroup": group, "0/tas/.zarray": V2, "1/.zgroup": group}
    )
    arrays = open_arrays(source, key)
    assert (sorted(arrays), arrays.images.get("")) == (["0/tas"], None)


def test_image_keeps_an_unreadable_level_as_its_main_array():
    described = {"multiscales": [{"axes": ["y", "x"], "datasets": [{"path": "0"}, {"path": "1"}]}]}
    damaged = {**V2, "shape": "large"}
    source, key = bucket({".zgroup": {"zarr_format": 2}, ".zattrs": described, "0/.zarray": damaged, "1/.zarray": V2})
    assert open_arrays(source, key).images[""] == "0"


@pytest.mark.parametrize("name", [".zattrs", "zarr.json"])
def test_document_that_would_take_very_much_memory_is_refused_before_it_is_parsed(name):
    hostile = b'{"attributes":[' + b"[]," * (8 << 20) + b"0]}"
    source, key = bucket({".zarray": V2, name: hostile})
    tracemalloc.start()
    try:
        with pytest.raises(Unsupported, match=r"would take about 1,\d{3},\d{3},\d{3} bytes of memory"):
            open_arrays(source, key)
        assert tracemalloc.get_traced_memory()[1] < 256 << 20
    finally:
        tracemalloc.stop()
    source, key = bucket({".zarray": V2, ".zattrs": {"history": "x" * (100 << 20)}})
    assert len(open_arrays(source, key)[""].attributes["history"]) == 100 << 20


@pytest.mark.parametrize("kind", [["array"], {}, None, 1, True])
def test_node_type_of_any_type_is_damaged(kind):
    source, key = bucket({"zarr.json": V3 | {"node_type": kind}})
    with pytest.raises(Damaged, match="node_type"):
        open_arrays(source, key)


LEVELS = [{"path": "0"}, {"path": "1"}]


@pytest.mark.parametrize(
    ("attributes", "axes"),
    [
        ({"multiscales": [{"version": "0.1", "datasets": LEVELS}]}, "tczyx"),
        ({"multiscales": [{"datasets": LEVELS}]}, "tczyx"),
        ({"multiscales": [{"version": "0.3", "axes": ["c", "y", "x"], "datasets": LEVELS}]}, "cyx"),
        ({"multiscales": [{"axes": [{"name": "y", "type": "space"}, {"name": "x"}], "datasets": LEVELS}]}, "yx"),
        ({"ome": {"version": "0.5", "multiscales": [{"axes": [{"name": "x"}], "datasets": LEVELS}]}}, "x"),
    ],
    ids=["0.1", "no version", "0.3", "0.4", "0.5"],
)
def test_each_version_of_the_format_is_read(attributes, axes):
    assert image_of(attributes) == (tuple(axes), ("0", "1"))


def test_first_of_several_images_is_used():
    several = [{"axes": [name], "datasets": [{"path": name}]} for name in ("a", "b")]
    assert image_of({"multiscales": several}) == (("a",), ("a",))


@pytest.mark.parametrize(
    "image",
    [
        {"version": "0.4", "datasets": LEVELS},
        {"axes": ["x", "x"], "datasets": LEVELS},
        {"axes": ["x", 5], "datasets": LEVELS},
        {"axes": ["x", ""], "datasets": LEVELS},
        {"axes": ["x"], "datasets": []},
        {"axes": ["x"], "datasets": [{"path": "0"}, {"path": "/"}]},
        {"axes": ["x"], "datasets": [{"path": "0"}, "1"]},
        {"axes": ["x"], "datasets": [{"path": "../0"}]},
        {"axes": ["x"]},
    ],
)
def test_multiscales_metadata_violating_the_specification_is_ignored(image):
    assert image_of({"multiscales": [image]}) is None


def test_only_the_oldest_images_go_without_axes():
    assert image_of({"ome": {"version": "0.5", "multiscales": [{"datasets": LEVELS}]}}) is None


NAMES = st.sampled_from(["multiscales", "ome", "axes", "datasets", "path", "name", "version"])
JSON = any_json(st.text(max_size=3), NAMES, 12)


@given(st.dictionaries(st.sampled_from(["multiscales", "ome"]), JSON))
def test_no_attributes_are_an_error(attributes):
    image = image_of(attributes)
    assert image is None or (all(image.axes) and all(image.paths))
