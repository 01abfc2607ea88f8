"""A watch counts what its block does, from its start on, and keeps the errors that are a store's."""

from __future__ import annotations

import pytest

import penstock as ps
from penstock.cli.bench.limits import Result, step
from penstock.errors import NotFound, Unsupported
from penstock.testing.faults import FAULTS, Match


def test_result_rates_use_elapsed_time_and_are_zero_without_time():
    assert Result("x", objects=10, size_bytes=50, elapsed_s=2.0, cpu_s=1.0).objects_per_s == 5
    none = Result("x", objects=10)
    assert (none.objects_per_s, none.bytes_per_s, none.cores) == (0, 0, 0)


def test_a_warm_up_is_not_counted(server):
    server.put("bucket", "x", bytes(1000))
    with step("read") as watch:
        for _ in range(3):
            ps.open("s3://bucket/x", store=server.store).read()
        watch.result.objects = 3
        watch.start()
        ps.open("s3://bucket/x", store=server.store).read()
        watch.stop()
        ps.open("s3://bucket/x", store=server.store).read()
    assert watch.result.objects == 0
    assert watch.result.requests == 2, "HEAD and GET"
    assert watch.result.elapsed_s > 0


def test_throttling_is_counted(server):
    server.put("bucket", "x", bytes(1000))
    file = ps.open("s3://bucket/x", store=server.store)
    server.fail(FAULTS["503"], FAULTS["503"], when=Match(verb="get"))
    with step("read") as watch:
        file.read()
    assert (watch.result.throttled, watch.result.requests) == (2, 3)


def test_a_stores_error_is_the_result_and_any_other_leaves():
    with step("x") as watch:
        raise NotFound("gone\n", url="s3://b/x")
    assert watch.result.outcome == "failed"
    assert "gone" in watch.result.detail
    assert "\n" not in watch.result.detail
    with step("x") as watch:
        raise Unsupported("no such verb")
    assert watch.result.outcome == "skipped"
    with pytest.raises(ZeroDivisionError), step("x"):
        raise ZeroDivisionError
    with step("x", Exception) as watch:
        raise ZeroDivisionError("of the user's")
    assert watch.result.detail == "ZeroDivisionError: of the user's"
    with pytest.raises(KeyboardInterrupt), step("x", Exception):
        raise KeyboardInterrupt
