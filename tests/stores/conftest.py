"""Tests that run on every store: their buckets come from ``tests.emulators``."""

from contextlib import ExitStack

import pytest

from tests.cli.conftest import _ordered, penstock  # noqa: F401  fixtures


@pytest.fixture
def stack():
    """Return a function that enters what is left again when the test ends."""
    with ExitStack() as entered:
        yield entered.enter_context
