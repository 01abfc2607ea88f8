"""A program's own providers are used, and not ended; else new ones export by OTLP."""

from __future__ import annotations

import http.server
import sys
import threading

import pytest

from penstock.errors import MissingExtra
from penstock.observe.otel_sink import Providers, found
from tests.children import python


class Collector(http.server.BaseHTTPRequestHandler):
    def do_POST(self):
        self.rfile.read(int(self.headers["Content-Length"]))
        self.server.posted.append(self.path)
        self.send_response(200)
        self.end_headers()

    def log_message(self, *_):
        pass


@pytest.fixture
def collector():
    server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Collector)
    server.posted = []
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
    thread.start()
    yield server
    server.shutdown()
    server.server_close()
    thread.join()


@pytest.fixture(autouse=True)
def _no_steering(monkeypatch):
    for name in [name for name in __import__("os").environ if name.startswith("OTEL_")]:
        monkeypatch.delenv(name)


@pytest.mark.parametrize("given", [True, False])
def test_without_providers_of_the_program_new_ones_export_by_otlp(collector, monkeypatch, given):
    endpoint = f"http://127.0.0.1:{collector.server_address[1]}"
    if not given:
        monkeypatch.setenv("OTEL_EXPORTER_OTLP_ENDPOINT", endpoint)
    monkeypatch.setenv("RANK", "2")
    providers = found(f"{endpoint}/" if given else "", traces=True, metrics=True)
    assert providers.own
    assert providers.traces.resource.attributes["service.name"] == "penstock"
    assert providers.traces.resource.attributes["penstock.rank"] == "2"
    providers.traces.get_tracer("tests").start_span("one").end()
    providers.metrics.get_meter("tests").create_counter("one").add(1)
    providers.close()
    assert {"/v1/traces", "/v1/metrics"} <= set(collector.posted)


def test_only_requested_otel_providers_are_created():
    traces = found("http://127.0.0.1:1", traces=True, metrics=False)
    assert traces.metrics is None
    traces.close()
    Providers(None, None, own=True).close()


def test_the_programs_own_providers_are_used_and_live_on():
    script = """
        from opentelemetry.sdk.trace import TracerProvider
        from opentelemetry.trace import set_tracer_provider
        from penstock.observe.otel_sink import found
        mine = TracerProvider()
        set_tracer_provider(mine)
        ends = []
        mine.shutdown = lambda: ends.append(1)
        both = found("", traces=True, metrics=True)
        assert both.traces is mine and not both.own
        both.close()
        assert not ends
        other = found("http://127.0.0.1:1", traces=True, metrics=False)
        assert other.traces is not mine and other.own
        mine.shutdown = lambda: None
    """
    result = python(script)
    assert (result.returncode, result.stderr) == (0, "")


def test_without_the_library_the_extra_is_named(monkeypatch):
    monkeypatch.setitem(sys.modules, "opentelemetry.exporter.otlp.proto.http.trace_exporter", None)
    with pytest.raises(MissingExtra, match=r"penstock\[otel\]"):
        found("http://127.0.0.1:1", traces=True, metrics=False)
