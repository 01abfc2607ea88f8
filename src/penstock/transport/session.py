"""The transport of one store: what it has waiting and in flight, and its handles and connections."""

from __future__ import annotations

import random
from collections import deque
from time import monotonic
from typing import TYPE_CHECKING, Literal, Protocol

from penstock.events import listening
from penstock.protocols.exchange import Response
from penstock.transport.codes import WHERE, fault, ours
from penstock.transport.easy import CUT, WRITE_ERROR, Easy
from penstock.transport.libcurl import OK
from penstock.transport.limit import Limit
from penstock.transport.pool import Pool
from penstock.transport.sampling import Sampling

if TYPE_CHECKING:
    from collections.abc import Iterable

    from penstock.options import TransportOptions
    from penstock.protocols.exchange import Call, Gate, Watch

__all__ = ["Handles", "Session", "Transfer", "What"]

What = Literal["submit", "cancel", "close"]

_draw = random.Random().random  # noqa: S311  a sample; a generator of its own leaves the user's seeds alone


class Carrier(Protocol):
    """The I/O thread, as its sessions know it.

    Attributes:
        most: Requests that may be in flight, over all sessions.

    """

    most: int

    def broke(self) -> bool:
        """Say whether its thread broke, so that it carries nothing more."""

    def tell(self, session: Session, calls: Iterable[Call], what: What) -> None:
        """Pass calls on; returns at once."""

    def discard(self, handles: Handles) -> None:
        """Free handles that are not in use any more, soon; returns at once."""


class Session:
    """The transport of one store: its options, its handles, and how many may be in flight.

    Attributes:
        answered: Something has come from the store.
        closed: It carries nothing more.
        gate: Holds calls back where the store refuses them for their rate.
        ended: Calls that ended since the limit was last told.
        sampling: Which responses are measured.
        ready: Calls that wait for their place; with each, whether it needs a fresh connection, or one to which address.
        where: The settings that name the store's host, option and variable.

    """

    __slots__ = (
        *("_carrier", "answered", "closed", "ended", "gate", "handles", "limit"),
        *("options", "ready", "sampling", "where"),
    )

    def __init__(self, carrier: Carrier, options: TransportOptions, where: str = WHERE) -> None:
        """Join the process's I/O thread."""
        self._carrier = carrier
        self.where = where
        self.answered = False
        self.options = options
        self.handles = Handles(options)
        self.closed = False
        self.gate: Gate | None = None
        self.ended = 0
        self.limit = Limit(min(options.connections, carrier.most))
        self.sampling = Sampling()
        self.ready: deque[tuple[Call, str | bool]] = deque()

    def __del__(self) -> None:
        """Free the handles once this store is not in use any more: none of them carries a call then."""
        self._carrier.discard(self.handles)

    def guard(self, gate: Gate) -> None:
        """Ask ``gate`` before each attempt from here on."""
        self.gate = gate

    def wait_s(self, call: Call) -> float:
        """Return 0.0 where a call may be sent now, else the seconds after which to ask again; on the I/O thread."""
        try:
            return self.gate.wait(call) if self.gate is not None else 0.0
        except Exception:  # noqa: BLE001  a gate must not take the I/O thread along: it is not asked again
            self.gate = None
            return 0.0

    def delay_s(self, call: Call, wanted_s: float) -> float:
        """Return the seconds until the next attempt of a call that asks for ``wanted_s``; on the I/O thread."""
        try:
            return self.gate.failed(call, wanted_s) if self.gate is not None else wanted_s
        except Exception:  # noqa: BLE001  see wait_s
            self.gate = None
            return wanted_s

    def submit(self, calls: Iterable[Call]) -> None:
        """Queue calls; returns at once."""
        self._carrier.tell(self, calls, "submit")

    def cancel(self, calls: Iterable[Call]) -> None:
        """End those of the calls that are not done; each gets ``done`` with a ``Cancelled`` fault, soon."""
        self._carrier.tell(self, calls, "cancel")

    def close(self) -> None:
        """End all calls with ``Cancelled``, soon, and close the connections; calls that come later are refused."""
        self.closed = True
        self._carrier.tell(self, (), "close")

    def watch(self, watch: Watch) -> None:
        """Have ``watch`` asked about calls that take long, from here on."""
        self.handles.watch = watch

    def usable(self) -> bool:
        """Say whether it carries calls: not once it was closed, or the I/O thread broke."""
        return not (self.closed or self._carrier.broke())

    def concurrency(self) -> int:
        """Return how many may be in flight at present."""
        return self.limit.now

    def full(self) -> bool:
        """Say whether as many as allowed are in flight."""
        return self.handles.active >= self.limit.now

    def transfer(self) -> Transfer:
        """Return a transfer that is free; MemoryError where there is none and libcurl can make no other."""
        transfer = self.handles.take()
        transfer.session = self
        return transfer


