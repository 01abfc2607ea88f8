"""URLs, groups and mappings become arrays by name; what is none is refused with what there is."""

import json
from pathlib import Path

import numpy as np
import pytest
import xarray as xr
import zarr
from zarr.storage import MemoryStore

import penstock as ps
from penstock.errors import InvalidURL, NotFound, PenstockError, Unsupported, Unusable
from penstock.interop.zarr import Store
from penstock.testing.faults import FaultServer
from tests.data.zarr.stores import arrays_at, numbered, write


@pytest.fixture
def group(tmp_path):
    url = tmp_path / "g.zarr"
    root = zarr.create_group(str(url))
    for name, dims in {"t2m": ("time", "lat"), "u10": ("time", "lat"), "time": ("time",), "lat": ("lat",)}.items():
        shape = tuple({"time": 4, "lat": 3}[each] for each in dims)
        attributes = {"coordinates": "area"} if name == "t2m" else {}
        root.create_array(name, shape=shape, dtype="f4", chunks=shape, dimension_names=dims, attributes=attributes)
    root.create_array("area", shape=(3,), dtype="f4", chunks=(3,), dimension_names=("lat",))
    return str(url)


def test_a_group_is_its_arrays_without_coordinates(group):
    assert {*arrays_at(group)} == {"t2m", "u10"}


def test_coordinates_that_the_group_names_are_left_out_of_samples(group):
    root = zarr.open_group(group, mode="r+")
    root.attrs["coordinates"] = "step u10"
    assert {*arrays_at(group)} == {"t2m"}
    assert {*arrays_at(root)} == {"t2m"}
    with pytest.warns(UserWarning, match="Consolidated"):
        zarr.consolidate_metadata(group)
    assert {*arrays_at(group)} == {"t2m"}
    assert [*arrays_at(f"{group}/u10")] == [""]


@pytest.mark.parametrize("kind", ["csr_matrix", "csc_matrix"])
def test_sparse_matrix_of_anndata_is_refused_although_its_arrays_have_one_length(tmp_path, kind):
    root = zarr.create_group(str(tmp_path / "cells.zarr"))
    matrix = root.create_group("X", attributes={"encoding-type": kind, "shape": [4, 9]})
    for name in ("data", "indices", "indptr"):
        matrix.create_array(name, data=np.arange(5))
    for given in (f"{tmp_path}/cells.zarr/X", {"X": f"{tmp_path}/cells.zarr/X"}, f"{tmp_path}/cells.zarr", matrix):
        with pytest.raises(Unsupported, match=rf"sparse matrix of AnnData \({kind}\).*store it dense"):
            arrays_at(given)
    assert [*arrays_at(f"{tmp_path}/cells.zarr/X/data")] == [""]


def test_stores_and_sessions_are_refused_with_the_call_that_opens_them():
    class Session:
        store = MemoryStore()

    for given, kind in ((MemoryStore(), "MemoryStore"), (Session(), "Session")):
        with pytest.raises(Unusable, match=rf"open this {kind} by zarr\.open_group\(…, mode=\"r\"\)"):
            arrays_at(given)


def test_a_mapping_names_arrays(group):
    found = arrays_at({"x": f"{group}/t2m", "time": f"{group}/time"})
    assert {name: array.layout.shape for name, array in found.items()} == {"x": (4, 3), "time": (4,)}


def test_an_array_has_no_name(group):
    assert [*arrays_at(f"{group}/t2m")] == [""]


@pytest.mark.parametrize(
    ("given", "error", "words"),
    [
        (5, Unusable, "samples must be the URL of a Zarr array or group, or a mapping .* got an int"),
        ({}, Unusable, "samples must not be an empty mapping"),
        ("nowhere://a/b", PenstockError, "nowhere"),
        ("s3://", InvalidURL, "s3"),
        ("/nowhere/at/all", NotFound, "no Zarr array or group"),
    ],
)
def test_invalid_or_missing_array_locations_are_refused(given, error, words):
    with pytest.raises(error, match=words):
        arrays_at(given)


def test_group_in_place_of_one_array_is_refused(group):
    with pytest.raises(Unusable, match=r"samples\['x'\] is a group, but a name stands for one array: .*t2m"):
        arrays_at({"x": group})


def test_a_group_without_arrays_is_refused(tmp_path):
    zarr.create_group(str(tmp_path / "e.zarr"))
    with pytest.raises(NotFound, match="group without arrays"):
        arrays_at(str(tmp_path / "e.zarr"))


