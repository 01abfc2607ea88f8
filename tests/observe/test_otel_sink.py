"""Spans and metrics of a process and its workers, in the trace of the loop that iterates."""

from __future__ import annotations

import http.server
import json
import multiprocessing
import pickle
import sys
import threading

import pytest
from opentelemetry import context as contexts
from opentelemetry.sdk.metrics import MeterProvider
from opentelemetry.sdk.metrics.export import InMemoryMetricReader
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter
from opentelemetry.trace import StatusCode, get_current_span

from penstock.errors import MissingExtra, Unusable
from penstock.events import (
    OperationEnded,
    OperationStarted,
    RequestEnded,
    RequestStarted,
    Retried,
    count_cache,
    listening,
)
from penstock.observe import OpenTelemetry, Record, to
from penstock.observe import otel_sink as room
from penstock.observe.board import COUNTS
from penstock.observe.environment import named_sinks
from penstock.observe.otel_sink import (
    Exporters,
    Providers,
    Spans,
    adopt,
    captured,
    found,
    observe,
    telemetry_sink,
    traceparent,
)
from penstock.version import VERSION
from tests.children import forked, python
from tests.observe.exports import metrics_of, providers, setup_in, spans_of
from tests.observe.reads import keys_of, read_one, source_of


@pytest.fixture(autouse=True)
def _no_context_is_left():
    token = contexts.attach(contexts.Context())
    yield
    contexts.detach(token)


def test_reads_are_spans_of_the_span_that_the_program_is_in(tmp_path):
    source, keys, folder = source_of(tmp_path), keys_of(tmp_path), tmp_path / "out"
    with to(OpenTelemetry(setup=setup_in(folder))):
        tracer = providers(folder)[0].get_tracer("program")
        with tracer.start_as_current_span("step"):
            read_one(source, keys[0])
        read_one(source, keys[1])
    spans = spans_of(folder)
    step = next(span for span in spans if span["name"] == "step")["context"]
    (mine,) = [span for span in spans if span["parent_id"] == step["span_id"]]
    assert (mine["name"], mine["context"]["trace_id"]) == ("penstock.read", step["trace_id"])
    (request,) = [span for span in spans if span["parent_id"] == mine["context"]["span_id"]]
    assert request["name"] == "penstock.request read"
    assert request["attributes"]["penstock.status"] == "success"
    assert len(spans) == 5
    assert "penstock.requests" in metrics_of(folder)


def test_metrics_alone_make_no_record(tmp_path):
    source, keys, folder = source_of(tmp_path), keys_of(tmp_path), tmp_path / "out"
    with to(OpenTelemetry(traces=False, setup=setup_in(folder))):
        assert not listening()
        read_one(source, keys[0])
    assert "penstock.requests" in metrics_of(folder)
    assert spans_of(folder) == []


@pytest.mark.parametrize("method", ["fork", "spawn"])
def test_a_child_that_is_started_within_a_span_belongs_to_it(tmp_path, method):
    source, keys, folder = source_of(tmp_path), keys_of(tmp_path), tmp_path / "out"
    context = multiprocessing.get_context(method)
    child = context.Process(target=read_one, args=(source, keys[0]))
    with to(OpenTelemetry(setup=setup_in(folder))):
        with providers(folder)[0].get_tracer("program").start_as_current_span("step"):
            child.start()
        child.join(60)
        assert child.exitcode == 0
    spans = spans_of(folder)
    step = next(span for span in spans if span["name"] == "step")["context"]
    reads = [span for span in spans if span["name"] == "penstock.read"]
    assert [(span["pid"], span["parent_id"], span["context"]["trace_id"]) for span in reads] == [
        (child.pid, step["span_id"], step["trace_id"])
    ]


def test_an_exporter_that_breaks_breaks_no_read(tmp_path):
    source, keys = source_of(tmp_path), keys_of(tmp_path)

    class Broken:
        def get_tracer(self, *_):
            return self

        def start_span(self, *_args, **_options):
            raise AttributeError("another version of telemetry")

    with to(OpenTelemetry(metrics=False, setup=lambda: (Broken(), None))) as observed:
        read_one(source, keys[0])
        assert observed.flush()
        assert observed.dropped == 5  # an operation, a request and what was read


@pytest.mark.parametrize(
    "options", [{"traces": False, "metrics": False}, {"setup": dict, "endpoint": "http://h"}, {"setup": 5}]
)
def test_opentelemetry_sink_without_signals_or_with_conflicting_setup_is_refused(options):
    with pytest.raises(Unusable, match="OpenTelemetry"):
        OpenTelemetry(**options)


