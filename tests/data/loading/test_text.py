"""The text is narrow enough for a terminal, and numbers have units that people read."""

from __future__ import annotations

import pytest

from penstock.data.loading.report import rate, seconds
from penstock.display import size
from penstock.testing.servers import Scripted
from tests.data.loading import plants


@pytest.mark.parametrize(
    ("value", "text"),
    [(0.0, "0 µs"), (2e-6, "2 µs"), (0.0123, "12.3 ms"), (1.0, "1.0 s"), (12_345.6, "12,345.6 s")],
)
def test_seconds_have_a_unit(value, text):
    assert seconds(value) == text


@pytest.mark.parametrize(
    ("value", "text"),
    [(0, "0 B"), (1023, "1,023 B"), (1536, "1.5 KiB"), (1 << 30, "1.0 GiB"), (1 << 50, "1,024.0 TiB")],
)
def test_sizes_have_a_unit(value, text):
    assert size(value) == text
    assert rate(value) == f"{text}/s"


def test_a_report_is_text_of_a_terminal_s_width():
    with Scripted(plants.objects("none")) as server:
        loader = plants.loader("none", server.url, urls=["s3://bucket/train/warm/000"] * 12)
        list(loader)
    lines = str(loader.report()).splitlines()
    assert lines[0].startswith("The training loop waited ")
    assert any("p99" in line for line in lines)
    assert sum("s3://bucket/train/warm/000" in line for line in lines) == 10
    assert max(len(line) for line in lines if "s3://" in line) <= 100
