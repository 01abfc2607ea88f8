"""Items of a distributed checkpoint come to where a planner wants them, for the bytes that they take."""

from __future__ import annotations

from textwrap import dedent

import pytest
import torch
from torch.distributed.checkpoint.api import CheckpointException

from penstock.checkpoint.dcp import reader as fill
from tests.checkpoint.dcp.saves import load, save, save_as_ranks, sizes_read
from tests.edges.launch import program

pytestmark = pytest.mark.filterwarnings("ignore:torch.distributed is disabled")
MIB = 1 << 20


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
        if isinstance(event, RangeRead) and "checkpoint.json" not in event.url:
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
