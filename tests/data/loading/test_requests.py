"""Requests of workers are counted in shared memory: over epochs, after a kill, by host, the slowest with their URLs."""

from __future__ import annotations

import os
import pickle
import signal
import threading
from time import monotonic

import pytest

from penstock.data.loading.stats import KEPT, Requests, lives
from penstock.engine.contracts.exchange import Response
from penstock.events import SlowRequest, Timings, slow
from tests.children import forked

URL = "http://host-of-requests:1/bucket/key"


def ask(times, url=URL, size_bytes=10):
    """Count responses, as an engine of this process does."""
    timings = Timings("s3")
    for _ in range(times):
        timings.answered(Response(200, first_byte_s=0.5), url, size_bytes, monotonic())


def work(requests, worker, times, url=URL, elapsed_s=1.0):
    """Return what a worker process does that makes requests."""

    def run():
        followed = requests.claim(worker).followed([None])
        next(followed)
        ask(times, url)
        slow(SlowRequest(elapsed_s, f"s3://bucket/{worker}", 10, 1, 200, 0.0))
        list(followed)

    return run


def done(run):
    with forked(run) as status:
        assert status() == 0


def test_this_process_s_requests_count_from_the_beginning_of_the_loader():
    ask(2)
    requests = Requests(0)
    assert requests.hosts() == {}
    ask(3)
    slow(SlowRequest(1.0, "s3://bucket/key", 10, 1, 200, 0.0))
    assert requests.hosts()["host-of-requests:1"].responses == 3
    assert requests.hosts()["host-of-requests:1"].first_byte.count == 3
    assert [each.url for each in requests.slowest()] == ["s3://bucket/key"]


def test_requests_of_workers_are_added_up_over_workers_and_epochs():
    requests = Requests(2)
    done(work(requests, 0, 5))
    done(work(requests, 1, 7, elapsed_s=3.0))
    done(work(requests, 0, 2, elapsed_s=2.0))  # the next epoch's
    (host,) = requests.hosts().values()
    assert (host.responses, host.received_bytes, host.first_byte.count) == (14, 140, 14)
    assert [(each.elapsed_s, each.url) for each in requests.slowest()] == [
        (3.0, "s3://bucket/1"),
        (2.0, "s3://bucket/0"),
        (1.0, "s3://bucket/0"),
    ]


def test_worker_counts_are_visible_while_running_and_kept_after_a_kill():
    requests = Requests(1)
    told, tell = os.pipe()

    def run():
        row = requests.claim(0)
        ask(4)
        next(row.followed([None]))
        os.write(tell, b"x")
        threading.Event().wait(60)

    pid = os.fork()
    if pid == 0:
        try:
            run()
        finally:
            os._exit(1)
    assert os.read(told, 1) == b"x"
    assert requests.hosts()["host-of-requests:1"].responses == 4
    os.kill(pid, signal.SIGKILL)
    os.waitpid(pid, 0)
    done(work(requests, 0, 1))
    assert requests.hosts()["host-of-requests:1"].responses == 5
    os.close(told)
    os.close(tell)


def test_two_iterations_of_one_worker_s_number_do_not_write_over_one_another():
    requests = Requests(1)
    first = requests.claim(0)  # this process's, which lives
    done(work(requests, 0, 9))
    first.write()
    assert requests.hosts() == {}


def test_hosts_and_texts_beyond_the_memory_are_left_out():
    requests = Requests(1)

    def run():
        followed = requests.claim(0).followed([])
        for number in range(9):
            ask(1, f"http://{'h' * 400}{number}/x")
            slow(SlowRequest(float(number), f"s3://bucket/{'ü' * 1500}", 1, 1, 200, 0.0))
        list(followed)

    done(run)
    assert 1 <= len(requests.hosts()) <= 4
    assert 1 <= len(requests.slowest()) < 9
    assert requests.slowest()[0].elapsed_s == 8.0


def test_only_the_slowest_are_kept():
    requests = Requests(1)

    def run():
        followed = requests.claim(0).followed([])
        for number in range(50):
            slow(SlowRequest(float(number), "s3://bucket/key", 1, 1, 200, 0.0))
        list(followed)

    done(run)
    assert [each.elapsed_s for each in requests.slowest()] == [float(each) for each in range(49, 49 - KEPT, -1)]


def test_a_copy_counts_for_itself():
    requests = Requests(1)
    copy = pickle.loads(pickle.dumps(requests))
    done(work(copy, 0, 1))
    assert (len(requests.hosts()), len(copy.hosts())) == (0, 1)


def test_without_a_descriptor_a_loader_works_and_counts_nothing(monkeypatch):
    monkeypatch.setattr("penstock.data.loading.stats.Region", refuse)
    requests = Requests(2)
    done(work(requests, 0, 1))
    assert (requests.hosts(), requests.slowest()) == ({}, [])


def refuse(_size):
    raise OSError


@pytest.mark.parametrize(("pid", "alive"), [(0, False), (os.getpid(), True), (1, True)], ids=["none", "own", "init"])
def test_a_process_lives_or_not(pid, alive):
    assert lives(pid) is alive


def test_a_process_that_has_ended_does_not_live():
    pid = os.fork()
    if pid == 0:
        os._exit(0)
    os.waitpid(pid, 0)
    assert not lives(pid)
