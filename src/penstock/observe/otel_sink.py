"""The OpenTelemetry sink: spans and metrics of each process.

``found`` takes the program's providers, or makes new ones that export by OTLP; ``telemetry_sink`` makes the sink of a
section ``opentelemetry`` of Multi-Storage Client. ``Spans`` turns records into spans, ``observe`` counts into metrics.
"""

from __future__ import annotations

import os
import re
from collections import OrderedDict
from contextlib import suppress
from dataclasses import dataclass, field
from time import time_ns
from typing import TYPE_CHECKING, Any, Final
from urllib.parse import urlsplit

from penstock.errors import MissingExtra, Unusable, printable
from penstock.events import (
    OperationEnded,
    OperationStarted,
    PartEnded,
    RequestEnded,
    RequestStarted,
    Retried,
    context_of,
)
from penstock.observe.board import COUNTERS, DISTRIBUTIONS, count_process
from penstock.observe.sink import fill_placeholders
from penstock.version import VERSION

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping, Sequence

    from opentelemetry.context import Context
    from opentelemetry.metrics import Meter, MeterProvider
    from opentelemetry.trace import Span, Tracer, TracerProvider

    from penstock.events import Event, HostTimings
    from penstock.histogram import Histogram
    from penstock.observe.board import Metric
    from penstock.observe.sink import Record

_STAND_INS = ("opentelemetry.trace", "opentelemetry.metrics")  # the SDK's are in opentelemetry.sdk
_FLUSH_MS = 1500  # of a worker's two seconds


@dataclass(frozen=True)
class Providers:
    """The providers of traces and of metrics; None: that signal is not recorded. ``own``: shut down with the sink."""

    traces: TracerProvider | None
    metrics: MeterProvider | None
    own: bool

    def close(self) -> None:
        """Export the remaining data; shut down providers that were made here."""
        for each in (self.traces, self.metrics):
            if each is not None and hasattr(each, "force_flush"):  # only the SDK's have it
                each.force_flush(_FLUSH_MS)
            if each is not None and self.own and hasattr(each, "shutdown"):
                each.shutdown()


def found(endpoint: str, *, traces: bool, metrics: bool) -> Providers:
    """Return the program's providers if it has set any and ``endpoint`` is empty; else new providers.

    New providers export by OTLP over HTTP to ``endpoint``, or as the variables ``OTEL_EXPORTER_OTLP_…`` specify.
    """
    try:
        from opentelemetry.metrics import get_meter_provider
        from opentelemetry.trace import get_tracer_provider

        if not endpoint:
            tracer, meter = get_tracer_provider(), get_meter_provider()
            given = Providers(tracer if traces else None, meter if metrics else None, own=False)
            if any(_is_provider_set(each) for each in (given.traces, given.metrics)):
                return given
        return Providers(
            _tracer_provider(_collector(endpoint, "traces")) if traces else None,
            _meter_provider(_collector(endpoint, "metrics")) if metrics else None,
            own=True,
        )
    except ImportError as error:
        raise MissingExtra(f"OpenTelemetry needs pip install 'penstock[otel]' ({error})") from error


def _is_provider_set(provider: object) -> bool:
    """Return whether the program has set a provider: the API's default providers record nothing."""
    return provider is not None and not type(provider).__module__.startswith(_STAND_INS)


def _resource() -> Any:  # noqa: ANN401  the SDK is optional
    from opentelemetry.sdk.resources import Resource

    named = {} if os.environ.get("OTEL_SERVICE_NAME") else {"service.name": "penstock"}
    rank = {"penstock.rank": os.environ["RANK"]} if os.environ.get("RANK") else {}
    return Resource.create({**named, **rank, "process.pid": os.getpid(), "penstock.version": VERSION})