@pytest.mark.parametrize("endpoint", ["collector:4318", "localhost", "grpc://h:4317", "http://", "http://[", 5])
def test_an_endpoint_that_no_exporter_can_use_is_refused(endpoint):
    with pytest.raises(Unusable, match="such as http://localhost:4318"):
        OpenTelemetry(endpoint=endpoint)


@pytest.mark.parametrize("endpoint", ["https://me:hidden@h:4318", "https://h/?key=hidden"])
def test_an_endpoint_with_a_secret_is_refused_and_not_shown(endpoint):
    with pytest.raises(Unusable, match="OTEL_EXPORTER_OTLP_HEADERS") as refused:
        OpenTelemetry(endpoint=endpoint)
    assert "hidden" not in str(refused.value)


def test_words_of_the_environment_and_pickles():
    assert named_sinks("otel,otel:http://h:4318") == (OpenTelemetry(), OpenTelemetry(endpoint="http://h:4318"))
    assert pickle.loads(pickle.dumps(OpenTelemetry(namespace="x"))) == OpenTelemetry(namespace="x")


@pytest.fixture
def reader():
    return InMemoryMetricReader()


def collected(reader):
    data = reader.get_metrics_data()
    return {
        metric.name: {tuple(point.attributes.values()): point.value for point in metric.data.data_points}
        for resource in (data.resource_metrics if data is not None else ())
        for scope in resource.scope_metrics
        for metric in scope.metrics
    }


def test_counts_by_host_and_quantiles_since_the_last_collection(tmp_path, reader):
    source, keys = source_of(tmp_path), keys_of(tmp_path)
    end = observe(MeterProvider([reader], shutdown_on_exit=False).get_meter("tests"), "mine")

    def read():
        for key in keys * 4:
            read_one(source, key)

    read()
    before = collected(reader)
    assert {f"mine.{each.name}" for each in COUNTS} <= before.keys()
    assert "mine.first_byte_seconds" not in collected(reader)  # nothing came since
    read()
    after = collected(reader)
    assert after["mine.requests"]["file",] - before["mine.requests"]["file",] == 40
    assert after["mine.received_bytes"]["file",] - before["mine.received_bytes"]["file",] == 400
    median, high = (after["mine.first_byte_seconds"]["file", share] for share in (0.5, 0.99))
    assert 0 < median <= high
    end()
    assert collected(reader) == {}


def test_forked_child_reports_nothing_through_parent_instruments(tmp_path, reader):
    source, keys = source_of(tmp_path), keys_of(tmp_path)
    end = observe(MeterProvider([reader], shutdown_on_exit=False).get_meter("tests"), "mine")
    read_one(source, keys[0])

    def work():
        read_one(source, keys[0])
        assert collected(reader) == {}

    with forked(work) as status:
        assert status() == 0
    assert collected(reader)["mine.requests"]
    end()


def test_attributes_are_those_of_each_metric(tmp_path, reader):
    source, keys = source_of(tmp_path), keys_of(tmp_path)
    meter = MeterProvider([reader], shutdown_on_exit=False).get_meter("tests")
    end = observe(meter, "mine", {"cluster": "one"})
    read_one(source, keys[0])
    found = collected(reader)
    assert ("one", "file") in found["mine.requests"]
    assert ("one", "file", 0.95) in found["mine.first_byte_seconds"]
    assert {key[0] for points in found.values() for key in points} == {"one"}
    end()


def test_caches_are_counted_by_directory(reader, tmp_path):
    count_cache(str(tmp_path)).hit_bytes += 7
    end = observe(MeterProvider([reader], shutdown_on_exit=False).get_meter("tests"), "mine")
    assert collected(reader)["mine.cache_hit_bytes"][str(tmp_path),] == 7
    end()


URL = "s3://b/k"


@pytest.fixture
def exporter():
    return InMemorySpanExporter()


@pytest.fixture
def tracer(exporter):
    provider = TracerProvider(shutdown_on_exit=False)
    provider.add_span_processor(SimpleSpanProcessor(exporter))
    return provider.get_tracer("tests")


def ended(number, attempt, outcome, error=""):
    return RequestEnded(URL, number, 1, "read", attempt, outcome, 503 if error else 200, 7, 5, 0.1, 0.2, error, "h:80")


