"""Ranks of a process group find the arrays of a dataset together: one makes the requests, and all have the same."""

import json
import warnings
from dataclasses import replace

import numpy as np
import pytest
import torch.distributed as dist
import xarray as xr

import penstock as ps
from penstock.data import ranks as shared
from penstock.errors import Denied, NotFound
from penstock.testing.faults import FAULTS, FaultServer, Match, Settings
from tests.data.datasets.ranks import free_port, ranks
from tests.data.zarr.stores import numbered, upload, write

BUCKET = "found"
START = np.datetime64("2001-01-01", "ns")


@pytest.fixture(scope="module")
def server(tmp_path_factory):
    folder = tmp_path_factory.mktemp("found")
    with FaultServer.start(Settings()) as server:
        write(folder / "plain.zarr", numbered((40, 6)), ("time", "x"), chunks=(4, 6))
        write(folder / "old.zarr", numbered((40, 6)), ("time", "x"), chunks=(4, 6), zarr_format=2)
        upload(server, BUCKET, folder / "plain.zarr")
        upload(server, BUCKET, folder / "old.zarr")
        for name, first in (("a", 0), ("b", 12), ("shifted", 6)):
            times = START + (first + np.arange(12)) * np.timedelta64(1, "D")
            values = {each: (("time", "x"), numbered((12, 6)) + number) for number, each in enumerate(("u", "v"))}
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")
                xr.Dataset(values, {"time": times, "x": np.arange(6.0)}).to_zarr(
                    folder / f"{name}.zarr", consolidated=name != "shifted"
                )
            upload(server, BUCKET, folder / f"{name}.zarr", f"years/{name}.zarr")
        ps.ZarrDataset(folder / "plain.zarr").statistics().save(folder / "statistics.json")
        server.put(BUCKET, "statistics.json", (folder / "statistics.json").read_bytes())
        references = {
            "refs/.zarray": (folder / "old.zarr" / ".zarray").read_text(),
            "refs/.zattrs": '{"_ARRAY_DIMENSIONS": ["time", "x"]}',
            ".zgroup": '{"zarr_format": 2}',
        }
        for number in range(10):
            key = f"old.zarr/{number}.0"
            size = (folder / "old.zarr" / f"{number}.0").stat().st_size
            references[f"refs/{number}.0"] = [f"s3://{BUCKET}/{key}", 0, size]
        server.put(BUCKET, "refs.json", json.dumps({"version": 1, "refs": references}).encode())
        yield server


@pytest.fixture(autouse=True)
def environment(server, monkeypatch):
    for name, value in server.environment.items():
        monkeypatch.setenv(name, value)
    server.heal()


@pytest.fixture
def tcp():
    return f"tcp://127.0.0.1:{free_port()}"


def url(name):
    return f"s3://{BUCKET}/{name}"


CASES = {
    "array": lambda store: ps.ZarrDataset(url("plain.zarr"), store=store),
    "old array": lambda store: ps.ZarrDataset(url("old.zarr"), store=store),
    "normalized": lambda store: ps.ZarrDataset(url("plain.zarr"), normalize=url("statistics.json"), store=store),
    "group": lambda store: ps.ZarrDataset(url("years/shifted.zarr"), offsets=(0, 1), store=store),
    "pairs": lambda store: ps.ZarrDataset(
        url("years/a.zarr/u"), url("years/shifted.zarr/v"), align="coordinates", store=store
    ),
    "several": lambda store: ps.ZarrDataset(
        {name: [url(f"years/{year}.zarr/{name}") for year in "ab"] for name in "uv"}, along="time", store=store
    ),
    "joined": lambda store: ps.ZarrDataset(url("years/[ab].zarr"), along="time", store=store),
    "references": lambda store: ps.ZarrDataset(url("refs.json"), store=store),
}


def found(store):
    shown = {}
    for name, make in CASES.items():
        dataset = make(store)
        # Arrays that are sent have all that an opened one has.
        arrays = [(each.url, each.layout, each.meaning, each.source.options) for each in dataset.contents.arrays]
        shown[name] = dataset.contents.digest, len(dataset), repr(arrays), sorted(dataset.coordinates)
    return shown


def values(store):
    maps = [make(store).as_map() for make in CASES.values()]
    return repr([[samples[0], samples[len(samples) - 1]] for samples in maps])


def test_requests_of_a_start_do_not_grow_with_the_ranks(server, tmp_path):
    before = len(server.seen())
    alone, requests = found(server.store), len(server.seen()) - before
    for count in (2, 5):
        before = len(server.seen())
        assert ranks(count, f"file://{tmp_path}/{count}", found, server.store) == [alone] * count
        assert len(server.seen()) - before == requests


def test_sent_arrays_have_the_same_samples(server, tcp):
    assert ranks(2, tcp, values, server.store) == [values(server.store)] * 2


def _missing():
    return ps.ZarrDataset(url("nothing.zarr"))


def test_a_missing_array_is_the_error_of_all_ranks(tcp):
    first, second = ranks(2, tcp, _missing)
    assert isinstance(first, NotFound)
    assert (type(first), str(first)) == (type(second), str(second))


def _denied():
    return ps.ZarrDataset(url("plain.zarr"))


def test_a_refusal_is_requested_by_one_rank_and_raised_on_all(server, tcp):
    server.fail(FAULTS["denied"], when=Match(verb="get", times=None))
    before = len(server.seen())
    assert all(isinstance(each, Denied) for each in ranks(3, tcp, _denied))
    assert len(server.seen()) - before <= 6


def _differ():
    rank = dist.get_rank()
    return len(ps.ZarrDataset(url("plain.zarr"), stride=1 + rank)), len(
        ps.ZarrDataset(url(("years/a.zarr", "plain.zarr")[rank]))
    )


def test_ranks_with_other_arguments_do_not_wait_for_each_other(tcp):
    assert ranks(2, tcp, _differ) == [(40, 12), (20, 40)]


def _local(path):
    return len(ps.ZarrDataset({"here": path, "there": url("plain.zarr")}, align="index"))


def test_arrays_of_this_machine_are_opened_by_each_rank(server, tcp, tmp_path):
    write(tmp_path / "own.zarr", numbered((40, 6)), ("time", "x"), chunks=(4, 6))
    before = len(server.seen())
    assert ranks(2, tcp, _local, str(tmp_path / "own.zarr")) == [40, 40]
    assert (len(server.seen()) - before) % 2 == 0
    assert len(server.seen()) > before


def _secret(store):
    sent = []
    send = shared._send

    def record(group, key, kind, data):
        sent.append((kind, store.secret_key.encode() in data))
        send(group, key, kind, data)

    shared._send = record
    dataset = ps.ZarrDataset(url("plain.zarr"), store=store)
    return sent, dataset.contents.source.options.secret_key == store.secret_key


def test_secrets_of_the_caller_are_not_sent(server, tcp):
    keys = server.environment
    store = replace(server.store, access_key=keys["AWS_ACCESS_KEY_ID"], secret_key=keys["AWS_SECRET_ACCESS_KEY"])
    found = ranks(2, tcp, _secret, store)
    assert sorted(found) == [([], True), ([("result", False)], True)]
