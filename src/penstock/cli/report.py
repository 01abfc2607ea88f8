"""What a command did with many objects: a line for each if asked, a summary, one exit code."""

from __future__ import annotations

import json
import sys
from collections import Counter
from time import monotonic
from typing import TYPE_CHECKING, Self

from penstock.cli.exits import CODES, write
from penstock.cli.text import readable
from penstock.errors import printable

if TYPE_CHECKING:
    from penstock.bulk.outcome import Outcome
    from penstock.errors import PenstockError

__all__ = ["Report"]

_SHOWN = 100  # errors and notes; beyond, their number says enough
_WORST_FIRST = (5, 6, 3, 2, 1, 4)  # 6 ended it all; 4 last: it is only said where trying again can mend everything


class Report:
    """Counts what became of objects and remembers the first hundred errors and notes.

    Ctrl-C within a ``with`` block prints the errors, the notes and the sums so far.
    """

    def __init__(self, verb: str, *, as_json: bool = False) -> None:
        """Report what was ``verb``-ed, such as "copied"."""
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
        """Print what was done so far, after Ctrl-C; nothing, where that is nothing."""
        if kind is KeyboardInterrupt and self._counts:
            self._tell("interrupted: ")

    def add(self, record: dict[str, object], size_bytes: int, status: str, note: str = "") -> None:
        """Count one object; with ``--json``, print what ``record`` and the status say of it."""
        self._counts[status] += 1
        if status == self._verb:
            self._size_bytes += size_bytes
        if note:
            self._remark(f"left out: {note} [{next(filter(None, record.values()), '')}]")
        self._line({**record, "size": size_bytes, "status": status}, {"note": note} if note else {})

    def take(self, outcome: Outcome) -> None:
        """Count what came of one object that was copied, moved or deleted."""
        record: dict[str, object] = {"source": outcome.source or None, "dest": outcome.dest or None}
        if outcome.error is not None:
            self.fail(record, outcome.size, outcome.error)
        else:
            self.add(record, outcome.size, outcome.status, outcome.note)

    def count(self, status: str, number: int) -> None:
        """Count objects of which nothing more is said."""
        if number:
            self._counts[status] += number

    def fail(self, record: dict[str, object], size_bytes: int, error: PenstockError) -> None:
        """Count one that failed."""
        self._counts["failed"] += 1
        self._codes.add(next((code for kind, code in CODES.items() if isinstance(error, kind)), 1))
        self._remark(str(error))
        self._line({**record, "size": size_bytes, "status": "failed"}, {"error": str(error)})

    def end(self) -> None:
        """Tell the errors, the notes and the sums on standard error; where something failed, exit with its code."""
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
        words = [f"{self._verb} {done:,} object{'s' * (done != 1)}, {readable(self._size_bytes)}"]
        words[0] += rate if self._verb in ("copied", "moved") else ""
        words += [f"{count:,} {status}" for status, count in self._counts.items() if status != self._verb]
        return "; ".join(words)

    def _remark(self, text: str) -> None:
        if len(self._remarks) < _SHOWN:  # keys must not steer a terminal
            self._remarks.append(printable(text))
        elif len(self._remarks) == _SHOWN:
            self._remarks.append("and more of them")
