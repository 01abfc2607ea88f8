"""Report of a command on many objects: an optional line for each, a summary, one exit code."""

from __future__ import annotations

import json
import sys
from collections import Counter
from time import monotonic
from typing import TYPE_CHECKING, Self

from penstock.cli.output import code_of, counted, harmless, readable, write
from penstock.errors import printable

if TYPE_CHECKING:
    from penstock.errors import PenstockError
    from penstock.jobs.outcome import Outcome

__all__ = ["Report"]

# Errors and notes to print; for more of them, a last line is enough.
_SHOWN = 100
# 6 ended the command. 4 is last: it is used only if a retry can fix every failure.
_WORST_FIRST = (5, 6, 3, 2, 1, 4)


class Report:
    """Counts of objects by status, with the first 100 errors and notes.

    Ctrl-C within a ``with`` block prints the errors, the notes and the sums so far.
    """

    def __init__(self, verb: str, *, as_json: bool = False) -> None:
        """Create a report of objects with the status ``verb``, such as "copied"."""
        self._verb = verb
        self._as_json = as_json
        self._counts: Counter[str] = Counter()
        self._codes: set[int] = set()
        self._remarks: list[str] = []
        self._size_bytes = 0
        self._began = monotonic()

    def __enter__(self) -> Self:
        """Return itself."""
        return self

    def __exit__(self, kind: type[BaseException] | None, error: object, trace: object) -> None:
        """Print the sums so far after Ctrl-C, if any object was counted."""
        if kind is KeyboardInterrupt and self._counts:
            self._tell("interrupted: ")

    def add(self, record: dict[str, object], size_bytes: int, status: str, note: str = "") -> None:
        """Count one object; with ``--json``, print ``record`` and the status."""
        self._counts[status] += 1
        if status == self._verb:
            self._size_bytes += size_bytes
        if note:
            self._remark(f"left out: {note} [{next(filter(None, record.values()), '')}]")
        self._line({**record, "size": size_bytes, "status": status}, {"note": note} if note else {})

    def take(self, outcome: Outcome) -> None:
        """Count the outcome of one object that was copied, moved or deleted; print what was planned."""
        record: dict[str, object] = {"source": outcome.source or None, "dest": outcome.dest or None}
        if outcome.error is not None:
            self.fail(record, outcome.size, outcome.error)
        else:
            self.add(record, outcome.size, outcome.status, outcome.note)
            if outcome.status == "planned" and not self._as_json:
                words = f"{outcome.source} -> {outcome.dest}" if outcome.source else f"delete {outcome.dest}"
                write(harmless(words) + "\n")

    def count(self, status: str, number: int) -> None:
        """Add ``number`` objects to a status, without a line for each."""
        if number:
            self._counts[status] += number

    def fail(self, record: dict[str, object], size_bytes: int, error: PenstockError) -> None:
        """Count a failed object."""
        self._counts["failed"] += 1
        self._codes.add(code_of(error))
        self._remark(str(error))
        self._line({**record, "size": size_bytes, "status": "failed"}, {"error": str(error)})

    def end(self) -> None:
        """Print the errors, the notes and the sums on standard error; after a failure, exit with the worst code."""
        self._tell()
        for code in _WORST_FIRST:
            if code in self._codes:
                raise SystemExit(code)

    def _tell(self, before: str = "") -> None:
        for remark in self._remarks:
            print(f"penstock: {remark}", file=sys.stderr)
        if not self._as_json:
            print(before + self._sums(), file=sys.stderr)

    def _line(self, record: dict[str, object], more: dict[str, object]) -> None:
        if self._as_json:
            write(json.dumps(record | more) + "\n")

    def _sums(self) -> str:
        done = self._counts[self._verb]
        elapsed_s = monotonic() - self._began
        rate = f" in {elapsed_s:.1f} s, {readable(int(self._size_bytes / elapsed_s))}/s"
        words = [f"{self._verb} {counted(done, 'object')}, {readable(self._size_bytes)}"]
        words[0] += rate if self._verb in ("copied", "moved") else ""
        words += [f"{count:,} {status}" for status, count in self._counts.items() if status != self._verb]
        return "; ".join(words)

    def _remark(self, text: str) -> None:
        if len(self._remarks) < _SHOWN:
            # Keys must not control the terminal.
            self._remarks.append(printable(text))
        elif len(self._remarks) == _SHOWN:
            self._remarks.append("and more of them")
