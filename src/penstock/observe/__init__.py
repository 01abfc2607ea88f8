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

Reports of loaders come from ``data/loading``, with torch, and are imported at their first use.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

from penstock.observe.chrome import ChromeTrace
from penstock.observe.loader import Headroom, Scalars, headroom
from penstock.observe.log import JsonLines, Log
from penstock.observe.otel_sink import OpenTelemetry
from penstock.observe.prometheus import Prometheus
from penstock.observe.sink import Record, Sink, Writer
from penstock.observe.subscription import Subscription, to

if TYPE_CHECKING:
    from penstock.data.loading.group import GroupReport, merge_reports
    from penstock.data.loading.report import LoaderReport
    from penstock.data.loading.summary import Prices

__all__ = [
    "ChromeTrace",
    "GroupReport",
    "Headroom",
    "JsonLines",
    "LoaderReport",
    "Log",
    "OpenTelemetry",
    "Prices",
    "Prometheus",
    "Record",
    "Scalars",
    "Sink",
    "Subscription",
    "Writer",
    "headroom",
    "merge_reports",
    "to",
]

_LATE = {
    "GroupReport": "data.loading.group",
    "LoaderReport": "data.loading.report",
    "Prices": "data.loading.summary",
    "merge_reports": "data.loading.group",
}


def __getattr__(name: str) -> Any:  # noqa: ANN401  of ``data/loading``
    if name not in _LATE:
        from penstock.options.typed import suggest_word

        raise AttributeError(f"module {__name__!r} has no attribute {name!r}{suggest_word(name, __all__)}")
    return getattr(import_module(f"penstock.{_LATE[name]}"), name)
