"""Lazily loaded files: the objects at once, each tensor when it is asked for, and verified then."""

from __future__ import annotations

import pickle
from multiprocessing.reduction import ForkingPickler

import pytest
import torch

import penstock as ps
from penstock.checkpoint.torchfile.verbs import LazyTensor
from penstock.errors import Changed, ChecksumMismatch, Unusable
from penstock.events import RangeRead, subscribe
from penstock.tree import tree_map
from tests.checkpoint.torchfile.test_load import SAFE, UNSAFE, alike

MIB = 1 << 20
FEW = {"large": torch.arange(3 * MIB), "other": torch.ones(4 * MIB), "small": torch.arange(7)}


def loaded(nest):
    return tree_map(LazyTensor.load, nest, LazyTensor)


@pytest.mark.parametrize("name", [name for name in SAFE if name not in {"storage", "views", "tied", "negative"}])
def test_lazy_load_gives_the_same_tensors_as_full_load(tmp_path, name):
    ps.save(SAFE[name], f"{tmp_path}/a.pt")
    assert alike(loaded(ps.load(f"{tmp_path}/a.pt", lazy=True)), ps.load(f"{tmp_path}/a.pt"))


def test_negated_or_viewed_tensor_loads_lazily_into_its_own_storage(tmp_path):
    ps.save([SAFE["negative"], SAFE["views"][1]], f"{tmp_path}/a.pt")
    for one, other in zip(loaded(ps.load(f"{tmp_path}/a.pt", lazy=True)), ps.load(f"{tmp_path}/a.pt"), strict=True):
        assert torch.equal(one, other)
        assert one.untyped_storage().nbytes() == one.nbytes < other.untyped_storage().nbytes()


def test_lazy_views_get_separate_memory_and_tied_tensors_stay_tied(tmp_path):
    ps.save([*SAFE["views"], SAFE["tied"]], f"{tmp_path}/a.pt")
    *views, tied = ps.load(f"{tmp_path}/a.pt", lazy=True)
    for one, other in zip(views, SAFE["views"], strict=True):
        got = one.load()
        assert torch.equal(got, other)
        assert got.untyped_storage().nbytes() == max(got.nbytes, 0) or got.nbytes == 400
    assert tied["a"] is tied["b"]
    assert tied["a"].parameter
    assert isinstance(tied["a"].load(), torch.nn.Parameter)
    assert torch.equal(tied["c"].load(), SAFE["tied"]["c"])


def test_opening_reads_the_ends_of_the_file_and_loading_one_tensor_its_bytes(bucket):
    ps.save(FEW, f"{bucket.url}a.pt", store=bucket.store)
    reads: list[int] = []
    leave = subscribe(lambda event: reads.append(event.size_bytes) if isinstance(event, RangeRead) else None)
    state = ps.load(f"{bucket.url}a.pt", lazy=True, store=bucket.store)
    assert len(reads) == 2
    assert sum(reads) < 400_000
    assert repr(state["large"]) == (
        "LazyTensor(shape=torch.Size([3145728]), dtype=torch.int64, requires_grad=False, parameter=False)"
    )
    assert (state["large"].nbytes, len(reads)) == (24 * MIB, 2)
    reads.clear()
    assert torch.equal(state["large"].load(), FEW["large"])
    leave()
    assert len(reads) <= 5
    assert sum(reads) == 24 * MIB


def test_damaged_record_raises_only_when_its_tensor_is_loaded(tmp_path):
    ps.save(FEW, f"{tmp_path}/a.pt")
    body = bytearray((tmp_path / "a.pt").read_bytes())
    body[30 * MIB] ^= 1
    (tmp_path / "a.pt").write_bytes(body)
    state = ps.load(f"{tmp_path}/a.pt", lazy=True)
    assert torch.equal(state["large"].load(), FEW["large"])
    with pytest.raises(ChecksumMismatch, match="record 'data/1'"):
        state["other"].load()


def test_lazy_tensor_sent_to_a_worker_stays_bound_to_its_version(bucket):
    ps.save(FEW, f"{bucket.url}a.pt", store=bucket.store)
    one = pickle.loads(ForkingPickler.dumps(ps.load(f"{bucket.url}a.pt", lazy=True, store=bucket.store)["small"]))
    assert torch.equal(one.load(), FEW["small"])
    ps.save({**FEW, "small": torch.arange(8)}, f"{bucket.url}a.pt", store=bucket.store)
    with pytest.raises(Changed):
        one.load()


@pytest.mark.filterwarnings("ignore:Sparse", "ignore:torch.quantize_per", "ignore:TypedStorage")
def test_state_that_cannot_be_loaded_lazily_is_refused(tmp_path):
    quantized = torch.quantize_per_tensor(torch.arange(10.0), 0.1, 3, torch.qint8)
    for state in (UNSAFE["module"], [SAFE["storage"]], torch.eye(3).to_sparse(), quantized, {torch.ones(3)}):
        ps.save(state, f"{tmp_path}/a.pt")
        with pytest.raises(Unusable, match=r"whole.*a\.pt"):
            ps.load(f"{tmp_path}/a.pt", lazy=True, weights_only=False)
    torch.save(SAFE["state"], f"{tmp_path}/old.pt", _use_new_zipfile_serialization=False)
    with pytest.raises(Unusable, match="another format"):
        ps.load(f"{tmp_path}/old.pt", lazy=True)


def test_a_device_may_be_named(tmp_path):
    ps.save(FEW, f"{tmp_path}/a.pt")
    state = ps.load(f"{tmp_path}/a.pt", lazy=True)
    assert state["small"].load("cpu").device == torch.device("cpu")
    assert state["small"].load(torch.device("meta")).shape == (7,)
