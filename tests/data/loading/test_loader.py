"""The loader: what fits together, what it says of itself, and what it does when a sample or a worker goes wrong."""

from __future__ import annotations

import copy
import gc
import logging
import multiprocessing
import os
import pickle
import random
import re
import signal
import subprocess
import sys
import threading
from functools import partial
from itertools import islice

import numpy as np
import pytest
import torch

import penstock as ps
from penstock.data.loading import loader as loaders
from penstock.errors import Damaged, NotFound, StateMismatch, Unusable
from tests.data.datasets.transforms import number, numbered
from tests.data.reads import spans_of

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
        ({"decode_threads": 2, "num_workers": 1}, "worker processes do not use it"),
        ({"on_error": "ignore"}, "on_error"),
        ({"tail": "even"}, "tail"),
        ({"batch_size": 0}, "1 or more"),
        ({"persistent_workers": True}, "persistent_workers is for worker processes"),
        ({"timeout": 5, "worker_init_fn": print}, "timeout is for worker processes"),
        ({"in_order": False, "num_workers": 1}, "in_order is not an argument of this loader"),
        ({"prefetch_factor": 2, "num_workers": 1}, "prefetch_factor"),
        ({"sampler": [1], "num_workers": 1}, "sampler"),
        ({"batch_sampler": [[1]]}, "batch_sampler"),
        ({"order": ps.order.Lanes(lanes=2)}, r"order is not .* give shuffle= an order such as ps\.order\.BlockShuffle"),
        ({"block_bytes": 1 << 20}, r"write shuffle=ps\.order\.BlockShuffle\(block_bytes=1048576\)"),
    ],
    ids=lambda value: re.sub(r"\W+", "-", str(value)),
)
def test_arguments_that_do_not_fit_are_refused_at_once(folder, wrong, says):
    with pytest.raises(Unusable, match=says):
        ps.DataLoader(ps.MapDataset.from_prefix(folder), **wrong)


@pytest.mark.parametrize("own", [{"shuffle": True}, {"shuffle": ps.order.Lanes()}, {"seed": 1}, {"place": ps.Place()}])
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


def one_none(sample: ps.Sample) -> object:
    return {"image": torch.zeros(2), "box": [1, None if number(sample) == 20 else 2]}


def one_larger(sample: ps.Sample) -> object:
    return torch.zeros(3 if number(sample) == 20 else 2), sample.label


def one_short(sample: ps.Sample) -> object:
    if (found := number(sample)) == 17:
        raise ValueError("seventeen")
    return {"x": 1} if found == 20 else {"x": 1, "y": found}


@pytest.mark.parametrize("workers", [0, 1])
@pytest.mark.parametrize(
    ("transform", "options", "difference"),
    [
        (one_none, {}, r"row 4 .*\['box'\]\[1\] is None .*; return another value"),
        (one_short, {"on_error": "skip"}, r"row 4 .*\['y'\] is missing, and in row 3 a number"),
    ],
)
def test_a_batch_that_cannot_be_collated_names_sample_and_field(folder, transform, options, difference, workers):
    loader = load(folder, transform=transform, collate_fn=None, shuffle=False, num_workers=workers, **options)
    batches = iter(loader)
    assert len([next(batches), next(batches)]) == 2
    with pytest.raises((TypeError, RuntimeError, KeyError)) as found:
        next(batches)
    text = f"{found.value} {getattr(found.value, '__notes__', '')}".replace("\\n", "\n").replace("\\'", "'")
    assert re.search(f"cannot collate {difference}", text), text
    assert f"sample 20, file://{folder}" in text


def test_labels_that_are_none_are_named_in_any_loader(folder):
    dataset = ps.MapDataset.from_prefix(folder, transform=one_larger)
    for loader in (ps.DataLoader(dataset, 3), torch.utils.data.DataLoader(dataset.batched(3), batch_size=None)):
        with pytest.raises(TypeError) as found:
            next(iter(loader))
        assert "row 0 of the batch, sample 0, file://" in (note := found.value.__notes__[0])
        assert "[1] is None (as sample.label is without labels=)" in note


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


