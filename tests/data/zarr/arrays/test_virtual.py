"""Samples of virtual arrays, whose chunks lie within other files, are bit for bit those of the array."""

from __future__ import annotations

import base64
import json
import pickle
import uuid
import warnings

import numpy as np
import pytest
import xarray as xr
import zarr
from obspec_utils.registry import ObjectStoreRegistry
from obstore.store import LocalStore
from virtualizarr import open_virtual_dataset
from virtualizarr.parsers import HDFParser

import penstock as ps
from penstock.errors import Damaged, NotFound, Unsupported, Unusable
from penstock.source import Source, open_source
from penstock.testing.servers import Scripted, reply
from tests.data.zarr.referencefiles import put_references
from tests.data.zarr.stores import DIMS, files_of, large, numbered, serve_objects, stacked


def virtual(tmp_path, bucket, values, *, name="tas", inline=(), files=2, **how):
    """Write an array, move its chunks into a few objects with bytes between, and return a document of references."""
    folder = tmp_path / f"zarr-{uuid.uuid4().hex}"
    how = {"chunks": (4, *values.shape[1:]), "dimension_names": DIMS} | how
    zarr.create_array(str(folder), data=values, **how)
    parts, entries = [bytearray(b"???") for _ in range(files)], {}
    for number, (key, data) in enumerate(sorted(files_of(folder).items())):
        if key in {"zarr.json", ".zarray", ".zattrs"}:
            entries[f"{name}/{key}"] = data.decode()
        elif number in inline:
            entries[f"{name}/{key}"] = "base64:" + base64.b64encode(data).decode()
        else:
            part = parts[number % files]
            entries[f"{name}/{key}"] = [f"{bucket}/part{number % files}.nc", len(part), len(data)]
            part += data + b"between"
    source, _ = open_source(f"{bucket}/x")
    for number, part in enumerate(parts):
        source.put(f"part{number}.nc", bytes(part))
    return entries


@pytest.fixture
def document(tmp_path):
    """Return what writes a document of references: on this machine, so that it may name any store."""

    def write(entries):
        where = tmp_path / "refs.json"
        where.write_text(json.dumps({"version": 1, "refs": entries}))
        return where

    return write


@pytest.mark.parametrize("count", [21, 5], ids=["read", "kept"])
@pytest.mark.parametrize("sharded", [False, True], ids=["chunks", "shards"])
def test_samples_are_those_of_the_array(tmp_path, bucket, document, count, sharded):
    values = large(count)
    shards = (8, 256, 256) if sharded else None
    refs = document(virtual(tmp_path, bucket, values, inline=(1,), shards=shards, compressors=None))
    assert np.array_equal(np.stack([each["tas"].numpy() for each in ps.ZarrDataset(refs)]), values)
    alone = pickle.loads(pickle.dumps(ps.ZarrDataset(refs / "tas", shuffle=True, seed=3)))
    assert sorted(each.numpy().tobytes() for each in alone) == sorted(each.tobytes() for each in values)
    assert np.array_equal(np.stack([each.numpy() for each in alone.as_map()]), values)
    assert alone.plan(4).reads == alone.plan(4).chunks


def test_objects_of_several_stores_are_read_or_of_none(tmp_path, bucket, document):
    values = numbered((21, 6, 8))
    entries = virtual(tmp_path, bucket, values)
    file = tmp_path / "part1.nc"
    with ps.open(f"{bucket}/part1.nc", "rb") as part:
        file.write_bytes(part.read())
    ours = {k: [str(file), *e[1:]] for k, e in entries.items() if isinstance(e, list) and e[0].endswith("part1.nc")}
    assert np.array_equal(stacked(ps.ZarrDataset(document(entries | ours) / "tas")), values)
    inline = virtual(tmp_path, bucket, values, inline=range(100))
    assert np.array_equal(stacked(ps.ZarrDataset(document(inline) / "tas")), values)


def test_a_chunk_without_a_reference_is_the_fill_value_and_a_reference_to_nothing_an_error(tmp_path, bucket, document):
    values = numbered((8, 6, 8))
    entries = virtual(tmp_path, bucket, values, files=1)
    absent = next(key for key in entries if "/c/" in key)
    refs = document({key: entry for key, entry in entries.items() if key != absent}) / "tas"
    found = stacked(ps.ZarrDataset(refs))
    assert np.array_equal(found[4:], values[4:])
    assert not found[:4].any()
    with pytest.raises(NotFound, match="never written"):
        list(ps.ZarrDataset(refs, missing="error"))
    ps.delete(f"{bucket}/part0.nc")
    with pytest.raises(Damaged, match="a reference leads to a missing object"):
        list(ps.ZarrDataset(refs))


