"""The sink: spans and metrics for OpenTelemetry, in each process."""

from __future__ import annotations

from contextlib import suppress
from dataclasses import dataclass, field
from time import time_ns
from typing import TYPE_CHECKING
from urllib.parse import urlsplit

from penstock.errors import Unusable
from penstock.events import context_of
from penstock.observe.files import filled
from penstock.observe.otel.meters import observe
from penstock.observe.otel.providers import Providers, found
from penstock.observe.otel.spans import Spans, adopt, captured, traceparent
from penstock.version import VERSION

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from opentelemetry.context import Context
    from opentelemetry.metrics import MeterProvider
    from opentelemetry.trace import TracerProvider

    from penstock.events import Event
    from penstock.observe.sink import Record

__all__ = ["OpenTelemetry"]


@dataclass(frozen=True)
class OpenTelemetry:
    """Spans of operations and requests, and metrics by host. Needs the extra ``otel``.

    Spans belong to the span that is current where a read begins; in workers of ``penstock.DataLoader``, to the one that
    was current where the training loop began to iterate. Metrics cost requests nothing; spans cost what events do.

    Attributes:
        traces: Make spans.
        metrics: Make metrics.
        endpoint: An OTLP collector's, such as ``"http://localhost:4318"``. By default the providers that the program
            has set are used; without any, exporters are made as ``OTEL_EXPORTER_OTLP_…`` say.
        setup: Returns the providers of traces and metrics (or None for either) instead; it is called in each process,
            and pickled for those that are spawned.
        namespace: What names of metrics and of attributes begin with; ``"multistorageclient"`` keeps dashboards that
            filter by Multi-Storage Client's attributes.
        attributes: Of each metric, beside Penstock's own; ``{pid}``, ``{rank}`` and ``{host}`` are filled in by each
            process.

    """

    traces: bool = True
    metrics: bool = True
    endpoint: str = ""
    setup: Callable[[], tuple[TracerProvider | None, MeterProvider | None]] | None = None
    namespace: str = "penstock"
    attributes: Mapping[str, str] = field(default_factory=dict)

    def __post_init__(self) -> None:
        """Refuse what would record nothing."""
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
        """Whether it makes spans."""
        return self.traces

    def open(self, *, first: bool) -> _Writer:  # noqa: ARG002  a sink's signature
        """Find or make this process's providers; ``MissingExtra`` where OpenTelemetry is not installed."""
        if self.setup is None:
            return _Writer(found(self.endpoint, traces=self.traces, metrics=self.metrics), self)
        traces, metrics = self.setup()
        return _Writer(Providers(traces if self.traces else None, metrics if self.metrics else None, own=True), self)


def _check(endpoint: str) -> None:
    """Refuse an endpoint that no exporter can use; one with a password, which representations and logs would show."""
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
