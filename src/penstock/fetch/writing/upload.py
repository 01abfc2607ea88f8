"""A file to write to that becomes an object when it is closed well, and nothing at all otherwise."""

from __future__ import annotations

import atexit
import io
import os
import sys
import warnings
import weakref
from functools import partial
from time import monotonic
from typing import TYPE_CHECKING, Self, TypeVar

from penstock.blocks import moved
from penstock.buffer import flat
from penstock.errors import Cancelled, PenstockError, Unusable
from penstock.events import Committed, emit, listening, operation
from penstock.fetch.plan import cut
from penstock.fetch.policy import again
from penstock.fetch.writing.partbuffer import PartBuffer
from penstock.fetch.writing.parts import Parts
from penstock.fetch.writing.publish import Publication, check_metadata, marked, payload
from penstock.protocols.driver import Multipart, PartCopy, Put
from penstock.support import require
from penstock.waiting import Turn, may_wait

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from types import TracebackType

    from penstock.fetch.fetcher import Fetcher
    from penstock.fetch.operation import Operation
    from penstock.options import WriteOptions
    from penstock.protocols.driver import Attributes, Part
    from penstock.protocols.exchange import Exchange
    from penstock.values import ObjectMeta, Span

    _Verb = Callable[[str, str, Part, "B"], Exchange[str]]

__all__ = ["Writer"]

B = TypeVar("B")

_ABORT_S = 5.0  # a store that does not answer must not keep an exception from getting out, nor a process from ending
_INTERRUPTED_S = 1.0  # nor Ctrl-C; the store is told all the same
_FIRST_BYTES = 64 << 10  # the first buffer doubles from here: most objects are small, and 16 MiB cost 5 ms to clear
_open: weakref.WeakSet[Writer] = weakref.WeakSet()
_leaving: weakref.WeakSet[Operation[None]] = weakref.WeakSet()


