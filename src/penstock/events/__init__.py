"""Events for listeners: records of requests, operations and results, at no cost without a listener.

``subscribe`` adds a listener to this process. Each attempt of a request emits ``RequestStarted`` and ``RequestEnded``;
each operation, which consists of several requests, emits ``OperationStarted`` and ``OperationEnded``. The other events
report results: ``RangeRead``, ``Retried``, ``Hedged``, ``Listed``, ``PartSent`` and ``Committed``. Counts and
histograms of all responses by host (``measured``), and counts of caches (``measured_caches``), are also kept without a
listener.
"""

from penstock.events.caching import CacheCounts, count_cache, measured_caches
from penstock.events.handover import (
    CONTEXT_BYTES,
    arrived,
    at_end,
    begin,
    carried,
    carry,
    context,
    context_of,
    end,
    enter,
    when_fetching,
)
from penstock.events.listeners import emit, listening, subscribe
from penstock.events.records import (
    CacheHit,
    CacheMiss,
    Committed,
    Event,
    Hedged,
    Listed,
    OperationEnded,
    OperationStarted,
    Outcome,
    PartSent,
    RangeRead,
    RequestEnded,
    RequestStarted,
    Retried,
)
from penstock.events.timings import HOST_WORDS, HostTimings, Slowest, SlowRequest, Timings, counted, measured, slow
from penstock.events.tracing import RequestTrace, Scope, followed, named, operation

__all__ = [
    "CONTEXT_BYTES",
    "HOST_WORDS",
    "CacheCounts",
    "CacheHit",
    "CacheMiss",
    "Committed",
    "Event",
    "Hedged",
    "HostTimings",
    "Listed",
    "OperationEnded",
    "OperationStarted",
    "Outcome",
    "PartSent",
    "RangeRead",
    "RequestEnded",
    "RequestStarted",
    "RequestTrace",
    "Retried",
    "Scope",
    "SlowRequest",
    "Slowest",
    "Timings",
    "arrived",
    "at_end",
    "begin",
    "carried",
    "carry",
    "context",
    "context_of",
    "count_cache",
    "counted",
    "emit",
    "end",
    "enter",
    "followed",
    "listening",
    "measured",
    "measured_caches",
    "named",
    "operation",
    "slow",
    "subscribe",
    "when_fetching",
]
