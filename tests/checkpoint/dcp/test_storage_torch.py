"""What torch's own reader and writer of distributed checkpoints promise, ours keep: each combination does the same."""

from __future__ import annotations

import io
import itertools
import pickle
from pathlib import Path

import pytest
import torch
import torch.distributed.checkpoint as dcp
from torch.distributed.checkpoint._extension import StreamTransformExtension
from torch.distributed.checkpoint.api import CheckpointException
from torch.distributed.checkpoint.default_planner import DefaultLoadPlanner, DefaultSavePlanner
from torch.distributed.checkpoint.filesystem import FileSystemReader, FileSystemWriter
from torch.distributed.checkpoint.metadata import Metadata, StorageMeta
from torch.distributed.checkpoint.state_dict import get_state_dict, set_state_dict
from torch.distributed.checkpoint.state_dict_loader import _load_state_dict_from_keys

from penstock.checkpoint.dcp import StorageReader, StorageWriter
from penstock.errors import AlreadyExists, PenstockError

pytestmark = pytest.mark.filterwarnings(
    "ignore:torch.distributed is (disabled|unavailable|uninitialized)",
    "ignore:Detected an existing checkpoint:UserWarning",
    "ignore:TypedStorage is deprecated:UserWarning",
)


def _torchs(path, **options):
    return StorageWriter(path, layout="torch", **options)


# Each with the readers that are to load what it saved.
PAIRS = {
    "ours to ours": (StorageWriter, StorageReader),
    "torch's to ours": (FileSystemWriter, StorageReader),
    "ours to torch's": (_torchs, FileSystemReader),
    "ours in torch's layout to ours": (_torchs, StorageReader),
    "torch's to torch's": (FileSystemWriter, FileSystemReader),  # what the others are held to
}


@pytest.fixture(params=PAIRS.values(), ids=PAIRS.keys())
def pair(request, tmp_path):
    """Return what saves and what loads: a state, and a planner."""
    writer, reader = request.param

    def save(state, planner=None, **options):
        dcp.save(state, storage_writer=writer(tmp_path, **options), planner=planner, no_dist=True)

    def load(state, planner=None):
        dcp.load(state, storage_reader=reader(tmp_path), planner=planner, no_dist=True)
        return state

    return save, load


class _Counter:
    """Has a state of its own."""

    def __init__(self, count):
        self.count = count

    def state_dict(self):
        return {"count": self.count, "tensor": torch.tensor([self.count])}

    def load_state_dict(self, state):
        self.count = state["count"] + int(state["tensor"])


class _Extra(torch.nn.Module):
    """Has something beside parameters."""

    def __init__(self, extra):
        super().__init__()
        self.linear = torch.nn.Linear(2, 2)
        self.extra = extra

    def get_extra_state(self):
        return self.extra

    def set_extra_state(self, state):
        self.extra = state


def test_a_model_with_extra_state_comes_back(pair):
    save, load = pair
    saved, other = _Extra({"seen": 5}), _Extra({"seen": 0})
    save({"model": saved.state_dict()})
    other.load_state_dict(load({"model": other.state_dict()})["model"])
    assert other.extra == {"seen": 5}
    assert torch.equal(other.linear.weight, saved.linear.weight)


def test_an_optimizer_that_has_not_stepped_takes_the_moments(pair):
    save, load = pair

    def made():
        model = torch.nn.Linear(3, 2)
        return model, torch.optim.AdamW(model.parameters(), lr=0.1)

    (model, optimizer), (other, fresh) = made(), made()
    model(torch.ones(3)).sum().backward()
    optimizer.step()
    save(dict(zip(("model", "optimizer"), get_state_dict(model, optimizer), strict=True)))
    state = load(dict(zip(("model", "optimizer"), get_state_dict(other, fresh), strict=True)))
    set_state_dict(other, fresh, model_state_dict=state["model"], optim_state_dict=state["optimizer"])
    for one, two in zip(optimizer.state.values(), fresh.state.values(), strict=True):
        assert torch.equal(one["exp_avg"], two["exp_avg"])
        assert one["step"] == two["step"]


def test_stateful_objects_save_and_load_through_their_state_methods(pair):
    save, load = pair
    counter = _Counter(0)
    save({"counter": _Counter(7), "plain": 3})
    state = load({"counter": counter, "plain": 0})
    assert (counter.count, state["counter"], state["plain"]) == (14, counter, 3)


