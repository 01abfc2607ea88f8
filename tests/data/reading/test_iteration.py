"""A place is found in the parent and travels to its workers; anywhere else it is found anew."""

from __future__ import annotations

import multiprocessing
import os
import pickle

import pytest
from torch.utils.data import DataLoader, IterableDataset

from penstock.data.order.sampling import Cursor
from penstock.data.reading.iteration import Iterations
from penstock.values import Place


class Where(IterableDataset):
    """Yields where each iteration begins, and for whom."""

    def __init__(self, iterations: Iterations) -> None:
        self.iterations = iterations

    def __iter__(self):
        cursor, place = self.iterations.begin()
        yield [list(cursor), [place.rank, place.world, place.worker, place.workers]]


@pytest.fixture
def ranked(monkeypatch):
    """The parent is rank 2 of 3, and knows it from its environment."""
    monkeypatch.setenv("RANK", "2")
    monkeypatch.setenv("WORLD_SIZE", "3")
    return monkeypatch


def test_alone_a_process_is_its_rank_without_workers(ranked):
    iterations = Iterations(None)
    assert iterations.begin() == (Cursor(0, 0), Place(2, 3))
    assert iterations.begin() == (Cursor(1, 0), Place(2, 3))
    ranked.setenv("RANK", "1")
    assert iterations.rank() == Place(1, 3)
    assert Iterations(Place(3, 4)).rank() == Place(3, 4)


@pytest.mark.usefixtures("ranked")
@pytest.mark.parametrize("method", ["fork", "spawn"])
def test_workers_have_the_parents_rank_and_their_own_number(method):
    iterations = Iterations(None)
    iterations.epochs.resume(Cursor(4, 10, 8, 3))
    loader = DataLoader(
        Where(iterations),
        batch_size=None,
        num_workers=2,
        multiprocessing_context=method,
        persistent_workers=True,
        timeout=100,
    )
    found = list(loader)
    assert found == [[[4, 10, 8, 3], [2, 3, 0, 2]], [[4, 10, 8, 3], [2, 3, 1, 2]]]
    assert [cursor for cursor, _ in loader] == [[5, 0, 8, 3]] * 2
    assert iterations.epochs.next() == Cursor(6, 0, 8, 3)


def _forget(*_) -> None:
    for name in ("RANK", "WORLD_SIZE"):  # a fork server has the environment of when it was started, by any test
        os.environ.pop(name, None)


@pytest.mark.usefixtures("ranked")
def test_a_spawned_worker_has_no_need_of_its_parents_environment():
    options = {"multiprocessing_context": "forkserver", "worker_init_fn": _forget, "timeout": 100}
    loader = DataLoader(Where(Iterations(None)), batch_size=None, num_workers=1, **options)
    assert list(loader) == [[[0, 0, 0, 0], [2, 3, 0, 1]]]


def _train(rank: int, loaders: list[DataLoader], results) -> None:
    os.environ.update(RANK=str(rank), WORLD_SIZE="2")
    results.put((rank, [[list(loader) for _ in range(2)] for loader in loaders]))


@pytest.mark.parametrize(("method", "spawning"), [("fork", ["spawn"]), ("spawn", [])])
def test_a_dataset_that_is_made_before_its_ranks_are_started_is_each_ranks_own(method, spawning):
    """As by torch's ``mp.spawn(train, args=(dataset,))``, with and without workers in each rank."""
    context = multiprocessing.get_context(method)
    options = [
        {},
        # A rank that is spawned spawns its worker, and each imports torch: it is started once.
        {"num_workers": 1 if method == "spawn" else 2, "persistent_workers": method == "spawn"},
        *({"num_workers": 1, "persistent_workers": True, "multiprocessing_context": each} for each in spawning),
    ]
    loaders = []
    for each in options:
        iterations = Iterations(None)
        iterations.epochs.resume(Cursor(4, 10, 8, 3))
        loaders.append(DataLoader(Where(iterations), batch_size=None, **each))
    results = context.Queue()
    ranks = [context.Process(target=_train, args=(rank, loaders, results)) for rank in range(2)]
    for process in ranks:
        process.start()
    found = dict(results.get(timeout=240) for _ in ranks)  # each imports torch, and so do its workers
    for process in ranks:
        process.join(60)
    for rank in range(2):
        for each, epochs in zip(options, found[rank], strict=True):
            workers = each.get("num_workers", 1)
            assert epochs == [
                [[begun, [rank, 2, worker, workers]] for worker in range(workers)]
                for begun in ([4, 10, 8, 3], [5, 0, 8, 3])
            ]
    assert all(loader.dataset.iterations.epochs.next() == Cursor(4, 10, 8, 3) for loader in loaders)


def test_sent_anywhere_else_it_finds_its_place_where_it_arrives(ranked):
    data = pickle.dumps((Iterations(None), Iterations(Place(0, 5))))
    ranked.setenv("RANK", "0")
    found, given = pickle.loads(data)
    assert (found.rank(), given.rank()) == (Place(0, 3), Place(0, 5))
