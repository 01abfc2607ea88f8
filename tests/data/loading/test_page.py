"""The page is whole in itself, shows what the report says in a real browser, and no key of an object can break it."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
from dataclasses import replace
from html.parser import HTMLParser
from itertools import combinations

import numpy as np
import pytest

from penstock.data.loading.report import LoaderReport
from penstock.data.loading.stats import ReaderStats
from penstock.data.loading.summary import CAUSES, HostReport, Quantiles, Summary
from penstock.events import SlowRequest

BROWSERS = ("chromium-headless-shell", "chromium", "chromium-browser", "google-chrome")
HOSTILE = "s3://bucket/<script>document.title='broken'</script>&\"'/ü…"
SUMMARY = Summary(
    "first byte",
    "Raise TransportOptions(connections=…).",
    90.0,
    10.0,
    dict.fromkeys(CAUSES, 10.0),
    1_000,
    64_000,
    64_010,
    10,
    1,
    7,
    (
        HostReport(
            "bucket.s3.amazonaws.com",
            64_010,
            10,
            5,
            10,
            6,
            3,
            1 << 33,
            0,
            Quantiles(0.03, 0.06, 1.2),
            Quantiles(9e7, 4e7, 1e6),
            ((0.01, 0.011, 10), (0.03, 0.033, 60_000), (1.0, 1.1, 99)),
            ((1e6, 1.1e6, 7), (9e7, 1e8, 60_000)),
        ),
        HostReport(HOSTILE, 1, 0, 0, 0, 0, 0, 0, 0, Quantiles(0, 0, 0), Quantiles(0, 0, 0)),
    ),
    (ReaderStats(batches=500, waiting_s=80.0, working_s=10.0, elapsed_s=100.0), ReaderStats()),
    (SlowRequest(12.5, HOSTILE, 100, 3, 200, 0.0),),
    1.25,
    "EUR",
)
REPORT = LoaderReport(SUMMARY)
EMPTY = Summary(None, "Nothing.", 0.0, 0.0, dict.fromkeys(CAUSES, 0.0), 0, 0, 0, 0, 0, 0, (), (ReaderStats(),), ())


class Elements(HTMLParser):
    """Collects the names of elements, and every address; raises where one is not closed."""

    def __init__(self, text):
        super().__init__()
        self.names, self.addresses, self._open = [], [], []
        self.feed(text)
        assert self._open == []

    def handle_starttag(self, tag, attrs):
        self.names.append(tag)
        self.addresses += [value for name, value in attrs if name in ("src", "href", "xlink:href")]
        if tag != "meta":
            self._open.append(tag)

    def handle_endtag(self, tag):
        assert self._open.pop() == tag


@pytest.mark.parametrize("report", [REPORT, LoaderReport(EMPTY), LoaderReport(replace(SUMMARY, cause=None, hosts=()))])
def test_a_page_is_whole_and_asks_for_nothing(report):
    text = report.html()
    found = Elements(text)
    assert "script" not in found.names
    assert found.addresses == []
    assert re.findall(r"url\(|@import|https?:", text) == []
    assert "NaN" not in text
    assert "nan" not in re.findall(r'"([^"]*)"', text)


def browser():
    found = next(filter(None, map(shutil.which, BROWSERS)), None)
    if found is None and os.environ.get("PENSTOCK_REQUIRE_SERVERS") == "1":
        pytest.fail("no Chromium: apt-get install chromium-headless-shell")
    return found or pytest.skip("no Chromium: apt-get install chromium-headless-shell")


def test_a_browser_shows_the_plots_and_the_tables(tmp_path):
    page, picture = tmp_path / "report.html", tmp_path / "report.png"
    page.write_text(REPORT.html(), "utf-8")
    command = [browser(), "--no-sandbox", "--disable-gpu", "--host-resolver-rules=MAP * ~NOTFOUND"]
    command += [f"--user-data-dir={tmp_path / 'profile'}", "--window-size=800,1600"]
    shown = subprocess.run(
        [*command, f"--screenshot={picture}", "--dump-dom", page.as_uri()], capture_output=True, timeout=120, check=True
    )
    text = shown.stdout.decode()
    assert "<title>Penstock: report of a loader</title>" in text, "no script has run"
    assert text.count("<svg") == 1 + 2 + 2
    assert text.count("<rect") >= 10 + 3 + 2 + 3
    assert "bucket.s3.amazonaws.com" in text
    assert "&lt;script&gt;" in text
    assert "1.2500 EUR" in text
    assert "6, 3" in text, "hedges"
    assert "64,010 requests, 10 repeated, 1 failed for good, 7 from a cache" in text
    assert picture.read_bytes().startswith(b"\x89PNG")


# Machado, Oliveira and Fernandes 2009: linear RGB as protanopes, deuteranopes and tritanopes see it.
SEEN = {
    "anybody": np.eye(3),
    "a protanope": [[0.152, 1.053, -0.205], [0.115, 0.786, 0.099], [-0.004, -0.048, 1.052]],
    "a deuteranope": [[0.367, 0.861, -0.228], [0.280, 0.673, 0.047], [-0.012, 0.043, 0.969]],
    "a tritanope": [[1.256, -0.077, -0.179], [-0.078, 0.931, 0.148], [0.005, 0.691, 0.304]],
}
TO_XYZ = np.array([[0.4339, 0.3762, 0.1899], [0.2126, 0.7152, 0.0722], [0.0177, 0.1094, 0.8730]])  # white is 1, 1, 1


def _lab(colour, seen):
    values = np.array([int(colour[at : at + 2], 16) / 255 for at in (1, 3, 5)])
    linear = np.where(values <= 0.04045, values / 12.92, ((values + 0.055) / 1.055) ** 2.4)
    x, y, z = (
        np.cbrt(each) if each > 0.008856 else 7.787 * each + 16 / 116
        for each in TO_XYZ @ np.clip(np.array(seen) @ linear, 0, 1)
    )
    return np.array([116 * y - 16, 500 * (x - y), 200 * (y - z)])


@pytest.mark.parametrize("eyes", SEEN)
def test_all_cause_colours_are_distinguishable_under_simulated_colour_vision(eyes):
    found = re.findall(r'<span class="key" style="background:(#[0-9a-f]{6})"></span>([a-z ]+)', REPORT.html())
    assert {name for _, name in found} == {"computing", *CAUSES}
    seen = {name: _lab(colour, SEEN[eyes]) for colour, name in found}
    least = min((np.linalg.norm(seen[one] - seen[other]), one, other) for one, other in combinations(seen, 2))
    assert least[0] > 25, least
