"""Output of commands: lines for people and programs, reports on many objects, pages in files, and exit codes."""

from __future__ import annotations

import atexit
import logging
import os
import shutil
import sys
from collections import Counter
from contextlib import contextmanager, redirect_stdout, suppress
from datetime import UTC, datetime
from json import dumps
from math import isfinite
from pathlib import Path
from time import monotonic
from typing import TYPE_CHECKING, Self
from uuid import uuid4

from penstock.display import counted
from penstock.errors import Damaged, Denied, NoSpace, PenstockError, Transient, Unusable, printable, worse_of

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from penstock.jobs.trees.outcome import Outcome

MEANINGS = {
    0: "done",
    1: "nothing found, or another failure",
    2: "wrong usage or settings",
    3: "denied",
    4: "try later",
    5: "damaged data",
    6: "no space left",
    130: "interrupted",
    141: "the output's reader has gone",
}
CODES: dict[type[PenstockError], int] = {Unusable: 2, Denied: 3, Transient: 4, Damaged: 5, NoSpace: 6}
INTERRUPTED = 130
# 130 and 141 as in a shell after a signal: 128 + the number of the signal.
_OTHER, _PIPE_CLOSED = 1, 141
# Errors and notes to print; for more of them, a last line is enough.
_SHOWN = 100


@contextmanager
def exit_on_error() -> Iterator[None]:
    """Print errors of Penstock in one line on standard error and exit with their code.

    ``PENSTOCK_DEBUG=1`` shows the traceback.
    """
    try:
        yield
    except KeyboardInterrupt:
        raise SystemExit(INTERRUPTED) from None
    except SystemExit as end:
        if isinstance(end.__context__, BrokenPipeError):
            # Help texts of rich and typer do not go through ``write``.
            raise SystemExit(_PIPE_CLOSED) from None
        if end.code == INTERRUPTED:
            # Threads still have files open at exit. The user has pressed Ctrl-C and needs no message about them.
            atexit.register(logging.getLogger("penstock").setLevel, logging.CRITICAL)
        raise
    except PenstockError as error:
        if os.environ.get("PENSTOCK_DEBUG") == "1":
            raise
        print(f"penstock: {error}", file=sys.stderr)
        raise SystemExit(code_of(error)) from None


def code_of(error: object) -> int:
    return next((code for kind, code in CODES.items() if isinstance(error, kind)), _OTHER)


def write(text: str) -> None:
    """Write to standard output and flush; if its reader has closed it, exit quietly, like other programs on SIGPIPE.

    Raises:
        NoSpace: Standard output goes to a full disk.
        Unusable: Standard output cannot be written.
    """
    with handle_output_errors():
        sys.stdout.write(text)
        sys.stdout.flush()


def write_row(record: Mapping[str, object], text: str, *, as_json: bool) -> None:
    """Write one line to standard output: the record as JSON, or the text. Raises as ``write`` does."""
    write((json_line(record) if as_json else harmless(text)) + "\n")


def json_line(record: Mapping[str, object]) -> str:
    """Return a record as one line of JSON: null for NaN and infinities, which JSON does not have."""
    try:
        return dumps(record, allow_nan=False)
    except ValueError:
        return dumps(_finite(record), allow_nan=False)


def _finite(value: object) -> object:
    if isinstance(value, float) and not isfinite(value):
        return None
    if isinstance(value, dict):
        return {name: _finite(each) for name, each in value.items()}
    if isinstance(value, (list, tuple)):
        return [_finite(each) for each in value]
    return value


@contextmanager
def aside(on: object) -> Iterator[None]:
    """Keep standard output for results on a cluster (``on``): Ray reports dead workers there."""
    if on is None:
        yield
        return
    with redirect_stdout(sys.stderr):
        yield


@contextmanager
def handle_output_errors() -> Iterator[None]:
    """Handle errors as ``write`` does, for a block that writes to standard output in a different way."""
    try:
        yield
    except OSError as error:
        # Discard buffered output; otherwise the interpreter would report an error at exit.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        if isinstance(error, BrokenPipeError):
            raise SystemExit(_PIPE_CLOSED) from None
        kind = NoSpace if error.errno in NoSpace.ERRNOS else Unusable
        raise kind(f"cannot write to standard output: {error.strerror}") from error


def moment(seconds: float | None) -> str | None:
    """Return a time as ISO 8601 in UTC; None for None, and for a time that no calendar has."""
    try:
        return None if seconds is None else f"{datetime.fromtimestamp(seconds, UTC):%Y-%m-%dT%H:%M:%SZ}"
    except (ValueError, OverflowError, OSError):
        return None


