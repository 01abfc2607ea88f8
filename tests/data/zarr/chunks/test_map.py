"""Samples of arrays by number: equal to the array's own, and a chunk is decoded once while it is in use."""

import pickle

import numpy as np
import pytest
import torch
from torch.utils.data import DataLoader, RandomSampler

import penstock as ps
from penstock.data.zarr.chunks.contents import Chunks
from tests.data.zarr.stores import LAYOUTS, numbered, write

DIMS = ("time", "y", "x")
VALUES = numbered((21, 6, 8))


@pytest.fixture(params=LAYOUTS)
def samples(request, tmp_path, monkeypatch):
    monkeypatch.setattr("penstock.data.zarr.samples.arrangement._KEPT_BYTES", 0)
    write(tmp_path / "a.zarr", VALUES, DIMS, **LAYOUTS[request.param])
    return ps.ZarrDataset(str(tmp_path / "a.zarr"), decode_cf=False).as_map()


@pytest.fixture
def decoded(monkeypatch):
    """Count the decoded chunks."""
    seen, decode = [], Chunks.decode
    monkeypatch.setattr(Chunks, "decode", lambda self, chunk, *rest: seen.append(chunk) or decode(self, chunk, *rest))
    return seen


def test_samples_by_number_are_the_arrays_own(samples):
    assert len(samples) == 21
    for number in (20, 0, 7, -1, np.int64(3)):
        np.testing.assert_array_equal(samples[number].numpy(), VALUES[number])
    samples[5].zero_()
    np.testing.assert_array_equal(samples[5].numpy(), VALUES[5])
    for number in (21, -22):
        with pytest.raises(IndexError, match="there are 21"):
            samples[number]


def test_neighbours_decode_a_chunk_once(samples, decoded):
    for number in range(21):
        samples[number]
    samples.__getitems__([*range(21)])
    assert len(decoded) == len({*decoded})


def test_chunks_are_held_within_the_memory(tmp_path, decoded, monkeypatch):
    monkeypatch.setattr("penstock.data.zarr.samples.arrangement._KEPT_BYTES", 0)
    write(tmp_path / "a", VALUES, DIMS, chunks=(1, 6, 8))
    size = 6 * 8 * 4
    samples = ps.ZarrDataset(str(tmp_path / "a"), window_bytes=1, memory_bytes=12 * size).as_map()
    most = samples._most_bytes // size
    assert 1 <= most <= 9
    batch = samples.__getitems__([*range(21)])
    np.testing.assert_array_equal(np.stack(batch), VALUES)
    assert samples._cache._held_bytes <= samples._most_bytes
    assert len(decoded) == 21
    samples[20], samples[0]
    assert decoded[21:] == [0]  # the oldest went first


@pytest.mark.parametrize("workers", [0, 2])
def test_torchs_loader_with_a_sampler_reads_each_sample(samples, workers):
    order = RandomSampler(samples, generator=torch.Generator().manual_seed(1))
    samples[0]  # the parent has a cache, and threads
    found = torch.cat([*DataLoader(samples, 4, sampler=order, num_workers=workers)]).numpy()
    np.testing.assert_array_equal(found[np.argsort(found[:, 0, 0])], VALUES)
    assert not np.array_equal(found, VALUES)


def test_a_pickled_map_reads_the_same_and_holds_nothing(samples):
    samples[3]
    again = pickle.loads(pickle.dumps(samples))
    assert not again._cache._held
    assert torch.equal(again[3], samples[3])
