"""Every sink with keys, URLs and error texts of an attacker: one line each, parsable, without a secret."""
# ruff: noqa: ARG001, ARG002  the functions of one parameter have one signature

from __future__ import annotations

import json
import logging
import os
import socket
import urllib.request
from time import monotonic

import pytest
from opentelemetry.exporter.otlp.proto.common.trace_encoder import encode_spans
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter
from prometheus_client.parser import text_string_to_metric_families

from penstock.engine.cache.tiers import CacheTiers
from penstock.errors import Unreachable
from penstock.events import (
    Committed,
    OperationEnded,
    OperationStarted,
    RequestEnded,
    RequestStarted,
    Retried,
    describe_error,
    emit,
)
from penstock.events.timings import host_of
from penstock.observe import ChromeTrace, JsonLines, Log, OpenTelemetry, Prometheus, Scalars, to
from penstock.options import CacheOptions
from tests.observe.reads import keys_of, read_all, source_of

CANARY = "xyzzynevertobeseen"
KEYS = {
    "line breaks": "a\nINFO forged\r\n\u2028\u2029\x85b",
    "control characters": "".join(map(chr, (*range(32), *range(127, 160)))),
    "terminal escapes": "\x1b[31mred\x1b]0;title\x07",
    "quotes": '"\'\\`,}]{"',
    "lone surrogate": "a\udcff\ud800",
    "bidirectional": "a\u202egpj.exe",
    "one mebibyte": "k" * (1 << 20),
    "one mebibyte of URLs": "http://" * 149_797 + f"?sig={CANARY}",
    "S3 signature": f"k?X-Amz-Credential=A&X-Amz-Signature={CANARY}",
    "Azure signature": f"k?sv=2024&sig={CANARY}%3D",
    "session token": f"k?X-Amz-Security-Token={CANARY}",
    "bearer": f"k Bearer {CANARY}",
    "web address": f"https://user:{CANARY}@host/k?token={CANARY}",
}


def emit_all(key):
    """Emit events as a store does, with ``key`` in every text."""
    url = f"s3://bucket/{key}"
    error = Unreachable(f"the server said: <Error>secret_access_key={CANARY}\n{key[:5000]}</Error>", url=url)
    emit(OperationStarted(url, 1, 0, "read"))
    emit(RequestStarted(url, 2, 1, "get", 1))
    emit(RequestEnded(url, 2, 1, "get", 1, "failed", 500, 0, 0, 0.0, 0.1, describe_error(error), "[::1]:9000"))
    emit(Retried(url, error, 1, 0.1))
    emit(Committed(url, 1, f"etag {key}"))
    emit(OperationEnded(url, 1, 0, "read", "failed", 0.1, describe_error(error)))
    emit(OperationStarted("s3://bucket/later", 3, 0, "read"))
    emit(OperationEnded("s3://bucket/later", 3, 0, "read", "done", 0.1))


def check(observed):
    """Close the sink, and see that it wrote all."""
    began = monotonic()
    assert observed.close(60)
    assert (observed.dropped, observed.written) == (0, 8)
    assert monotonic() - began < 30


def of_json_lines(tmp_path, key, caplog):
    with to(JsonLines(tmp_path / "events")) as observed:
        emit_all(key)
        check(observed)
    text = (tmp_path / "events").read_bytes().decode("ascii")
    assert text.count("\n") == 8
    assert [json.loads(line)["event"] for line in text.splitlines()][-1] == "OperationEnded"
    return text


def of_chrome(tmp_path, key, caplog):
    with to(ChromeTrace(tmp_path / "trace")) as observed:
        emit_all(key)
        check(observed)
    text = (tmp_path / "trace").read_bytes().decode("ascii")
    assert [each["args"]["url"] for each in json.loads(text) if each["ph"] == "X"][-1] == "s3://bucket/later"
    return text


def of_log(tmp_path, key, caplog):
    with caplog.at_level(logging.DEBUG, "penstock"), to(Log()) as observed:
        emit_all(key)
        check(observed)
    records = [record for record in caplog.records if record.name == "penstock.events"]
    assert len(records) == 8
    assert all(record.getMessage().isprintable() for record in records)
    return "".join(f"{record.getMessage()} {record.event!r}" for record in records)


