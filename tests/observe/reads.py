"""What processes do that a test starts: read, so that their sinks have something to write."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

from penstock.source import Source, open_source
from penstock.values import Span

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

    from penstock.observe import Record


def source_of(folder: Path) -> Source:
    """Return a source of files ``0`` to ``9`` of ten bytes."""
    for number in range(10):
        (folder / str(number)).write_bytes(b"0123456789")
    return open_source(f"file://{folder}/")[0]


def keys_of(folder: Path) -> list[str]:
    return [f"{str(folder).lstrip('/')}/{number}" for number in range(10)]


def read_all(source: Source, keys: Sequence[str]) -> None:
    for key in keys:
        assert source.head(key).size == 10


def read_one(source: Source, key: str) -> None:
    """Read within an operation."""
    assert source.read(Span(key, 0, 10)) == b"0123456789"


def lines_of(path: Path) -> list[dict[str, Any]]:
    """Return the records of a file of JSON lines; one that is not whole fails."""
    return [json.loads(line) for line in path.read_text("utf-8").splitlines()]


class Collected:
    """A sink that keeps records in this process."""

    events = True

    def __init__(self) -> None:
        self.records: list[Record] = []
        self.opened = self.closed = self.left = 0

    def open(self, *, first: bool) -> Collected:
        self.opened += 1
        self.first = first
        return self

    def write(self, records: Sequence[Record]) -> None:
        self.records.extend(records)

    def close(self) -> None:
        self.closed += 1

    def leave(self) -> None:
        self.left += 1
