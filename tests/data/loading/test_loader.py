"""The loader: what fits together, what it says of itself, and what it does when a sample or a worker goes wrong."""

from __future__ import annotations

import gc
import logging
import multiprocessing
import os
import re
import signal
import threading
from functools import partial
from itertools import islice

import pytest
import torch

import penstock as ps
from penstock.data.loading import loader as loaders
from penstock.errors import Damaged, NotFound, StateMismatch, Unusable
from tests.data.datasets.transforms import number, numbered

pytestmark = pytest.mark.filterwarnings("ignore:This DataLoader will create")
COUNT = 61


@pytest.fixture
def folder(tmp_path):
    return numbered(tmp_path / "data", COUNT)


def sevenless(sample: ps.Sample) -> int:
    if number(sample) % 7 == 0:
        raise ValueError("seven")
    return int(sample.data[:])


def deadly(sample: ps.Sample) -> int:
    if number(sample) == 20:
        os.kill(os.getpid(), signal.SIGKILL)
    return int(sample.data[:])


def deadly_once(marker, sample: ps.Sample) -> int:
    if number(sample) == 20 and not marker.exists():
        marker.touch()
        os.kill(os.getpid(), signal.SIGKILL)
    return int(sample.data[:])


def load(folder: str, batch: int = 8, transform=number, **options) -> ps.DataLoader:
    dataset = ps.MapDataset.from_prefix(folder, transform=transform)
    return ps.DataLoader(dataset, batch, **{"collate_fn": list, "shuffle": True, "seed": 2, **options})


def position(loader: ps.DataLoader) -> tuple[int, int]:
    state = loader.state_dict()
    return state["epoch"], state["position"]


@pytest.mark.parametrize(
    ("wrong", "says"),
    [
        ({"num_workers": -1}, "num_workers"),
        ({"prefetch": 0}, "prefetch"),
        ({"decode_threads": 0}, "decode_threads"),
        ({"decode_threads": 2, "num_workers": 1}, "workers transform in their own process"),
        ({"on_error": "ignore"}, "on_error"),
        ({"tail": "even"}, "tail"),
        ({"batch_size": 0}, "1 or more"),
        ({"persistent_workers": True}, "persistent_workers is for worker processes"),
        ({"timeout": 5, "worker_init_fn": print}, "timeout is for worker processes"),
        ({"in_order": False, "num_workers": 1}, "in_order is not an argument of this loader"),
        ({"prefetch_factor": 2, "num_workers": 1}, "prefetch_factor"),
        ({"sampler": [1], "num_workers": 1}, "sampler"),
        ({"batch_sampler": [[1]]}, "batch_sampler"),
        ({"order": ps.Lanes(lanes=2)}, r"order is not .* give shuffle= an order such as ps\.BlockShuffle"),
        ({"block_bytes": 1 << 20}, r"write shuffle=ps\.BlockShuffle\(block_bytes=1048576\)"),
    ],
    ids=lambda value: re.sub(r"\W+", "-", str(value)),
)
def test_arguments_that_do_not_fit_are_refused_at_once(folder, wrong, says):
    with pytest.raises(Unusable, match=says):
        ps.DataLoader(ps.MapDataset.from_prefix(folder), **wrong)


@pytest.mark.parametrize("own", [{"shuffle": True}, {"shuffle": False}, {"seed": 0}, {"place": ps.Place()}])
def test_an_iterable_dataset_has_its_own_order(folder, own):
    with pytest.raises(Unusable, match="has its own shuffle"):
        ps.DataLoader(ps.IterableDataset.from_prefix(folder), **own)


def test_printed_it_says_what_it_loads(folder):
    files = ps.MapDataset.from_prefix(folder)
    loader = ps.DataLoader(files, 4, shuffle=True, num_workers=1)
    held = r"<MapDataset of \d+ objects under .*>"
    assert re.fullmatch(rf"<DataLoader of {held} in batches of 4, FullShuffle, 1 worker>", repr(loader))
    mixed = ps.DataLoader(ps.Mix({"files": files}), 4)
    assert repr(mixed) == "<DataLoader of <Mix of files> in batches of 4, Mixture, 0 workers>"


@pytest.mark.parametrize("dataset", [[1, 2, 3], torch.utils.data.TensorDataset(torch.zeros(3)), None])
def test_unsupported_dataset_error_recommends_batch_sampler(dataset):
    with pytest.raises(Unusable, match="BatchSampler"):
        ps.DataLoader(dataset)


