"""Samples of arrays: each once per epoch, equal to the array's own, in batches that resume."""

import re

import numpy as np
import pytest
import torch
import xarray as xr
import zarr

import penstock as ps
from penstock.data.zarr.dataset import ZarrDataset
from penstock.errors import Unusable
from penstock.testing.restarts import check_restarts
from tests.data.zarr.stores import DIMS, LAYOUTS, VALUES, numbered, write


@pytest.fixture(params=LAYOUTS)
def url(request, tmp_path):
    write(tmp_path / "a.zarr", VALUES, DIMS, **LAYOUTS[request.param])
    return str(tmp_path / "a.zarr")


def batches(loader):
    return [batch.numpy() for batch in loader]


@pytest.mark.parametrize("workers", [0, 2])
def test_samples_are_the_arrays_own_in_order(url, workers):
    dataset = ZarrDataset(url)
    assert len(dataset.contents) == 21
    assert repr(dataset) == "<ZarrDataset of 21 samples of an array>"
    found = batches(ps.DataLoader(dataset, 4, num_workers=workers))
    assert [len(each) for each in found] == [4, 4, 4, 4, 4, 1]
    np.testing.assert_array_equal(np.concatenate(found), VALUES)


def test_single_samples_do_not_share_memory(url):
    samples = list(ZarrDataset(url))
    samples[0] += 1
    np.testing.assert_array_equal(torch.stack(samples[1:]).numpy(), VALUES[1:])


def test_a_shuffled_epoch_has_each_sample_once_and_each_chunk_is_read_once(url):
    dataset = ZarrDataset(url, shuffle=True, window_bytes=2000)
    loader = ps.DataLoader(dataset, 4, decode_threads=2)
    first, second = (np.concatenate(batches(loader)) for _ in range(2))
    for found in (first, second):
        np.testing.assert_array_equal(found[np.argsort(found[:, 0, 0])], VALUES)
    assert not np.array_equal(first, second)


def test_batches_resume(url):
    def make(workers=0, **arguments):
        dataset = ZarrDataset(url, shuffle=True, window_bytes=2000, place=ps.Place(), **arguments)
        return ps.DataLoader(dataset, 4, num_workers=workers)

    check_restarts(make, epochs=1, alike=[lambda: make(0)], foreign=[lambda: make(offsets=1)])


@pytest.mark.parametrize("shuffle", [True, False])
def test_ranks_read_each_chunk_once_and_have_as_many_batches(tmp_path, monkeypatch, shuffle):
    monkeypatch.setattr("penstock.data.zarr.samples.arrangement._KEPT_BYTES", 0)
    values = numbered((240, 2, 2))
    write(tmp_path / "a.zarr", values, DIMS, chunks=(4, 2, 2))
    found, requests, counts = [], 0, []
    for rank in range(4):
        dataset = ZarrDataset(str(tmp_path / "a.zarr"), shuffle=shuffle, place=ps.Place(rank, 4), window_bytes=300)
        loader = ps.DataLoader(dataset, 4)
        found += (some := batches(loader))
        requests += sum(each.requests for each in loader.stats().workers)
        counts.append(len(some))
    assert counts == [15] * 4
    every = np.concatenate(found)
    np.testing.assert_array_equal(every[np.argsort(every[:, 0, 0])], values)
    assert requests <= 60 + 3  # a chunk at the border of two lanes is read by both


def test_advice_for_samples_by_number_is_code_that_runs(url):
    dataset = ZarrDataset(url)
    with pytest.raises(Unusable) as refused:
        dataset[3]
    single, loader = re.search(r"use (dataset\S+), .* (torch\S+, )…\)$", refused.value.message).groups()
    names = {"dataset": dataset, "torch": torch}
    assert torch.equal(eval(single, names), torch.from_numpy(VALUES[3]))  # noqa: S307  the advice itself
    found = eval(f"{loader}batch_size=4)", names)  # noqa: S307
    np.testing.assert_array_equal(np.concatenate(batches(found)), VALUES)


def test_offsets_of_targets_that_are_not_there_are_refused(url):
    with pytest.raises(Unusable, match=r"target_offsets=range\(1, 3\) needs targets"):
        ps.ZarrDataset(url, target_offsets=range(1, 3))


