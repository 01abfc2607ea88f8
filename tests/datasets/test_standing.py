"""A place is found in the parent and travels to its workers; anywhere else it is found anew."""

from __future__ import annotations

import multiprocessing
import pickle

import pytest
from torch.utils.data import DataLoader, IterableDataset

from penstock.datasets.standing import Standing
from penstock.order.course import Cursor
from penstock.values import Place


class Where(IterableDataset):
    """Yields where each iteration begins, and for whom."""

    def __init__(self, standing: Standing) -> None:
        self.standing = standing

    def __iter__(self):
        cursor, place = self.standing.begin()
        yield [list(cursor), [place.rank, place.world, place.worker, place.workers]]


@pytest.fixture
def ranked(monkeypatch):
    """The parent is rank 2 of 3, and knows it from its environment."""
    monkeypatch.setenv("RANK", "2")
    monkeypatch.setenv("WORLD_SIZE", "3")
    return monkeypatch


def test_alone_a_process_is_its_rank_without_workers(ranked):
    standing = Standing(None)
    assert standing.begin() == (Cursor(0, 0), Place(2, 3))
    assert standing.begin() == (Cursor(1, 0), Place(2, 3))
    ranked.setenv("RANK", "1")
    assert standing.rank() == Place(1, 3)
    assert Standing(Place(3, 4)).rank() == Place(3, 4)


@pytest.mark.usefixtures("ranked")
@pytest.mark.parametrize("method", ["fork", "spawn"])
def test_workers_have_the_parents_rank_and_their_own_number(method):
    standing = Standing(None)
    standing.rounds.resume(Cursor(4, 10))
    loader = DataLoader(
        Where(standing),
        batch_size=None,
        num_workers=2,
        multiprocessing_context=method,
        persistent_workers=True,
        timeout=100,
    )
    found = list(loader)
    assert found == [[[4, 10], [2, 3, 0, 2]], [[4, 10], [2, 3, 1, 2]]]
    assert [cursor for cursor, _ in loader] == [[5, 0]] * 2
    assert standing.rounds.next() == (6, 0)


def _rank(standing: Standing, results: multiprocessing.Queue) -> None:
    import os

    for name in ("RANK", "WORLD_SIZE"):  # a fork server has the environment of when it was started, by any test
        os.environ.pop(name, None)
    results.put(standing.rank())


@pytest.mark.usefixtures("ranked")
def test_a_spawned_process_has_no_need_of_its_parents_environment():
    context = multiprocessing.get_context("forkserver")
    results = context.Queue()
    process = context.Process(target=_rank, args=(Standing(None), results))
    process.start()
    assert results.get(timeout=100) == Place(2, 3)
    process.join(60)


def test_sent_anywhere_else_it_finds_its_place_where_it_arrives(ranked):
    data = pickle.dumps((Standing(None), Standing(Place(0, 5))))
    ranked.setenv("RANK", "0")
    found, given = pickle.loads(data)
    assert (found.rank(), given.rank()) == (Place(0, 3), Place(0, 5))
