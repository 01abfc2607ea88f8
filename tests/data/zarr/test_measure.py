"""Plans of real datasets: requests and bytes are those that a real epoch makes, counted at the server."""

from __future__ import annotations

import uuid

import numpy as np
import pytest
import zarr

import penstock as ps
from penstock.interop.zarr import Store
from penstock.testing.faults import FaultServer


@pytest.fixture(scope="module")
def server():
    with FaultServer.within() as running:
        yield running


@pytest.fixture
def url(server, monkeypatch):
    for name, value in server.environment.items():
        monkeypatch.setenv(name, value)
    server.make(name := f"test-{uuid.uuid4().hex}")
    return f"s3://{name}/a"


def made(url, **how):
    how = {"shape": (400, 8, 8), "chunks": (4, 8, 8), "dtype": "f4", "dimension_names": ("time", "y", "x")} | how
    array = zarr.create_array(Store(url), **how)
    array[:] = np.random.default_rng(0).integers(0, 50, array.shape)
    return array


def count_requests(server, url, epoch):
    """Return the requests that ``epoch()`` takes at the server."""
    bucket = url.split("/")[2]
    before = len(server.seen("", bucket))
    epoch()
    return len(server.seen("", bucket)) - before


LAYOUTS = {
    "chunks": {},
    "shards": {"chunks": (1, 8, 8), "shards": (40, 8, 8)},
    "across": {"chunks": (8, 4, 8)},
    "kept": {"chunks": (100, 8, 8)},
}


@pytest.mark.parametrize("how", [{}, {"offsets": (0, 3)}, {"patch": {"y": 4}}], ids=["plain", "offsets", "patch"])
@pytest.mark.parametrize("layout", LAYOUTS)
def test_requests_and_bytes_are_those_of_a_real_epoch(server, url, layout, how):
    made(url, compressors=None, **LAYOUTS[layout])
    dataset = ps.ZarrDataset(url, dims="time", shuffle=True, seed=1, **how)
    plan = dataset.plan(8)
    fresh = ps.ZarrDataset(url, dims="time", shuffle=True, seed=1, **how)
    requests = count_requests(server, url, lambda: [*ps.DataLoader(fresh, 8, decode_threads=1)])
    assert plan.requests == requests
    assert plan.amplification == 1
    stored = sum(each.size for each in ps.list(f"{url}/") if "/c/" in each.key)
    assert plan.read_bytes == stored, "uncompressed: each chunk has the mean of a few"


def test_ranks_and_workers_are_followed(url):
    made(url)
    dataset = ps.ZarrDataset(url, dims="time", shuffle=True)
    alone, workers = dataset.plan(4), dataset.plan(4, workers=3)
    assert (alone.reads, alone.chunks, alone.samples, alone.batches) == (100, 100, 400, 100)
    assert workers.reads > 100
    assert any("num_workers=0" in each for each in workers.advice)
    ranks = dataset.plan(4, ranks=2)
    assert ranks.batches == 50
    assert ranks.reads <= 102, "each rank has lanes of its own"


def test_absent_chunks_cost_no_bytes_and_picture_shows_the_first_batch(url):
    array = zarr.create_array(Store(url), shape=(200, 6), chunks=(2, 3), dtype="f4", dimension_names=("time", "x"))
    plan = ps.ZarrDataset(url, dims="time").plan(2)
    assert plan.read_bytes == 0
    assert plan.first_batch_s == pytest.approx(0.03)
    assert plan.pictures[0].cells.sum() == 2
    array[:] = 1
    assert ps.ZarrDataset(url, dims="time").plan(2).read_bytes > 0


def test_waste_names_the_copy_that_helps(url):
    made(url, chunks=(5, 8, 8))
    plan = ps.ZarrDataset(url, dims="time", patch={"y": 2, "x": 2}, stride={"time": 10}).plan(4)
    (line,) = (each for each in plan.advice if "zarr copy" in each and "--chunks" in each)
    assert f"penstock zarr copy {url} DEST --chunks 1,2,2 --shards 64,2,2" in line
