"""What happens, for listeners: records with a beginning and an end, free without a listener.

``subscribe`` takes a listener for this process. Requests are ``RequestStarted`` and ``RequestEnded``, one pair for each
attempt; operations, which consist of several requests, are ``OperationStarted`` and ``OperationEnded``. The others tell
results: ``RangeRead``, ``Retried``, ``Hedged``, ``Listed``, ``PartSent`` and ``Committed``. Counts and histograms of
all responses by host, and counts of caches, are kept without a listener, too: ``measured``, ``measured_caches``.
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
from penstock.events.timings import HOST_WORDS, HostTimings, Slowest, SlowRequest, Timings, measured, slow
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
