"""This process as one of its node: what it asks for, and what its share is, a few times a second."""

from __future__ import annotations

import os
from dataclasses import dataclass
from itertools import count
from math import inf
from time import monotonic, thread_time
from typing import TYPE_CHECKING, Final, Protocol, TypeVar
from weakref import ref

from penstock.errors import ConfigError
from penstock.node.memory import memory_bytes
from penstock.node.place import directory
from penstock.node.share import share
from penstock.node.shared import Shared
from penstock.node.table import GROUPS, Counted, Group, Row, merged

if TYPE_CHECKING:
    from penstock.budget import Budget
    from penstock.options import NodeOptions

__all__ = ["Member", "NodeRate", "NodeStatus", "member", "node_status"]

T = TypeVar("T")
V = TypeVar("V")

_TICK_S: Final = 0.25
_AGAIN_S: Final = 30.0  # until the directory is tried again that did not do
_CHECK_S: Final = 5.0  # between two looks whether others still find the same file
_COST: Final = 300  # what costs much is done seldom: a third of a percent of the thread's time, at most,
_SLOWNESS: Final = 20  # and so is what waited for a slow disk: a twentieth
_MEMORY_PARTS: Final = 4
_LEAST_RATE: Final = 1.0  # of a process that has asked for nothing yet; a quarter of a second later its share is known
_ROOM: Final = 1.5  # more than is used now, so that a demand may grow


class Paced(Protocol):
    """A store whose requests are counted, and sent at a bounded rate where it refuses more.

    Attributes:
        store: What tells it from all others, in all processes.

    """

    store: int

    def counted(self) -> dict[int, Counted]:
        """Return what was counted since it was asked last, by group."""

    def bound(self, rates: dict[int, float]) -> None:
        """Send the requests of these groups at these rates, a second, and all others without a bound."""


@dataclass(frozen=True, slots=True)
class NodeRate:
    """A bounded request rate.

    Attributes:
        requests: Which requests: ``reads`` or ``writes``, and the URL of their prefix.
        per_s: Requests a second of all processes of the node; ``inf`` while no bound has been found.
        share_per_s: What this process may send of them.

    """

    requests: str
    per_s: float
    share_per_s: float


@dataclass(frozen=True, slots=True)
class NodeStatus:
    """What this process shares with others of its node, as it was a quarter of a second ago at most.

    Attributes:
        directory: Where they meet; empty where this process is for itself.
        reason: Why this process is for itself; empty where it is not.
        processes: Numbers of the others that live.
        connections: Requests that this process may have in flight, over all stores; ``inf`` where nothing bounds it.
        ahead_share: How much of its options' ``ahead_bytes`` this process may use, from 0 to 1.
        rates: Of prefixes whose store refused requests for their rate.

    """

    directory: str = ""
    reason: str = "no store takes part yet"
    processes: tuple[int, ...] = ()
    connections: float = inf
    ahead_share: float = 1.0
    rates: tuple[NodeRate, ...] = ()


