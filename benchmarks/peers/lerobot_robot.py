"""LeRobot's own datasets: written, read by its classes, and single items for a comparison.

``python lerobot_robot.py TASK``, TASK being JSON; prints one JSON line. Runs where ``lerobot`` is installed.
"""

from __future__ import annotations

import json
import os
import sys
import time

# One thread decodes, here and there.
os.environ |= {"OMP_NUM_THREADS": "1", "HF_HUB_OFFLINE": "1", "HF_DATASETS_OFFLINE": "1"}

import numpy as np
import torch
from lerobot.datasets.lerobot_dataset import LeRobotDataset
from lerobot.datasets.streaming_dataset import StreamingLeRobotDataset

HEIGHT, WIDTH, RATE, JOINTS = 480, 640, 30, 14


def write(task):
    """Write a dataset with LeRobot's own encoder settings, of scenes that move."""
    draw = np.random.default_rng(0)
    names = [f"observation.images.c{number}" for number in range(task["cameras"])]
    shape = HEIGHT // 8 + 8, WIDTH // 8 + 8, 3
    scenes = [draw.integers(0, 255, shape, dtype=np.uint8).repeat(8, 0).repeat(8, 1) for _ in names]
    features = {
        name: {"dtype": "video", "shape": (HEIGHT, WIDTH, 3), "names": ["height", "width", "channels"]}
        for name in names
    }
    features |= {
        name: {"dtype": "float32", "shape": (JOINTS,), "names": None} for name in ("observation.state", "action")
    }
    dataset = LeRobotDataset.create("bench/robot", RATE, features, root=task["root"], robot_type="sim")
    for _ in range(task["episodes"]):
        for number in range(task["length"]):
            at = number % 60
            item = {name: draw.normal(size=JOINTS).astype(np.float32) for name in ("observation.state", "action")}
            for name, scene in zip(names, scenes, strict=True):
                grain = draw.integers(-1, 2, (HEIGHT, WIDTH, 1))
                pixels = scene[at // 2 : at // 2 + HEIGHT, at : at + WIDTH] + grain
                item[name] = np.clip(pixels, 0, 255).astype(np.uint8)
            dataset.add_frame({**item, "task": "push"})
        dataset.save_episode()
    dataset.finalize()
    return {}


def read(task):
    """Return the cost of an epoch; opening is outside of it."""
    given = {"root": task["root"], "delta_timestamps": task["deltas"] or None}
    if task["do"] == "stream":
        # A small pool, which is filled before the first sample, favours it.
        loader = torch.utils.data.DataLoader(StreamingLeRobotDataset("bench/robot", buffer_size=64, **given), 8)
    else:
        loader = torch.utils.data.DataLoader(LeRobotDataset("bench/robot", **given), 8, shuffle=True)
    began, busy, count = time.perf_counter(), time.process_time(), 0
    for batch in loader:
        count += len(batch["index"])
    return {
        "rate": count / (time.perf_counter() - began),
        "cpu_ms": 1e3 * (time.process_time() - busy) / count,
        "count": count,
    }


def keep(task):
    """Save some items."""
    dataset = LeRobotDataset("bench/robot", root=task["root"], delta_timestamps=task["deltas"] or None)
    torch.save({row: dataset[row] for row in task["rows"]}, task["file"])
    return {}


if __name__ == "__main__":
    torch.set_num_threads(1)
    given = json.loads(sys.argv[1])
    print(json.dumps({"write": write, "keep": keep}.get(given["do"], read)(given)))
