"""A loader's counters: exact, per worker, while it runs and after a worker was killed, however workers are started."""

from __future__ import annotations

import os
import pickle
import signal
import threading
from dataclasses import replace
from time import monotonic, thread_time

import pytest

import penstock as ps
from penstock import source as source_file
from penstock.data.loading import stats
from penstock.data.loading.decoding import mover
from penstock.data.loading.stats import (
    KEPT,
    Counters,
    GilProbe,
    LoaderStats,
    ReaderStats,
    Requests,
    Stopwatch,
    WorkTime,
    demanded_s,
    lives,
)
from penstock.engine.contracts.exchange import Response
from penstock.engine.contracts.fetching import ReadCounts
from penstock.engine.fetch.fetcher import Fetcher
from penstock.events import SlowRequest, Timings, slow
from penstock.testing.clock import no_waiting
from penstock.testing.faults import FAULTS, FaultServer, Match
from tests.children import forked
from tests.data.datasets.transforms import number as number_of
from tests.data.datasets.transforms import numbered
from tests.threads import until

COUNT, BATCH, WAIT_S = 40, 4, 60


@pytest.fixture
def folder(tmp_path):
    return numbered(tmp_path / "data", COUNT)


def loader(folder, transform=number_of, **options) -> ps.DataLoader:
    return ps.DataLoader(ps.MapDataset.from_prefix(folder, transform=transform), BATCH, **options)


def size_of_all(folder) -> int:
    return ps.MapDataset.from_prefix(folder).catalog.total_bytes


def test_a_loader_that_has_not_begun_has_counted_nothing(folder):
    assert loader(folder).stats() == LoaderStats(0, 0, 0.0, 0.0, (ReaderStats(),))
    assert loader(folder, num_workers=2).stats().workers == (ReaderStats(), ReaderStats())
    assert loader(folder).stats().utilisation == 0.0


