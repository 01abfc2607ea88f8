"""Parallel, verified reads of many object ranges into memory."""

from __future__ import annotations

from collections import deque
from contextlib import closing
from typing import TYPE_CHECKING

import numpy as np

from penstock.checkpoint.integrity.checksums import BLOCK_BYTES
from penstock.checkpoint.transfer.plan import Object, Run, Want, runs
from penstock.errors import ChecksumMismatch
from penstock.progress import current
from penstock.values import Span

if TYPE_CHECKING:
    from collections.abc import Generator, Iterable, Iterator

    from penstock.source import Source

__all__ = ["Object", "Want", "gather"]

# Bytes in flight or waiting. With the overhead around it, memory stays below 256 MiB beyond the state itself.
_WINDOW_BYTES = 192 << 20


def gather(source: Source, wants: Iterable[Want], window_bytes: int = _WINDOW_BYTES) -> Generator[Want]:
    """Fill the memory of ``wants``, and yield each want in order after its bytes arrived and were verified.

    ``wants`` is consumed lazily, ``window_bytes`` plus one want ahead of the consumer, so memory allocated by the
    iterator stays within that. Long runs of whole blocks are read directly into a want's memory, one request per 8 MiB.
    Small wants, and partial blocks at both ends, share requests and are copied. With checksums, a want costs up to 1
    MiB more at each end. After the generator ends in any way, Ctrl-C and ``close`` included, nothing writes into any
    memory.

    Raises:
        ChecksumMismatch: A block does not match its checksum; the message names its object.
        NotFound: An object no longer exists. ``Changed``: it was replaced.

    """
    sent: deque[tuple[Run, memoryview]] = deque()
    count = current()

    def places() -> Iterator[tuple[Span, memoryview]]:
        for run in runs(wants):
            memory = _view(run.pieces[0]) if run.straight else _scratch(run.stop - run.start)
            sent.append((run, memory))
            yield Span(run.of.key, run.start, run.stop, run.of.etag), memory

    with closing(source.scatter(places(), window_bytes)) as filled:
        for _ in filled:
            run, memory = sent.popleft()
            _verify(run, memory)
            count(0, run.stop - run.start)
            for piece in () if run.straight else run.pieces:
                _view(piece)[:] = memory[piece.start - run.start : piece.stop - run.start]
            yield from run.done


def _scratch(size: int) -> memoryview:
    return np.empty(size, np.uint8).data  # not zeroed


def _view(piece: tuple[Want, int, int]) -> memoryview:
    """Return the part of a want's memory that receives a piece."""
    want, start, stop = piece
    whole = memoryview(want.memory)
    return whole.cast("B")[start - want.start : stop - want.start] if whole.nbytes else memoryview(bytearray())


def _verify(run: Run, memory: memoryview) -> None:
    of = run.of
    if of.checksums is None:
        return
    first = (run.start - of.origin) // BLOCK_BYTES
    for number, at in enumerate(range(0, len(memory), BLOCK_BYTES), first):
        if not of.checksums.holds(number, memory[at : at + BLOCK_BYTES]):
            start = run.start + at
            stop = min(start + BLOCK_BYTES, run.stop)
            raise ChecksumMismatch(f"{of.within(start, stop)} are not what was written", url=of.url)
