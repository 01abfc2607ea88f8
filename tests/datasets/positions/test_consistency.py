"""Ranks that do not hold the same catalog hear of it at once, and nobody waits for anybody."""

from __future__ import annotations

import datetime as dt
import gc
import os
import signal
import time
import weakref
from contextlib import suppress
from pathlib import Path

import pytest
import torch.distributed as dist
from torch.distributed.distributed_c10d import _get_default_store
from torch.utils.data import DataLoader, Dataset

from penstock.catalog.catalog import Catalog, Entry
from penstock.datasets.positions.consistency import check_consistency
from penstock.errors import StateMismatch, TimedOut, Unreachable
from tests.children import forked
from tests.datasets.ranks import free_port, ranks


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
        check_consistency(catalog)
    except (StateMismatch, TimedOut, Unreachable) as error:
        return error, time.monotonic() - began
    return None, time.monotonic() - began


def _counts(*counts):
    """Compare catalogs of the sizes that this rank is told, one after another."""
    return [_tried(_catalog(count))[0] for count in counts[dist.get_rank()]]


def test_without_a_group_nothing_is_compared():
    check_consistency(_catalog(3))


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


def test_the_one_that_differs_raises_within_seconds_and_the_others_go_on(init_method):
    (first, _), (different, seconds), (third, _) = ranks(3, init_method, _two_then_one)
    assert first is None
    assert third is None
    assert isinstance(different, StateMismatch)
    assert seconds < 30
    for part in ("rank 1 has 6 objects", "has 5", _catalog(5).digest, _catalog(6).digest, "s3://bucket/train/"):
        assert part in str(different)


def test_data_sets_of_one_prefix_are_compared_in_turn(tcp):
    assert ranks(2, tcp, _counts, [5, 6, 5], [5, 6, 5]) == [[None] * 3] * 2


def _one_more():
    """Rank 0 makes datasets of other prefixes besides; all compare one catalog several times."""
    catalog = _catalog(5)
    if dist.get_rank() == 0:
        check_consistency(_catalog(9, "s3://other/"))
    check_consistency(catalog)
    if dist.get_rank() == 0:
        check_consistency(_catalog(9, "s3://another/"))
    for _ in range(dist.get_rank()):
        check_consistency(catalog)
    check_consistency(_catalog(7))


def test_other_prefixes_and_comparing_again_keep_ranks_in_step(tcp):
    assert ranks(2, tcp, _one_more) == [None, None]


def _again():
    """Make a second process group: there, what was compared in the first counts for nothing."""
    catalog = _catalog(5)
    check_consistency(catalog)
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
    check_consistency(catalog)
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
        check_consistency(_catalog(99))
        return index


def _children(method):
    """Compare in a worker of a DataLoader and in a bare fork, then here: only that counts."""
    loader = DataLoader(_Comparing(), num_workers=1, multiprocessing_context=method)
    with forked(lambda: check_consistency(_catalog(98))) as status:
        return list(map(int, loader)), status(), _tried(_catalog(5))[0]


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
