"""Batches of a dataset: collated as asked, the same whoever reads them, with marks on what repeats."""

from __future__ import annotations

import pickle
import warnings

import numpy as np
import pytest
import torch
from torch.utils.data import DataLoader

import penstock as ps
from penstock.data.order.sampling import Cursor
from penstock.errors import Damaged, NotFound, Unusable
from tests.data.datasets.transforms import number, numbered
from tests.data.reads import spans_of

COUNT = 10


@pytest.fixture
def folder(tmp_path):
    return numbered(tmp_path / "data", COUNT)


def sevenless(sample: ps.Sample) -> int:
    if int(sample.read()) % 7 == 0:
        raise ValueError("seven")
    return int(sample.data[:])


def nothing_left(sample: ps.Sample) -> int:
    return next(iter(sample.read()[1:]))  # of one digit there is no second one: StopIteration


def both(folder, **options):
    return [kind.from_prefix(folder, **options) for kind in (ps.MapDataset, ps.IterableDataset)]


def test_collation_is_torchs_or_yours_and_none_for_bare_samples(folder):
    for dataset in both(folder, transform=number):
        assert torch.equal(next(iter(dataset.batched(3))), torch.tensor([0, 1, 2]))
        assert next(iter(dataset.batched(3, collate_fn=sum))) == 3
        assert next(iter(dataset.batched(3, tuple))) == (0, 1, 2)
    for dataset in both(folder):
        assert [sample.read() for sample in next(iter(dataset.batched(2)))] == [b"0", b"1"]


def unwritable(sample: ps.Sample) -> dict[str, np.ndarray]:
    array = np.array([int(sample.read()), 7], dtype="uint8")
    array.flags.writeable = False
    return {"pair": array}


def test_arrays_that_cannot_be_written_to_are_collated_without_a_warning(folder):
    torch.set_warn_always(True)
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("error")
            batch = next(iter(ps.DataLoader(ps.MapDataset.from_prefix(folder, transform=unwritable), 3)))
    finally:
        torch.set_warn_always(False)
    assert batch["pair"].tolist() == [[0, 7], [1, 7], [2, 7]]
    assert batch["pair"].dtype == torch.uint8
    batch["pair"] += 1  # the batch's own memory


def test_batch_size_and_length_are_this_ranks(folder):
    dataset = ps.MapDataset.from_prefix(folder)
    of = dataset.batched(3, place=ps.Place(0, 2))
    assert (of.batch_size, len(of), len(DataLoader(of, batch_size=None))) == (3, 2, 2)
    assert of.dataset is dataset


def test_a_map_dataset_is_shuffled_by_seed_and_epoch(folder):
    dataset = ps.MapDataset.from_prefix(folder, transform=number)
    plain = dataset.batched(4, list)
    one, two = (dataset.batched(4, list, shuffle=True, seed=seed) for seed in (1, 2))
    epochs = [sum(of, []) for of in (plain, plain, one, one, two)]
    assert epochs[0] == epochs[1] == list(range(COUNT))
    assert all(sorted(epoch) == list(range(COUNT)) for epoch in epochs)
    assert len({tuple(epoch) for epoch in epochs}) == 4


@pytest.mark.parametrize(
    ("tail", "found"),
    [
        ("short", [[0, 1, 2], [6, 7, 8], [9]]),
        ("pad", [[0, 1, 2], [6, 7, 8], ["0", "1", "2"]]),
        ("drop", [[0, 1, 2], [6, 7, 8]]),
    ],
)
def test_samples_repeated_to_fill_the_tail_are_marked_as_repeats(folder, tail, found):
    """Twelve positions for two ranks of three; the thirteenth sample is alone, so rank 1 repeats."""
    urls = [f"{folder}{index:03d}" for index in (*range(COUNT), 0, 1, 2)]

    def marked(sample):
        return str(number(sample)) if sample.repeat else number(sample)

    dataset = ps.MapDataset.from_objects(urls, transform=marked)
    assert list(dataset.batched(3, list, tail=tail, place=ps.Place(0, 2)))[:2] == found[:2]
    last = [list(dataset.batched(3, list, tail=tail, place=ps.Place(rank, 2)))[2:] for rank in range(2)]
    assert last == {"short": [[[2]], [["0"]]], "pad": [[[2, "0", "1"]], [["2", "3", "4"]]], "drop": [[], []]}[tail]


