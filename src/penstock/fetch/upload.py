"""A file to write to that becomes an object when it is closed well, and nothing at all otherwise."""

from __future__ import annotations

import atexit
import io
import os
import sys
import weakref
from concurrent.futures import wait
from contextlib import suppress
from dataclasses import dataclass
from typing import TYPE_CHECKING, Self

from penstock.errors import PenstockError, Unusable
from penstock.events import Committed, PartSent, emit, listening
from penstock.fetch.filling import Filling
from penstock.fetch.operation import await_one
from penstock.fetch.plan import part_bytes
from penstock.fetch.publish import Publication, marked, payload
from penstock.protocols.driver import Part

if TYPE_CHECKING:
    from collections.abc import Callable
    from types import TracebackType

    from penstock.fetch.fetcher import Fetcher
    from penstock.fetch.operation import Operation
    from penstock.options import WriteOptions
    from penstock.protocols.driver import Attributes
    from penstock.protocols.exchange import Exchange
    from penstock.values import ObjectMeta, Span

__all__ = ["Writer", "put"]

_ABORT_S = 5.0  # a store that does not answer must not keep an exception, or Ctrl-C, from getting out
_FIRST_BYTES = 64 << 10  # the first buffer doubles from here: most objects are small, and 16 MiB cost 5 ms to clear
_open: weakref.WeakSet[Writer] = weakref.WeakSet()
_leaving: weakref.WeakSet[Operation[None]] = weakref.WeakSet()


@dataclass(slots=True, eq=False)
class _Sent:
    """A part on its way, and the buffer it is sent from."""

    part: Part
    buffer: bytearray
    size_bytes: int
    operation: Operation[str]


def put(fetcher: Fetcher, key: str, data: bytes | bytearray | memoryview, attributes: Attributes) -> str:
    """Write one small object in one request; returns its ETag."""
    body = payload(fetcher, data)
    etag = fetcher.run(lambda: fetcher.driver.put(key, body, attributes))
    if listening():
        emit(Committed(fetcher.driver.url(key), len(body.data), etag))
    return etag


