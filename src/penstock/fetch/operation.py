"""Carries any verb but reading out, attempt by attempt."""

from __future__ import annotations

from math import inf
from time import monotonic
from typing import TYPE_CHECKING, Generic, TypeVar, cast

from penstock.errors import Bug, PenstockError
from penstock.events import RequestTrace, listening
from penstock.fetch.policy import again, bug

if TYPE_CHECKING:
    from functools import partial

    from penstock.fetch.policy import RetryPolicy
    from penstock.protocols.exchange import Exchange, Request, Response, Work
    from penstock.waiting import Inbox

__all__ = ["Operation"]

T = TypeVar("T")


class Operation(Generic[T]):
    """Any other verb on its way.

    Attributes:
        inbox: Is told when it is complete.
        complete: The verb has ended; set by the transport's thread.
        error: What went wrong, once complete; None where nothing did. Before, what the last attempt met with.

    """

    __slots__ = (
        "__weakref__",
        "_attempts",
        "_began",
        "_exchange",
        "_make",
        "_policy",
        "_trace",
        "_value",
        "complete",
        "error",
        "inbox",
    )

    def __init__(self, policy: RetryPolicy, make: partial[Exchange[T]], inbox: Inbox) -> None:
        """Prepare a verb of the driver, which is called anew for every attempt; its first argument is the key."""
        self._policy = policy
        self._make = make
        self._exchange: Exchange[T] | None = None
        self._attempts = 0
        self._began = 0.0
        self._value: T | None = None
        self._trace = RequestTrace(make.func.__name__, policy.driver.url(make.args[0])) if listening() else None
        self.inbox = inbox
        self.complete = False
        self.error: PenstockError | None = None

    @property
    def verb(self) -> str:
        """The driver's verb, by name."""
        return self._make.func.__name__

    @property
    def key(self) -> str:
        """The key that it is about, or a prefix of keys; empty where there is none."""
        first = self._make.args[0] if self._make.args else ""
        return str(getattr(first, "prefix", first))

    def wait(self, limit_s: float = inf) -> None:
        """Block until it is complete, or ``limit_s`` are over; Ctrl-C interrupts it, within a second at the latest."""
        self.inbox.wait_any((self,), limit_s)

    def look(self) -> None:
        """Log what it has met with, if it takes long; on the thread that waits for it."""
        error = self.error
        if error is not None and not self.complete:
            self._policy.warn(error, "", self._attempts, self._began)

    def result(self) -> T:
        """Return what the verb returned, or raise what went wrong; only once complete."""
        if self.error is not None:
            raise again(self.error)
        return cast("T", self._value)

    def request(self) -> Request | Work:
        """Make the next attempt's exchange."""
        self._attempts += 1
        if self._attempts == 1:
            self._began = monotonic()
        self._exchange = self._make()
        if self._trace is not None:
            self._trace.start(self._attempts, self._exchange.request)
        return self._exchange.request

    def done(self, response: Response) -> float | None:
        """Take the result, or say when to try again."""
        if self._trace is not None:
            self._trace.answer(response)
        try:
            if self._exchange is None:
                raise response.fault or Bug("a response without a request")
            self._value = self._exchange.parse(response)
        except PenstockError as error:
            return self._failed(error)
        except Exception as error:  # noqa: BLE001  see SpanRead.done
            return self._failed(bug(error))
        if self._trace is not None:
            self._trace.end(None)
        request = self._exchange.request
        body = getattr(request, "body", None)  # a store without a wire has no requests
        self._policy.timings.carried(request.url, len(body) if body else 0)
        self._end(None)
        return None

    def _failed(self, error: PenstockError) -> float | None:
        if self._trace is not None:
            self._trace.end(error)
        url = self._exchange.request.url if self._exchange is not None else ""
        error, wait_s = self._policy.failed(error, url, self._attempts, self._began)
        if wait_s is None:
            self._end(error)
        else:
            self.error = error  # so far: see look
        return wait_s

    def _end(self, error: PenstockError | None) -> None:
        self.error = error
        try:
            if error is not None:
                self._policy.blame(error, "", self._attempts, self._began)
            else:
                self._policy.succeeded()
        finally:  # whatever goes wrong in telling, who waits must wake
            self._exchange = None
            self.complete = True
            self.inbox.finished(self)
