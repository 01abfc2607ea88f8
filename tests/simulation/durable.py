"""Operations that a process may die in: checkpoints and jobs; afterwards the old or the new is there, never half."""

from __future__ import annotations

from dataclasses import replace
from functools import partial
from math import inf
from random import Random
from typing import TYPE_CHECKING, Any

import torch

import penstock as ps
from penstock.errors import Conflict, NotFound
from tests.simulation.collectives import Group, simulated
from tests.simulation.processes import Crowd, Killed
from tests.simulation.scenario import LIES, Run, Wrong, unhurried, watched

if TYPE_CHECKING:
    from collections.abc import Callable

_LIVES = 12


def survives(run: Run, dice: Random, do: Callable[[], Any]) -> tuple[bool, Any]:
    """Do something in a process that may be killed meanwhile; return whether it was not, and the result."""
    if dice.random() < 0.5:
        run.world.kill_after = run.world.clock.now + dice.choice((0.05, 0.3, 2.0)) * dice.random()
    try:
        return True, do()
    except Killed:
        run.world.trace("killed")
        run.kept.clear()
        return False, None
    finally:
        run.world.kill_after = float("inf")
        if not run.world.process.alive:
            run.world.restart()


def _state(number: int, size: int) -> dict[str, Any]:
    return {"number": number, "x": torch.full((size,), float(number)), "y": [torch.arange(number % 7), str(number)]}


def _number(state: Any) -> int:
    """Return the number that a restored state was made of; refuse a mixture."""
    number = state["number"]
    fine = bool((state["x"] == float(number)).all()) and torch.equal(state["y"][0], torch.arange(number % 7))
    if not fine or state["y"][1] != str(number):
        raise Wrong(f"a restored state is a mixture: {state}")
    return int(number)


def checkpoint(run: Run, dice: Random) -> None:
    """Save a step in a process that may die; look which one is the latest, and restore it."""
    manager = ps.CheckpointManager(run.url("run/"), keep_last=dice.choice((None, 2)), store=run.world.options)
    run.step += 1
    step, size = run.step, dice.choice((1, 1000, 20_000))
    done = False
    with watched(run) as seen:
        run.saved[step] = "begun"
        done, _ = survives(run, dice, lambda: manager.save(step, _state(step, size)))
    if done and seen.error is None:
        run.saved[step] = "saved"
    if (
        seen.error is not None
        and isinstance(seen.error, (Conflict, NotFound))
        and not seen.world.store.happened & {*LIES}
    ):
        raise Wrong(f"a step of our own cannot be saved: {seen.error!r}") from seen.error
    with watched(run) as seen:
        manager = ps.CheckpointManager(run.url("run/"), store=run.world.options)
        latest = manager.latest()
        known = max((each for each, how in run.saved.items() if how == "saved"), default=None)
        if known is not None and (latest is None or latest < known):
            raise Wrong(f"the latest step is {latest}, and step {known} was saved")
        if latest is not None:
            if latest not in run.saved:
                raise Wrong(f"step {latest} was never saved")
            number = _number(manager.restore(latest))
            if number != latest:
                raise Wrong(f"step {latest} restores the state of step {number}")
            run.saved[latest] = "saved"
    if isinstance(seen.error, (Conflict, NotFound)) and not seen.world.store.happened & {*LIES}:
        raise Wrong(f"a saved step cannot be restored: {seen.error!r}") from seen.error