class Writer(io.BufferedIOBase):
    """A write-only file. Parts go up while you write; the object appears, whole and compared, when it is closed.

    Leaving a ``with`` block by an exception, dropping the last reference, or ending the process publishes nothing and
    leaves what stood there before. So does ``close`` while an exception that came after the opening is being handled
    (``finally: file.close()``, ``contextlib.closing``, ``with io.TextIOWrapper(file)``): it raises that one again. An
    object that fits in one part costs two requests (PUT, HEAD); a longer one three and one for each part; a conditional
    one another HEAD. Memory: ``options.buffer_bytes``.
    """

    def __init__(self, fetcher: Fetcher, key: str, options: WriteOptions, attributes: Attributes) -> None:
        """Begin an object; nothing is sent before a part is full."""
        super().__init__()
        self._fetcher = fetcher
        self._key = key
        self._options = options
        self._filling = self._into(bytearray(_FIRST_BYTES))
        self._offset = 0
        self._written = 0
        self._upload = ""
        self._sent: list[_Sent] = []
        self._etags: list[str] = []
        self._attributes = marked(attributes)
        self._ended = False
        self._pid = os.getpid()
        self._handled = sys.exception()
        _open.add(self)
        # Last registered, first run: before the I/O thread ends, also where a fork has started another one since.
        atexit.unregister(_abort_all)
        atexit.register(_abort_all)

    @property
    def url(self) -> str:
        """Where the object will be."""
        return self._fetcher.driver.url(self._key)

    def writable(self) -> bool:
        """Return True."""
        return True

    def tell(self) -> int:
        """Return the number of bytes written."""
        return self._written

    def flush(self) -> None:
        """Do nothing: a part of an object cannot be published."""

    def write(self, data: object, /) -> int:
        """Take any bytes-like object; blocks while ``buffer_bytes`` are in flight.

        Raises:
            PenstockError: A part could not be sent; the upload is aborted then.
            ValueError: The file is closed.

        """
        self._check_open()
        view = memoryview(data).cast("B")  # type: ignore[arg-type]
        done = 0
        try:
            while done < len(view):
                if self._filling.full:
                    self._make_room()
                done += self._filling.take(view[done:])
        except BaseException:
            self.abort()
            raise
        self._written += done
        return done

    def append(self, span: Span, at_once: int) -> None:
        """Take a span of another object of the bucket, as a part of its own, copied by the store; not after ``write``.

        Blocks while ``at_once`` parts are on their way.
        """
        self._check_open()
        driver, key, size = self._fetcher.driver, self._key, (span.stop or 0) - span.start
        try:
            while len(self._sent) >= at_once:
                self._collect(block=True)
            self._start(bytearray(), size, lambda upload, part: driver.copy_part(key, upload, part, span))
        except BaseException:
            self.abort()
            raise
        self._written += size

    def settle(self) -> None:
        """Wait until every part that was sent is there."""
        while self._sent:
            self._collect(block=True)

    def close(self) -> None:
        """Publish the object; closing again does nothing. On an error nothing is published.

        Raises:
            PenstockError: The object could not be written, or is not what was written.

        """
        if self._ended:
            return
        self._check_open()
        error = sys.exception()
        if error is not None and error is not self._handled:
            self.abort()
            error.add_note(f"{self.url} was closed while this was being handled: nothing was published there")
            raise error
        self._publish()

    def _publish(self) -> None:
        try:
            found = self._commit()
        except BaseException:
            self.abort()
            raise
        self._end()
        if listening():
            emit(Committed(self.url, found.size, found.etag))

    def abort(self) -> None:
        """Publish nothing and free what the store holds of it; harmless at any time, and over in seconds."""
        if self._ended:
            return
        leaving = self._leave()
        if leaving is not None:
            wait([leaving.future], timeout=_ABORT_S)

    def _leave(self) -> Operation[None] | None:
        """End here and have the store forget the upload; waits for nothing."""
        self._end()
        fetcher, key, upload = self._fetcher, self._key, self._upload
        if upload and self._pid == os.getpid():
            # In this order: a part that lands after the abort would stay for ever.
            fetcher.call_off(sent.operation for sent in self._sent)
            # The upload is invisible either way, and what led here is the error to raise.
            with suppress(PenstockError):
                leaving = fetcher.start(lambda: fetcher.driver.abort(key, upload))
                _leaving.add(leaving)
                return leaving
        return None

    def __enter__(self) -> Self:
        """Return itself."""
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Publish, unless the block failed."""
        if kind is not None:
            self.abort()
        elif not self._ended:
            self._check_open()
            self._publish()

    def __del__(self) -> None:
        """Abort: only ``close`` publishes. Without waiting: any thread may be the one that collects garbage."""
        if not getattr(self, "_ended", True):
            self._leave()

    def __reduce__(self) -> str:
        """Refuse: half an object cannot move to another process."""
        raise TypeError("an open penstock writer cannot be pickled; write in the process that opened it")

    def _check_open(self) -> None:
        if self._ended:
            message = f"write to a closed object: {self.url}"
            raise ValueError(message)
        if self._pid != os.getpid():
            raise Unusable("a writer was opened before a fork and used after it", url=self.url)

    def _end(self) -> None:
        self._ended = True
        _open.discard(self)
        self._filling = Filling(bytearray(), digests=False)
        self._handled = None
        super().close()

    def _make_room(self) -> None:
        """Grow the first buffer until it is a part; send a full one and go on in the next."""
        size = part_bytes(len(self._etags) + 1, self._options.part_bytes)
        if len(self._filling.buffer) < size:
            self._filling.grow(size)
        else:
            self._send()
            self._filling = self._into(self._spare(part_bytes(len(self._etags) + 1, self._options.part_bytes)))

    def _into(self, buffer: bytearray) -> Filling:
        return Filling(buffer, digests=self._fetcher.driver.abilities.digests)

    def _send(self) -> None:
        """Send what the buffer holds as the next part."""
        driver, key, filling = self._fetcher.driver, self._key, self._filling
        body = filling.payload()
        self._start(filling.buffer, filling.size, lambda upload, part: driver.part(key, upload, part, body))

    def _start(self, buffer: bytearray, size_bytes: int, make: Callable[[str, Part], Exchange[str]]) -> None:
        """Begin the upload, if need be, and send its next part on its way."""
        driver, key = self._fetcher.driver, self._key
        if not self._upload:
            self._upload = self._fetcher.run(lambda: driver.create(key, self._attributes))
        part, upload = Part(len(self._etags) + 1, self._offset), self._upload
        operation = self._fetcher.start(lambda: make(upload, part))
        self._sent.append(_Sent(part, buffer, size_bytes, operation))
        self._etags.append("")
        self._offset += size_bytes

    def _spare(self, size: int) -> bytearray:
        """Return a buffer of ``size``; waits for a part when as many bytes as allowed are in flight."""
        free: list[bytearray] = self._collect(block=False)
        while sum(len(sent.buffer) for sent in self._sent) + size > max(self._options.buffer_bytes, 2 * size):
            free = self._collect(block=True)
        return next((buffer for buffer in free if len(buffer) == size), None) or bytearray(size)

    def _collect(self, *, block: bool) -> list[bytearray]:
        """Take the parts that are done; returns their buffers. Raises what went wrong with one."""
        if block and self._sent:
            await_one([sent.operation.future for sent in self._sent])
        done = [sent for sent in self._sent if sent.operation.future.done()]
        self._sent = [sent for sent in self._sent if sent not in done]
        for sent in done:
            self._etags[sent.part.number - 1] = sent.operation.future.result()
            if listening():
                emit(PartSent(self.url, sent.part.number, sent.size_bytes))
        return [sent.buffer for sent in done]

    def _commit(self) -> ObjectMeta:
        driver, key, attributes = self._fetcher.driver, self._key, self._attributes
        publication = Publication(self._fetcher, key, self._written, attributes)
        if not self._upload:
            body = self._filling.payload()
            return publication.send(lambda: driver.put(key, body, attributes))
        if self._filling.size:
            self._send()
        self.settle()
        upload, etags, new, old = self._upload, self._etags, attributes.create_only, attributes.replaces
        return publication.send(lambda: driver.complete(key, upload, etags, create_only=new, replaces=old))


def _abort_all() -> None:
    """Free the uploads that are open when the interpreter ends; runs before the I/O thread stops."""
    for writer in list(_open):
        writer._leave()  # noqa: SLF001  the same class's business; all of them before the one wait
    wait([each.future for each in list(_leaving)], timeout=_ABORT_S)
