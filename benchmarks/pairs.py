"""``python -m benchmarks.pairs COMMIT``: the same rows at another commit and here, in turn, as ratios.

Ratios of runs that follow one another are what a noisy machine can tell; the medians of two reports are not.
"""

from __future__ import annotations

import argparse
import signal
import subprocess
import sys
import tempfile
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

from benchmarks import conditions
from benchmarks.environments import OURS, ROOT, peer
from benchmarks.objects import empty, fill
from benchmarks.rows import Row, Values, ratio, spread
from benchmarks.runner import once
from benchmarks.server import install, serve

if TYPE_CHECKING:
    from collections.abc import Iterator

    from benchmarks.conditions import Condition, Run
    from benchmarks.objects import Load
    from benchmarks.server import Server

__all__ = ["compared", "main"]

_RAM_DISK = Path("/dev/shm")  # noqa: S108  a folder of our own is made in it


def main(arguments: list[str] | None = None) -> None:
    """Measure and print a table; raises SystemExit with a message where it cannot."""
    names = [each.name for each in conditions.CONDITIONS]
    parser = argparse.ArgumentParser("python -m benchmarks.pairs", description="Penstock beside itself.")
    parser.add_argument("commit", help="what to compare with: a commit, a tag, a branch")
    parser.add_argument("--rounds", type=int, default=5, help="pairs of runs (default %(default)s)")
    parser.add_argument("--only", nargs="+", metavar="NAME", choices=names, help="only these conditions")
    parser.add_argument("--quick", action="store_true", help="few objects: does it run? Numbers mean nothing")
    parser.add_argument("--folder", type=Path, default=_RAM_DISK, help="a RAM disk for the objects (%(default)s)")
    options = parser.parse_args(arguments)
    if options.rounds < 1:
        parser.error("--rounds: at least one")
    if not options.folder.is_dir():
        parser.error(f"--folder: {options.folder} is no directory")
    install()
    loads = conditions.quick(conditions.LOADS) if options.quick else conditions.LOADS
    chosen = [each for each in conditions.CONDITIONS if not options.only or each.name in options.only]
    print(f"here beside {options.commit}: median of {options.rounds} ratios (least - most)", flush=True)
    with _checkout(options.commit) as other, tempfile.TemporaryDirectory(dir=options.folder) as name:
        folder = Path(name)
        with serve(folder) as server:
            for load in loads:
                runs = [*_runs(chosen, load, other)]
                if not runs:
                    continue
                fill(folder, [load])
                for condition, run in runs:
                    then, now = _pair(condition, run, load, (server, folder), (other, options.rounds))
                    told = "   ".join(f"{title} {spread(values)}" for title, values in compared(then, now).items())
                    print(f"{condition.name:22}{run.name:34}{told}", flush=True)
                empty(folder, load)


def _runs(chosen: list[Condition], load: Load, other: Path) -> Iterator[tuple[Condition, Run]]:
    """Yield our own runs over this load that the other checkout has, too."""
    for condition in chosen:
        for run in condition.runs:
            ours = run.requirement == OURS and run.engine == "penstock"
            if condition.load == load.name and ours and peer(run.script, other).exists():
                yield condition, run


def _pair(
    condition: Condition, run: Run, load: Load, served: tuple[Server, Path], against: tuple[Path, int]
) -> tuple[Row, Row]:
    """Run there and here in turn; who is first alternates, too."""
    other, count = against
    rounds: dict[Path, list[dict[str, float]]] = {other: [], ROOT: []}
    for number in range(count):
        for tree in (other, ROOT) if number % 2 == 0 else (ROOT, other):
            rounds[tree].append(once(condition, run, load, served, tree))
    named = {"name": run.name, "script": run.script, "beside": run.beside, "threads": run.threads}
    return Row({**named, "rounds": rounds[other]}), Row({**named, "rounds": rounds[ROOT]})


def compared(then: Row, now: Row) -> dict[str, Values]:
    """Return the ratios of what is measured now to what was then, round by round, by what is measured."""
    found = {"rate x": ratio(now.rate, then.rate), "CPU x": ratio(now.cpu_us, then.cpu_us)}
    return found | ({"computed x": ratio(now.used, then.used)} if all(then.used) else {})


@contextmanager
def _checkout(commit: str) -> Iterator[Path]:
    """Check a commit out into a folder of its own, without a trace in the repository."""
    with tempfile.TemporaryDirectory(prefix="penstock-pairs-") as name:
        archive = Path(name) / "archive.tar"
        git = ["git", "-C", str(ROOT), "archive", "--output", str(archive), commit, "src", "benchmarks/peers"]
        if subprocess.run(git, check=False).returncode:
            message = f"{commit} is not a commit of this repository with src and benchmarks/peers"
            raise SystemExit(message)
        tree = Path(name) / "tree"
        tree.mkdir()
        subprocess.run(["tar", "-xf", str(archive), "-C", str(tree)], check=True)
        yield tree


if __name__ == "__main__":
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))  # so that folders and servers go, as on Ctrl-C
    main()
