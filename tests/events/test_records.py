"""Records are values."""

import pytest

from penstock.events import Listed, RequestStarted


def test_equal_records_are_equal_and_none_can_be_changed():
    assert Listed("s3://b/", 1) == Listed("s3://b/", 1)
    assert RequestStarted("s3://b/k", 1, 0, "read", 1) != RequestStarted("s3://b/k", 2, 0, "read", 1)
    with pytest.raises((AttributeError, TypeError)):
        Listed("s3://b/", 1).count = 2
