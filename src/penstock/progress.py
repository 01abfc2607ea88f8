"""Progress of long loops, on terminals and in notebooks, never in logs."""

from __future__ import annotations

import multiprocessing
import os
import sys
import threading
from contextlib import contextmanager, suppress
from contextvars import ContextVar
from html import escape
from importlib.util import find_spec
from time import monotonic
from typing import TYPE_CHECKING

from penstock.display import size
from penstock.errors import ConfigError, MissingExtra, printable

if TYPE_CHECKING:
    from collections.abc import Callable, Generator
    from contextlib import AbstractContextManager

    from IPython.display import DisplayHandle
    from rich.progress import ProgressColumn

    Count = Callable[[int, int], None]

# Shorter work shows nothing and does not import rich.
_PATIENCE_S = 0.5
_REDRAW_S = 0.1
_OFF = ("0", "false", "no", "off")


def bar(
    title: str, objects: int | None, size_bytes: int | None, *, shown: bool | None = None
) -> AbstractContextManager[Count]:
    """Show objects and bytes while the block runs; yield a counter that any thread may call.

    The line appears after half a second. By default (None) it is shown below the cell of a notebook, or if standard
    error is a terminal and rich is installed; in the main thread and process of rank 0 (``RANK``), unless
    ``PENSTOCK_PROGRESS=0`` is set. True requires rich on a terminal (``MissingExtra``); elsewhere nothing is shown in
    either case. A process shows one line at a time: a nested or concurrent loop shows none. A total that is not known
    is None.
    """
    return _line(title, objects, size_bytes, shown=shown, moves=True)


def tally(title: str, *, shown: bool | None = None) -> AbstractContextManager[Count]:
    """Show the number of objects as ``bar`` does, without bytes."""
    return _line(title, None, None, shown=shown, moves=False)


def totals(count: Count) -> Callable[[int], None]:
    """Return a function that takes the number of objects so far and passes the increase to ``count``."""
    before = 0

    def tell(objects: int) -> None:
        nonlocal before
        count(objects - before, 0)
        before = objects

    return tell


def current() -> Count:
    """Return the counter of the enclosing line, so that the loop that moves the bytes need not know it."""
    line = _current.get()
    return _ignore_progress if line is None else line.count


@contextmanager
def _line(
    title: str, objects: int | None, size_bytes: int | None, *, shown: bool | None, moves: bool
) -> Generator[Count]:
    if not isinstance(shown, bool | None):
        raise ConfigError(f"progress must be True, False or None (where a terminal shows it), got {shown!r}")
    if not _should_show(shown) or not _ProgressLine.free():
        yield _ignore_progress
        return
    line = _ProgressLine(title, objects, size_bytes, moves=moves)
    token = _current.set(line)
    try:
        yield line.count
    finally:
        # A generator may be closed in a different context.
        with suppress(ValueError):
            _current.reset(token)
        line.end()


def _should_show(shown: bool | None) -> bool:  # noqa: FBT001  the argument of the functions above
    notebook = _in_a_notebook()
    if shown is False or not (notebook or _on_a_terminal()):
        return False
    able = notebook or find_spec("rich") is not None
    if shown:
        if not able:
            raise MissingExtra("a progress bar needs rich: pip install penstock[cli]")
        return True
    return (
        os.environ.get("PENSTOCK_PROGRESS", "").lower() not in _OFF
        and os.environ.get("RANK", "") in ("", "0")
        and (notebook or os.environ.get("TERM") != "dumb")
        and multiprocessing.parent_process() is None
        and threading.current_thread() is threading.main_thread()
        and able
    )


def _on_a_terminal() -> bool:
    try:
        return sys.stderr is not None and sys.stderr.isatty()
    except ValueError:  # standard error is closed
        return False


def _in_a_notebook() -> bool:
    """Return whether this process is the kernel of a notebook, which has imported IPython."""
    if "IPython" not in sys.modules:
        return False
    from IPython import get_ipython

    return getattr(get_ipython(), "kernel", None) is not None


