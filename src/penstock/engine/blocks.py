"""Read-only files in blocks that behave like buffered, seekable files of ``io``."""

from __future__ import annotations

import io
import os
import weakref
from abc import abstractmethod
from contextlib import contextmanager
from itertools import chain
from operator import index
from threading import RLock
from typing import TYPE_CHECKING

from penstock.engine.buffer import Buffer, flat

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

_PEEK_BYTES = 128 << 10  # size of pickle's reads
_readers: weakref.WeakSet[BlockReader] = weakref.WeakSet()


def _release() -> None:
    """Replace every file's lock in a forked child: a thread of the parent that held it cannot release it there."""
    for reader in [*_readers]:
        reader._turn = RLock()  # noqa: SLF001  same module


os.register_at_fork(after_in_child=_release)


def compute_seek(offset: int, whence: int, at: int, size: int) -> int:
    """Return the position after ``seek(offset, whence)`` from ``at``; raises TypeError or ValueError as ``io`` does."""
    offset, whence = index(offset), index(whence)
    bases = {io.SEEK_SET: 0, io.SEEK_CUR: at, io.SEEK_END: size}
    if whence not in bases or bases[whence] + offset < 0:
        raise ValueError(f"cannot seek to {offset} (whence {whence}) in {size} bytes")
    return bases[whence] + offset


def _anew(opening: Callable[[], BlockReader], at: int) -> BlockReader:
    reader = opening()
    reader.seek(at)
    return reader


class SizedFile(io.RawIOBase):
    """Base of seekable files of a known size that keep a position, and no bytes."""

    def __init__(self, size: int) -> None:
        super().__init__()
        self._size = size
        self._at = 0

    def readable(self) -> bool:
        return True

    def seekable(self) -> bool:
        return True

    def tell(self) -> int:
        return self._at

    def seek(self, offset: int, whence: int = io.SEEK_SET, /) -> int:
        self._at = compute_seek(offset, whence, self._at, self._size)
        return self._at


