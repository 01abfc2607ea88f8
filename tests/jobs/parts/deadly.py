"""An operation for tests: each part writes a file, and chosen parts end their worker."""

import os
import signal
import sys
import time
from dataclasses import dataclass, field
from pathlib import Path
from typing import ClassVar

from penstock.jobs.parts.operation import Operation, Planned
from penstock.options import StoreOptions


@dataclass(frozen=True)
class Deadly(Operation):
    """Parts that write their number, and wait; those in ``deadly`` kill their process."""

    name: ClassVar[str] = "deadly"
    verb: ClassVar[str] = "testing"
    counts: ClassVar[tuple[str, ...]] = ("written", "failed")

    folder: str
    parts: int = 5
    deadly: tuple[int, ...] = ()
    pause_s: float = 0.0
    store: StoreOptions | str = field(default_factory=StoreOptions)

    urls = ()

    @property
    def arguments(self):
        return {"folder": self.folder}

    def planned(self):
        return Planned([(number, 1, 10) for number in range(self.parts)], self.parts, 10 * self.parts)

    def work(self, part, record, means):
        number = part.piece[0]
        if number in self.deadly:
            with Path(f"{self.folder}/deaths").open("a") as file:
                file.write(f"{number}\n")
            os.kill(os.getpid(), signal.SIGKILL)
        with Path(f"{self.folder}/began").open("a") as file:
            file.write(f"{os.getpid()}\n")
        time.sleep(self.pause_s)
        Path(f"{self.folder}/{number}").write_text(
            f"{'torch' in sys.modules} {os.environ.get('RAY_NODE_ID', os.getppid())}"
        )
        record.counts = {"written": 1}
        means.count(1, 10)

    def finish(self, plan, _records):
        Path(f"{self.folder}/finished").write_text(str(len(plan.parts)))


__all__ = ["Deadly"]
