"""Many retries are over in a moment, and end with the error that they would have ended with."""

from __future__ import annotations

from dataclasses import replace
from time import monotonic

import pytest

import penstock as ps
from penstock.engine.operations.policy import RetryPolicy
from penstock.errors import Throttled
from penstock.testing.clock import no_waiting
from penstock.testing.faults import FAULTS, FaultServer, Match


def test_all_attempts_are_made_and_none_is_waited_for():
    with FaultServer.start() as server:
        server.put("bucket", "key", b"bytes")
        server.fail(FAULTS["503"], when=Match(verb="head", times=None))
        began, retry = monotonic(), ps.RetryOptions(attempts=24)
        with no_waiting(), pytest.raises(Throttled) as caught:
            ps.stat("s3://bucket/key", store=replace(server.store, retry=retry))
        assert caught.value.attempts == retry.attempts
        assert len(server.seen("head")) == caught.value.attempts
        assert monotonic() - began < 30  # full jitter would take 100 s on average


def test_waiting_comes_back():
    with pytest.raises(ZeroDivisionError), no_waiting():
        assert RetryPolicy.pace == 0
        raise ZeroDivisionError
    assert RetryPolicy.pace == 1
