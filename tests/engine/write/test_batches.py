"""Puts that are sent together: all are told of, each with its own end, and others wait while as many are under way."""

from __future__ import annotations

import threading

import pytest

from penstock.engine.contracts.driver import Attributes
from penstock.engine.fetch.batch import Batch
from penstock.engine.fetch.fetcher import Fetcher
from penstock.engine.transport.work import Threads
from penstock.errors import Bug, Cancelled, Transient, Unusable
from penstock.options import ReadOptions, RetryOptions
from penstock.stores.local.driver import LocalDriver
from penstock.testing.clock import no_waiting
from tests.engine.fetch.store import hearing
from tests.engine.fetch.told import Told


class Files(LocalDriver):
    """Counts the puts of each batch, each of which waits until it may go on."""

    def __init__(self, root):
        super().__init__(root)
        self.batches = []
        self.began, self.go_on = threading.Semaphore(0), threading.Event()

    def put_many(self, prefix, puts):
        self.batches.append(len(puts))
        exchange = super().put_many(prefix, puts)
        run = exchange.request.run

        def later():
            self.began.release()
            assert self.go_on.wait(60)
            return run()

        exchange.request.run = later
        return exchange


@pytest.fixture
def files(tmp_path):
    return Files(str(tmp_path))


@pytest.fixture
def calls(files):
    fetcher = Fetcher(files, Threads(2), RetryOptions(attempts=1), ReadOptions())
    told = Told()
    yield Batch(lambda: fetcher, lambda: fetcher, told), told
    files.go_on.set()
    fetcher.close()


@pytest.fixture
def busy(tmp_path):
    """Return a function of files that say of "b" so often that it may be written later, and a batch of puts there."""
    made = []

    def make(times, **retry):
        files, told = _Busy(str(tmp_path), {"b": times}), Told()
        made.append(fetcher := Fetcher(files, Threads(2), RetryOptions(**retry), ReadOptions()))
        return files, Batch(lambda: fetcher, lambda: fetcher, told), told

    yield make
    for fetcher in made:
        fetcher.close()


def send(calls, keys, data=b"x"):
    puts = [calls.put(key, data, Attributes()) for key in keys]
    calls.send()
    return puts


def sent(calls, told, keys, data=b"x"):
    """Send a batch of puts, and return them once all are told of."""
    puts = send(calls, keys, data)
    assert {*told.all(len(puts))} == set(puts)
    return puts


def test_puts_go_together_while_as_many_batches_are_under_way_as_there_are_threads(files, calls, tmp_path):
    calls, told = calls
    puts = [put for number in range(60) for put in send(calls, [f"{number}"], str(number).encode())]
    for _ in range(2):
        assert files.began.acquire(timeout=60)
    assert files.batches == [1, 1]
    files.go_on.set()
    assert {*told.all(len(puts))} == set(puts)
    assert sum(files.batches) == 60
    assert len(files.batches) == 2 + 4  # sixteen at a time
    assert all(each.complete and each.result() for each in puts)
    assert {path.name: path.read_text() for path in tmp_path.iterdir()} == {str(each): str(each) for each in range(60)}


def test_failed_put_in_a_batch_does_not_affect_the_others(files, calls, tmp_path):
    calls, told = calls
    files.go_on.set()
    (tmp_path / "folder").mkdir()
    puts = sent(calls, told, ("a", "folder", "b"))
    with pytest.raises(Unusable, match="a directory"):
        puts[1].result()
    assert puts[0].result()
    assert puts[2].result()


class _Busy(Files):
    """Says of some keys, the first times, that they may be written later."""

    def __init__(self, root, times):
        super().__init__(root)
        self.times, self.attempts = times, []
        self.go_on.set()

    def _put_all(self, puts):
        found = [*super()._put_all(puts)]
        self.attempts.append([key for key, _, _ in puts])
        for at, (key, _, _) in enumerate(puts):
            if self.times.get(key, 0):
                self.times[key] -= 1
                found[at] = Transient("later")
        return found


@pytest.mark.parametrize(("attempts", "times"), [(4, 1), (4, 3), (2, 2), (1, 1)])
def test_transient_put_is_retried_alone_up_to_the_attempt_limit(busy, attempts, times):
    files, calls, told = busy(times, attempts=attempts)
    with no_waiting():
        puts = sent(calls, told, "abc")
    assert puts[0].result()
    assert puts[2].result()
    if times < attempts:
        assert puts[1].result()
    else:
        with pytest.raises(Transient, match="later") as caught:
            puts[1].result()
        assert caught.value.attempts == attempts
    assert files.attempts == [["a", "b", "c"], *([["b"]] * min(times, attempts - 1))]


def test_put_waiting_for_a_retry_is_cancelled(busy):
    _, calls, told = busy(99, base_s=1000, cap_s=1000, patience_s=10_000)
    puts = send(calls, "ab")
    assert told.all(1) == [puts[0]]
    calls.call_off(puts)
    assert told.all(1) == [puts[1]]
    with pytest.raises(Cancelled):
        puts[1].result()


def test_large_puts_are_spread_over_batches(files, calls):
    calls, told = calls
    files.go_on.set()
    sent(calls, told, "0123", bytes(5 << 20))
    assert files.batches == [2, 2]


def test_cancellation_ends_waiting_and_started_puts_before_they_take_effect(files, calls, tmp_path):
    calls, told = calls
    puts = send(calls, "0") + send(calls, "1")
    for _ in puts:
        assert files.began.acquire(timeout=60)
    puts += send(calls, map(str, range(2, 40)))
    calls.call_off(puts)
    files.go_on.set()
    assert {*told.all(len(puts))} == set(puts)
    for put in puts:
        with pytest.raises(Cancelled):
            put.result()
    assert not [*tmp_path.iterdir()]


def test_closing_the_store_completes_all_waiting_puts(files, calls):
    calls, told = calls
    puts = send(calls, map(str, range(40)))
    calls._fetcher().close()
    files.go_on.set()
    assert {*told.all(len(puts))} == set(puts)


def test_listeners_hear_of_each_put_alone(files, calls):
    calls, told = calls
    with hearing() as heard:
        sent(calls, told, "ab")
    assert files.batches == []
    assert heard


def test_puts_that_were_prepared_for_an_engine_that_is_closed_end_too(tmp_path):
    engines = [
        Fetcher(LocalDriver(str(tmp_path)), Threads(2), RetryOptions(attempts=1), ReadOptions()) for _ in range(2)
    ]
    now, told = engines[0], Told()
    calls = Batch(lambda: now, lambda: now, told)
    puts = [calls.put("a", b"x", Attributes())]
    now.close()
    now = engines[1]
    puts += send(calls, "b")
    assert {*told.all(len(puts))} == set(puts)
    assert puts[1].result()
    with pytest.raises(Unusable, match="closed"):
        puts[0].result()
    now.close()


def test_driver_reporting_too_few_puts_raises_a_bug_for_each_put(files, calls):
    calls, told = calls
    files.go_on.set()
    whole = files.put_many
    files.put_many = lambda prefix, puts: whole(prefix, puts[1:])
    for put in sent(calls, told, "abc"):
        with pytest.raises(Bug, match="told of 2 puts where 3 were to be made"):
            put.result()


def test_exception_while_sending_a_batch_is_reported_to_each_put(calls, monkeypatch):
    calls, told = calls
    monkeypatch.setattr(calls._fetcher(), "send", lambda _operations: 1 / 0)
    with pytest.raises(Bug, match="ZeroDivisionError"):
        sent(calls, told, "abc")[0].result()
