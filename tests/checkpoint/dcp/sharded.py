"""One rank of a job that saves or loads distributed checkpoints, and checks what it gets."""

from __future__ import annotations

import os
import signal
import sys
import warnings
from datetime import timedelta
from pathlib import Path

import torch
import torch.distributed as dist
import torch.distributed.checkpoint as dcp
from torch.distributed.checkpoint.default_planner import DefaultLoadPlanner, DefaultSavePlanner
from torch.distributed.checkpoint.state_dict import (
    StateDictOptions,
    get_state_dict,
    set_state_dict,
)
from torch.distributed.checkpoint.state_dict_saver import AsyncCheckpointerType
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import fully_shard
from torch.distributed.tensor import Replicate, Shard, distribute_tensor

from penstock.checkpoint.dcp import StorageReader, StorageWriter
from penstock.errors import PenstockError

PATIENCE = timedelta(seconds=180)
FULL = StateDictOptions(full_state_dict=True, cpu_offload=True)
SHAPES = {"rows": (10, 6), "columns": (7, 9), "both": (8, 12), "same": (5, 3), "bf": (300, 40), "one": (1,)}


def expected(name, seed=1):
    """Return the whole of a tensor."""
    generator = torch.Generator().manual_seed(seed + sum(map(ord, name)))
    full = torch.rand(SHAPES[name], generator=generator)
    return full.bfloat16() if name == "bf" else full


