"""Saved statistics are taken for those of the values that are there only if no chunk was written anew since."""

import json
from dataclasses import replace

import icechunk
import numpy as np
import pytest
import zarr

import penstock as ps
from penstock.data.zarr.statistics import gathering
from penstock.errors import DatasetChanged, Unusable
from penstock.interop.zarr import Store
from tests.data.zarr.stores import files_of, serve_objects, write

DIMS = ("time", "x")
LAYOUTS = {"chunks": {"chunks": (2, 4)}, "shards": {"chunks": (1, 4), "shards": (4, 4)}}


def constant(place, value, length=64, **layout):
    write(place, np.full((length, 4), value, "f4"), DIMS, overwrite=True, **({"chunks": (2, 4)} | layout))


def mean(url, save, **how):
    return float(ps.ZarrDataset(url, dims="time", **how).statistics(save=save)[""].mean)


def interrupt(monkeypatch, url, save, after, **how):
    decoded, count = gathering._decoded, []

    def stop(*given):
        count.append(given)
        if len(count) > after:
            raise KeyboardInterrupt
        return decoded(*given)

    with monkeypatch.context() as patch:
        patch.setattr(gathering, "_decoded", stop)
        with pytest.raises(KeyboardInterrupt):
            ps.ZarrDataset(url, dims="time", **how).statistics(save=save, threads=1)
    assert 0 < ps.ZarrStatistics.load(save).chunks[0] < ps.ZarrStatistics.load(save).chunks[1]


@pytest.mark.parametrize("scheme", ["file", "memory", "s3"])
@pytest.mark.parametrize("layout", LAYOUTS)
def test_statistics_of_values_written_anew_are_gathered_anew(tmp_path, monkeypatch, scheme, layout, server):
    store = server.store if scheme == "s3" else None
    place = {"file": f"{tmp_path}/a", "memory": f"memory://{tmp_path.name}/a", "s3": "s3://bucket/a"}[scheme]
    save, how = tmp_path / "s.json", LAYOUTS[layout]
    for value in (1, 2):
        constant(Store(place, store=store), value, **how)
        assert mean(place, save, store=store) == value
        with monkeypatch.context() as patch:
            patch.setattr(gathering, "moments_of", None)
            assert mean(place, save, store=store) == value
    save.unlink()
    interrupt(monkeypatch, place, save, 5, store=store)
    constant(Store(place, store=store), 3, **how)
    assert mean(place, save, store=store) == 3


def test_chunks_that_appear_or_go_after_statistics_were_saved_are_noticed(tmp_path):
    constant(tmp_path / "a", 1)
    there, save = tmp_path / "a" / "c" / "7" / "0", tmp_path / "s.json"
    data = there.read_bytes()
    assert mean(tmp_path / "a", save) == 1
    there.unlink()
    assert mean(tmp_path / "a", save) == pytest.approx(62 / 64)
    there.write_bytes(data)
    assert mean(tmp_path / "a", save) == 1


def test_other_fill_value_of_missing_chunks_is_not_the_same_data(tmp_path):
    constant(tmp_path / "a", 1)
    (tmp_path / "a" / "c" / "7" / "0").unlink()
    save, document = tmp_path / "s.json", tmp_path / "a" / "zarr.json"
    mean(tmp_path / "a", save)
    document.write_text(json.dumps(json.loads(document.read_text()) | {"fill_value": 9}))
    with pytest.raises(Unusable, match="delete it, or save to another"):
        mean(tmp_path / "a", save)


def test_chunks_that_no_sample_takes_may_be_written_anew(tmp_path, monkeypatch):
    constant(tmp_path / "a", 1)
    save, some = tmp_path / "s.json", {"select": {"time": slice(0, 40)}}
    assert mean(tmp_path / "a", save, **some) == 1
    (tmp_path / "a" / "c" / "31" / "0").write_bytes(b"being written")
    monkeypatch.setattr(gathering, "moments_of", None)
    assert mean(tmp_path / "a", save, **some) == 1


def test_values_written_anew_while_statistics_are_gathered_are_an_error(tmp_path, monkeypatch):
    constant(tmp_path / "a", 1)
    decoded, count = gathering._decoded, []

    def rewrite(*given):
        count.append(given)
        if len(count) == 9:
            constant(tmp_path / "a", 2)
        return decoded(*given)

    with monkeypatch.context() as patch:
        patch.setattr(gathering, "_decoded", rewrite)
        with pytest.raises(DatasetChanged, match="rewritten while their statistics were gathered"):
            mean(tmp_path / "a", tmp_path / "s.json")
    assert mean(tmp_path / "a", tmp_path / "s.json") == 2


