"""Spans and metrics of a process and its workers, in the trace of the loop that iterates."""

from __future__ import annotations

import multiprocessing
import pickle

import pytest
from opentelemetry import context as contexts

from penstock.errors import Unusable
from penstock.events import listening
from penstock.observe import OpenTelemetry, to
from penstock.observe.environment import named_sinks
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
