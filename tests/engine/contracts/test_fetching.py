"""A cache of blocks between a source and its store: every way to read goes through it, and hits cost no request."""

import os
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from itertools import count

import pytest

from penstock.engine.budget import Budget
from penstock.engine.read import reader
from penstock.engine.read.lookahead import Lookahead
from penstock.errors import Cancelled, NotFound, Unusable
from penstock.events import RangeRead
from penstock.source import open_source
from penstock.stores.s3.options import S3Options
from penstock.values import Span
from tests.children import in_child, python
from tests.engine.fetch.store import Gate, hearing, serving

BLOCK = 1000
SIZE = 10_500
DATA = os.urandom(SIZE)


class Blocks:
    """The smallest cache that a later one could grow from: blocks of objects of a known version, in memory."""

    def __init__(self, fetching):
        self.fetching = fetching
        self.held = {}
        self.asked = []

    def prepare_reads(self, wanted, owner):
        return [_Read(self, span, buffer, owner) for span, buffer in wanted]

    def send_reads(self, reads):
        self.fetching.send_reads(_inner(reads))

    def cancel_reads(self, reads):
        self.fetching.cancel_reads(_inner(reads))

    def stop_reads(self, reads):
        self.fetching.stop_reads(_inner(reads))

    def concurrency(self):
        return self.fetching.concurrency()


def _inner(reads):
    return [inner for read in reads for inner in read.inner]


class _Read:
    """One span: blocks that are held, and reads of those that are not."""

    def __init__(self, cache, span, buffer, owner):
        self.cache, self.span, self.buffer, self.owner = cache, span, buffer, owner
        self.error = None
        self.pieces = _pieces(span)
        missing = [piece for piece in self.pieces if piece not in cache.held or not piece.etag]
        cache.asked += missing
        self.ended = count(1)
        self.inner = cache.fetching.prepare_reads([(piece, None) for piece in missing], self)
        self.complete = not missing

    @property
    def version(self):
        return self.span.etag or next((inner.version for inner in self.inner), "")

    @property
    def attempts(self):
        return sum(inner.attempts for inner in self.inner)

    @property
    def retries(self):
        return sum(inner.retries for inner in self.inner)

    @property
    def size_bytes(self):
        return self.span.stop - self.span.start

    def finished(self, _inner):
        if next(self.ended) == len(self.inner):
            self.complete = True
            self.owner.finished(self)

    def look(self):
        for inner in self.inner:
            inner.look()

    def check(self):
        self.take()

    def take(self):
        for inner in self.inner:
            data = inner.take()
            self.cache.held[inner.span] = data
        data = b"".join(self.cache.held[piece] for piece in self.pieces)
        if self.buffer is not None:
            self.buffer.fill(data)
        return data


