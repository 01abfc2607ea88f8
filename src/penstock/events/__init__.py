"""What happens, for listeners: records with a beginning and an end, free without a listener.

``subscribe`` takes a listener for this process. Requests are ``RequestStarted`` and ``RequestEnded``, one pair for each
attempt; operations, which consist of several requests, are ``OperationStarted`` and ``OperationEnded``. The others tell
results: ``RangeRead``, ``Retried``, ``Listed``, ``PartSent`` and ``Committed``.
"""

from penstock.events.listeners import emit, listening, subscribe
from penstock.events.records import (
    Committed,
    Event,
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
from penstock.events.tracing import RequestTrace, Scope, followed, operation

__all__ = [
    "Committed",
    "Event",
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
    "emit",
    "followed",
    "listening",
    "operation",
    "subscribe",
]
