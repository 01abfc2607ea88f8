"""Values in another floating-point type: those that torch itself converts; samples are stacked as they are nested."""

import pickle
import re

import numpy as np
import pytest
import torch

import penstock as ps
from penstock.data.reading.pool import MemoryPool
from penstock.data.zarr.dataset import ZarrDataset
from penstock.data.zarr.values import Stacking, Values, float_type
from penstock.errors import Unusable
from tests.data.zarr.stores import DIMS, write

FLOATS = np.random.default_rng(0).normal(size=(21, 6, 8)).astype("f4") * 100
LABELS = np.arange(21 * 6 * 8, dtype="i4").reshape(21, 6, 8)


@pytest.fixture
def urls(tmp_path):
    write(tmp_path / "a.zarr", FLOATS, DIMS, chunks=(4, 3, 8))
    write(tmp_path / "b.zarr", LABELS, DIMS, chunks=(4, 6, 8))
    return {"a": str(tmp_path / "a.zarr"), "b": str(tmp_path / "b.zarr")}


def epoch(dataset, **options):
    batches = list(ps.DataLoader(dataset, 4, **options))
    return {name: torch.cat([batch[name] for batch in batches]) for name in ("a", "b")}


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16, torch.float64])
@pytest.mark.parametrize(
    "shape", [{}, {"offsets": (-1, 0)}, {"patch": {"y": 2, "x": 5}}, {"select": {"y": [5, 0], "x": 3}}]
)
def test_batches_are_those_that_torch_converts(urls, dtype, shape):
    plain = epoch(ZarrDataset(urls, **shape, shuffle=True))
    found = epoch(ZarrDataset(urls, **shape, shuffle=True, dtype=dtype))
    assert found["a"].dtype == dtype
    assert torch.equal(found["a"], plain["a"].to(dtype))
    assert torch.equal(found["b"], plain["b"])


def test_samples_transforms_and_random_access_have_the_type_too(urls):
    options = {"dtype": "bfloat16"}
    wanted = torch.from_numpy(FLOATS).bfloat16()
    assert torch.equal(torch.stack([sample["a"] for sample in ZarrDataset(urls, **options)]), wanted)
    assert torch.equal(ZarrDataset(urls, **options).as_map()[20]["a"], wanted[20])
    kept = ZarrDataset(urls, transform=lambda sample: (sample["a"], sample["b"]), **options)
    floats, labels = next(iter(ps.DataLoader(kept, 4)))
    assert torch.equal(floats, wanted[:4])
    assert labels.dtype == torch.int32


def test_targets_have_the_type_and_workers_deliver_it(urls):
    dataset = ZarrDataset(urls["a"], urls["a"], target_offsets=1, dtype=torch.bfloat16)
    inputs, targets = next(iter(ps.DataLoader(dataset, 4, num_workers=1)))
    assert inputs.dtype == targets.dtype == torch.bfloat16
    assert torch.equal(inputs[1:], targets[:-1])


def test_numpy_has_float16(urls):
    found = next(iter(ps.DataLoader(ZarrDataset(urls["a"], output="numpy", dtype=np.float16), 4)))
    assert isinstance(found, np.ndarray)
    np.testing.assert_array_equal(found, FLOATS[:4].astype("f2"))
    with pytest.raises(Unusable, match="NumPy has no bfloat16"):
        ZarrDataset(urls["a"], output="numpy", dtype="bfloat16")


def test_a_value_beyond_float16_is_an_error(tmp_path):
    values = FLOATS.copy()
    values[:, 0, 0], values[2, 3, 4] = np.inf, np.nan
    write(tmp_path / "there.zarr", values, DIMS, chunks=(4, 6, 8))
    found = torch.cat(list(ps.DataLoader(ZarrDataset(str(tmp_path / "there.zarr"), dtype=torch.float16), 4)))
    assert torch.equal(found.nan_to_num(7), torch.from_numpy(values).half().nan_to_num(7))
    values[9, 1, 1] = -101_325
    write(tmp_path / "beyond.zarr", values, DIMS, chunks=(4, 6, 8))
    with pytest.raises(Unusable, match="a value of 101325"):
        list(ps.DataLoader(ZarrDataset(str(tmp_path / "beyond.zarr"), dtype=torch.float16), 4))
    with pytest.raises(Unusable, match="a value of 101325"):
        list(ZarrDataset(str(tmp_path / "beyond.zarr"), dtype=torch.float16))
    assert len(list(ps.DataLoader(ZarrDataset(str(tmp_path / "beyond.zarr"), dtype=torch.bfloat16), 21))) == 1


