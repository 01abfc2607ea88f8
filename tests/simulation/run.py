"""Runs of the simulation: one seed, many, and the smallest plan that still fails."""

from __future__ import annotations

import gc
import os
import random
import tempfile
import traceback
from contextlib import ExitStack
from dataclasses import dataclass, replace
from itertools import combinations
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
import torch

import penstock as ps
from penstock.engine.read import hedging
from penstock.testing.faults.script import Settings
from tests.simulation import arrays, crowds, durable, programs, reruns, scenario, sets, tables
from tests.simulation.access import Tokens, issuing, renewing
from tests.simulation.inline import without_pools
from tests.simulation.scenario import KEYS, PATIENCE_S, TTL_S, Run, Wrong
from tests.simulation.world import World, small_parts
from tests.simulation.world import _replace as replaced_name

if TYPE_CHECKING:
    from penstock.options import StoreOptions
    from tests.simulation.plan import Plan


OPERATIONS = {
    **scenario.OPERATIONS,
    **arrays.OPERATIONS,
    **tables.OPERATIONS,
    **{
        each.__name__: each
        for each in (sets.shards, sets.skips, sets.objects, sets.tokens, durable.checkpoint, durable.ranks, durable.job)
    },
    "crowd": crowds.crowd,
    **programs.OPERATIONS,
    **reruns.OPERATIONS,
}


@dataclass(slots=True)
class Result:
    """What a run showed.

    Attributes:
        plan: Its plan.
        error: The broken promise; None if all were kept.
        lines: Its trace.

    """

    plan: Plan
    error: BaseException | None
    lines: list[str]
    requests: int = 0

    def __str__(self) -> str:
        if self.error is None:
            return f"seed {self.plan.seed}: kept"
        return "\n".join([f"plan {self.plan}", *self.lines, "".join(traceback.format_exception(self.error))])


def execute(plan: Plan) -> Result:
    """Carry out a plan."""
    dice = plan.dice("settings")
    settings = Settings(dialect=plan.dialect, least_part_bytes=1)
    world = World(plan.seed, settings=settings, weather=plan.weather())
    world.store.deaf = "deaf" in plan.features
    run = Run(world, plan.cache, "writer" in plan.features)
    error: BaseException | None = None
    # Checkpoints have the states of these.
    random.seed(plan.seed)
    np.random.seed(plan.seed % 2**32)  # noqa: NPY002  the generator that libraries share
    torch.manual_seed(plan.seed)
    gc.disable()
    try:
        with ExitStack() as stack:
            stack.enter_context(small_parts())
            stack.enter_context(without_pools())
            if "hedge" in plan.features:
                stack.enter_context(replaced_name(hedging, "_LEAST", 3))
                stack.enter_context(replaced_name(hedging, "SHARE", 0.5))
            folder = ""
            if plan.cache or "node" in plan.features:
                folder = stack.enter_context(tempfile.TemporaryDirectory(dir=_scratch()))
                os.environ["PENSTOCK_NODE"] = f"{folder}/node"
            if "expiry" in plan.features:
                world.store.tokens = Tokens(dice.choice((30.0, 120.0, 400.0)), announced=dice.random() < 0.5)
                stack.enter_context(issuing(world))
            stack.enter_context(world.running(lambda options: _options(options, plan, folder)))
            for key in KEYS:
                if dice.random() < 0.8:
                    world.store.put(key, run.content(key, dice))
            for step in plan.steps:
                world.store.begin(step.number)
                its = plan.dice(f"step {step.number}")
                world.trace(f"-- {step}")
                if "jumps" in plan.features and its.random() < 0.2:
                    world.clock.jumped_s += its.choice((-100.0, -2.0, 2.0, 100.0))
                if "outages" in plan.features and its.random() < 0.15:
                    world.store.down_until = world.clock.now + its.choice((5.0, 30.0, 400.0))
                OPERATIONS[step.name](run, its)
            _after(run)
    except Exception as broken:  # noqa: BLE001  any error of a run is its result
        error = broken
    finally:
        gc.enable()
    return Result(plan, error, world.lines, world.store.requests)


def _after(run: Run) -> None:
    """Wait until all requests have arrived; what was given up must never have been there."""
    run.world.settle()
    run.kept.clear()
    gc.collect(0)
    run.world.check_returned()
    for key, data in run.forbidden:
        if any(each.stored is not None and each.stored.data == data for each in run.world.store.history.get(key, [])):
            raise Wrong(f"a write of {key} was given up, and was there")


def _scratch() -> str | None:
    return "/dev/shm" if Path("/dev/shm").is_dir() else None  # noqa: S108  a folder of its own within


def _options(options: StoreOptions, plan: Plan, folder: str) -> StoreOptions:
    split = "split" in plan.features
    cache = (
        ps.CacheOptions(path=f"{folder}/cache", mode=plan.cache, ttl_s=TTL_S, block_bytes=64 << 10)
        if plan.cache
        else None
    )  # type: ignore[arg-type]
    if "expiry" in plan.features:
        options = renewing(options, plan.dialect)
    return replace(
        options,
        retry=ps.RetryOptions(patience_s=PATIENCE_S, first_contact_s=PATIENCE_S),
        read=ps.ReadOptions(hedge="hedge" in plan.features, **({"split_bytes": 8 << 10} if split else {})),
        write=ps.WriteOptions(
            **({"part_bytes": 16 << 10, "buffer_bytes": 64 << 10} if "small" in plan.features else {})
        ),
        cache=cache,
        node=ps.NodeOptions(share="node" in plan.features),
    )


def shrink(result: Result, most: int = 200) -> Result:
    """Return the run of the smallest plan found that breaks a promise of the same kind."""
    best, tried = result, 0
    smaller = True
    while smaller:
        smaller = False
        plan = best.plan
        candidates = [plan.without(steps=frozenset([each.number])) for each in plan.steps]
        candidates += [plan.without(feature=each) for each in sorted(plan.features)]
        candidates += [replace(plan, cache="")] if plan.cache else []
        for candidate in candidates:
            tried += 1
            if tried > most:
                return best
            found = execute(candidate)
            if found.error is not None and type(found.error) is type(result.error):
                best, smaller = found, True
                break
    return best


def pairs(plan: Plan) -> set[tuple[str, str]]:
    """Return the pairs of features that meet in a run."""
    met = {*plan.features, plan.dialect, *(each.name for each in plan.steps)} | (
        {f"cache {plan.cache}"} if plan.cache else set()
    )
    return set(combinations(sorted(met), 2))
