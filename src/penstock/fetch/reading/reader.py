"""A file to read from: an object held to one version, with read-ahead for small reads and parallel ranges for large."""

from __future__ import annotations

import os
from collections import OrderedDict
from typing import TYPE_CHECKING

from penstock.blocks import BlockReader
from penstock.fetch.reading.batch import read_into, start_reads
from penstock.values import ObjectMeta, Span
from penstock.waiting import Inbox

if TYPE_CHECKING:
    from collections.abc import Callable

    from penstock.buffer import Buffer
    from penstock.protocols.fetching import Fetching, PendingRead

__all__ = ["Reader"]

_BLOCK_BYTES = 4 << 20
_MOST_BLOCKS = 8  # held at once: what is read again nearby, and what is read ahead
_AHEAD = 3  # blocks in flight once reading turns out to be sequential


class Reader(BlockReader):
    """A read-only, seekable file over one version of an object; another version is ``Changed``.

    Reads of a block (4 MiB) or more go straight into the caller's memory, in parallel ranges, one request each; smaller
    ones are served from blocks, of which the next three are fetched ahead while reading is sequential. Memory beyond
    what is returned: eight blocks. Opening costs one HEAD.
    """

    def __init__(self, fetching: Callable[[], Fetching], meta: ObjectMeta, url: str, block_bytes: int = 0) -> None:
        """Read the object ``meta`` describes; ``fetching`` returns what fetches in the process that asks."""
        super().__init__(meta.size, block_bytes or _BLOCK_BYTES)
        self._fetching = fetching
        self._url = url
        self._meta = meta
        self._inbox = Inbox()
        self._blocks: OrderedDict[int, PendingRead] = OrderedDict()
        self._last = -2
        self._pid = os.getpid()

    @property
    def name(self) -> str:
        """The object's URL."""
        return self._url

    @property
    def etag(self) -> str:
        """The version being read."""
        return self._meta.etag

    def close(self) -> None:
        """Cancel reads in flight."""
        if not self.closed:
            self._drop([read for read in self._blocks.values() if not read.complete])
            self._blocks.clear()
        super().close()

    def _straight(self, start: int, target: Buffer) -> None:
        span = Span(self._meta.key, start, start + target.size, self._meta.etag)
        read_into(self._fetching(), span, target)

    def _block(self, number: int) -> bytes:
        """Return a block, fetching it and, when reading is sequential, those after it."""
        if self._pid != os.getpid():  # a forked child: what the parent has in flight is not ours
            self._inbox, self._blocks, self._pid = Inbox(), OrderedDict(), os.getpid()
        ahead = _AHEAD if number in (self._last, self._last + 1) else 0
        last = max(0, self.size - 1) // self._block_bytes
        missing = [each for each in range(number, min(number + ahead, last) + 1) if each not in self._blocks]
        if missing:
            spans = [self._span(each) for each in missing]
            self._blocks.update(zip(missing, start_reads(self._fetching(), spans, self._inbox), strict=True))
        self._last = number
        read = self._blocks[number]
        self._blocks.move_to_end(number)
        try:
            self._inbox.wait(read)
            data = read.take()
        except BaseException:
            self._blocks.pop(number, None)
            raise
        while len(self._blocks) > _MOST_BLOCKS:
            self._drop([self._blocks.popitem(last=False)[1]])
        return data

    def _span(self, number: int) -> Span:
        start = number * self._block_bytes
        stop = min(start + self._block_bytes, self.size)
        return Span(self._meta.key, start, stop, self._meta.etag, whole=start == 0 and stop == self.size)

    def _drop(self, reads: list[PendingRead]) -> None:
        unfinished = [read for read in reads if not read.complete]
        if unfinished and self._pid == os.getpid():
            self._fetching().cancel_reads(unfinished)