def of_telemetry(tmp_path, key, caplog):
    made = InMemorySpanExporter()
    traces = TracerProvider(shutdown_on_exit=False)
    traces.add_span_processor(SimpleSpanProcessor(made))
    with to(OpenTelemetry(metrics=False, setup=lambda: (traces, None))) as observed:
        emit_all(key)
        assert observed.flush(60)
        spans = made.get_finished_spans()
        check(observed)
    assert len(spans) == 3
    assert spans[0].attributes["server.address"] == "[::1]"
    # As it would be sent: OTLP refuses a whole batch for a text that is not UTF-8.
    return encode_spans(spans).SerializeToString().decode("utf-8", "replace")


@pytest.mark.parametrize("key", KEYS.values(), ids=KEYS)
@pytest.mark.parametrize("sink", [of_json_lines, of_chrome, of_log, of_telemetry])
def test_hostile_key_leaves_output_whole_and_without_secrets(tmp_path, caplog, sink, key):
    shown = sink(tmp_path, key, caplog)
    assert "later" in shown
    assert CANARY not in shown
    assert CANARY not in caplog.text


def test_hostile_keys_and_directories_leave_the_exposition_parsable_and_its_labels_few(tmp_path):
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    folder = os.fsdecode(os.fsencode(tmp_path) + b'/a "\n\\\xff')
    os.makedirs(folder)  # noqa: PTH103  a name that is not UTF-8
    source = source_of(tmp_path)
    names = [text[:200].replace("/", "").replace("\0", "") for text in KEYS.values()]
    names = [name for name in names if "\ud800" not in name]  # which no file can have
    for name in names:
        (tmp_path / name).write_bytes(b"0123456789")
    cache = CacheTiers(CacheOptions(path=folder))
    with to(Prometheus(port)):
        cache.note(hit=False)
        read_all(source, [*keys_of(tmp_path), *(f"{tmp_path}/{name}".lstrip("/") for name in names)])
        with urllib.request.urlopen(f"http://127.0.0.1:{port}/metrics", timeout=60) as answer:
            text = answer.read().decode()
    samples = [each for family in text_string_to_metric_families(text) for each in family.samples]
    # Of jobs that other tests of this process ran: the operation, one of a few.
    assert {name for each in samples for name in each.labels} <= {"host", "cache", "le", "operation"}
    assert any("\\udcff" in each.labels.get("cache", "") for each in samples)
    assert all(str(tmp_path) not in each.labels.get("host", "") for each in samples)
    assert CANARY not in text


@pytest.mark.parametrize(
    ("url", "host"),
    [
        (f"https://user:{CANARY}@host:1/k", "host:1"),
        (f"https://{CANARY}@host?sig={CANARY}", "host"),
        ("http://[::1]:80/a@b", "[::1]:80"),
    ],
)
def test_host_has_no_user_and_no_password(url, host):
    assert host_of(url) == host


class Run:
    """A run of an experiment tracker whose errors quote what it sends."""

    def log(self, _values):
        raise OSError(f"POST https://api/x?api_key={CANARY} failed\nINFO forged, Authorization: Bearer {CANARY}")


class Quoting:
    """A sink whose errors quote what it sends."""

    events = True

    def open(self, *, first):
        return self

    def write(self, records):
        Run().log(records)

    def close(self):
        Run().log(())

    def leave(self):
        """Have nothing."""


def test_error_of_a_sink_is_logged_on_one_line_without_a_secret(tmp_path, caplog):
    source, keys = source_of(tmp_path), keys_of(tmp_path)
    good = JsonLines(tmp_path / "good")
    with caplog.at_level(logging.WARNING, "penstock"), to(Quoting(), good) as observed:
        read_all(source, keys)
        assert observed.flush(60)
        read_all(source, keys)
    assert (tmp_path / "good").read_text().count("\n") == 40
    check_logged(caplog)


def test_error_of_a_tracker_is_logged_on_one_line_without_a_secret(caplog):
    import penstock as ps

    loader = ps.DataLoader(ps.MapDataset.from_objects(["memory://hostile/a"]), batch_size=1)
    with caplog.at_level(logging.WARNING, "penstock"):
        Scalars(loader).to_wandb(Run())
    check_logged(caplog)


def check_logged(caplog):
    messages = [record.getMessage() for record in caplog.records]
    assert any("OSError" in each for each in messages)
    assert all(each.isprintable() for each in messages)
    assert CANARY not in caplog.text
