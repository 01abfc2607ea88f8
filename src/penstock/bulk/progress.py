"""A bar on standard error while many objects are worked on, where there is a terminal to show it."""

from __future__ import annotations

import sys
from contextlib import contextmanager
from importlib.util import find_spec
from typing import TYPE_CHECKING

from penstock.errors import MissingExtra

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

__all__ = ["bar"]


@contextmanager
def bar(
    objects: int | None, size_bytes: int | None, *, shown: bool | None = None
) -> Iterator[Callable[[int, int], None]]:
    """Show a bar on standard error; yields what counts objects and bytes.

    Give None where the sums are not known. ``shown`` by default (None) where standard error is a terminal and rich is
    installed; True shows none without a terminal either.

    Raises:
        MissingExtra: ``shown`` is True, and rich is not installed.

    """
    if shown is False or not sys.stderr.isatty() or (shown is None and find_spec("rich") is None):
        yield lambda _objects, _moved_bytes: None
        return
    try:
        from rich.console import Console
        from rich.progress import (
            BarColumn,
            DownloadColumn,
            Progress,
            TextColumn,
            TimeRemainingColumn,
            TransferSpeedColumn,
        )
    except ModuleNotFoundError as error:
        raise MissingExtra("a progress bar needs rich: pip install penstock[cli]") from error
    of = "" if objects is None else f"/{objects:,}"
    columns = (
        TextColumn("{task.fields[objects]:,}" + of),
        BarColumn(),
        DownloadColumn(binary_units=True),
        TransferSpeedColumn(),
        TimeRemainingColumn(),
    )
    console = Console(stderr=True)
    with Progress(*columns, console=console, transient=True, redirect_stdout=False) as progress:
        task = progress.add_task("", total=size_bytes, objects=0)
        ended = 0

        def count(objects: int, moved_bytes: int) -> None:
            nonlocal ended
            ended += objects
            progress.update(task, advance=moved_bytes, objects=ended)

        yield count
