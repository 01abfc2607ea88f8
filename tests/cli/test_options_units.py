"""Times and sizes are read as people write them, and nothing is guessed."""

from __future__ import annotations

import pytest

from penstock.cli.options import seconds, size_bytes
from penstock.errors import Unusable


@pytest.mark.parametrize(
    ("text", "value"), [("90", 90), ("1.5h", 5400), ("15m", 900), ("2 d", 172_800), ("1W", 604_800), ("0", 0)]
)
def test_times(text, value):
    assert seconds(text, "--expires") == value


@pytest.mark.parametrize("text", ["", "h", "-1h", "1y", "1h30m", "inf", "nan", "1e3"])
def test_other_times_are_refused(text):
    with pytest.raises(Unusable, match=r"--expires .*like 15m or 7d"):
        seconds(text, "--expires")


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("10", 10),
        ("10k", 10_240),
        ("4MiB", 4 << 20),
        ("4 MB", 4_000_000),
        ("1.5G", 3 << 29),
        ("7b", 7),
        ("1Ti", 1 << 40),
    ],
)
def test_sizes(text, value):
    assert size_bytes(text, "--larger") == value


@pytest.mark.parametrize("text", ["", "k", "-1", "1x", "1kk", "1 MiBs", "0x10"])
def test_other_sizes_are_refused(text):
    with pytest.raises(Unusable, match=r"--larger .*like 10k or 4MiB"):
        size_bytes(text, "--larger")
