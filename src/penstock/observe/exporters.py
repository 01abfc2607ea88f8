"""A sink for the section ``opentelemetry`` of Multi-Storage Client, with the exporters that the section names."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Final

from penstock.errors import MissingExtra
from penstock.observe.otel_sink import OpenTelemetry
from penstock.observe.providers import meter_provider, tracer_provider

if TYPE_CHECKING:
    from collections.abc import Iterable

    from opentelemetry.metrics import MeterProvider
    from opentelemetry.trace import TracerProvider

__all__ = ["Exporters", "telemetry_sink"]

_NUMBERS: Final = ("timeout", "export_interval_millis", "export_timeout_millis")
_READER: Final = _NUMBERS[1:]


def telemetry_sink(settings: tuple[tuple[str, str], ...]) -> OpenTelemetry:
    """Return the sink of a profile's ``telemetry`` (see ``stores/profiles/telemetry``), under the old names."""
    named = dict(settings)
    return OpenTelemetry(
        traces="traces.exporter" in named,
        metrics="metrics.exporter" in named,
        setup=Exporters(settings),
        namespace="multistorageclient",
        attributes=_below(named, "attributes"),
    )


@dataclass(frozen=True)
class Exporters:
    """A function that makes the providers of a process; pickled for spawned processes.

    Attributes:
        settings: Pairs of a name such as ``metrics.endpoint`` and its value. Headers may be secrets: the repr does not
            show them.

    """

    settings: tuple[tuple[str, str], ...] = field(repr=False)

    def __call__(self) -> tuple[TracerProvider | None, MeterProvider | None]:
        """Return the providers of traces and metrics; None for a signal that is not exported."""
        named = dict(self.settings)
        metrics, traces = _below(named, "metrics"), _below(named, "traces")
        try:
            return (
                tracer_provider(_span_exporter(traces)) if traces else None,
                meter_provider(_metric_exporter(metrics), **_options(metrics, _READER)) if metrics else None,
            )
        except ImportError as error:
            raise MissingExtra(f"OpenTelemetry needs pip install 'penstock[otel]' ({error})") from error


def _span_exporter(named: dict[str, str]) -> Any:  # noqa: ANN401  the SDK is optional
    if named["exporter"] == "console":
        from opentelemetry.sdk.trace.export import ConsoleSpanExporter

        return ConsoleSpanExporter()
    from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter

    return OTLPSpanExporter(**_otlp(named))


def _metric_exporter(named: dict[str, str]) -> Any:  # noqa: ANN401  the SDK is optional
    if named["exporter"] == "console":
        from opentelemetry.sdk.metrics.export import ConsoleMetricExporter

        return ConsoleMetricExporter()
    from opentelemetry.exporter.otlp.proto.http.metric_exporter import OTLPMetricExporter

    return OTLPMetricExporter(**_otlp(named))


def _otlp(named: dict[str, str]) -> dict[str, Any]:
    own = [name for name in named if name not in (*_READER, "exporter") and not name.startswith("headers.")]
    headers = _below(named, "headers")
    return _options(named, own) | ({"headers": headers} if headers else {})


def _options(named: dict[str, str], names: Iterable[str]) -> dict[str, Any]:
    return {name: float(named[name]) if name in _NUMBERS else named[name] for name in names if name in named}


def _below(named: dict[str, str], table: str) -> dict[str, str]:
    return {key.partition(".")[2]: value for key, value in named.items() if key.startswith(f"{table}.")}
