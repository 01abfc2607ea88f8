"""Carries any verb but reading out, attempt by attempt."""

from __future__ import annotations

from concurrent.futures import FIRST_COMPLETED, Future, wait
from time import monotonic
from typing import TYPE_CHECKING, Generic, TypeVar

from penstock.errors import Bug, PenstockError
from penstock.fetch.judge import bug

if TYPE_CHECKING:
    from collections.abc import Callable, Collection

    from penstock.fetch.judge import Judge
    from penstock.protocols.exchange import Exchange, Request, Response, Work

__all__ = ["LOOK_S", "Operation", "await_one"]

T = TypeVar("T")

LOOK_S = 1.0  # a signal that comes just before Python waits for a lock is handled only when that wait ends


class Operation(Generic[T]):
    """Any other verb on its way; ``future`` holds its result, or what went wrong."""

    __slots__ = ("__weakref__", "_attempts", "_began", "_exchange", "_judge", "_make", "future")

    def __init__(self, judge: Judge, make: Callable[[], Exchange[T]]) -> None:
        self._judge = judge
        self._make = make
        self._exchange: Exchange[T] | None = None
        self._attempts = 0
        self._began = monotonic()
        self.future: Future[T] = Future()

    def request(self) -> Request | Work:
        """Make the next attempt's exchange."""
        self._attempts += 1
        self._exchange = self._make()
        return self._exchange.request

    def done(self, response: Response) -> float | None:
        """Settle the future, or say when to try again."""
        try:
            if self._exchange is None:
                raise response.fault or Bug("a response without a request")
            result = self._exchange.parse(response)
        except PenstockError as error:
            return self._failed(error)
        except Exception as error:  # noqa: BLE001  see Read.done
            return self._failed(bug(error))
        self._judge.succeeded()
        self.future.set_result(result)
        return None

    def _failed(self, error: PenstockError) -> float | None:
        wait_s = self._judge.decide(error, self._attempts, self._began)
        if wait_s is None:
            self.future.set_exception(_severed(self._judge.blame(error, "", self._attempts, self._began)))
        return wait_s


def await_one(futures: Collection[Future[T]]) -> None:
    """Wait until one of ``futures``, which are some, is done; Ctrl-C interrupts it, within a second at the latest."""
    while not wait(futures, LOOK_S, FIRST_COMPLETED).done:
        pass


def _severed(error: PenstockError) -> PenstockError:
    """Cut what leads from an error to its operation, and so to itself: it would keep alive what its callers hold."""
    link: BaseException | None = None if isinstance(error, Bug) else error
    seen: set[int] = set()
    while link is not None and id(link) not in seen:  # causes may lead in a circle, and this is the I/O thread
        seen.add(id(link))
        link.__traceback__ = None
        link = link.__cause__ or link.__context__
    return error