@pytest.mark.parametrize(("options", "length"), [({}, 8), ({"drop_last": True}, 7), ({"tail": "pad"}, 8)])
def test_its_length_is_an_epochs_batches(folder, options, length):
    loader = load(folder, **options)
    assert (len(loader), len(list(loader)), loader.batch_size) == (length, length, 8)
    loader.load_state_dict(loader.sampler.state_at(3, epoch=1))
    assert (len(loader), len(list(loader))) == (length, length - 3)
    assert len(load(folder, 4, place=ps.Place(1, 2), **options)) == length


def test_collation_is_torchs_or_yours_and_none_for_bare_samples(folder):
    assert torch.equal(next(iter(load(folder, 3, collate_fn=None, shuffle=False))), torch.tensor([0, 1, 2]))
    assert next(iter(load(folder, 3, collate_fn=sum, shuffle=False))) == 3
    bare = next(iter(load(folder, 2, transform=None, collate_fn=None, shuffle=False)))
    assert [sample.read() for sample in bare] == [b"0", b"1"]


@pytest.mark.parametrize(
    "options",
    [
        {"num_workers": 1},
        {"num_workers": 2, "persistent_workers": True},
        {"num_workers": 3, "prefetch": 1},
        {"decode_threads": 5, "prefetch": 7},
    ],
    ids=str,
)
def test_epochs_advance_automatically_or_by_set_epoch_under_any_loader_options(folder, options):
    plain = load(folder, decode_threads=1)
    natural = [list(plain) for _ in range(3)]
    assert all(sorted(sum(epoch, [])) == list(range(COUNT)) for epoch in natural)
    assert natural[0] != natural[1] != natural[2]
    loader = load(folder, **options)
    assert [list(loader), list(loader)] == natural[:2]
    loader.set_epoch(1)
    assert [list(loader), list(loader)] == natural[1:]
    loader.sampler.set_epoch(0)
    assert list(loader) == natural[0]


@pytest.mark.parametrize("workers", [0, 2])
def test_loader_state_counts_received_samples_at_every_step(folder, workers):
    loader = load(folder, num_workers=workers)
    assert position(loader) == (0, 0)
    batches = iter(loader)
    assert position(loader) == (0, 0)
    for received in range(1, 9):
        next(batches)
        assert position(loader) == (0, min(COUNT, 8 * received))
    assert list(batches) == []
    assert position(loader) == (1, 0)
    list(islice(loader, 3))
    assert position(loader) == (1, 24)
    assert position(loader) == (1, 24), "asking changes nothing"
    loader.load_state_dict(loader.state_dict())
    assert position(loader) == (1, 24)
    assert len(list(loader)) == 5
    assert position(loader) == (2, 0)
    next(iter(loader))
    loader.set_epoch(7)
    list(loader)
    assert position(loader) == (8, 0)


@pytest.mark.parametrize("workers", [0, 2])
def test_unused_iterator_does_not_advance_the_epoch(folder, workers):
    loader = load(folder, num_workers=workers)
    unused = iter(loader)
    loader.set_epoch(4)
    expected = load(folder)
    expected.set_epoch(4)
    assert list(loader) == list(expected)
    del unused
    assert position(loader) == (5, 0)


@pytest.mark.parametrize("workers", [0, 1])
def test_of_two_iterators_each_is_an_epoch_and_the_state_follows_the_one_that_moved(folder, workers):
    epochs = tuple(list(load_epoch(folder, epoch)) for epoch in range(2))
    loader = load(folder, num_workers=workers)
    one, two = iter(loader), iter(loader)
    got = ([next(one)], [next(two)])
    assert position(loader) == (1, 8)
    got[0].append(next(one))
    assert position(loader) == (0, 16)
    got[1].extend(two)
    got[0].extend(one)
    assert got == epochs


def load_epoch(folder: str, epoch: int) -> ps.DataLoader:
    loader = load(folder)
    loader.set_epoch(epoch)
    return loader


def test_loading_in_the_middle_of_an_iteration_leaves_that_one_alone(folder):
    loader = load(folder)
    batches = iter(loader)
    taken = [next(batches), next(batches)]
    state = loader.state_dict()
    next(batches)
    loader.load_state_dict(state)
    assert list(loader) == load_whole(folder)[2:]
    assert taken == load_whole(folder)[:2]
    assert list(batches) == load_whole(folder)[3:]


