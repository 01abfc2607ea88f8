"""Items that prepare, under every loader: decoded once by whichever thread, their errors where they are needed."""

from __future__ import annotations

import threading

import pytest
import torch
from torch.utils.data import DataLoader

import penstock as ps
from penstock.data.loading.arguments import processors
from penstock.data.loading.decoding import DecodeOptions, DecodePool
from penstock.errors import Damaged, Unusable
from tests.children import forked
from tests.data.datasets.chunks import Chunked
from tests.data.loading.test_decoding import BATCH, COUNT, WAIT_S, Turnstile, decoders, until, waits, whole

pytestmark = [
    pytest.mark.filterwarnings("ignore:'set_vital' is deprecated"),
    pytest.mark.filterwarnings("ignore:This DataLoader will create"),  # more workers than processors: meant
]


def chunked(dataset: Chunked, **changes) -> DecodePool:
    options = DecodeOptions(**{"threads": 3, "ahead": 2, "on_error": "raise", "finish": list, **changes})
    cursor, reading = dataset.batched(BATCH).reading()
    return DecodePool(reading, cursor, options)


@pytest.mark.parametrize("threads", [1, 2, 6])
def test_samples_wait_until_their_chunk_is_prepared(threads, seed):
    """Each chunk is decoded once, in an order drawn at random, while samples of others are made."""
    for draw in range(5):
        dataset, turnstile, decoded = Chunked(COUNT, 7), Turnstile(seed + draw, 6), []
        decode = dataset.decode

        def in_any_order(chunk: int, decode=decode, turnstile=turnstile, decoded=decoded) -> list[int]:
            decoded.append(chunk)
            turnstile.hold()
            return decode(chunk)

        dataset.decode = in_any_order
        assert [delivery.batch for delivery in chunked(dataset, threads=threads, ahead=3)] == whole()
        assert sorted(decoded) == list(range(6))
    assert decoders() == []


def test_no_more_is_prepared_than_the_batches_that_are_begun_need():
    dataset, decoded = Chunked(COUNT, BATCH), []
    decode = dataset.decode
    dataset.decode = lambda chunk: decoded.append(chunk) or decode(chunk)
    pool = chunked(dataset)
    until(lambda: waits("_draw"))
    until(lambda: len(decoded) == 2)
    next(pool)
    until(lambda: waits("_draw"))
    until(lambda: len(decoded) == 3)
    pool.close()


def test_late_arriving_chunk_is_prepared_while_batches_wait_for_the_consumer():
    late, dataset, decoded = [4], Chunked(2 * BATCH, BATCH), []
    decode = dataset.decode
    dataset.decode = lambda chunk: decoded.append(chunk) or decode(chunk)
    reading_of = dataset.reading

    def reading(batches, workers):
        found = reading_of(batches, workers)

        def ahead():
            late[0] -= 1
            return next(found) if late[0] == 0 else None

        found.ahead = ahead
        return found

    dataset.reading = reading
    cursor, items = dataset.batched(BATCH).reading()
    pool = DecodePool(items, cursor, DecodeOptions(1, 1, "raise", list))
    until(lambda: decoded == [0, 1])
    assert [each.batch for each in pool] == whole()[:2]


def test_an_error_of_preparation_is_raised_in_the_turn_of_the_samples_that_need_it():
    pool = chunked(Chunked(COUNT, BATCH, broken=[2]), ahead=5)
    got = [next(pool).batch, next(pool).batch]
    with pytest.raises(Damaged, match="chunk 2"):
        next(pool)
    assert got == whole()[:2]
    assert list(pool) == []
    assert decoders() == []


def test_samples_that_cannot_be_prepared_are_skipped_and_no_others():
    deliveries = list(chunked(Chunked(COUNT, 3, broken=[2, 12]), on_error="skip", ahead=3))
    lost = {6, 7, 8, 36, 37, 38}
    assert [each.batch for each in deliveries] == [[x for x in batch if x not in lost] for batch in whole()]
    assert [skipped.url for each in deliveries for skipped in each.skipped] == [f"sample {x}" for x in sorted(lost)]
    assert all("chunk" in skipped.error for each in deliveries for skipped in each.skipped)


@pytest.mark.parametrize("on_error", ["raise", "skip"])
def test_a_preparation_that_keeps_no_error_ends_the_iteration_and_hangs_nothing(on_error):
    """Not what the protocol allows: the error comes all the same, after whole batches only."""

    class Careless(Chunked):
        def reading(self, batches, workers):
            reading = super().reading(batches, workers)
            items = reading._items

            def careless():
                raise ValueError("careless")

            def drawn():
                for item in items:
                    if item.url == "chunk 5":
                        item = item._replace(make=careless)  # noqa: PLW2901  the same place
                    yield item

            reading._items = drawn()
            return reading

    for _ in range(20):
        pool, got = chunked(Careless(COUNT, BATCH), on_error=on_error, ahead=4), []
        with pytest.raises(ValueError, match="careless"):
            got.extend(delivery.batch for delivery in pool)
        assert got == whole()[: len(got)]
        assert len(got) <= 5
        assert decoders() == []


