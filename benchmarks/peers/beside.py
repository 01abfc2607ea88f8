"""Training steps beside a save in the background, and what they lose beside what a save that they wait for costs.

All is measured in one process and in turn, because a tenth is little: steps alone, a save that is waited for, a
background save that nobody measures, since a run has many and only the first has to find memory, steps from another's
beginning until long after its end, and steps alone.
"""

import time

import torch
from meter import BUCKET, WRITTEN, Meter
from model import RUN
from ours import store

import penstock as ps

_ALONE_S_PER_GIB, _LONGER = 2.0, 2.0


def _steps(step, least_s):
    """Train for so long; returns the number of steps and the seconds they took."""
    began, count = time.perf_counter(), 0
    while time.perf_counter() < began + least_s:
        step()
        count += 1
    return count, time.perf_counter() - began


def measure(step):
    """Print what saving in the background costs a training of such steps."""
    meter = Meter()
    (key,) = meter.keys
    manager = ps.CheckpointManager(f"s3://{BUCKET}/{WRITTEN}{meter.layout(RUN)}/", store=store(meter))
    path = meter.path(key)
    state, alone_s = torch.load(path), _ALONE_S_PER_GIB * path.stat().st_size / 2**30
    _steps(step, alone_s / 4)  # the first are slow
    alone = [_steps(step, alone_s)]
    began = time.perf_counter()
    manager.save(1, state)
    waited_s = time.perf_counter() - began
    checkpoints = ps.AsyncCheckpointer(manager)
    checkpoints.save(2, state)
    checkpoints.wait()
    with checkpoints, meter:
        began = time.perf_counter()
        checkpoints.save(3, state)
        returned_s = time.perf_counter() - began
        count, beside_s = _steps(step, _LONGER * waited_s)
        checkpoints.wait()
        meter.count(key)
        alone.append(_steps(step, alone_s))
        step_s = sum(seconds for _, seconds in alone) / sum(count for count, _ in alone)
        lost_s = returned_s + beside_s - count * step_s
        meter.told = {"waited_s": waited_s, "returned_s": returned_s, "lost_percent": lost_s / waited_s * 100}
