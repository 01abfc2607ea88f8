"""Transport of one store: its operations, waiting and in flight, its handles, and the connections of all stores."""

from __future__ import annotations

import random
from collections import deque
from contextlib import suppress
from math import inf
from time import monotonic
from typing import TYPE_CHECKING, Literal

from penstock.engine.contracts.exchange import Response
from penstock.engine.transport.codes import WHERE, fault, name_proxy, ours
from penstock.engine.transport.easy import CUT, WRITE_ERROR, Easy
from penstock.engine.transport.libcurl import OK, ConnectionPool
from penstock.errors import Bug, ConfigError
from penstock.events import listening

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from penstock.engine.contracts.exchange import Gate, Operation, Watch
    from penstock.errors import PenstockError
    from penstock.options import TransportOptions

What = Literal["submit", "cancel", "withdraw", "close"]

_INWARD = (
    "cannot follow a redirect of a public server: the host stands for an address of this machine or of a private "
    "network; open that URL itself if it is intended"
)
_draw = random.Random().random  # noqa: S311  for sampling; a separate generator leaves the user's seeds alone


class Mailbox:
    """Operations sent from any thread to the I/O thread, and whether that thread still accepts them.

    ``dead`` says why the thread takes no more; ``most`` is the most requests in flight, over all sessions.
    """

    def __init__(self, wake: Callable[[], None], discarded: deque[Handles], most: int) -> None:
        self.dead: PenstockError | None = None
        self.discarded = discarded
        self.told: deque[tuple[Session, list[Operation], What]] = deque()
        self.most = most
        self._wake = wake

    def tell(self, session: Session, operations: Iterable[Operation], what: What) -> None:
        self.told.append((session, list(operations), what))
        if self.dead is not None:
            self.refuse()
        else:
            self._wake()

    def broke(self) -> bool:
        return isinstance(self.dead, Bug)

    def discard(self, handles: Handles) -> None:
        """Free handles that carry no operation, soon; not in a forked child, nor at the end."""
        if self.dead is None:
            self.discarded.append(handles)
            self._wake()

    def refuse(self) -> None:
        while self.told:
            try:
                _, operations, what = self.told.popleft()
            except IndexError:  # another thread came first
                return
            for operation in operations if what == "submit" else ():
                # An operation that raises must not keep the others waiting.
                with suppress(Exception):
                    operation.done(Response(fault=self.dead))


class Session:
    """Transport of one store: its options, its handles, and its limit of requests in flight.

    ``ready`` are operations that wait for their place, each with whether it needs a new connection, or with the address
    to connect to. ``where`` names the settings of the store's host: option and variable.
    """

    __slots__ = (
        *("_mailbox", "answered", "closed", "ended", "gate", "handles", "limit"),
        *("options", "ready", "sampling", "where"),
    )

    def __init__(self, mailbox: Mailbox, options: TransportOptions, where: str = WHERE) -> None:
        self._mailbox = mailbox
        self.where = where
        self.answered = False
        self.options = options
        self.handles = Handles(options)
        self.closed = False
        self.gate: Gate | None = None
        self.ended = 0
        self.limit = Limit(min(options.connections, mailbox.most))
        self.sampling = Sampling()
        self.ready: deque[tuple[Operation, str | bool]] = deque()

    def __del__(self) -> None:
        """Free the handles of an unused store; none of them carries an operation then."""
        self._mailbox.discard(self.handles)

    def guard(self, gate: Gate) -> None:
        self.gate = gate

    def wait_s(self, operation: Operation) -> float:
        """Return 0.0 if an operation may be sent now, else the seconds after which to ask again; on the I/O thread."""
        try:
            return self.gate.wait(operation) if self.gate is not None else 0.0
        except Exception:  # noqa: BLE001  a gate must not stop the I/O thread: it is not asked again
            self.gate = None
            return 0.0

    def delay_s(self, operation: Operation, wanted_s: float) -> float:
        """Return the seconds until the next attempt of an operation that requests ``wanted_s``; on the I/O thread."""
        try:
            return self.gate.failed(operation, wanted_s) if self.gate is not None else wanted_s
        except Exception:  # noqa: BLE001  see wait_s
            self.gate = None
            return wanted_s

    def submit(self, operations: Iterable[Operation]) -> None:
        self._mailbox.tell(self, operations, "submit")

    def cancel(self, operations: Iterable[Operation], *, sent: bool = True) -> None:
        """End the operations that are not done, each with ``Cancelled``; without ``sent``, unless the server has it."""
        self._mailbox.tell(self, operations, "cancel" if sent else "withdraw")

    def close(self) -> None:
        self.closed = True
        self._mailbox.tell(self, (), "close")

    def watch(self, watch: Watch) -> None:
        self.handles.watch = watch

    def usable(self) -> bool:
        return not (self.closed or self._mailbox.broke())

    def concurrency(self) -> int:
        return self.limit.now

    def full(self) -> bool:
        return self.handles.active >= self.limit.now

    def transfer(self) -> Transfer:
        transfer = self.handles.take()
        transfer.session = self
        return transfer