@pytest.mark.parametrize("version", [2, 3])
def test_packed_values_are_those_that_xarray_decodes(tmp_path, version):
    values = np.random.default_rng(1).normal(280, 10, (30, 4, 5))
    values[3, 1] = np.nan
    packed = {"dtype": "i2", "scale_factor": 0.01, "add_offset": 280.0, "_FillValue": -32768, "chunks": (7, 4, 5)}
    path = str(tmp_path / "x.zarr")
    encoding, consolidated = {"t": packed}, version == 2
    xr.Dataset({"t": (DIMS, values)}).to_zarr(path, zarr_format=version, encoding=encoding, consolidated=consolidated)
    wanted = xr.open_zarr(path, chunks=None, consolidated=consolidated).t.to_numpy()
    found = np.concatenate([batch["t"].numpy() for batch in ps.DataLoader(ZarrDataset(path), 4)])
    assert (found.dtype, found.tobytes()) == (wanted.dtype, wanted.tobytes())


@pytest.fixture
def labels(tmp_path):
    """Return a group of Zarr v2 as xarray has it: integers 0 and 1, with zarr's default fill value."""
    root = zarr.create_group(str(tmp_path / "l.zarr"), zarr_format=2)
    for name, attributes in (("labels", {}), ("packed", {"scale_factor": 0.5})):
        array = root.create_array(name, data=np.array([[0, 1], [1, 0]], "i2"), fill_value=0)
        array.attrs.update(attributes | {"_ARRAY_DIMENSIONS": ["t", "x"]})
    return str(tmp_path / "l.zarr")


def test_integers_are_masked_by_an_attribute_of_cf_or_by_the_users_word(labels):
    plain = [sample["labels"] for sample in ZarrDataset(labels, output="numpy")]
    assert np.array_equal(plain, np.array([[0, 1], [1, 0]], "i2"))
    assert plain[0].dtype == np.int16
    nan = np.nan
    packed = [sample["packed"] for sample in ZarrDataset(labels, output="numpy")]
    asked = [sample["labels"] for sample in ZarrDataset(labels, output="numpy", decode_cf=True)]
    assert np.array_equal(packed, [[nan, 0.5], [0.5, nan]], equal_nan=True)
    assert np.array_equal(asked, [[nan, 1], [1, nan]], equal_nan=True)


def test_absent_times_of_v2_without_a_fill_value_are_nat(tmp_path):
    array = zarr.create_array(
        str(tmp_path / "t"), shape=(4,), chunks=(2,), dtype="M8[s]", fill_value=None, zarr_format=2
    )
    array[:2] = np.array([5, 6], "M8[s]")
    found = np.array([*ZarrDataset(str(tmp_path / "t"), output="numpy")])
    assert found.tolist() == array[:].tolist()
    assert np.isnat(found).tolist() == [False, False, True, True]


def test_group_whose_static_field_sorts_first_is_sampled_along_time(tmp_path):
    root = zarr.create_group(str(tmp_path / "g.zarr"))
    root.create_array("lsm", data=numbered((6, 8)), dimension_names=DIMS[1:])
    root.create_array("t2m", data=VALUES, dimension_names=DIMS, chunks=(4, 6, 8))
    for dims in (None, "time"):
        found = [*ZarrDataset(str(tmp_path / "g.zarr"), dims=dims, output="numpy")]
        assert np.array_equal([each["t2m"] for each in found], VALUES)
        assert all(np.array_equal(each["lsm"], numbered((6, 8))) for each in found)


@pytest.mark.parametrize("shuffle", [False, True])
def test_a_loader_takes_the_shuffle_that_its_dataset_has(url, shuffle):
    dataset = ps.ZarrDataset(url, shuffle=shuffle, output="numpy")
    same, plain = (ps.DataLoader(dataset, 2, **options) for options in ({"shuffle": shuffle}, {}))
    assert [batch.tolist() for batch in same] == [batch.tolist() for batch in plain]
    with pytest.raises(Unusable, match="has its own shuffle"):
        ps.DataLoader(dataset, 2, shuffle=not shuffle)


@pytest.mark.parametrize("workers", [0, 1])
def test_failing_transform_names_the_sample(url, workers):
    dataset = ZarrDataset(url)
    dataset.transform = lambda sample: sample[99] if float(sample.flatten()[0]) == VALUES[3].flatten()[0] else sample
    with pytest.raises(IndexError) as caught:
        [*ps.DataLoader(dataset, 4)]
    assert any("sample 3 of file://" in note and "a.zarr" in note for note in caught.value.__notes__)
    dataset.transform = lambda sample: next(iter(sample[:0]))
    with pytest.raises(RuntimeError, match=r"the transform of sample 0 of file://.*a.zarr.* raised StopIteration"):
        [*ps.DataLoader(dataset, 4, num_workers=workers)]
