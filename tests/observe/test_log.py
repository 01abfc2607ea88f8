"""Events in Python's log, at DEBUG, at their own time."""

from __future__ import annotations

import logging

import pytest

from penstock.errors import Unusable
from penstock.observe import Log, to
from tests.observe.reads import keys_of, read_all, source_of


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