@pytest.mark.parametrize("epochs", [1, 2])
def test_threads_count_every_sample_of_every_epoch(folder, epochs):
    made = loader(folder)
    for _ in range(epochs):
        list(made)
    stats = made.stats()
    assert (stats.batches, stats.samples) == (epochs * COUNT // BATCH, epochs * COUNT)
    assert len(stats.workers) == 1
    assert stats.workers[0] == stats.total
    assert (stats.total.batches, stats.total.samples) == (stats.batches, stats.samples)
    assert (stats.total.requests, stats.total.size_bytes) == (epochs * COUNT, epochs * size_of_all(folder))
    assert stats.total.working_s > 0


@pytest.mark.parametrize(
    ("method", "workers", "persistent"),
    [("fork", 2, False), ("fork", 2, True), ("forkserver", 2, True), ("spawn", 1, True)],
)
def test_worker_processes_count_every_sample_however_they_are_started(folder, method, workers, persistent):
    made = loader(folder, num_workers=workers, multiprocessing_context=method, persistent_workers=persistent)
    for epoch in (1, 2):
        list(made)
        stats = made.stats()
        assert (stats.batches, stats.samples) == (epoch * COUNT // BATCH, epoch * COUNT)
        share = epoch * COUNT // workers
        assert [(each.batches, each.samples) for each in stats.workers] == [(share // BATCH, share)] * workers
        assert (stats.total.requests, stats.total.size_bytes) == (epoch * COUNT, epoch * size_of_all(folder))
        assert all(each.working_s > 0 for each in stats.workers)


@pytest.mark.parametrize("workers", [0, 2])
def test_iterations_over_one_loader_that_overlap_are_counted_both(folder, workers):
    made = loader(folder, num_workers=workers, prefetch=1)
    first = iter(made)
    next(first)
    list(made)
    list(first)
    stats = made.stats()
    assert (stats.batches, stats.total.batches, stats.total.requests) == (20, 20, 2 * COUNT)


@pytest.mark.parametrize("on_error", ["raise", "skip"])
@pytest.mark.parametrize("place", ["engine", "credentials"])
def test_a_worker_that_opens_its_store_is_opening_and_neither_works_nor_waits(folder, monkeypatch, place, on_error):
    """Which takes half a second here, wherever it comes from; a forked worker begins with nothing of its parent's."""
    pause = threading.Event().wait
    build, prepare = source_file._build, Fetcher.prepare_reads

    def slow(whole):
        return lambda *asked: (pause(0.5), whole(*asked))[1]

    made = loader(folder, num_workers=1, multiprocessing_context="fork", on_error=on_error)
    if place == "engine":
        monkeypatch.setattr(source_file, "_build", slow(build))
    else:
        monkeypatch.setattr(Fetcher, "prepare_reads", once(slow(prepare), prepare))
    list(made)
    total = made.stats().total
    assert total.opening_s >= 0.5
    if on_error == "raise":  # else the engine is opened before the iteration's seconds begin
        assert total.working_s + total.waiting_s + total.opening_s <= total.elapsed_s


def once(first, others):
    calls = iter([first])

    def call(*asked):
        return next(calls, others)(*asked)

    return call


@pytest.mark.parametrize("workers", [0, 1])
def test_skipped_samples_and_retries_are_counted_in_stats(workers):
    with FaultServer.start() as server, no_waiting():
        for at in range(8):
            server.put("bucket", f"train/{at}", b"bytes")
        server.fail(FAULTS["503"], when=Match(verb="get", nth=2))
        server.fail(FAULTS["denied"], when=Match(verb="get", key="train/5", times=None))
        dataset = ps.MapDataset.from_prefix("s3://bucket/train/", transform=size, store=server.store)
        made = ps.DataLoader(dataset, BATCH, num_workers=workers, on_error="skip")
        list(made)
    stats = made.stats()
    assert (stats.samples, stats.total.samples, stats.total.skipped, made.skipped_count) == (7, 7, 1, 1)
    assert (stats.total.requests, stats.total.retries, stats.total.errors) == (9, 1, 1)
    assert stats.total.size_bytes == 7 * len(b"bytes")
    assert stats.total.waiting_s > 0


@pytest.mark.parametrize("workers", [0, 2])
def test_reads_that_a_cache_has_are_counted_as_such(workers, tmp_path):
    with FaultServer.start() as server:
        for at in range(8):
            server.put("bucket", f"train/{at}", b"bytes")
        store = replace(server.store, cache=ps.CacheOptions(path=str(tmp_path)))
        made = ps.DataLoader(
            ps.MapDataset.from_prefix("s3://bucket/train/", transform=size, store=store), 2, num_workers=workers
        )
        list(made)
        first = made.stats().total
        list(made)
        second = made.stats().total
    assert (first.requests, first.cached, first.size_bytes) == (8, 0, 40)
    assert (second.requests, second.cached, second.size_bytes) == (8, 8, 80)
    assert "8 from a cache" in str(made.report())


def size(sample) -> int:
    return sample.size


class Gate:
    """A transform that stops at one sample until a file appears, and says so by another."""

    def __init__(self, folder, at: int) -> None:
        self.folder, self.at = folder, at

    def __call__(self, sample) -> int:
        value = number_of(sample)
        if value == self.at:
            (self.folder / str(os.getpid())).touch()
            until((self.folder / "open").exists)
        return value


def test_a_killed_worker_keeps_its_counts_which_the_next_epoch_continues(folder, tmp_path):
    gate = tmp_path / "gate"
    gate.mkdir()
    made = loader(folder, Gate(gate, 3 * BATCH), num_workers=1, prefetch=4)
    batches = iter(made)
    for _ in range(3):
        next(batches)
    until(lambda: list(gate.iterdir()))  # it works at the fourth batch
    assert made.stats().workers[0].batches == 3, "readable while it runs"
    os.kill(int(next(gate.iterdir()).name), signal.SIGKILL)
    with pytest.raises(RuntimeError, match="exited unexpectedly"):
        next(batches)
    assert (made.stats().total.batches, made.stats().total.samples) == (3, 3 * BATCH)
    (gate / "open").touch()
    list(made)
    assert made.stats().total.batches == 3 + COUNT // BATCH


@pytest.mark.parametrize("workers", [0, 1])
def test_another_thread_reads_counts_that_only_grow(folder, workers):
    made, seen, done = loader(folder, num_workers=workers), [], threading.Event()

    def watch() -> None:
        while not done.wait(0.001):
            stats = made.stats()
            seen.append((stats.samples, stats.total.samples, stats.total.requests))

    watching = threading.Thread(target=watch)
    watching.start()
    for _ in range(3):
        list(made)
    done.set()
    watching.join()
    assert seen == sorted(seen)
    assert made.stats().samples == 3 * COUNT


def test_threads_that_ask_for_statistics_at_once_get_one_meter(folder, monkeypatch):
    made, both, found = loader(folder), threading.Barrier(2, timeout=10), []

    def slow(device):
        both.wait()
        return mover(device)

    monkeypatch.setattr("penstock.data.loading.loader.mover", slow)
    asking = threading.Thread(target=lambda: found.append(made._metering()))
    asking.start()
    found.append(made._metering())
    asking.join()
    assert found[0] is found[1], "what the iteration counts is what stats() reads"


def test_waiting_and_computing_times_are_measured_separately(folder):
    made = loader(folder)
    for _ in made:
        until_s = monotonic() + 0.005
        while monotonic() < until_s:
            pass
    stats = made.stats()
    assert stats.computing_s >= 9 * 0.005, "all steps but the last, after which nothing is asked for, or all ten"
    assert 0 < stats.utilisation < 1
    assert stats.utilisation == stats.computing_s / (stats.computing_s + stats.waiting_s)


def test_abandoned_iteration_keeps_its_counts_in_stats(folder):
    made = loader(folder, prefetch=1)
    for _ in made:
        break
    assert made.stats().batches == 1
    assert made.stats().total.requests >= BATCH


def test_a_forked_rank_counts_for_itself(folder):
    made = loader(folder)
    list(made)

    def child() -> None:
        assert made.stats().samples == 0
        list(made)
        assert made.stats().samples == made.stats().total.samples == COUNT

    with forked(child) as status:
        assert status() == 0
    assert made.stats().samples == COUNT


def test_a_row_is_taken_over_from_a_worker_that_left_or_died_and_from_no_other():
    counters = Counters(2)
    one, other = counters.claim(0), counters.claim(0)
    one.write(ReadCounts(requests=3), WorkTime())
    other.write(ReadCounts(requests=4), WorkTime())
    assert counters.read()[0].requests == 7
    one.leave()
    again = counters.claim(0)
    again.write(ReadCounts(requests=10), WorkTime())
    assert counters.read()[0].requests == 3 + 10 + 4
    with forked(lambda: counters.claim(1).write(ReadCounts(requests=5), WorkTime())) as status:
        assert status() == 0
    counters.claim(1).write(ReadCounts(requests=1), WorkTime())
    assert [each.requests for each in counters.read()] == [17, 6]


def test_more_open_iterations_than_there_are_rows_disturb_no_count():
    counters = Counters(0)
    rows = [counters.claim(0) for _ in range(20)]
    for row in rows:
        row.write(ReadCounts(requests=1), WorkTime())
    assert counters.read()[0].requests == 8


def test_a_copy_counts_for_itself():
    for workers in (0, 2):
        counters = Counters(workers)
        copy = pickle.loads(pickle.dumps(counters))
        copy.claim(0).write(ReadCounts(errors=1), WorkTime())
        assert (counters.read()[0].errors, copy.read()[0].errors) == (0, 1)


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


def test_a_copy_of_requests_counts_for_itself():
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


def test_calls_are_timed_and_answered():
    released = threading.Event()
    watch = Stopwatch(released.wait)
    threading.Timer(0.05, released.set).start()
    assert watch(60) is True
    assert watch.seconds > 0
    before = watch.seconds
    watch(60)
    assert watch.seconds > before


def test_a_call_that_raises_is_timed_and_raises():
    watch = Stopwatch(int)
    with pytest.raises(ValueError, match="nine"):
        watch("nine")
    assert watch.seconds > 0


def test_threads_are_added_up():
    gate = threading.Barrier(4)
    watch = Stopwatch(lambda _: gate.wait(60))
    threads = [threading.Thread(target=watch, args=(number,)) for number in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert watch.seconds > 0


def demand_of(work):
    """Return what a thread of its own demanded while it did ``work``, and the seconds that it ran and that passed."""
    found = []
    began_s = monotonic()  # before the thread, whose first wait for a processor is demand, too

    def run():
        work()
        found.extend((demanded_s(), thread_time(), monotonic() - began_s))

    thread = threading.Thread(target=run)
    thread.start()
    thread.join()
    return found


def spin():
    until_s = thread_time() + 0.05
    while thread_time() < until_s:
        pass


def test_a_thread_that_runs_demands_a_processor():
    demanded, ran, passed = demand_of(spin)
    assert 0.04 <= demanded <= passed * 1.1
    assert demanded >= ran * 0.8


def test_a_thread_that_waits_for_something_demands_none():
    demanded, _, passed = demand_of(lambda: threading.Event().wait(0.2))
    assert demanded <= passed - 0.15, "0.2 s of it asleep"


def test_probe_finds_the_lock_held_by_pure_python_and_free_while_threads_sleep():
    def probe(work):
        gil, stop = GilProbe(), threading.Event()
        threads = [threading.Thread(target=work, args=(stop,)) for _ in range(2)]
        for thread in threads:
            thread.start()
        while gil.probes < 8:
            gil.probe()
        stop.set()
        for thread in threads:
            thread.join()
        return gil.share

    def hold(stop):
        while not stop.is_set():
            sum(range(10_000))

    assert GilProbe().share == 0.0
    assert probe(hold) >= 0.6
    assert probe(threading.Event.wait) <= 0.4


def test_demand_equals_cpu_time_without_kernel_schedstat(monkeypatch, tmp_path):
    monkeypatch.setattr(stats, "_SCHEDSTAT", tmp_path / "none")
    demanded, ran, _ = demand_of(spin)
    assert demanded == pytest.approx(ran, abs=0.01)