# Two other readable files share only ``moved`` with this one, and stay separate. ``Sample`` has all its bytes and
# passes each call to an ``io.BytesIO``. ``torchfile.Fragments`` is a raw file with random access: it holds ranges of
# any size, which a window of one block would fetch again.
class BlockReader(io.BufferedIOBase):
    """A read-only, seekable file. Small reads are served from a block; reads of a block or more bypass it.

    A subclass implements how one block, and how a longer run, is read. After an error the position is the same as
    before the call, so that no byte is lost when the caller tries again. Threads may share a file: calls run one after
    another, as those of Python's own buffered files do, and share one position.
    """

    mode = "rb"
    # Opens the same version again, and can be pickled; None if an open file cannot be pickled.
    anew: Callable[[], BlockReader] | None = None

    def __init__(self, size: int, block_bytes: int) -> None:
        super().__init__()
        self._size = size
        self._block_bytes = block_bytes
        self._start = 0  # position of the window's first byte
        self._length = 0
        # Shares a block's bytes. Its position, counted from ``_start``, is the file's position.
        self._window = io.BytesIO()
        self._turn = RLock()
        _readers.add(self)

    @abstractmethod
    def _read_around(self, at: int, count: int) -> tuple[int, bytes]:
        """Return the start and the bytes of a block that holds byte ``at``; the caller wants ``count`` from there."""

    @abstractmethod
    def _straight(self, start: int, target: Buffer) -> None:
        """Fill ``target`` with the bytes from ``start`` on, all within the file."""

    @property
    def size(self) -> int:
        return self._size

    def readable(self) -> bool:
        # A closed window raises ValueError, here and in all methods below.
        return self._window.readable()

    def seekable(self) -> bool:
        return self._window.seekable()

    def tell(self) -> int:
        return self._start + self._window.tell()

    def seek(self, offset: int, whence: int = io.SEEK_SET, /) -> int:
        """Move the position, without a request. A position past the end is allowed; reads there return nothing."""
        with self._turn:
            to = compute_seek(offset, whence, self.tell(), self._size)
            if self._start <= to <= self._start + self._length:
                self._window.seek(to - self._start)
            else:
                self._show(to, b"")
            return to

    def read(self, size: int | None = -1, /) -> bytes:
        """Return up to ``size`` bytes, fewer only at the end; all the rest for None or a negative size."""
        with self._turn:
            at = self.tell()
            count = self._count(size, at)
            if count >= self._block_bytes:
                target = Buffer.allocate(count)
                self._straight(at, target)
                self.seek(at + count)
                return target.take()
            data = self._window.read(count)
            if len(data) == count:
                return data
            pieces = [data]
            with self._restoring(at):
                while (missing := at + count - self.tell()) > 0:
                    pieces.append(self._ahead(missing).read(missing))
            return b"".join(pieces)

    def read1(self, size: int | None = -1, /) -> bytes:
        """Return up to ``size`` bytes, as ``read`` does; without a size, the buffered bytes, at most one block."""
        with self._turn:
            count = -1 if size is None else index(size)
            return self._ahead().read() if count < 0 else self.read(count)

    def readinto(self, buffer: object, /) -> int:
        """Fill a writable buffer, without a copy if it is large; return the number of bytes read, 0 at the end."""
        with self._turn:
            at, view = self.tell(), _writable(buffer)
            view = view[: self._count(len(view), at)]
            if len(view) >= self._block_bytes:
                self._straight(at, Buffer.borrow(view))
                self.seek(at + len(view))
                return len(view)
            done = self._window.readinto(view)
            if done < len(view):
                with self._restoring(at):
                    while done < len(view):
                        done += self._ahead(len(view) - done).readinto(view[done:])
            return done

    readinto1 = readinto

    def peek(self, size: int = 0, /) -> bytes:
        """Return the next bytes without moving: at least one unless at the end, perhaps more or fewer than ``size``."""
        with self._turn:
            size, window = index(size), self._ahead()
            at = window.tell()
            data = window.read(max(size, min(_PEEK_BYTES, self._block_bytes)))
            window.seek(at)
            return data

    def readline(self, size: int | None = -1, /) -> bytes:
        """Return the next line with its line end, or ``size`` bytes of it; the rest of the file without a line end."""
        with self._turn:
            line = self._window.readline(size)
            if line.endswith(b"\n"):
                return line
            pieces, limit = [line], -1 if size is None else index(size)
            at = self.tell() - len(line)
            with self._restoring(at):
                while not pieces[-1].endswith(b"\n") and self.tell() < self._size:
                    left = at + limit - self.tell() if limit >= 0 else -1
                    if not left:
                        break
                    pieces.append(self._ahead().readline(left))
            return b"".join(pieces)

    def __iter__(self) -> Iterator[bytes]:
        """Yield lines, as fast as Python's own files do; the position is always after the last yielded line."""
        self.tell()
        return chain.from_iterable(self._runs())

    def close(self) -> None:
        if not self.closed:
            self._window.close()
        super().close()

    def __reduce__(self) -> tuple[object, ...]:
        """Pickle ``anew`` and the position, if the file has ``anew`` (fsspec's files); refuse otherwise."""
        if self.anew is None:
            raise TypeError("an open penstock reader cannot be pickled; open the URL in the process that reads it")
        return _anew, (self.anew, self.tell())

    def _runs(self) -> Iterator[Iterator[bytes]]:
        """Yield alternately the window, cut to whole lines, and the line that continues in the next block."""
        while True:
            with self._turn:
                at, start = self.tell(), self._window.tell()
                rest = self._window.read()
                if not rest.endswith(b"\n"):
                    self._show(at, rest[: rest.rfind(b"\n") + 1])
                else:
                    self._window.seek(start)
                window = self._window
            yield window
            del window  # not held while reading the next
            line = _SingleLine(self)
            yield line
            if line.empty:
                return

    def _ahead(self, count: int = 1) -> io.BytesIO:
        """Return the window, with at least one byte ahead unless at the end of the file; ``count`` will be read."""
        at = self.tell()
        if self._start + self._length <= at < self._size:
            start, data = self._read_around(at, count)
            self._show(start, data)
            self._window.seek(at - start)
        return self._window

    def _show(self, start: int, data: bytes) -> None:
        # An iteration over the old window then continues in the new one.
        self._window.seek(0, io.SEEK_END)
        self._start, self._length, self._window = start, len(data), io.BytesIO(data)

    def _count(self, size: int | None, at: int) -> int:
        left = max(0, self._size - at)
        count = left if size is None else index(size)
        return left if count < 0 else min(count, left)

    @contextmanager
    def _restoring(self, at: int) -> Iterator[None]:
        try:
            yield
        except BaseException:
            if not self.closed:
                self.seek(at)
            raise


class _SingleLine:
    """A single line, as an iterator. An error does not end it: the next call returns the line."""

    def __init__(self, file: BlockReader) -> None:
        self._file: BlockReader | None = file
        self.empty = False

    def __iter__(self) -> _SingleLine:
        return self

    def __next__(self) -> bytes:
        if self._file is None:
            raise StopIteration
        line = self._file.readline()
        self._file, self.empty = None, not line
        if self.empty:
            raise StopIteration
        return line


def _writable(buffer: object) -> memoryview:
    view = flat(buffer)
    if view.readonly:
        raise TypeError("cannot read into a read-only buffer")
    return view
