"""A cause that is planted ten times stronger than all else is named: in threads, worker processes and ranks."""

from __future__ import annotations

import json
import os
import platform
import re
import shutil
import subprocess
import sys
from dataclasses import asdict, replace
from datetime import UTC, datetime
from html.parser import HTMLParser
from itertools import combinations

import numpy as np
import pytest

import penstock as ps
from penstock.data.catalog.catalog import Catalog
from penstock.data.loading.report import LoaderReport, is_scattered, rate, seconds
from penstock.data.loading.stats import ReaderStats
from penstock.data.loading.summary import CAUSES, HostReport, Quantiles, Summary
from penstock.display import size
from penstock.engine.node.member import NodeRate, member, node_status
from penstock.errors import Unusable
from penstock.events import SlowRequest
from penstock.testing.servers import Scripted
from tests.data.datasets.ranks import free_port, ranks
from tests.data.loading import plants
from tests.data.shards.archives import tar


@pytest.mark.parametrize("workers", [0, 2])
@pytest.mark.parametrize("cause", [each for each in plants.FAULTS if each != "python"])
def test_a_planted_cause_is_named(cause, workers):
    root = f"{cause.replace(' ', '-')}-{workers}"
    urls = [f"s3://bucket/{key}" for key in plants.keys(cause, root)]
    with Scripted(plants.objects(cause, root)) as server:
        report, epochs = plants.named(plants.loader(cause, server.url, workers, urls), cause)
    assert report.cause == cause, str(report)
    assert report.waiting > 0.05
    assert sum(report.causes.values()) == pytest.approx(report.waiting_s)
    (host,) = (each for each in report.hosts if each.host == server.url.partition("//")[2])
    assert host.responses - host.failed == epochs * len(plants.keys(cause))
    assert len(report.slowest) == min(10, epochs * len(plants.keys(cause)))
    if cause == "first byte":
        assert f"s3://bucket/{root}/cold/" in report.recommendation
        assert all("/cold/" in each.url for each in report.slowest)
        assert host.first_byte_s.p99 > 0.15
    if cause == "paced":
        # The process may know other rates of this bucket, too, of the servers of the tests before.
        (rate,) = (each for each in report.rates if each.requests == f"reads of s3://bucket/{root}/")
        assert 0 < rate.share_per_s <= rate.per_s
        assert f"{rate.requests}: {rate.per_s:,.1f} a second" in str(report)
        assert asdict(rate) in json.loads(report.json())["rates"]
        assert rate.requests in report.html()
    if cause == "throttled":
        assert host.retried >= host.throttled == epochs * len(plants.keys(cause))


def test_small_samples_of_shards_in_one_request_each_are_scattered():
    for number in range(2):
        with ps.open(f"memory://scattered/small/{number}.tar", "wb") as file:
            file.write(tar([(f"{number}{each}.bin", b"x" * 1000) for each in range(20)]))
        with ps.open(f"memory://scattered/large/{number}.tar", "wb") as file:
            file.write(tar([(f"{number}{each}.bin", b"x" * (300 << 10)) for each in range(3)]))
        with ps.open(f"memory://scattered/objects/{number}.bin", "wb") as file:
            file.write(b"x" * 1000)
    small, large = (ps.MapDataset.from_shards(f"memory://scattered/{name}/") for name in ("small", "large"))
    objects = ps.MapDataset.from_prefix("memory://scattered/objects/")

    def found(dataset, shuffle):
        loader = ps.DataLoader(dataset, 2, shuffle=shuffle, collate_fn=list)
        return is_scattered(loader._batches.dataset)

    assert found(small, shuffle=True)
    assert found(ps.concat(objects, small), shuffle=True)
    for other in (found(small, ps.order.Lanes()), found(small, ps.order.BlockShuffle()), found(small, shuffle=False)):
        assert not other
    assert not found(large, shuffle=True)
    assert not found(objects, shuffle=True)
    assert not found(ps.concat(objects, small), ps.order.Lanes())
    assert is_scattered(ps.IterableDataset.from_shards("memory://scattered/small/", shuffle=True).batched(2).dataset)


