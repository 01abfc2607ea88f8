"""Verbs that are prepared one by one and sent together: told of as they end, and called off together."""

from __future__ import annotations

import threading

import pytest

from penstock.engine.contracts.driver import Attributes
from penstock.engine.fetch.batch import Batch
from penstock.errors import Cancelled, NotFound, Unusable
from penstock.values import Span
from tests.engine.fetch.store import Bucket, aside
from tests.engine.fetch.told import Told


@pytest.fixture
def started():
    """Return a function that makes calls on a bucket of this test's own; ``before`` runs before each look."""
    fetchers = []

    def start(before=lambda _key: None, **limits):
        fetchers.append(fetcher := aside(Bucket(before=before), **limits))
        told = Told()
        return Batch(lambda: fetcher, lambda: fetcher, told), told

    yield start
    for fetcher in fetchers:
        fetcher.close()


def test_nothing_is_sent_before_send_and_all_of_it_then(started):
    looked = []
    calls, told = started(looked.append)
    put = calls.put("a", b"some", Attributes(metadata={"of": "me"}))
    calls.send()
    told.all(1)
    assert put.complete
    prepared = [calls.head("a"), calls.head("none"), calls.read(Span("a", 1, 3))]
    assert not looked
    calls.send()
    assert set(told.all(3)) == set(prepared)
    assert prepared[0].result().metadata == {"of": "me"}
    with pytest.raises(NotFound):
        prepared[1].result()
    assert prepared[2].take() == b"om"
    copied = calls.copy(prepared[0].result(), "b")
    gone = calls.delete("a")
    calls.send()
    told.all(2)
    assert (copied.error, gone.error) == (None, None)
    after = [calls.head("a"), calls.head("b")]
    calls.send()
    told.all(2)
    assert [type(each.error) for each in after] == [NotFound, type(None)]


def test_metadata_or_body_above_one_request_limit_is_refused_before_sending(started):
    calls, _ = started(metadata_bytes=10, put_bytes=100)
    with pytest.raises(Unusable, match="metadata"):
        calls.put("a", b"", Attributes(metadata={"name": "a long value"}))
    with pytest.raises(Unusable, match="in one request"):
        calls.put("a", bytes(101), Attributes())


def test_cancelled_calls_end_as_cancelled_and_later_calls_succeed(started):
    gate, begun = threading.Event(), threading.Event()
    calls, told = started(lambda _key: (begun.set(), gate.wait(60)))
    first = [calls.head("a"), calls.read(Span("a", 0, 1)), calls.head("b")]
    calls.send()
    assert begun.wait(60)
    calls.call_off(first)
    gate.set()
    told.all(3)
    assert [type(each.error) for each in first[1:]] == [Cancelled] * 2
    put = calls.put("a", b"x", Attributes())
    calls.send()
    told.all(1)
    assert put.error is None
