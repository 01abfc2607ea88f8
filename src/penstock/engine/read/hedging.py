"""Second requests for slow reads: the first response of the two is used, and the other request ends.

"Hedged requests" of Dean and Barroso, The Tail at Scale (CACM 56(2), 2013): a second request is sent once the first has
waited longer than most do. ``lateness`` and ``choose`` decide which read gets one, and are pure; ``Allowance`` limits
how many there are. The reasons for the numbers are in design/0052.
"""

from __future__ import annotations

from dataclasses import dataclass
from math import inf
from typing import TYPE_CHECKING, Any, Final, cast

from penstock.engine.read.spanread import SpanRead
from penstock.errors import Cancelled, Throttled
from penstock.events import Hedged, emit, listening

if TYPE_CHECKING:
    from collections.abc import Sequence

    from penstock.engine.contracts.exchange import Operation, Request, Response, Traffic, Transport, UnderWay, Work
    from penstock.engine.contracts.fetching import ReadOperation
    from penstock.engine.operations.policy import Hedges, Tokens
    from penstock.events import HostTimings, Timings

SHARE: Final = 0.02  # second requests, of all requests
_MOST: Final = 16.0  # most that quiet times save up
_LATER: Final = 2.0  # times the 95th percentile
_LEAST_LATE_S: Final = 0.05  # a busy machine causes waits of this length
# A lost handshake packet is sent again after this time (RFC 6298).
_CONNECT_S: Final = 1.0
_SLOWER: Final = 10.0  # times: a body below a tenth of the median rate
_UNKNOWN_RATE: Final = 640 << 10  # bytes/s, while no rate has been measured
_STUCK: Final = 0.5  # of the time that makes an operation late
# This many times as many requests must have ended as take long.
_TIMES: Final = 10
_FEW: Final = 4


@dataclass(frozen=True, slots=True)
class Usual:
    """Recent times of a store's responses: the 95th percentile to the first byte, and the median rate of bodies."""

    first_byte_s: float
    bytes_per_s: float = 0.0  # 0.0 if unknown

    @property
    def late_s(self) -> float:
        return max(_LEAST_LATE_S, _LATER * self.first_byte_s)


@dataclass(slots=True)
class Allowance:
    """Second requests that may be sent: a share of the first ones, and few at once."""

    left: float = 0.0
    _earned: int = 0

    def earn(self, requests: int) -> None:
        self.left = min(_MOST, self.left + SHARE * max(0, requests - self._earned))
        self._earned = max(requests, self._earned)

    def spend(self) -> bool:
        if self.left < 1:
            return False
        self.left -= 1
        return True


def lateness(each: UnderWay, usual: Usual) -> float:
    """Return how long an operation has taken, as a multiple of the time that makes it late.

    Until the first byte that time is ``usual.late_s``, and at least a second while the connection is being opened.
    After the first byte it is ``usual.late_s`` again, plus ten times what the bytes received so far take at the median
    rate.
    """
    late_s = usual.late_s
    if each.connecting:
        return each.waited_s / max(late_s, _CONNECT_S)
    if not each.body_s:
        return each.waited_s / late_s
    return each.body_s / (late_s + _SLOWER * each.received / (usual.bytes_per_s or _UNKNOWN_RATE))


def choose(late: Sequence[float], passed: Sequence[int], *, tried: bool) -> list[int]:
    """Return the indices of the operations that deserve a second request, the latest operation first.

    ``late`` holds their ``lateness``, ``passed`` how many requests have ended since each was sent. If those are many
    times as many as the slow operations, the store is healthy and the operation was unlucky. If only as many have ended
    as wait, the store may be down, and gets no more requests. A few waiting operations prove neither: one of them is
    chosen, unless one was ``tried``.
    """
    stuck = sum(each >= _STUCK for each in late)
    order = sorted((at for at, each in enumerate(late) if each >= 1), key=lambda at: -late[at])
    unlucky = [at for at in order if passed[at] >= _TIMES * stuck]
    return unlucky if unlucky or tried or stuck > _FEW else order[:1]


_EVERY_S: Final = 1.0  # interval at which the usual times are computed
_FIRST_S: Final = 0.1  # the same until they are known
# The usual times are those of the last one or two periods of this length.
_WINDOW_S: Final = 30.0
_LEAST: Final = 50  # responses: a 95th percentile of fewer says little
_CALM_S: Final = 10.0  # after the store last refused a request for its rate
_MOST_BYTES: Final = 64 << 20  # memory of second requests
_HAD: Final = 0.9  # lateness of a waiting read that may not have a second request
_GUESS_BYTES: Final = 1 << 20  # of a second request whose size is not known