def placements(*, turned=False):
    """Return how each tensor lies over the ranks; ``turned``: otherwise."""
    one = init_device_mesh("cpu", (dist.get_world_size(),))
    two = init_device_mesh("cpu", (2, dist.get_world_size() // 2)) if dist.get_world_size() > 1 else one
    rows, columns = (Shard(1), Shard(0)) if turned else (Shard(0), Shard(1))
    both = (columns, rows) if two.ndim == 2 else (rows,)
    return {
        "rows": (one, (rows,)),
        "columns": (one, (columns,)),
        "both": (two, both),
        "same": (one, (Replicate(),)),
        "bf": (two, both),
        "one": (one, (Shard(0),)),
    }


def tensors(seed=1, *, turned=False, blank=False):
    """Return a state of sharded tensors, nested; ``blank`` is one to be filled."""
    lie = placements(turned=turned)
    made = {name: distribute_tensor(expected(name, seed), *lie[name]) for name in SHAPES}
    if blank:
        made = {name: torch.zeros_like(each) for name, each in made.items()}
    number = 0 if blank else seed
    return {"tensors": made, "list": [number, {"deep": torch.full((2,), float(number))}], "text": "" if blank else "x"}


def check(state, seed=1):
    """Compare each rank's own part, and the rest."""
    for name, each in state["tensors"].items():
        whole = distribute_tensor(expected(name, seed), each.device_mesh, each.placements)
        assert torch.equal(each.to_local(), whole.to_local()), name
    assert state["list"][0] == seed
    assert state["list"][1]["deep"].tolist() == [float(seed)] * 2
    assert state["text"] == "x"


class Model(torch.nn.Module):
    def __init__(self, seed):
        super().__init__()
        torch.manual_seed(seed)
        self.first, self.norm, self.last = torch.nn.Linear(6, 11), torch.nn.LayerNorm(11), torch.nn.Linear(11, 3)

    def forward(self, batch):
        return self.last(self.norm(self.first(batch)).relu())


def trained(kind, seed, steps):
    """Return a model that was trained for some steps, over the ranks as ``kind`` says."""
    model = Model(seed)
    if kind == "fsdp":
        fully_shard(model.first)
        fully_shard(model)
    elif kind == "ddp":
        model = torch.nn.parallel.DistributedDataParallel(model)
    optimizer = torch.optim.Adam(model.parameters(), lr=0.01)
    for step in range(steps):
        optimizer.zero_grad()
        model(torch.full((4, 6), float(step))).square().sum().backward()
        optimizer.step()
    return model, optimizer


def whole(model, optimizer):
    """Return model and optimizer state, gathered."""
    return get_state_dict(model, optimizer, options=FULL)


def same(one, other):
    """Compare nests of tensors bit by bit."""
    if isinstance(one, torch.Tensor):
        return torch.equal(one, other)
    if isinstance(one, dict):
        return one.keys() == other.keys() and all(same(one[key], other[key]) for key in one)
    if isinstance(one, list | tuple):
        return len(one) == len(other) and all(map(same, one, other))
    return one == other


def training(kind, seed, steps):
    model, optimizer = trained(kind, seed, steps)
    return model, optimizer, dict(zip(("model", "optimizer"), get_state_dict(model, optimizer), strict=True))


def save(url, folder):
    """Save every kind of state; what loading must give is noted in ``folder``."""
    dcp.save(tensors(), storage_writer=StorageWriter(f"{url}tensors", spread=2))
    dcp.save(tensors(), storage_writer=StorageWriter(f"{url}torch", layout="torch"))
    for kind in ("fsdp", "ddp"):
        model, optimizer, state = training(kind, 1, 3)
        dcp.save(state, checkpoint_id=f"{url}{kind}", storage_writer=StorageWriter(f"{url}elsewhere"))
        noted = whole(model, optimizer)
        if dist.get_rank() == 0:
            torch.save(noted, folder / f"{kind}.pt")
    planner = DefaultSavePlanner(flatten_state_dict=False)
    dcp.save(tensors()["tensors"], storage_writer=StorageWriter(f"{url}flat"), planner=planner)
    for step in (1, 2):  # plans that are cached, and a writer of its own for each save, or the same
        planner = DefaultSavePlanner(enable_plan_caching=True)
        dcp.save(tensors(step), storage_writer=StorageWriter(f"{url}cached{step}"), planner=planner)
    behind(url, AsyncCheckpointerType.THREAD)


def behind(url, *kinds):
    """Save behind training, one kind after the other with the same writer."""
    writer = StorageWriter(f"{url}async", overwrite=True)
    for step, kind in enumerate(kinds, 1):
        dcp.async_save(tensors(step), storage_writer=writer, async_checkpointer_type=kind).result(PATIENCE.seconds)
        found = tensors(blank=True)
        dcp.load(found, storage_reader=StorageReader(f"{url}async"))
        check(found, step)


def apart(url, _):
    """Save in a thread, and then in a process, which goes on with the same writer."""
    behind(url, AsyncCheckpointerType.THREAD, AsyncCheckpointerType.PROCESS)


def load(url, folder):
    """Load every kind of state into as many ranks as there are, the other way round too."""
    for name, seed in (("tensors", 1), ("torch", 1), ("cached1", 1), ("cached2", 2)):
        for turned in (False, True):
            state = tensors(turned=turned, blank=True)
            dcp.load(state, storage_reader=StorageReader(f"{url}{name}"))
            check(state, seed)
    state = {"tensors": {"rows": tensors(turned=True, blank=True)["tensors"]["rows"]}}
    dcp.load(state, storage_reader=StorageReader(f"{url}tensors"))
    check({**tensors(), "tensors": state["tensors"]})
    state = tensors(turned=True, blank=True)
    planner = DefaultLoadPlanner(flatten_state_dict=False)
    dcp.load(state["tensors"], storage_reader=StorageReader(f"{url}flat"), planner=planner)
    check({**tensors(), "tensors": state["tensors"]})
    for kind in ("fsdp", "ddp"):
        for to in ("fsdp", "ddp", "plain"):
            model, optimizer, state = training(to, 2, 1)
            dcp.load(state, storage_reader=StorageReader(f"{url}{kind}"))
            set_state_dict(model, optimizer, model_state_dict=state["model"], optim_state_dict=state["optimizer"])
            found = whole(model, optimizer)
            assert dist.get_rank() or same(found, torch.load(folder / f"{kind}.pt"))


def local(url, _):
    """Have torch save with metadata for each rank, and load that with the same ranks."""
    dcp.save(tensors(), storage_writer=dcp.FileSystemWriter(url), use_collectives=False)
    for reader in (dcp.FileSystemReader, StorageReader):
        found = tensors(blank=True)
        dcp.load(found, storage_reader=reader(url))
        check(found)


class Fails(DefaultSavePlanner):
    """Fails on the last rank at one of its items: by raising, or killed."""

    def __init__(self, item, *, killed=False):
        super().__init__()
        self.left, self.killed = item, killed

    def resolve_data(self, item):
        self.left -= dist.get_rank() == dist.get_world_size() - 1
        if self.left < 0:
            if self.killed:
                os.kill(os.getpid(), signal.SIGKILL)
            raise RuntimeError("the GPU fell off")
        return super().resolve_data(item)


class Dies(StorageWriter):
    """Dies on the coordinator when all data is there."""

    def finish(self, *_):
        os.kill(os.getpid(), signal.SIGKILL)


def fail(url, how):
    """Replace the checkpoint at ``url``, in vain."""
    if how == "killed finishing":
        dcp.save(tensors(7), storage_writer=Dies(url, overwrite=True))
    if how == "killed writing":
        dcp.save(tensors(7), storage_writer=StorageWriter(url, overwrite=True), planner=Fails(1, killed=True))
    for item in (0, 1):
        try:
            dcp.save(tensors(7), storage_writer=StorageWriter(url, overwrite=True), planner=Fails(item))
        except dcp.api.CheckpointException as error:
            print(f"rank {dist.get_rank()} heard of {error.failures[dist.get_world_size() - 1][0]!r}", flush=True)
    for message, writer, collectives in (
        ("AlreadyExists", StorageWriter(url), True),
        ("use_collectives", StorageWriter(url + "-other"), False),
    ):
        try:
            dcp.save(tensors(7), storage_writer=writer, use_collectives=collectives)
        except (dcp.api.CheckpointException, PenstockError) as error:
            print(f"rank {dist.get_rank()} is refused: {message if message in str(error) else error}", flush=True)


def astray(url, _):
    """Replace the checkpoint at ``url``, in vain, as ranks that do not agree on the URL."""
    writer = StorageWriter(f"{url}-{dist.get_rank()}" if dist.get_rank() else url, overwrite=True)
    try:
        dcp.save(tensors(7), storage_writer=writer)
    except dcp.api.CheckpointException as error:
        print(f"rank {dist.get_rank()} heard of {error.failures[0][0]!r}", flush=True)


def main():
    warnings.filterwarnings("ignore", category=FutureWarning)
    verb, url, last = sys.argv[1:]
    dist.init_process_group("cpu:gloo", timeout=PATIENCE)
    {"save": save, "apart": apart, "load": load, "fail": fail, "local": local, "astray": astray}[verb](
        url, last if verb == "fail" else Path(last)
    )
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
