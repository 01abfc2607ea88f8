"""A training process is started, heard to its last word, and never outlives who listens."""

from __future__ import annotations

import os
import select
import sys
from contextlib import closing

import pytest

from penstock.cli.demo.story import live
from penstock.errors import PenstockError


@pytest.fixture
def training(tmp_path, monkeypatch):
    """Put a shell script in place of the interpreter: a process as real as a training, and quicker."""

    def script(text: str) -> None:
        path = tmp_path / "python"
        path.write_text(f"#!/bin/sh\n{text}\n")
        path.chmod(0o755)
        monkeypatch.setattr(sys, "executable", str(path))

    return script


def test_reports_arrive_in_order_and_training_gets_its_arguments(training):
    training('echo "[\\"$*\\"]"; echo "{\\"step\\": 1}"')
    reports = list(live("s3://bucket/p/", 3, lambda: False))
    assert reports == [["-P -m penstock.cli.demo.train s3://bucket/p/ 3"], {"step": 1}]


def test_a_training_that_ends_badly_is_an_error_with_its_status(training):
    training('echo "{\\"step\\": 1}"; exit 7')
    reports = live("s3://bucket/", 1, lambda: False)
    assert next(reports) == {"step": 1}
    with pytest.raises(PenstockError, match="ended with status 7"):
        next(reports)


def test_killed_training_raises_no_error_and_yields_its_last_reports(training):
    training('printf "1\\n2\\n3\\n"; exec sleep 600')
    assert list(live("s3://bucket/", 1, lambda: True)) == [1, 2, 3]


def test_closing_the_reports_ends_training_and_its_child_processes(training, tmp_path):
    os.mkfifo(tmp_path / "alive")
    reader = os.open(tmp_path / "alive", os.O_RDONLY | os.O_NONBLOCK)
    try:
        training(f"exec 3>{tmp_path}/alive; sleep 600 & echo 1; wait")
        with closing(live("s3://bucket/", 1, lambda: False)) as reports:
            assert next(reports) == 1
            assert select.select([reader], [], [], 0)[0] == [], "both hold it open"
        assert select.select([reader], [], [], 10)[0] == [reader]
        assert os.read(reader, 1) == b"", "the last of them is gone"
    finally:
        os.close(reader)
