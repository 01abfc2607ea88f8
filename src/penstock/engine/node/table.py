"""Format of the file that the processes of a node share: a header, a row for each process, and the rates. Pure."""

from __future__ import annotations

from dataclasses import dataclass, replace
from math import isfinite, isnan
from struct import Struct
from typing import Final

from penstock.engine.node.rate import NONE, Rate

MEMBERS: Final = 256
RATES: Final = 64
GROUPS: Final = 8  # demands of one row
LABEL_BYTES: Final = 160
HEADER: Final = b"penstock node, 1".ljust(64, b"\0")
_ROW: Final = Struct(f"<QI4xddddd{'Qd' * GROUPS}")
_RATE: Final = Struct(f"<QQddddddd{LABEL_BYTES}s")
_ROW_AT: Final = len(HEADER)
_ROW_BYTES: Final = 192
_RATE_AT: Final = _ROW_AT + MEMBERS * _ROW_BYTES
_RATE_BYTES: Final = 256
SIZE: Final = _RATE_AT + RATES * _RATE_BYTES


@dataclass(frozen=True, slots=True)
class ProcessRow:
    """The demand of one process, ``seen_at`` is on the machine's monotonic clock; ``inf`` means no limit.

    ``nonce`` identifies the process independent of its id; 0 if the row is free. ``most_…`` are the node's bounds by
    this process's options; bytes are for reading ahead, ``rates`` are requests per second by group.
    """

    nonce: int = 0
    process: int = 0
    seen_at: float = 0.0
    connections: float = 0.0
    most_connections: float = 0.0
    size_bytes: float = 0.0
    most_bytes: float = 0.0
    rates: tuple[tuple[int, float], ...] = ()

    def pack(self) -> bytes:
        pairs = [*self.rates[:GROUPS], *[(0, 0.0)] * (GROUPS - len(self.rates))]
        numbers = [number for pair in pairs for number in pair]
        held = self.size_bytes, self.most_bytes
        return _ROW.pack(
            self.nonce, self.process, self.seen_at, self.connections, self.most_connections, *held, *numbers
        )

    @classmethod
    def unpack(cls, data: bytes | memoryview) -> ProcessRow:
        """Parse a row; invalid numbers give an empty one."""
        nonce, process, seen_at, connections, most_connections, size_bytes, most_bytes, *pairs = _ROW.unpack_from(data)
        numbers, demands = (connections, most_connections, size_bytes, most_bytes), pairs[1::2]
        if not isfinite(seen_at) or isnan(sum(numbers) + sum(demands)) or min(*numbers, *demands) < 0:
            return cls()
        rates = tuple(each for each in zip(pairs[::2], demands, strict=True) if each[0])
        return cls(nonce, process, seen_at, *numbers, rates)


@dataclass(frozen=True, slots=True)
class RequestGroup:
    """The requests of one kind to the keys of one prefix."""

    id: int = 0
    store: int = 0
    label: str = ""
    rate: Rate = NONE

    def pack(self) -> bytes:
        rate = self.rate
        label = self.label.encode("utf-8", "replace")[:LABEL_BYTES]
        counted = rate.sent, rate.refused, rate.opened, rate.touched, rate.tries
        return _RATE.pack(self.id, self.store, rate.base, rate.since, *counted, label)

    @classmethod
    def unpack(cls, data: bytes | memoryview) -> RequestGroup:
        """Parse a group; invalid numbers give an empty one."""
        id_, store, *numbers, label = _RATE.unpack_from(data)
        if not all(isfinite(each) and each >= 0 for each in numbers):
            return cls()
        return cls(id_, store, label.rstrip(b"\0").decode("utf-8", "replace"), Rate(*numbers))


@dataclass(frozen=True, slots=True)
class NodeTable:
    """The contents of the file, by place."""

    rows: dict[int, ProcessRow]
    groups: dict[int, RequestGroup]

    @classmethod
    def unpack(cls, data: bytes) -> NodeTable:
        # The first word of each place identifies its owner.
        view, words = memoryview(data), memoryview(data).cast("Q")
        rows_at, rates_at = _ROW_AT // 8, _RATE_AT // 8
        used = enumerate(words[rows_at : rates_at : _ROW_BYTES // 8])
        rows = {place: ProcessRow.unpack(view[member_at(place) :]) for place, nonce in used if nonce}
        used = enumerate(words[rates_at :: _RATE_BYTES // 8])
        groups = {place: RequestGroup.unpack(view[rate_at(place) :]) for place, id_ in used if id_}
        return cls(rows, groups)


def member_at(place: int) -> int:
    return _ROW_AT + place * _ROW_BYTES


def rate_at(place: int) -> int:
    return _RATE_AT + place * _RATE_BYTES


@dataclass(slots=True)
class GroupCounts:
    """Counts of a group that one process has not published yet; ``waits`` if requests wait for their turn.

    ``stated``: requests per second that the store itself has allowed last; None if it stated nothing.
    """

    store: int
    label: str
    sent: int = 0
    refused: int = 0
    waits: bool = False
    stated: float | None = None


def merge_counts(
    groups: dict[int, RequestGroup], counted: dict[int, GroupCounts], now: float
) -> dict[int, RequestGroup]:
    """Return the groups that change, by place, when one process's counts, by id, are added to ``groups``.

    A group without a refusal for long is cleared. If no place is free, a new group replaces the one whose last refusal
    is oldest.
    """
    places = {group.id: place for place, group in groups.items()}
    changed = {place: RequestGroup() for place, group in groups.items() if group.rate.over(now)}
    left = {place: group for place, group in groups.items() if place not in changed}
    for id_, new in counted.items():
        place = places.get(id_)
        if place is None or place not in left:
            if not new.refused and new.stated is None:
                continue
            free = [each for each in range(RATES) if each not in left]
            place = free[0] if free else min(left, key=lambda each: left[each].rate.touched)
            left[place] = RequestGroup(id_, new.store, new.label)
        group = left[place]
        rate = group.rate.count(new.sent, new.refused, now)
        left[place] = changed[place] = replace(group, rate=rate if new.stated is None else rate.state(new.stated, now))
    return changed