class Writer(io.BufferedIOBase):
    """A write-only file. Parts go up while you write; the object appears, whole and compared, when it is closed.

    Leaving a ``with`` block by an exception, dropping the last reference, or ending the process publishes nothing and
    leaves what stood there before. So does ``close`` while an exception that came after the opening is being handled
    (``finally: file.close()``, ``contextlib.closing``, ``with io.TextIOWrapper(file)``): it raises that one again. An
    object that fits in one part costs two requests (PUT, HEAD); a longer one three and one for each part; a conditional
    one another HEAD. Memory: ``options.buffer_bytes``.

    Several threads may use one: their writes follow one another. The first ``close`` decides, and others wait for it
    and return, or raise, what it does. ``abort`` ends what another thread writes with ``Cancelled``; where one has
    begun to publish the object, that decides.
    """

    def __init__(self, fetcher: Fetcher, key: str, options: WriteOptions, attributes: Attributes) -> None:
        """Begin an object; nothing is sent before a part is full. ``Unsupported`` where the store takes no objects."""
        require(fetcher.driver, Put, key)
        super().__init__()
        check_metadata(fetcher, key, attributes)
        self._fetcher = fetcher
        self._key = key
        self._options = options
        self._part = self._into(bytearray(_FIRST_BYTES))
        self._written = 0
        self._published = ""
        self._strayed = False  # asked to go back, and refused
        self._attributes = marked(attributes)
        self._parts = Parts(fetcher, key, options, self._attributes)
        self._ended = self._aborting = False
        self._turn = Turn()
        self._failure: PenstockError | None = None  # why nothing was published, for a thread that waits to close
        self._untold: PenstockError | None = None  # the same, where a write raised it: for who closes as if it had not
        self._pid = os.getpid()
        self._handled = sys.exception()
        self._scope = operation("upload", fetcher.driver.url, key)
        _open.add(self)
        # Last registered, first run: before the I/O thread ends, also where a fork has started another one since.
        atexit.unregister(_abort_all)
        atexit.register(_abort_all)

    @property
    def url(self) -> str:
        """Where the object will be."""
        return self._fetcher.driver.url(self._key)

    @property
    def name(self) -> str:
        """The object's URL."""
        return self.url

    @property
    def etag(self) -> str:
        """The version that was published; empty before, and where the store has none."""
        return self._published

    @property
    def mode(self) -> str:
        """``xb`` where only a new object is written, else ``wb``."""
        return "xb" if self._attributes.create_only else "wb"

    def writable(self) -> bool:
        """Return True."""
        self._check_closed()
        return True

    def seekable(self) -> bool:
        """Return False."""
        self._check_closed()
        return False

    def tell(self) -> int:
        """Return the number of bytes written."""
        self._check_closed()
        return self._written

    def seek(self, offset: int, whence: int = io.SEEK_SET, /) -> int:
        """Refuse: an object is written from its first byte to its last.

        A ``write`` after the refusal of another place than this raises ``Unusable``: C libraries that do not hear of
        the refusal (soundfile's) would put their header behind their data.
        """
        self._check_closed()
        self._strayed = self._written > 0 and moved(offset, whence, self._written, self._written) != self._written
        raise io.UnsupportedOperation("seek: an object is written from its first byte to its last")

    def flush(self) -> None:
        """Do nothing: a part of an object cannot be published."""
        self._check_closed()

    def write(self, data: object, /) -> int:
        """Take any bytes-like object; blocks while ``buffer_bytes`` are in flight.

        Raises:
            PenstockError: A part could not be sent; the upload is aborted then.
            ValueError: The file is closed.

        """
        self._check_open()
        view, done = flat(data), 0
        with self._turn:
            self._check_open()  # another thread may have closed it meanwhile
            try:
                self._check_straight()
                while done < len(view):
                    if self._part.full:
                        self._make_room()
                    done += self._part.take(view[done:])
            except BaseException as error:
                self._untold = self._fail(error)
                raise
            self._written += done
        return done

    def append(self, span: Span, at_once: int) -> None:
        """Take a span of another object of the bucket, as a part of its own, copied by the store; not after ``write``.

        Blocks while ``at_once`` parts are on their way.
        """
        driver, size = require(self._fetcher.driver, PartCopy, self._key), (span.stop or 0) - span.start
        self._add(bytearray(), (size, ""), driver.copy_part, span, at_once)

    def cut(self, size_bytes: int) -> Iterator[int]:
        """Yield the sizes of the parts of an object of ``size_bytes``."""
        return cut(size_bytes, self._options.part_bytes, self._fetcher.limits)

    def lend(self, size: int) -> bytearray:
        """Return memory for a part; blocks while ``buffer_bytes`` are on their way. Raises why a part was not sent."""
        self._check_open()
        with self._turn:
            try:
                return self._parts.buffer(size)
            except BaseException as error:
                self._untold = self._fail(error)
                raise

    def give(self, buffer: bytearray) -> None:
        """Take memory of ``lend``, filled, as the next part, without a copy; ``write`` and ``append`` are not used."""
        body = self._into(buffer, len(buffer)).payload()
        self._add(buffer, (len(buffer), body.digest), require(self._fetcher.driver, Multipart, self._key).part, body)

    def _add(self, buffer: bytearray, piece: tuple[int, str], verb: _Verb[B], body: B, at_once: int = 0) -> None:
        """Send a part beside those of ``write``; with ``at_once`` wait first, until fewer are on their way."""
        self._check_open()
        with self._turn:
            try:
                if at_once:
                    self._parts.settle(at_once - 1)
                self._scope.run(self._start, buffer, piece, verb, body)
            except BaseException as error:
                self._untold = self._fail(error)
                raise
            self._written += piece[0]

    def settle(self) -> None:
        """Wait until every part that was sent is there."""
        with self._turn:
            self._parts.settle()

    def close(self) -> None:
        """Publish the object; closing again does nothing, once that is decided. On an error nothing is published.

        Raises:
            PenstockError: The object could not be written, or is not what was written; also where that was raised by
                ``write`` and no thread handles it any more.

        """
        error = sys.exception()
        if self._ended:
            if error is None:
                self._tell()
            return
        self._check_open()
        if error is not None and error is not self._handled:
            self._abort(error)
            error.add_note(f"{self.url} was closed while this was being handled: nothing was published there")
            raise error
        self._publish()

    def _publish(self) -> None:
        with self._turn:
            if self._ended:  # by another thread, while this one waited
                if self._failure is not None:
                    raise again(self._failure)
                return
            try:
                found = self._scope.run(self._commit)
            except BaseException as error:
                self._fail(error)
                raise
            self._published = found.etag
            self._end()
        if listening():
            emit(Committed(self.url, found.size, found.etag))

    def _tell(self) -> None:
        """Raise, once, why nothing was published, to a caller who let a failed ``write`` pass."""
        untold, self._untold = self._untold, None
        if untold is not None:
            raise again(untold)

    def _fail(self, error: BaseException) -> PenstockError:
        """Abort, for a reason that other threads hear, too; returns it."""
        message = f"{type(error).__name__} came while it was written, and nothing was published"
        self._failure = why = again(error) if isinstance(error, PenstockError) else Cancelled(message, url=self.url)
        self._abort(error)
        return why

    def abort(self) -> None:
        """Publish nothing and free what the store holds of it; harmless at any time, and over in seconds."""
        self._abort(None)

    def _abort(self, error: BaseException | None) -> None:
        if self._ended:
            return
        leaving, limit_s = None, _ABORT_S if isinstance(error, Exception | None) else _INTERRUPTED_S
        if self._pid != os.getpid():  # a fork's copy: the thread that has the turn is not here to give it back
            self._end()
        else:
            self._aborting = True  # seen by a thread that has the turn, and woken by this where it waits for a part
            self._parts.call_off()
            if self._turn.take(limit_s):
                try:
                    if not self._ended:
                        leaving = self._leave()
                finally:
                    self._turn.release()
        if leaving is not None and may_wait():
            leaving.wait(limit_s)

    def _aborted(self) -> Cancelled:
        return Cancelled("another thread aborted it, nothing was published", url=self.url)

    def _leave(self) -> Operation[None] | None:
        """End here and have the store forget the upload; waits for nothing."""
        self._failure = self._failure or self._aborted()
        self._end()
        leaving = self._parts.abort() if self._pid == os.getpid() else None
        if leaving is not None:
            _leaving.add(leaving)
        return leaving

    def __enter__(self) -> Self:
        """Return itself."""
        self._check_open()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Publish, unless the block failed. Raises as ``close``."""
        if kind is not None:
            self._abort(error)
        elif self._ended:
            self._tell()
        else:
            self._check_open()
            self._publish()

    def __del__(self) -> None:
        """Abort: only ``close`` publishes. Without waiting: any thread may be the one that collects garbage."""
        if not getattr(self, "_ended", True):
            self._leave()

    def _dealloc_warn(self, wrapper: object) -> None:
        """Abort, and say so: ``io`` calls this before a wrapper (text, buffer) that is dropped closes its file."""
        if not self._ended:
            self._leave()
            message = f"{wrapper!r} was not closed: nothing was published at {self.url}"
            warnings.warn(message, ResourceWarning, stacklevel=2, source=wrapper)

    def __reduce__(self) -> str:
        """Refuse: half an object cannot move to another process."""
        raise TypeError("an open penstock writer cannot be pickled; write in the process that opened it")

    def _check_closed(self) -> None:
        if self.closed:
            message = f"this file is closed; open the URL anew: {self.url}"
            raise ValueError(message)

    def _check_open(self) -> None:
        self._check_closed()
        if self._pid != os.getpid():
            raise Unusable("a writer was opened before a fork and used after it", url=self.url)

    def _check_straight(self) -> None:
        if self._strayed:
            advice = "have it write to an io.BytesIO or a local file, and write those bytes here at once"
            message = f"a library wants to change what it has written, and an object cannot: {advice}"
            raise Unusable(message, url=self.url)

    def _check_wanted(self) -> None:
        if self._aborting or self._ended:
            raise self._aborted()

    def _end(self) -> None:
        self._ended = True
        _open.discard(self)
        self._part = PartBuffer(bytearray(), None)
        self._parts.free.clear()
        self._handled = None
        self._scope.end(self._failure)
        super().close()

    def _make_room(self) -> None:
        """Grow the first buffer until it is a part; send a full one and go on in the next."""
        size = self._parts.next_bytes()
        if len(self._part.buffer) < size:
            self._part.grow(size)
        else:
            self._send()
            self._part = self._into(self._parts.buffer(self._parts.next_bytes()))

    def _into(self, buffer: bytearray, size: int = 0) -> PartBuffer:
        return PartBuffer(buffer, self._fetcher.driver.abilities.digest, size)

    def _send(self) -> None:
        """Send what the buffer holds as the next part."""
        driver, filled = require(self._fetcher.driver, Multipart, self._key), self._part
        body = filled.payload()
        self._scope.run(self._start, filled.buffer, (filled.size, body.digest), driver.part, body)

    def _start(self, buffer: bytearray, piece: tuple[int, str], verb: _Verb[B], body: B) -> None:
        """Begin the upload, if need be, and send its next part on its way."""
        self._parts.begin()
        self._check_wanted()
        self._parts.send(buffer, piece, verb, body)

    def _commit(self) -> ObjectMeta:
        driver, key, attributes, parts = self._fetcher.driver, self._key, self._attributes, self._parts
        if not parts.upload:
            body = self._part.payload()
            if driver.abilities.put_digest is not None:
                body = payload(self._fetcher, body.data)
            publication = Publication(self._fetcher, key, ((self._part.size, body.digest),), attributes)
            self._check_wanted()
            return publication.send(partial(require(driver, Put, key).put, key, body, attributes))
        if self._part.size:
            self._send()
        parts.settle()
        self._check_wanted()
        return parts.publish(attributes)


def _abort_all() -> None:
    """Free the uploads that are open when the interpreter ends; runs before the I/O thread stops."""
    for writer in list(_open):
        writer._leave()  # noqa: SLF001  the same class's business; all of them before the one wait
    until = monotonic() + _ABORT_S
    for leaving in list(_leaving):
        leaving.wait(until - monotonic())
