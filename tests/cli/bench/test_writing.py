"""What the benchmark writes has names of its own, is known while it is there, and goes."""

from __future__ import annotations

import pytest

from penstock.cli.bench.run import Written
from penstock.source import open_source
from penstock.testing.faults import FAULTS, Match


@pytest.fixture
def written(server):
    with open_source("s3://bucket/", server.store)[0] as source:
        yield Written(source, "runs/penstock-bench-x-")


def test_small_and_large_objects_are_written_and_deleted_and_others_stay(server, written):
    server.put("bucket", "runs/penstock-bench-other", b"1")
    small, large = written.small(0.05), written.large(0.05)
    there = server.objects("bucket")
    assert small.objects == len([key for key in there if "-x-small-" in key])
    assert len(there["runs/penstock-bench-x-large"]) == large.size_bytes >= 18 << 20
    assert {(meta.key, meta.size) for meta in written.metas} == {
        (key, len(data)) for key, data in there.items() if "-x-" in key
    }
    done = written.deleting()
    assert (done.outcome, done.objects) == ("measured", len(there) - 1)
    assert [*server.objects("bucket")] == ["runs/penstock-bench-other"]


def test_at_most_two_thousand_small_objects_are_written(server, written, monkeypatch):
    monkeypatch.setattr("penstock.cli.bench.run._MOST_SMALL", 30)
    assert written.small(60.0).objects == 30
    written.clear()
    assert server.objects("bucket") == {}


def test_a_write_that_arrives_late_is_found_and_deleted(server, written, monkeypatch):
    """Also one that arrives after the deletion, where a write was interrupted."""
    assert written.small(0.01).objects
    server.put("bucket", "runs/penstock-bench-x-late", b"1")
    written.clear()
    assert server.objects("bucket") == {}

    async def interrupted(*_, **__):
        raise KeyboardInterrupt

    monkeypatch.setattr("penstock.cli.bench.run.steps.put", interrupted)
    with pytest.raises(KeyboardInterrupt):
        written.small(60.0)
    late = [f"runs/penstock-bench-x-late-{number}" for number in range(3)]
    monkeypatch.setattr("penstock.cli.bench.run.sleep", lambda _: server.put("bucket", late.pop(), b"1"))
    written.clear()
    assert late == []
    assert server.objects("bucket") == {}


def test_a_large_write_that_fails_leaves_no_upload(server, written, monkeypatch):
    monkeypatch.setattr("penstock.cli.bench.run._SETTLE_S", 0.0)  # nothing arrives late
    server.fail(*[FAULTS["denied"]] * 100, when=Match(verb="complete"))
    assert written.large(0.01).outcome == "failed"
    server.heal()
    written.clear()
    assert server.uploads("bucket") == []
    assert server.objects("bucket") == {}


def test_clearing_nothing_asks_nothing(server, written):
    written.clear()
    assert server.seen() == []
