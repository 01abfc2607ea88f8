"""Moments of values are those of NumPy's float64, however the values are divided."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as hn

from penstock.data.zarr.statistics.record import Moments, moments_of

RANDOM = np.random.default_rng(0)


def close(found, values, axes):
    values = values.astype("f8")
    there = ~np.isnan(values)
    assert np.array_equal(found.count, there.sum(axis=axes))
    assert np.array_equal(found.missing, (~there).sum(axis=axes))
    some = np.asarray(found.count) > 0
    for ours, theirs in (
        (found.mean, np.nanmean),
        (np.sqrt(found.squares / np.maximum(found.count, 1)), np.nanstd),
        (found.least, np.nanmin),
        (found.most, np.nanmax),
    ):
        with np.errstate(all="ignore"):
            wanted = np.asarray(theirs(np.where(there, values, np.nan), axis=axes))
        np.testing.assert_allclose(
            np.asarray(ours)[some], wanted[some], rtol=1e-12, atol=1e-12 * np.nanmax(abs(values))
        )


@pytest.mark.filterwarnings("ignore::RuntimeWarning")
@pytest.mark.parametrize("kept", [(), (0,), (1,), (2,), (0, 2), (2, 1)])
@pytest.mark.parametrize("shape", [(3, 4, 5000), (200, 3, 4), (2, 700, 90), (1, 1, 1)])
@pytest.mark.parametrize("dtype", ["f4", "f8", "i2", "u1", "bool", "f2"])
def test_moments_are_those_of_numpy(shape, kept, dtype):
    values = (RANDOM.normal(280, 10, shape) % 250).astype(dtype)
    if dtype[0] == "f":
        values.flat[:: max(7, values.size // 50)] = np.nan
        values[..., -1] = np.nan
    order = [axis for axis in range(3) if axis in kept]
    found = moments_of(values, order)
    if not np.isnan(values.astype("f8")).all():
        close(found, values, tuple(axis for axis in range(3) if axis not in kept))


@pytest.mark.filterwarnings("ignore::RuntimeWarning")
@given(hn.arrays("f8", st.integers(1, 60), elements=st.floats(-1e6, 1e6) | st.just(np.nan)), st.data())
def test_sets_of_values_in_any_order_give_the_moments_of_all(values, data):
    borders = sorted(data.draw(st.lists(st.integers(0, len(values)), max_size=6)))
    parts = data.draw(st.permutations(np.split(values, borders)))
    found = Moments.empty()
    for part in parts:
        found.add(moments_of(part))
    if not np.isnan(values).all():
        close(found, values, None)
    assert found.count + found.missing == len(values)


def test_a_large_mean_and_an_odd_first_value_lose_no_digits():
    values = (1e6 + RANDOM.normal(0, 1, 300_000)).astype("f8")
    values[0] = 0
    close(moments_of(values), values, None)
    values[0] = 1e6
    found = moments_of(values)
    assert abs(np.sqrt(found.squares / found.count) / values.std() - 1) < 1e-12


def test_moments_of_no_values_change_nothing():
    found = moments_of(np.arange(5.0))
    found.add(moments_of(np.empty((0, 3))))
    found.add(moments_of(np.full(3, np.nan)))
    assert (found.count, found.missing, found.mean, found.least) == (5, 3, 2, 0)
