"""Spans hold one another as operations and requests do, end once, and say what came of them."""

from __future__ import annotations

import pytest
from opentelemetry import context as contexts
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter
from opentelemetry.trace import StatusCode, get_current_span

from penstock.events import OperationEnded, OperationStarted, RequestEnded, RequestStarted, Retried
from penstock.observe import Record
from penstock.observe import otel_sink as room
from penstock.observe.otel_sink import Spans, adopt, captured, traceparent
from penstock.version import VERSION

URL = "s3://b/k"


@pytest.fixture
def exporter():
    return InMemorySpanExporter()


@pytest.fixture
def tracer(exporter):
    provider = TracerProvider(shutdown_on_exit=False)
    provider.add_span_processor(SimpleSpanProcessor(exporter))
    return provider.get_tracer("tests")


@pytest.fixture(autouse=True)
def _no_context_is_left():
    token = contexts.attach(contexts.Context())
    yield
    contexts.detach(token)


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