def test_normalised_values_are_converted(urls):
    statistics = ZarrDataset(urls).statistics().only("a")
    exact = epoch(ZarrDataset(urls, normalize=statistics))
    found = epoch(ZarrDataset(urls, normalize=statistics, dtype=torch.bfloat16))
    assert torch.equal(found["a"], exact["a"].bfloat16())
    assert torch.equal(found["b"], exact["b"])


def test_a_batch_takes_as_much_memory_as_its_values(urls):
    sizes = [ZarrDataset(urls, dtype=each).plan(4).memory_bytes for each in (torch.bfloat16, None, torch.float64)]
    assert np.diff(sizes).tolist() == [4 * 4 * 48 * 2, 4 * 4 * 48 * 4]


def test_a_type_that_changes_nothing_is_refused(urls):
    with pytest.raises(Unusable, match=r"dtype=torch\.bfloat16 is for floating-point .* have int32"):
        ZarrDataset(urls["b"], dtype=torch.bfloat16)


@pytest.mark.parametrize("given", [torch.int64, "int64", "half", 16, np.complex64, torch.float8_e4m3fn, "", {}])
def test_any_other_type_is_refused(urls, given):
    with pytest.raises(Unusable, match=re.escape(f"one of these names, got {given!r}")):
        ZarrDataset(urls["a"], dtype=given)


def test_types_have_several_names():
    assert [float_type(each) for each in ("float64", float, np.float64, torch.float64)] == [torch.float64] * 4
    assert float_type(None) is None


LARGE = (128, 256)  # of float32: 128 KiB


TYPES = pytest.mark.parametrize("dtype", [None, torch.bfloat16])


def _stacking(*, numpy=False, dtype=None, free_bytes=1 << 24):
    return Stacking(MemoryPool(free_bytes), Values(("",), None, numpy, dtype))


def test_nested_samples_are_stacked():
    first, second = np.zeros((2, 3), "f4"), np.ones((2, 3), "f4")
    samples = [({"a": first, "b": first[0]}, first), ({"a": second, "b": second[0]}, second)]
    inputs, targets = _stacking(numpy=True)(samples)
    assert (inputs["a"].shape, inputs["b"].shape, targets.shape) == ((2, 2, 3), (2, 3), (2, 2, 3))
    tensors, _ = _stacking()(samples)
    assert isinstance(tensors["a"], torch.Tensor)
    assert torch.equal(tensors["a"], torch.from_numpy(np.stack([first, second])))


@pytest.mark.parametrize("shape", [(3,), LARGE])
def test_a_batch_shares_no_memory_with_its_samples(shape):
    view = np.zeros(shape, "f4")
    batch = _stacking()([view])
    batch += 1
    assert not view.any()


@TYPES
def test_later_batches_do_not_overwrite_a_kept_batch(dtype):
    stacking = _stacking(dtype=dtype)
    kept = [stacking([np.full(LARGE, number, "f4")])[0, 3:5] for number in range(20)]
    assert [each.unique().tolist() for each in kept] == [[float(number)] for number in range(20)]


@TYPES
def test_memory_of_a_batch_is_used_for_the_next(dtype):
    sample = np.zeros(LARGE, "f4")
    stacking = _stacking(dtype=dtype, free_bytes=3 * 4 * sample.nbytes)
    addresses = {stacking([sample] * 4).data_ptr() for _ in range(200)}
    assert len(addresses) == 1


@TYPES
def test_samples_of_several_shapes_are_refused(dtype):
    with pytest.raises(ValueError, match="same shape"):
        _stacking(dtype=dtype)([np.zeros(LARGE, "f4"), np.zeros(LARGE[1:], "f4")])


def test_stacking_is_usable_after_pickling():
    stacking = pickle.loads(pickle.dumps(_stacking(numpy=True)))
    assert stacking([np.ones(2)]).tolist() == [[1, 1]]
