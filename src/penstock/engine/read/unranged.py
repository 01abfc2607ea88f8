"""Objects of a server that ignores ``Range``: each is read once, from start to end, and spans are cut from it."""

from __future__ import annotations

from contextlib import suppress
from time import monotonic
from typing import TYPE_CHECKING

from penstock.engine.operations.operation import VerbOperation, head_with_sums
from penstock.engine.read.spanread import SpanRead
from penstock.engine.waiting import Inbox
from penstock.errors import Bug, Cancelled, PenstockError, Unusable
from penstock.values import Span

if TYPE_CHECKING:
    from collections.abc import Sequence

    from penstock.engine.contracts.exchange import Request, Response, Transport, Work
    from penstock.engine.contracts.fetching import ReadOperation
    from penstock.engine.operations.policy import RetryPolicy

# Time after the last use: a reader of an object in pieces asks for the next ones within it.
_KEPT_S = 10.0
# Interval at which an object that needs memory checks whether there is some.
_LOOK_S = 0.05


class _Awake(Unusable):
    """Fault that wakes a waiting object when its delay is over: there is nothing to request."""


class WholeObjects:
    """Objects in flight or in memory, up to ``most_bytes`` in all; a larger object is refused.

    All methods except ``call_off`` run on the transport's thread.
    """

    def __init__(self, transport: Transport, most_bytes: int) -> None:
        self.most_bytes = most_bytes
        self._transport = transport
        self._held: dict[tuple[str, str], _WholeObject] = {}

    def add(self, read: SpanRead) -> None:
        """Give ``read`` its span of the whole object: one HEAD and one GET for all reads until it is freed."""
        at = read.span.key, read.span.etag
        whole = self._held.get(at)
        if whole is None:
            whole = self._held[at] = _WholeObject(self, read.policy, *at)
            self._transport.submit((whole,))
        whole.add(read)

    def call_off(self, reads: Sequence[SpanRead]) -> None:
        """End with ``Cancelled`` the reads, each ``called_off``, that wait for an object; from any thread."""
        for whole in list(self._held.values()):
            for read in reads:
                whole.drop(read)

    def room(self, size_bytes: int) -> bool:
        """Free objects without a waiting read, longest unused first, until they fit; return whether they do."""
        for whole in sorted(self._held.values(), key=lambda each: each.used_s):
            if sum(each.size_bytes for each in self._held.values()) + size_bytes <= self.most_bytes:
                return True
            if whole.data is not None:
                self.forget(whole)
        return not any(each.size_bytes for each in self._held.values())

    def forget(self, whole: _WholeObject) -> None:
        if self._held.get(whole.at) is whole:
            del self._held[whole.at]


class _WholeObject:
    """An object as an operation: a look-up of its size, a read, then a wait until it is unused for a while."""

    def __init__(self, wholes: WholeObjects, policy: RetryPolicy, key: str, etag: str) -> None:
        self.at = key, etag
        self.size_bytes = 0  # memory that it takes or will take
        self.used_s = monotonic()
        self.data: bytes | None = None
        self.version = ""
        self._wholes = wholes
        self._waiting: dict[SpanRead, None] = {}  # to take a read out and to end it is one step: see drop
        self._policy = policy
        self._look = VerbOperation(policy, head_with_sums(policy.driver, key, etag), Inbox())
        self._read: SpanRead | None = None

    def add(self, read: SpanRead) -> None:
        self.used_s = monotonic()
        if self.data is not None:
            read.cut(self.data, self.version)
            return
        self._waiting[read] = None
        if read.called_off:
            self.drop(read)

    def drop(self, read: SpanRead) -> None:
        if self._waiting.pop(read, self) is None:
            read.end(Cancelled("cancelled"))

    def finished(self, read: ReadOperation) -> None:
        """Do nothing: ``done`` checks whether the object is complete."""

    def request(self) -> Request | Work:
        operation = self._read or self._look
        if operation.complete:
            raise _Awake("no request is due")
        return operation.request()

    def done(self, response: Response) -> float | None:
        """Start the next step; a response while it waits (the transport's end) ends the waiting reads."""
        operation = self._read or self._look
        if operation.complete:
            if isinstance(response.fault, _Awake):
                return self._next()
            self._failed(response.fault or Bug("a response without a request"))
            return None
        delay_s = operation.done(response)
        return self._next() if delay_s is None else delay_s

    def _next(self) -> float | None:
        error = (self._read or self._look).error
        if error is not None:
            self._failed(error)
            return None
        if self._read is None:
            return self._begin()
        if self.data is None:
            return self._serve(self._read.take(), self._read.version)
        left_s = self.used_s + _KEPT_S - monotonic()
        if left_s > 0:
            return left_s
        self._wholes.forget(self)
        return None

    def _begin(self) -> float | None:
        meta, most_bytes = self._look.result(), self._wholes.most_bytes
        if meta.size > most_bytes:
            most = f"{most_bytes >> 20} MiB (ReadOptions.ahead_bytes) of what is read in pieces"
            size = f"this server ignores Range, and the object has {meta.size >> 20} MiB"
            self._failed(Unusable(f"{size}: the limit is {most}; raise it, or read the whole object at once"))
            return None
        if not self._wholes.room(meta.size):
            return _LOOK_S
        self.size_bytes = meta.size
        span = Span(meta.key, 0, meta.size, self.at[1] or meta.etag)
        self._read = SpanRead(self._policy, span, self)
        self._read.front, self._read.checksum = True, meta.checksum
        return 0.0

    def _serve(self, data: bytes, version: str) -> float | None:
        self.data, self.version = data, version
        for read in list(self._waiting):
            if self._waiting.pop(read, self) is None:
                with suppress(Exception):
                    # An error of a listener must not affect another read.
                    read.cut(data, version)
        if self.at[1]:
            return _KEPT_S
        # A read without a version wants the current one.
        self._wholes.forget(self)
        return None

    def _failed(self, error: PenstockError) -> None:
        self._wholes.forget(self)
        for read in list(self._waiting):
            if self._waiting.pop(read, self) is None:
                with suppress(Exception):
                    read.end(error)