class Transfer:
    """One handle, with the call that it carries, if any, and whose that is.

    Attributes:
        began: When it was given the call; a time of ``monotonic``, not later than that.
        ended_before: How many requests of its session had ended then.

    """

    __slots__ = ("began", "call", "easy", "ended_before", "session")

    def __init__(self, easy: Easy) -> None:
        self.easy = easy
        self.began, self.ended_before = 0.0, 0
        self.call: Call  # while it is in flight
        self.session: Session  # while it is not free

    def response(self, code: int) -> Response:
        """Return what came back for its call, which ended with ``code``; what goes wrong here is its fault."""
        easy, session = self.easy, self.session
        limit, sampling = session.limit, session.sampling
        try:
            response = easy.unload(code)
            if code == OK:
                if not limit.located:
                    session.answered = True
                    limit.locate(easy.first_byte_s())
            elif code not in (WRITE_ERROR, CUT):
                response.fault = fault(code, easy.explain(code), session.where, strange=not session.answered)
            left = sampling.left = sampling.left - 1
            if left <= 0 or listening():
                response.first_byte_s, response.body_s = max(0.0, easy.first_byte_s()), max(0.0, easy.body_s())
                if left <= 0:
                    sampling.renew(monotonic(), _draw())
        except Exception as error:  # noqa: BLE001  see above
            return Response(fault=ours(error))
        return response

    def free(self) -> Session:
        """Give it back; returns whose it was."""
        session = self.session
        del self.session  # which would be held by what it holds
        session.handles.free.append(self)
        return session


class Handles:
    """The handles of a session, and their connections. To make them costs time, so they are kept for the next calls.

    Attributes:
        active: Transfers that carry a call.
        ended: Requests that have ended so far.
        free: Those that carry none.
        idle_s: How long the connections are kept without a call.
        used_s: When calls ended last.
        watch: Is asked about those that take long.

    """

    __slots__ = ("_options", "_pool", "active", "ended", "free", "idle_s", "used_s", "watch")

    def __init__(self, options: TransportOptions) -> None:
        self.active = self.ended = 0
        self.watch: Watch | None = None
        self.free: list[Transfer] = []
        self.idle_s = options.idle_s
        self.used_s = 0.0
        self._options = options
        self._pool: Pool | None = None

    def take(self) -> Transfer:
        """Return a transfer that is free, or make another; MemoryError where libcurl cannot."""
        if self.free:
            return self.free.pop()
        if self._pool is None:
            self._pool = Pool()
        return Transfer(Easy(self._options, self._pool))

    def count(self) -> int:
        """Return how many there are: there may be as many connections."""
        return self.active + len(self.free)

    def close(self) -> None:
        """Free the handles and close their connections; on the I/O thread, while none of them carries a call."""
        for transfer in self.free:
            transfer.easy.close()
        if self._pool is not None:
            self._pool.close()
        self.abandon()

    def abandon(self) -> None:
        """Forget them: their descriptors are others' by now."""
        self.free, self._pool = [], None
