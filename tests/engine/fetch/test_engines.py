"""Engines are shared by their users, kept for a while after the last of them, and end with all that they have open."""

import gc
import threading
import weakref
from contextlib import ExitStack, closing
from pathlib import Path

import pytest

from penstock import source as module
from penstock.engine.read.reader import read_many, start_reads
from penstock.engine.transport import session as connections
from penstock.engine.waiting import Inbox
from penstock.errors import Cancelled, Unusable
from penstock.options import TransportOptions
from penstock.source import open_source
from penstock.stores.s3.options import S3Options
from penstock.testing.servers import Scripted
from penstock.values import Span
from tests.children import in_child, python
from tests.engine.fetch.store import Gate, Objects, serving
from tests.threads import until

KEYS = {"key": b"bytes"}


def _open(server, **transport):
    options = S3Options(endpoint=server.url, anonymous=True, transport=TransportOptions(**transport))
    return open_source("s3://bucket/key", options)[0]


def _descriptors():
    return sum(1 for _ in Path("/proc/self/fd").iterdir())


def test_a_store_opened_again_finds_its_engine_and_its_connection():
    with Scripted(Objects(KEYS)) as server:
        for _ in range(5):
            assert _open(server).read(Span("key")) == b"bytes"
        assert server.connections == 1


def test_a_hundred_stores_leave_no_more_than_the_latest_few_behind():
    gc.collect()
    gc.disable()  # nothing of it is left to the collector
    try:
        with Scripted(Objects(KEYS)) as server:
            assert _open(server).read(Span("key")) == b"bytes"
            threads, descriptors, engines = threading.active_count(), _descriptors(), []
            for number in range(100):
                source = _open(server, connections=number + 1)
                assert source.read_many([Span("key")] * 3) == [b"bytes"] * 3
                engines.append(weakref.ref(source._fetcher()))
            del source
            assert sum(each() is not None for each in engines) == module._SPARE
            # Three connections each at most, and the server's ends of them: it has a thread for each.
            until(lambda: _descriptors() <= descriptors + module._SPARE * 3 * 2)
            until(lambda: threading.active_count() <= threads + module._SPARE * 3)
    finally:
        gc.enable()


def test_closed_source_keeps_shared_connections_until_the_last_source_closes():
    with Scripted(Objects(KEYS)) as server, ExitStack() as open_ones:
        one, other = (open_ones.enter_context(_open(server, connections=7)) for _ in range(2))
        for source in (one, other):
            source.read(Span("key"))
        before = _descriptors()
        one.close()
        one.close()
        with pytest.raises(Unusable, match=r"this source is closed: open a new one \[s3://bucket/\]"):
            one.read(Span("key"))
        assert other.read(Span("key")) == b"bytes"
        assert server.connections == 1
        other.close()
        until(lambda: _descriptors() <= before - 2)  # the server's end, too
        with _open(server, connections=7) as again:
            assert again.read(Span("key")) == b"bytes"
        assert server.connections == 2


def test_reads_in_flight_are_cancelled_with_reason_when_the_engine_closes():
    gate = Gate()
    with serving(KEYS, gate, connections=2) as (_, engine):
        inbox = Inbox()
        reads = start_reads(engine, [Span("key")] * 5, inbox)
        gate.wait_for(2)
        engine.close()
        for read in reads:
            inbox.wait(read)
            with pytest.raises(Cancelled, match="its store was closed"):
                read.take()
        for work in (lambda: read_many(engine, [Span("key")]), lambda: engine.run(lambda: engine.driver.head("key"))):
            with pytest.raises(Unusable, match="this store was closed: open it again"):
                work()
        gate.opened.set()


def test_a_store_without_a_wire_closes_too(tmp_path):
    (tmp_path / "key").write_bytes(b"bytes")
    with open_source(tmp_path.as_uri() + "/")[0] as source:
        span = Span(str(tmp_path / "key").lstrip("/"))
        assert source.read(span) == b"bytes"
        engine = source._fetcher()
        others = open_source(tmp_path.as_uri() + "/")[0]
        engine.close()
        with pytest.raises(Unusable, match="this store was closed"):
            read_many(engine, [span])
        assert source.read(span) == others.read(span) == b"bytes", "a source opens another one"


def test_source_creates_a_new_engine_after_its_io_thread_failed():
    script = """
        from penstock.errors import Bug
        from penstock import S3Options
        from penstock.source import open_source
        from penstock.testing.servers import Scripted
        from penstock.engine.transport.loop import _Loop
        from penstock.values import Span
        from tests.engine.fetch.store import Objects
        with Scripted(Objects({"key": b"bytes"})) as server:
            source = open_source("s3://bucket/key", S3Options(endpoint=server.url, anonymous=True))[0]
            print(source.read(Span("key")))
            first, works = source._fetcher(), _Loop._start
            def breaks(*_):
                raise ZeroDivisionError("planted")
            _Loop._start = breaks
            try:
                source.read(Span("key"))
            except Bug as error:
                print("planted" in str(error))
            _Loop._start = works
            print(source.read(Span("key")), source._fetcher() is first)
    """
    ended = python(script)
    assert ended.stdout == "b'bytes'\nTrue\nb'bytes' False\n", ended.stderr


def test_forked_child_neither_uses_nor_closes_connections_of_its_parent():
    with Scripted(Objects(KEYS)) as server, _open(server) as source:
        assert source.read(Span("key")) == b"bytes"

        def child():
            source.close()
            assert _open(server).read(Span("key")) == b"bytes"

        in_child(child)
        assert source.read(Span("key")) == b"bytes"
        assert server.connections == 2


def test_connections_unused_for_long_close_without_another_request(monkeypatch):
    monkeypatch.setattr(connections, "_TIDY_S", 0.0)
    with Scripted(Objects(KEYS)) as server, closing(_open(server, idle_s=1)) as source:
        before = _descriptors()
        source.read_many([Span("key")] * 4)
        assert _descriptors() >= before + 2
        until(lambda: _descriptors() <= before)
        assert source.read(Span("key")) == b"bytes"