def _tracer_provider(named: dict[str, str]) -> TracerProvider:
    """Return a new provider with the exporter that settings describe; raise ``ImportError`` without the SDK."""
    from opentelemetry.sdk.trace import TracerProvider
    from opentelemetry.sdk.trace.export import BatchSpanProcessor, ConsoleSpanExporter

    if named["exporter"] == "console":
        exporter: Any = ConsoleSpanExporter()
    else:
        from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter

        exporter = OTLPSpanExporter(**_otlp(named))
    provider = TracerProvider(resource=_resource(), shutdown_on_exit=False)
    provider.add_span_processor(BatchSpanProcessor(exporter))
    return provider


def _meter_provider(named: dict[str, str]) -> MeterProvider:
    """Return a new provider with the exporter and the reader that settings describe."""
    from opentelemetry.sdk.metrics import MeterProvider
    from opentelemetry.sdk.metrics.export import ConsoleMetricExporter, PeriodicExportingMetricReader

    if named["exporter"] == "console":
        exporter: Any = ConsoleMetricExporter()
    else:
        from opentelemetry.exporter.otlp.proto.http.metric_exporter import OTLPMetricExporter

        exporter = OTLPMetricExporter(**_otlp(named))
    reader = PeriodicExportingMetricReader(exporter, **_options(named, _READER))
    return MeterProvider([reader], resource=_resource(), shutdown_on_exit=False)


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

    Example:
        >>> from opentelemetry.sdk.trace import TracerProvider
        >>> from penstock.observe import OpenTelemetry, to
        >>> with to(OpenTelemetry(metrics=False, setup=lambda: (TracerProvider(), None))) as sinks:
        ...     meta = ps.stat("s3://bucket/train/3/0000.png")
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
            raise Unusable("OpenTelemetry(traces=False, metrics=False) records nothing: leave out one of them")
        if self.setup is not None and self.endpoint:
            raise Unusable("OpenTelemetry takes setup= or endpoint=, not both")
        if self.setup is not None and not callable(self.setup):
            raise Unusable("OpenTelemetry takes setup=, a function that returns the providers of traces and metrics")
        if self.endpoint:
            _check_endpoint(self.endpoint)

    @property
    def events(self) -> bool:
        """Whether the sink makes spans."""
        return self.traces

    def open(self, *, first: bool) -> _OtelWriter:  # noqa: ARG002  a sink's signature
        """Return a writer by this process's providers; raise ``MissingExtra`` if OpenTelemetry is not installed."""
        if self.setup is None:
            return _OtelWriter(found(self.endpoint, traces=self.traces, metrics=self.metrics), self)
        traces, metrics = self.setup()
        return _OtelWriter(
            Providers(traces if self.traces else None, metrics if self.metrics else None, own=True), self
        )


def _check_endpoint(endpoint: str) -> None:
    """Refuse an endpoint that no exporter can use, or with a password, which reprs and logs would show."""
    try:
        parts = urlsplit(endpoint)
    except (ValueError, AttributeError):
        parts = urlsplit("")
    if parts.scheme not in ("http", "https") or not parts.hostname:
        raise Unusable("endpoint= is the URL of a collector for OTLP over HTTP, such as http://localhost:4318")
    if "@" in parts.netloc or parts.query:
        raise Unusable("endpoint= holds a user, a password or a query: put secrets into OTEL_EXPORTER_OTLP_HEADERS")


class _OtelWriter:
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
            attributes = {name: fill_placeholders(value) for name, value in sink.attributes.items()}
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
    """Register instruments of ``meter`` that read the counts of this process; return a function that stops them.

    ``attributes`` are added to each metric, in addition to ``server.address`` and ``quantile``.

    Histograms become gauges of quantiles, over the values since the last collection, because the API has no observable
    histograms.
    """
    state = _State(attributes or {})
    labels = ("server.address", f"{namespace}.cache", f"{namespace}.job.operation")
    for table, (label, counters) in enumerate(zip(labels, COUNTERS, strict=True)):
        for counter in counters:
            name, ask = f"{namespace}.{counter.name}", _count(counter, state, label, table)
            meter.create_observable_counter(name, [ask], unit=counter.unit, description=counter.help)
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


