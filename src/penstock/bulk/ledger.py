"""A file that says what was done: one line of JSON for each object."""

from __future__ import annotations

import os
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

from penstock.bulk.outcome import as_line
from penstock.bulk.selection import local
from penstock.errors import NoSpace, Unusable

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from penstock.bulk.mirror import Mirror
    from penstock.bulk.outcome import Outcome

__all__ = ["ledger"]


@contextmanager
def ledger(path: str | os.PathLike[str] | None, mirror: Mirror) -> Iterator[Callable[[Outcome], None]]:
    """Write a file anew; yields what adds an outcome to it, at once. None is no file.

    Raises:
        Unusable: It lies in one of the two trees; it cannot be written.
        NoSpace: Its disk is full.

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
    with opened as file:  # outside: the caller's own errors are none of the file's

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
