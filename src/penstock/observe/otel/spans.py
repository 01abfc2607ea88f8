"""Events become spans: operations hold their requests, and belong to the span that the program was in."""

from __future__ import annotations

import re
from collections import OrderedDict
from typing import TYPE_CHECKING, Any, Final

from penstock.events import OperationEnded, OperationStarted, RequestEnded, RequestStarted, Retried
from penstock.version import VERSION

if TYPE_CHECKING:
    from collections.abc import Sequence

    from opentelemetry.context import Context
    from opentelemetry.trace import Span, Tracer

    from penstock.events import Event
    from penstock.observe.sink import Record

__all__ = ["Spans", "adopt", "traceparent"]

_KEPT: Final = 10_000  # operations: beyond these, the ends are taken for dropped, and late requests have no parent
_PARENT: Final = re.compile(rb"00-([0-9a-f]{32})-([0-9a-f]{16})-([0-9a-f]{2})")  # W3C Trace Context, version 00


class Spans:
    """Makes spans of records, on the thread of a pump.

    Attributes are OpenTelemetry's (``url.full``, ``server.address``, ``http.response.status_code``), and Multi-Storage
    Client's ``operation``, ``provider``, ``status`` and ``version`` below ``namespace``.
    """

    def __init__(self, tracer: Tracer, namespace: str) -> None:
        """Give spans to ``tracer``."""
        self._tracer = tracer
        self._names = namespace
        self._open: OrderedDict[int, Span] = OrderedDict()
        self._contexts: OrderedDict[int, Context] = OrderedDict()
        self._begun: dict[tuple[int, int], tuple[int, Context | None]] = {}

    def write(self, records: Sequence[Record]) -> None:
        """Begin and end spans."""
        for record in records:
            event = record.event
            match event:
                case OperationStarted():
                    self._begin(record, event)
                case OperationEnded():
                    self._finish(record, event)
                case RequestStarted():
                    while len(self._begun) >= _KEPT:
                        del self._begun[next(iter(self._begun))]
                    self._begun[event.id, event.attempt] = record.at_ns, self._context(event.parent, record.context)
                case RequestEnded():
                    self._request(record, event)
                case Retried():
                    pass  # the failed attempt and the next one have spans

    def _context(self, parent: int, captured: object) -> Context | None:
        return self._contexts.get(parent) if parent else captured  # type: ignore[return-value]  # what capture returned

    def _begin(self, record: Record, event: OperationStarted) -> None:
        from opentelemetry.trace import set_span_in_context

        context = self._context(event.parent, record.context)
        attributes = self._attributes(event.url, event.kind)
        span = self._tracer.start_span(
            f"penstock.{event.kind}", _root(context), attributes=attributes, start_time=record.at_ns
        )
        self._open[event.id] = span
        self._contexts[event.id] = set_span_in_context(span, _root(context))
        while len(self._contexts) > _KEPT:
            self._contexts.popitem(last=False)
        while len(self._open) > _KEPT:
            self._open.popitem(last=False)[1].end(record.at_ns)

    def _finish(self, record: Record, event: OperationEnded) -> None:
        span = self._open.pop(event.id, None)
        if span is not None:
            self._settle(span, event)
            span.end(record.at_ns)

    def _request(self, record: Record, event: RequestEnded) -> None:
        from opentelemetry.trace import SpanKind

        begun = self._begun.pop((event.id, event.attempt), None)
        if begun is None:
            return  # it began before the sink was opened, or was dropped
        at_ns, context = begun
        attributes = self._attributes(event.url, event.verb) | {
            "http.request.body.size": event.sent_bytes,
            "http.response.body.size": event.received_bytes,
            "http.request.resend_count": event.attempt - 1,
            "penstock.first_byte_s": event.first_byte_s,
        }
        if event.status:
            attributes["http.response.status_code"] = event.status
        if event.host:
            attributes["server.address"] = event.host.partition(":")[0]
        span = self._tracer.start_span(
            f"penstock.request {event.verb}", _root(context), SpanKind.CLIENT, attributes, start_time=at_ns
        )
        self._settle(span, event)
        span.end(record.at_ns)

    def _attributes(self, url: str, operation: str) -> dict[str, Any]:
        scheme, mark, _ = url.partition("://")
        names = self._names
        return {
            "url.full": url,
            f"{names}.operation": operation,
            f"{names}.provider": scheme if mark else "file",
            f"{names}.version": VERSION,
        }

    def _settle(self, span: Span, event: OperationEnded | RequestEnded) -> None:
        from opentelemetry.trace import StatusCode

        kind = event.error.partition(":")[0]
        span.set_attribute(f"{self._names}.status", "success" if event.outcome == "done" else f"error.{kind}")
        if event.outcome == "failed":
            span.set_status(StatusCode.ERROR, event.error)
            span.set_attribute("error.type", kind)

    def close(self, at_ns: int) -> None:
        """End what is open."""
        while self._open:
            self._open.popitem()[1].end(at_ns)


def _root(context: Context | None) -> Context:
    """Return a context of its own for what has no parent: the pump's thread has none that matters."""
    from opentelemetry.context import Context

    return Context() if context is None else context


def captured(event: Event, remote: Context | None) -> Context | None:
    """Return the context of the thread where an operation begins, else the one that the loader's process was in."""
    from opentelemetry.trace import get_current_span, set_span_in_context

    if not isinstance(event, OperationStarted | RequestStarted) or event.parent:
        return None
    if isinstance(event, OperationStarted):
        span = get_current_span()
        if span.get_span_context().is_valid:
            return set_span_in_context(span)
    return remote


def traceparent() -> bytes:
    """Return the current span as W3C's ``traceparent``; b"" without one."""
    from opentelemetry.trace import get_current_span

    span = get_current_span().get_span_context()
    if not span.is_valid:
        return b""
    return f"00-{span.trace_id:032x}-{span.span_id:016x}-{int(span.trace_flags):02x}".encode()


def adopt(parent: bytes) -> Context | None:
    """Make the span that ``traceparent`` returned elsewhere the current one of this thread; returns its context."""
    from opentelemetry.context import Context, attach
    from opentelemetry.trace import NonRecordingSpan, SpanContext, TraceFlags, set_span_in_context

    found = _PARENT.match(parent)
    if found is None:
        attach(Context())
        return None
    trace, span, flags = (int(part, 16) for part in found.groups())
    remote = SpanContext(trace, span, is_remote=True, trace_flags=TraceFlags(flags))
    context = set_span_in_context(NonRecordingSpan(remote), Context())
    attach(context)
    return context