@pytest.mark.parametrize("on_error", ["raise", "skip"])
def test_a_batch_that_is_drawn_when_its_preparation_fails_does_not_wait_for_ever(on_error):
    """Not what the protocol allows, either: all samples of the batch wait by then, and the next one has begun."""
    drawn = threading.Event()

    def careless():
        assert drawn.wait(WAIT_S)
        raise ValueError("careless")

    class Careless(Chunked):
        def reading(self, batches, workers):
            reading = super().reading(batches, workers)
            items = reading._items

            def followed():
                for item in items:
                    if item.size and item.batch == 6:
                        drawn.set()
                    yield item._replace(make=careless) if item.url == "chunk 5" else item

            reading._items = followed()
            return reading

    pool, got = chunked(Careless(COUNT, BATCH), on_error=on_error, ahead=4, threads=4 * BATCH), []
    with pytest.raises(ValueError, match="careless"):
        got.extend(delivery.batch for delivery in pool)
    assert got == whole()[: len(got)]
    assert len(got) <= 5
    assert decoders() == []


def test_closing_waits_for_preparation_that_runs_and_leaves_no_thread():
    dataset, begun, go = Chunked(COUNT, BATCH), threading.Event(), threading.Event()
    decode = dataset.decode

    def slow(chunk: int) -> list[int]:
        begun.set()
        assert go.wait(WAIT_S)
        return decode(chunk)

    dataset.decode = slow
    pool = chunked(dataset, threads=4)
    assert begun.wait(WAIT_S)
    closing = threading.Thread(target=pool.close)
    closing.start()
    go.set()
    closing.join(WAIT_S)
    assert not closing.is_alive()
    assert decoders() == []


def lost(chunks: set[int], per: int) -> list[list[int]]:
    return [[x for x in batch if x // per not in chunks] for batch in whole()]


@pytest.mark.parametrize(
    "options",
    [{}, {"decode_threads": 5}, {"num_workers": 2, "multiprocessing_context": "fork"}],
    ids=["threads", "five", "fork"],
)
def test_a_dataset_without_a_catalog_has_batches_that_resume_under_the_loader(options):
    def load(**changes) -> ps.DataLoader:
        return ps.DataLoader(Chunked(COUNT, 3), BATCH, collate_fn=list, **options, **changes)

    loader = load()
    batches = iter(loader)
    got = [next(batches) for _ in range(3)]
    state = loader.state_dict()
    batches.close()
    resumed = load()
    resumed.load_state_dict(state)
    assert got + list(resumed) == whole()
    assert list(resumed) == whole()
    assert state["catalog"] == "of numbers"
    skipping = ps.DataLoader(Chunked(COUNT, 3, broken=[2, 12]), BATCH, collate_fn=list, on_error="skip", **options)
    assert list(skipping) == lost({2, 12}, 3)
    assert skipping.skipped_count == 6
    failing, made = ps.DataLoader(Chunked(COUNT, 3, broken=[2]), BATCH, collate_fn=list, **options), []
    with pytest.raises(Damaged, match="chunk 2"):
        made.extend(failing)
    assert made == whole()[: len(made)]


def test_a_dataset_without_a_catalog_reaches_workers_that_are_not_forked():
    loader = ps.DataLoader(
        Chunked(COUNT, 3), BATCH, collate_fn=list, num_workers=1, multiprocessing_context="forkserver"
    )
    assert list(loader) == whole()


def test_chunked_dataset_is_sharded_with_equal_batch_count_on_each_rank():
    ranks = [ps.DataLoader(Chunked(COUNT + 1, place=ps.Place(rank, 3)), 4, collate_fn=list) for rank in range(3)]
    batches = [list(rank) for rank in ranks]
    assert sorted(sum(sum(batches, []), [])) == list(range(COUNT + 1))
    assert {len(each) for each in batches} == {len(ranks[0])}


def test_torchs_own_loaders_take_its_batches():
    from torchdata.stateful_dataloader import StatefulDataLoader

    assert list(Chunked(COUNT).batched(BATCH, list)) == whole()
    assert torch.equal(next(iter(Chunked(COUNT).batched(BATCH))), torch.arange(BATCH))
    assert list(DataLoader(Chunked(COUNT).batched(BATCH, list), batch_size=None, num_workers=2)) == whole()

    def stateful() -> StatefulDataLoader:
        return StatefulDataLoader(Chunked(COUNT).batched(BATCH, list), batch_size=None, num_workers=2)

    loader = stateful()
    batches = iter(loader)
    got = [next(batches) for _ in range(5)]
    again = stateful()
    again.load_state_dict(loader.state_dict())
    assert got + list(again) == whole()


def test_the_order_is_the_datasets_own():
    with pytest.raises(Unusable, match="a Chunked has its own shuffle, seed and place"):
        ps.DataLoader(Chunked(COUNT), BATCH, shuffle=True)


def test_threads_decode_without_a_transform():
    assert ps.DataLoader(Chunked(COUNT), BATCH)._threads > 1 or processors() == 1


def test_a_fork_in_the_middle_leaves_the_parents_threads_alone():
    pool = chunked(Chunked(COUNT, 3), threads=3)
    first = next(pool).batch

    def child() -> None:
        with pytest.raises(Unusable, match="fork"):
            next(pool)
        pool.close()

    with forked(child) as status:
        assert status() == 0
    assert [first, *(delivery.batch for delivery in pool)] == whole()
