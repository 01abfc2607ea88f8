"""Report file of a sync: one line of JSON for each object."""

from __future__ import annotations

import os
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

from penstock.errors import NoSpace, Unusable
from penstock.jobs.outcome import as_line
from penstock.jobs.selection import local

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from penstock.jobs.mirror import Mirror
    from penstock.jobs.outcome import Outcome

__all__ = ["ledger"]


@contextmanager
def ledger(path: str | os.PathLike[str] | None, mirror: Mirror) -> Iterator[Callable[[Outcome], None]]:
    """Create or overwrite the report file; yield a function that appends an outcome to it, unbuffered.

    If ``path`` is missing (None), outcomes are discarded.

    Raises:
        Unusable: The file lies in one of the two trees, or cannot be written.
        NoSpace: The disk of the file is full.

    """
    if path is None:
        yield lambda _outcome: None
        return
    name = os.fspath(path)
    whole = os.path.realpath(name).lstrip("/")
    for side, folder in ((mirror.source, mirror.prefix), (mirror.target, mirror.base)):
        if local(side) and whole.startswith(folder):
            raise Unusable("a report cannot lie in one of the trees that are compared: choose another place", url=name)
    with _errors(name):
        opened = Path(name).open("wb", buffering=0)  # noqa: SIM115  closed below
    # Outside ``_errors``: errors of the caller are not errors of the file.
    with opened as file:

        def add(outcome: Outcome) -> None:
            with _errors(name):
                line = memoryview(as_line(outcome).encode())
                while line:
                    line = line[file.write(line) :]

        yield add


@contextmanager
def _errors(path: str) -> Iterator[None]:
    try:
        yield
    except OSError as error:
        kind = NoSpace if error.errno in NoSpace.ERRNOS else Unusable
        raise kind(f"cannot write the report: {error.strerror}", url=path) from error
