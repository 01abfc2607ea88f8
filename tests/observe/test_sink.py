"""The contract of sinks, held by each of ours."""

from __future__ import annotations

import pickle

import pytest

from penstock.events import Listed
from penstock.observe import ChromeTrace, JsonLines, Log, Record
from tests.observe.reads import Collected

SINKS = [JsonLines, ChromeTrace, lambda _path: Log()]


@pytest.mark.parametrize("make", SINKS)
def test_a_sink_is_a_value_that_opens_writes_and_closes_in_any_process(tmp_path, make):
    sink = make(tmp_path / "file")
    assert pickle.loads(pickle.dumps(sink)) == sink
    assert sink.events is True
    writers = [sink.open(first=first) for first in (True, False)]
    for writer in writers:
        writer.write([])
        writer.write([Record(1, Listed("s3://b/k", 1))])
    writers[0].leave()
    writers[1].close()


def test_a_record_has_no_context_unless_one_was_captured():
    assert Record(1, Listed("s3://b/k", 1)).context is None
    assert Collected().events
