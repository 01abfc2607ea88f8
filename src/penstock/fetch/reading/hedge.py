"""Whether to ask a second time for what takes long: a pure decision, and the allowance of such requests.

"Hedged requests" of Dean and Barroso, The Tail at Scale (CACM 56(2), 2013): a second request is made once the first has
waited longer than most do, and whichever is answered first is taken. The numbers' reasons are in design/0052.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from math import inf
from typing import TYPE_CHECKING, Any, Final

if TYPE_CHECKING:
    from collections.abc import Sequence

    from penstock.protocols.exchange import UnderWay

__all__ = ["SHARE", "Allowance", "Hedges", "Usual", "choose", "lateness"]

SHARE: Final = 0.02  # second requests, of all requests
_MOST: Final = 16.0  # what quiet times save up
_LATER: Final = 2.0  # times the 95th percentile
_LEAST_S: Final = 0.05  # a busy machine causes waits of this length
_CONNECT_S: Final = 1.0  # a lost packet of a handshake is sent again after it (RFC 6298)
_SLOWER: Final = 10.0  # times: a body below a tenth of the median rate
_UNKNOWN_RATE: Final = 640 << 10  # bytes/s, while no rate has been measured
_STUCK: Final = 0.5  # of what makes a call late
_TIMES: Final = 10  # as many requests have ended as take long
_FEW: Final = 4


@dataclass(frozen=True, slots=True)
class Usual:
    """What a store's responses took lately.

    Attributes:
        first_byte_s: Seconds to the first byte that 95 % of them did not exceed.
        bytes_per_s: Median rate of their bodies; 0.0 where it is not known.

    """

    first_byte_s: float
    bytes_per_s: float = 0.0

    @property
    def late_s(self) -> float:
        """How many seconds after it was sent a request without an answer is late."""
        return max(_LEAST_S, _LATER * self.first_byte_s)


@dataclass(slots=True)
class Allowance:
    """Second requests that may be made: a share of the first ones, and few at once."""

    left: float = 0.0
    _earned: int = 0

    def earn(self, requests: int) -> None:
        """Take note that so many first requests have ended until now, in all."""
        self.left = min(_MOST, self.left + SHARE * max(0, requests - self._earned))
        self._earned = max(requests, self._earned)

    def spend(self) -> bool:
        """Take one, if there is one."""
        if self.left < 1:
            return False
        self.left -= 1
        return True


@dataclass(slots=True)
class Hedges:
    """The second requests of one store.

    Attributes:
        open: By the read that was late, which has not ended: what was sent for it besides.
        made: Second requests that were sent so far.
        throttled_at: When the store refused a request last because it was asked too often; ``-inf``: never.

    """

    open: dict[Any, Any] = field(default_factory=dict)
    made: int = 0
    throttled_at: float = -inf


def lateness(each: UnderWay, usual: Usual) -> float:
    """Return how long a call has taken, as a multiple of what makes it late.

    Until the first byte that is ``usual.late_s`` (a second, at least, while the connection is being opened); from then
    on as long again, and ten times what the bytes that have come take at the median rate.
    """
    late_s = usual.late_s
    if each.connecting:
        return each.waited_s / max(late_s, _CONNECT_S)
    if not each.body_s:
        return each.waited_s / late_s
    return each.body_s / (late_s + _SLOWER * each.received / (usual.bytes_per_s or _UNKNOWN_RATE))


def choose(late: Sequence[float], passed: Sequence[int], *, tried: bool) -> list[int]:
    """Return which calls, by index, deserve a second request, the latest first.

    ``late`` has their ``lateness``, ``passed`` how many requests have ended since each was sent. Where those are many
    times as many as take long, the store is well, and the call has been unlucky. Where as many wait as have ended, the
    store may be down, and is not asked more. A few calls that wait prove neither: one of them is ``tried``.
    """
    stuck = sum(each >= _STUCK for each in late)
    order = sorted((at for at, each in enumerate(late) if each >= 1), key=lambda at: -late[at])
    unlucky = [at for at in order if passed[at] >= _TIMES * stuck]
    return unlucky if unlucky or tried or stuck > _FEW else order[:1]
