"""Operations except reads, carried out attempt by attempt."""

from __future__ import annotations

from functools import partial
from math import inf
from time import monotonic
from typing import TYPE_CHECKING, Generic, TypeVar, cast

from penstock.engine.contracts.driver import Versions
from penstock.engine.operations.policy import again, bug, count_row
from penstock.engine.support import require
from penstock.errors import Bug, NotFound, PenstockError
from penstock.events import RequestTrace, listening
from penstock.values import version_id

if TYPE_CHECKING:
    from penstock.engine.contracts.driver import Driver, Summed
    from penstock.engine.contracts.exchange import Exchange, Request, Response, Work
    from penstock.engine.operations.policy import RetryPolicy
    from penstock.engine.waiting import Inbox
    from penstock.values import ObjectMeta

T = TypeVar("T")

# Largest response that is parsed on the transport's thread, in passing: some milliseconds.
_SMALL_BYTES = 256 << 10
# Verbs by which an object appears or disappears.
_CHANGING = frozenset(("put", "complete", "copy", "move", "delete"))


def head_with_sums(driver: Driver, key: str, etag: str = "") -> partial[Exchange[ObjectMeta]]:
    """Return the verb that describes an object, with its checksum if the store provides one."""
    return head_of(driver, key, etag, sums=driver.abilities.sums)


def head_of(driver: Driver, key: str, etag: str, *, sums: bool = False) -> partial[Exchange[ObjectMeta]]:
    """Return the verb that describes an object; the version ``etag``, if that holds a version id."""
    if version_id(etag):
        return partial(require(driver, Versions, key).head_version, key, etag, sums=sums)
    return partial(cast("Summed", driver).head, key, sums=True) if sums else partial(driver.head, key)


class VerbOperation(Generic[T]):
    """An operation in progress that is not a read."""

    __slots__ = (
        *("__weakref__", "_attempts", "_began", "_exchange", "_make", "_policy", "_row", "_trace", "_unread", "_value"),
        *("called_off", "complete", "error", "inbox"),
    )

    def __init__(self, policy: RetryPolicy, make: partial[Exchange[T]], inbox: Inbox) -> None:
        """Prepare a verb of the driver, which is called again for every attempt; its first argument is the key."""
        self._policy = policy
        self._make = make
        self._exchange: Exchange[T] | None = None
        self._attempts = self._row = 0
        self._began = 0.0
        self._value: T | None = None
        self._unread: partial[T] | None = None
        self._trace = RequestTrace(make.func.__name__, policy.driver.url(make.args[0])) if listening() else None
        self.inbox = inbox
        self.called_off = False
        self.complete = False
        self.error: PenstockError | None = None

    @property
    def verb(self) -> str:
        return self._make.func.__name__

    @property
    def changes(self) -> bool:
        return getattr(getattr(self._make, "func", None), "__name__", "") in _CHANGING

    @property
    def key(self) -> str:
        """Key, or prefix of keys, that the operation concerns; empty without one."""
        first = self._make.args[0] if self._make.args else ""
        return str(getattr(first, "prefix", first))

    def wait(self, limit_s: float = inf) -> None:
        self.inbox.wait_any((self,), limit_s)

    def look(self) -> None:
        """Log the error of the last attempt if it takes long; called on the waiting thread."""
        error = self.error
        if error is not None and not self.complete:
            self._policy.warn(error, "", self._attempts, self._began)

    def result(self) -> T:
        """Return the result of the verb, or raise its error; only once complete. Parses a large response."""
        if (unread := self._unread) is not None:
            self._read(unread)
        if self.error is not None:
            raise again(self.error)
        return cast("T", self._value)

    def request(self) -> Request | Work:
        self._attempts += 1
        if self._attempts == 1:
            self._began = monotonic()
        self._exchange = self._make()
        if self._trace is not None:
            self._trace.start(self._attempts, self._exchange.request)
        return self._exchange.request

    def done(self, response: Response) -> float | None:
        if self._trace is not None:
            self._trace.answer(response)
        try:
            if self._exchange is None:
                raise response.fault or Bug("a response without a request")
            if _large(self._exchange, response):
                self._unread = partial(self._exchange.parse, response)
            else:
                self._value = self._exchange.parse(response)
        except PenstockError as error:
            return self._failed(error)
        except Exception as error:  # noqa: BLE001  see SpanRead.done
            return self._failed(bug(error))
        if self._trace is not None:
            self._trace.end(None)
        request = self._exchange.request
        # A store without a network has no HTTP requests.
        body = getattr(request, "body", None)
        self._policy.timings.carried(request.url, len(body) if body else 0)
        self._end(None)
        return None

    def _read(self, unread: partial[T]) -> None:
        try:
            self._value = unread()
        except PenstockError as error:
            self.error = self._policy.blame(error, "", self._attempts, self._began)
        except Exception as error:  # noqa: BLE001  see SpanRead.done
            self.error = self._policy.blame(bug(error), "", self._attempts, self._began)
        self._unread = None

    def _failed(self, error: PenstockError) -> float | None:
        if self._trace is not None:
            self._trace.end(error)
        url = self._exchange.request.url if self._exchange is not None else ""
        if isinstance(error, NotFound) and self.verb == "head":
            # An answer, not a failure: the object does not exist.
            self._policy.timings.carried(url, 0)
            self._end(error)
            return None
        self._row = count_row(self._row, error)
        error, wait_s = self._policy.failed(error, url, self._attempts, self._began, self._row)
        if wait_s is None or self.called_off:
            self._end(error)
            return None
        self.error = error  # until the next attempt: see look
        return wait_s

    def _end(self, error: PenstockError | None) -> None:
        self.error = error
        try:
            if error is not None:
                self._policy.blame(error, "", self._attempts, self._began)
            else:
                self._policy.succeeded()
        finally:
            # Whatever goes wrong above, the waiting thread must wake.
            self._exchange = None
            self.complete = True
            self.inbox.finished(self)


def _large(exchange: Exchange[T], response: Response) -> bool:
    """Return whether the thread that takes the result parses the response: a long success of a deferred request."""
    body = response.body
    return (
        getattr(exchange.request, "deferred", False)
        and response.status == 200  # noqa: PLR2004  OK
        and response.fault is None
        and isinstance(body, bytes)
        and len(body) > _SMALL_BYTES
    )
