"""Programs of several processes: run to their end, or ended with all they started."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from contextlib import suppress

__all__ = ["program", "torchrun"]


def program(*command: object, limit_s: float = 90, **environment: str) -> subprocess.CompletedProcess[str]:
    """Run a Python program until all its processes have ended; TimeoutExpired, and none left, where they hang."""
    words = [sys.executable, *map(str, command)]
    pipes = {"stdout": subprocess.PIPE, "stderr": subprocess.STDOUT, "text": True}
    variables = os.environ | {"OMP_NUM_THREADS": "1"} | environment
    with subprocess.Popen(words, **pipes, env=variables, start_new_session=True) as run:
        try:
            output, _ = run.communicate(timeout=limit_s)
        finally:
            _end(run)
    return subprocess.CompletedProcess(words, run.returncode, output)


def _end(run: subprocess.Popen[str]) -> None:
    """End what still runs: torchrun by a signal that it passes on, for its ranks have sessions of their own."""
    if run.poll() is None:
        run.terminate()
        with suppress(subprocess.TimeoutExpired):
            run.wait(10)
    with suppress(ProcessLookupError):
        os.killpg(run.pid, signal.SIGKILL)


def torchrun(ranks: int, *command: object, limit_s: float = 90, **environment: str) -> subprocess.CompletedProcess[str]:
    """Run a program under torchrun on this machine; it ends with all its ranks when one of them fails."""
    launcher = ("-m", "torch.distributed.run", "--standalone", f"--nproc-per-node={ranks}")
    return program(*launcher, *command, limit_s=limit_s, **environment)
