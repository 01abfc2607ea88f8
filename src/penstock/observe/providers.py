"""OpenTelemetry's providers for this process: those of the program, or new ones that export by OTLP."""

from __future__ import annotations

import os
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from penstock.errors import MissingExtra
from penstock.version import VERSION

if TYPE_CHECKING:
    from opentelemetry.metrics import MeterProvider
    from opentelemetry.trace import TracerProvider

__all__ = ["Providers", "found", "meter_provider", "tracer_provider"]

_STAND_INS = ("opentelemetry.trace", "opentelemetry.metrics")  # the SDK's are in opentelemetry.sdk
_FLUSH_MS = 1500  # of a worker's two seconds


@dataclass(frozen=True)
class Providers:
    """The providers of traces and of metrics; None: that signal is not recorded.

    Attributes:
        own: Whether they were made here, and are shut down with the sink.

    """

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

    Raises:
        MissingExtra: OpenTelemetry, its SDK or its exporter is not installed.

    """
    try:
        from opentelemetry.metrics import get_meter_provider
        from opentelemetry.trace import get_tracer_provider

        if not endpoint:
            tracer, meter = get_tracer_provider(), get_meter_provider()
            given = Providers(tracer if traces else None, meter if metrics else None, own=False)
            if any(_set(each) for each in (given.traces, given.metrics)):
                return given
        return Providers(
            tracer_provider(_otlp_spans(endpoint)) if traces else None,
            meter_provider(_otlp_metrics(endpoint)) if metrics else None,
            own=True,
        )
    except ImportError as error:
        raise MissingExtra(f"OpenTelemetry needs pip install 'penstock[otel]' ({error})") from error


def _set(provider: object) -> bool:
    """Return whether the program has set a provider: the API's default providers record nothing."""
    return provider is not None and not type(provider).__module__.startswith(_STAND_INS)


def _resource() -> Any:  # noqa: ANN401  the SDK is optional
    from opentelemetry.sdk.resources import Resource

    named = {} if os.environ.get("OTEL_SERVICE_NAME") else {"service.name": "penstock"}
    rank = {"penstock.rank": os.environ["RANK"]} if os.environ.get("RANK") else {}
    return Resource.create({**named, **rank, "process.pid": os.getpid(), "penstock.version": VERSION})


def _otlp_spans(endpoint: str) -> Any:  # noqa: ANN401  the SDK is optional
    from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter

    return OTLPSpanExporter(f"{endpoint.rstrip('/')}/v1/traces" if endpoint else None)


def _otlp_metrics(endpoint: str) -> Any:  # noqa: ANN401  the SDK is optional
    from opentelemetry.exporter.otlp.proto.http.metric_exporter import OTLPMetricExporter

    return OTLPMetricExporter(f"{endpoint.rstrip('/')}/v1/metrics" if endpoint else None)


def tracer_provider(exporter: Any) -> TracerProvider:  # noqa: ANN401  the SDK is optional
    """Return a new provider that exports spans by ``exporter``; raise ``ImportError`` without the SDK."""
    from opentelemetry.sdk.trace import TracerProvider
    from opentelemetry.sdk.trace.export import BatchSpanProcessor

    provider = TracerProvider(resource=_resource(), shutdown_on_exit=False)
    provider.add_span_processor(BatchSpanProcessor(exporter))
    return provider


def meter_provider(exporter: Any, **options: Any) -> MeterProvider:  # noqa: ANN401  the SDK is optional
    """Return a new provider that exports metrics by ``exporter``, with ``options`` of OpenTelemetry's periodic reader.

    Raises:
        ImportError: The SDK is not installed.

    """
    from opentelemetry.sdk.metrics import MeterProvider
    from opentelemetry.sdk.metrics.export import PeriodicExportingMetricReader

    reader = PeriodicExportingMetricReader(exporter, **options)
    return MeterProvider([reader], resource=_resource(), shutdown_on_exit=False)
