"""Decision whether to send a second request for a slow one, a pure function, and the allowance of such requests.

"Hedged requests" of Dean and Barroso, The Tail at Scale (CACM 56(2), 2013): a second request is sent once the first has
waited longer than most do, and the first response of the two is used. The reasons for the numbers are in design/0052.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from math import inf
from typing import TYPE_CHECKING, Any, Final

if TYPE_CHECKING:
    from collections.abc import Sequence

    from penstock.engine.contracts.exchange import UnderWay

__all__ = ["SHARE", "Allowance", "Hedges", "Usual", "choose", "lateness"]

SHARE: Final = 0.02  # second requests, of all requests
_MOST: Final = 16.0  # most that quiet times save up
_LATER: Final = 2.0  # times the 95th percentile
_LEAST_S: Final = 0.05  # a busy machine causes waits of this length
# A lost handshake packet is sent again after this time (RFC 6298).
_CONNECT_S: Final = 1.0
_SLOWER: Final = 10.0  # times: a body below a tenth of the median rate
_UNKNOWN_RATE: Final = 640 << 10  # bytes/s, while no rate has been measured
_STUCK: Final = 0.5  # of the time that makes a call late
# This many times as many requests must have ended as take long.
_TIMES: Final = 10
_FEW: Final = 4


@dataclass(frozen=True, slots=True)
class Usual:
    """Recent times of a store's responses.

    Attributes:
        first_byte_s: Seconds to the first byte that 95 % of the responses did not exceed.
        bytes_per_s: Median rate of their bodies; 0.0 if it is not known.

    """

    first_byte_s: float
    bytes_per_s: float = 0.0

    @property
    def late_s(self) -> float:
        """Seconds after which a request without a response is late, counted from its sending."""
        return max(_LEAST_S, _LATER * self.first_byte_s)


@dataclass(slots=True)
class Allowance:
    """Second requests that may be sent: a share of the first ones, and few at once."""

    left: float = 0.0
    _earned: int = 0

    def earn(self, requests: int) -> None:
        """Record that ``requests`` first requests have ended so far, in total."""
        self.left = min(_MOST, self.left + SHARE * max(0, requests - self._earned))
        self._earned = max(requests, self._earned)

    def spend(self) -> bool:
        """Take a second request from the allowance; return whether one was left."""
        if self.left < 1:
            return False
        self.left -= 1
        return True


@dataclass(slots=True)
class Hedges:
    """Second requests of one store.

    Attributes:
        open: Second requests in flight, by the late read, which has not ended.
        made: Number of second requests sent so far.
        throttled_at: When the store last refused a request for its rate; ``-inf``: never.

    """

    open: dict[Any, Any] = field(default_factory=dict)
    made: int = 0
    throttled_at: float = -inf


def lateness(each: UnderWay, usual: Usual) -> float:
    """Return how long a call has taken, as a multiple of the time that makes it late.

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
    """Return the indices of the calls that deserve a second request, the latest call first.

    ``late`` holds their ``lateness``, ``passed`` how many requests have ended since each was sent. If those are many
    times as many as the slow calls, the store is healthy and the call was unlucky. If only as many have ended as wait,
    the store may be down, and gets no more requests. A few waiting calls prove neither: one of them is chosen, unless
    one was ``tried``.
    """
    stuck = sum(each >= _STUCK for each in late)
    order = sorted((at for at, each in enumerate(late) if each >= 1), key=lambda at: -late[at])
    unlucky = [at for at in order if passed[at] >= _TIMES * stuck]
    return unlucky if unlucky or tried or stuck > _FEW else order[:1]