def test_a_group_of_coordinates_is_refused(tmp_path):
    write(tmp_path / "c.zarr" / "time", numbered((3,)), ("time",), chunks=(3,))
    (tmp_path / "c.zarr" / "zarr.json").write_text(json.dumps({"zarr_format": 3, "node_type": "group"}))
    with pytest.raises(Unusable, match="coordinates only"):
        arrays_at(str(tmp_path / "c.zarr"))


def test_array_of_texts_is_refused_with_advice_to_name_arrays(tmp_path):
    root = zarr.create_group(str(tmp_path / "s.zarr"))
    root.create_array("x", data=np.zeros((3, 2), "f4"))
    path = tmp_path / "s.zarr" / "x" / "zarr.json"
    (tmp_path / "s.zarr" / "station").mkdir()
    text = json.loads(path.read_text()) | {"data_type": "string", "fill_value": ""}
    (tmp_path / "s.zarr" / "station" / "zarr.json").write_text(json.dumps(text))
    with pytest.raises(PenstockError, match="variable length") as failure:
        arrays_at(str(tmp_path / "s.zarr"))
    assert "name the arrays" in "".join(failure.value.__notes__)


def test_open_objects_of_zarr_and_xarray_are_read_by_the_url_of_their_store(group):
    wanted = {name: array.layout for name, array in arrays_at(group).items()}
    for given in (zarr.open_group(group), xr.open_zarr(group, chunks=None, decode_times=False, consolidated=False)):
        found = arrays_at(given)
        assert {name: (each.layout.key, each.layout.shape) for name, each in found.items()} == {
            name: (each.key, each.shape) for name, each in wanted.items()
        }
    single = arrays_at(zarr.open_array(f"{group}/t2m"))
    assert [(name, each.layout.key) for name, each in single.items()] == [("", wanted["t2m"].key)]


def test_an_object_in_a_store_without_a_url_is_read_through_that_store():
    array = zarr.create_array(zarr.storage.MemoryStore(), shape=(4,), chunks=(2,), dtype="f4")
    found = arrays_at(array)[""]
    assert found.url == "MemoryStore:"
    assert not found.source.root.startswith("s3")


@pytest.mark.parametrize("form", ["URL", "group"])
def test_an_image_of_ome_zarr_is_its_level_of_the_most_pixels(tmp_path, form):
    url = str(tmp_path / "image.zarr")
    root = zarr.create_group(url, zarr_format=2)
    root.attrs["multiscales"] = [{"axes": ["c", "y"], "datasets": [{"path": "full"}, {"path": "half"}]}]
    for name, size in (("full", 8), ("half", 4), ("thumbnail", 3)):
        root.create_array(name, shape=(2, size), chunks=(1, 4), dtype="u1")[:] = 1
    found = arrays_at(url if form == "URL" else root)
    assert [(name, array.layout.shape, array.layout.dims) for name, array in found.items()] == [
        ("", (2, 8), ("c", "y"))
    ]
    coarse = arrays_at(f"{url}/half")
    assert coarse[""].layout.dims == ("c", "y")


@pytest.fixture(params=[2, 3])
def images(request, tmp_path):
    """Return the URL of a group that has an image of OME-Zarr, of two levels."""
    url, version = str(tmp_path / "images.zarr"), request.param
    found = zarr.create_group(url, zarr_format=version).create_group("cells")
    described = {"multiscales": [{"axes": [{"name": "c"}, {"name": "y"}], "datasets": [{"path": "0"}, {"path": "1"}]}]}
    found.attrs.update(described if version == 2 else {"ome": described})
    for name, size in (("0", 8), ("1", 4)):
        found.create_array(name, shape=(2, size), chunks=(1, 4), dtype="u1")[:] = 1
    return url


@pytest.mark.parametrize("path", ["", "cells", "cells/1"])
def test_image_opened_by_zarr_has_the_same_arrays_as_its_url(images, path):
    url = f"{images}/{path}".rstrip("/")
    by_url = arrays_at(url)
    assert {array.layout.dims for array in by_url.values()} == {("c", "y")}
    for given in (zarr.open(url, mode="r"), zarr.open(Store(url, read_only=True), mode="r")):
        found = arrays_at(given)
        assert {name: array.layout.dims for name, array in found.items()} == dict.fromkeys(by_url, ("c", "y"))


@pytest.mark.parametrize("path", ["", "/cells", "/cells/1"])
def test_references_to_an_image_have_the_same_arrays_as_its_url(images, path, tmp_path):
    files = {str(each.relative_to(images)): each for each in Path(images).rglob("*") if each.is_file()}
    refs = {
        name: each.read_text() if each.name.startswith(".z") or each.suffix == ".json" else [str(each)]
        for name, each in files.items()
    }
    document = tmp_path / "refs.json"
    document.write_text(json.dumps({"version": 1, "refs": refs}))
    by_url = arrays_at(f"{images}{path}")
    found = arrays_at(f"{document}{path}")
    assert {name: (each.layout.shape, each.layout.dims) for name, each in found.items()} == {
        name: (each.layout.shape, ("c", "y")) for name, each in by_url.items()
    }


