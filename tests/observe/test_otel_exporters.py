"""Multi-Storage Client's exporters: each in its place, with headers and attributes, and no secret is shown."""

import json
import pickle

import pytest

from penstock.errors import MissingExtra
from penstock.observe.otel_sink import Exporters, telemetry_sink
from penstock.observe.subscription import to
from tests.children import python
from tests.observe.reads import keys_of, read_one, source_of
from tests.observe.test_otel_providers import Collector, collector  # noqa: F401  a fixture


def test_metrics_go_to_the_endpoint_as_it_is_named_with_its_headers(collector, monkeypatch, tmp_path):  # noqa: F811
    heard = []
    monkeypatch.setattr(Collector, "log_request", lambda self, *_: heard.append(self.headers.get("X-Key")))
    settings = (
        ("metrics.exporter", "otlp"),
        ("metrics.endpoint", f"http://127.0.0.1:{collector.server_address[1]}/some/metrics"),
        ("metrics.headers.X-Key", "secret"),
        ("metrics.timeout", "3"),
        ("metrics.export_interval_millis", "3600000"),
        ("attributes.node", "{host}"),
    )
    sink = pickle.loads(pickle.dumps(telemetry_sink(settings)))
    assert (sink.traces, sink.metrics, sink.namespace) == (False, True, "multistorageclient")
    assert "secret" not in repr(sink)
    with to(sink):
        read_one(source_of(tmp_path), keys_of(tmp_path)[0])
    assert set(collector.posted) == {"/some/metrics"}
    assert set(heard) == {"secret"}


CONSOLE = """
    import sys
    from penstock.observe.otel_sink import telemetry_sink
    from penstock.observe.subscription import to
    from penstock.source import open_source

    settings = (("metrics.exporter", "console"), ("traces.exporter", "console"), ("attributes.cluster", "one"))
    source, key = open_source(sys.argv[1])
    with to(telemetry_sink(settings)):
        source.head(key)
"""


def printed(text):
    """Return the JSON documents that a console exporter has printed."""
    found, decoder = [], json.JSONDecoder()
    while text.strip():
        each, end = decoder.raw_decode(text.strip())
        found.append(each)
        text = text.strip()[end:]
    return found


def points_of(documents):
    """Return the attributes of each metric's points."""
    return {
        metric["name"]: [point["attributes"] for point in metric["data"]["data_points"]]
        for each in documents
        for resource in each.get("resource_metrics", ())
        for scope in resource["scope_metrics"]
        for metric in scope["metrics"]
    }


def test_the_console_has_metrics_with_attributes_and_spans(tmp_path):
    (tmp_path / "key").write_bytes(b"x")
    result = python(CONSOLE, str(tmp_path / "key"))
    assert (result.returncode, result.stderr) == (0, "")
    found = printed(result.stdout)
    assert points_of(found)["multistorageclient.requests"] == [{"cluster": "one", "server.address": "file"}]
    assert "penstock.request head" in {each.get("name") for each in found}


def test_without_the_library_the_extra_is_named(monkeypatch):
    monkeypatch.setitem(__import__("sys").modules, "opentelemetry.sdk.metrics.export", None)
    with pytest.raises(MissingExtra, match=r"penstock\[otel\]"):
        Exporters((("metrics.exporter", "console"),))()
