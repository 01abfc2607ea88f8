"""Records of events: plain values, each with the URL that it concerns."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal

if TYPE_CHECKING:
    from collections.abc import Mapping

Outcome = Literal["done", "failed", "cancelled"]


@dataclass(frozen=True, slots=True)
class Event:
    """An event that concerns one URL: an object, or a place such as a folder.

    Attributes:
        url: The URL.
    """

    url: str


@dataclass(frozen=True, slots=True)
class OperationStarted(Event):
    """The start of an operation; its requests and inner operations have its ``id`` as their ``parent``.

    Attributes:
        id: Unique in this process, among operations and requests.
        parent: ``id`` of the operation that this one belongs to; 0: none.
        kind: ``"read"``, ``"lookahead"`` (an iterator that reads ahead), ``"scatter"`` (spans read into existing
            memory), ``"list"``, ``"stat"``, ``"delete"``, ``"copy"``, ``"put"``, ``"publish"``, ``"upload"`` (a file
            that is written), ``"uploads"`` (a listing of unfinished uploads) or ``"bulk"`` (many objects of one store,
            copied or deleted). For checkpoints: ``"load"`` (``ps.load``), ``"save"`` and ``"restore"`` (a run's step).
            For jobs in parts: ``"job"`` and ``"part"``.

    Example:
        >>> from penstock.events import OperationStarted, subscribe
        >>> seen = []
        >>> stop = subscribe(seen.append)
        >>> found = [*ps.list("s3://bucket/train/3/")]
        >>> stop()
        >>> [each.kind for each in seen if isinstance(each, OperationStarted)]
        ['list']
    """

    id: int
    parent: int
    kind: str


@dataclass(frozen=True, slots=True)
class OperationEnded(Event):
    """The end of the operation ``id``.

    Attributes:
        id: As in ``OperationStarted``, like ``parent`` and ``kind``.
        parent: ``id`` of the operation that this one belongs to; 0: none.
        kind: Kind of the operation.
        outcome: ``"done"``, ``"failed"``, or ``"cancelled"``: closed, dropped or interrupted before its end.
        elapsed_s: Seconds since its start.
        error: Class of the error, and its text if the error is one of Penstock's; empty without an error.

    Example:
        >>> from penstock.events import OperationEnded, subscribe
        >>> seen = []
        >>> stop = subscribe(seen.append)
        >>> found = [*ps.list("s3://bucket/train/3/")]
        >>> stop()
        >>> [(each.kind, each.outcome) for each in seen if isinstance(each, OperationEnded)]
        [('list', 'done')]
    """

    id: int
    parent: int
    kind: str
    outcome: Outcome
    elapsed_s: float
    error: str = ""


@dataclass(frozen=True, slots=True)
class RequestStarted(Event):
    """The start of an attempt of a request. All attempts of a request have its ``id``.

    Attributes:
        id: Unique in this process, among operations and requests.
        parent: ``id`` of the operation that the request belongs to; 0: none.
        verb: Verb of the driver: ``read``, ``get``, ``head``, ``list``, ``put``, ``create``, ``part``, ``copy_part``,
            ``complete``, ``abort``, ``copy``, ``delete``, ``uploads``, ``versioning``, ``list_versions`` or
            ``head_version``.
        attempt: From 1.

    Example:
        >>> from penstock.events import RequestStarted, subscribe
        >>> seen = []
        >>> stop = subscribe(seen.append)
        >>> meta = ps.stat("s3://bucket/train/3/0000.png")
        >>> stop()
        >>> [(each.verb, each.attempt) for each in seen if isinstance(each, RequestStarted)]
        [('head', 1)]
    """

    id: int
    parent: int
    verb: str
    attempt: int


@dataclass(frozen=True, slots=True)
class RequestEnded(Event):
    """The end of an attempt: exactly one such record for each ``RequestStarted``, with the same fields.

    Attributes:
        id: As in ``RequestStarted``, like ``parent``, ``verb`` and ``attempt``.
        parent: ``id`` of the operation that the request belongs to; 0: none.
        verb: Verb of the driver.
        attempt: From 1.
        outcome: ``"failed"`` concerns this attempt; ``Retried`` follows if the request will be attempted again.
        status: HTTP status; 0 without one.
        sent_bytes: Size of the request's body.
        received_bytes: Bytes of the response's body that arrived.
        first_byte_s: Seconds until the response's first byte; 0.0 if none came, or if the store does not use HTTP.
        elapsed_s: Seconds since the attempt was passed to the transport.
        error: Class and text of the error; empty without an error.
        host: Host of the request, with its port if the URL names one; empty if the store does not use HTTP.

    Example:
        >>> from penstock.events import RequestEnded, subscribe
        >>> seen = []
        >>> stop = subscribe(seen.append)
        >>> meta = ps.stat("s3://bucket/train/3/0000.png")
        >>> stop()
        >>> [(each.verb, each.status) for each in seen if isinstance(each, RequestEnded)]
        [('head', 200)]
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
    """A completed, verified read of one range.

    Attributes:
        start: Its first byte.
        size_bytes: Its bytes.
        elapsed_s: Seconds since its first attempt.
        attempts: Number of attempts.

    Example:
        >>> from penstock.events import RangeRead, subscribe
        >>> seen = []
        >>> stop = subscribe(seen.append)
        >>> data = ps.open("s3://bucket/train/3/0000.png").read()
        >>> stop()
        >>> [each.size_bytes == len(data) for each in seen if isinstance(each, RangeRead)]
        [True]
    """

    start: int
    size_bytes: int
    elapsed_s: float
    attempts: int


@dataclass(frozen=True, slots=True)
class Retried(Event):
    """A failed attempt, after which the request will be attempted again.

    Attributes:
        error: The error of the attempt.
        attempt: Number of the attempt, from 1.
        delay_s: Seconds until the next attempt.

    Example:
        >>> from penstock.events import Retried, subscribe
        >>> from penstock.testing.faults import FAULTS, FaultServer
        >>> seen = []
        >>> stop = subscribe(seen.append)
        >>> with FaultServer.within() as server:
        ...     etag = server.put("bucket", "key", b"bytes")
        ...     server.fail(FAULTS["503"])
        ...     meta = ps.stat("s3://bucket/key", store=server.store)
        >>> stop()
        >>> [(type(each.error).__name__, each.attempt) for each in seen if isinstance(each, Retried)]
        [('Throttled', 1)]
    """

    error: Exception
    attempt: int
    delay_s: float


@dataclass(frozen=True, slots=True)
class Hedged(Event):
    """The result of a second request for a slow read, after the faster of the two requests has ended the other.

    Attributes:
        won: Whether the second request was answered first.
        waited_s: Seconds that the first request had waited when the second was made.
        wasted_bytes: Bytes of the slower request's body that had arrived.

    Example:
        >>> from penstock.events import Hedged, subscribe
        >>> wasted = []
        >>> stop = subscribe(lambda event: isinstance(event, Hedged) and wasted.append(event.wasted_bytes))
        >>> data = ps.open("s3://bucket/train/3/0000.png").read()
        >>> stop()
    """

    won: bool
    waited_s: float
    wasted_bytes: int


@dataclass(frozen=True, slots=True)
class Listed(Event):
    """A received page of a listing, with ``count`` keys."""

    count: int


@dataclass(frozen=True, slots=True)
class PartSent(Event):
    """An accepted part of an upload: part ``number``, from 1."""

    number: int
    size_bytes: int


@dataclass(frozen=True, slots=True)
class Committed(Event):
    """A completed write: the object is visible, whole and verified."""

    size_bytes: int
    etag: str


@dataclass(frozen=True, slots=True)
class PartEnded(Event):
    """A part of a job that has ended and is recorded; ``url`` is the folder of the job's records.

    Attributes:
        parent: ``id`` of the operation ``"part"``; 0 if it began before there was a listener.
        operation: Name of the job's operation: ``"sync"``, ``"verify"``, ``"index"``, ``"pack"``.
        part: Number of the part, from 0.
        counts: Numbers of objects by outcome, and of bytes.
        cpu_seconds: Seconds of the processors, those of processes that the part started included.

    Example:
        >>> from penstock.events import PartEnded, subscribe
        >>> seen = []
        >>> stop = subscribe(lambda event: isinstance(event, PartEnded) and seen.append(event))
        >>> done = ps.verify("s3://bucket/train/3/", job="s3://bucket/jobs/1/", part_objects=30)
        >>> stop()
        >>> [(each.part, each.counts["verified"]) for each in seen]
        [(0, 30), (1, 30)]
    """

    parent: int
    operation: str
    part: int
    counts: Mapping[str, int]
    cpu_seconds: float


@dataclass(frozen=True, slots=True)
class CacheHit(Event):
    """A cache hit: ``size_bytes`` from byte ``start`` on (negative: before the end) needed no request."""

    start: int
    size_bytes: int


@dataclass(frozen=True, slots=True)
class CacheMiss(Event):
    """A cache miss at byte ``start`` (negative: before the end); ``RangeRead`` reports the read from the store."""

    start: int
