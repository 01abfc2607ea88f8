"""A cause that is planted ten times stronger than all else is named: in threads, worker processes and ranks."""

from __future__ import annotations

import json
import os
import platform
import sys
from dataclasses import asdict, replace
from datetime import UTC, datetime

import pytest

import penstock as ps
from penstock.data.catalog.catalog import Catalog
from penstock.data.loading.report import is_scattered
from penstock.engine.node.member import NodeRate, member, node_status
from penstock.errors import Unusable
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
