"""Counts of several processes add up, never go down, and leave nothing behind."""

from __future__ import annotations

import json
import os
import signal
from math import inf
from secrets import token_hex

import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock.events import HOST_WORDS, CacheCounts, HostTimings, count_cache, measured_caches
from penstock.histogram import Histogram
from penstock.observe.board import COUNTS, DISTRIBUTIONS, Board, Notice, cumulate_buckets, folder_of
from tests.children import forked
from tests.observe.reads import keys_of, read_all, source_of


@pytest.fixture
def name():
    return token_hex(16)


def counted(board):
    return sum(host.responses for host in board.gather().hosts.values())


def test_counts_of_children_are_added_and_stay_when_they_have_ended(tmp_path, name):
    source, keys, board = source_of(tmp_path), keys_of(tmp_path), Board(name)
    before = counted(board)

    def work():
        notice = Notice(name)
        read_all(source, keys)
        notice.close()

    for number in (1, 2, 3):
        with forked(work) as status:
            assert status() == 0
        assert counted(board) == counted(board) == before + 10 * number
    assert [*board.folder.iterdir()] == []
    board.close()
    assert not board.folder.exists()


def test_killed_child_keeps_its_last_written_counts(tmp_path, name):
    source, keys, board = source_of(tmp_path), keys_of(tmp_path), Board(name)
    before = counted(board)

    def work():
        notice = Notice(name)
        read_all(source, keys)
        notice.publish()
        read_all(source, keys)
        os.kill(os.getpid(), signal.SIGKILL)

    with forked(work) as status:
        assert status() == -signal.SIGKILL
    assert counted(board) == before + 10
    board.close()


def test_board_folder_is_private_and_existing_folder_is_refused(name):
    board = Board(name)
    assert board.folder.stat().st_mode & 0o777 == 0o700
    with pytest.raises(FileExistsError):
        Board(name)
    board.close()
    board.close()


@pytest.mark.parametrize(
    "text", ["", "[]", "null", '{"a": 3}', '{"hosts": {"a": ["x"]}}', '{"hosts": {"a": [1]}}', "{"]
)
def test_malformed_count_file_adds_nothing_to_the_board(name, text):
    board = Board(name)
    before = counted(board)
    (board.folder / f"{os.getpid()}-x.json").write_text(text)
    (board.folder / "x.json").write_text(json.dumps({"hosts": {"host": [1] * HOST_WORDS}, "caches": {}, "jobs": {}}))
    assert counted(board) == before + 1
    board.close()


def test_without_a_board_a_notice_writes_nothing_and_fails_nothing(name):
    notice = Notice(name)
    notice.close()
    assert not folder_of(name).exists()


def test_counts_of_caches_are_added_over_processes(name, tmp_path):
    directory, board = str(tmp_path), Board(name)
    count_cache(directory).hits += 2

    def work():
        assert directory not in measured_caches()  # they are the parent's
        counts = count_cache(directory)
        counts.hits, counts.hit_bytes = 3, 30
        Notice(name).close()

    with forked(work) as status:
        assert status() == 0
    assert board.gather().caches[directory] == CacheCounts(hits=5, hit_bytes=30)
    board.close()


BOUNDS = tuple(1e-6 * 2**power for power in range(9, 27))


def test_names_are_unique_and_every_value_can_be_read():
    names = [each.name for each in (*COUNTS, *DISTRIBUTIONS)]
    assert len(set(names)) == len(names)
    host = HostTimings()
    assert [each.value(host) for each in COUNTS] == [0] * len(COUNTS)
    assert [each.value(host).count for each in DISTRIBUTIONS] == [0, 0]


@given(st.lists(st.floats(1e-7, 1e4), max_size=50))
def test_cumulated_counts_are_those_of_the_numbers_to_within_a_bucket(numbers):
    histogram = Histogram()
    for number in numbers:
        histogram.add(number)
    counts = cumulate_buckets(histogram, BOUNDS)
    assert counts == sorted(counts)
    assert counts[-1] == len(numbers)
    for bound, count in zip((*BOUNDS, inf), counts, strict=True):
        assert count <= sum(number <= bound * 1.0001 for number in numbers)
        assert count >= sum(number <= bound / 1.0001 for number in numbers)