class Transfer:
    """A handle with the operation that it carries, if any, and the session of that operation.

    ``began``: when it got the operation, or shortly before, as a time of ``monotonic``. ``ended_before``: how many
    requests of its session had ended then.
    """

    __slots__ = ("began", "easy", "ended_before", "operation", "session")

    def __init__(self, easy: Easy) -> None:
        self.easy = easy
        self.began, self.ended_before = 0.0, 0
        self.operation: Operation  # while it is in flight
        self.session: Session  # while it is not free

    def response(self, code: int) -> Response:
        """Return the response for its operation, which ended with ``code``; errors in this method become its fault."""
        easy, session = self.easy, self.session
        limit, sampling = session.limit, session.sampling
        try:
            url = easy.request.url if easy.request is not None else ""
            response = easy.unload(code)
            if easy.guarded and easy.went_inward():
                return Response(fault=ConfigError(_INWARD))
            if 300 <= response.status < 400:  # noqa: PLR2004  a redirect
                response.address = easy.address()
            if code == OK:
                if not limit.located:
                    session.answered = True
                    limit.locate(easy.first_byte_s())
            elif code not in (WRITE_ERROR, CUT):
                through = name_proxy(url, session.options.proxy)
                words, strange = easy.explain(code), not session.answered
                response.fault = fault(code, words, session.where, strange=strange, through=through)
            left = sampling.left = sampling.left - 1
            if left <= 0 or listening():
                response.first_byte_s, response.body_s = max(0.0, easy.first_byte_s()), max(0.0, easy.body_s())
                if left <= 0:
                    sampling.renew(monotonic(), _draw())
        except Exception as error:  # noqa: BLE001  see above
            return Response(fault=ours(error))
        return response

    def free(self) -> Session:
        session = self.session
        # Avoid a reference cycle: the session holds its free transfers.
        del self.session
        session.handles.free.append(self)
        return session


class Handles:
    """Handles of a session, and their connections. Creating them takes time, so they are kept for the next operations.

    ``used_s``: when operations ended last. ``idle_s``: for how long connections are kept without one.
    """

    __slots__ = ("_options", "_pool", "active", "ended", "free", "idle_s", "used_s", "watch")

    def __init__(self, options: TransportOptions) -> None:
        self.active = self.ended = 0
        self.watch: Watch | None = None
        self.free: list[Transfer] = []
        self.idle_s = options.idle_s
        self.used_s = 0.0
        self._options = options
        self._pool: ConnectionPool | None = None

    def take(self) -> Transfer:
        if self.free:
            return self.free.pop()
        if self._pool is None:
            self._pool = ConnectionPool()
        return Transfer(Easy(self._options, self._pool))

    def count(self) -> int:
        return self.active + len(self.free)

    def close(self) -> None:
        """Free the handles and close their connections; on the I/O thread, while none of them carries an operation."""
        for transfer in self.free:
            transfer.easy.close()
        if self._pool is not None:
            self._pool.close()
        self.abandon()

    def abandon(self) -> None:
        """Forget the handles: their descriptors may belong to other files."""
        self.free, self._pool = [], None


# Measuring a response costs 5 µs: this is 0.1 % of a processor.
_MOST_PER_S = 200
# Factor by which the mean gap may grow from one measured response to the next.
_RISE = 1.5
# Longest mean gap, in responses; rates beyond 64,000/s do not occur.
_RAREST = 64


class Sampling:
    """Sampling of about ``_MOST_PER_S`` responses a second, with random gaps, so that no pattern is missed.

    ``left`` responses come until the next one that is measured; the I/O thread counts them down.
    """

    __slots__ = ("_at", "_drawn", "_every", "left")

    def __init__(self) -> None:
        self.left = 1
        self._drawn = 1  # the gap that ends now
        self._every = 1.0
        self._at = -1.0

    def renew(self, at: float, draw: float) -> None:
        """Choose the next response after one was measured at ``at``; ``draw`` is uniform in [0, 1)."""
        elapsed_s, self._at = at - self._at, at
        wanted = self._drawn / max(elapsed_s, 1e-6) / _MOST_PER_S
        # A burst says little about the rate.
        self._every = max(1.0, min(wanted, self._every * _RISE, _RAREST))
        self.left = self._drawn = 1 + int(draw * 2 * (self._every - 1))


_START = 64
_LEAST = 32
# Shortest measurement, which also needs four requests for each place: below that a rate is noise.
_EPOCH_S = 0.05
_GAIN = 1.15  # rate gain that keeps a doubling
_LOSS = 0.95  # share of the rate that keeps a halving
_REST_S = 5.0  # between two trials once it has settled
_FASTEST = 10_000  # requests/s that one I/O thread carries at best (100 KiB objects: 7,000 to 14,000 were measured)


