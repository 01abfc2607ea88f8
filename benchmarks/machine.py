"""What a table must say about where its numbers come from: machine, date, commit, versions, command."""

from __future__ import annotations

import argparse
import os
import platform
import shlex
import subprocess
import sys
from datetime import UTC, datetime
from pathlib import Path

from benchmarks.environments import ROOT, versions
from benchmarks.server import nginx_version

__all__ = ["describe"]


def describe(requirements: list[str], *, served: bool) -> dict[str, object]:
    """Return it as JSON has it; nginx has a version where it served."""
    nginx = {"nginx": nginx_version()} if served else {}
    return {
        "command": shlex.join(["python", "-m", "benchmarks", *_measured(sys.argv[1:])]),
        "date": datetime.now(UTC).strftime("%Y-%m-%d %H:%M UTC"),
        "commit": _commit(),
        "machine": {
            "cpu": _field("/proc/cpuinfo", "model name"),
            "cores": len(os.sched_getaffinity(0)),
            "memory_gib": round(int(_field("/proc/meminfo", "MemTotal").split()[0]) / (1 << 20), 1),
            "system": f"{platform.system()} {platform.release()}, {platform.freedesktop_os_release()['PRETTY_NAME']}",
            "load": os.getloadavg()[0],
        },
        "versions": {**nginx, "libcurl": _libcurl(), **_merged(requirements)},
    }


def _measured(arguments: list[str]) -> list[str]:
    """Return the arguments without folders, which do not change the measurement and may be paths of one machine."""
    parser = argparse.ArgumentParser(add_help=False)
    for name in ("--output", "--folder"):
        parser.add_argument(name)
    return parser.parse_known_args(arguments)[1]


def _merged(requirements: list[str]) -> dict[str, str]:
    merged: dict[str, str] = {}
    for requirement in requirements:
        merged = versions(requirement) | merged
    return merged


def _libcurl() -> str:
    from penstock.engine.transport.libcurl import version

    return version()


def _commit() -> str:
    if not (ROOT / ".git").exists():
        return "unknown"
    head = subprocess.run(
        ["git", "rev-parse", "--short", "HEAD"], cwd=ROOT, capture_output=True, text=True, check=False
    )
    if head.returncode:
        return "none yet"
    changed = subprocess.run(
        ["git", "status", "--porcelain", "src"], cwd=ROOT, capture_output=True, text=True, check=False
    )
    return head.stdout.strip() + (" and changes since in src/" if changed.stdout else "")


def _field(path: str, name: str) -> str:
    for line in Path(path).read_text().splitlines():
        key, _, value = line.partition(":")
        if key.strip() == name:
            return value.strip()
    return "unknown"
