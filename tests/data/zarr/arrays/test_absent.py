"""A URL at which there is no array is answered by what is there, and by what to write."""

from __future__ import annotations

import shutil
import uuid

import icechunk
import numpy as np
import pytest
import zarr

import penstock as ps
from penstock.errors import NotFound
from penstock.interop.zarr import Store


@pytest.fixture
def bucket():
    return f"memory://absent-{uuid.uuid4().hex}"


@pytest.fixture(params=["plain", "consolidated"])
def group(request, bucket):
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
def test_arrays_of_the_group_are_named_those_of_like_names_first(group, path, named):
    with pytest.raises(NotFound, match=rf"no Zarr array or group.*; the group {group}\S* has {named} \["):
        ps.ZarrDataset(f"{group}/{path}")


def test_arrays_whose_names_differ_in_case_alone_are_all_named(bucket):
    group = zarr.open_group(Store(f"{bucket}/era5.zarr"), mode="w")
    for name in ("T", "q", "t"):
        group.create_array(name, data=np.zeros((2, 2), dtype="f4"))
    with pytest.raises(NotFound, match=r"has T, t, q \["):
        ps.ZarrDataset(f"{bucket}/era5.zarr/t_")


def test_url_of_a_metadata_document_is_refused_with_advice(group):
    with pytest.raises(NotFound, match=r"pass the URL of the array or group, without zarr\.json"):
        ps.ZarrDataset(f"{group}/t2m/zarr.json")


def test_url_of_a_plain_file_raises_not_found_with_advice(bucket):
    ps.open(f"{bucket}/data/a.nc", "wb").close()
    with pytest.raises(NotFound, match=r"an object of that name is there, and no folder: NetCDF.*kerchunk"):
        ps.ZarrDataset(f"{bucket}/data/a.nc")


def test_a_pattern_is_literal(bucket):
    with pytest.raises(NotFound, match="a URL is literal: several arrays are a mapping"):
        ps.ZarrDataset(f"{bucket}/*.zarr")


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


def test_not_found_error_has_no_suggestion_without_nearby_arrays(bucket):
    ps.open(f"{bucket}/x", "wb").close()
    with pytest.raises(NotFound, match=r"or \.zmetadata \[memory"):
        ps.ZarrDataset(f"{bucket}/era5.zarr/t2m")


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
