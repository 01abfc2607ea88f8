"""Runs engines under conditions: alternating within a round, each in a fresh process."""

from __future__ import annotations

import json
from functools import partial
from typing import TYPE_CHECKING

from benchmarks.environments import OURS, ROOT, answer
from benchmarks.objects import compare, forget, manifest

if TYPE_CHECKING:
    from collections.abc import Iterable
    from pathlib import Path

    from benchmarks.conditions import Condition, Run
    from benchmarks.objects import Load
    from benchmarks.sections import Section
    from benchmarks.server import Server

__all__ = ["measure", "once", "tabulate"]


def measure(condition: Condition, load: Load, served: tuple[Server, Path], rounds: Iterable[int]) -> dict[str, object]:
    """Run a condition's engines ``rounds`` times, in an order that turns by one each round; returns what they said."""
    print(f"\n{condition.name}: {condition.title}", flush=True)
    rows = [
        {"name": run.name, "script": run.script, "threads": run.threads, "beside": run.beside, "rounds": []}
        for run in condition.runs
    ]
    pairs = list(zip(rows, condition.runs, strict=True))
    for number in rounds:
        turn = number % len(pairs)
        for row, run in pairs[turn:] + pairs[:turn]:
            result = once(condition, run, load, served)
            row["rounds"].append(result)
            print(f"  {number + 1}  {run.name:38}{_line(result)}", flush=True)
    described = {name: getattr(condition, name) for name in ("name", "title", "compute_s")}
    return {**described, "load": {"count": load.count, "state": bool(load.layouts)}, "rows": rows}


def tabulate(section: Section, rounds: Iterable[int]) -> dict[str, object]:
    """Run a section's tasks ``rounds`` times in turn; returns what they said, and the columns to show."""
    print(f"\n{section.name}: {section.title}", flush=True)
    rows: list[dict[str, object]] = [{"name": name, "rounds": []} for name, _ in section.tasks]
    for number in rounds:
        for row, (name, task) in zip(rows, section.tasks, strict=True):
            result = answer(
                section.requirements.get(name, OURS), section.script, [json.dumps(task)], f"{section.name}, {name},"
            )
            row["rounds"].append(result)
            told = "   ".join(f"{title} {result[key]:.3g}" for title, key in section.columns)
            print(f"  {number + 1}  {name:38}{told}", flush=True)
    return {"name": section.name, "title": section.title, "columns": section.columns, "rows": rows}


def once(
    condition: Condition, run: Run, load: Load, served: tuple[Server, Path], tree: Path = ROOT
) -> dict[str, float]:
    """Run an engine once, with the Penstock and the peers of the checkout ``tree``; returns what it said."""
    server, folder = served
    task = {
        "endpoint": getattr(server, condition.port),
        "ca": server.ca,
        "manifest": str(manifest(folder, load, min(load.count, run.most))),
        "digests": str(folder / f"{load.name}.json"),
        "batch": condition.batch,
        "threads": run.threads,
        "compute_s": condition.compute_s,
    }
    ask = partial(answer, run.requirement, run.script, [json.dumps(task)], f"{run.name} under {condition.name!r}", tree)
    try:
        result: dict[str, float] = ask()
    except SystemExit as failure:
        if run.requirement == OURS:
            raise
        print(f"{failure}\nonce more:", flush=True)  # others' may be unlucky once: it would cost all that was measured
        forget(folder)
        result = ask()
    if condition.writes:
        compare(folder, load)
    return result


def _line(result: dict[str, float]) -> str:
    rate, cpu_us = result["objects"] / result["wall_s"], result["cpu_s"] / result["objects"] * 1e6
    peak_mib = int(result["peak_rss"]) >> 20
    return f"{result['wall_s']:7.2f} s {rate:9,.0f}/s {cpu_us:11,.0f} us CPU each {peak_mib:6,} MiB"