@pytest.mark.parametrize(
    ("received", "set_to", "expected"),
    [
        ([8, 3], 0, (1, 24)),  # the shorter of two loaders, in its second round within the trainer's first epoch
        ([8, 3], 1, (1, 0)),  # the same, where the trainer's first epoch was over
        ([8, 9], 0, (1, 61)),  # ended, and waits for the longer one: no batch until the trainer's next epoch
        ([9], 0, (0, 61)),
        ([9], 1, (1, 0)),
        ([3], 0, (0, 24)),
    ],
    ids=str,
)
def test_resumed_loader_goes_on_in_the_trainers_epoch_that_its_state_was_taken_in(folder, received, set_to, expected):
    loader = load(folder)
    loader.sampler.set_epoch(0)
    for batches in received:
        delivered = iter(loader)
        list(islice(delivered, batches))
    again = load(folder)
    again.load_state_dict(loader.state_dict())
    again.sampler.set_epoch(set_to)
    assert position(again) == expected
    assert len(list(again)) == 8 - (expected[1] + 7) // 8


@pytest.mark.parametrize("copied", [copy.copy, copy.deepcopy, lambda each: pickle.loads(pickle.dumps(each))])
def test_a_copied_or_pickled_loader_gives_the_same_batches(folder, copied):
    again = copied(load(folder))
    again.sampler.set_epoch(1)
    assert again.state_dict() == load(folder).sampler.state_at(0, epoch=1)
    assert sorted(sum(again, [])) == list(range(COUNT))


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
    first, second = ([f"file:///{span.key}" for span in spans_of(loader)] for _ in range(2))
    assert first == second
    assert first == [sample.url for batch in loader for sample in batch]
    assert first != [f"file:///{span.key}" for span in spans_of(loader)]


@pytest.mark.parametrize("workers", [0, 1])
def test_the_wrapper_of_ray_train_is_refused(folder, workers):
    from ray.train.torch.train_loop_utils import _WrappedDataLoader

    loader = load(folder, num_workers=workers)
    with pytest.raises(Unusable, match=r"cannot wrap a ps\.DataLoader.*leave out prepare_data_loader"):
        iter(_WrappedDataLoader(loader, torch.device("cpu"), auto_transfer=False))
    assert not hasattr(loader, "worker_init_fn")
    assert position(loader) == (0, 0)


def drawn(sample: ps.Sample) -> tuple[int, float, float, float]:
    return number(sample), torch.rand(()).item(), random.random(), np.random.rand()  # noqa: NPY002  global generators


def seeded() -> None:
    torch.manual_seed(7)
    random.seed(7)
    np.random.seed(7)  # noqa: NPY002  global generators


def generators() -> tuple[float, float, float]:
    return torch.rand(()).item(), random.random(), np.random.rand()  # noqa: NPY002  global generators


class TestGlobalGenerators:
    @pytest.mark.parametrize("options", [{}, {"num_workers": 1}, {"num_workers": 3}])
    @pytest.mark.parametrize("persistent", [False, True])
    def test_no_part_of_a_loader_draws_from_them(self, folder, options, persistent):
        seeded()
        expected = generators()
        if persistent and not options:
            return
        loader = load(folder, **options, **({"persistent_workers": True} if persistent else {}))
        seeded()
        assert next(iter(loader))
        assert [*loader], [*loader]
        loader.load_state_dict(loader.state_dict())
        assert len(loader), loader.report()
        assert generators() == expected

    def test_workers_repeat_their_numbers_after_the_same_seed_and_differ_by_epoch_and_loader(self, folder):
        found = []
        for _ in range(2):
            seeded()
            loader, other = (load(folder, transform=drawn, num_workers=2) for _ in range(2))
            pairs = [(first[0][1:], second[0][1:]) for first, second in zip(loader, other, strict=True)]
            found.append((pairs, [batch[0][1:] for batch in loader]))
        assert found[0] == found[1]
        [pairs, later], _ = found
        assert len({*pairs[0], later[0]}) == 3

    def test_numbers_of_an_epoch_are_the_same_after_a_stop_in_the_epoch_before(self, folder):
        def epochs(*, resumed):
            seeded()
            loader = load(folder, transform=drawn, num_workers=1)
            for _ in islice(loader, 3):
                state = loader.state_dict()
            torch.rand(5)
            loader = load(folder, transform=drawn, num_workers=1) if resumed else loader
            loader.load_state_dict(state)
            return [*loader], [*loader]

        assert epochs(resumed=True) == epochs(resumed=False)


