"""A file to read from: an object held to one version, with read-ahead for small reads and parallel ranges for large."""

from __future__ import annotations

import io
import os
from collections import OrderedDict
from typing import TYPE_CHECKING

from penstock.fetch.read import Inbox
from penstock.target import Target
from penstock.values import ObjectMeta, Span

if TYPE_CHECKING:
    from collections.abc import Callable

    from penstock.fetch.fetcher import Fetcher
    from penstock.fetch.read import Read

__all__ = ["Reader"]

_BLOCK_BYTES = 4 << 20
_MOST_BLOCKS = 8  # held at once: what is read again nearby, and what is read ahead
_AHEAD = 3  # blocks in flight once reading turns out to be sequential


class Reader(io.BufferedIOBase):
    """A read-only, seekable file over one version of an object; another version is ``Changed``.

    Reads of a block (4 MiB) or more go straight into the caller's memory, in parallel ranges, one request each; smaller
    ones are served from blocks, of which the next three are fetched ahead while reading is sequential. Memory beyond
    what is returned: eight blocks. Opening costs one HEAD.
    """

    def __init__(self, fetcher: Callable[[], Fetcher], meta: ObjectMeta) -> None:
        """Read the object ``meta`` describes; ``fetcher`` returns the engine of the process that asks."""
        super().__init__()
        self._engine = fetcher
        self._meta = meta
        self._at = 0
        self._inbox = Inbox()
        self._blocks: OrderedDict[int, Read] = OrderedDict()
        self._last = -2
        self._pid = os.getpid()

    @property
    def size(self) -> int:
        """Bytes in the object."""
        return self._meta.size

    @property
    def etag(self) -> str:
        """The version being read."""
        return self._meta.etag

    def readable(self) -> bool:
        """Return True."""
        return True

    def seekable(self) -> bool:
        """Return True."""
        return True

    def tell(self) -> int:
        """Return the position."""
        return self._at

    def seek(self, offset: int, whence: int = io.SEEK_SET, /) -> int:
        """Move; costs nothing. Past the end is allowed and reads nothing there."""
        self._check()
        bases = {io.SEEK_SET: 0, io.SEEK_CUR: self._at, io.SEEK_END: self.size}
        if whence not in bases or bases[whence] + offset < 0:
            message = f"cannot seek to {offset} (whence {whence}) in {self.size} bytes"
            raise ValueError(message)
        self._at = bases[whence] + offset
        return self._at

    def read(self, size: int | None = -1, /) -> bytes:
        """Return up to ``size`` bytes, fewer only at the end; all that is left for None or a negative size."""
        self._check()
        left = max(0, self.size - self._at)
        count = left if size is None or size < 0 else min(size, left)
        if count < _BLOCK_BYTES:
            data = b"".join(self._small(count))
            self._at += count
            return data
        target = Target.allocate(count)
        self._large(target)
        return target.take()

    def read1(self, size: int = -1, /) -> bytes:
        """Return up to ``size`` bytes; here the same as ``read``, but less than a block when no size is given."""
        return self.read(_BLOCK_BYTES - 1 if size < 0 else size)

    def readinto(self, buffer: object, /) -> int:
        """Fill a writable buffer, without a copy where it is large; returns the bytes read, 0 at the end."""
        self._check()
        view = memoryview(buffer).cast("B")  # type: ignore[arg-type]
        count = max(0, min(len(view), self.size - self._at))
        if count >= _BLOCK_BYTES:
            self._large(Target.borrow(view[:count]))
        else:
            done = 0
            for piece in self._small(count):
                view[done : done + len(piece)] = piece
                done += len(piece)
            self._at += count
        return count

    readinto1 = readinto

    def close(self) -> None:
        """Call off what is in flight."""
        if not self.closed:
            self._drop([read for read in self._blocks.values() if not read.complete])
            self._blocks.clear()
        super().close()

    def __reduce__(self) -> tuple[object, ...]:
        """Refuse: open the URL where it is to be read."""
        raise TypeError("an open penstock reader cannot be pickled; open the URL in the process that reads it")

    def _check(self) -> None:
        if self.closed:
            raise ValueError("read from a closed object")
        if self._pid != os.getpid():  # a forked child: what the parent has in flight is not ours
            self._inbox, self._blocks, self._pid = Inbox(), OrderedDict(), os.getpid()

    def _large(self, target: Target) -> None:
        span = Span(self._meta.key, self._at, self._at + target.size, self._meta.etag)
        self._engine().read_into(span, target)
        self._at += target.size

    def _small(self, count: int) -> list[memoryview]:
        """Return the next ``count`` bytes in pieces; the position is the caller's to move, once nothing can fail."""
        pieces, at, stop = [], self._at, self._at + count
        while at < stop:
            number, offset = divmod(at, _BLOCK_BYTES)
            pieces.append(memoryview(self._block(number))[offset : offset + stop - at])
            at += len(pieces[-1])
        return pieces

    def _block(self, number: int) -> bytes:
        """Return a block, fetching it and, when reading is sequential, those after it."""
        ahead = _AHEAD if number in (self._last, self._last + 1) else 0
        last = max(0, self.size - 1) // _BLOCK_BYTES
        missing = [each for each in range(number, min(number + ahead, last) + 1) if each not in self._blocks]
        if missing:
            spans = [self._span(each) for each in missing]
            self._blocks.update(zip(missing, self._engine().begin(spans, self._inbox), strict=True))
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
        start, stop = number * _BLOCK_BYTES, min((number + 1) * _BLOCK_BYTES, self.size)
        return Span(self._meta.key, start, stop, self._meta.etag, whole=start == 0 and stop == self.size)

    def _drop(self, reads: list[Read]) -> None:
        unfinished = [read for read in reads if not read.complete]
        if unfinished and self._pid == os.getpid():
            self._engine().cancel(unfinished)
