"""Reads go on for a given time over few objects or many, whole ones and ranges; each read is verified."""

from __future__ import annotations

import pytest

from penstock.cli.bench.run import listing, read_large, read_small
from penstock.source import open_source
from penstock.testing.faults import FAULTS, Match
from penstock.values import ObjectMeta


@pytest.fixture
def source(server):
    with open_source("s3://bucket/", server.store)[0] as opened:
        yield opened


def test_a_listing_ends_with_its_time_or_its_keys(server, source):
    for number in range(30):
        server.put("bucket", f"a/{number:02}", b"" if number == 7 else bytes(number + 1))
    found, metas = listing(source, "a/", 60.0)
    assert (found.objects, len(metas)) == (30, 29), "empty objects tell nothing when they are read"
    assert found.detail.startswith("30 keys, ")
    found, metas = listing(source, "none/", 60.0)
    assert (found.objects, metas) == (0, [])


def test_single_small_object_is_read_repeatedly_and_some_samples_are_kept(server, source):
    server.put("bucket", "one", b"x" * 500)
    found, kept = read_small(source, [ObjectMeta("one", 500)], 0.1)
    assert found.objects > 0
    assert found.size_bytes == 500 * found.objects
    assert {(span.key, data) for span, data in kept} == {("one", b"x" * 500)}
    assert len(kept) <= 64


def test_large_objects_are_read_in_ranges_of_all_their_bytes(server, source):
    size = (17 << 20) + 5
    server.put("bucket", "big", bytes(size))
    found = read_large(source, [ObjectMeta("big", size), ObjectMeta("small", 10)], 0.05)
    assert found.outcome == "measured"
    assert "of 1 object," in found.detail
    assert {"range" in each.headers for each in server.seen("get")} == {True}


def test_there_is_nothing_to_read(source):
    assert read_small(source, [ObjectMeta("big", 1 << 30)], 1.0)[0].outcome == "skipped"
    assert read_large(source, [ObjectMeta("small", 5)], 1.0).outcome == "skipped"


def test_an_object_that_was_replaced_fails_the_step(server, source):
    etag = server.put("bucket", "one", b"x" * 500)
    server.put("bucket", "one", b"y" * 500)
    found, _ = read_small(source, [ObjectMeta("one", 500, etag.strip('"'))], 0.1)
    assert found.outcome == "failed"
    assert "one" in found.detail


def test_a_body_that_is_cut_is_read_again_and_counted_once(server, source):
    server.put("bucket", "one", b"x" * 500)
    server.fail(*[FAULTS["truncate"]] * 3, when=Match(verb="get"))
    found, kept = read_small(source, [ObjectMeta("one", 500)], 0.1)
    assert found.outcome == "measured"
    assert {data for _, data in kept} == {b"x" * 500}
