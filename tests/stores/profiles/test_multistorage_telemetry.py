"""Multi-Storage Client's section ``opentelemetry``: what can be carried out, and every key that cannot."""

import pytest

from penstock.stores.profiles.multistorage import telemetry

OTLP = {"type": "otlp", "options": {"endpoint": "http://h:4318/v1/metrics", "headers": {"X-Key": "$KEY"}, "timeout": 3}}


def test_exporters_their_reader_and_attributes_become_settings():
    attributes = [
        {"type": "static", "options": {"attributes": {"cluster": "old", "organization": "me"}}},
        {"type": "environment_variables", "options": {"attributes": {"cluster": "CLUSTER"}}},
        {"type": "host", "options": {"attributes": {"node": "name"}}},
        {"type": "process", "options": {"attributes": {"process": "pid"}}},
    ]
    reader = {"options": {"export_interval_millis": 1000, "export_timeout_millis": 500}}
    section = {
        "metrics": {"exporter": OTLP, "reader": reader, "attributes": attributes},
        "traces": {"exporter": {"type": "console"}},
    }
    assert telemetry(section) == (
        {
            "metrics.exporter": "otlp",
            "metrics.endpoint": "http://h:4318/v1/metrics",
            "metrics.headers.X-Key": "$KEY",
            "metrics.timeout": 3,
            "metrics.export_interval_millis": 1000,
            "metrics.export_timeout_millis": 500,
            "attributes.cluster": "${CLUSTER:-}",
            "attributes.organization": "me",
            "attributes.node": "{host}",
            "attributes.process": "{pid}",
            "traces.exporter": "console",
        },
        [],
    )


@pytest.mark.parametrize(
    ("section", "notes"),
    [
        ("on", ["opentelemetry"]),
        ({"logs": {}}, ["opentelemetry.logs"]),
        ({"metrics": {}}, ["opentelemetry.metrics (it names no exporter)"]),
        ({"traces": {"exporter": {"type": "mine.E"}}}, ["opentelemetry.traces.exporter.type (mine.E)"]),
        (
            {"traces": {"exporter": {"type": "console", "options": {"out": 1}}, "sampler": 1}},
            ["opentelemetry.traces.exporter.options.out", "opentelemetry.traces.sampler"],
        ),
        (
            {"metrics": {"exporter": OTLP, "reader": {"options": {"collect_interval_millis": 10}}}},
            ["opentelemetry.metrics.reader.options.collect_interval_millis"],
        ),
        (
            {
                "metrics": {
                    "exporter": OTLP,
                    "attributes": [
                        {"type": "thread", "options": {"attributes": {"thread": "native_id"}}},
                        {"type": "host", "options": {"attributes": {"node": "rack"}}},
                        {"type": "mine.Attributes"},
                    ],
                }
            },
            [
                "opentelemetry.metrics.attributes.thread (thread)",
                "opentelemetry.metrics.attributes.node (host)",
                "opentelemetry.metrics.attributes (mine.Attributes)",
            ],
        ),
    ],
    ids=range(7),
)
def test_unsupported_telemetry_settings_are_reported(section, notes):
    assert telemetry(section)[1] == notes


def test_a_reader_without_an_exporter_exports_nothing_also_beside_traces():
    reader = {"options": {"export_interval_millis": 1000}}
    found, notes = telemetry({"traces": {"exporter": {"type": "console"}}, "metrics": {"reader": reader}})
    assert found == {"traces.exporter": "console"}
    assert notes == ["opentelemetry.metrics (it names no exporter)"]
