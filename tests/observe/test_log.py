"""Events in Python's log, at DEBUG, at their own time."""

from __future__ import annotations

import logging
import os
import pickle

import pytest

from penstock.errors import Unusable
from penstock.events import Listed, emit
from penstock.observe import JsonLines, Log, to
from tests.observe.reads import keys_of, lines_of, read_all, source_of


def test_each_request_is_logged_at_debug(tmp_path, caplog):
    source, keys = source_of(tmp_path), keys_of(tmp_path)
    with caplog.at_level(logging.DEBUG, "penstock"), to(Log()):
        read_all(source, keys)
    records = [record for record in caplog.records if record.name == "penstock.events"]
    assert [record.levelname for record in records] == ["DEBUG"] * 20
    assert records[1].getMessage().startswith(f"RequestEnded {tmp_path}/0 id=")
    assert "verb=head attempt=1 outcome=done" in records[1].getMessage()
    times = [record.created for record in records]
    assert times == sorted(times)
    assert records[0].event.verb == "head"


def test_another_level_and_logger(tmp_path, caplog):
    source, keys = source_of(tmp_path), keys_of(tmp_path)
    with caplog.at_level(logging.INFO), to(Log(logging.INFO, "mine"), Log()):
        read_all(source, keys)
    assert {(record.name, record.levelname) for record in caplog.records} == {("mine", "INFO")}


def test_a_handler_that_breaks_breaks_no_read(tmp_path):
    class Broken(logging.Handler):
        def handle(self, record):
            raise RuntimeError(record.name)

    source, keys, handler = source_of(tmp_path), keys_of(tmp_path), Broken()
    logger = logging.getLogger("mine.broken")
    logger.addHandler(handler)
    try:
        with to(Log(logging.ERROR, "mine.broken")) as observed:
            read_all(source, keys)
        assert observed.dropped == 20
    finally:
        logger.removeHandler(handler)


@pytest.mark.parametrize("options", [{"level": "DEBUG"}, {"level": None}, {"name": logging.getLogger("mine")}])
def test_a_level_or_name_that_logging_cannot_use_is_refused(options):
    with pytest.raises(Unusable, match="log"):
        Log(**options)


def test_requests_are_lines_and_a_second_run_is_appended(tmp_path):
    source, keys, path = source_of(tmp_path), keys_of(tmp_path), tmp_path / "events.jsonl"
    for _ in range(2):
        with to(JsonLines(path)):
            read_all(source, keys)
    lines = lines_of(path)
    assert [line["event"] for line in lines] == ["RequestStarted", "RequestEnded"] * 20
    assert [line["url"] for line in lines] == [f"{tmp_path}/{n // 2 % 10}" for n in range(40)]
    assert {line["verb"] for line in lines} == {"head"}


def test_any_key_can_be_written(tmp_path):
    path = tmp_path / "{pid}.jsonl"
    urls = ["s3://b/ü\n\u2028🐟", 's3://b/"\\', "s3://b/\udcff", "s3://b/" + "x" * 100_000]
    with to(JsonLines(path)):
        for url in urls:
            emit(Listed(url, 1))
    (written,) = tmp_path.glob("*.jsonl")
    assert [line["url"] for line in lines_of(written)] == urls


def test_a_full_disk_loses_records_and_no_read(tmp_path, caplog):
    source, keys = source_of(tmp_path), keys_of(tmp_path)
    with caplog.at_level(logging.WARNING, "penstock"), to(JsonLines("/dev/full")) as observed:
        read_all(source, keys)
        assert observed.flush()
        assert (observed.written, observed.dropped) == (0, 20)
    assert "No space left on device" in caplog.text


def test_unread_fifo_blocks_no_read_and_close_times_out(tmp_path):
    source, keys, pipe = source_of(tmp_path), keys_of(tmp_path), tmp_path / "pipe"
    os.mkfifo(pipe)
    observed = to(JsonLines(pipe))
    reader = os.open(pipe, os.O_RDONLY | os.O_NONBLOCK)
    for _ in range(100):
        read_all(source, keys)
    assert not observed.close(limit_s=0.1)
    while observed._pumps[0]._thread.is_alive():  # until it has written all
        try:
            os.read(reader, 1 << 20)
        except BlockingIOError:
            observed._pumps[0]._thread.join(0.01)
    os.close(reader)
    assert observed.written == 2000


@pytest.mark.parametrize("sink", [JsonLines("a-{pid}")])
def test_a_sink_is_a_plain_value(sink):
    assert pickle.loads(pickle.dumps(sink)) == sink
    assert "a-{pid}" in repr(sink)