class _ProgressLine:
    """Progress line of this process, drawn by the thread that counts: a fork loses no drawing thread."""

    shown: _ProgressLine | None = None

    def __init__(self, title: str, objects: int | None, size_bytes: int | None, *, moves: bool) -> None:
        _ProgressLine.shown = self
        self._title, self._objects_total, self._bytes_total, self._moves = title, objects, size_bytes, moves
        self._objects = self._bytes = 0
        self._due = monotonic() + _PATIENCE_S
        # Reentrant: the garbage collector may end an abandoned line on any thread.
        self._lock = threading.RLock()
        self._pid = os.getpid()
        self._screen: _Terminal | _Notebook | None = None

    @classmethod
    def free(cls) -> bool:
        """Return whether this process shows no line; a forked process starts without one and draws over none."""
        return cls.shown is None

    def count(self, objects: int, size_bytes: int) -> None:
        if self._pid != os.getpid():
            # A forked process: the line belongs to the parent, and its lock may be held forever.
            return
        with self._lock:
            self._objects += objects
            self._bytes += size_bytes
            now = monotonic()
            if now < self._due or _ProgressLine.shown is not self:
                return
            self._due = now + _REDRAW_S
            # A lost terminal or a closed standard error must not make the work fail.
            with suppress(OSError, ValueError):
                self._draw()

    def end(self) -> None:
        if self._pid != os.getpid():
            return
        with self._lock:
            _ProgressLine.shown = None
            if self._screen is not None:
                with suppress(OSError, ValueError):
                    self._screen.close()

    def _draw(self) -> None:
        if self._screen is None:
            kind = _Notebook if _in_a_notebook() else _Terminal
            self._screen = kind(printable(self._title), self._objects_total, self._bytes_total, moves=self._moves)
        self._screen.draw(self._objects, self._bytes)


class _Terminal:
    """Line of a terminal, by rich."""

    def __init__(self, title: str, objects: int | None, size_bytes: int | None, *, moves: bool) -> None:
        from rich.console import Console
        from rich.progress import Progress

        self._progress = Progress(
            *_columns(objects, size_bytes, moves=moves),
            console=Console(stderr=True),
            transient=True,
            redirect_stdout=False,
            auto_refresh=False,
        )
        self._task = self._progress.add_task(title, total=size_bytes if moves else None, objects=0)
        self._progress.start()

    def draw(self, objects: int, size_bytes: int) -> None:
        self._progress.update(self._task, completed=size_bytes, objects=objects)
        self._progress.refresh()

    def close(self) -> None:
        self._progress.stop()


def _columns(objects: int | None, size_bytes: int | None, *, moves: bool) -> list[ProgressColumn]:
    from rich import progress as rich

    columns: list[ProgressColumn] = [rich.TextColumn("{task.description}", markup=False)]
    of = "" if objects is None else f"/{objects:,}"
    if not moves or objects != 1:
        columns.append(rich.TextColumn("{task.fields[objects]:,}" + of))
    if not moves:
        return [*columns, rich.SpinnerColumn(), rich.TimeElapsedColumn()]
    columns.append(rich.SpinnerColumn() if size_bytes is None else rich.BarColumn())
    columns += [rich.DownloadColumn(binary_units=True), rich.TransferSpeedColumn()]
    return columns if size_bytes is None else [*columns, rich.TimeRemainingColumn()]


class _Notebook:
    """Output below the cell of a notebook, replaced in place: many updates leave one output in the file."""

    def __init__(self, title: str, objects: int | None, size_bytes: int | None, *, moves: bool) -> None:
        from IPython.display import display

        self._title, self._objects, self._bytes, self._moves = title, objects, size_bytes, moves
        self._began_s = monotonic() - _PATIENCE_S
        self._handle: DisplayHandle = display({"text/plain": title}, raw=True, display_id=True)

    def draw(self, objects: int, size_bytes: int) -> None:
        of = "" if self._objects is None else f"/{self._objects:,}"
        words = [self._title, f"{objects:,}{of}"]
        if self._moves:
            total = "" if self._bytes is None else f"/{size(self._bytes)}"
            words += [f"{size(size_bytes)}{total}", f"{size(size_bytes / max(monotonic() - self._began_s, 1e-3))}/s"]
        text = "  ".join(words)
        drawn = f'<progress value="{size_bytes}" max="{self._bytes}"></progress> ' if self._bytes else ""
        self._handle.update({"text/plain": text, "text/html": f"{drawn}<code>{escape(text)}</code>"}, raw=True)

    def close(self) -> None:
        self._handle.update({"text/plain": ""}, raw=True)


_current: ContextVar[_ProgressLine | None] = ContextVar("penstock-progress", default=None)


def _ignore_progress(_objects: int, _size_bytes: int) -> None:
    """Count nothing."""


def _clear_line() -> None:
    _ProgressLine.shown = None


os.register_at_fork(after_in_child=_clear_line)
