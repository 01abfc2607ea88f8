"""A load: damage is found and named, a checkpoint that is replaced meanwhile is told, and no code runs unasked."""

from __future__ import annotations

import datetime as dt
import random
import shutil
from itertools import pairwise
from textwrap import dedent

import numpy as np
import pytest
import torch
import torch.distributed.checkpoint as dcp
from hypothesis import given
from hypothesis import strategies as st
from torch.distributed.checkpoint.api import CheckpointException

from penstock.checkpoint.dcp import StorageReader
from penstock.checkpoint.dcp import reader as fill
from penstock.checkpoint.dcp.reader import bound_box, boxes
from penstock.errors import Changed, CheckpointError, ChecksumMismatch, Damaged, NotFound, Truncated, Unusable
from tests.checkpoint.dcp.saves import LAYOUTS, cause, load, save, save_as_ranks, sizes_read, two_ranks
from tests.edges.launch import program

pytestmark = pytest.mark.filterwarnings("ignore:torch.distributed is disabled")


class Mine:
    pass


@pytest.mark.parametrize("layout", LAYOUTS)
@pytest.mark.parametrize("thing", [Mine(), dt.date(2026, 1, 2)], ids=["class", "date"])
def test_value_that_would_run_code_loads_only_with_weights_only_false(tmp_path, layout, thing):
    save({"thing": thing, "w": torch.ones(3)}, tmp_path, layout=layout)
    with pytest.raises(CheckpointException, match="'thing' contains more than weights: pass weights_only") as raised:
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


# A box of a tensor, cut into runs: as numpy's slices have it.


MIB = 1 << 20


@st.composite
def cases(draw):
    sizes = draw(st.lists(st.integers(0, 7), max_size=4))
    offsets = [draw(st.integers(0, size)) for size in sizes]
    lengths = [draw(st.integers(0, size - offset)) for size, offset in zip(sizes, offsets, strict=True)]
    return sizes, offsets, lengths, draw(st.sampled_from([1, 2, 8])), draw(st.integers(8, 300))


@given(cases())
def test_every_element_comes_once_from_where_it_lies(case):
    sizes, offsets, lengths, item_bytes, most = case
    stored = np.arange(np.prod(sizes, dtype=int) * item_bytes, dtype=np.uint8).reshape(*sizes, item_bytes)
    filled, times = np.zeros_like(stored), np.zeros(sizes, int)
    found = list(boxes(sizes, offsets, lengths, item_bytes, most))
    for box in found:
        at, run = _at(box.offsets, box.lengths), stored.reshape(-1)[box.start : box.stop]
        filled[at] = np.lib.stride_tricks.as_strided(run, (*box.lengths, item_bytes), stored.strides)
        times[at] += 1
        assert box.stop - box.start <= most
        assert box.dense == (run.tobytes() == filled[at].tobytes())
    whole = _at(offsets, lengths)
    assert filled[whole].tobytes() == stored[whole].tobytes()
    assert times.sum() == np.prod(lengths, dtype=int)
    assert times.max(initial=0) <= 1
    assert all(one.start < other.start for one, other in pairwise(found))


def _at(offsets, lengths):
    return tuple(slice(low, low + long) for low, long in zip(offsets, lengths, strict=True))


def test_rows_are_one_run_and_columns_are_cut_into_runs_that_fit():
    assert [box[2:] for box in boxes((1000, 1000), (10, 0), (20, 1000), 4, 16 * MIB)] == [(40_000, 120_000, True)]
    columns = list(boxes((10_000, 1000), (0, 500), (10_000, 500), 4, 16 * MIB))
    assert len(columns) == 3
    assert {box.lengths[1] for box in columns} == {500}
    assert columns[0].stop - columns[0].start > 15 * MIB


def test_distant_runs_are_read_in_separate_boxes():
    found = list(boxes((100, 1_000_000), (0, 7), (100, 10), 4, 16 * MIB))
    assert [(box.start, box.stop) for box in found] == [
        (row * 4_000_000 + 28, row * 4_000_000 + 68) for row in range(100)
    ]
    assert bound_box((100, 1_000_000), (0, 7), (100, 10), 4).stop == 99 * 4_000_000 + 68


# Items of a distributed checkpoint come to where a planner wants them, for the bytes that they take.


def test_targets_of_any_shape_in_memory_and_of_other_dtypes_are_filled(tmp_path):
    state = {"a": torch.rand(200, 300), "b": torch.rand(50).bfloat16(), "c": torch.rand(64, 64, dtype=torch.complex64)}
    save(state, tmp_path)
    target = {
        "a": torch.zeros(300, 200).t(),
        "b": torch.zeros(50, dtype=torch.float64),
        "c": torch.zeros(64, 64, dtype=torch.complex64).conj(),
    }
    load(target, tmp_path)
    assert torch.equal(target["a"], state["a"])
    assert torch.equal(target["b"], state["b"].double())
    assert torch.equal(target["c"], state["c"])


