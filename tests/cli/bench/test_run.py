"""A whole benchmark: every step is measured, the user's own objects are read, and nothing is left behind, ever."""

from __future__ import annotations

import os
from dataclasses import replace

import pytest

import penstock as ps
from penstock.cli.bench import BenchOptions, Machine, Result, measure, run
from penstock.errors import InvalidURL, PenstockError, Unusable
from penstock.testing.faults import FAULTS, Match

SHORT = BenchOptions(seconds=0.05)
WRITES, READS = ["write small", "write large"], ["read small", "read large"]


def told(url, store=None, options=SHORT):
    store = replace(store or ps.StoreOptions(), read=ps.ReadOptions(ahead_bytes=32 << 20))
    *results, machine = measure(url, store, options)
    assert isinstance(machine, Machine)
    return {each.name: each for each in results}


def test_an_empty_bucket_is_written_read_and_left_empty(server):
    found = told("s3://bucket/runs", server.store)
    assert [*found] == ["list", *WRITES, *READS, "delete"]
    assert {each.outcome for each in found.values()} == {"measured"}, found
    assert server.objects("bucket") == {}
    assert server.uploads("bucket") == []
    assert {each.key.startswith("runs/penstock-bench-") for each in server.seen("put")} == {True}
    for name in (*WRITES, *READS):
        each = found[name]
        assert each.objects > 0
        assert each.size_bytes > 0
        assert each.elapsed_s > 0
        assert each.bytes_per_s == each.size_bytes / each.elapsed_s
        assert each.cpu_s > 0
        assert each.binds
    small = found["read small"]
    assert small.size_bytes == small.objects * (100 << 10)
    assert small.requests > 0
    assert 0 < small.first_byte_p50_s <= small.first_byte_p99_s
    assert small.in_flight > 0


def test_the_users_own_objects_are_read_and_none_is_touched(server):
    own = {f"train/{number}": os.urandom(1000 + number) for number in range(20)} | {"train/big": bytes(17 << 20)}
    for key, data in own.items():
        server.put("bucket", key, data)
    found = told("s3://bucket/train/", server.store)
    assert found["list"].objects == 21
    assert "of 20 objects" in found["read small"].detail
    assert server.objects("bucket") == own
    read = {each.key for each in server.seen("get")}
    assert read <= set(own)
    assert "train/big" in read


def test_read_only_sends_no_writes(server):
    server.put("bucket", "train/0", b"0" * 5000)
    found = told("s3://bucket/train/", server.store, BenchOptions(seconds=0.05, read_only=True))
    assert {name: each.outcome for name, each in found.items()} == {
        "list": "measured",
        "write": "skipped",
        "read small": "measured",
        "read large": "skipped",
    }
    assert {each.method for each in server.seen()} <= {"GET", "HEAD"}


@pytest.mark.parametrize("steps", [2, 4])
def test_closing_after_any_step_leaves_nothing_behind(server, steps):
    running = measure("s3://bucket", server.store, SHORT)
    for _ in range(steps):
        next(running)
    running.close()
    assert server.objects("bucket") == {}
    assert server.uploads("bucket") == []


@pytest.mark.parametrize("where", ["steps.put", "Written.large", "read_small", "read_large"])
def test_ctrl_c_within_any_step_leaves_nothing_behind(server, monkeypatch, where):
    """In the step itself, where objects have been written by it or before."""
    if where == "steps.put":
        put, count = run.steps.put, []

        async def interrupted(*arguments, **options):
            count.append(1)
            if len(count) == 100:  # at first 64 are under way at most, so some have arrived
                raise KeyboardInterrupt
            return await put(*arguments, **options)

        monkeypatch.setattr(run.steps, "put", interrupted)
    else:

        def interrupted(*_):
            raise KeyboardInterrupt

        monkeypatch.setattr(f"penstock.cli.bench.run.{where}", interrupted)
    with pytest.raises(KeyboardInterrupt):
        list(measure("s3://bucket", server.store, BenchOptions(seconds=600) if where == "steps.put" else SHORT))
    assert server.seen("put")
    assert server.objects("bucket") == {}
    assert server.uploads("bucket") == []


def test_a_store_that_refuses_to_write_is_read_all_the_same(server, monkeypatch):
    monkeypatch.setattr("penstock.cli.bench.run._SETTLE_S", 0.0)  # nothing arrives late
    server.put("bucket", "train/0", b"0" * 5000)
    server.fail(*[FAULTS["denied"]] * 5000, when=Match(verb="put"))
    server.fail(*[FAULTS["denied"]] * 5000, when=Match(verb="create"))
    found = told("s3://bucket/train/", server.store)
    assert found["write small"].outcome == found["write large"].outcome == "failed"
    assert "AccessDenied" in found["write small"].detail
    assert isinstance(found["write small"].error, PenstockError)
    assert found["read small"].outcome == "measured"


def test_refused_delete_fails_the_step_and_reports_the_leftover_prefix(server):
    server.fail(*[FAULTS["denied"]] * 20000, when=Match(verb="delete"))
    found = told("s3://bucket/", server.store)
    assert found["delete"].outcome == "failed"
    assert "what is left begins with s3://bucket/penstock-bench-" in found["delete"].detail
    assert server.objects("bucket")


def test_a_listing_that_fails_ends_it(server):
    found = told("s3://no-such-bucket/", server.store)
    assert [*found] == ["list"]
    assert "NoSuchBucket" in found["list"].detail


@pytest.mark.parametrize("url", ["memory://benchmarked/runs", "{tmp}/runs/"])
def test_stores_without_a_network_are_measured_too(url, tmp_path):
    found = told(url.format(tmp=tmp_path))
    assert {each.outcome for each in found.values() if each.name != "write large"} == {"measured"}, found
    assert not [path for path in tmp_path.rglob("*") if path.is_file()]
    if url.startswith("memory"):
        assert not list(ps.list(url))


def test_a_transform_is_measured_in_one_thread_and_in_several(server, monkeypatch):
    monkeypatch.setattr("penstock.cli.bench.limits._cores", lambda: 2.0)
    for number in range(4):
        server.put("bucket", f"train/{number}", bytes(2000))
    options = BenchOptions(seconds=0.05, read_only=True, transform="tests.cli.bench.test_decoding:double")
    found = told("s3://bucket/train/", server.store, options)
    assert [*found][-2:] == ["decode", "decode in threads"]
    assert (found["decode"].threads, found["decode in threads"].threads) == (1, 2)
    assert all(found[name].objects > 0 for name in ("decode", "decode in threads"))


def test_arguments_that_cannot_be_meant_are_refused_before_any_request(server):
    with pytest.raises(InvalidURL):
        next(measure("s3:/bucket", server.store))
    with pytest.raises(Unusable, match="no_such_module"):
        next(measure("s3://bucket", server.store, BenchOptions(transform="no_such_module:x")))
    for seconds in (0, -1, float("nan"), 1e9):
        with pytest.raises(Unusable, match="seconds"):
            BenchOptions(seconds=seconds)
    assert server.seen() == []


def test_results_of_failures_can_be_compared():
    assert Result("a", error=ValueError()) == Result("a", error=KeyError())


@pytest.mark.parametrize("wrong", [{"seconds": "5"}, {"seconds": None}, {"transform": 5}], ids=str)
def test_options_of_a_wrong_kind_are_refused(wrong):
    with pytest.raises(Unusable, match=next(iter(wrong))):
        BenchOptions(**wrong)
