"""Sinks for events: log records, files, traces and metrics. ``to`` opens them; no sink can break a read.

``PENSTOCK_OBSERVE`` opens sinks without a line of code: see ``environment``.
"""

from penstock.observe.chrome import ChromeTrace
from penstock.observe.gain import Headroom, headroom
from penstock.observe.log import JsonLines, Log
from penstock.observe.otel_sink import OpenTelemetry
from penstock.observe.prometheus import Prometheus
from penstock.observe.scalars import Scalars
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
