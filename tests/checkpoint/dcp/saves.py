"""Distributed checkpoints saved and loaded in one process, as one rank would or several, for the tests of this room."""

from __future__ import annotations

import pickle
from multiprocessing.reduction import ForkingPickler

import torch
import torch.distributed.checkpoint as dcp
from torch.distributed.checkpoint.default_planner import DefaultSavePlanner

from penstock.checkpoint.dcp import StorageReader, StorageWriter
from penstock.events import RangeRead, subscribe

__all__ = ["LAYOUTS", "cause", "load", "save", "save_as_ranks", "sizes_read", "two_ranks"]

LAYOUTS = ("penstock", "torch")


def save(state, url, planner=None, **options):
    """Save with a writer of these options."""
    dcp.save(state, storage_writer=StorageWriter(url, **options), planner=planner, no_dist=True)


def load(state, url, **options):
    """Load into ``state`` with a reader of these options, and return it."""
    dcp.load(state, storage_reader=StorageReader(url, **options), no_dist=True)
    return state


def save_as_ranks(states, url, **options):
    """Save as ranks with these states would, one after another."""
    writers, planners, plans = [], [], []
    for rank, state in enumerate(states):
        writer, planner = StorageWriter(url, **options), DefaultSavePlanner()
        planner.set_up_planner(state, None, rank == 0)
        writer.set_up_storage_writer(rank == 0)  # as older versions of torch do, and a rank learns its number later
        plans.append(writer.prepare_local_plan(planner.create_local_plan()))
        writers.append(pickle.loads(ForkingPickler.dumps(writer)))
        planners.append(planner)
    plans, metadata = planners[0].create_global_plan(plans)
    plans = pickle.loads(pickle.dumps(writers[0].prepare_global_plan(plans)))
    trios = zip(writers, planners, plans, strict=True)
    results = [writer.write_data(planner.finish_plan(plan), planner).wait() for writer, planner, plan in trios]
    writers[0].finish(metadata, pickle.loads(pickle.dumps(results)))


def sizes_read(act):
    """Return how many bytes each request of data takes while ``act`` runs."""
    read = []
    leave = subscribe(lambda event: read.append(event) if isinstance(event, RangeRead) else None)
    try:
        act()
    finally:
        leave()
    return [event.size_bytes for event in read if "checkpoint.json" not in event.url]


def cause(raised):
    """Return what the one rank raised: torch wraps it."""
    return raised.value.failures[0][0]


def two_ranks(seed):
    """Return the states of two ranks, of a few MiB each."""
    generator = torch.Generator().manual_seed(seed)
    return [{f"w{rank}": torch.rand(900, 1000, generator=generator), f"n{rank}": seed} for rank in range(2)]
