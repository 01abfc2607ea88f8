"""A million reads with one fault in a hundred: neither memory nor descriptors grow, and no byte is wrong."""

from __future__ import annotations

import gc
import os
from dataclasses import replace
from pathlib import Path

import pytest

import penstock as ps
from penstock.source import Source
from penstock.stores.urls import parse
from penstock.testing.clock import no_waiting
from penstock.testing.faults import FAULTS, FaultServer, Match
from penstock.values import Span

READS = int(os.environ.get("PENSTOCK_SOAK_READS", "1000000"))
KINDS = ("reset", "503", "truncate", "reset-body", "reset-headers", "empty")
BATCH = 500
GROWTH_KIB = 24 << 10


def _resident_kib() -> int:
    gc.collect()
    line = next(line for line in Path("/proc/self/status").read_text().splitlines() if line.startswith("VmRSS"))
    return int(line.split()[1])


def _descriptors() -> int:
    return sum(1 for _ in Path("/proc/self/fd").iterdir())


@pytest.mark.slow
def test_nothing_grows(seed):
    bodies = {f"{index:03d}": bytes([index % 251]) * (2000 + 37 * index) for index in range(100)}
    with FaultServer.start() as server, no_waiting():
        for key, body in bodies.items():
            server.put("bucket", key, body)
        for number, kind in enumerate(KINDS):
            when = Match(verb="get", times=None, rate=0.01 / len(KINDS), seed=seed + number)
            server.fail(FAULTS[kind], when=when)
        store = replace(server.store, transport=ps.TransportOptions(connections=64))
        source = Source(parse("s3://bucket/"), store)
        etags = {key: source.head(key).etag for key in bodies}
        spans = [Span(key, 0, len(body), etags[key], whole=True) for key, body in bodies.items()] * (BATCH // 100)
        expected = [bodies[span.key] for span in spans]
        before = (0, 0)
        for done in range(BATCH, READS + 1, BATCH):
            assert source.read_many(spans) == expected
            if done == READS // 10:
                before = (_resident_kib(), _descriptors())
        assert _resident_kib() - before[0] < GROWTH_KIB
        assert _descriptors() - before[1] <= 8