def _count(of: Metric[Any, float], state: _State, label: str, table: int) -> Callable[[Any], Iterable[Any]]:
    def ask(_options: object) -> Iterable[Any]:
        from opentelemetry.metrics import Observation

        found = {} if state.silent else count_process()[table]
        return [Observation(of.value(each), state.attributes | {label: name}) for name, each in found.items()]

    return ask


def _quantiles(each: Metric[HostTimings, Histogram], state: _State) -> Callable[[Any], Iterable[Any]]:
    before: dict[str, Histogram] = {}

    def ask(_options: object) -> Iterable[Any]:
        from opentelemetry.metrics import Observation

        told = []
        for name, host in ({} if state.silent else count_process().hosts).items():
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
        self._tracer = tracer
        self._names = namespace
        self._open: OrderedDict[int, Span] = OrderedDict()
        self._contexts: OrderedDict[int, Context] = OrderedDict()
        self._begun: dict[tuple[int, int], tuple[int, Context | None]] = {}

    def write(self, records: Sequence[Record]) -> None:
        for record in records:
            event = record.event
            match event:
                case OperationStarted():
                    self._begin(record, event)
                case OperationEnded():
                    self._finish(record, event)
                case PartEnded():
                    self._part(event)
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

    def _part(self, event: PartEnded) -> None:
        """Add the counts of a part to its span, which ends next."""
        span = self._open.get(event.parent)
        if span is not None:
            job = f"{self._names}.job"
            numbers = {f"{job}.{name}": number for name, number in event.counts.items()}
            span.set_attributes({f"{job}.operation": event.operation, f"{job}.part": event.part, **numbers})

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
        while self._open:
            self._open.popitem()[1].end(at_ns)


def _root(context: Context | None) -> Context:
    """Return ``context``, or an empty context without one: never the context of the pump's thread."""
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


_NUMBERS: Final = ("timeout", "export_interval_millis", "export_timeout_millis")
_READER: Final = _NUMBERS[1:]


def telemetry_sink(settings: tuple[tuple[str, str], ...]) -> OpenTelemetry:
    """Return the sink of a profile's ``telemetry`` (see ``stores/profiles/multistorage``), under the old names."""
    named = dict(settings)
    return OpenTelemetry(
        traces="traces.exporter" in named,
        metrics="metrics.exporter" in named,
        setup=Exporters(settings),
        namespace="multistorageclient",
        attributes=_select_table(named, "attributes"),
    )


@dataclass(frozen=True)
class Exporters:
    """A function that makes the providers of a process; pickled for spawned processes."""

    # Pairs of a name such as ``metrics.endpoint`` and its value. Headers may be secrets: the repr does not show them.
    settings: tuple[tuple[str, str], ...] = field(repr=False)

    def __call__(self) -> tuple[TracerProvider | None, MeterProvider | None]:
        named = dict(self.settings)
        metrics, traces = _select_table(named, "metrics"), _select_table(named, "traces")
        try:
            return _tracer_provider(traces) if traces else None, _meter_provider(metrics) if metrics else None
        except ImportError as error:
            raise MissingExtra(f"OpenTelemetry needs pip install 'penstock[otel]' ({error})") from error


def _collector(endpoint: str, signal: str) -> dict[str, str]:
    """Return an exporter's settings for a collector; without an endpoint, OTEL_EXPORTER_OTLP_… specify it."""
    return {"exporter": "otlp"} | ({"endpoint": f"{endpoint.rstrip('/')}/v1/{signal}"} if endpoint else {})


def _otlp(named: dict[str, str]) -> dict[str, Any]:
    own = [name for name in named if name not in (*_READER, "exporter") and not name.startswith("headers.")]
    headers = _select_table(named, "headers")
    return _options(named, own) | ({"headers": headers} if headers else {})


def _options(named: dict[str, str], names: Iterable[str]) -> dict[str, Any]:
    return {name: float(named[name]) if name in _NUMBERS else named[name] for name in names if name in named}


def _select_table(named: dict[str, str], table: str) -> dict[str, str]:
    return {key.partition(".")[2]: value for key, value in named.items() if key.startswith(f"{table}.")}
