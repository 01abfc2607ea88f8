"""The OpenTelemetry sink: spans and metrics of each process."""

from __future__ import annotations

import os
import re
from collections import OrderedDict
from contextlib import suppress
from dataclasses import dataclass, field
from time import time_ns
from typing import TYPE_CHECKING, Any, Final
from urllib.parse import urlsplit

from penstock.errors import Unusable, printable
from penstock.events import OperationEnded, OperationStarted, RequestEnded, RequestStarted, Retried, context_of
from penstock.observe.board import CACHE_COUNTS, COUNTS, DISTRIBUTIONS, counted
from penstock.observe.files import filled
from penstock.observe.providers import Providers, found
from penstock.version import VERSION

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping, Sequence

    from opentelemetry.context import Context
    from opentelemetry.metrics import Meter, MeterProvider
    from opentelemetry.trace import Span, Tracer, TracerProvider

    from penstock.events import Event
    from penstock.histogram import Histogram
    from penstock.observe.board import CacheCount, Count, Distribution
    from penstock.observe.sink import Record

__all__ = ["OpenTelemetry", "Spans", "adopt", "observe", "traceparent"]


@dataclass(frozen=True)
class OpenTelemetry:
    """Spans of operations and requests, and metrics by host. Needs the extra ``otel``.

    The parent of a span is the current span where the read begins; in workers of ``penstock.DataLoader``, the span that
    was current where the training loop began to iterate. Metrics add no cost to requests; spans cost as much as events.

    Attributes:
        traces: Make spans.
        metrics: Make metrics.
        endpoint: URL of an OTLP collector, such as ``"http://localhost:4318"``. Default: the providers that the program
            has set; without any, exporters as the variables ``OTEL_EXPORTER_OTLP_…`` specify.
        setup: Function that returns the providers of traces and metrics (or None for either) instead; called in each
            process, and pickled for spawned processes.
        namespace: Prefix of the names of metrics and attributes; ``"multistorageclient"`` keeps dashboards working that
            filter by Multi-Storage Client's attributes.
        attributes: Attributes of each metric, in addition to Penstock's; ``{pid}``, ``{rank}`` and ``{host}`` are
            filled in by each process.

    """

    traces: bool = True
    metrics: bool = True
    endpoint: str = ""
    setup: Callable[[], tuple[TracerProvider | None, MeterProvider | None]] | None = None
    namespace: str = "penstock"
    attributes: Mapping[str, str] = field(default_factory=dict)

    def __post_init__(self) -> None:
        """Refuse arguments that record nothing, contradict each other, or are not valid."""
        if not (self.traces or self.metrics):
            raise Unusable("OpenTelemetry(traces=False, metrics=False) records nothing: drop one of them")
        if self.setup is not None and self.endpoint:
            raise Unusable("OpenTelemetry takes setup= or endpoint=, not both")
        if self.setup is not None and not callable(self.setup):
            raise Unusable("OpenTelemetry takes setup=, a function that returns the providers of traces and metrics")
        if self.endpoint:
            _check(self.endpoint)

    @property
    def events(self) -> bool:
        """Whether the sink makes spans."""
        return self.traces

    def open(self, *, first: bool) -> _Writer:  # noqa: ARG002  a sink's signature
        """Find or make this process's providers; raise ``MissingExtra`` if OpenTelemetry is not installed."""
        if self.setup is None:
            return _Writer(found(self.endpoint, traces=self.traces, metrics=self.metrics), self)
        traces, metrics = self.setup()
        return _Writer(Providers(traces if self.traces else None, metrics if self.metrics else None, own=True), self)


def _check(endpoint: str) -> None:
    """Refuse an endpoint that no exporter can use, or with a password, which reprs and logs would show."""
    try:
        parts = urlsplit(endpoint)
    except (ValueError, AttributeError):
        parts = urlsplit("")
    if parts.scheme not in ("http", "https") or not parts.hostname:
        raise Unusable("endpoint= is the URL of a collector for OTLP over HTTP, such as http://localhost:4318")
    if "@" in parts.netloc or parts.query:
        raise Unusable("endpoint= holds a user, a password or a query: put secrets into OTEL_EXPORTER_OTLP_HEADERS")


class _Writer:
    def __init__(self, providers: Providers, sink: OpenTelemetry) -> None:
        namespace = sink.namespace
        self._providers = providers
        self._remote: Context | None = None
        self._spans: Spans | None = None
        self._ends: list[Callable[[], None]] = []
        if providers.traces is not None:
            self._spans = Spans(providers.traces.get_tracer("penstock", VERSION), namespace)
            self._ends.append(context_of(traceparent, self._adopt))
        if providers.metrics is not None:
            attributes = {name: filled(value) for name, value in sink.attributes.items()}
            self._ends.append(observe(providers.metrics.get_meter("penstock", VERSION), namespace, attributes))

    def capture(self, event: Event) -> object:
        return captured(event, self._remote)

    def _adopt(self, parent: bytes) -> None:
        self._remote = adopt(parent)

    def write(self, records: Sequence[Record]) -> None:
        if self._spans is not None:
            self._spans.write(records)

    def close(self) -> None:
        if self._spans is not None:
            self._spans.close(time_ns())
        try:
            self._providers.close()  # metrics are collected once more
        finally:
            self.leave()

    def leave(self) -> None:
        for end in self._ends:
            with suppress(Exception):
                end()


