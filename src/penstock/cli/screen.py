"""Screens of commands, by rich: marks, colours, folded text, bars. Elsewhere commands print the same in plain lines."""

from __future__ import annotations

import os
import sys
from contextlib import contextmanager
from typing import TYPE_CHECKING, NamedTuple

from penstock.errors import printable

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from rich.console import JustifyMethod


class Cell(NamedTuple):
    """A part of a row; without ``width`` it takes the rest of the line, in which long text is folded."""

    text: str
    style: str = ""
    width: int | None = None
    right: bool = False


class Screen:
    """Standard output, through rich: colours and bars on a terminal, plain lines elsewhere."""

    def __init__(self) -> None:
        from rich.console import Console

        self._console = Console(highlight=False, soft_wrap=True)

    def title(self, text: str) -> None:
        from rich.text import Text

        self._console.print(Text(f"\n{text}", "bold"))

    def say(self, label: str, text: str) -> None:
        """Print one line, above the bar if there is one."""
        from rich.text import Text

        self._console.print(Text.assemble((f"  {label:<12}", "cyan"), text))

    def row(self, *cells: Cell) -> None:
        """Print cells in a row; text that is too long for a line continues below its beginning."""
        from rich.table import Table
        from rich.text import Text

        grid = Table.grid(padding=(0, 2, 0, 0))
        for cell in cells:
            justify: JustifyMethod = "right" if cell.right else "left"
            grid.add_column(justify=justify, style=cell.style, width=cell.width, overflow="fold")
        grid.add_row(*(Text(printable(cell.text)) for cell in cells))
        self._console.print(grid, soft_wrap=False)

    @contextmanager
    def waiting(self, text: str) -> Iterator[None]:
        """Keep a line at the bottom until the block ends; no thread draws, so that a measurement is not disturbed."""
        from rich.live import Live
        from rich.text import Text

        with Live(Text(text, "dim"), console=self._console, auto_refresh=False, transient=True):
            yield

    @contextmanager
    def bar(self, label: str, total: int) -> Iterator[Callable[[float], None]]:
        """Show a bar until the block ends; yield a function that takes the completed part of ``total``."""
        from rich.progress import BarColumn, Progress, TaskProgressColumn, TextColumn, TimeRemainingColumn

        columns = (TextColumn("  {task.description:<12}"), BarColumn(), TaskProgressColumn(), TimeRemainingColumn())
        console = self._console
        with Progress(*columns, console=console, transient=True, disable=not console.is_terminal) as progress:
            task = progress.add_task(label, total=total)
            yield lambda done: progress.update(task, completed=done)


def terminal(*, as_json: bool) -> Screen | None:
    """Return the screen if standard output is a terminal that people read; None: lines are plain."""
    return Screen() if sys.stdout.isatty() and not as_json and os.environ.get("TERM") != "dumb" else None
