"""Ranks that have different catalogs or orders raise at once, and no rank waits for another."""

from __future__ import annotations

import datetime as dt
import gc
import os
import signal
import time
import weakref
from contextlib import suppress
from itertools import islice
from pathlib import Path

import numpy as np
import pytest
import torch.distributed as dist
from torch.distributed.distributed_c10d import _get_default_store
from torch.utils.data import DataLoader, Dataset

import penstock as ps
from penstock.data.catalog.catalog import Catalog, Entry
from penstock.data.datasets.consistency import check_same_catalog, check_same_order
from penstock.errors import StateMismatch, TimedOut, Unreachable
from tests.children import forked
from tests.data.datasets.chunks import Chunked, Numbers
from tests.data.datasets.ranks import free_port, ranks


@pytest.fixture(params=["file", "tcp"])
def init_method(request, tmp_path):
    return f"file://{tmp_path}/store" if request.param == "file" else f"tcp://127.0.0.1:{free_port()}"


@pytest.fixture
def tcp():
    return f"tcp://127.0.0.1:{free_port()}"


def _catalog(count, root="s3://bucket/"):
    return Catalog.build(root, "train/", [Entry(f"train/{number}", number) for number in range(count)])


def _tried(catalog):
    """Return what comparing raised, and how long it took."""
    began = time.monotonic()
    try:
        check_same_catalog(catalog)
    except (StateMismatch, TimedOut, Unreachable) as error:
        return error, time.monotonic() - began
    return None, time.monotonic() - began


def _counts(*counts):
    """Compare catalogs of the sizes that this rank is told, one after another."""
    return [_tried(_catalog(count))[0] for count in counts[dist.get_rank()]]


def test_without_a_group_nothing_is_compared():
    check_same_catalog(_catalog(3))


def test_equal_catalogs_agree(init_method):
    assert ranks(3, init_method, _counts, [5], [5], [5]) == [[None]] * 3


def _two_then_one():
    """Let ranks 0 and 2 come first; the others do not wait for rank 1."""
    if dist.get_rank() == 1:
        dist.barrier()
        return _tried(_catalog(6))
    answer = _tried(_catalog(5))
    dist.barrier()
    return answer


def test_differing_rank_raises_state_mismatch_quickly_and_others_continue(init_method):
    (first, _), (different, seconds), (third, _) = ranks(3, init_method, _two_then_one)
    assert first is None
    assert third is None
    assert isinstance(different, StateMismatch)
    assert seconds < 30
    for part in ("rank 1 has 6 objects", "has 5", _catalog(5).digest, _catalog(6).digest, "s3://bucket/train/"):
        assert part in str(different)


def _refused_then_right():
    """Rank 0 comes first; rank 1 comes with a catalog too many, and then with rank 0's."""
    if dist.get_rank() == 1:
        dist.barrier()
        return _counts([], [6, 5, 7])
    answers = _counts([5, 7])
    dist.barrier()
    return answers


def test_after_a_refusal_the_next_attempt_is_compared_with_the_same_catalog_of_the_others(tcp):
    first, (refused, *others) = ranks(2, tcp, _refused_then_right)
    assert first == [None, None]
    assert isinstance(refused, StateMismatch)
    assert others == [None, None]


def test_datasets_of_one_prefix_are_compared_in_turn(tcp):
    assert ranks(2, tcp, _counts, [5, 6, 5], [5, 6, 5]) == [[None] * 3] * 2


def _one_more():
    """Rank 0 makes datasets of other prefixes besides; all compare one catalog several times."""
    catalog = _catalog(5)
    if dist.get_rank() == 0:
        check_same_catalog(_catalog(9, "s3://other/"))
    check_same_catalog(catalog)
    if dist.get_rank() == 0:
        check_same_catalog(_catalog(9, "s3://another/"))
    for _ in range(dist.get_rank()):
        check_same_catalog(catalog)
    check_same_catalog(_catalog(7))


def test_other_prefixes_and_comparing_again_keep_ranks_in_step(tcp):
    assert ranks(2, tcp, _one_more) == [None, None]


def _again():
    """Make a second process group: there, what was compared in the first counts for nothing."""
    catalog = _catalog(5)
    check_same_catalog(catalog)
    dist.barrier()
    rank = dist.get_rank()
    dist.destroy_process_group()
    dist.init_process_group("gloo", os.environ["SECOND"], rank=rank, world_size=2)
    return _tried(catalog if rank == 0 else _catalog(6))[0]