def _pieces(span):
    if span.stop is None:
        return [span]
    starts = [span.start, *range((span.start // BLOCK + 1) * BLOCK, span.stop, BLOCK)]
    stops = [*starts[1:], span.stop]
    return [Span(span.key, start, stop, span.etag) for start, stop in zip(starts, stops, strict=True)]


@pytest.fixture
def requests():
    with hearing(RangeRead) as heard:
        yield heard


@pytest.fixture
def source(bucket):
    source = open_source(bucket.url, bucket.store)[0]
    source.put("key", DATA)
    return source


@pytest.fixture
def in_memory():
    source = open_source(f"memory://layers-{os.urandom(4).hex()}/")[0]
    source.put("key", DATA)
    return source


def _many(source, meta):
    return b"".join(source.read_many(_spans(meta)))


def _spans(meta):
    return [Span("key", at, min(at + 700, SIZE), meta.etag) for at in range(0, SIZE, 700)]


def _ahead(source, meta):
    return b"".join(source.lookahead(iter(_spans(meta))))


def _scattered(source, meta):
    memory = bytearray(SIZE)
    places = [(span, memoryview(memory)[span.start : span.stop]) for span in _spans(meta)]
    assert [*source.scatter(places, 2000)] == _spans(meta)
    return bytes(memory)


def _as_a_file(source, meta):
    with source.open_read("key", meta) as file:
        return file.read(10) + file.read(20) + file.read()


def _into(source, meta):
    memory = bytearray(SIZE)
    source.read_into(Span("key", 0, SIZE, meta.etag), memory)
    return bytes(memory)


WAYS = [_many, _ahead, _scattered, _as_a_file, _into]


@pytest.mark.parametrize("way", WAYS, ids=lambda way: way.__name__.strip("_"))
def test_span_held_by_a_layer_is_read_without_a_request(source, in_memory, requests, way, monkeypatch):
    monkeypatch.setattr(reader, "_BLOCK_BYTES", 2 * BLOCK)
    for store in (source, in_memory):
        layered, meta = store.through(Blocks), store.head("key")
        assert way(layered, meta) == DATA
        assert requests
        requests.clear()
        assert way(layered, meta) == DATA
        assert not requests


def test_errors_pass_through_a_layer_and_are_not_kept(source):
    layered, span = source.through(Blocks), Span("later", 0, 5, "")
    for read in (partial(layered.read, span), partial(layered.read_into, span, bytearray(5))):
        with pytest.raises(NotFound, match="later"):
            read()
    source.put("later", b"bytes")
    assert layered.read(span) == b"bytes"
    with pytest.raises(NotFound, match="gone"):
        [*layered.scatter([(Span("gone", 0, 5), bytearray(5))], 100)]


def test_a_layer_is_made_once_for_each_process_and_travels_by_name(source, requests):
    layered, meta = source.through(Blocks), source.head("key")
    assert _many(layered, meta) == DATA
    made = layered.fetching()
    assert layered.fetching() is made

    def child():
        requests.clear()
        assert _many(layered, meta) == DATA
        assert requests, "a child's layer begins empty"
        assert layered.fetching() is not made

    in_child(child)
    assert source.fetching() is made.fetching


def test_layer_that_cannot_be_called_is_refused():
    with pytest.raises(Unusable, match="layer must be a function"):
        open_source("memory://a/", S3Options())[0].through("cache")


def test_closing_a_lookahead_cancels_reads_in_flight_in_its_layer():
    gate = Gate()
    with serving({"key": DATA}, gate) as (_, engine), ThreadPoolExecutor(1) as waiting:
        spans = [Span("key", at, at + 1500, "e1") for at in range(0, 9000, 1500)]
        ahead = Lookahead(Blocks(engine), iter(spans), Budget(1 << 20, 4))
        taken = waiting.submit(next, ahead)
        gate.wait_for(8)
        ahead.close()
        assert type(taken.exception(60)) is Cancelled
        gate.opened.set()


def test_ctrl_c_through_a_layer_leaves_no_writer():
    done = python("""
        import os, signal, threading
        from penstock.engine.buffer import Buffer
        from penstock.engine.read.reader import read_into
        from penstock.values import Span
        from tests.engine.fetch.store import Gate, serving
        from tests.engine.contracts.test_fetching import Blocks
        gate = Gate()
        with serving({"key": b"x" * 5000}, gate) as (server, engine):
            layer, memory = Blocks(engine), bytearray(5000)
            def interrupt():
                gate.wait_for(5)
                os.kill(os.getpid(), signal.SIGINT)
            threading.Thread(target=interrupt).start()
            try:
                read_into(layer, Span("key", 0, 5000, "e1"), Buffer.borrow(memory))
            except KeyboardInterrupt:
                print("interrupted")
            gate.opened.set()
            read_into(layer, Span("key", 0, 5000, "e1"), Buffer.borrow(bytearray(5000)))
            print(memory.count(b"x"))
    """)
    assert done.stdout == "interrupted\n0\n", done.stderr