def test_a_repeat_keeps_its_mark_through_an_index_a_batch_and_a_pickle(folder):
    dataset = ps.MapDataset.from_prefix(folder)
    once, again = dataset.__getitems__([4, ps.order.Repeat(4)])
    assert (once.repeat, again.repeat, dataset[ps.order.Repeat(4)].repeat) == (False, True, True)
    assert pickle.loads(pickle.dumps(again)).repeat
    assert pickle.loads(pickle.dumps(ps.order.Repeat(4))) == 4
    assert isinstance(pickle.loads(pickle.dumps(ps.order.Repeat(4))), ps.order.Repeat)


@pytest.mark.parametrize("workers", [0, 1])
def test_an_error_comes_where_its_batch_would_have(folder, tmp_path, workers):
    dataset = ps.IterableDataset.from_prefix(folder, transform=number)
    (tmp_path / "data" / "005").unlink()
    got = []
    with pytest.raises(NotFound, match="005"):
        got.extend(DataLoader(dataset.batched(2, list), batch_size=None, num_workers=workers))
    assert got == [[0, 1], [2, 3]]


def test_a_transform_that_raises_stopiteration_loses_nothing_in_silence(folder):
    """It would end the iteration over samples: a short batch, and the next one with this one's bytes."""
    for dataset in both(folder, transform=nothing_left):
        for read in (lambda of=dataset: list(of), lambda of=dataset: list(of.batched(4, list))):
            with pytest.raises(RuntimeError, match="000 raised StopIteration"):
                read()
    with pytest.raises(RuntimeError, match="003 raised StopIteration"):
        ps.MapDataset.from_prefix(folder, transform=nothing_left).__getitems__([3, 4])


def test_a_collate_fn_that_raises_stopiteration_does_not_end_the_epoch(folder):
    def collate(samples):
        return next(iter(samples[2:]))

    with pytest.raises(RuntimeError, match="StopIteration"):
        list(ps.MapDataset.from_prefix(folder, transform=number).batched(2, collate))


def test_deliveries_carry_the_epoch_cursor_and_skipped_samples(folder):
    of = ps.MapDataset.from_prefix(folder, transform=sevenless).batched(4, list)
    of.load_state_dict(of.state_at(1, epoch=2))
    (first, second), counts = of.deliveries("skip")
    assert (counts.requests, counts.errors) == (6, 0)
    assert (first.batch, first.cursor, [skipped.url[-3:] for skipped in first.skipped]) == (
        [4, 5, 6],
        Cursor(2, 4),
        ["007"],
    )
    assert (second.batch, second.cursor, second.skipped) == ([8, 9], Cursor(2, 4), ())
    assert first.skipped[0].error == "ValueError: seven"
    with pytest.raises(ValueError, match="seven"):
        list(of.deliveries("raise")[0])


def test_a_batch_of_which_nothing_is_left_is_an_error(folder):
    of = ps.MapDataset.from_prefix(folder, transform=sevenless).batched(1, list)
    with pytest.raises(Damaged, match=r"000 \(ValueError: seven\)"):
        next(of.deliveries("skip")[0])


def test_no_batch_is_smaller_than_one(folder):
    for dataset in both(folder):
        with pytest.raises(Unusable, match="1 or more"):
            dataset.batched(0)
        with pytest.raises(Unusable, match="tail"):
            dataset.batched(1, tail="even")


@pytest.mark.parametrize("world", [1, 2])
def test_spans_match_the_samples_read_in_the_next_epoch_per_rank(folder, world):
    for rank in range(world):
        place = ps.Place(rank=rank, world=world)
        for batched in (
            ps.IterableDataset.from_prefix(folder, shuffle=True, place=place).batched(2),
            ps.MapDataset.from_prefix(folder).batched(2, shuffle=True, place=place),
        ):
            for epoch in range(2):
                [(source, spans)] = batched.reads()
                named = [source.url(span.key) for span in spans]
                assert batched.coming().epoch == epoch
                assert named == [sample.url for batch in batched for sample in batch]


def test_a_dataset_names_all_of_its_objects(folder):
    for dataset in both(folder):
        assert spans_of(dataset) == [dataset.catalog.span(index) for index in range(COUNT)]
        assert spans_of(dataset, [[3, 1], [2]]) == [dataset.catalog.span(index) for index in (3, 1, 2)]