@pytest.mark.parametrize("options", [{}, {"num_workers": 2}, {"num_workers": 2, "persistent_workers": True}])
class TestLooks:
    """A look at the first batch before a loop, as programs take it."""

    def test_an_iteration_begins_where_a_look_did(self, folder, options):
        whole, loader = [*load(folder)], load(folder, **options)
        looks = [next(iter(loader)) for _ in range(2)]
        assert looks == [whole[0]] * 2
        for batch in loader:
            assert batch == whole[0]
            break
        assert position(loader) == (0, 8)
        assert [*loader] == whole
        assert position(loader) == (1, 0)

    def test_a_look_after_a_resume_loses_nothing(self, folder, options):
        loader = load(folder)
        batches = [*loader, *loader]
        loader = load(folder, **options)
        loader.load_state_dict(load(folder).state_dict() | {"position": 24})
        look = next(iter(loader))
        assert look == batches[3]
        assert [*loader, *loader] == batches[3:]

    def test_last_batch_of_an_epoch_does_not_count_as_a_look(self, folder, options):
        loader, plain = load(folder, **options), load(folder)
        first, second = [*plain], [*plain]
        loader.load_state_dict(load(folder).state_dict() | {"position": 8 * (len(first) - 1)})
        # Lightning closes the iterator once it has counted all batches.
        assert next(iter(loader)) == first[-1]
        assert [*loader] == second

    def test_set_epoch_holds_after_a_look(self, folder, options):
        loader, plain = load(folder, **options), load(folder)
        _, second = [*plain], [*plain]
        next(iter(loader))
        loader.set_epoch(1)
        assert [*loader] == second
        next(iter(loader))
        loader.set_epoch(1)
        assert [*loader] == second

    def test_two_batches_are_an_epoch(self, folder, options):
        loader, plain = load(folder, **options), load(folder)
        _, second = [*plain], [*plain]
        assert len([*islice(loader, 2)]) == 2
        assert [*loader] == second

    def test_setting_the_epoch_that_comes_anyway_holds_after_a_look(self, folder, options):
        loader, plain = load(folder, **options), load(folder)
        first = next(batches := iter(loader))
        loader.set_epoch(1)
        batches.close()
        assert [first] == list(plain)[:1]
        assert list(loader) == list(plain)

    def test_a_loop_of_looks_gets_other_batches_and_a_warning(self, folder, options, caplog):
        loader = load(folder, **options)
        firsts = [next(iter(loader)) for _ in range(7)]
        assert firsts[:4] == firsts[:1] * 4
        assert len({str(each) for each in firsts[3:]}) == 4
        assert [record.message for record in caplog.records if "keep the iterator" in record.message]


@pytest.mark.parametrize("options", [{}, {"num_workers": 1}])
def test_a_look_from_within_an_epoch_leaves_its_state_and_the_next_epoch(folder, options):
    whole, loader = [*load(folder)], load(folder, **options)
    for at, batch in enumerate(loader):
        assert batch == whole[at]
        next(iter(loader))
        assert position(loader) == (0, min(COUNT, 8 * (at + 1)))
    assert position(loader) == (1, 0)


def test_an_iteration_whose_persistent_workers_were_taken_over_ends_with_an_error(folder):
    loader = load(folder, num_workers=1, persistent_workers=True)
    first = iter(loader)
    next(first)
    assert len([*loader]) == 8
    with pytest.raises(Unusable, match="a later one has taken"):
        next(first)


def test_a_new_loader_begins_at_epoch_0_for_every_kind_of_dataset(folder, tmp_path, caplog):
    np.arange(500, dtype="uint16").tofile(tmp_path / "tokens.bin")
    listed = ps.MapDataset.from_prefix(folder, transform=number)
    iterable = ps.IterableDataset.from_prefix(folder, transform=number, shuffle=True)
    plain = ps.IterableDataset.from_prefix(folder, transform=number)
    tokens = ps.TokenDataset.from_shards(tmp_path / "tokens.bin", length=9, dtype="uint16")
    own, shuffle = {}, {"shuffle": True}
    made = [
        (listed, shuffle),
        (iterable, own),
        (ps.concat(listed, listed), shuffle),
        (ps.concat(plain, listed, shuffle=True), own),
        (ps.Mix({"a": listed, "b": listed}), shuffle),
        (torch.utils.data.Subset(listed, range(0, 60, 2)), shuffle),
        (tokens, shuffle),
    ]
    for dataset, options in made:
        caplog.clear()
        first, second = (ps.DataLoader(dataset, 8, collate_fn=str, **options) for _ in range(2))
        batches = [*first]
        assert (position(first)[0], position(second)[0]) == (1, 0)
        assert [*second] == batches
        assert [*second] == [*first] != batches
        assert caplog.text.count("begins at epoch 0 again") == 1


def test_set_epoch_of_a_dataset_reaches_its_loaders(folder):
    dataset = ps.IterableDataset.from_prefix(folder, transform=number, shuffle=True)
    before = ps.DataLoader(dataset, 8)
    dataset.set_epoch(3)
    after = ps.DataLoader(dataset, 8)
    assert (position(before), position(after)) == ((3, 0), (3, 0))
    assert len([*before]) == 8
    assert (position(before), position(after)) == ((4, 0), (3, 0))


