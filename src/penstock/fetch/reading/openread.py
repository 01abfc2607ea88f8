"""Reads objects whose size is not known: one request each, into a buffer as large as the objects before needed."""

from __future__ import annotations

from typing import TYPE_CHECKING

from penstock.buffer import Buffer
from penstock.errors import Cancelled, PenstockError
from penstock.fetch.policy import bug
from penstock.fetch.reading.spanread import SpanRead
from penstock.protocols.driver import RANGE_IGNORED, Beginning
from penstock.protocols.exchange import Request
from penstock.values import Span

if TYPE_CHECKING:
    from penstock.fetch.policy import RetryPolicy
    from penstock.fetch.reading.spanread import Owner
    from penstock.protocols.exchange import Response, Work

__all__ = ["OpenRead"]


class OpenRead(SpanRead):
    """A whole object of unknown size. Where its buffer is too small, the rest is asked for, of the same version."""

    __slots__ = ("_grows", "_learns", "_scratch", "_wanted")

    def __init__(self, policy: RetryPolicy, span: Span, owner: Owner) -> None:
        super().__init__(policy, span, owner)
        self._wanted = span
        self._grows = False  # read it without a buffer
        self._learns = False
        self._scratch: Buffer | None = None

    def request(self) -> Request | Work:
        """Ask for the object, or, once its size is known, for what is still missing."""
        if self.span.stop is not None:
            return super().request()
        self._begin_attempt()
        if self.called_off:
            self._exchange = None
            raise Cancelled("called off")
        policy, span = self.policy, self.span
        if self._grows or (scratch := policy.scratch.take(span.most)) is None:
            exchange = policy.driver.get(span.key, span.etag)
        else:
            self._scratch = scratch
            exchange = policy.driver.get(span.key, span.etag, buffer=scratch)
        self._exchange = exchange
        self._learns = isinstance(exchange.request, Request)  # what is no request needs no buffer
        return self._traced(exchange.request)

    def done(self, response: Response) -> float | None:
        """Take the object; or its beginning, and go on with the rest."""
        if self.span.stop is not None:
            return super().done(response)
        if self._trace is not None:
            self._trace.answer(response)
        try:
            got: bytes | Beginning
            got = self._exchange.parse(response) if self._exchange is not None else self._raise(response)
        except PenstockError as error:
            return self._failed(error)
        except Exception as error:  # noqa: BLE001  see SpanRead.done
            return self._failed(bug(error))
        finally:
            scratch, self._scratch = self._scratch, None
            if scratch is not None:
                self.policy.scratch.give(scratch)
        if self._trace is not None:
            self._trace.end(None)
        self._count(response, len(got.data) if isinstance(got, Beginning) else len(got))
        if isinstance(got, Beginning):
            return self._go_on(got)
        self.value = got
        if self._learns:
            self.policy.scratch.learn(len(got), self._wanted.most)
        self.end(None)
        return None

    def twin(self, policy: RetryPolicy, owner: Owner) -> SpanRead | None:
        """Return another read of the object, or of what is missing of it."""
        return (
            super().twin(policy, owner)
            if self.span.stop is not None
            else OpenRead(policy, self._wanted, owner).beside(self)
        )

    def fits(self, twin: SpanRead) -> bool:
        """Say whether ``twin`` has read what is under way: the object, or the rest of it."""
        if self.span.stop is None or isinstance(twin, OpenRead):
            return self.span.stop is None and isinstance(twin, OpenRead) and self._exchange is not None
        return super().fits(twin)

    def hand_over(self, twin: SpanRead) -> object:
        """Take the bytes of ``twin``."""
        if self.span.stop is not None:
            return super().hand_over(twin)
        self._superseded()
        return twin.take()

    def _go_on(self, beginning: Beginning) -> float:
        """Ask for the rest, where the version can be named; else for all of it anew."""
        data, size, etag = beginning
        self._grows = True
        if size:
            self.policy.scratch.learn(size, self._wanted.most)
        if size and etag:
            try:
                self.target = Buffer.allocate(size)
            except MemoryError as error:
                return self._failed(bug(error)) or 0.0
            self.target.fill(data)
            self.span = Span(self.span.key, 0, size, etag)
            self._reached = len(data)
        return 0.0

    def _failed(self, error: PenstockError) -> float | None:
        if error.code == RANGE_IGNORED and self.span.stop is not None:  # all of it anew, then
            self.span, self.target, self._reached = self._wanted, None, 0
            if self._trace is not None:
                self._trace.end(error)
            return 0.0
        return super()._failed(error)

    def end(self, error: PenstockError | None) -> None:
        """Complete it."""
        self.span = self._wanted
        super().end(error)
