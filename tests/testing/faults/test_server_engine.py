"""The engine records each request with its fault and outcome, and waits before it answers where it is told to."""

from __future__ import annotations

import time

import penstock as ps
from penstock.source import open_source
from penstock.testing.faults import FAULTS, FaultServer, Match, Settings


def test_a_script_is_played_in_order_and_recorded(held):
    held.put("bucket", "k", b"bytes")
    held.fail(FAULTS["reset"], FAULTS["503"], when=Match(verb="get", key="k"))
    with ps.open("s3://bucket/k", store=held.store) as file:
        assert file.read() == b"bytes"
    assert [(seen.verb, seen.fault, seen.status) for seen in held.seen()] == [
        ("head", "", 200),
        ("get", "reset", 0),
        ("get", "503", 503),
        ("get", "", 200),
    ]
    assert [seen.number for seen in held.seen("get", "bucket", "k")] == [2, 3, 4]
    assert held.seen("get", "bucket", "other") == []
    assert held.opened() == len({seen.connection for seen in held.seen()}) == 2


def test_latency_comes_before_the_first_byte():
    with FaultServer.within(Settings(latency_ms=50)) as server:
        server.put("bucket", "k", b"bytes")
        source, _ = open_source("s3://bucket/", server.store)
        source.head("k")
        began = time.monotonic()
        source.head("k")
        assert time.monotonic() - began >= 0.05
