"""Output to pseudo-terminals, and the text that reached them."""

from __future__ import annotations

import os
import pty
import sys
from threading import Thread
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import io

__all__ = ["Terminal", "read_all"]


def read_all(terminal: int) -> str:
    """Read what a terminal showed until its other side was closed."""
    pieces = []
    while True:
        try:
            pieces.append(os.read(terminal, 4096))
        except OSError:  # EIO: nobody writes to it any more
            return b"".join(pieces).decode()


class Terminal:
    """Within the block standard error is a terminal; afterwards ``text`` is all that reached it."""

    def __init__(self, monkeypatch):
        self.text = ""
        self._patch = monkeypatch
        self._parts: list[bytes] = []

    def __enter__(self):
        self.master, slave = pty.openpty()
        self.stderr: io.TextIOWrapper = os.fdopen(slave, "w", encoding="utf-8")
        for name, value in {"TERM": "xterm", "COLUMNS": "200"}.items():
            self._patch.setenv(name, value)
        for name in ("RANK", "PENSTOCK_PROGRESS", "NO_COLOR", "FORCE_COLOR"):
            self._patch.delenv(name, raising=False)
        self._patch.setattr(sys, "stderr", self.stderr)
        self._patch.setattr("penstock.progress._PATIENCE_S", 0.0)
        self._patch.setattr("penstock.progress._REDRAW_S", 0.0)
        self._reader = Thread(target=self._read, daemon=True)
        self._reader.start()
        return self

    def __exit__(self, *_):
        self._patch.undo()
        self.stderr.close()
        self._reader.join()
        self.text = b"".join(self._parts).decode()

    def _read(self):
        while True:
            try:
                part = os.read(self.master, 1 << 16)
            except OSError:  # the last of the other side has gone
                part = b""
            if not part:
                os.close(self.master)
                return
            self._parts.append(part)
