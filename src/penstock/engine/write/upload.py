"""Write-only file that becomes an object when it is closed without an error, and nothing otherwise."""

from __future__ import annotations

import atexit
import dis
import io
import logging
import os
import sys
import warnings
import weakref
from dataclasses import replace
from functools import partial
from time import monotonic
from typing import TYPE_CHECKING, Any, Literal, Self, TypeVar

from penstock.engine.blocks import compute_seek
from penstock.engine.buffer import flat
from penstock.engine.contracts.driver import Multipart, PartCopy, Put
from penstock.engine.fetch.fetcher import digest_payload
from penstock.engine.operations.policy import again
from penstock.engine.support import require
from penstock.engine.waiting import Turn, may_wait
from penstock.engine.write.parts import PartBuffer, Parts, cut, digested_ahead
from penstock.engine.write.publish import Publication
from penstock.errors import Cancelled, PenstockError, Unusable
from penstock.events import Committed, emit, listening, operation
from penstock.values import MARK, marked

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from types import FrameType, TracebackType

    from penstock.engine.contracts.driver import Attributes, Payload, UploadPart
    from penstock.engine.contracts.exchange import Exchange
    from penstock.engine.fetch.fetcher import Fetcher
    from penstock.engine.operations.operation import VerbOperation
    from penstock.options import WriteOptions
    from penstock.values import ObjectMeta, Span

    _Verb = Callable[[str, str, UploadPart, "B"], Exchange[str]]

B = TypeVar("B")

# A store that does not answer must not hold up an exception, nor the end of a process, for longer.
_ABORT_S = 5.0
# The same for Ctrl-C; the request to the store is sent all the same.
_INTERRUPTED_S = 1.0
_LOG = logging.getLogger("penstock")
_open: weakref.WeakSet[Writer] = weakref.WeakSet()
_leaving: weakref.WeakSet[VerbOperation[None]] = weakref.WeakSet()


