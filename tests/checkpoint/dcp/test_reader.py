"""A load: damage is found and named, a checkpoint that is replaced meanwhile is told, and no code runs unasked."""

from __future__ import annotations

import datetime as dt
import random
import shutil

import pytest
import torch
import torch.distributed.checkpoint as dcp
from torch.distributed.checkpoint.api import CheckpointException

from penstock.checkpoint.dcp import StorageReader
from penstock.errors import Changed, CheckpointError, ChecksumMismatch, Damaged, NotFound, Truncated, Unusable
from tests.checkpoint.dcp.saves import LAYOUTS, cause, load, save, save_as_ranks, two_ranks

pytestmark = pytest.mark.filterwarnings("ignore:torch.distributed is disabled")


class Mine:
    pass


@pytest.mark.parametrize("layout", LAYOUTS)
@pytest.mark.parametrize("thing", [Mine(), dt.date(2026, 1, 2)], ids=["class", "date"])
def test_value_that_would_run_code_loads_only_with_weights_only_false(tmp_path, layout, thing):
    save({"thing": thing, "w": torch.ones(3)}, tmp_path, layout=layout)
    with pytest.raises(CheckpointException, match="'thing' has more than weights: pass weights_only=False") as raised:
        load({"thing": None, "w": torch.zeros(3)}, tmp_path)
    assert isinstance(cause(raised), Unusable)
    assert load({"w": torch.zeros(3)}, tmp_path)["w"].sum() == 3
    found = load({"thing": None}, tmp_path, weights_only=False)["thing"]
    assert type(found) is type(thing)


DAMAGES = ("flip", "cut", "grow", "gone", "swap", "other run", "manifest", "manifest gone")
TOLD_BY_TORCHS = ("flip", "cut", "gone", "manifest gone")  # of the others its layout tells nothing
WHOLE, PART = ("w0", "w1", "n0", "n1"), ("w1",)


@pytest.mark.parametrize("wanted", [WHOLE, PART], ids=["full", "partial"])
@pytest.mark.parametrize(
    ("layout", "damage"),
    [*(("penstock", each) for each in DAMAGES), *(("torch", each) for each in TOLD_BY_TORCHS)],
)
def test_damage_is_found_and_named_in_full_and_in_partial_loads(tmp_path, layout, damage, wanted):
    for seed in (1, 2):
        save_as_ranks(two_ranks(seed), tmp_path / str(seed), layout=layout)
    folder, other = tmp_path / "1", tmp_path / "2"
    mark = folder / ("checkpoint.json" if layout == "penstock" else ".metadata")
    named = _object(folder, 1)
    body = bytearray(named.read_bytes())
    expected = (ChecksumMismatch, CheckpointError) if layout == "torch" else ChecksumMismatch
    if damage == "flip":
        body[len(body) // 2] ^= 4
        named.write_bytes(body)
    elif damage in ("cut", "grow"):
        named.write_bytes(body[: len(body) // 2] if damage == "cut" else body + b"\0")
        expected = Truncated
    elif damage == "gone":
        named.unlink()
        expected = NotFound
    elif damage == "swap":
        named.write_bytes(_object(folder, 0).read_bytes())
        _object(folder, 0).write_bytes(body)
        named = named.parent  # both are damaged
    elif damage == "other run":
        shutil.copy(_object(other, 1), named)
    elif damage == "manifest":
        text = bytearray(mark.read_bytes())
        text[len(text) // 2] ^= 1
        mark.write_bytes(text)
        expected, named = CheckpointError, mark
    else:
        mark.unlink()
        expected, named = NotFound, folder
    state = {name: torch.zeros(900, 1000) if name[0] == "w" else 0 for name in wanted}
    with pytest.raises(CheckpointException, match=str(named)) as raised:
        load(state, folder)
    if not damage.startswith("manifest"):  # torch turns what it hears of metadata into an AssertionError
        assert isinstance(cause(raised), expected)


def _object(folder, rank):
    (found,) = (*folder.glob(f"*/{rank}.data"), *folder.glob(f"*/__{rank}_0.distcp"))
    return found


def test_a_checkpoint_that_is_replaced_while_it_is_read_is_changed_and_not_missing(tmp_path):
    save({"w": torch.ones(5)}, tmp_path)
    reader, planner = StorageReader(tmp_path), dcp.DefaultLoadPlanner()
    metadata = reader.read_metadata()
    planner.set_up_planner({"w": torch.zeros(5)}, metadata, is_coordinator=True)
    reader.set_up_storage_reader(metadata, is_coordinator=True)
    plan = reader.prepare_local_plan(planner.create_local_plan())
    save({"w": torch.ones(5)}, tmp_path, overwrite=True)
    with pytest.raises(Changed, match="load again") as raised:
        reader.read_data(plan, planner)
    assert isinstance(raised.value.__cause__, NotFound)


def test_ranks_with_different_checkpoint_versions_raise_changed(tmp_path):
    plans = []
    for seed in (1, 2):
        save({"n": seed}, tmp_path, overwrite=True)
        reader = StorageReader(tmp_path)
        reader.read_metadata()
        plans.append(reader.prepare_local_plan(dcp.LoadPlan([])))
    assert reader.prepare_global_plan([plans[1], plans[1]])
    with pytest.raises(Changed, match="load again"):
        reader.prepare_global_plan(plans)


@pytest.mark.filterwarnings("ignore")
def test_a_flipped_bit_in_torchs_layout_gives_no_other_value_and_no_advice_to_run_it(tmp_path, seed):
    state = {"w": torch.arange(6.0), "step": 1_234_567, "name": "abc", "lrs": [0.1, 0.2]}
    dcp.save(state, storage_writer=dcp.FileSystemWriter(tmp_path), no_dist=True)
    (file,) = tmp_path.glob("*.distcp")
    whole, rng = file.read_bytes(), random.Random(seed)
    in_a_pickle = whole.index((1_234_567).to_bytes(4, "little"))
    for at in [in_a_pickle, in_a_pickle + 1, *rng.sample(range(len(whole)), 120)]:
        damaged = bytearray(whole)
        damaged[at] ^= 1 << rng.randrange(8)
        file.write_bytes(damaged)
        found = {"w": torch.zeros(6), "step": 0, "name": "", "lrs": [0.0]}
        try:
            load(found, tmp_path)
        except CheckpointException as raised:
            error = raised.failures[0][0]
            assert isinstance(error, Damaged), at
            assert "weights_only" not in str(error)
        else:
            assert at != in_a_pickle
            assert torch.equal(found.pop("w"), state["w"]), at
            assert found == {"step": 1_234_567, "name": "abc", "lrs": [0.1, 0.2]}, at


@pytest.mark.parametrize("wrong", [None, "no"])
def test_a_reader_whose_weights_only_is_neither_true_nor_false_is_refused(tmp_path, wrong):
    with pytest.raises(Unusable, match="weights_only must be True or False"):
        StorageReader(tmp_path, weights_only=wrong)