@pytest.mark.parametrize(
    ("wrong", "words"),
    [
        (["part0.nc", 0, 1 << 40], "more than a chunk can have"),
        (["part0.nc", -1, 8], "has an invalid range"),
        (["part0.nc", "0", 8], "has an invalid range"),
        (["quux://x/y", 0, 8], "has no URL"),
    ],
)
def test_a_reference_that_cannot_be_meant_is_an_error(tmp_path, bucket, document, wrong, words):
    values = large(20)
    entries = virtual(tmp_path, bucket, values, compressors=None)
    last = [key for key in entries if "/c/" in key][-1]
    url = wrong[0] if "://" in wrong[0] else f"{bucket}/{wrong[0]}"
    dataset = ps.ZarrDataset(document(entries | {last: [url, *wrong[1:]]}) / "tas")
    assert np.array_equal(dataset.as_map()[0].numpy(), values[0])
    with pytest.raises((Damaged, Unsupported), match=words):
        list(dataset)


@pytest.mark.parametrize("profile", [False, True], ids=["options", "profile"])
@pytest.mark.parametrize("local", [False, True], ids=["web", "local"])
def test_a_document_in_a_store_has_secrets_sent_to_no_host_but_its_own(
    tmp_path, bucket, document, local, profile, monkeypatch
):
    values, objects = numbered((8, 6, 8)), {}
    entries = virtual(tmp_path, bucket, values, files=1)
    with ps.open(f"{bucket}/part0.nc", "rb") as part:
        served = {"/x": part.read()}
    with serve_objects(served) as data, serve_objects(objects) as docs:
        entries |= {k: [f"{data.url}/x", *e[1:]] for k, e in entries.items() if isinstance(e, list)}
        objects["/refs.json"] = json.dumps(entries).encode()
        (tmp_path / "penstock.toml").write_text(
            '[profiles.web]\nprovider = "https"\noptions.headers = {x-team = "climate"}\n'
        )
        monkeypatch.setenv("PENSTOCK_CONFIG", str(tmp_path / "penstock.toml"))
        store = "web" if profile else ps.HTTPOptions(headers={"x-team": "climate"})
        url = document(entries) / "tas" if local else f"{docs.url}/refs.json/tas"
        assert np.array_equal(stacked(ps.ZarrDataset(url, store=store)), values)
    assert {each.headers.get("x-team") for each in data.received} == {"climate" if local else None}
    assert {each.headers.get("x-team") for each in docs.received} == (set() if local else {"climate"})


def of_v2(tmp_path, bucket, values, **how):
    """Return references to the chunks of an array of Zarr v2, moved into a few objects."""
    how = {"zarr_format": 2, "attributes": {"_ARRAY_DIMENSIONS": [*DIMS]}, "compressors": None, "fill_value": -1} | how
    return virtual(tmp_path, bucket, values, dimension_names=None, **how)


@pytest.mark.parametrize("size", [1, 4, 1000])
def test_samples_of_references_in_parquet_are_those_of_the_array(tmp_path, bucket, size):
    values = large(21)
    entries = of_v2(tmp_path, bucket, values, inline=(1,))
    source, key = open_source(tmp_path / "deep" / "refs.parq")
    put_references(source, key, entries, size, categories=size == 1000)
    url = tmp_path / "deep" / "refs.parq"
    found = ps.ZarrDataset(url)
    assert np.array_equal(np.stack([each["tas"].numpy() for each in found]), values)
    alone = pickle.loads(pickle.dumps(ps.ZarrDataset(url / "tas", dims="time", shuffle=True)))
    assert sorted(each.numpy().tobytes() for each in alone) == sorted(each.tobytes() for each in values)
    assert np.array_equal(np.stack([each.numpy() for each in alone.as_map()]), values)
    assert alone.plan(4).reads == alone.plan(4).chunks
    loader = ps.DataLoader(alone, 5, num_workers=2, multiprocessing_context="fork")
    assert sorted(each.numpy().tobytes() for batch in loader for each in batch) == sorted(
        each.tobytes() for each in values
    )