# States of a ``Writer``. Each step but the request to abort holds ``_turn``; the first ``close`` or error decides.
#
# | state     | bytes and requests                             | next                                               |
# |-----------|------------------------------------------------|----------------------------------------------------|
# | open      | ``_part`` fills; ``_parts`` sends what is full | close: ended; error: aborting                      |
# | aborting  | parts in flight are called off                 | ended, by the thread that has the turn             |
# | ended     | none; ``_failure`` says why nothing was        | closing again raises ``_failure`` if a write did   |
# |           | published, None after a success                | (``_untold``), once, and returns otherwise         |
class Writer(io.BufferedIOBase):
    """A write-only file. Parts are uploaded while you write; the object appears, whole and compared, on close.

    Leaving a ``with`` block by an exception, dropping the last reference, or ending the process publishes nothing and
    leaves the previous object. The same holds for ``close`` in a ``finally`` or ``__exit__`` that an exception runs
    through (``contextlib.closing``, ``with io.TextIOWrapper(file)``), if it came after the opening. In an ``except``
    clause ``close`` publishes. An object that fits in one part costs two requests (PUT, HEAD); a longer one three and
    one for each part; a conditional write another HEAD. Memory: ``options.buffer_bytes``.

    Several threads may use one writer: their writes follow one another. The first ``close`` decides; other threads wait
    for it, then return or raise as it does. ``abort`` ends the writes of another thread with ``Cancelled``; if a thread
    has begun to publish the object, the publication decides.
    """

    def __init__(self, fetcher: Fetcher, key: str, options: WriteOptions, attributes: Attributes) -> None:
        """Begin an object; nothing is sent before a part is full. Raises ``Unsupported`` if the store is read-only."""
        require(fetcher.driver, Put, key)
        super().__init__()
        fetcher.check_metadata(key, attributes)
        self._fetcher = fetcher
        self._key = key
        self._options = options
        self._part = self._into(bytearray())
        self._written = 0
        self._published = ""
        self._strayed = False  # whether a seek to another position was refused
        self._attributes = replace(attributes, metadata=marked(attributes.metadata))
        self._parts = Parts(fetcher, key, options, self._attributes)
        self._state = "open"  # or "aborting", "ended"
        self._turn = Turn()
        self._failure: PenstockError | None = None  # why nothing was published
        self._untold = False  # whether a write raised it, so that a later ``close`` must raise it again
        self._pid = os.getpid()
        self._handled = sys.exception()
        self._scope = operation("upload", fetcher.driver.url, key)
        _open.add(self)
        # The handler registered last runs first: before the I/O thread ends, even if a fork has started another one
        # since.
        atexit.unregister(_abort_all)
        atexit.register(_abort_all)

    # -- Facts, in every state.

    @property
    def url(self) -> str:
        return self._fetcher.driver.url(self._key)

    @property
    def name(self) -> str:
        return self.url

    @property
    def etag(self) -> str:
        return self._published

    @property
    def mark(self) -> str:
        """Metadata value that distinguishes this write from any other (``publish.MARK``)."""
        return self._attributes.metadata[MARK]

    @property
    def mode(self) -> str:
        return "xb" if self._attributes.create_only else "wb"

    def writable(self) -> bool:
        self._check_closed()
        return True

    def seekable(self) -> bool:
        self._check_closed()
        return False

    def tell(self) -> int:
        self._check_closed()
        return self._written

    def seek(self, offset: int, whence: int = io.SEEK_SET, /) -> int:
        """Raise ``UnsupportedOperation``: an object is written from its first byte to its last.

        A ``write`` after a refused seek to another position raises ``Unusable``: C libraries that ignore the refusal
        (soundfile's) would put their header after their data.
        """
        self._check_closed()
        self._strayed = (
            self._written > 0 and compute_seek(offset, whence, self._written, self._written) != self._written
        )
        raise io.UnsupportedOperation("cannot seek: objects are written sequentially")

    def flush(self) -> None:
        """Do nothing: a part of an object cannot be published."""
        self._check_closed()

    # -- Open: bytes are collected, and full parts are sent.

    def write(self, data: object, /) -> int:
        """Write any bytes-like object; blocks while ``buffer_bytes`` are in flight.

        A ``bytes`` object of several parts is sent without a copy, held until they have arrived, and digested by up to
        four threads. If a part could not be sent, the upload is aborted.
        """
        self._check_open()
        view, done = flat(data), 0
        with self._turn:
            self._check_open()  # another thread may have closed it meanwhile
            try:
                self._check_straight()
                # Of other buffers the caller may change the bytes once this returns.
                if type(data) is bytes and data:
                    done = self._send_views(data)
                while done < len(view):
                    if self._part.full:
                        self._make_room()
                    done += self._part.take(view[done:])
            except BaseException as error:
                self._fail(error)
                self._untold = True
                raise
            self._written += done
        return done

    def append(self, span: Span, at_once: int) -> None:
        """Add a span of another object of the bucket as a separate part, copied by the store; not after ``write``.

        Blocks while ``at_once`` parts are in flight.
        """
        driver, size = require(self._fetcher.driver, PartCopy, self._key), (span.stop or 0) - span.start
        self._add(bytearray(), (size, ""), driver.copy_part, span, at_once)

    def cut(self, size_bytes: int) -> Iterator[int]:
        return cut(size_bytes, self._options.part_bytes, self._fetcher.limits)

    def lend(self, size: int) -> bytearray:
        """Return memory for a part; blocks while ``buffer_bytes`` are in flight. Raises the error of a failed part."""
        self._check_open()
        with self._turn:
            try:
                return self._parts.buffer(size)
            except BaseException as error:
                self._fail(error)
                self._untold = True
                raise

    def give(self, buffer: bytearray) -> None:
        """Send memory of ``lend``, filled, as the next part without a copy; do not mix with ``write`` or ``append``."""
        body = digest_payload(buffer, self._fetcher.driver.abilities.digest)
        self._add(buffer, (len(buffer), body.digest), require(self._fetcher.driver, Multipart, self._key).part, body)

    def _add(self, buffer: bytearray, piece: tuple[int, str], verb: _Verb[B], body: B, at_once: int = 0) -> None:
        """Send a part that did not come from ``write``; with ``at_once``, first wait until fewer are in flight."""
        self._check_open()
        with self._turn:
            try:
                if at_once:
                    self._parts.settle(at_once - 1)
                self._scope.run(self._start, buffer, piece, verb, body)
            except BaseException as error:
                self._fail(error)
                self._untold = True
                raise
            self._written += piece[0]

    def settle(self) -> None:
        with self._turn:
            self._parts.settle()

    def _make_room(self) -> None:
        """Grow a buffer that began empty to the size of a part; send a full part and continue in the next buffer."""
        size = self._parts.next_bytes()
        if len(self._part.buffer) < size:
            self._parts.admit(self._part.doubled(size), size)
            self._part.grow(size)
        else:
            self._send(self._part.buffer, self._part.payload())
            self._part = self._into(self._parts.buffer(self._parts.next_bytes()))

    def _send_views(self, block: bytes) -> int:
        """Send the whole parts that an immutable block begins with, without a copy; return how many bytes they have.

        Nothing is sent behind bytes that wait to be sent, nor of a block that is longer than ``buffer_bytes``: its
        parts hold the whole of it. An object of one part is left for ``close``, which sends it in one request.
        """
        parts, done, size = self._parts, 0, self._parts.next_bytes()
        least = size if self._part.size or parts.upload else size + 1
        if self._part.size not in (0, size) or not least <= len(block) <= parts.most_bytes(size):
            return 0
        if self._part.size:
            self._send(self._part.buffer, self._part.payload())
            self._part = self._into(bytearray())
        for body in digested_ahead(parts.views(block), self._fetcher.driver.abilities.digest):
            parts.admit_view(len(body.data))
            self._send(block, body)
            done += len(body.data)
        parts.admit(0, size)
        return done

    def _into(self, buffer: bytearray) -> PartBuffer:
        return PartBuffer(buffer, self._fetcher.driver.abilities.digest)

    def _send(self, memory: bytearray | bytes, body: Payload) -> None:
        driver = require(self._fetcher.driver, Multipart, self._key)
        self._scope.run(self._start, memory, (len(body.data), body.digest), driver.part, body)

    def _start(self, buffer: bytearray | bytes, piece: tuple[int, str], verb: _Verb[B], body: B) -> None:
        self._parts.begin()
        self._check_wanted()
        self._parts.send(buffer, piece, verb, body)

    # -- From open to published.

    def close(self) -> None:
        """Publish the object; on an error, publish nothing. A second call does nothing.

        Raises the cause if the object could not be written or differs; also if ``write`` raised that error and
        no thread handles it any more.
        """
        error = self._unwinding()
        if self._state == "ended":
            if error is None:
                self._tell()
            return
        self._check_open()
        if error is None:
            self._publish()
            return
        self._abort(error)
        error.add_note(f"{self.url} was closed during an exception, so nothing was published")

    def _unwinding(self) -> BaseException | None:
        """Return the exception that came after the opening and propagates through the caller; None without one."""
        error = sys.exception()
        if error is None or error is self._handled:
            return None
        frame = sys._getframe(1)  # noqa: SLF001  public in all but its name
        while (kind := _handler(frame)) == "" and frame.f_back is not None:
            frame = frame.f_back
        if kind == "":
            self._abort(error)
            message = f"{type(error).__name__} is being handled outside Python code, and may propagate"
            raise Unusable(f"cannot publish while {message}: close the file before or after", url=self.url)
        return error if kind == "finally" else None

    def __enter__(self) -> Self:
        self._check_open()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if kind is not None:
            self._abort(error)
        elif self._state == "ended":
            self._tell()
        else:
            self._check_open()
            self._publish()

    def _publish(self) -> None:
        with self._turn:
            if self._state == "ended":
                # Another thread ended it while this one waited.
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

    def _commit(self) -> ObjectMeta:
        driver, key, attributes, parts = self._fetcher.driver, self._key, self._attributes, self._parts
        if not parts.upload:
            body = self._part.payload()
            if driver.abilities.put_digest is not None:
                body = self._fetcher.payload(body.data)
            publication = Publication(self._fetcher, key, ((self._part.size, body.digest),), attributes)
            self._check_wanted()
            return publication.send(partial(require(driver, Put, key).put, key, body, attributes))
        if self._part.size:
            self._send(self._part.buffer, self._part.payload())
        parts.settle()
        self._check_wanted()
        return parts.publish(attributes)

    # -- From open, over aborting, to failed.

    def abort(self) -> None:
        """Publish nothing and free stored parts of the object; harmless at any time, and takes seconds at most."""
        self._abort(None)

    def _abort(self, error: BaseException | None) -> None:
        if self._state == "ended":
            return
        if isinstance(error, GeneratorExit):
            # Python drops this exception.
            self._log("of a generator that ended early was left")
        leaving, limit_s = None, _ABORT_S if isinstance(error, Exception | None) else _INTERRUPTED_S
        limit_s = self._fetcher.grace_s(error, limit_s)
        if self._pid != os.getpid():
            # In a forked child: the thread that holds the turn does not run here to release it.
            self._end()
        else:
            # A thread that holds the turn sees this, and ``call_off`` wakes it if it waits for a part.
            self._state = "aborting"
            self._parts.call_off()
            if self._turn.take(limit_s):
                try:
                    if self._state != "ended":
                        leaving = self._leave()
                finally:
                    self._turn.release()
        if leaving is not None and may_wait():
            leaving.wait(limit_s)

    def _fail(self, error: BaseException) -> None:
        message = f"{type(error).__name__} interrupted the write; nothing was published"
        self._failure = again(error) if isinstance(error, PenstockError) else Cancelled(message, url=self.url)
        self._abort(error)

    def _leave(self) -> VerbOperation[None] | None:
        self._failure = self._failure or self._aborted()
        self._end()
        leaving = self._parts.abort() if self._pid == os.getpid() else None
        if leaving is not None:
            _leaving.add(leaving)
        return leaving

    def __del__(self) -> None:
        """Abort without waiting: only ``close`` publishes, and any thread may run the garbage collector."""
        if getattr(self, "_state", "ended") != "ended":
            self._drop("was dropped")

    def _dealloc_warn(self, wrapper: object) -> None:
        """Abort, with a warning: ``io`` calls this before a dropped wrapper (text, buffer) closes its file."""
        if self._state != "ended":
            self._drop("was dropped")
            message = f"{wrapper!r} was not closed: nothing was published at {self.url}"
            warnings.warn(message, ResourceWarning, stacklevel=2, source=wrapper)

    def _drop(self, end: str) -> None:
        self._log(end)
        self._leave()

    def _log(self, end: str) -> None:
        if self._pid == os.getpid():
            message = (
                f"a file {end} unclosed: nothing was published; use 'with ps.open(url, mode) as file', which closes it"
            )
            # The error hides the secrets in a URL.
            _LOG.error("%s", Unusable(message, url=self.url))

    # -- Ended.

    def _end(self) -> None:
        self._state = "ended"
        _open.discard(self)
        self._part = PartBuffer(bytearray(), None)
        self._parts.free.clear()
        self._handled = None
        self._scope.end(self._failure)
        super().close()

    def _tell(self) -> None:
        """Raise, once, the reason why nothing was published, if the caller ignored the error of ``write``."""
        untold, self._untold = self._untold, False
        if untold and self._failure is not None:
            raise again(self._failure)

    def __reduce__(self) -> str:
        """Raise TypeError: an unfinished object cannot move to another process."""
        raise TypeError("an open penstock writer cannot be pickled; write in the process that opened it")

    # -- What each step asks first.

    def _check_closed(self) -> None:
        if self.closed:
            raise ValueError(f"this file is closed; open the URL again: {self.url}")

    def _check_open(self) -> None:
        self._check_closed()
        if self._pid != os.getpid():
            raise Unusable("a writer cannot be used after a fork: open it in the process that uses it", url=self.url)

    def _check_straight(self) -> None:
        if self._strayed:
            advice = "let it write to an io.BytesIO or a local file, and write the result here"
            message = f"objects cannot be changed after they are written, as this library tries to: {advice}"
            raise Unusable(message, url=self.url)

    def _check_wanted(self) -> None:
        if self._state != "open":
            raise self._aborted()

    def _aborted(self) -> Cancelled:
        return Cancelled("another thread aborted it, nothing was published", url=self.url)


