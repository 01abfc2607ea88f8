"""The page stands alone, and shows every step and limit."""

from __future__ import annotations

import platform
import re
import subprocess
from dataclasses import replace
from datetime import UTC, datetime
from itertools import pairwise
from xml.etree import ElementTree as ET

import pytest

from penstock.cli.bench.limits import Machine, Result
from penstock.cli.commands.bench import amount, page, rate
from penstock.version import VERSION
from tests.data.loading.test_page import browser

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


def test_plot_has_a_scale_labelled_as_logarithmic():
    html = page("s3://bucket/x", MACHINE, RESULTS)
    (svg,) = re.findall(r"<svg.*?</svg>", html)
    root = ET.fromstring(svg)  # noqa: S314  our own
    lines = [float(line.get("x1")) for line in root.findall("{*}line")]
    labels = {each.text: float(each.get("x")) for each in root.findall("{*}text")}
    assert list(labels)[:6] == ["10 KiB/s", "100 KiB/s", "1 MiB/s", "10 MiB/s", "100 MiB/s", "1 GiB/s"]
    assert [labels[each] for each in list(labels)[:6]] == lines
    steps = [after - before for before, after in pairwise(lines)]
    assert max(steps) / min(steps) < 1.02, "decades are as wide as one another"
    assert any("logarithmic" in each for each in labels)
    (first, *_) = root.findall("{*}rect")
    end = float(first.get("x")) + float(first.get("width"))
    assert lines[3] < end < lines[4], "95.4 MiB/s"


BOXES = """
<script>for (const each of document.querySelectorAll("svg text")) {
  const box = each.getBBox(), view = each.ownerSVGElement.viewBox.baseVal;
  if (box.x < 0 || box.y < 0 || box.x + box.width > view.width || box.y + box.height > view.height)
    document.title = "cut off: " + each.textContent;
}</script>
"""


@pytest.mark.parametrize("window", ["600,900", "1400,900"])
def test_no_label_is_cut_off_in_a_browser(tmp_path, window):
    machine = replace(MACHINE, network="enp0s31f6-mlx5-bond0.1234", copy_bytes_per_s=2e12)
    html = page("s3://bucket/x", machine, [*RESULTS, Result("decode in threads", size_bytes=1, elapsed_s=1.0)])
    file = tmp_path / "bench.html"
    file.write_text(html + BOXES, "utf-8")
    command = [browser(), "--no-sandbox", "--disable-gpu", f"--user-data-dir={tmp_path / 'profile'}"]
    command += [f"--window-size={window}", "--dump-dom", file.as_uri()]
    shown = subprocess.run(command, capture_output=True, text=True, timeout=120, check=True).stdout
    assert "<title>penstock bench s3://bucket/x</title>" in shown


def test_page_shows_time_host_and_penstock_version():
    before = datetime.now(UTC).replace(microsecond=0)
    found = re.search(r"([0-9T:+-]{25}), Penstock (\S+) on (\S+)\.</p>", page("s3://b/", MACHINE, RESULTS))
    assert before <= datetime.fromisoformat(found[1]) <= datetime.now(UTC)
    assert (found[2], found[3]) == (VERSION, platform.node())


def test_a_page_of_nothing_has_no_plot():
    assert "<svg" not in page("s3://b/", Machine(1.0), [Result("list", "failed", "gone")])


@pytest.mark.parametrize(
    ("number", "text"), [(0, ""), (5.0, "5 B/s"), (2048, "2 KiB/s"), (3.5 * 2**20, "3.5 MiB/s"), (2**40, "1,024 GiB/s")]
)
def test_rates_are_for_people(number, text):
    assert rate(number) == text


def test_amounts_have_three_digits_or_all():
    assert [amount(each, "x") for each in (0.5, 12.34, 123456.7)] == ["0.5 x", "12.3 x", "123,457 x"]