class Limit:
    """Limit of requests in flight ``now``: doubled while that raises their rate, halved while that does not lower it.

    A distant store needs hundreds of requests in flight to fill the line. With a near store they only displace data
    from the processor's caches (measured on loopback with 100 KiB objects: 115 µs of CPU per object at 256 in flight,
    87 µs at 32). Time counts only while more requests wait for a place: idle time of a slow consumer says nothing about
    the store.
    """

    def __init__(self, most: int) -> None:
        self.located = False
        self._heard, self._first_s = 0, inf
        self.most = most
        self.now = min(_START, most)
        # Limit to return to if a trial fails; equal to ``now`` while no trial runs.
        self._before = self.now
        self._rate = 0.0
        self._up = True
        self._rest_until = 0.0
        self._at: float | None = None
        self._count, self._elapsed_s = 0, 0.0

    def locate(self, first_byte_s: float) -> None:
        """Record how long the first byte of one of the first responses took, until the store is ``located``.

        The minimum over as many responses as requests are in flight is the store's distance (others waited for
        handshakes, for example). From then on as many requests may be in flight as could be carried in that time.
        Doubling would take the first third of a second to get there.
        """
        self._heard += 1
        self._first_s = min(self._first_s, first_byte_s)
        if self._heard >= self.now:
            self.located = True
            self.now = self._before = max(self.now, min(int(self._first_s * _FASTEST), self.most))

    def record(self, finished: int, at: float, *, waiting: bool) -> None:
        """Record that ``finished`` requests ended by time ``at``, and whether others are waiting."""
        if self._at is not None:
            self._count += finished
            self._elapsed_s += at - self._at
        self._at = at if waiting else None
        if self._count >= 4 * self.now and self._elapsed_s >= _EPOCH_S:
            self._evaluate(self._count / self._elapsed_s, at)
            self._count, self._elapsed_s = 0, 0.0

    def _evaluate(self, rate: float, at: float) -> None:
        if self.now == self._before:
            self._rate = rate
            if at >= self._rest_until:
                self._try()
        elif rate >= self._rate * (_GAIN if self.now > self._before else _LOSS):
            self._rate, self._before = rate, self.now
            self._try()
        else:
            self.now = self._before
            self._up = not self._up
            self._rest_until = at + _REST_S

    def _try(self) -> None:
        tried = min(2 * self.now, self.most) if self._up else max(self.now // 2, min(_LEAST, self.most))
        if tried == self.now:
            self._up = not self._up
        else:
            self.now = tried


# Most connections kept for one store; the requests that its session has in flight limit them, too.
KEPT = 1024
# Interval of the checks for connections that have not been used for long.
_TIDY_S = 1.0


class Connections:
    """Handles of all sessions that may have connections; ``crowded`` if there may be more than allowed.

    Used only by the I/O thread, except that any thread may append to ``discarded``.
    """

    def __init__(self) -> None:
        self.crowded = False
        self.discarded: deque[Handles] = deque()
        self._handles: dict[Handles, None] = {}
        self._tidy_at = 0.0  # when ``tidy`` is due

    def hold(self, handles: Handles) -> None:
        self._handles[handles] = None

    def held(self) -> Iterable[Handles]:
        return self._handles

    def untidy(self, now: float) -> bool:
        return bool(self.discarded) or now >= self._tidy_at

    def tidy(self, now: float) -> None:
        """Close the connections of sessions that no longer exist or have not used them for long."""
        self._tidy_at = now + _TIDY_S
        while self.discarded:
            self.close(self.discarded.popleft())
        for handles in list(self._handles):
            if not handles.active and now - handles.used_s > handles.idle_s:
                self.close(handles)

    def make_room(self, most: int) -> int:
        """Close idle connections, longest unused first, while sessions together may have more than ``most``.

        If there may still be more, those that all stores keep from busier times are limited, too: together to 1.5 times
        ``most``. Returns how many connections each store may keep.
        """
        held = sum(handles.count() for handles in self._handles)
        if held > most:
            for handles in sorted(self._handles, key=lambda each: each.used_s):
                if held > most and not handles.active:
                    held -= handles.count()
                    self.close(handles)
        self.crowded = held > most
        kept = most * 3 // 2 // len(self._handles) if self.crowded else most
        return max(1, min(KEPT, kept))

    def close(self, handles: Handles) -> None:
        """Close these handles if they are held; none of them may carry an operation."""
        if self._handles.pop(handles, self) is None:
            handles.close()

    def close_all(self) -> None:
        for handles in self._handles:
            handles.close()

    def abandon(self) -> None:
        """Forget all handles: their descriptors belong to other files now."""
        for handles in self._handles:
            handles.abandon()
        self._handles = {}