def test_files_of_references_of_several_arrays_are_looked_for_together(tmp_path, bucket, monkeypatch):
    values = large(21)
    entries = of_v2(tmp_path, bucket, values) | of_v2(tmp_path, bucket, values, name="pr")
    source, key = open_source(tmp_path / "refs.parq")
    put_references(source, key, entries, 100)
    asked, stat = [], Source.stat_existing
    monkeypatch.setattr(Source, "stat_existing", lambda self, keys: asked.append([*keys]) or stat(self, keys))
    dataset = pickle.loads(pickle.dumps(ps.ZarrDataset(tmp_path / "refs.parq")))
    asked.clear()
    for each in dataset:
        assert np.array_equal(each["tas"].numpy(), each["pr"].numpy())
    assert [sorted(each) for each in asked] == [[f"{key}/pr/refs.0.parq", f"{key}/tas/refs.0.parq"]]


def test_stores_that_references_in_parquet_lead_to_are_opened_when_they_come(tmp_path, bucket):
    values = large(21)
    entries = of_v2(tmp_path, bucket, values, files=3)
    for number in (1, 2):
        other = f"{bucket}-{number}"
        with ps.open(f"{bucket}/part{number}.nc", "rb") as part, ps.open(f"{other}/part.nc", "wb") as copy:
            copy.write(part.read())
        for key, entry in entries.items():
            if isinstance(entry, list) and entry[0] == f"{bucket}/part{number}.nc":
                entries[key] = [f"{other}/part.nc", *entry[1:]]
    document = tmp_path / "refs"  # whatever it is called
    source, key = open_source(str(document))
    put_references(source, key, entries, 2)
    dataset = ps.ZarrDataset(document / "tas", dims="time")
    assert len(dataset.contents.arrays[0].objects.sources) == 1
    for found in (dataset, pickle.loads(pickle.dumps(dataset)), dataset.as_map()):
        assert np.array_equal(np.stack([each.numpy() for each in found]), values)
    assert np.array_equal(np.concatenate([*dataset.batched(4)]), values)


@pytest.fixture(params=["json", "parquet"])
def put(request, bucket):
    """Return what writes references into a store, in JSON or Parquet, and returns their URL."""

    def write(entries):
        source, _ = open_source(f"{bucket}/x")
        if request.param == "parquet":
            put_references(source, "refs.parq", entries, 4)
            return f"{bucket}/refs.parq"
        source.put("refs.json", json.dumps(entries).encode())
        return f"{bucket}/refs.json"

    return write


def test_references_in_a_store_name_no_file_of_this_machine(tmp_path, put):
    url = put(of_v2(tmp_path, str(tmp_path), numbered((8, 6, 8))))
    with pytest.raises(Unsupported, match="names a file or profile of this machine"):
        list(ps.ZarrDataset(f"{url}/tas"))


def test_an_array_that_references_have_not_is_named_with_those_they_have(tmp_path, bucket, put):
    url = put(of_v2(tmp_path, bucket, numbered((8, 6, 8))))
    with pytest.raises(NotFound, match="no array or group 'pr'; arrays are tas"):
        ps.ZarrDataset(f"{url}/pr")
    with pytest.raises(NotFound, match="no Zarr array or group"):
        ps.ZarrDataset(f"{bucket}/other/pr")


def test_forbidden_parent_metadata_hides_neither_references_nor_missing_arrays(tmp_path, bucket):
    values, served = numbered((8, 6, 8)), {}
    put_references(open_source(f"{bucket}/x")[0], "team/refs.parq", of_v2(tmp_path, bucket, values), 4)
    for entry in ps.list(f"{bucket}/team/"):
        with ps.open(entry.url, "rb") as file:
            served[f"/{entry.key}"] = file.read()

    def answer(received, send):
        data = served.get(received.path)
        if data is not None and received.method == "GET":
            send(reply(200, data, etag='"v"'))
        else:
            status = 403 if received.path.startswith("/team/.z") else 404 if data is None else 200
            send(reply(status, content_length=str(len(data or b"")), etag='"v"'))
        return False

    with Scripted(answer) as server:
        found = ps.ZarrDataset(f"{server.url}/team/refs.parq/tas", dims="time")
        assert found.contents.arrays[0].layout.shape == (8, 6, 8)
        with pytest.raises(NotFound, match=r"team/era5\.zarr/tas"):
            ps.ZarrDataset(f"{server.url}/team/era5.zarr/tas")


