"""What pyarrow was just told of files: it looks at one file five times, where one look does.

``pyarrow.fs.FSSpecHandler`` asks ``info`` once, and then ``isfile`` before each ``open``, of which there are two: one
for the schema, one for the data. ``open`` says itself that there is no file, so ``isfile`` need not ask; and both files
are held to the version of ``info``, as the offsets are that pyarrow has read from its footer. An object that was
replaced meanwhile is ``Changed``, never read as if it were the old one. Nothing of this concerns other callers.
"""

from __future__ import annotations

import sys
from time import monotonic
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from penstock.values import ObjectMeta

__all__ = ["STREAM", "Looks", "asked_by_pyarrow"]

STREAM = "open_input_stream"  # pyarrow's method that opens what is read from front to back
_OPENS = 2
_LASTS_S = 5.0
_MOST = 256


def asked_by_pyarrow(depth: int) -> str:
    """Return which function of pyarrow's handler is ``depth`` calls above the caller; empty where none of it is."""
    frame = sys._getframe(depth + 1)  # noqa: SLF001  CPython has it
    return frame.f_code.co_name if frame.f_globals.get("__name__") == "pyarrow.fs" else ""


class Looks:
    """Descriptions of objects, each for two files that are opened within five seconds."""

    def __init__(self) -> None:
        """Hold none yet."""
        self._looks: dict[str, tuple[ObjectMeta, int, float]] = {}

    def keep(self, name: str, meta: ObjectMeta) -> None:
        """Take note of what a look has shown."""
        self._looks[name] = meta, _OPENS, monotonic() + _LASTS_S
        while len(self._looks) > _MOST:
            self._looks.pop(next(iter(self._looks)), None)

    def take(self, name: str) -> ObjectMeta | None:
        """Return what a file that is opened now is held to; None where it has to be looked at."""
        meta, left, until = self._looks.pop(name, (None, 0, 0.0))
        if meta is None or monotonic() > until:
            return None
        if left > 1:
            self._looks[name] = meta, left - 1, until
        return meta

    def forget(self, name: str | None = None) -> None:
        """Forget what was seen of a file that is written, or of all."""
        if name is None:
            self._looks.clear()
        else:
            self._looks.pop(name, None)