@pytest.mark.parametrize("stage_bytes", [64, 1000, 1 << 14])
def test_a_target_that_is_not_as_stored_is_filled_stage_by_stage_each_in_its_place(tmp_path, monkeypatch, stage_bytes):
    monkeypatch.setattr(fill, "STAGE_BYTES", stage_bytes)
    state = {"a": torch.arange(3000.0).view(50, 60), "b": torch.arange(700)}
    save(state, tmp_path)
    target = {"a": torch.zeros(60, 50).t(), "b": torch.zeros(700, dtype=torch.float64)}
    load(target, tmp_path)
    assert torch.equal(target["a"], state["a"])
    assert torch.equal(target["b"], state["b"].double())


@pytest.mark.parametrize("layout", ["penstock", "torch"])
def test_truncated_object_is_named_before_any_tensor_is_filled(tmp_path, layout):
    save({"w": torch.ones(500)}, tmp_path, layout=layout)
    (data,) = (path for path in tmp_path.rglob("*") if path.suffix in (".data", ".distcp"))
    data.write_bytes(data.read_bytes()[:-1])
    target = {"w": torch.zeros(500)}
    with pytest.raises(CheckpointException, match=f"bytes, .* were written.*{data.name}"):
        load(target, tmp_path)
    assert not target["w"].any()


def test_a_part_costs_its_own_bytes(tmp_path):
    rows, columns = 16_384, 512
    save_as_ranks([{"w": torch.rand(rows, columns), "small": torch.rand(10)}], tmp_path)
    assert sum(sizes_read(lambda: load({"small": torch.zeros(10)}, tmp_path))) <= MIB
    assert 32 * MIB <= sum(sizes_read(lambda: load({"w": torch.zeros(rows, columns)}, tmp_path))) <= 33 * MIB


def test_small_tensors_share_requests_in_any_order(tmp_path):
    state = {f"w{number:03}": torch.full((20_000,), float(number)) for number in range(100)}
    save(dict(reversed(state.items())), tmp_path)  # torch loads in the order of names
    target = {name: torch.zeros(20_000) for name in state}
    assert len(sizes_read(lambda: load(target, tmp_path))) <= 2, "8 MB in all"
    assert all(torch.equal(target[name], state[name]) for name in state)


def test_resharding_reads_only_the_rank_rows_and_fills_columns_correctly(tmp_path):
    script = """
    import sys, warnings, torch, torch.distributed as dist, torch.distributed.checkpoint as dcp
    from torch.distributed.device_mesh import init_device_mesh
    from torch.distributed.tensor import DTensor, Shard
    from torch.testing._internal.distributed.fake_pg import FakeStore
    from penstock.checkpoint.dcp import StorageReader
    from penstock.events import RangeRead, subscribe
    warnings.simplefilter("ignore")
    read, objects = [], set()
    def hear(event):
        if isinstance(event, RangeRead) and event.url.endswith(".data"):
            read.append(event.size_bytes)
            objects.add(event.url)
    subscribe(hear)
    dist.init_process_group("fake", store=FakeStore(), rank=1, world_size=8)
    mesh = init_device_mesh("cpu", (8,))
    target = DTensor.from_local(torch.zeros(8192 // 8, 1024), mesh, [Shard(0)])
    dcp.load({"w": target}, storage_reader=StorageReader(sys.argv[1]), no_dist=True)
    whole = torch.arange(8192.0).repeat_interleave(1024).view(8192, 1024)
    assert torch.equal(target.to_local(), whole[1024:2048])
    print(sum(read), len(objects))
    for kept in (torch.zeros(8192, 128), torch.zeros(128, 8192).t(), torch.zeros(8192, 128, dtype=torch.float64)):
        target = DTensor.from_local(kept, mesh, [Shard(1)])
        dcp.load({"w": target}, storage_reader=StorageReader(sys.argv[2]), no_dist=True)
        assert torch.equal(kept.float(), whole.t().reshape(8192, 1024)[:, 128:256])
    """
    whole = torch.arange(8192.0).repeat_interleave(1024).view(8192, 1024)
    save({"w": whole}, tmp_path / "rows")
    save({"w": whole.t().reshape(8192, 1024)}, tmp_path / "columns")
    (tmp_path / "program.py").write_text(dedent(script))
    ended = program(tmp_path / "program.py", tmp_path / "rows", tmp_path / "columns")
    assert ended.returncode == 0, ended.stdout
    size, objects = map(int, ended.stdout.split())
    assert 4 * MIB <= size <= 5 * MIB
    assert objects == 1
