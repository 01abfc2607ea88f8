"""``python -m benchmarks``: serve, measure, report. What is measured stands in ``conditions.py``."""

from __future__ import annotations

import argparse
import shutil
import signal
import sys
import tempfile
from dataclasses import replace
from pathlib import Path

from benchmarks import conditions, machine, report
from benchmarks.environments import python
from benchmarks.objects import Load, empty, fill
from benchmarks.runner import measure, tabulate
from benchmarks.sections import SECTIONS, Section
from benchmarks.server import install, serve

_HERE = Path(__file__).parent
_RAM_DISK = Path("/dev/shm")  # noqa: S108  a folder of our own is made in it
_ROUNDS = 5


def main(arguments: list[str] | None = None) -> None:
    """Run what the arguments ask for; raises SystemExit with a message when it cannot."""
    options = _options(arguments)
    chosen, sections = _chosen(options.only)
    loads = {load.name: load for load in (conditions.quick(conditions.LOADS) if options.quick else conditions.LOADS)}
    if chosen:
        install()
    requirements = sorted({run.requirement for condition in chosen for run in condition.runs} | {conditions.OURS})
    for requirement in requirements:
        python(requirement)
    about = {"rounds": options.rounds, "quick": options.quick}
    results = machine.describe(requirements, served=bool(chosen)) | about
    output = options.output or (_HERE / "results" if options.quick or options.only else _HERE)
    results["sections"] = [tabulate(section, range(min(options.rounds, section.rounds))) for section in sections]
    results["conditions"] = _conditions(chosen, loads, options) if chosen else []
    output.mkdir(parents=True, exist_ok=True)
    (output / "results.json").write_text(report.encode(results))
    (output / "RESULTS.md").write_text(report.render(results))
    print(f"\n{output / 'RESULTS.md'}", flush=True)


def _options(arguments: list[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser("python -m benchmarks", description="Penstock beside its alternatives.")
    parser.add_argument("--rounds", type=int, help=f"how often each engine runs (default {_ROUNDS}; --quick: 1)")
    parser.add_argument(
        "--quick", action="store_true", help="few objects, one round: does it run? Numbers mean nothing"
    )
    parser.add_argument("--only", nargs="+", metavar="NAME", help="only these conditions, engines, sections")
    parser.add_argument("--folder", type=Path, default=_RAM_DISK, help="a RAM disk for the objects (%(default)s)")
    parser.add_argument(
        "--output", type=Path, help="where results go (default: benchmarks/, or benchmarks/results/ for a part)"
    )
    options = parser.parse_args(arguments)
    if options.rounds is None:
        options.rounds = 1 if options.quick else _ROUNDS
    if options.rounds < 1:
        parser.error("--rounds: at least one")
    return options


def _conditions(chosen: list[conditions.Condition], loads: dict[str, Load], options: argparse.Namespace) -> list:
    """Measure them; a load is there from the first condition that needs it to the last."""
    needed = [loads[condition.load] for condition in chosen]
    results = []
    with tempfile.TemporaryDirectory(prefix="penstock-bench-", dir=_roomy(options.folder, needed)) as name:
        folder = Path(name)
        with serve(folder) as server:
            for place, (condition, load) in enumerate(zip(chosen, needed, strict=True)):
                if load not in needed[:place]:
                    print(f"\nfilling {folder} with {load.name}", flush=True)
                    fill(folder, [load])
                rounds = range(min(options.rounds, condition.rounds))
                results.append(measure(condition, load, (server, folder), rounds))
                if load not in needed[place + 1 :]:
                    empty(folder, load)
    return results


def _chosen(only: list[str] | None) -> tuple[list[conditions.Condition], list[Section]]:
    """Return the conditions named, with the engines named, all where none of a kind is; and the sections named.

    All sections where nothing is named; no conditions where only sections are.
    """
    everything = conditions.CONDITIONS
    names, wanted = {each.name for each in everything}, set(only or ())
    engines = {run.engine for each in everything for run in each.runs}
    alone = {each.name for each in SECTIONS}
    if unknown := wanted - names - engines - alone:
        known = {"conditions": names, "engines": engines, "sections": alone}
        told = "; ".join(f"{kind} are {', '.join(sorted(each))}" for kind, each in known.items())
        message = f"--only {' '.join(sorted(unknown))}: {told}"
        raise SystemExit(message)
    sections = [each for each in SECTIONS if each.name in wanted or not wanted]
    if wanted and wanted <= alone:
        return [], sections
    taken = [each for each in everything if each.name in (wanted & names or names)]
    keep = wanted & engines or engines
    taken = [replace(each, runs=tuple(run for run in each.runs if run.engine in keep)) for each in taken]
    return [each for each in taken if each.runs], sections


def _roomy(folder: Path, needed: list[Load]) -> Path:
    """Return the folder if the loads of each condition fit.

    Raises:
        SystemExit: They do not, or it is not there.
    """
    most = max(_bytes(needed, place) for place in range(len(needed)))
    free = shutil.disk_usage(folder).free if folder.is_dir() else 0
    if free < most * 1.1:
        message = f"{folder} has {free >> 20:,} MiB free and {most >> 20:,} are needed: name another by --folder"
        raise SystemExit(message)
    return folder


def _bytes(needed: list[Load], place: int) -> int:
    """Return what lies in the folder during a condition: loads that it or one after it needs, and what is written."""
    there = {load for load in needed[: place + 1] if load in needed[place:]}
    return needed[place].size + sum(load.size * max(load.count, len(load.layouts)) for load in there)


if __name__ == "__main__":
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))  # so that folders and servers go, as on Ctrl-C
    main()