def ranks(run: Run, dice: Random) -> None:
    """Save steps of two or three ranks together, of which one may be killed; restore the latest, by any number."""
    run.step += 1
    step, saved_by = run.step, dice.randint(2, 3)
    ended: list[int] = []
    run.saved_by_ranks[step] = "begun"
    own = dice.choice((1, 1000, 9000))

    def state(rank: int, number: int) -> dict[str, Any]:
        return {"all": torch.full((50,), float(number)), f"of {rank}": torch.full((own,), float(number)), "n": number}

    def save(group: Group, rank: int) -> None:
        group.join(rank)
        run.world.process.kill_after = kills.get(rank, inf)
        _across(run, group).save(step, state(rank, step))
        ended.append(rank)

    kills = {dice.randrange(saved_by): run.world.clock.now + dice.random() * 2.0} if dice.random() < 0.5 else {}
    _together(run, dice, saved_by, save, broken=bool(kills))
    if len(ended) == saved_by:
        run.saved_by_ranks[step] = "saved"
    with watched(run) as seen:
        latest = ps.CheckpointManager(run.url("ranks/"), store=run.world.options).latest()
        known = max((each for each, how in run.saved_by_ranks.items() if how == "saved"), default=None)
        if known is not None and (latest is None or latest < known):
            raise Wrong(f"the latest step of ranks is {latest}, and step {known} was saved")
    if seen.error is not None or latest is None:
        return

    def restore(group: Group, rank: int) -> None:
        group.join(rank)
        into = {"all": torch.zeros(50), "n": -1}
        _across(run, group).restore(latest, into=into)
        if into["n"] != latest or not bool((into["all"] == float(latest)).all()):
            raise Wrong(f"rank {rank} restored {into} of step {latest}")

    _together(run, dice, dice.randint(1, 3), restore, broken=False)


def _across(run: Run, group: Any) -> ps.CheckpointManager:
    return ps.CheckpointManager(run.url("ranks/"), keep_last=2, store=run.world.options).across(group)


def _together(run: Run, dice: Random, size: int, do: Callable[[Group, int], None], *, broken: bool) -> None:
    """Do something on all ranks of a new group; errors of the store, and of lost ranks, are honest."""
    group = Group(run.world, size)
    its = replace(run, crowded=True)
    run.world.store.happened.clear()

    def live(rank: int) -> None:
        with watched(its) as seen:
            try:
                do(group, rank)
            except RuntimeError as error:
                if not broken:
                    raise Wrong(f"rank {rank} failed, and none was lost: {error!r}") from error
        if isinstance(seen.error, (Conflict, NotFound)) and not seen.world.store.happened & {*LIES}:
            raise Wrong(f"a step of ranks failed: {seen.error!r}") from seen.error

    with simulated():
        Crowd(run.world, dice).run([partial(live, rank) for rank in range(size)])


def job(run: Run, dice: Random) -> None:
    """Copy a tree as a job, by one or several processes that die, until one ends: all of it is there."""
    run.jobs += 1
    source, dest, folder = (f"jobs/{run.jobs}/{name}/" for name in ("from", "to", "job"))
    store, names = run.world.store, [f"{number:02d}" for number in range(dice.randint(1, 7))]
    for name in names:
        store.put(source + name, run.content(source + name, dice) + b"!")
    strays = [dest + "stray"] if dice.random() < 0.5 else []
    for key in strays:
        store.put(key, b"stray")
    options: dict[str, Any] = {"part_objects": dice.choice((1, 2, 5)), "job": run.url(folder), "progress": False}
    if strays and dice.random() < 0.5:
        options["delete"] = True

    def check() -> None:
        for name in names:
            there = store.objects.get(dest + name)
            if there is None or there.data != store.objects[source + name].data:
                raise Wrong(f"the job has ended, and {dest + name} is {'missing' if there is None else 'another'}")
        if options.get("delete") and any(key in store.objects for key in strays):
            raise Wrong("the job has ended, and what it was to delete is there")

    def sync() -> None:
        ps.sync(run.url(source), run.url(dest), store=run.world.options, **options)

    if dice.random() < 0.5:
        _carry(run, dice, sync, check)
        return
    run.world.store.happened.clear()
    carriers = [(replace(run, crowded=True), Random(dice.getrandbits(32))) for _ in range(dice.randint(2, 3))]
    Crowd(run.world, dice).run([partial(_carry, *each, sync, check) for each in carriers])


def _carry(run: Run, dice: Random, do: Callable[[], None], check: Callable[[], None]) -> None:
    """Work on a job, in one process after another, until it ends; then require its result."""
    ended, lives, error = False, 0, None
    while not ended and lives < _LIVES:
        lives += 1
        with unhurried(run) as seen:
            ended, _ = survives(run, dice, do)
        error = seen.error
        if isinstance(error, (Conflict, NotFound)) and not seen.world.store.happened & {*LIES}:
            raise Wrong(f"a job of nobody else's failed: {error!r}") from error
    if ended and error is None:
        check()
