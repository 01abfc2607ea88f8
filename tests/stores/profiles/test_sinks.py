"""What profiles name is handed to the one that opens it, and nothing is where nothing is named."""

import pytest

from penstock.stores.profiles import sinks
from penstock.stores.profiles.sinks import NamedSinks, open_named, opened_by


@pytest.fixture(autouse=True)
def _as_before():
    before = [*sinks._opener]
    yield
    sinks._opener[:] = before


def test_named_sinks_go_to_the_latest_opener_only():
    first, second = [], []
    opened_by(first.append)
    opened_by(second.append)
    open_named(NamedSinks(("log",)))
    assert (first, second) == ([], [NamedSinks(("log",))])
