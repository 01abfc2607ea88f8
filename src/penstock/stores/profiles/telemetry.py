"""Section ``opentelemetry`` of Multi-Storage Client's files as values of a profile. Pure."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

__all__ = ["telemetry"]

_SIGNALS = ("metrics", "traces")
_EXPORTERS = ("otlp", "console")
_OTLP_OPTIONS = ("endpoint", "certificate_file", "client_key_file", "client_certificate_file", "timeout")
_READER = ("export_interval_millis", "export_timeout_millis")
# Type of an attributes provider -> form of each of its words in an attribute of the sink.
_FILLED = {"host": {"name": "{host}"}, "process": {"pid": "{pid}"}}


def telemetry(section: object) -> tuple[dict[str, object], list[str]]:
    """Return the section's values as ``metrics.endpoint``, ``attributes.NAME``, …, and its unused keys.

    Exporters are ``otlp`` and ``console``; a signal without one is not exported, as in Multi-Storage Client.
    Attributes come from static values, the environment, the host name and the process id.
    """
    found: dict[str, object] = {}
    notes: list[str] = []
    if not isinstance(section, Mapping):
        return {}, ["opentelemetry"]
    for key, content in section.items():
        if key not in _SIGNALS or not isinstance(content, Mapping):
            notes.append(f"opentelemetry.{key}")
            continue
        exporter = _exporter(str(key), content.get("exporter"), notes)
        found |= exporter
        if key == "metrics" and exporter:
            reader = _table(_table(content.get("reader")).get("options"))
            found |= {f"metrics.{name}": raw for name, raw in reader.items() if name in _READER}
            notes += [f"opentelemetry.metrics.reader.options.{name}" for name in reader if name not in _READER]
            found |= _attributes(content.get("attributes"), notes)
        known = ("exporter", "reader", "attributes") if key == "metrics" else ("exporter",)
        notes += [f"opentelemetry.{key}.{name}" for name in content if name not in known]
    return found, notes


def _exporter(signal: str, given: object, notes: list[str]) -> dict[str, object]:
    where = f"opentelemetry.{signal}.exporter"
    content = _table(given)
    kind = content.get("type")
    if kind not in _EXPORTERS:
        notes.append(f"{where}.type ({kind})" if content else f"opentelemetry.{signal} (it names no exporter)")
        return {}
    found: dict[str, object] = {f"{signal}.exporter": kind}
    for name, raw in _table(content.get("options")).items():
        if name == "headers" and isinstance(raw, Mapping):
            found |= {f"{signal}.headers.{header}": str(value) for header, value in raw.items()}
        elif name in _OTLP_OPTIONS and kind == "otlp":
            found[f"{signal}.{name}"] = raw
        else:
            notes.append(f"{where}.options.{name}")
    return found


def _attributes(given: object, notes: list[str]) -> dict[str, object]:
    """Return the attributes of metrics; of several with one name the last counts, as in Multi-Storage Client."""
    found: dict[str, object] = {}
    for content in map(_table, given if isinstance(given, list) else ()):
        kind = str(content.get("type"))
        for name, raw in _table(_table(content.get("options")).get("attributes")).items():
            if kind == "static":
                value = str(raw)
            elif kind == "environment_variables":
                value = f"${{{raw}:-}}"
            else:
                value = _FILLED.get(kind, {}).get(str(raw), "")
            if value:
                found[f"attributes.{name}"] = value
            else:
                notes.append(f"opentelemetry.metrics.attributes.{name} ({kind})")
        if not _table(content.get("options")).get("attributes"):
            notes.append(f"opentelemetry.metrics.attributes ({kind})")
    return found


def _table(value: object) -> Mapping[str, Any]:
    return value if isinstance(value, Mapping) else {}