def harmless(text: str) -> str:
    """Escape control characters if standard output is a terminal; output to a file or program stays unchanged."""
    return printable(text) if sys.stdout.isatty() else text


def harmless_lines(text: str) -> str:
    """Escape control characters of a text of several lines; see ``harmless``."""
    return "\n".join(harmless(line) for line in text.split("\n"))


def readable(size_bytes: int) -> str:
    """Return a readable number of bytes: ``1.5 GiB``."""
    size, units = float(size_bytes), ["bytes", "KiB", "MiB", "GiB", "TiB", "PiB"]
    while size >= 1024 and len(units) > 1:  # noqa: PLR2004  factor between units
        size /= 1024
        del units[0]
    if units[0] == "bytes":
        return f"{size_bytes} byte{'s' * (size_bytes != 1)}"
    # Three digits, or all digits of a whole number.
    return f"{size:.3g} {units[0]}" if size < 999.5 else f"{size:,.0f} {units[0]}"  # noqa: PLR2004  rounded to 1,000


def share_bar(share: float, width: int = 20) -> str:
    """Return a share, 0 to 1, as a bar of ``width`` characters."""
    eighths = round(min(share, 1.0) * width * 8)
    if not draws_unicode():
        return ("#" * (eighths // 8)).ljust(width)
    return ("█" * (eighths // 8) + " ▏▎▍▌▋▊▉"[eighths % 8].strip()).ljust(width)


def draws_unicode() -> bool:
    """Return whether standard output accepts lines and blocks."""
    return (sys.stdout.encoding or "").lower() == "utf-8"


class Report:
    """Counts of objects by status, with the first 100 errors and notes.

    Ctrl-C within a ``with`` block prints the errors, the notes and the sums so far.
    """

    def __init__(self, verb: str, *, as_json: bool = False) -> None:
        self._verb = verb
        self._as_json = as_json
        self._counts: Counter[str] = Counter()
        self._worst: PenstockError | None = None
        self._remarks: list[str] = []
        self._size_bytes = 0
        self._began = monotonic()

    def __enter__(self) -> Self:
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
        """Count the outcome of one object that was copied, moved or deleted; print planned steps."""
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
        self._counts["failed"] += 1
        self._worst = worse_of(self._worst, error)
        self._remark(str(error))
        self._line({**record, "size": size_bytes, "status": "failed"}, {"error": str(error)})

    def end(self) -> None:
        """Print the errors, the notes and the sums on standard error; after a failure, exit with the worst code."""
        self._tell()
        if self._worst is not None:
            raise SystemExit(code_of(self._worst))

    def _tell(self, before: str = "") -> None:
        for remark in self._remarks:
            print(f"penstock: {remark}", file=sys.stderr)
        if not self._as_json:
            print(before + self._sums(), file=sys.stderr)

    def _line(self, record: dict[str, object], more: dict[str, object]) -> None:
        if self._as_json:
            write(json_line(record | more) + "\n")

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


def check_page(path: str) -> None:
    """Refuse a file that ``save_page`` could not write; leave no file behind, and an existing file unchanged.

    Raises:
        Unusable: The directory does not exist, or the directory or the file cannot be written.
    """
    with _page_errors(path):
        page = Path(path).resolve()
        if page.is_dir() or page.is_file():
            page.open("ab").close()
        if page.is_file() or not page.exists():
            _create_temporary(page).unlink()


def save_page(path: str, text: str) -> None:
    """Write a page into a pipe or device, or replace any other file. Raises ``Unusable`` as ``check_page`` does."""
    with _page_errors(path):
        page = Path(path).resolve()
        if page.exists() and not page.is_file():
            page.write_text(text, "utf-8")
            return
        aside = _create_temporary(page)
        try:
            aside.write_text(text, "utf-8")
            with suppress(FileNotFoundError):
                shutil.copymode(page, aside)
            aside.replace(page)
        except BaseException:
            aside.unlink(missing_ok=True)
            raise


def _create_temporary(page: Path) -> Path:
    """Create an empty temporary file in the directory of ``page``."""
    aside = page.with_name(f".penstock-{uuid4().hex}")
    aside.touch(exist_ok=False)
    return aside


@contextmanager
def _page_errors(path: str) -> Iterator[None]:
    try:
        yield
    except OSError as error:
        raise Unusable(f"cannot write the page: {error.strerror}", url=path) from error