def test_nested_state_is_restored_with_its_structure(pair):
    save, load = pair
    state = {"a": {"b": [torch.ones(2), {"c": torch.zeros(3), "n": 1}], "t": (torch.full((2,), 5.0), "x")}, "0": 2}
    save(state)
    blank = {"a": {"b": [torch.zeros(2), {"c": torch.ones(3), "n": 0}], "t": (torch.zeros(2), "")}, "0": 0}
    found = load(blank)
    assert str(found) == str(state)


def test_planners_that_do_not_flatten_load_each_other(pair):
    save, load = pair
    planners = [each(flatten_state_dict=False) for each in (DefaultSavePlanner, DefaultLoadPlanner)]
    save({"t": torch.arange(3), "u": torch.ones(2)}, planners[0])
    found = load({"t": torch.zeros(3, dtype=torch.int64), "u": torch.zeros(2)}, planners[1])
    assert (found["t"].tolist(), found["u"].tolist()) == ([0, 1, 2], [1, 1])


def test_subset_loads_and_missing_key_is_refused_unless_allowed(pair):
    save, load = pair
    save({"a": torch.ones(2), "b": torch.ones(3), "n": 1})
    assert load({"b": torch.zeros(3)})["b"].tolist() == [1, 1, 1]
    with pytest.raises(CheckpointException, match="Missing key"):
        load({"a": torch.zeros(2), "c": torch.zeros(1)})
    found = load({"a": torch.zeros(2), "c": torch.full((1,), 9.0), "m": 5}, DefaultLoadPlanner(allow_partial_load=True))
    assert (found["a"].tolist(), found["c"].tolist(), found["m"]) == ([1, 1], [9], 5)


def test_another_shape_is_refused(pair):
    save, load = pair
    save({"a": torch.ones(2, 3)})
    with pytest.raises(CheckpointException, match=r"[Ss]ize mismatch"):
        load({"a": torch.zeros(3, 2)})


def test_tensors_of_no_size_and_no_dimension_and_not_in_order_come_back(pair):
    save, load = pair
    state = {
        "0d": torch.tensor(3.5),
        "none": torch.empty(0, 4),
        "turned": torch.rand(3, 5).t(),
        "cut": torch.rand(9)[::2],
    }
    save(state)
    targets = {name: torch.zeros(each.shape) for name, each in state.items()}
    targets["turned"] = torch.zeros(3, 5).t()
    for name, found in load(targets).items():
        assert torch.equal(found, state[name]), name
    assert targets["turned"].stride() == (1, 5)


def test_non_tensor_values_are_restored_unchanged(pair):
    save, load = pair
    state = {"text": "é", "number": 2.5, "none": None, "flag": True, "bytes": b"\0x", "file": io.BytesIO(b"kept")}
    save(state)
    found = load(dict.fromkeys(state))
    file = found.pop("file")
    assert found == {name: each for name, each in state.items() if name != "file"}
    assert file.getvalue() == b"kept"


def test_a_state_without_anything_is_saved_and_loaded(pair):
    save, load = pair
    save({})
    assert load({}) == {}


def test_loading_by_keys_alone_restores_the_saved_state(tmp_path):
    for at, writer in {"theirs": FileSystemWriter, "ours": StorageWriter}.items():
        state = {"model": {"a": torch.ones(2), "b": torch.zeros(1)}, "n": 4}
        dcp.save(state, storage_writer=writer(tmp_path / at), no_dist=True)
        assert str(_load_state_dict_from_keys(storage_reader=StorageReader(tmp_path / at))) == str(state)
        found = _load_state_dict_from_keys({"model.a"}, storage_reader=StorageReader(tmp_path / at))
        assert str(found) == str({"model": {"a": torch.ones(2)}})


WRITERS = [
    {"single_file_per_rank": False},
    {"single_file_per_rank": False, "thread_count": 3},
    {"thread_count": 2, "per_thread_copy_ahead": 0},
    {"sync_files": False, "cache_staged_state_dict": True},
]


