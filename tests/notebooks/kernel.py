"""A real kernel of a notebook, driven as a front end does: cells, interrupts, outputs that are replaced in place."""

from __future__ import annotations

import os
import time
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import psutil
from jupyter_client.manager import KernelManager

__all__ = ["Cell", "Kernel"]

SOURCE = Path(__file__).parents[2] / "src"


@dataclass
class Cell:
    """What a cell has written and shown.

    `error` is the name of its error, "" without one; `outputs` has each output as a front end shows it at last, by its
    name; `updates` counts replacements; `ended_s` are the seconds from the interrupt to its end.
    """

    text: str = ""
    warnings: str = ""
    error: str = ""
    outputs: dict[str, dict[str, str]] = field(default_factory=dict)
    updates: int = 0
    ended_s: float = 0.0

    @property
    def shown(self) -> list[dict[str, str]]:
        return [*self.outputs.values()]

    def take(self, message: dict[str, Any]) -> None:
        content = message["content"]
        match message["msg_type"]:
            case "stream" if content["name"] == "stdout":
                self.text += content["text"]
            case "stream":
                self.warnings += content["text"]
            case "error":
                self.error = content["ename"]
            case "display_data" | "execute_result":
                self.outputs[content.get("transient", {}).get("display_id", str(len(self.outputs)))] = content["data"]
            case "update_display_data":
                self.outputs[content["transient"]["display_id"]] = content["data"]
                self.updates += 1


class Kernel:
    """A kernel in a process of its own; `run` cells, and `close` it."""

    def __init__(self, folder: Path) -> None:
        self._manager = KernelManager(kernel_name="python3")
        variables = {"PYTHONPATH": str(SOURCE), "IPYTHONDIR": str(folder), "MPLBACKEND": "Agg"}
        self._manager.start_kernel(env=os.environ | variables, cwd=str(folder))
        self._client = self._manager.client()
        self._client.start_channels()
        self._client.wait_for_ready(timeout=60)

    def run(self, code: str, *, interrupt_at: str = "", timeout_s: float = 60.0) -> Cell:
        """Run a cell to its end; interrupt it, as the button of a notebook does, once it has written a text."""
        cell, interrupted_s = Cell(), 0.0

        def take(message: dict[str, Any]) -> None:
            nonlocal interrupted_s
            cell.take(message)
            if interrupt_at and interrupt_at in cell.text and not interrupted_s:
                self._manager.interrupt_kernel()
                interrupted_s = time.monotonic()

        self._client.execute_interactive(code, timeout=timeout_s, output_hook=take)
        cell.ended_s = time.monotonic() - interrupted_s if interrupted_s else 0.0
        return cell

    def children(self) -> list[psutil.Process]:
        """Return the processes that cells have started, and theirs."""
        return psutil.Process(self._manager.provisioner.pid).children(recursive=True)

    def close(self) -> None:
        """Ask the kernel to end, as a front end does; kill it if it does not. Closing again does nothing."""
        if self._manager.has_kernel:
            self._client.stop_channels()
            self._manager.shutdown_kernel()
