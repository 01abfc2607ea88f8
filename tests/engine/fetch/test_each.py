"""One verb for many keys: in order, some hundred at a time, and called off where the caller leaves."""

import threading

import pytest

from penstock.engine.fetch import batch as module
from penstock.engine.fetch.batch import each_key, unless_missing
from penstock.errors import Cancelled, Forbidden, NotFound
from tests.engine.fetch import store
from tests.engine.fetch.store import Bucket, aside

KEYS = [f"{number:02}" for number in range(10)]


@pytest.fixture
def look():
    """Return a function that looks at the keys of a bucket, with as many threads as asked for."""
    fetchers = []

    def start(keys, before=lambda _key: None, threads=4):
        fetchers.append(fetcher := aside(Bucket({key: b"x" * int(key) for key in KEYS}, before), threads))
        return each_key(fetcher, keys, fetcher.driver.head)

    yield start
    for fetcher in fetchers:
        fetcher.close()


def test_results_come_in_the_order_of_the_keys_over_several_batches(look, monkeypatch):
    monkeypatch.setattr(module, "_AT_ONCE", 3)
    asked = [*reversed(KEYS), KEYS[4]]
    assert [each.result().key for each in look(asked)] == asked
    assert list(look([])) == []


def test_no_more_than_a_batch_is_asked_for_before_its_results_are_taken(look, monkeypatch):
    monkeypatch.setattr(module, "_AT_ONCE", 3)
    seen = []
    looking = look(KEYS, seen.append)
    for _ in range(3):
        next(looking)
    assert sorted(seen) == KEYS[:3]


def test_unless_missing_returns_none_only_for_not_found(look):
    def refuse(key):
        if key == "03":
            raise Forbidden("no")

    looking = look(["02", "none", "03"], refuse)
    assert unless_missing(next(looking)).size == 2
    missing = next(looking)
    assert unless_missing(missing) is None
    with pytest.raises(NotFound):
        missing.result()
    with pytest.raises(Forbidden):
        unless_missing(next(looking))


def test_closing_the_iterator_cancels_operations_that_have_not_begun(look, monkeypatch):
    let_go, carried_out, operations = threading.Event(), [], []

    def before(key):
        carried_out.append(key)
        assert key == "00" or let_go.wait(60)

    class Kept(store.Fetcher):
        def send(self, sent):
            operations.extend(sent)
            super().send(sent)

    monkeypatch.setattr(store, "Fetcher", Kept)
    looking = look(KEYS, before, threads=1)
    assert next(looking).result().size == 0
    looking.close()
    let_go.set()
    for operation in operations[2:]:
        operation.wait(60)
        assert type(operation.error) is Cancelled
    assert len(operations) == len(KEYS)
    assert carried_out in (["00"], ["00", "01"])