class Member:
    """This process, as a member of its node. ``tick`` is for one thread; any thread may enter and hold."""

    def __init__(self) -> None:
        """Take no part yet."""
        self._begin()

    def forget(self) -> None:
        """Begin anew, in a forked child, which has stores and a place of its own."""
        if self._shared is not None:
            self._shared.close()
        self._begin()

    def _begin(self) -> None:
        self._shared: Shared | None = None
        self._reason = ""
        self._keys = count()
        self._paces: dict[int, tuple[ref[Paced], NodeOptions]] = {}
        self._budgets: dict[int, tuple[ref[Budget], int]] = {}
        self._pending: dict[int, Counted] = {}
        self._groups: dict[int, Group] = {}  # while this process is for itself
        self._busy = 0.0
        self._told_at = 0.0
        self._open_at = 0.0
        self._check_at = 0.0
        self.status = NodeStatus()

    def enter(self, pace: Paced, options: NodeOptions) -> None:
        """Have a store take part until it is collected."""
        if options.share:
            self._paces[next(self._keys)] = ref(pace), options

    def hold(self, budget: Budget, options: NodeOptions) -> Budget:
        """Return ``budget``, whose ``bytes_limit`` follows this process's share until it is collected."""
        if options.share:
            held, key = self._budgets, next(self._keys)  # where no transport ticks, nothing else would forget it
            held[key] = ref(budget, lambda _: held.pop(key, None)), (own := budget.bytes_limit)
            budget.bytes_limit = max(1, int(own * self.status.ahead_share))
        return budget

    def tick(self, now: float, busy: int, *, full: bool) -> tuple[float, float]:
        """Ask for this process's share; return how many requests it may have in flight, and when to ask again.

        ``busy`` are in flight, and ``full`` says that more would be. Nothing here waits, neither for a lock nor for
        another process.
        """
        began_s = thread_time()
        self._busy = inf if full else max(float(busy), self._busy / 2 if self._busy < inf else 0.0)
        paces = _living(self._paces)
        budgets = _living(self._budgets)
        if not paces:
            self._rest(budgets)
            return inf, now + _TICK_S
        self._gather([pace for pace, _ in paces])
        row = self._row([options for _, options in paces], sum(own for _, own in budgets), now)
        told = self._exchange(row, now)
        if told is not None:
            self._apply(row, *told, paces=[pace for pace, _ in paces], budgets=budgets, now=now)
        cost_s, took_s = thread_time() - began_s, monotonic() - now
        return self.status.connections, now + max(_TICK_S, _COST * cost_s, _SLOWNESS * took_s)

    def _rest(self, budgets: list[tuple[Budget, int]]) -> None:
        """Leave all to the others, while there is no store that takes part."""
        if self.status.directory or self.status.ahead_share < 1:
            self._leave("", 0.0)
            self._open_at = 0.0
            self.status = NodeStatus()
            for budget, own in budgets:
                budget.bytes_limit = own

    def _gather(self, paces: list[Paced]) -> None:
        for pace in paces:
            for group, new in pace.counted().items():
                before = self._pending.setdefault(group, new)
                if before is not new:
                    before.sent, before.refused = before.sent + new.sent, before.refused + new.refused
                    before.waits, before.label = new.waits, before.label or new.label

    def _row(self, options: list[NodeOptions], size_bytes: int, now: float) -> Row:
        most_bytes = [each.ahead_bytes or memory_bytes() // _MEMORY_PARTS for each in options]
        passed_s = max(_TICK_S, now - self._told_at)
        rates = [(group, inf if new.waits else _ROOM * new.sent / passed_s + 1) for group, new in self._pending.items()]
        most_connections = min(each.connections for each in options)
        return Row(
            seen_at=now,
            connections=_ROOM * self._busy + 1,
            most_connections=most_connections,
            size_bytes=size_bytes,
            most_bytes=min(most_bytes),
            rates=tuple(sorted(rates, key=lambda each: -each[1])[:GROUPS]),
        )

    def _exchange(self, row: Row, now: float) -> tuple[list[Row], list[Group]] | None:
        """Tell the others and hear of them; None where that cannot be just now."""
        try:
            shared = self._join(now)
            told = self._alone(now) if shared is None else self._meet(shared, row, now)
        except (ConfigError, OSError) as error:
            self._leave(str(error), now)
            told = self._alone(now)
        if told is not None:
            self._pending, self._told_at = {}, now
        return told

    def _join(self, now: float) -> Shared | None:
        if self._shared is not None and now >= self._check_at:
            self._check_at = now + _CHECK_S
            if not self._shared.there():  # its directory was removed, or this process closed its files
                self._shared.close()
                self._shared, self._open_at = None, now
        if self._shared is None and now >= self._open_at:
            self._open_at = now + _AGAIN_S
            where = directory(os.environ)
            self._reason = "PENSTOCK_NODE=off"
            if where is not None:
                self._shared, self._reason = Shared(where), ""
        return self._shared

    def _leave(self, reason: str, now: float) -> None:
        if self._shared is not None:
            self._shared.close()
        self._shared, self._reason, self._open_at = None, reason, now + _AGAIN_S

    def _alone(self, now: float) -> tuple[list[Row], list[Group]]:
        self._groups |= merged(self._groups, self._pending, now)
        self._groups = {place: group for place, group in self._groups.items() if group.id}
        return [], list(self._groups.values())

    def _meet(self, shared: Shared, row: Row, now: float) -> tuple[list[Row], list[Group]] | None:
        with shared.locked() as within:
            if not within:
                return None
            table = shared.read()
            others = shared.living(table, now)
            if not shared.write(row, others):
                raise ConfigError(f"{shared.where} has no place for another process")
            changed = merged(table.groups, self._pending, now)
            shared.keep(changed)
        return list(others.values()), [group for group in (table.groups | changed).values() if group.id]

    def _apply(
        self,
        row: Row,
        others: list[Row],
        groups: list[Group],
        *,
        paces: list[Paced],
        budgets: list[tuple[Budget, int]],
        now: float,
    ) -> None:
        rows = [row, *others]
        rates = {group.id: _rate(group, rows, now) for group in groups}
        for pace in paces:
            pace.bound({group.id: rates[group.id] for group in groups if group.store == pace.store})
        total = min(each.most_bytes for each in rows)
        ahead = share(total, [each.size_bytes for each in rows], 0) / row.size_bytes if row.size_bytes else 1.0
        total = min(each.most_connections for each in rows)
        connections = share(total, [each.connections for each in rows], 0)
        self.status = NodeStatus(
            directory=str(self._shared.where) if self._shared is not None else "",
            reason=self._reason,
            processes=tuple(each.process for each in others),
            connections=max(1, int(connections)),
            ahead_share=min(1.0, ahead),
            rates=tuple(NodeRate(each.label, each.rate.present(now), rates[each.id]) for each in groups),
        )
        for budget, own in budgets:
            budget.bytes_limit = max(1, int(own * self.status.ahead_share))


def _living(held: dict[int, tuple[ref[T], V]]) -> list[tuple[T, V]]:
    """Return what is still there, and forget what is not."""
    found: list[tuple[T, V]] = []
    for key, (weak, with_it) in list(held.items()):
        each = weak()
        if each is None:
            held.pop(key, None)
        else:
            found.append((each, with_it))
    return found


def _rate(group: Group, rows: list[Row], now: float) -> float:
    """Return the share of the first of ``rows`` in a group's rate."""
    total = group.rate.present(now)
    wanted = [dict(row.rates).get(group.id, 0.0) for row in rows]
    return max(_LEAST_RATE, share(total, wanted, 0)) if total < inf else inf


member = Member()
os.register_at_fork(after_in_child=member.forget)


def node_status() -> NodeStatus:
    """Return what this process shares with others of its machine; no request is made, and no file is read."""
    return member.status