def test_request_spans_nest_in_their_operation_and_record_outcome(tracer, exporter):
    spans = Spans(tracer, "penstock")
    spans.write([
        Record(1000, OperationStarted(URL, 1, 0, "read")),
        Record(2000, RequestStarted(URL, 2, 1, "read", 1)),
        Record(3000, ended(2, 1, "failed", "Throttled: slow down")),
        Record(3000, Retried(URL, ValueError(), 1, 0.5)),
        Record(4000, RequestStarted(URL, 2, 1, "read", 2)),
        Record(5000, ended(2, 2, "done")),
        Record(6000, OperationEnded(URL, 1, 0, "read", "done", 0.5)),
    ])  # fmt: skip
    failed, done, operation = exporter.get_finished_spans()
    assert (operation.name, operation.start_time, operation.end_time) == ("penstock.read", 1000, 6000)
    assert operation.parent is None
    assert failed.parent.span_id == done.parent.span_id == operation.context.span_id
    assert (failed.start_time, failed.end_time, done.start_time, done.end_time) == (2000, 3000, 4000, 5000)
    assert failed.status.status_code is StatusCode.ERROR
    assert failed.attributes["error.type"] == "Throttled"
    assert failed.attributes["penstock.status"] == "error.Throttled"
    assert dict(done.attributes) == {
        "url.full": URL,
        "penstock.operation": "read",
        "penstock.provider": "s3",
        "penstock.version": VERSION,
        "penstock.status": "success",
        "penstock.first_byte_s": 0.1,
        "http.request.body.size": 7,
        "http.response.body.size": 5,
        "http.request.resend_count": 1,
        "http.response.status_code": 200,
        "server.address": "h",
    }


def test_late_dropped_or_missing_events_leave_no_open_span(tracer, exporter, monkeypatch):
    monkeypatch.setattr(room, "_KEPT", 3)
    spans = Spans(tracer, "penstock")
    spans.write([Record(1, ended(9, 1, "done")), Record(2, OperationEnded(URL, 8, 0, "read", "done", 1))])
    assert exporter.get_finished_spans() == ()
    spans.write([Record(n, OperationStarted(URL, n, 0, "read")) for n in range(10)])
    spans.write([Record(n, RequestStarted(URL, 100 + n, 0, "read", 1)) for n in range(10)])
    assert (len(spans._open), len(spans._contexts), len(spans._begun)) == (3, 3, 3)
    spans.write([Record(20, OperationEnded(URL, 9, 0, "read", "cancelled", 1, "Cancelled: closed"))])
    spans.write(
        [Record(30, RequestStarted(URL, 200, 9, "read", 1)), Record(31, ended(200, 1, "cancelled", "Cancelled"))]
    )
    spans.close(40)
    finished = exporter.get_finished_spans()
    assert len(finished) == 11
    late = next(each for each in finished if each.name == "penstock.request read")
    assert late.parent.span_id == next(each for each in finished if each.end_time == 20).context.span_id
    assert late.status.status_code is StatusCode.UNSET


def test_multi_storage_clients_names_of_attributes(tracer, exporter):
    Spans(tracer, "multistorageclient").write(
        [Record(1, OperationStarted("/a/b", 1, 0, "list")), Record(2, OperationEnded("/a/b", 1, 0, "list", "done", 1))]
    )
    (span,) = exporter.get_finished_spans()
    assert span.attributes["multistorageclient.operation"] == "list"
    assert span.attributes["multistorageclient.provider"] == "file"
    assert span.attributes["multistorageclient.status"] == "success"


def test_an_operation_takes_the_programs_span_for_its_parent(tracer):
    began, request = OperationStarted(URL, 1, 0, "read"), RequestStarted(URL, 2, 0, "head", 1)
    assert captured(began, None) is None
    with tracer.start_as_current_span("step") as step:
        assert get_current_span(captured(began, None)) is step
        assert captured(OperationStarted(URL, 2, 1, "read"), None) is None
        assert captured(request, None) is None
        remote = adopt(traceparent())
    assert get_current_span(captured(request, remote)).get_span_context().span_id == step.context.span_id


def test_a_span_travels_as_a_traceparent(tracer):
    assert traceparent() == b""
    with tracer.start_as_current_span("step") as step:
        text = traceparent()
    assert len(text) == 55
    context = adopt(text)
    there = get_current_span(context).get_span_context()
    assert (there.trace_id, there.span_id, there.is_remote) == (step.context.trace_id, step.context.span_id, True)
    assert get_current_span().get_span_context() == there
    for nothing in (b"", b"00-xyz", b"\x00" * 64):
        assert adopt(nothing) is None
        assert not get_current_span().get_span_context().is_valid


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


def test_metrics_go_to_the_endpoint_as_it_is_named_with_its_headers(collector, monkeypatch, tmp_path):
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
    from penstock.observe import to
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


def test_without_the_exporter_the_extra_is_named(monkeypatch):
    monkeypatch.setitem(__import__("sys").modules, "opentelemetry.sdk.metrics.export", None)
    with pytest.raises(MissingExtra, match=r"penstock\[otel\]"):
        Exporters((("metrics.exporter", "console"),))()