def test_another_group_is_another_comparison(tmp_path, tcp, monkeypatch):
    monkeypatch.setenv("SECOND", f"file://{tmp_path}/second")
    assert sorted(type(each).__name__ for each in ranks(2, tcp, _again)) == ["NoneType", "StateMismatch"]


def _dropped():
    catalog = _catalog(5)
    check_same_catalog(catalog)
    gone = weakref.ref(catalog)
    del catalog
    gc.collect()
    return gone() is None


def test_a_catalog_that_was_compared_is_not_kept(tcp):
    assert ranks(2, tcp, _dropped) == [True, True]


class _Comparing(Dataset):
    """Compares another catalog than any rank has, wherever an item is made."""

    def __len__(self):
        return 1

    def __getitem__(self, index):
        check_same_catalog(_catalog(99))
        check_same_order("data", {"seed": 99})
        return index


def _children(method):
    """Compare in a worker of a DataLoader and in a bare fork, then here: only that counts."""
    loader = DataLoader(_Comparing(), num_workers=1, multiprocessing_context=method)
    with forked(lambda: (check_same_catalog(_catalog(98)), check_same_order("data", {"seed": 98}))) as status:
        answer = list(map(int, loader)), status(), _tried(_catalog(5))[0]
    check_same_order("data", {"seed": 1})
    return answer


@pytest.mark.parametrize("method", ["fork", "spawn"])
def test_children_do_not_take_part(tcp, method):
    assert ranks(2, tcp, _children, method) == [([0], 0, None)] * 2


def _wait_for(states, pid):
    """Wait until the process is stopped or dead: a signal takes a moment."""
    status, deadline = Path(f"/proc/{pid}/stat"), time.monotonic() + 60
    with suppress(FileNotFoundError, ProcessLookupError):  # its parent has seen it go
        while status.read_text().rpartition(")")[2].split()[0] not in states:
            assert time.monotonic() < deadline


def _struck(number, timeout_s):
    """Rank 0 has the store; rank 1 stops or kills it and compares."""
    store = _get_default_store()
    if dist.get_rank() == 0:
        store.set("pid", str(os.getpid()))
        return "lives"
    pid = int(store.get("pid"))
    store.set_timeout(dt.timedelta(seconds=timeout_s))
    os.kill(pid, number)
    _wait_for("TZX", pid)
    answer = _tried(_catalog(5))
    with suppress(ProcessLookupError):
        os.kill(pid, signal.SIGCONT)
    return answer


def test_a_store_that_does_not_answer_is_not_waited_for_beyond_its_timeout(tcp):
    _, (error, seconds) = ranks(2, tcp, _struck, signal.SIGSTOP, 1)
    assert isinstance(error, TimedOut)
    assert 1 <= seconds < 30


def test_a_store_that_is_gone_is_unreachable(tcp):
    _, (error, seconds) = ranks(2, tcp, _struck, signal.SIGKILL, 30)
    assert isinstance(error, Unreachable)
    assert seconds < 30


LOADER = {"batch_size": 4, "shuffle": True, "seed": 3, "tail": "short"}
BLOCKS = ps.order.BlockShuffle(block_samples=10)
LANES = ps.order.Lanes(block_samples=10, lanes=np.int64(4))


def _loader(count=40, **options):
    return ps.DataLoader(ps.MapDataset(_catalog(count)), **LOADER | options)


def _sampler(count=40, **options):
    """Return a batch sampler over a dataset that has no catalog."""
    return ps.BatchSampler(range(count), **LOADER | options)


def _batched(count=40, **options):
    own = LOADER | options
    dataset = ps.IterableDataset(_catalog(count), shuffle=own.pop("shuffle"), seed=own.pop("seed"))
    return dataset.batched(own.pop("batch_size"), **own)


DIFFERENT = {  # what makes batches, which arguments of rank 1 differ, and what it says
    "seed": (_loader, {"seed": 4}, "rank 1 has seed=4, rank 0 has seed=3:"),
    "not shuffled": (
        _loader,
        {"shuffle": False},
        "rank 1 has shuffle=False, seed=None, rank 0 has shuffle=True, seed=3:",
    ),
    "another order": (_loader, {"shuffle": BLOCKS}, f"rank 1 has shuffle={BLOCKS.identity}, rank 0 has shuffle=True:"),
    "lanes": (_loader, {"shuffle": LANES}, f"rank 1 has lanes=4, shuffle={LANES.identity}, rank 0 has lanes=None,"),
    "batch size": (_loader, {"batch_size": 5}, "rank 1 has batch_size=5, rank 0 has batch_size=4:"),
    "tail": (_loader, {"tail": "drop"}, "rank 1 has tail=drop, rank 0 has tail=short:"),
    "a sampler": (_sampler, {"seed": 4}, "rank 1 has seed=4, rank 0 has seed=3:"),
    "an iterable dataset": (_batched, {"seed": 4}, "rank 1 has seed=4, rank 0 has seed=3:"),
    "nothing": (_loader, {}, None),
}