def test_a_document_that_has_its_references_in_parquet_is_refused(document):
    metadata = json.dumps({"metadata": {"tas/.zarray": {}}, "record_size": 10})
    with pytest.raises(Unsupported, match="pass the URL of their folder"):
        ps.ZarrDataset(document({".zmetadata": metadata}))


@pytest.fixture
def dataset_of_netcdf(tmp_path):
    """Return a virtual dataset of VirtualiZarr's, and the one that it was made of."""
    written = xr.Dataset(
        {"tas": (DIMS, numbered((20, 256, 256)).astype("f8"))}, coords={"time": np.arange(20)}, attrs={"title": "x"}
    )
    encoding = {
        "tas": {"chunksizes": (2, 256, 256), "zlib": True, "dtype": "i4", "scale_factor": 0.5, "_FillValue": -1}
    }
    written.to_netcdf(tmp_path / "a.nc", engine="h5netcdf", encoding=encoding)
    return virtual_dataset_of(tmp_path / "a.nc"), written


def virtual_dataset_of(path):
    registry = ObjectStoreRegistry({"file://": LocalStore()})
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # of codecs without a specification
        return open_virtual_dataset(f"file://{path}", registry=registry, parser=HDFParser())


def test_datasets_of_virtualizarr_are_read(dataset_of_netcdf):
    virtual_dataset, written = dataset_of_netcdf
    for given in (virtual_dataset, virtual_dataset["tas"]):
        found = [each["tas"] if isinstance(each, dict) else each for each in ps.ZarrDataset(given, dims="time")]
        assert np.array_equal(np.stack(found), written.tas.values)
    with pytest.raises(Unusable, match="are not virtual: q"):
        ps.ZarrDataset(virtual_dataset.assign(q=("time", np.arange(20))))


def test_statistics_of_virtual_datasets_of_one_form_are_those_of_each(tmp_path):
    for year in (2021, 2022):
        values = xr.Dataset({"tas": (DIMS, np.full((4, 3, 3), year, "f4"))})
        values.to_netcdf(tmp_path / f"{year}.nc", engine="h5netcdf", encoding={"tas": {"chunksizes": (2, 3, 3)}})
    one, other = (virtual_dataset_of(tmp_path / f"{year}.nc") for year in (2021, 2022))
    found = ps.ZarrDataset({"x": one["tas"]}, {"y": other["tas"]}, dims="time").statistics()
    assert (found["x"].mean, found["y"].mean) == (2021, 2022)
    ps.ZarrDataset(one, dims="time").statistics(save=tmp_path / "s.json")
    again = ps.ZarrDataset(virtual_dataset_of(tmp_path / "2021.nc"), dims="time").statistics(save=tmp_path / "s.json")
    assert again["tas"].mean == 2021
    with pytest.raises(Unusable, match="the file has statistics of other arrays"):
        ps.ZarrDataset(other, dims="time").statistics(save=tmp_path / "s.json")


def test_a_bucket_that_path_mapping_divides_is_read_from_all_of_its_places(tmp_path, document, monkeypatch):
    values = numbered((8, 6, 8))
    folder = tmp_path / "zarr"
    zarr.create_array(str(folder), data=values, chunks=(2, 6, 8), dimension_names=DIMS)
    entries = {"tas/zarr.json": (folder / "zarr.json").read_text()}
    for number in range(4):
        part = ("first", "second")[number % 2]
        (tmp_path / part).mkdir(exist_ok=True)
        (tmp_path / part / f"{number}.nc").write_bytes((folder / "c" / str(number) / "0" / "0").read_bytes())
        entries[f"tas/c/{number}/0/0"] = [f"s3://archive/{part}/{number}.nc"]
    profile = "{storage_provider: {type: file, options: {base_path: %s}}}"
    (tmp_path / "msc.yaml").write_text(
        "profiles:\n"
        + "".join(f"  {part}: {profile % (tmp_path / part)}\n" for part in ("first", "second"))
        + "path_mapping: {s3://archive/first/: msc://first/, s3://archive/second/: msc://second/}\n"
    )
    monkeypatch.setenv("MSC_CONFIG", str(tmp_path / "msc.yaml"))
    found = ps.ZarrDataset(document(entries) / "tas")
    assert np.array_equal(stacked(found), values)
