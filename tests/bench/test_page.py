"""The page stands alone, and shows every step and limit."""

from __future__ import annotations

import re
from xml.etree import ElementTree as ET

import pytest

from penstock.bench.machine import Machine
from penstock.bench.page import amount, page, rate
from penstock.bench.result import Result

MACHINE = Machine(8.0, 1 << 34, 1e10, 2e9, "eth0", 1.25e9)
RESULTS = [
    Result("list", objects=10, elapsed_s=1.0, binds="the store"),
    Result("read small", objects=100, size_bytes=10**8, elapsed_s=1.0, first_byte_p50_s=0.03, first_byte_p99_s=0.2),
    Result("read large", "skipped", "no object of 16 MiB or more"),
    Result("write small", "failed", "<b>refused</b>"),
]


def test_every_step_and_limit_is_shown_and_nothing_comes_from_elsewhere():
    html = page("s3://bucket/<x>", MACHINE, RESULTS)
    for words in (
        "s3://bucket/&lt;x&gt;",
        "95.4 MiB/s",
        "network (eth0)",
        "1.16 GiB/s",
        "30 ms",
        "200 ms",
        "8 processors",
    ):
        assert words in html
    assert "&lt;b&gt;refused&lt;/b&gt;" in html
    assert not re.search(r"(src|href)=|@import|url\(", html)
    (svg,) = re.findall(r"<svg.*?</svg>", html)
    bars = ET.fromstring(svg).findall("{http://www.w3.org/2000/svg}rect")  # noqa: S314  our own
    widths = [float(bar.get("width", "0")) for bar in bars]
    assert len(widths) == 4, "one step that moved bytes, and three limits"
    assert max(widths) < 860
    assert widths[0] < widths[1] < widths[2] < widths[3]


def test_a_page_of_nothing_has_no_plot():
    assert "<svg" not in page("s3://b/", Machine(1.0), [Result("list", "failed", "gone")])


@pytest.mark.parametrize(
    ("number", "text"), [(0, ""), (5.0, "5 B/s"), (2048, "2 KiB/s"), (3.5 * 2**20, "3.5 MiB/s"), (2**40, "1,024 GiB/s")]
)
def test_rates_are_for_people(number, text):
    assert rate(number) == text


def test_amounts_have_three_digits_or_all():
    assert [amount(each, "x") for each in (0.5, 12.34, 123456.7)] == ["0.5 x", "12.3 x", "123,457 x"]
