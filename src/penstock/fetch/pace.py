"""Holds a store's requests back where it refuses them for their rate; idle until it does."""

from __future__ import annotations

from hashlib import blake2b
from math import inf
from time import monotonic
from typing import TYPE_CHECKING, Final

from penstock.errors import Throttled, printable
from penstock.fetch.operation import Operation
from penstock.fetch.policy import RetryPolicy
from penstock.fetch.reading.spanread import SpanRead
from penstock.node.rate import Turns
from penstock.node.table import Counted

if TYPE_CHECKING:
    from collections.abc import Callable

    from penstock.events import Timings
    from penstock.protocols.exchange import Call

__all__ = ["Pace"]

_READS: Final = frozenset({"get", "head", "list", "read", "uploads"})  # S3 counts them apart from writes
_PREFIXES: Final = 8  # of one store that have a rate each; all others have one together
_NAMES: Final = 4096
_LEARN_S: Final = 3.0
_HASTE: Final = 10
_REFUSED: Final = 0.9  # of what was sent lately: no rate would do, and each request backs off


class Pace:
    """The rates of one store's requests, by prefix and kind. A ``Gate``, on the transport's thread.

    A prefix is a key's first part, up to ``/``. Stores refuse by rates of finer or coarser parts, and do not tell
    which: a rate is learned of what they accept, so it is right for the keys that are asked for together.

    Attributes:
        closed: Calls have to be asked for; False while the store has refused none for long.
        store: What tells this store from all others, in all processes.

    """

    def __init__(self, store: str, url: Callable[[str], str], timings: Timings) -> None:
        """Bound nothing yet; what requests wait for is counted in ``timings``."""
        self.closed = False
        self.store = _digest(store)
        self._name = store
        self._url = url
        self._timings = timings
        self._turns: dict[int, Turns] = {}
        self._counted: dict[int, Counted] = {}
        self._outages: set[int] = set()
        self._groups: dict[tuple[str, str], int] = {}  # the names of those met

    def wait(self, call: Call) -> float:
        """Return 0.0 where a call may be sent, and counts as sent then; else the seconds until it shall ask again."""
        group = self._group(call)
        turns = self._turns.get(group)
        if turns is None:
            return 0.0
        wait_s = turns.ask(call, monotonic()) * RetryPolicy.pace
        if wait_s:
            self._timings.paced(wait_s)
        else:
            self._count(group).sent += 1
        return wait_s

    def failed(self, call: Call, delay_s: float) -> float:
        """Take note of a call that will be made again after ``delay_s``; return after how many seconds instead.

        Backoff spreads calls over ten seconds for want of a better idea. Where the rate is known its turns do that, and
        while it is being learned there must be something to learn from.
        """
        error = getattr(call, "error", None)
        if not isinstance(error, Throttled):
            return delay_s
        kind, prefix = _named(call)
        group = self._group(call)
        if group not in self._turns and len(self._turns) >= _PREFIXES:
            prefix, group = "", self._id(kind, "")
        now = monotonic()
        turns = self._turns.setdefault(group, Turns(inf, now))
        counted = self._count(group)
        counted.refused += 1
        counted.label = counted.label or f"{kind}s of {printable(self._url(prefix + '/' if prefix else ''))}"
        self.closed = True
        paced = now - turns.began < _LEARN_S or (turns.rate < inf and group not in self._outages)
        if not paced or delay_s <= 1:
            return delay_s
        sooner_s = max(error.retry_after_s or 0.0, delay_s / _HASTE)
        self._timings.sooner(delay_s - sooner_s)
        return sooner_s

    def counted(self) -> dict[int, Counted]:
        """Return what was counted since it was asked last, by group."""
        for group, turns in self._turns.items():
            if gone := [call for call in turns.waiting() if getattr(call, "complete", False)]:
                turns.leave(gone)
            counted = self._count(group)
            counted.waits = len(turns) > 0
            if counted.refused and counted.refused >= _REFUSED * counted.sent:
                self._outages.add(group)
            elif counted.sent > counted.refused:
                self._outages.discard(group)
        found, self._counted = self._counted, {}
        return found

    def bound(self, rates: dict[int, float]) -> None:
        """Send the requests of these groups at these rates, a second, and all others without a bound."""
        now = monotonic()
        for group in self._turns.keys() - rates.keys() - self._counted.keys():
            del self._turns[group]
        for group, rate in rates.items():
            self._turns.setdefault(group, Turns(rate, now)).rate = rate
        self.closed = bool(self._turns)

    def _count(self, group: int) -> Counted:
        return self._counted.setdefault(group, Counted(self.store, ""))

    def _group(self, call: Call) -> int:
        """Return the group that a call counts in: its prefix's, or the one of all prefixes that have none."""
        kind, prefix = _named(call)
        group = self._id(kind, prefix)
        return group if group in self._turns else self._id(kind, "") if len(self._turns) >= _PREFIXES else group

    def _id(self, kind: str, prefix: str) -> int:
        found = self._groups.get((kind, prefix))
        if found is None:
            if len(self._groups) >= _NAMES:
                self._groups.clear()
            found = self._groups[kind, prefix] = _digest(f"{self._name}\0{kind}\0{prefix}")
        return found


def _named(call: Call) -> tuple[str, str]:
    """Return what kind of request a call makes, and the first part of its key."""
    if isinstance(call, SpanRead):
        return "read", call.span.key.partition("/")[0] if "/" in call.span.key else ""
    if isinstance(call, Operation):
        return "read" if call.verb in _READS else "write", call.key.partition("/")[0] if "/" in call.key else ""
    return "read", ""


def _digest(text: str) -> int:
    return int.from_bytes(blake2b(text.encode("utf-8", "surrogatepass"), digest_size=8).digest(), "little") or 1