@pytest.mark.parametrize("options", WRITERS, ids=str)
def test_every_torch_file_layout_option_is_loaded(tmp_path, options):
    state = {f"t{number}": torch.full((100, number), float(number)) for number in range(6)} | {"n": 3}
    dcp.save(state, storage_writer=FileSystemWriter(tmp_path, **options), no_dist=True)
    found = {name: torch.zeros_like(each) if isinstance(each, torch.Tensor) else 0 for name, each in state.items()}
    dcp.load(found, storage_reader=StorageReader(tmp_path), no_dist=True)
    assert str(found) == str(state)


class _Same(StreamTransformExtension):
    """Changes nothing, and is said to have changed it."""

    @staticmethod
    def from_descriptor(version):
        del version
        return _Same()

    @staticmethod
    def registry_name():
        return "stream.same"

    def get_descriptor(self):
        return "stream.same/1"

    def transform_to(self, output):
        return io.BytesIO() if output is None else output

    def transform_from(self, input):  # noqa: A002  torch's
        return input


def test_a_checkpoint_with_stream_extensions_is_refused_by_name(tmp_path):
    dcp.save({"a": torch.ones(2)}, storage_writer=FileSystemWriter(tmp_path, _extensions=[_Same()]), no_dist=True)
    with pytest.raises(CheckpointException, match=r"stream extensions.*stream\.same"):
        dcp.load({"a": torch.zeros(2)}, storage_reader=StorageReader(tmp_path), no_dist=True)


@pytest.mark.parametrize("writer", [StorageWriter, _torchs])
def test_existing_checkpoint_is_replaced_only_with_overwrite(tmp_path, writer):
    dcp.save({"n": 1}, storage_writer=writer(tmp_path), no_dist=True)
    with pytest.raises(CheckpointException) as raised:
        dcp.save({"n": 2}, storage_writer=writer(tmp_path), no_dist=True)
    assert isinstance(raised.value.failures[0][0], AlreadyExists)
    dcp.save({"n": 3}, storage_writer=writer(tmp_path, overwrite=True), no_dist=True)
    state = {"n": 0}
    dcp.load(state, storage_reader=StorageReader(tmp_path), no_dist=True)
    assert state == {"n": 3}


@pytest.mark.parametrize("writer", [StorageWriter, _torchs, FileSystemWriter])
def test_metadata_contains_checkpoint_save_and_load_ids(tmp_path, writer):
    for name in "ab":
        dcp.save({"n": 1}, storage_writer=writer(tmp_path / name), no_dist=True)
    reader = StorageReader(tmp_path / "a")
    first, again = reader.read_metadata().storage_meta, reader.read_metadata().storage_meta
    reader.reset(tmp_path / "b")
    other = reader.read_metadata().storage_meta
    assert isinstance(first, StorageMeta)
    assert str(first.checkpoint_id).rstrip("/").endswith("a")
    assert first.save_id != other.save_id
    assert first.load_id == again.load_id != other.load_id
    assert all((first.save_id, first.load_id, other.load_id))


def _without(things, names):
    for thing, name in itertools.product(things, names):
        thing.__dict__.pop(name, None)


def test_a_checkpoint_of_a_torch_that_wrote_less_is_loaded(tmp_path):
    dcp.save({"a": torch.ones(2), "n": 1}, storage_writer=FileSystemWriter(tmp_path), no_dist=True)
    metadata = pickle.loads((tmp_path / ".metadata").read_bytes())
    assert isinstance(metadata, Metadata)
    _without([metadata, *metadata.storage_data.values()], ["storage_meta", "version", "transform_descriptors"])
    (tmp_path / ".metadata").write_bytes(pickle.dumps(metadata))
    state = {"a": torch.zeros(2), "n": 0}
    dcp.load(state, storage_reader=StorageReader(tmp_path), no_dist=True)
    assert str(state) == str({"a": torch.ones(2), "n": 1})


def test_missing_or_truncated_item_file_raises_a_penstock_error(tmp_path):
    dcp.save({"a": torch.ones(2)}, storage_writer=FileSystemWriter(tmp_path), no_dist=True)
    (file,) = Path(tmp_path).glob("*.distcp")
    whole = file.read_bytes()
    for damage in (whole[:-1], b"", None):
        file.unlink() if damage is None else file.write_bytes(damage)
        with pytest.raises(CheckpointException) as raised:
            dcp.load({"a": torch.zeros(2)}, storage_reader=StorageReader(tmp_path), no_dist=True)
        assert isinstance(raised.value.failures[0][0], PenstockError)