def load_whole(folder: str) -> list[list[int]]:
    return list(load(folder))


@pytest.mark.parametrize("workers", [0, 1])
def test_a_state_of_another_order_is_refused_and_changes_nothing(folder, workers):
    loader = load(folder, num_workers=workers)
    for other in (
        load(folder, seed=3),
        load(folder, 4),
        load(folder, shuffle=False),
        load(folder, place=ps.Place(0, 2)),
    ):
        with pytest.raises(StateMismatch):
            loader.load_state_dict(other.state_dict())
    loader.load_state_dict(load(folder, 4).state_dict(), allow_new_global_batch=True)
    assert list(loader) == load_whole(folder)


@pytest.mark.parametrize("workers", [0, 2])
def test_skipped_samples_are_counted_named_and_logged_and_positions_hold(folder, tmp_path, workers, caplog):
    loader = load(folder, transform=sevenless, shuffle=False, num_workers=workers, on_error="skip")
    (tmp_path / "data" / "010").unlink()
    missing = {*range(0, COUNT, 7), 10}
    with caplog.at_level(logging.WARNING, logger="penstock"):
        got = list(loader)
    assert got == [
        [index for index in range(at, min(COUNT, at + 8)) if index not in missing] for at in range(0, COUNT, 8)
    ]
    assert loader.skipped_count == len(missing) == len(loader.skipped)
    assert sorted(int(skipped.url[-3:]) for skipped in loader.skipped) == sorted(missing)
    assert {skipped.error.partition(":")[0] for skipped in loader.skipped} == {"ValueError", "NotFound"}
    assert sum("left out of its batch" in record.message for record in caplog.records) == len(missing)
    assert "007 (ValueError: seven)" in caplog.text
    assert position(loader) == (1, 0)
    list(loader)
    assert loader.skipped_count == 2 * len(missing)


def test_the_latest_skipped_samples_are_remembered_and_all_are_counted(folder, monkeypatch):
    monkeypatch.setattr(loaders, "_REMEMBERED", 3)
    loader = load(folder, transform=sevenless, shuffle=False, on_error="skip")
    list(loader)
    assert [int(skipped.url[-3:]) for skipped in loader.skipped] == [42, 49, 56]
    assert loader.skipped_count == 9


@pytest.mark.parametrize("workers", [0, 1])
def test_a_batch_of_which_nothing_is_left_names_its_samples(folder, tmp_path, workers):
    loader = load(folder, 2, shuffle=False, num_workers=workers, on_error="skip")
    for gone in ("005", "010", "011"):
        (tmp_path / "data" / gone).unlink()
    got = []
    with pytest.raises(Damaged, match=r"010.*NotFound.*011.*NotFound"):
        got.extend(loader)
    assert got == [[0, 1], [2, 3], [4], [6, 7], [8, 9]]
    assert position(loader) == (0, 10)


@pytest.mark.parametrize("workers", [0, 1])
def test_by_default_an_error_names_the_key_and_the_state_stays_before_it(folder, workers):
    loader = load(folder, 5, transform=sevenless, shuffle=False, num_workers=workers)
    loader.load_state_dict(loader.sampler.state_at(2))
    with pytest.raises(ValueError, match="seven") as caught:
        list(loader)
    assert "data/014" in str(caught.value) + "".join(getattr(caught.value, "__notes__", ()))
    assert position(loader) == (0, 10)
    loader.load_state_dict(loader.state_dict())
    with pytest.raises(ValueError, match="seven"):
        next(iter(loader))


@pytest.mark.parametrize("workers", [0, 1])
def test_an_object_that_is_gone_is_named(folder, tmp_path, workers):
    loader = load(folder, shuffle=False, num_workers=workers)
    (tmp_path / "data" / "012").unlink()
    with pytest.raises(NotFound, match="012"):
        list(loader)


@pytest.mark.parametrize("persistent", [False, True])
def test_a_worker_that_is_killed_is_an_error_and_no_hang(folder, persistent):
    loader = load(folder, 4, transform=deadly, shuffle=False, num_workers=2, persistent_workers=persistent)
    got = []
    with pytest.raises(RuntimeError, match=r"worker .*(killed|exited)"):
        got.extend(loader)
    assert position(loader) == (0, 4 * len(got))
    assert got == [list(range(at, at + 4)) for at in range(0, 4 * len(got), 4)]
    rest = load(folder, 4, shuffle=False)
    rest.load_state_dict(loader.state_dict())
    assert sum(got + list(rest), []) == list(range(COUNT))


