"""Files whose reads and writes are awaited: what fsspec's ``open_async`` returns."""

from __future__ import annotations

import io
from typing import TYPE_CHECKING, Self

from penstock.blocks import moved
from penstock.errors import Unusable
from penstock.interop.awaiting import call, read, stat
from penstock.values import Span

if TYPE_CHECKING:
    from types import TracebackType

    from penstock.interop.fsspec.files import Held
    from penstock.source import Source, Writer
    from penstock.values import ObjectMeta

__all__ = ["Streamed", "StreamedWriter", "open_streamed"]


async def open_streamed(source: Source, key: str) -> Streamed:
    """Open a file to read on an event loop: a HEAD."""
    return Streamed(source, await stat(source, key))


class Streamed:
    """A file to read, one version of an object; every read is a request of just its bytes, and none is read ahead."""

    def __init__(self, source: Source, meta: ObjectMeta) -> None:
        """Begin at the start of what ``meta`` describes."""
        self._source = source
        self._meta = meta
        self._at = 0
        self.mode = "rb"
        self.closed = False

    @property
    def size(self) -> int:
        """Bytes in all."""
        return self._meta.size

    def tell(self) -> int:
        """Return the position."""
        return self._at

    def seek(self, offset: int, whence: int = io.SEEK_SET) -> int:
        """Move; costs nothing."""
        self._at = moved(offset, whence, self._at, self._meta.size)
        return self._at

    async def read(self, length: int | None = -1) -> bytes:
        """Return up to ``length`` bytes, fewer only at the end; all that is left for None or a negative length."""
        if self.closed:
            raise Unusable("this file is closed", url=self._source.url(self._meta.key))
        left = max(0, self._meta.size - self._at)
        count = left if length is None or length < 0 else min(length, left)
        if not count:
            return b""
        whole = not self._at and count == self._meta.size
        data = await read(self._source, Span(self._meta.key, self._at, self._at + count, self._meta.etag, whole))
        self._at += count
        return data

    async def close(self) -> None:
        """Close it."""
        self.closed = True

    async def __aenter__(self) -> Self:
        """Return itself."""
        return self

    async def __aexit__(self, *_: object) -> None:
        """Close."""
        await self.close()


class StreamedWriter:
    """A file to write, which is published when it is closed well, and never otherwise."""

    def __init__(self, writer: Writer | Held) -> None:
        """Write to ``writer``, on a thread for each call."""
        self._writer = writer
        self.mode = writer.mode

    @property
    def closed(self) -> bool:
        """Whether it was closed."""
        return self._writer.closed

    def tell(self) -> int:
        """Return how many bytes were written."""
        return self._writer.tell()

    async def write(self, data: bytes | bytearray | memoryview) -> int:
        """Write."""
        return await call(self._writer.write, data)

    async def close(self) -> None:
        """Publish."""
        await call(self._writer.close)

    async def discard(self) -> None:
        """Publish nothing."""
        abort = getattr(self._writer, "abort", None) or self._writer.discard  # type: ignore[union-attr]
        await call(abort)

    async def __aenter__(self) -> Self:
        """Return itself."""
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Publish, or after an exception nothing."""
        await (self.close() if kind is None else self.discard())
