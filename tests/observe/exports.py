"""Providers that write what they are given to files, in any process."""

from __future__ import annotations

import json
import os
from functools import partial
from typing import TYPE_CHECKING, Any

from opentelemetry.sdk.metrics import MeterProvider
from opentelemetry.sdk.metrics.export import ConsoleMetricExporter, PeriodicExportingMetricReader
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import ConsoleSpanExporter, SimpleSpanProcessor

if TYPE_CHECKING:
    from pathlib import Path


def providers(folder: Path) -> tuple[TracerProvider, MeterProvider]:
    """Return providers of traces and metrics that write lines into ``folder``."""
    traces = TracerProvider(shutdown_on_exit=False)
    out: Any = Appended(folder / f"spans-{os.getpid()}")
    traces.add_span_processor(SimpleSpanProcessor(ConsoleSpanExporter(out=out, formatter=_line)))
    measures: Any = Appended(folder / f"metrics-{os.getpid()}")
    reader = PeriodicExportingMetricReader(ConsoleMetricExporter(out=measures, formatter=_line), 3_600_000)
    return traces, MeterProvider([reader], shutdown_on_exit=False)


class Appended:
    """A file that is open only while it is written to."""

    def __init__(self, path: Path) -> None:
        self.path = path

    def write(self, text: str) -> None:
        with self.path.open("a") as file:
            file.write(text)

    def flush(self) -> None:
        """Nothing is held back."""


def setup_in(folder: Path) -> partial[tuple[TracerProvider, MeterProvider]]:
    folder.mkdir(exist_ok=True)
    return partial(providers, folder)


def _line(thing: Any) -> str:
    return thing.to_json(indent=None).replace("\n", " ") + "\n"


def spans_of(folder: Path) -> list[dict[str, Any]]:
    """Return the spans of all processes, each with its ``pid``."""
    return [
        json.loads(line) | {"pid": int(path.name.partition("-")[2])}
        for path in sorted(folder.glob("spans-*"))
        for line in path.read_text().splitlines()
    ]


def metrics_of(folder: Path) -> dict[str, list[dict[str, Any]]]:
    """Return the data points of the last export by name, over all processes."""
    found: dict[str, list[dict[str, Any]]] = {}
    for path in sorted(folder.glob("metrics-*")):
        lines = path.read_text().splitlines()
        for resource in json.loads(lines[-1])["resource_metrics"] if lines else ():
            for metric in (metric for scope in resource["scope_metrics"] for metric in scope["metrics"]):
                found.setdefault(metric["name"], []).extend(metric["data"]["data_points"])
    return found