def test_unreadable_parent_metadata_does_not_prevent_opening_an_array(tmp_path):
    write(tmp_path / "0", numbered((4, 3)), chunks=(2, 3))
    (tmp_path / ".zattrs").symlink_to(".zattrs")
    assert arrays_at(f"{tmp_path}/0")[""].layout.shape == (4, 3)


def _fields(folder):
    values = np.arange(12, dtype="f4").reshape(4, 3)
    variables = {name: (("time", "lat"), values + at) for at, name in enumerate(("t2m", "u10"))}
    coordinates = {"time": np.arange(4), "lat": np.arange(3.0), "height": 2.0}
    xr.Dataset(variables, coordinates).to_zarr(folder, consolidated=False)
    return xr.open_zarr(folder, chunks=None, consolidated=False)


def _looked_at(dataset):
    return dataset.t2m.values


def _assigned(dataset):
    dataset["t2m"] = dataset.t2m * 2


def _filled(dataset):
    dataset.t2m.values = np.zeros((4, 3), "f4")


@pytest.mark.parametrize("act", [_looked_at, _assigned, _filled])
def test_loaded_variable_of_open_dataset_is_refused_and_not_left_out(tmp_path, act):
    dataset = _fields(tmp_path / "d.zarr")
    act(dataset)
    with pytest.raises(Unusable, match=r"before \.values, \.load\(\), an assignment"):
        ps.ZarrDataset(dataset, dims="time")
    assert {*arrays_at(dataset.drop_vars("t2m"))} == {"u10"}


def test_loaded_coordinates_of_open_dataset_are_excluded_from_samples(tmp_path):
    dataset = _fields(tmp_path / "d.zarr")
    assert dataset.time.values.tolist() == [0, 1, 2, 3]
    assert dataset.height.values == 2
    assert {*arrays_at(dataset)} == {"t2m", "u10"}


def test_renamed_dimensions_of_open_dataset_are_those_of_its_samples(tmp_path):
    dataset = _fields(tmp_path / "d.zarr").drop_vars(["time", "lat"])
    dataset = dataset.rename_dims(time="x").rename_dims(lat="time").rename_dims(x="lat")
    found = arrays_at(dataset)
    assert {array.layout.dims for array in found.values()} == {("lat", "time")}


def test_unreadable_array_of_open_group_is_refused_as_by_url(group):
    root = zarr.open_group(group, mode="r+")
    root.create_array("station", shape=(4,), dtype="string", chunks=(4,))
    for given in (group, zarr.open_group(group, mode="r")):
        with pytest.raises(Unsupported, match="variable length") as failure:
            arrays_at(given)
        assert "name the arrays" in "".join(failure.value.__notes__)


@pytest.fixture
def endpoints(monkeypatch):
    """Run two servers with an array of one name: that of the environment has zeros, the other ones."""
    for name in ("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY"):
        monkeypatch.setenv(name, "of-the-environment")
    with FaultServer.within() as environment, FaultServer.within() as other:
        monkeypatch.setenv("AWS_ENDPOINT_URL", environment.store.endpoint)
        for server, value in ((environment, 0.0), (other, 1.0)):
            server.make("bucket")
            write(
                Store("s3://bucket/a.zarr/x", store=server.store),
                np.full((4, 3), value, "f4"),
                ("t", "y"),
                chunks=(2, 3),
            )
        yield environment, other


def test_open_array_is_read_with_the_options_of_its_store(endpoints):
    _, other = endpoints
    store = Store("s3://bucket/a.zarr/x", store=other.store, read_only=True)
    for given in (zarr.open_array(store, mode="r"), {"x": zarr.open_array(store, mode="r")}):
        dataset = ps.ZarrDataset(given, output="numpy")
        samples = [each["x"] if isinstance(given, dict) else each for each in dataset]
        assert np.array_equal(samples, np.ones((4, 3)))


def test_options_beside_an_open_array_with_others_are_refused(endpoints):
    environment, other = endpoints
    array = zarr.open_array(Store("s3://bucket/a.zarr/x", store=other.store, read_only=True), mode="r")
    with pytest.raises(Unusable, match="a Store whose options differ from store="):
        ps.ZarrDataset(array, store=environment.store)
    assert np.array_equal([*ps.ZarrDataset(array, store=other.store, output="numpy")], np.ones((4, 3)))
