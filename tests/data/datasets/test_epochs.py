"""Every worker of an iteration must agree on where it begins, whatever the order in which they come."""

from __future__ import annotations

import multiprocessing
import os
import pickle
from typing import TYPE_CHECKING

import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock.data.order.sampling import Cursor
from penstock.data.reading.iteration import Epochs
from penstock.errors import Unusable

if TYPE_CHECKING:
    from multiprocessing.context import BaseContext


def test_without_a_call_each_iteration_is_the_next_epoch():
    epochs = Epochs()
    assert [epochs.begin() for _ in range(4)] == [Cursor(0, 0), Cursor(1, 0), Cursor(2, 0), Cursor(3, 0)]


def test_set_chooses_the_next_epoch_and_later_epochs_count_from_it():
    epochs = Epochs()
    epochs.begin()
    epochs.set(7)
    assert [epochs.begin(), epochs.begin()] == [Cursor(7, 0), Cursor(8, 0)]
    epochs.set(0)
    assert epochs.begin() == Cursor(0, 0)


def test_a_resumed_position_is_the_next_iterations_and_naming_its_epoch_keeps_it():
    epochs = Epochs()
    epochs.resume(Cursor(4, 70))
    epochs.set(4)
    assert (epochs.next(), epochs.latest()) == (Cursor(4, 70), Cursor(4, 70))
    assert [epochs.begin(), epochs.begin()] == [Cursor(4, 70), Cursor(5, 0)]
    epochs.resume(Cursor(4, 70))
    epochs.set(5)
    assert epochs.begin() == Cursor(5, 0)


def test_the_latest_is_where_the_iteration_under_way_began():
    epochs = Epochs()
    epochs.resume(Cursor(2, 10))
    epochs.begin()
    assert (epochs.latest(), epochs.next()) == (Cursor(2, 10), Cursor(3, 0))
    assert worker(epochs).join(0, 1, seed=1) == Cursor(3, 0)
    assert epochs.latest() == Cursor(3, 0)


def test_the_lanes_of_a_run_stay_through_its_epochs_and_reach_workers_that_are_alive():
    epochs = Epochs()
    alive = worker(epochs)
    assert alive.join(0, 1, seed=1) == Cursor(0, 0)
    epochs.resume(Cursor(4, 70, 8))
    assert [alive.join(0, 1, seed=2), alive.join(0, 1, seed=3)] == [Cursor(4, 70, 8), Cursor(5, 0, 8)]
    epochs.set(9)
    assert [epochs.begin(), epochs.begin()] == [Cursor(9, 0, 8), Cursor(10, 0, 8)]
    epochs.restart(Cursor(2, 10, 4))
    assert (epochs.latest(), epochs.next()) == (Cursor(2, 10, 4), Cursor(3, 0, 4))
    epochs.resume(Cursor(1, 5))
    assert [epochs.begin(), epochs.begin()] == [Cursor(1, 5), Cursor(2, 0)]


def worker(epochs: Epochs) -> Epochs:
    """Return the same memory as a worker process sees it: with a count of its own."""
    other = Epochs.__new__(Epochs)
    other.__setstate__(epochs.__getstate__())
    return other


@given(st.lists(st.tuples(st.integers(1, 5), st.booleans()), min_size=1, max_size=8), st.randoms(use_true_random=False))
def test_all_workers_of_an_iteration_join_the_same_epoch(iterations, random):
    """Any number of workers per iteration, in any order, with seeds that may repeat as after torch.manual_seed."""
    epochs = Epochs()
    for expected, (workers, reseeded) in enumerate(iterations):
        seed = 42 if reseeded else 1000 + expected
        order = random.sample(range(workers), workers)
        assert {worker(epochs).join(index, workers, seed) for index in order} == {Cursor(expected, 0)}


@given(st.integers(1, 5), st.integers(1, 40), st.randoms(use_true_random=False))
def test_persistent_workers_count_on_by_themselves(workers, iterations, random):
    epochs = Epochs()
    alive = [worker(epochs) for _ in range(workers)]
    for expected in range(iterations):
        order = random.sample(range(workers), workers)
        assert {alive[index].join(index, workers, 99) for index in order} == {Cursor(expected, 0)}


def test_a_late_worker_of_an_older_iteration_still_finds_its_epoch():
    epochs = Epochs()
    assert worker(epochs).join(0, 2, seed=1) == Cursor(0, 0)
    assert worker(epochs).join(0, 2, seed=2) == Cursor(1, 0)
    assert worker(epochs).join(1, 2, seed=1) == Cursor(0, 0)
    assert worker(epochs).join(1, 2, seed=2) == Cursor(1, 0)


def test_more_than_512_workers_are_refused():
    with pytest.raises(Unusable, match="512"):
        Epochs().join(0, 513, seed=1)


def _join(epochs: Epochs, index: int, results: multiprocessing.Queue) -> None:
    results.put([epochs.join(index, 3, seed=5), epochs.join(index, 3, seed=5)])


@pytest.mark.parametrize("method", ["fork", "spawn", "forkserver"])
def test_processes_agree_and_the_parent_sees_it(method: str):
    context: BaseContext = multiprocessing.get_context(method)
    epochs, results = Epochs(), context.Queue()
    epochs.set(3)
    processes = [context.Process(target=_join, args=(epochs, index, results)) for index in range(3)]
    for process in processes:
        process.start()
    found = [results.get(timeout=60) for _ in processes]
    for process in processes:
        process.join(60)
    assert found == [[Cursor(3, 0), Cursor(4, 0)]] * 3
    assert epochs.begin() == Cursor(5, 0)


def test_a_copy_lives_its_own_life():
    epochs = Epochs()
    epochs.set(5)
    copy = pickle.loads(pickle.dumps(epochs))
    assert (copy.begin(), copy.begin(), epochs.begin()) == (Cursor(5, 0), Cursor(6, 0), Cursor(5, 0))


def test_a_fork_taken_under_the_lock_does_not_hang():
    epochs = Epochs()
    with epochs._lock:
        child = os.fork()
        if child == 0:
            os._exit(int(epochs.begin() != Cursor(0, 0)))
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