class Hedging:
    """Watch over the reads of one store; used only by the transport's thread."""

    def __init__(self, hedges: Hedges, tokens: Tokens, timings: Timings) -> None:
        """Count in ``hedges``; ``tokens`` are the retry tokens: while few are left, the store is not healthy."""
        self._hedges = hedges
        self._tokens = tokens
        self._timings = timings
        self._allowance = Allowance()
        self._usual: Usual | None = None
        self._computed_at = -inf
        self._recent = _Recent()
        self._tried_at = -1  # so many requests had ended then

    def late_s(self, now: float) -> float:
        """Return the seconds after which a request is late.

        The result is ``inf`` while the store throttles or fails, or is not known well enough.
        """
        if now - self._computed_at >= (_EVERY_S if self._usual is not None else _FIRST_S):
            self._computed_at = now
            self._usual = self._recent.usual(self._timings.host, now) or self._usual
        calm = self._tokens.left > self._tokens.limit - 1 and now - self._hedges.throttled_at > _CALM_S
        return self._usual.late_s if calm and self._usual is not None else inf

    def look(self, traffic: Traffic) -> list[tuple[Operation, Operation]]:
        """Return second requests for late reads, each with its read; at most as many as are allowed."""
        self._allowance.earn(traffic.ended - self._hedges.made)
        usual = self._usual
        reads = [each for each in traffic.under_way if isinstance(each.operation, SpanRead)]
        if usual is None or not reads or self._allowance.left < 1:
            return []
        late = [lateness(each, usual) if self._may(each.operation) else _HAD for each in reads]
        made: list[tuple[Operation, Operation]] = []
        for at in choose(late, [each.passed for each in reads], tried=traffic.ended == self._tried_at):
            hedge = _Hedge(reads[at], traffic.transport)
            held = sum(each.size_bytes for each in self._hedges.open.values())
            if hedge.twin is not None and held + hedge.size_bytes <= _MOST_BYTES and self._allowance.spend():
                self._tried_at = traffic.ended
                self._hedges.open[reads[at].operation] = hedge
                made.append((reads[at].operation, hedge))
        return made

    def _may(self, operation: Operation) -> bool:
        """Return whether a read may have a second request: only one, and within the requests that it may make."""
        read = cast("SpanRead", operation)
        return not read.called_off and read not in self._hedges.open and read.attempts < read.policy.attempts


class _Recent:
    """Usual times of a host over the last 30 to 60 seconds."""

    def __init__(self) -> None:
        self._host: HostTimings | None = None
        self._older: HostTimings | None = None
        self._newer: HostTimings | None = None
        self._turned_at = -inf

    def usual(self, host: HostTimings, now: float) -> Usual | None:
        if host is not self._host:
            self._host, self._older, self._newer, self._turned_at = host, None, None, now
        elif now - self._turned_at >= _WINDOW_S:
            self._older, self._newer, self._turned_at = self._newer, host.copy(), now
        since = self._older
        first_byte = host.first_byte if since is None else host.first_byte - since.first_byte
        if first_byte.count < _LEAST:
            return None
        body_rate = host.body_rate if since is None else host.body_rate - since.body_rate
        return Usual(first_byte.quantile(0.95), body_rate.quantile(0.5))


class _Hedge:
    """A second request for a slow read, as an operation: the read's twin, into separate memory, tried once."""

    __slots__ = ("_late", "_read", "_transport", "_won", "size_bytes", "twin")

    def __init__(self, late: UnderWay, transport: Transport) -> None:
        read = cast("SpanRead", late.operation)
        self._read = read
        self._late = late
        self._transport = transport
        self._won = False
        self.twin = twin = read.twin(read.policy.once(), self)
        size_bytes = _GUESS_BYTES
        if twin is not None and (twin.span.stop is not None or twin.span.start < 0):
            size_bytes = (twin.span.stop or 0) - twin.span.start
        self.size_bytes = size_bytes

    @property
    def complete(self) -> bool:
        return self.twin is None or self.twin.complete

    def finished(self, twin: ReadOperation) -> None:
        """Do nothing: ``done`` checks whether the twin is complete."""

    def request(self) -> Request | Work:
        if self._read.complete or self.twin is None:
            raise Cancelled("the first request was answered")
        if not self.twin.attempts:
            self._read.policy.hedges.made += 1
            self._read.attempts += 1
        return self.twin.request()

    def done(self, response: Response) -> float | None:
        read, twin = self._read, self.twin
        delay_s = None if twin is None else twin.done(response)
        if delay_s is not None:
            # The rest of an object of unknown size is still missing.
            return delay_s
        if isinstance(twin.error if twin is not None else None, Throttled):
            read.policy.throttled()
        if twin is not None and twin.error is None and not read.complete and read.fits(twin):
            self._won = True
            read.answer_by(self._answer)
            self._transport.cancel((read,))
        else:
            self._ended(response.received)
        return None

    def settle(self) -> None:
        if not self.complete:
            self._transport.cancel((self,))

    def _answer(self, response: Response) -> Any:  # noqa: ANN401  what the read's own request would have returned
        """Pass on the twin's bytes: the first request has ended, so nothing else writes into the read's memory."""
        read, twin = self._read, self.twin
        if read.called_off or twin is None:
            raise response.fault or Cancelled("cancelled")
        answer = read.hand_over(twin)
        response.version = twin.version
        self._ended(response.received)
        return answer

    def _ended(self, wasted_bytes: int) -> None:
        """Count the second request; ``wasted_bytes`` came for the request that was not needed."""
        if self.twin is None or not self.twin.attempts:
            return
        policy = self._read.policy
        policy.timings.hedged(won=self._won, wasted_bytes=wasted_bytes)
        if listening():
            emit(Hedged(policy.driver.url(self._read.span.key), self._won, self._late.waited_s, wasted_bytes))
