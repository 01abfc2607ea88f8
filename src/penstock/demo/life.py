"""One life of the training: a process that is started, listened to, and killed for good when that is over."""

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
    from collections.abc import Generator

__all__ = ["live"]


def live(url: str, epochs: int) -> Generator[dict[str, Any]]:
    """Train in a fresh interpreter; yields what it reports, as it happens. Close the generator to SIGKILL it.

    The process and its DataLoader workers are a process group: they die together, as they would with their machine,
    and a Ctrl-C at the terminal reaches them through us.

    Raises:
        PenstockError: It ended badly; its own words are on standard error.

    """
    command = [sys.executable, "-P", "-m", "penstock.demo.train", url, str(epochs)]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True, process_group=0) as process:  # noqa: S603  ours
        try:
            for line in process.stdout or ():
                yield json.loads(line)
            if status := process.wait():
                raise PenstockError(f"the training process ended with status {status}: see what it says above")
        finally:
            if process.returncode is None:  # until it is waited for, its id cannot be another's
                with suppress(ProcessLookupError):
                    os.killpg(process.pid, signal.SIGKILL)