@pytest.mark.parametrize("fails", ["few", "denied", "foreign"])
def test_versions_are_listed_or_looked_up_one_by_one(tmp_path, monkeypatch, fails, server):
    place = Store("s3://bucket/a", store=server.store)
    constant(place, 1)
    if fails == "denied":
        monkeypatch.setattr(gathering, "_listed", lambda *_: None)
    if fails == "foreign":
        monkeypatch.setattr(gathering, "_MOST_LISTED", 1)
        for number in range(9):
            with ps.open(f"s3://bucket/a/c/{number}/other", "wb", store=server.store) as writer:
                writer.write(b"x")
    dataset = ps.ZarrDataset("s3://bucket/a", dims="time", store=server.store)
    if fails == "few":
        dataset = dataset.split_at(8)[0]
    before = len(server.seen("head"))
    for _ in range(2):
        assert dataset.statistics(save=tmp_path / "s.json")[""].mean == 1
    assert len(server.seen("head")) - before == 3 * (4 if fails == "few" else 32)
    constant(place, 2)
    assert dataset.statistics(save=tmp_path / "s.json")[""].mean == 2


def test_versions_of_a_thousand_chunks_are_two_lists(tmp_path, server):
    constant(Store("s3://bucket/a", store=server.store), 1, 1001, chunks=(1, 4))
    dataset = ps.ZarrDataset("s3://bucket/a", dims="time", store=server.store)
    dataset.statistics(save=tmp_path / "s.json")
    before = len(server.seen())
    dataset.statistics(save=tmp_path / "s.json")
    assert [each.verb for each in server.seen()[before:]] == ["list", "list"]


def test_statistics_over_http_and_references_have_versions(tmp_path):
    objects = {}
    with serve_objects(objects) as web:
        for value in (1, 2):
            constant(tmp_path / "a", value, 4, compressors=None)
            objects |= {f"/a/{path}": data for path, data in files_of(tmp_path / "a").items()}
            assert mean(f"{web.url}/a", tmp_path / "web.json") == value
            # The document stays, and the file that it leads to is another.
            (tmp_path / "data.nc").write_bytes(b"".join(objects[f"/a/c/{n}/0"] for n in range(2)))
            entries = {f"t/c/{n}/0": [f"file://{tmp_path}/data.nc", 32 * n, 32] for n in range(2)}
            entries |= {"zarr.json": '{"zarr_format": 3, "node_type": "group", "attributes": {}}'}
            entries |= {"t/zarr.json": objects["/a/zarr.json"].decode()}
            if value == 1:
                (tmp_path / "refs.json").write_text(json.dumps({"version": 1, "refs": entries}))
            assert mean(tmp_path / "refs.json" / "t", tmp_path / "refs.stats") == value
        # The same file, and references to other bytes of it, or to values within the document.
        (tmp_path / "data.nc").write_bytes(np.repeat(np.float32([3, 5]), 8).tobytes())
        assert mean(tmp_path / "refs.json" / "t", tmp_path / "refs.stats") == 4
        entries["t/c/0/0"][1] = 32
        (tmp_path / "refs.json").write_text(json.dumps({"version": 1, "refs": entries}))
        assert mean(tmp_path / "refs.json" / "t", tmp_path / "refs.stats") == 5


def test_stores_of_zarr_without_versions_are_read_again(tmp_path):
    for value in (1, 2):
        store = zarr.storage.MemoryStore()
        constant(store, value)
        dataset = ps.ZarrDataset(zarr.open_array(store, mode="r"))
        assert dataset.statistics(save=tmp_path / "s.json")[""].mean == value
        zarr.open_array(store)[:] = 7
        assert dataset.statistics(save=tmp_path / "s.json")[""].mean == 7


def test_session_of_icechunk_that_writes_has_no_version(tmp_path, monkeypatch):
    repository = icechunk.Repository.create(icechunk.local_filesystem_storage(str(tmp_path / "i")))
    session = repository.writable_session("main")
    array = zarr.create_array(session.store, name="tas", data=np.full(4, 1.0))
    dataset = ps.ZarrDataset(array)
    assert dataset.statistics(save=tmp_path / "s.json")[""].mean == 1
    array[:] = 2
    assert dataset.statistics(save=tmp_path / "s.json")[""].mean == 2
    session.commit("written")
    dataset = ps.ZarrDataset(zarr.open_array(repository.readonly_session("main").store, path="tas", mode="r"))
    assert dataset.statistics(save=tmp_path / "c.json")[""].mean == 2
    monkeypatch.setattr(gathering, "moments_of", None)
    assert dataset.statistics(save=tmp_path / "c.json")[""].mean == 2


@pytest.mark.parametrize("mode", ["ttl", "revalidate"])
@pytest.mark.parametrize("layout", LAYOUTS)
def test_cached_values_of_before_are_not_saved_as_statistics_of_those_that_are_there(tmp_path, layout, mode, server):
    place, save = Store("s3://bucket/a", store=server.store), tmp_path / "s.json"
    store = replace(server.store, cache=ps.CacheOptions(path=str(tmp_path), mode=mode))
    constant(place, 1, **LAYOUTS[layout])
    assert mean("s3://bucket/a", save, store=store) == 1
    constant(place, 2, **LAYOUTS[layout])
    if mode == "ttl":
        with pytest.raises(DatasetChanged, match="the cache holds outdated values"):
            mean("s3://bucket/a", save, store=store)
    else:
        assert mean("s3://bucket/a", save, store=store) == 2
    assert mean("s3://bucket/a", save, store=server.store) == 2
