"""One process of the training: started, listened to, and killed when asked."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from contextlib import suppress
from typing import TYPE_CHECKING, Any

from penstock.errors import PenstockError

if TYPE_CHECKING:
    from collections.abc import Callable, Generator

__all__ = ["live"]


def live(url: str, epochs: int, doomed: Callable[[], bool]) -> Generator[dict[str, Any]]:
    """Train in a fresh interpreter; yields its reports as they come. SIGKILL once ``doomed()``, or on ``close``.

    After the kill, the reports that were still on their way follow: a checkpoint may hold them.
    The process leads a process group, so that a Ctrl-C at the terminal reaches it through us.

    Raises:
        PenstockError: It ended badly; its own words are on standard error.

    """
    command = [sys.executable, "-P", "-m", "penstock.demo.train", url, str(epochs)]
    killed = False
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True, process_group=0) as process:  # noqa: S603  ours
        try:
            for line in process.stdout or ():
                yield json.loads(line)
                if not killed and doomed():
                    os.killpg(process.pid, signal.SIGKILL)
                    killed = True
            if (status := process.wait()) and not killed:
                raise PenstockError(f"the training process ended with status {status}: see what it says above")
        finally:
            if process.returncode is None:  # until it is waited for, its id cannot be another's
                with suppress(ProcessLookupError):
                    os.killpg(process.pid, signal.SIGKILL)
