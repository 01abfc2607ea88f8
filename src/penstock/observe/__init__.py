"""Sinks for events: log records, files, traces and metrics. ``to`` opens them; no sink can break a read.

From an event to its record:

1. ``subscription``: ``to(*sinks)`` opens each sink (``sink``: its protocol) here and in processes started later.
2. The engine emits an event (``penstock.events``); the subscription's ``Pump`` queues it and returns at once.
3. The pump's thread hands records to the writer of the sink: ``log`` (log records, lines of JSON), ``chrome`` (a trace
   file) or ``otel_sink`` (spans).
4. Metrics take no events: ``prometheus`` and ``otel_sink`` read counts when they are asked, of all processes through
   ``board``.
5. ``environment``: ``PENSTOCK_OBSERVE`` and profiles open sinks without a line of code.

``loader`` measures a loader instead: ``headroom``, and ``Scalars`` for TensorBoard and Weights & Biases.
"""

from penstock.observe.chrome import ChromeTrace
from penstock.observe.loader import Headroom, Scalars, headroom
from penstock.observe.log import JsonLines, Log
from penstock.observe.otel_sink import OpenTelemetry
from penstock.observe.prometheus import Prometheus
from penstock.observe.sink import Record, Sink, Writer
from penstock.observe.subscription import Subscription, to

__all__ = [
    "ChromeTrace",
    "Headroom",
    "JsonLines",
    "Log",
    "OpenTelemetry",
    "Prometheus",
    "Record",
    "Scalars",
    "Sink",
    "Subscription",
    "Writer",
    "headroom",
    "to",
]