def _in_turn(work):
    """Run ``work`` on rank 0, then on the others; return what it raised."""
    if dist.get_rank():
        dist.barrier()
    try:
        work()
    except StateMismatch as error:
        return str(error)
    finally:
        if not dist.get_rank():
            dist.barrier()
    return None


def _different():
    answers = {}
    for number, (name, (make, options, _)) in enumerate(DIFFERENT.items()):
        arguments = options if dist.get_rank() else {}
        answers[name] = _in_turn(lambda make=make, count=40 + number, own=arguments: make(count, **own))
    return answers


def test_a_rank_with_another_order_names_the_arguments_that_differ(tcp):
    first, second = ranks(2, tcp, _different)
    assert first == dict.fromkeys(DIFFERENT)
    for name, (_, _, says) in DIFFERENT.items():
        assert (second[name] or "").startswith(says or ""), name
        assert bool(second[name]) == bool(says), name
        assert not says or "place=ps.Place()" in second[name]


PLACES = {  # epoch and position that each rank goes on from, None: nowhere; and what rank 1 says
    "one without a state": ((None, (0, 8)), "rank 1 has position=8, rank 0 has position=0: load the same state on"),
    "another epoch": (((0, 8), (1, 8)), "rank 1 has epoch=1, rank 0 has epoch=0: load the same state on every rank"),
    "one state": (((0, 8), (0, 8)), None),
}


def _begun():
    """Go on from each place; return what the first two batches raised."""
    answers = {}
    for name, (places, _) in PLACES.items():
        dataset = Chunked(24, 4, shuffle=True)
        dataset.contents_of = Numbers(24, digest=name)
        loader = ps.DataLoader(dataset, 2, collate_fn=list)
        if (place := places[dist.get_rank()]) is not None:
            loader.load_state_dict(loader.state_dict() | dict(zip(("epoch", "position"), place, strict=True)))
        answers[name] = _in_turn(lambda loader=loader: [*islice(loader, 2)])
    return answers


def test_a_rank_that_begins_elsewhere_is_refused_at_its_second_batch(tcp):
    first, second = ranks(2, tcp, _begun)
    assert first == dict.fromkeys(PLACES)
    for name, (_, says) in PLACES.items():
        assert (second[name] or "").startswith(says or ""), name
        assert bool(second[name]) == bool(says), name


def _makes(*options):
    """Make loaders with the options that this rank is told, one after another."""
    return _in_turn(lambda: [_loader(**each) for each in options[dist.get_rank()]])


def test_orders_of_one_catalog_are_compared_in_turn_and_equal_ones_once(tcp):
    one, two, alone = {"seed": 1}, {"seed": 2}, {"seed": 9, "place": ps.Place()}
    assert ranks(2, tcp, _makes, [alone, one, one, two, one], [one, two, two]) == [None, None]


def test_separate_rank_groups_may_use_different_seeds(tcp):
    """Ranks 0 and 1 share one epoch, ranks 2 and 3 another."""
    places = [{"seed": rank // 2, "place": ps.Place(rank % 2, 2)} for rank in range(4)]
    assert ranks(4, tcp, _makes, *([each] for each in places)) == [None] * 4


def _late():
    """Make everything before the process group, as Lightning does; then resume one, and begin an epoch of another."""
    rank = dist.get_rank()
    dist.barrier()
    dist.destroy_process_group()
    place = {"seed": rank, "place": ps.Place(rank, 2)}
    resumes, begins = _loader(**place), _sampler(**place)
    state = resumes.state_dict()
    dist.init_process_group("gloo", os.environ["SECOND"], rank=rank, world_size=2)
    return _in_turn(lambda: resumes.load_state_dict(state)), _in_turn(lambda: next(iter(begins)))


def test_loaders_made_before_the_process_group_are_compared_on_resume_or_start(tcp, tmp_path, monkeypatch):
    monkeypatch.setenv("SECOND", f"file://{tmp_path}/second")
    first, second = ranks(2, tcp, _late)
    assert first == (None, None)
    assert all(each.startswith("rank 1 has seed=1, rank 0 has seed=0:") for each in second), second
