"""A training as a user writes one, for torchrun: it saves what it needs to go on, and notes what it trained on."""

from __future__ import annotations

import json
import os
import signal
import sys
from datetime import timedelta
from pathlib import Path

import torch
import torch.distributed as dist
from torch.distributed.device_mesh import init_device_mesh
from torch.nn.parallel import DistributedDataParallel

import penstock as ps

PATIENCE = timedelta(seconds=180)  # of collectives: longer than a program may take


def named(sample):
    return torch.zeros(1), sample.key, sample.repeat


def main(plan):
    """Train as ``plan`` says.

    It has the URL of the data, the file of the ledger, the URL of what is saved; epochs, global batch, workers, and how
    many steps lie between saves. Perhaps also a mesh's shape, what rank 1 does not see of the data, and which rank dies
    in which step.
    """
    dist.init_process_group("gloo", timeout=PATIENCE)
    rank = dist.get_rank()
    mesh = init_device_mesh("cpu", tuple(plan["mesh"]), mesh_dim_names=("dp", "tp")) if "mesh" in plan else None
    share = plan["global_batch"] // (mesh["dp"].size() if mesh else dist.get_world_size())
    hidden = plan.get("hidden", ()) if rank == 1 else ()
    dataset = ps.MapDataset.from_prefix(plan["data"], transform=named, exclude=hidden)
    loader = ps.DataLoader(dataset, share, shuffle=True, num_workers=plan["workers"], place=mesh)
    model = DistributedDataParallel(torch.nn.Linear(1, 1), process_group=mesh["dp"].get_group() if mesh else None)
    steps = resume(model.module, loader, plan["saved"])
    with Path(f"{plan['ledger']}.{rank}").open("a", encoding="utf-8") as ledger:
        for epoch in range(loader.state_dict()["epoch"], plan["epochs"]):
            for inputs, names, repeats in loader:
                print(json.dumps([steps, epoch, names, repeats.tolist()]), file=ledger, flush=True)
                if [rank, steps] == plan.get("dies"):
                    os.kill(os.getpid(), signal.SIGKILL)
                if mesh:
                    dist.barrier(mesh["tp"].get_group())  # as the layers that these ranks share would make them wait
                model(inputs).sum().backward()
                steps += 1
                if steps % plan["every"] == 0 and rank == 0:
                    state = {"model": model.module.state_dict(), "data": loader.state_dict(), "steps": steps}
                    ps.save(state, plan["saved"])
    dist.destroy_process_group()


def resume(model, loader, url):
    """Go on from what was saved, any rank's; return how many steps are done."""
    try:
        saved = ps.load(url)
    except FileNotFoundError:
        return 0
    model.load_state_dict(saved["model"])
    loader.load_state_dict(saved["data"])
    return saved["steps"]


if __name__ == "__main__":
    main(json.loads(sys.argv[1]))
