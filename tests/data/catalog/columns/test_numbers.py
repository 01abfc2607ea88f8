"""Integers are held in the type with the fewest bytes that holds them all."""

import numpy as np
import pytest

from penstock.data.catalog.columns.column import narrowest, pack


@pytest.mark.parametrize(
    ("values", "dtype"),
    [
        ([], "|i1"),
        ([-1, 127], "|i1"),
        ([0, 255], "|u1"),
        ([-1, 128], "<i2"),
        ([-1, (1 << 31) - 1], "<i4"),
        ([0, (1 << 32) - 1], "<u4"),
        ([-1, 1 << 31], "<i8"),
        ([0, (1 << 63) - 1], "<i8"),
    ],
)
def test_the_narrowest_type_holds_all_values(values, dtype):
    found = narrowest(np.array(values, np.int64))
    assert found.dtype.str == dtype
    assert pack([found])[0].values.tolist() == values