@pytest.mark.parametrize("persistent", [False, True])
def test_the_loader_goes_on_with_other_workers_after_one_was_killed(folder, tmp_path, persistent):
    transform = partial(deadly_once, tmp_path / "killed")
    loader = load(folder, 4, transform=transform, num_workers=2, persistent_workers=persistent)
    got = []
    with pytest.raises(RuntimeError, match=r"worker .*(killed|exited)"):
        got.extend(loader)
    loader.load_state_dict(loader.state_dict())
    assert got + list(loader) == list(load(folder, 4))


def test_the_workers_end_with_an_error_even_where_the_error_is_kept(folder):
    before = set(multiprocessing.active_children())
    gc.disable()
    try:
        with pytest.raises(ValueError, match="seven") as kept:
            list(load(folder, 5, transform=sevenless, shuffle=False, num_workers=2))
        assert set(multiprocessing.active_children()) <= before
    finally:
        gc.enable()
    assert "seven" in str(kept.value)


@pytest.mark.parametrize("options", [{}, {"num_workers": 2}, {"num_workers": 1, "persistent_workers": True}], ids=str)
def test_nothing_outlives_the_loader(folder, options):
    threads = threading.active_count()
    loader = load(folder, **options)
    for _ in range(3):
        for _ in loader:
            break
    assert [name for name in names() if name.startswith("penstock-decode")] == []
    del loader
    gc.collect()
    assert multiprocessing.active_children() == []
    assert threading.active_count() <= threads + 16  # local reads have threads of their own, kept for the next ones


def names() -> list[str]:
    return [thread.name for thread in threading.enumerate()]


def test_more_workers_than_batches_and_no_samples_at_all(folder):
    assert list(load(folder, 40, num_workers=3)) == list(load(folder, 40))
    empty = ps.MapDataset.from_prefix(folder)[:0]
    for workers in (0, 2):
        loader = ps.DataLoader(empty, 4, num_workers=workers)
        assert (len(loader), list(loader), list(loader)) == (0, [], [])


def test_two_loaders_of_one_map_dataset_count_epochs_independently(folder):
    dataset = ps.MapDataset.from_prefix(folder, transform=number)
    one, two = (ps.DataLoader(dataset, 8, shuffle=True, seed=2, collate_fn=list) for _ in range(2))
    first, second = zip(*zip(one, two, strict=True), strict=True)
    assert list(first) == list(second) == load_whole(folder)


def test_as_many_threads_as_processors_shared_by_the_ranks_of_a_machine(folder, monkeypatch):
    monkeypatch.setattr(os, "sched_getaffinity", lambda _: set(range(64)))
    assert load(folder)._threads == 16
    assert load(folder, transform=None)._threads == 1
    assert load(folder, decode_threads=40)._threads == 40
    monkeypatch.setenv("LOCAL_WORLD_SIZE", "8")
    assert load(folder)._threads == 8
    monkeypatch.setenv("LOCAL_WORLD_SIZE", "100")
    assert load(folder)._threads == 1
    monkeypatch.setenv("LOCAL_WORLD_SIZE", "many")
    assert load(folder)._threads == 16


def test_spans_predict_the_reads_of_the_next_epoch(folder):
    loader = ps.DataLoader(ps.MapDataset.from_prefix(folder), 7, shuffle=True, seed=5)
    first, second = ([loader.spans()[0].url(span.key) for span in loader.spans()[1]] for _ in range(2))
    assert first == second
    assert first == [sample.url for batch in loader for sample in batch]
    assert first != [loader.spans()[0].url(span.key) for span in loader.spans()[1]]


@pytest.mark.parametrize("workers", [0, 1])
def test_the_wrapper_of_ray_train_is_refused(folder, workers):
    from ray.train.torch.train_loop_utils import _WrappedDataLoader

    loader = load(folder, num_workers=workers)
    with pytest.raises(Unusable, match=r"cannot wrap a ps\.DataLoader.*leave out prepare_data_loader"):
        iter(_WrappedDataLoader(loader, torch.device("cpu"), auto_transfer=False))
    assert not hasattr(loader, "worker_init_fn")
    assert position(loader) == (0, 0)
