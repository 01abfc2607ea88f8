"""Ranges and conditions are read as obspec has them."""

import pytest

from penstock.errors import Unusable
from penstock.interop.obspec import describe_object, resolve_range
from penstock.values import ObjectMeta


@pytest.mark.parametrize(
    ("wanted", "found"),
    [(None, (0, 10)), ((2, 5), (2, 5)), ([2, 99], (2, 10)), ({"offset": 3}, (3, 10)), ({"suffix": 3}, (7, 10))],
    ids=str,
)
def test_ranges(wanted, found):
    assert resolve_range(wanted, 10) == found


@pytest.mark.parametrize(
    "wrong", [(5, 5), (5, 2), (-1, 2), (10, 12), {"offset": 10}, {"suffix": 0}, {}, (1,), "1-2"], ids=str
)
def test_no_ranges(wrong):
    with pytest.raises(Unusable, match="range"):
        resolve_range(wrong, 10)


def test_missing_etag_and_modification_time_get_defaults():
    found = describe_object(ObjectMeta("root/a", 3), "a")
    assert (found["path"], found["e_tag"], found["last_modified"].timestamp()) == ("a", None, 0)