@pytest.mark.parametrize("workers", [0, 2])
def test_a_slow_disk_is_named(workers, tmp_path, monkeypatch):
    whole = os.preadv

    def slow(*arguments):
        plants.pause(0.15)
        return whole(*arguments)

    monkeypatch.setattr(os, "preadv", slow)
    for key in range(40):
        (tmp_path / f"{key:03}").write_bytes(bytes(500))
    dataset = ps.MapDataset.from_prefix(f"{tmp_path}/", transform=plants.number)
    loader = ps.DataLoader(dataset, 8, num_workers=workers, persistent_workers=bool(workers))
    report, epochs = plants.named(loader, "disk")
    assert report.cause == "disk", str(report)
    assert "num_workers=" in report.recommendation
    assert sum(each.responses for each in report.hosts if each.host == "file") >= 40 * epochs


def test_transforms_in_pure_python_that_share_one_lock_are_named():
    interval_s = sys.getswitchinterval()
    sys.setswitchinterval(0.2)  # as long as one transform: other programs on this machine do not count as the lock
    try:
        with Scripted(plants.objects("python")) as server:
            report, _ = plants.named(plants.loader("python", server.url), "python")
    finally:
        sys.setswitchinterval(interval_s)
    assert report.cause == "python", str(report)
    assert "num_workers=" in report.recommendation


@pytest.mark.parametrize("workers", [0, 2])
def test_transforms_that_wait_get_more_threads(workers):
    with Scripted(plants.objects("decode")) as server:
        report, _ = plants.named(plants.loader("decode", server.url, workers), "decode")
    assert report.recommendation.startswith("Transforms wait for ")
    # On a busy machine, workers count as more awake than they are, and get more workers.
    assert "decode_threads=" in report.recommendation or workers
    assert sum(each.demanded_s for each in report.workers) < sum(each.working_s for each in report.workers)
    assert sum(each.used_s for each in report.workers) > 0


def test_each_rank_of_a_group_reports_on_itself():
    with Scripted(plants.objects("first byte")) as server:
        meeting = f"tcp://127.0.0.1:{free_port()}"
        found = ranks(2, meeting, _report, server.url)
    assert [each[0] for each in found] == ["first byte", "collate"], found
    assert [each[1] for each in found] == [3, 3]


def _report(url):
    from torch import distributed

    cause = ("first byte", "collate")[distributed.get_rank()]
    report, epochs = plants.named(plants.loader(cause, url), cause)
    return report.cause, report.batches / epochs


def test_the_time_that_a_loop_computes_is_not_waiting():
    with Scripted(plants.objects("none")) as server:
        loader = plants.loader("none", server.url)
        for _ in loader:
            plants.pause(0.1)
    report, stats = loader.report(), loader.stats()
    assert (report.computing_s, report.waiting_s) == (stats.computing_s, stats.waiting_s)
    assert report.computing_s > 0.35
    assert report.waiting == pytest.approx(1 - stats.utilisation)


def test_a_loader_that_has_not_begun_reports_nothing():
    report = plants.loader("none", "http://127.0.0.1:1").report()
    assert (report.cause, report.batches, report.hosts, report.slowest, report.waiting) == (None, 0, (), (), 0.0)
    assert "not input bound" in str(report)
    with pytest.raises(Unusable, match=r"penstock\.observe\.Prices"):
        plants.loader("none", "http://127.0.0.1:1").report(0.4)


@pytest.mark.parametrize("workers", [0, 2])
def test_prices_make_a_cost(workers):
    with Scripted(plants.objects("none")) as server:
        loader = plants.loader("none", server.url, workers)
        list(loader)
    assert loader.report().cost is None
    report = loader.report(ps.observe.Prices(per_1000_requests=0.4, per_gib=1 << 30, currency="EUR"))
    assert report.cost == pytest.approx(40 * 0.0004 + 40 * 500)
    assert report.currency == "EUR"
    assert "EUR" in str(report)