@pytest.mark.parametrize(
    "name",
    [
        *("batch_size", "dataset", "shuffle", "seed", "num_workers", "drop_last", "sampler", "batch_sampler", "device"),
        *("prefetch_factor", "persistent_workers", "worker_init_fn", "generator", "pin_memory", "collate_fn"),
    ],
)
def test_arguments_of_a_loader_that_exists_cannot_be_set(folder, name):
    loader = load(folder)
    with pytest.raises(ValueError, match=f"cannot set {name} of a loader that exists: make a new one"):
        setattr(loader, name, 16)
    loader.name = "train"
    assert len([*loader]) == 8


def test_arguments_that_are_those_of_the_dataset_are_accepted(folder):
    plain = ps.IterableDataset.from_prefix(folder, transform=number)
    assert len(ps.DataLoader(plain, 8, shuffle=False, seed=0)) == 8
    shuffled = ps.IterableDataset.from_prefix(folder, transform=number, shuffle=True, seed=3)
    assert len(ps.DataLoader(shuffled, 8, shuffle=True, seed=3)) == 8
    for dataset, other in ((plain, {"shuffle": True}), (shuffled, {"shuffle": False}), (shuffled, {"seed": 4})):
        with pytest.raises(Unusable, match="has its own shuffle"):
            ps.DataLoader(dataset, 8, **other)


@pytest.mark.parametrize("name", ["num_replicas", "rank", "world_size"])
def test_a_rank_in_torchs_words_names_place(folder, name):
    with pytest.raises(Unusable, match=rf"{name} is not an argument of this loader: .*place=ps\.Place"):
        load(folder, **{name: 1})


def test_a_state_that_is_taken_at_any_time_belongs_to_a_whole_batch(folder):
    loader, found, ended = load(folder, 1), [], threading.Event()

    def ask() -> None:
        while not ended.is_set():
            found.append(position(loader))

    asking = threading.Thread(target=ask)
    asking.start()
    for _ in range(5):
        assert len([*loader]) == COUNT
    ended.set()
    asking.join()
    # A look may be taken back, but an epoch that has begun is never left out.
    assert found == sorted(found)


def test_a_refused_state_changes_nothing(folder):
    def made(weights):
        sources = {name: ps.MapDataset.from_prefix(folder, transform=number) for name in "ab"}
        return ps.DataLoader(ps.Mix(sources, weights=weights), 8, shuffle=True, collate_fn=list)

    state = made({"a": 3, "b": 1}).state_dict()
    loader, plain = made({"a": 3, "b": 1}), made({"a": 3, "b": 1})
    for wrong in (state | {"seed": 4}, state | {"global_batch": 16}, state | {"position": -1}):
        with pytest.raises(StateMismatch):
            loader.load_state_dict(wrong, new_weights={"a": 1, "b": 1})
    assert loader.state_dict() == plain.state_dict()
    loader.load_state_dict(state, new_weights=False)
    assert [*loader] == [*plain]


def test_a_sampler_takes_lanes_of_joined_datasets_and_tokens(folder, tmp_path):
    np.arange(5000, dtype="uint16").tofile(tmp_path / "tokens.bin")
    tokens = ps.TokenDataset.from_shards(tmp_path / "tokens.bin", length=9, dtype="uint16")
    listed = ps.MapDataset.from_prefix(folder, transform=number)
    for dataset in (tokens, ps.concat(listed, listed), ps.concat(tokens, tokens), listed):
        for shuffle in (ps.order.Lanes(), ps.order.BlockShuffle(), ps.order.Lanes(5, 2), True):
            sampler = ps.BatchSampler(dataset, 8, shuffle=shuffle)
            loader = ps.DataLoader(dataset, 8, shuffle=shuffle)
            planned = [[each.index for each in loader.inspect(batch)] for batch in range(3)]
            assert [*islice(sampler, 3)] == planned
            assert sorted(index for batch in ps.BatchSampler(dataset, 8, shuffle=shuffle) for index in batch) == [
                *range(len(dataset))
            ]


def test_a_look_that_is_kept_to_the_end_of_a_program_ends_without_noise(folder):
    loader = f"ps.DataLoader(ps.MapDataset.from_prefix({folder!r}), 8)"
    program = f"import penstock as ps; batches = iter({loader}); next(batches)"
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert done.stderr == ""
