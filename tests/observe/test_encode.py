"""Events as values and as sentences: all fields, no secret."""

from __future__ import annotations

import os
from dataclasses import fields

import pytest

from penstock.errors import TimedOut
from penstock.events import Committed, OperationEnded, RequestEnded, Retried, records
from penstock.observe import Record
from penstock.observe.sink import process, sentence, serialize_record

KINDS = [getattr(records, name) for name in records.__all__ if name not in ("Event", "Outcome")]


@pytest.mark.parametrize("kind", KINDS)
def test_every_field_of_every_event_is_shown(kind):
    event = kind(**{field.name: 1 for field in fields(kind)})
    shown = serialize_record(Record(1_500_000_000, event), {"pid": 42})
    assert {name: shown.pop(name) for name in ("time", "pid", "event")} == {
        "time": 1.5,
        "pid": 42,
        "event": kind.__name__,
    }
    assert shown == {field.name: 1 for field in fields(kind)}


def test_the_rank_is_shown_where_there_is_one(monkeypatch):
    assert process() == {"pid": os.getpid()}
    monkeypatch.setenv("RANK", "5")
    assert serialize_record(Record(0, Committed("s3://b/k", 3, "tag")), process())["rank"] == "5"


@pytest.mark.parametrize(
    ("error", "text"), [(TimedOut("too slow"), "TimedOut: too slow"), (ValueError("my password"), "ValueError")]
)
def test_only_errors_of_ours_are_shown_with_their_text(error, text):
    event = Retried("s3://b/k", error, 1, 0.5)
    assert serialize_record(Record(0, event), {})["error"] == text
    assert sentence(event) == f"Retried s3://b/k error={text} attempt=1 delay_s=0.5"


def test_event_sentence_omits_empty_fields():
    event = OperationEnded("s3://b/k", 3, 0, "read", "done", 1 / 3)
    assert sentence(event) == "OperationEnded s3://b/k id=3 parent=0 kind=read outcome=done elapsed_s=0.333333"
    assert "error=" not in sentence(RequestEnded("u", 1, 0, "read", 1, "done", 200, 0, 5, 0.1, 0.2))