def test_everything_is_in_the_json_and_no_secret():
    with Scripted(plants.objects("none")) as server:
        url = "s3://bucket/train/warm/000"
        loader = plants.loader("none", server.url, urls=[url, url])
        list(loader)
    found = json.loads(loader.report().json())
    assert set(found) >= {"cause", "recommendation", "causes", "hosts", "workers", "slowest", "waiting", "cost"}
    assert found["slowest"][0]["url"] == url
    assert found["hosts"][0]["first_byte_s"]["p50"] > 0
    assert sum(size for _, _, size in found["hosts"][0]["first_bytes"]) == 2


def test_reports_of_several_ranks_are_not_saved_over_one_another(tmp_path):
    (tmp_path / "data").mkdir()
    (tmp_path / "data" / "0").write_bytes(b"0")
    alone = ps.DataLoader(ps.MapDataset.from_prefix(f"{tmp_path}/data/"), 1).report()
    assert alone.save(tmp_path / "one.json") == str(tmp_path / "one.json")
    second = plants.changed(alone, rank=1, world=2)
    with pytest.raises(Unusable, match="2 ranks would overwrite each other"):
        second.save(tmp_path / "all.json")
    assert second.save(f"{tmp_path}/{{rank}}.json") == f"{tmp_path}/1.json"
    assert sorted(each.name for each in tmp_path.glob("*.json")) == ["1.json", "one.json"]


def test_the_rates_of_other_stores_of_the_machine_are_left_out(monkeypatch):
    known = [
        "reads of s3://bucket/mine/",
        "reads of s3://bucket/mine/deep/",
        "reads of s3://bucket/",
        "reads of s3://bucket/other/",
        "reads of s3://else/mine/",
        "reads of s3://captions/",
        "writes of s3://bucket/mine/",
    ]
    rates = tuple(NodeRate(each, 10.0, 5.0) for each in known)
    monkeypatch.setattr(member, "status", replace(node_status(), rates=rates))
    urls = ["s3://bucket/mine/a", "s3://bucket/mine/b"]
    dataset = ps.MapDataset.from_objects(urls, transform=len)
    loader = ps.DataLoader(dataset, 2)
    dataset.catalog = Catalog.build("s3://bucket/", "mine/", dataset.catalog)
    assert [each.requests for each in loader.report().rates] == known[:3]
    dataset.captions = (ps.MapDataset.from_objects(["s3://captions/a", "s3://captions/b"]),)
    dataset.second = dataset.captions[0]
    assert [each.requests for each in loader.report().rates] == [*known[:3], known[5]]


def test_report_context_contains_time_host_url_and_options(tmp_path):
    for number in range(4):
        (tmp_path / f"{number}").write_bytes(b"1")
    dataset = ps.MapDataset.from_prefix(f"{tmp_path}/", transform=plants.number)
    loader = ps.DataLoader(dataset, 2, num_workers=1, prefetch=3)
    list(loader)
    before = datetime.now(UTC).replace(microsecond=0)
    report = loader.report()
    made = report.context
    assert before <= datetime.fromisoformat(made.time) <= datetime.now(UTC)
    assert (made.host, made.version) == (platform.node(), ps.__version__)
    assert made.url == f"file://{tmp_path}/"
    assert (made.batch_size, made.num_workers, made.decode_threads, made.prefetch) == (2, 1, 0, 3)
    assert json.loads(report.json())["context"] == asdict(made)
    for shown in (str(plants.changed(report, context=replace(made, url="file:///x/"))), report.html()):
        for words in (made.time, made.host, made.version, "file:///", "batch_size=2", "num_workers=1", "prefetch=3"):
            assert words in shown
    assert max(map(len, str(report).splitlines())) <= 100
    assert "decode_threads=" in str(ps.DataLoader(dataset, 2, decode_threads=3).report())


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


@pytest.mark.parametrize(
    ("value", "text"), [(0.0, "0 µs"), (2e-6, "2 µs"), (0.0123, "12.3 ms"), (1.0, "1.0 s"), (12_345.6, "12,345.6 s")]
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
