"""The benchmark with its peers forked from a process that has imported torch once: interpreters take most of its time.

A peer finds what an interpreter of its own would give it (tests/edges/nursery.py). That peers start as interpreters too
is seen by the tests that start one themselves.
"""

from __future__ import annotations

import json
import subprocess
import sys
from contextlib import contextmanager, redirect_stdout
from types import SimpleNamespace
from typing import TYPE_CHECKING
from unittest.mock import patch

from benchmarks.__main__ import main
from tests.edges import launch

if TYPE_CHECKING:
    from collections.abc import Iterator

__all__ = ["forking", "run"]


@contextmanager
def forking() -> Iterator[None]:
    """Have this process's peers forked; for one thread, as what forks them takes one order at a time."""
    stand_in = SimpleNamespace(run=run, TimeoutExpired=subprocess.TimeoutExpired)
    with patch("benchmarks.environments.subprocess", stand_in):
        yield


def run(command: list[str], *, check: bool, env: dict[str, str], **others) -> subprocess.CompletedProcess[str]:
    """Do as ``subprocess.run`` does; for a peer, both outputs are the same: all that it printed."""
    interpreter, script, *_ = command
    if interpreter != sys.executable or not script.endswith(".py"):
        return subprocess.run(command, check=check, env=env, **others)
    done = launch.run(command[1:], [env], limit_s=others["timeout"])
    return subprocess.CompletedProcess(command, done.returncode, done.stdout, done.stdout)


def _serve() -> None:
    """Run the benchmark with each line's arguments (JSON) and print how it ended: null, or its last words."""
    with forking():
        for line in sys.stdin:
            words = None
            try:
                with redirect_stdout(sys.stderr):
                    main(json.loads(line))
            except SystemExit as ended:
                words = str(ended)
            print(json.dumps(words), flush=True)


if __name__ == "__main__":
    _serve()
