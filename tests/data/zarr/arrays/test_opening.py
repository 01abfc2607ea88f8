"""URLs, groups and mappings become arrays by name; anything else is refused with what is there, and what to write."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import icechunk
import numpy as np
import pytest
import xarray as xr
import zarr
from zarr.storage import MemoryStore

import penstock as ps
from penstock.errors import InvalidURL, NotFound, PenstockError, Unsupported, Unusable
from penstock.interop.zarr import Store
from penstock.testing.faults import FaultServer
from tests.data.zarr.stores import arrays_at, files_of, numbered, write


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
    with pytest.raises(Unusable, match=r"samples\['x'\] is a group, but each name must be one array: .*t2m"):
        arrays_at({"x": group})


def test_a_group_without_arrays_is_refused(tmp_path):
    zarr.create_group(str(tmp_path / "e.zarr"))
    with pytest.raises(NotFound, match="group without arrays"):
        arrays_at(str(tmp_path / "e.zarr"))


def test_a_group_of_coordinates_is_refused(tmp_path):
    write(tmp_path / "c.zarr" / "time", numbered((3,)), ("time",), chunks=(3,))
    (tmp_path / "c.zarr" / "zarr.json").write_text(json.dumps({"zarr_format": 3, "node_type": "group"}))
    with pytest.raises(Unusable, match="only coordinates"):
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
    refs = {
        name: data.decode() if ".z" in name or name.endswith(".json") else [f"{images}/{name}"]
        for name, data in files_of(Path(images)).items()
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


@pytest.fixture(params=["plain", "consolidated"])
def era5(request, bucket):
    """Return a group of three arrays, one of them in a group of it."""
    store = Store(f"{bucket}/era5.zarr")
    group = zarr.open_group(store, mode="w", zarr_format=2 if request.param == "consolidated" else 3)
    for name in ("precip", "t2m", "levels/t850"):
        group.create_array(name, data=np.zeros((2, 2), dtype="f4"))
    if request.param == "consolidated":
        zarr.consolidate_metadata(store)
    return f"{bucket}/era5.zarr"


@pytest.mark.parametrize(
    ("path", "named"),
    [
        ("t2", "t2m, levels/t850, precip"),
        ("PRECIP", "precip, levels/t850, t2m"),
        ("levels/t800", "t850"),
        ("levles/t850", "levels/t850, precip, t2m"),
    ],
)
def test_arrays_of_the_group_are_named_those_of_like_names_first(era5, path, named):
    with pytest.raises(NotFound, match=rf"no Zarr array or group.*; the group {era5}\S* has {named} \["):
        ps.ZarrDataset(f"{era5}/{path}")


def test_arrays_whose_names_differ_in_case_alone_are_all_named(bucket):
    group = zarr.open_group(Store(f"{bucket}/era5.zarr"), mode="w")
    for name in ("T", "q", "t"):
        group.create_array(name, data=np.zeros((2, 2), dtype="f4"))
    with pytest.raises(NotFound, match=r"has T, t, q \["):
        ps.ZarrDataset(f"{bucket}/era5.zarr/t_")


@pytest.mark.parametrize(
    ("path", "words"),
    [
        ("era5.zarr/t2m/zarr.json", r"pass the URL of the array or group, without zarr\.json"),
        ("data/a.nc", r"an object of that name is there, and no folder: NetCDF.*kerchunk"),
        ("*.zarr", "a URL is literal: several arrays are a mapping"),
        ("other/t2m", r"or \.zmetadata \[memory"),
    ],
    ids=["metadata document", "plain file", "pattern", "nothing nearby"],
)
def test_url_that_is_not_of_an_array_is_refused_with_advice_where_there_is_any(bucket, path, words):
    ps.open(f"{bucket}/data/a.nc", "wb").close()
    with pytest.raises(NotFound, match=words):
        ps.ZarrDataset(f"{bucket}/{path}")


def test_a_path_that_is_not_there_may_have_meant_a_bucket(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    with pytest.raises(NotFound, match=r"'weather/era5\.zarr' has no scheme.*write s3://weather/era5\.zarr"):
        ps.ZarrDataset("weather/era5.zarr")
    for clear in ("./weather/era5.zarr", str(tmp_path / "era5.zarr")):
        with pytest.raises(NotFound) as caught:
            ps.ZarrDataset(clear)
        assert "scheme" not in str(caught.value)


@pytest.mark.parametrize(
    ("names", "words"),
    [
        (("2019.zarr", "2020.zarr"), r'the folder has 2019\.zarr, 2020\.zarr: .*/years/\*\.zarr" with along="time"'),
        (("a", "b", "c.zarr", "d"), r'the folder has a, b, c\.zarr, …: .*/years/\*" with along="time"'),
    ],
)
def test_folder_of_stores_is_refused_with_the_pattern_that_joins_them(bucket, names, words):
    for name in names:
        ps.open(f"{bucket}/years/{name}/zarr.json", "wb").close()
    with pytest.raises(NotFound, match=words):
        ps.ZarrDataset(f"{bucket}/years/", along="time")


def test_folder_of_an_icechunk_repository_is_refused_with_how_to_open_it(tmp_path):
    repository = icechunk.Repository.create(icechunk.local_filesystem_storage(str(tmp_path / "fields")))
    session = repository.writable_session("main")
    zarr.create_array(session.store, name="t2m", data=np.zeros((2, 900)))
    session.commit("written")
    with pytest.raises(NotFound, match=r"an Icechunk repository is there: open a session, and pass zarr\.open_group"):
        ps.ZarrDataset(tmp_path / "fields")


def _linked(folder, path):
    """Replace what is at a path by a link that leads nowhere."""
    place = folder / path
    shutil.rmtree(place) if place.is_dir() else place.unlink()
    place.symlink_to("/nowhere/at/all")
    return str(place)


@pytest.mark.parametrize(("shards", "path"), [(None, "t/c/1"), (None, "t/c"), ((10,), "t/c/0")])
def test_link_that_leads_nowhere_is_not_a_missing_chunk(tmp_path, shards, path):
    group = zarr.open_group(tmp_path, mode="w")
    group.create_array("t", data=np.ones(20), chunks=(5,), shards=shards, dimension_names=("time",), fill_value=-7)
    link = _linked(tmp_path, path)
    with pytest.raises(NotFound, match=f"the link {link} leads to a file that does not exist"):
        list(ps.ZarrDataset(f"{tmp_path}/t"))
    with pytest.raises(NotFound, match=f"the link {link} leads"):
        zarr.open_group(Store(tmp_path), mode="r")["t"][:]


def test_link_that_leads_nowhere_is_not_a_missing_coordinate(tmp_path):
    group = zarr.open_group(tmp_path, mode="w")
    for name in ("t", "time"):
        group.create_array(name, data=np.arange(20), dimension_names=("time",))
    link = _linked(tmp_path, "time/zarr.json")
    with pytest.raises(NotFound, match=f"the link {link} leads"):
        ps.ZarrDataset(f"{tmp_path}/t", target_offsets=1, targets=f"{tmp_path}/t")


def test_link_to_a_chunk_is_read_and_a_missing_chunk_has_the_fill_value(tmp_path):
    zarr.create_array(tmp_path / "a", data=np.ones(20), chunks=(5,), fill_value=-7)
    (tmp_path / "a/c/1").rename(tmp_path / "elsewhere")
    (tmp_path / "a/c/1").symlink_to(tmp_path / "elsewhere")
    (tmp_path / "a/c/2").unlink()
    assert [int(each) for each in ps.ZarrDataset(f"{tmp_path}/a")] == [1] * 10 + [-7] * 5 + [1] * 5
