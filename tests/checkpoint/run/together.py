"""What each rank of tests/checkpoint/test_ranks.py does: `together.py save|grow|fail URL DATA`."""

from __future__ import annotations

import json
import random
import sys
from datetime import date

import numpy as np
import pytest
import torch
from torch import distributed
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.tensor import Shard, distribute_tensor

import penstock as ps
from penstock.checkpoint.run import ranks, restore
from penstock.checkpoint.run.background import AsyncCheckpointer
from penstock.errors import AlreadyExists, NotFound, Unusable

FULL = torch.arange(4000.0).reshape(100, 40)


def state(number: float) -> dict[str, object]:
    """Return a state of which each rank holds its rows."""
    mesh = init_device_mesh("cpu", (distributed.get_world_size(),))
    return {
        "model": {"weight": distribute_tensor(FULL + number, mesh, [Shard(0)]), "bias": torch.full((3,), number)},
        "epoch": int(number),
        "history": [number, "words"],
        "best": {"metric": np.float32(number), "since": [date(2026, 1, int(number) + 2)]},
    }


def loader(data: str) -> ps.DataLoader:
    """Return batches of 4, over all ranks."""
    dataset = ps.IterableDataset.from_prefix(data, transform=ps.Sample.read, shuffle=True, seed=3)
    return ps.DataLoader(dataset, 4 // distributed.get_world_size(), collate_fn=list)


def save(run: ps.CheckpointManager, data: str) -> dict[str, object]:
    """Save three steps of which two stay; say what comes after the last."""
    random.seed(distributed.get_rank())
    batches = loader(data)
    taken = iter(batches)
    for step in (1, 2, 3):
        next(taken)
        run.save(step, state(step), loader=batches, metric=1 / step)
    with pytest.raises(AlreadyExists):
        run.save(3, state(4))
    with pytest.raises(NotFound):
        run.restore(9, into={})
    run.save(3, state(3), loader=batches, overwrite=True)
    return {"drawn": random.random(), "rest": [int(each) for batch in taken for each in batch]}


def load(run: ps.CheckpointManager, data: str) -> dict[str, object]:
    """Restore the newest into a state of zeros; say what comes next."""
    if distributed.get_rank():
        restore.CommittedCheckpoint = None  # the first rank alone looks, lest one that fails leave the others waiting
    batches = loader(data)
    into = state(-1)
    into["history"] = None
    into["best"]["metric"] = None
    assert run.restore(into=into, loader=batches) is into
    model = into["model"]
    assert torch.equal(model["weight"].full_tensor(), FULL + 3)
    assert (model["bias"].tolist(), into["epoch"], into["history"]) == ([3.0] * 3, 3, [3, "words"])
    assert repr(into["best"]) == repr({"metric": np.float32(3), "since": [date(2026, 1, 5)]})
    return {"drawn": random.random(), "rest": [int(each) for batch in batches for each in batch]}


class Broken:
    """A loader that cannot say where it stands."""

    def state_dict(self) -> dict[str, object]:
        raise ValueError("no position between two epochs")

    def load_state_dict(self, state: dict[str, object]) -> None:
        raise NotImplementedError


def fail(run: ps.CheckpointManager, _: str) -> dict[str, object]:
    """Have one rank's state not be savable: all raise, and all name it; and nobody saves across ranks behind."""
    broken = state(4)
    if distributed.get_rank() == 1:
        broken["rows"] = torch.ones(2).to_sparse()
    with pytest.raises(Unusable, match="'rows'") as raised:
        run.save(4, broken)
    assert raised.value.__notes__ == ["on rank 1, while all 2 saved or loaded a checkpoint"]
    broken["rows"] = [0, object()] if distributed.get_rank() == 1 else None
    with pytest.raises(Unusable, match=r"state\['rows'\]\[1\] is a builtins.object") as raised:
        run.save(4, broken)
    assert raised.value.__notes__ == ["on rank 1, while all 2 saved or loaded a checkpoint"]
    second, good = distributed.get_rank() == 1, state(4)
    for given, options, message in (
        (good, {"metric": [0.5, 1] if second else 0.5}, "metric must be one number"),
        (good, {"loader": Broken() if second else None}, "no position between two epochs"),
        (None if second else good, {}, "must be a dict"),
        ({"penstock": 1} if second else good, {"weights_only": False}, "must be a dict"),
    ):
        with pytest.raises((Unusable, ValueError), match=message) as raised:
            run.save(4, given, **options)
        assert raised.value.__notes__ == ["on rank 1, while all 2 saved or loaded a checkpoint"]
    with pytest.raises(Unusable, match="async_save"):
        AsyncCheckpointer(run)
    stages(ps.CheckpointManager(f"{sys.argv[2]}-stages").across(distributed.group.WORLD))
    superseded(ps.CheckpointManager(f"{sys.argv[2]}-superseded", keep_last=1).across(distributed.group.WORLD))
    return {"latest": run.latest()}


def stages(run: ps.CheckpointManager) -> None:
    """Save a model of which each rank has another layer, restore it, and let no layer be lost."""
    rank = distributed.get_rank()
    run.save(1, {"model": {f"layer{rank}": torch.full((2,), float(rank))}})
    into = {"model": {f"layer{rank}": torch.full((2,), 9.0)}}
    run.restore(into=into)
    assert repr(into) == repr({"model": {f"layer{rank}": torch.full((2,), float(rank))}})
    with pytest.raises(Unusable, match=r"such as 'model\.layer1', which would be lost"):
        run.restore(into={"model": {"layer0": torch.zeros(2)}})
    with pytest.raises(Unusable, match="pass into=") as raised:
        run.restore(into=None if rank else into)
    assert raised.value.__notes__ == ["on rank 1, while all 2 saved or loaded a checkpoint"]


def superseded(run: ps.CheckpointManager) -> None:
    """Have the newest step superseded twice after all ranks have agreed on it, and restored as the newest one."""
    run.save(1, state(1))
    read, left = ranks.Ranks.load, [2, 3]

    def raced(*args, **options):
        if left:
            step = left.pop(0)
            run.save(step, state(step))
        return read(*args, **options)

    ranks.Ranks.load = raced
    into = state(-1)
    run.restore(into=into)
    assert into["epoch"] == 3
    assert torch.equal(into["model"]["weight"].full_tensor(), FULL + 3)
    ranks.Ranks.load = read
    with pytest.raises(NotFound):
        run.restore(2, into=into)


def main() -> None:
    """Do what is asked, and tell what it found in a file for each rank."""
    verb, url, data, told = sys.argv[1:]
    distributed.init_process_group("gloo")
    run = ps.CheckpointManager(url, keep_last=2).across(distributed.group.WORLD)
    found = {"save": save, "load": load, "fail": fail}[verb](run, data)
    with open(f"{told}/{verb}-{distributed.get_rank()}.json", "w") as file:
        json.dump(found, file)
    distributed.destroy_process_group()


if __name__ == "__main__":
    main()
