"""Operations of several processes at once, which share a cache and a node's file, and may be killed at any wait."""

from __future__ import annotations

from dataclasses import replace
from functools import partial
from math import inf
from typing import TYPE_CHECKING

from tests.simulation import scenario, sets
from tests.simulation.processes import Crowd, Killed

if TYPE_CHECKING:
    from random import Random

    from tests.simulation.scenario import Run

_APART = 1000
_DOES = {**scenario.OPERATIONS, **{each.__name__: each for each in (sets.shards, sets.objects, sets.tokens)}}


def crowd(run: Run, dice: Random) -> None:
    """Let two or three processes work on the same keys, and check each operation of each."""
    names = dice.sample(tuple(_DOES), 3)
    programs, runs = [], []
    for place in range(dice.randint(2, 3)):
        # Contents that two of them write are never equal.
        its = replace(run, made=run.made + _APART * (place + 1), writer=True, crowded=True, kept={})
        runs.append(its)
        work = [dice.choice(names) for _ in range(dice.randint(1, 3))]
        programs.append(partial(_live, its, work, dice.getrandbits(32)))
    run.world.store.happened.clear()
    Crowd(run.world, dice).run(programs)
    run.made = max(each.made for each in runs)


def _live(run: Run, work: list[str], seed: int) -> None:
    """Carry out operations in one process; some processes are killed meanwhile, and some of these begin anew."""
    from random import Random

    dice, world = Random(f"{seed}/process"), run.world
    for name in work:
        if dice.random() < 0.2:
            world.process.kill_after = world.clock.now + dice.choice((0.02, 0.2, 2.0)) * dice.random()
        try:
            world.trace(f"process {world.process.pid}: {name}")
            _DOES[name](run, dice)
        except Killed:
            world.trace(f"process {world.process.pid}: killed")
            run.kept.clear()
            world.restart()
        world.process.kill_after = inf
