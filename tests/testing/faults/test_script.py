"""Rules are played in order, count only the requests they are about, and draw from their seed."""

from __future__ import annotations

from penstock.errors import Forbidden
from penstock.source import open_source
from penstock.testing.clock import no_waiting
from penstock.testing.faults import FAULTS, Match
from penstock.values import Span


def test_fault_rules_count_only_matching_requests(held):
    for key in ("a", "b"):
        held.put("bucket", key, b"bytes")
    source, _ = open_source("s3://bucket/", held.store)
    held.fail(FAULTS["denied"], when=Match(verb="head", key="a", nth=2, times=2))
    told = []
    for key in "abababab":
        try:
            source.head(key)
            told.append(key)
        except Forbidden:
            told.append("-")
    assert "".join(told) == "ab-b-bab"


def test_a_rate_is_drawn_from_its_seed(held):
    held.put("bucket", "a", b"bytes")
    source, _ = open_source("s3://bucket/", held.store)

    def play(seed):
        held.heal()
        held.fail(FAULTS["503"], when=Match(times=None, rate=0.3, seed=seed))
        before = len(held.seen())
        with no_waiting():
            for _ in range(20):
                source.head("a")
        return [bool(seen.fault) for seen in held.seen()[before:]][:20]

    first = play(1)
    assert play(1) == first
    assert play(2) != first
    assert 0 < sum(first) < 15


def test_heal_removes_planted_faults(held):
    held.put("bucket", "k", b"bytes")
    held.fail(FAULTS["denied"], when=Match(times=None))
    held.heal()
    assert open_source("s3://bucket/", held.store)[0].read(Span("k")) == b"bytes"