_QUANTILES: Final = (0.5, 0.95, 0.99)


def observe(meter: Meter, namespace: str, attributes: Mapping[str, str] | None = None) -> Callable[[], None]:
    """Register instruments of ``meter`` that read the counts of this process; return a function that silences them.

    ``attributes`` are added to each metric, beside ``server.address`` and ``quantile``.

    Histograms become gauges of quantiles, over the values since the last collection, because the API has no observable
    histograms.
    """
    state = _State(attributes or {})
    for count in COUNTS:
        name = f"{namespace}.{count.name}"
        meter.create_observable_counter(name, [_count(count, state)], unit=count.unit, description=count.help)
    for of in CACHE_COUNTS:
        name = f"{namespace}.{of.name}"
        meter.create_observable_counter(name, [_cache_count(of, state, namespace)], unit=of.unit, description=of.help)
    for each in DISTRIBUTIONS:
        name = f"{namespace}.{each.name}"
        meter.create_observable_gauge(name, [_quantiles(each, state)], unit=each.unit, description=each.help)
    return state.end


class _State:
    def __init__(self, attributes: Mapping[str, str]) -> None:
        self.attributes = {**attributes}
        self.pid = os.getpid()
        self.ended = False

    def end(self) -> None:
        self.ended = True

    @property
    def silent(self) -> bool:
        """Whether to report nothing: an instrument cannot be removed, and a forked child inherits it."""
        return self.ended or self.pid != os.getpid()


def _count(count: Count, state: _State) -> Callable[[Any], Iterable[Any]]:
    def ask(_options: object) -> Iterable[Any]:
        from opentelemetry.metrics import Observation

        hosts = {} if state.silent else counted().hosts
        return [
            Observation(count.value(host), {**state.attributes, "server.address": name}) for name, host in hosts.items()
        ]

    return ask


def _cache_count(of: CacheCount, state: _State, namespace: str) -> Callable[[Any], Iterable[Any]]:
    def ask(_options: object) -> Iterable[Any]:
        from opentelemetry.metrics import Observation

        caches = {} if state.silent else counted().caches
        return [
            Observation(of.value(cache), state.attributes | {f"{namespace}.cache": name})
            for name, cache in caches.items()
        ]

    return ask


def _quantiles(each: Distribution, state: _State) -> Callable[[Any], Iterable[Any]]:
    before: dict[str, Histogram] = {}

    def ask(_options: object) -> Iterable[Any]:
        from opentelemetry.metrics import Observation

        told = []
        for name, host in ({} if state.silent else counted().hosts).items():
            now = each.value(host).copy()
            since = now - before[name] if name in before else now
            before[name] = now
            if since.count:
                told += [
                    Observation(since.quantile(share), state.attributes | {"server.address": name, "quantile": share})
                    for share in _QUANTILES
                ]
        return told

    return ask


# Operations: beyond this number, their ends count as dropped, and late requests have no parent.
_KEPT: Final = 10_000
# The port of a host, which may be an IPv6 address in brackets.
_PORT: Final = re.compile(r":\d*\Z")
_PARENT: Final = re.compile(rb"00-([0-9a-f]{32})-([0-9a-f]{16})-([0-9a-f]{2})")  # W3C Trace Context, version 00


class Spans:
    """Converter of records to spans, on the thread of a pump.

    The attributes are those of OpenTelemetry (``url.full``, ``server.address``, ``http.response.status_code``), and
    ``operation``, ``provider``, ``status`` and ``version`` of Multi-Storage Client below ``namespace``.
    """

    def __init__(self, tracer: Tracer, namespace: str) -> None:
        """Make spans by ``tracer``."""
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
                    # The failed attempt and the next one have spans.
                    pass

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
            # The start came before the sink was opened, or was dropped.
            return
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
            attributes["server.address"] = _PORT.sub("", event.host)
        span = self._tracer.start_span(
            f"penstock.request {event.verb}", _root(context), SpanKind.CLIENT, attributes, start_time=at_ns
        )
        self._settle(span, event)
        span.end(record.at_ns)

    def _attributes(self, url: str, operation: str) -> dict[str, Any]:
        scheme, mark, _ = url.partition("://")
        names = self._names
        return {
            # A lone surrogate, which OTLP cannot encode, would lose all spans of the same export.
            "url.full": printable(url),
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
        """End all open spans."""
        while self._open:
            self._open.popitem()[1].end(at_ns)


def _root(context: Context | None) -> Context:
    """Return ``context``, or an empty context without one: the context of the pump's thread is irrelevant."""
    from opentelemetry.context import Context

    return Context() if context is None else context


def captured(event: Event, remote: Context | None) -> Context | None:
    """Return the trace context of the thread where an operation begins, else the context of the loader's process."""
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
    """Make the span of ``parent``, from ``traceparent``, the current span of this thread; return its context."""
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
