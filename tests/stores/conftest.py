"""Tests that run on every store: their buckets come from ``tests.emulators``."""

from tests.cli.conftest import _ordered, penstock  # noqa: F401  fixtures
