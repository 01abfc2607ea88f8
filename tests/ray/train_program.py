"""Training on Ray in which a worker kills itself once: each worker notes which keys it got at which step."""

from __future__ import annotations

import json
import os
import signal
import sys
import time
from pathlib import Path

import ray
import ray.train.torch
import torch.distributed as dist
from ray.train import FailureConfig, RunConfig, ScalingConfig
from ray.train.torch import TorchTrainer

import penstock as ps
import penstock.ray
from penstock.errors import Unusable
from penstock.interop import arrow

GLOBAL_BATCH, EPOCHS, EVERY = 12, 2, 3


def train(settings):
    """Train two epochs; ``settings`` has the folders, and the steps at which something happens."""
    folder = Path(settings["folder"])
    rank, world = dist.get_rank(), dist.get_world_size()
    dataset = ps.MapDataset.from_prefix(settings["url"], transform=lambda sample: int(sample.key.rpartition("/")[2]))
    spawned = {"num_workers": 1, "multiprocessing_context": "spawn"} if settings.get("spawned") else {}
    loader = ps.DataLoader(dataset, GLOBAL_BATCH // world, shuffle=True, collate_fn=list, **spawned)
    try:
        ray.train.torch.prepare_data_loader(loader)
    except Unusable as error:
        (folder / "refused").write_text(str(error))
    run = ps.CheckpointManager(f"{folder}/run/", keep_last=2)
    step = run.latest() or 0
    if step:
        assert run.restore(loader=loader) == {"step": step}
    for epoch in range(loader.state_dict()["epoch"], EPOCHS):
        for keys in loader:
            step += 1
            with (folder / f"seen-{os.getpid()}").open("a") as file:
                file.write(json.dumps([epoch, step, rank, world, keys]) + "\n")
            died = folder / "died"
            if step == settings["dies"] and rank == world - 1 and not died.exists():
                died.write_text(str(os.getpid()))
                os.kill(os.getpid(), signal.SIGKILL)
            if world < 4 and step == settings.get("grows"):
                wait_for_ray(folder / "grows")
            if world == 4 and step == settings.get("shrinks"):
                wait_for_ray(folder / "shrinks")
            if step % EVERY == 0:
                penstock.ray.report({"loss": 1 / step, "step": step}, run, step, {"step": step}, loader=loader)


def wait_for_ray(path):
    """Say that the number of workers may change, and wait until Ray ends this one for it."""
    path.touch()
    while True:
        time.sleep(1)


if __name__ == "__main__":
    settings = json.loads(sys.argv[1])
    ray.init(logging_level="ERROR", log_to_driver=False)
    workers = settings["workers"]
    if isinstance(workers, list):
        scaling = ScalingConfig(num_workers=tuple(workers), elastic_resize_monitor_interval_s=1)
    else:
        scaling = ScalingConfig(num_workers=workers)
    # As docs/ray.md says: Ray's own checkpoints lie in a store of Penstock.
    files, path = arrow.from_url(f"file://{settings['folder']}/ray/")
    trainer = TorchTrainer(
        train,
        train_loop_config=settings,
        scaling_config=scaling,
        run_config=RunConfig(
            name="training",
            storage_path=path,
            storage_filesystem=files,
            failure_config=FailureConfig(max_failures=2),
        ),
    )
    result = trainer.fit()
    # Not printed: Ray may write to standard output, too.
    found = [result.metrics["step"], *penstock.ray.reported(result.checkpoint)]
    Path(settings["folder"], "result").write_text(json.dumps(found))
