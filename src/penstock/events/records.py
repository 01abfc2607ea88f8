"""Records of what happened: plain values that name what they are about."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

__all__ = [
    "CacheHit",
    "CacheMiss",
    "Committed",
    "Event",
    "Hedged",
    "Listed",
    "OperationEnded",
    "OperationStarted",
    "Outcome",
    "PartSent",
    "RangeRead",
    "RequestEnded",
    "RequestStarted",
    "Retried",
]

Outcome = Literal["done", "failed", "cancelled"]


@dataclass(frozen=True, slots=True)
class Event:
    """Something that happened to one object or place."""

    url: str


@dataclass(frozen=True, slots=True)
class OperationStarted(Event):
    """An operation began; the requests and operations that it makes name its ``id`` as their ``parent``.

    Attributes:
        id: Unique in this process, among operations and requests.
        parent: The operation that this one belongs to; 0: none.
        kind: ``"read"``, ``"lookahead"`` (an iterator that reads ahead), ``"scatter"`` (spans read into memory that is
            there), ``"list"``, ``"stat"``, ``"delete"``, ``"copy"``, ``"put"``, ``"publish"``, ``"upload"`` (a file
            that is written), ``"uploads"`` (a listing of unfinished ones) or ``"bulk"`` (many objects of one store,
            copied or deleted). Of checkpoints ``"load"`` (``ps.load``),
            ``"save"`` and ``"restore"`` (a run's step).

    """

    id: int
    parent: int
    kind: str


@dataclass(frozen=True, slots=True)
class OperationEnded(Event):
    """The operation ``id`` ended, ``elapsed_s`` after it began.

    Attributes:
        outcome: ``"cancelled"``: closed, dropped or interrupted before its end.
        error: Why it did not succeed: the error's class, and its text where the error is one of Penstock's.

    """

    id: int
    parent: int
    kind: str
    outcome: Outcome
    elapsed_s: float
    error: str = ""


@dataclass(frozen=True, slots=True)
class RequestStarted(Event):
    """An attempt of a request is being sent. The attempts of one request share its ``id``.

    Attributes:
        id: Unique in this process, among operations and requests.
        parent: The operation that the request belongs to; 0: none.
        verb: The driver's: ``read``, ``get``, ``head``, ``list``, ``put``, ``create``, ``part``, ``copy_part``,
            ``complete``, ``abort``, ``copy``, ``delete`` or ``uploads``.
        attempt: From 1.

    """

    id: int
    parent: int
    verb: str
    attempt: int


@dataclass(frozen=True, slots=True)
class RequestEnded(Event):
    """The attempt ended: there is exactly one such record for each ``RequestStarted``, with the same fields.

    Attributes:
        outcome: ``"failed"``: this attempt; ``Retried`` follows where another one will be made.
        status: HTTP status; 0 where there was none.
        sent_bytes: Size of the request's body.
        received_bytes: How much of the response's body arrived.
        first_byte_s: Seconds until the response's first byte; 0.0 where none came, or the store has no wire.
        elapsed_s: Seconds since the attempt was handed to the transport.
        error: What it met with: the error's class and text.
        host: Which the request was sent to, with its port where the URL names one; empty for a store without a wire.

    """

    id: int
    parent: int
    verb: str
    attempt: int
    outcome: Outcome
    status: int
    sent_bytes: int
    received_bytes: int
    first_byte_s: float
    elapsed_s: float
    error: str = ""
    host: str = ""


@dataclass(frozen=True, slots=True)
class RangeRead(Event):
    """A read was answered and verified: ``size_bytes`` from byte ``start``, ``elapsed_s`` after it was first sent."""

    start: int
    size_bytes: int
    elapsed_s: float
    attempts: int


@dataclass(frozen=True, slots=True)
class Retried(Event):
    """An attempt failed with ``error`` and will be made again in ``delay_s`` seconds."""

    error: Exception
    attempt: int
    delay_s: float


@dataclass(frozen=True, slots=True)
class Hedged(Event):
    """A second request for a read that took long was made, and one of the two has ended the other.

    Attributes:
        won: The second one was answered first.
        waited_s: How long the first one had waited when the second one was made.
        wasted_bytes: What had arrived of the body of the one that lost.

    """

    won: bool
    waited_s: float
    wasted_bytes: int


@dataclass(frozen=True, slots=True)
class Listed(Event):
    """One page of a listing came back with ``count`` keys."""

    count: int


@dataclass(frozen=True, slots=True)
class PartSent(Event):
    """Part ``number`` (from 1) of an upload was accepted."""

    number: int
    size_bytes: int


@dataclass(frozen=True, slots=True)
class Committed(Event):
    """An object became visible, whole and compared."""

    size_bytes: int
    etag: str


@dataclass(frozen=True, slots=True)
class CacheHit(Event):
    """The cache had ``size_bytes`` from byte ``start`` on (negative: before the end): no request was made for them."""

    start: int
    size_bytes: int


@dataclass(frozen=True, slots=True)
class CacheMiss(Event):
    """The cache did not have what is at byte ``start`` (negative: before the end); ``RangeRead`` tells of its read."""

    start: int
