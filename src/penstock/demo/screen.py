"""How the demo speaks: lines of a label and what it says, under a progress bar where there is a terminal."""

from __future__ import annotations

from contextlib import contextmanager
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

__all__ = ["Screen"]


class Screen:
    """Standard output, through rich: colours and bars on a terminal, plain lines elsewhere."""

    def __init__(self) -> None:
        """Look at standard output once."""
        from rich.console import Console

        self._console = Console(highlight=False, soft_wrap=True)

    def title(self, text: str) -> None:
        """Print a heading after an empty line."""
        from rich.text import Text

        self._console.print(Text(f"\n{text}", "bold"))

    def say(self, label: str, text: str) -> None:
        """Print one line; above the bar, while there is one."""
        from rich.text import Text

        self._console.print(Text.assemble((f"  {label:<12}", "cyan"), text))

    @contextmanager
    def bar(self, label: str, total: int) -> Iterator[Callable[[float], None]]:
        """Show a bar until the block ends; yields a function to call with how much of ``total`` is done."""
        from rich.progress import BarColumn, Progress, TaskProgressColumn, TextColumn, TimeRemainingColumn

        columns = (TextColumn("  {task.description:<12}"), BarColumn(), TaskProgressColumn(), TimeRemainingColumn())
        console = self._console
        with Progress(*columns, console=console, transient=True, disable=not console.is_terminal) as progress:
            task = progress.add_task(label, total=total)
            yield lambda done: progress.update(task, completed=done)