# After these nothing of the frame runs next but an exception handler or the target of a jump.
_LAST = {
    "JUMP_BACKWARD",
    "JUMP_BACKWARD_NO_INTERRUPT",
    "JUMP_FORWARD",
    "RAISE_VARARGS",
    "RERAISE",
    "RETURN_CONST",
    "RETURN_VALUE",
}


def _handler(frame: FrameType) -> Literal["except", "finally", ""]:
    """Return the kind of handler around a frame (``finally`` also for ``with``); empty outside of handlers.

    Python tells only that an exception is being handled (``sys.exception``). That it will propagate is in the bytecode:
    the handler of a ``finally`` or ``with`` compares the exception with no class.
    """
    if not frame.f_code.co_exceptiontable:
        return ""
    code = dis.Bytecode(frame.f_code)
    entries: list[Any] = code.exception_entries  # type: ignore[attr-defined]  # since 3.11
    steps = [*code]
    numbers = {step.offset: number for number, step in enumerate(steps)}
    # By instruction: the handlers that are active before it, the innermost last.
    active: dict[int, tuple[int, ...]] = {}
    todo: list[tuple[int | None, tuple[int, ...]]] = [(0, ())]
    while todo:
        number, inside = todo.pop()
        if number is None or number in active or number == len(steps):
            continue
        active[number], step = inside, steps[number]
        todo += [(numbers[each.target], inside) for each in entries if each.start <= step.offset < each.end]
        if step.opname == "PUSH_EXC_INFO":
            inside = (*inside, number)
        elif step.opname == "POP_EXCEPT":
            inside = inside[:-1]
        if step.opcode in dis.hasjrel or step.opcode in dis.hasjabs:
            todo.append((numbers.get(step.argval), inside))
        if step.opname not in _LAST:
            todo.append((number + 1, inside))
    # In 3.11 the last instruction of a frame that calls Python code may be a cache behind the call.
    handlers = active.get(max(numbers[at] for at in numbers if at <= frame.f_lasti), ())
    if not handlers:
        return ""
    compared = {"CHECK_EXC_MATCH", "CHECK_EG_MATCH"}
    own = (steps[number].opname for number, each in active.items() if each == handlers)
    bare = steps[handlers[-1] + 1].opname == "POP_TOP"
    return "except" if bare or not compared.isdisjoint(own) else "finally"


def _abort_all() -> None:
    """Abort open uploads at the interpreter's end, before the I/O thread stops."""
    for writer in list(_open):
        writer._drop("was left")  # noqa: SLF001  of this module; all writers before the one wait
    until = monotonic() + _ABORT_S
    for leaving in list(_leaving):
        leaving.wait(until - monotonic())
