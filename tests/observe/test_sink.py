"""The contract of sinks, held by each of ours."""

from __future__ import annotations

import os
import pickle
from dataclasses import fields

import pytest

from penstock.errors import TimedOut, Unusable
from penstock.events import Committed, Listed, OperationEnded, RequestEnded, Retried, records
from penstock.observe import ChromeTrace, JsonLines, Log, Record
from penstock.observe.sink import AppendedFile, named_path, process, sentence, serialize_record
from tests.children import forked
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


KINDS = [
    each
    for each in vars(records).values()
    if isinstance(each, type) and issubclass(each, records.Event) and each is not records.Event
]


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


def test_a_path_is_absolute_and_has_the_process_and_its_rank(monkeypatch, tmp_path):
    monkeypatch.chdir(tmp_path)
    assert named_path("a-{pid}-{rank}") == f"{tmp_path}/a-{os.getpid()}-0"
    monkeypatch.setenv("RANK", "3")
    assert named_path(tmp_path / "{rank}") == f"{tmp_path}/3"


@pytest.mark.parametrize("path", ["{}", "{0}", "{host}", "{"])
def test_other_braces_are_refused(path):
    with pytest.raises(Unusable, match="braces"):
        named_path(path)


def test_processes_that_append_at_once_cut_no_line(tmp_path):
    path = str(tmp_path / "lines")

    def work():
        file = AppendedFile(path)
        for _ in range(50):
            file.write((f"{os.getpid()} " * 3000 + "\n").encode())
        file.close()
        file.close()

    with forked(work) as one, forked(work) as other, forked(work) as third:
        assert [one(), other(), third()] == [0, 0, 0]
    lines = (tmp_path / "lines").read_text().splitlines()
    assert len(lines) == 150
    assert all(len(set(line.split())) == 1 and len(line.split()) == 3000 for line in lines)


def test_record_cut_by_full_disk_is_completed_before_new_records(monkeypatch, tmp_path):
    file, write = AppendedFile(str(tmp_path / "file")), os.write
    file.write(b"one\n")
    room = [2]

    def full(descriptor, data):
        if not room[0]:
            raise OSError(28, "No space left on device")
        count = write(descriptor, data[: room[0]])
        room[0] -= count
        return count

    monkeypatch.setattr(os, "write", full)
    for _ in range(2):
        with pytest.raises(OSError, match="No space"):
            file.write(b"second\n")
    with pytest.raises(OSError, match="No space"):
        file.write(b"third\n")
    monkeypatch.undo()
    file.write(b"fourth\n")
    assert (tmp_path / "file").read_bytes() == b"one\nsecond\nfourth\n"


def test_only_one_process_is_alone(tmp_path):
    one, other = AppendedFile(str(tmp_path / "file")), AppendedFile(str(tmp_path / "file"))
    assert one.alone()
    one.share()
    assert not other.alone()
    other.share()
    one.close()
    assert other.alone()
    other.write(b"0123456789")
    assert (other.size(), other.head(3), other.tail(3)) == (10, b"012", b"789")
    other.cut(4)
    assert other.tail(10) == b"0123"
    other.close()
