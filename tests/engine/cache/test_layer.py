"""A store read through a cache: every way to read, versions, sizes that are not known, and reads that are shared."""

import math
import os
import pickle
from dataclasses import replace
from functools import partial
from random import Random
from time import time

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

import penstock as ps
from penstock.engine.buffer import Buffer
from penstock.engine.cache import disk
from penstock.engine.cache import layer as layers
from penstock.engine.cache.layer import ALL, CacheLayer, FetchedRead, Flight, Missing, StorePlace, add_cache
from penstock.engine.cache.tiers import Cache, tiers_of
from penstock.engine.read.reader import read_into, read_many, start_reads
from penstock.engine.waiting import Inbox
from penstock.errors import Cancelled, Changed, Denied, NotFound
from penstock.events import CacheHit, CacheMiss, RequestStarted
from penstock.source import open_source
from penstock.testing.faults import FAULTS, FaultServer, Match
from penstock.values import ObjectMeta, Span
from tests.amounts import examples
from tests.children import in_child
from tests.engine.cache.entries import MIB
from tests.engine.fetch.store import Gate, hearing, ranges, serving
from tests.threads import at_once

BLOCK = 64 << 10
SIZE = 5 * BLOCK + 1234
DATA = Random(3).randbytes(SIZE)
SMALL = DATA[:1000]


@pytest.fixture
def requests():
    with hearing(RequestStarted) as heard:
        yield heard


def options(tmp_path, **more):
    return ps.CacheOptions(path=os.fspath(tmp_path / "cache"), size_bytes=64 * MIB, block_bytes=BLOCK, **more)


@pytest.fixture
def source(tmp_path):
    (tmp_path / "store").mkdir()
    (tmp_path / "store" / "large").write_bytes(DATA)
    (tmp_path / "store" / "small").write_bytes(SMALL)
    (tmp_path / "store" / "empty").write_bytes(b"")
    return _open(tmp_path)


def _open(tmp_path, **more):
    source, base = open_source(f"file://{tmp_path}/store/", ps.StoreOptions(cache=options(tmp_path, **more)))
    source.base = base
    return source


def _span(source, name, start=0, stop=None, *, whole=None):
    meta = source.head(f"{source.base}{name}")
    end = meta.size if stop is None else stop
    return Span(meta.key, start, end, meta.etag, whole=(start, end) == (0, meta.size) if whole is None else whole)


def _into(source, span):
    memory = bytearray(span.stop - span.start)
    source.read_into(span, memory)
    return bytes(memory)


def _scattered(source, span):
    memory = bytearray(span.stop - span.start)
    assert [*source.scatter([(span, memory)], 1000)] == [span]
    return bytes(memory)


def _ahead(source, span):
    with source.lookahead(iter([span, span])) as ahead:
        one, other = ahead
    assert one == other
    return one


WAYS = [lambda source, span: source.read(span), _into, _scattered, _ahead]
SPANS = [("small", 0, None), ("large", 0, None), ("large", 0, BLOCK), ("large", 5, 9), ("large", BLOCK - 3, BLOCK + 3)]
SPANS += [("large", 7, SIZE), ("large", 5 * BLOCK, None)]


@pytest.mark.parametrize("way", WAYS, ids=["read", "into", "scattered", "ahead"])
@pytest.mark.parametrize(("name", "start", "stop"), SPANS)
def test_repeated_read_is_served_from_cache_without_a_request(source, requests, way, name, start, stop):
    span = _span(source, name, start, stop)
    wanted = (SMALL if name == "small" else DATA)[start:stop]
    assert way(source, span) == wanted
    asked = len(requests)
    assert asked >= 2  # a look and a read
    for again in WAYS:
        assert again(source, span) == wanted
    assert len(requests) == asked


def test_an_empty_object_is_kept_as_well(source, requests):
    span = _span(source, "empty")
    assert source.read(span) == b""
    asked = len(requests)
    assert source.read(span) == source.read(span._replace(stop=None)) == b""
    assert len(requests) == asked


@pytest.mark.parametrize("name", ["small", "large", "empty"])
def test_objects_of_unknown_size_and_last_bytes(source, requests, name):
    data = {"small": SMALL, "large": DATA, "empty": b""}[name]
    key, _, _, etag, *_ = _span(source, name)
    spans = [Span(key, 0, None, etag), Span(key, -10, None, etag)]
    assert [source.read(span) for span in spans] == [data, data[-10:]]
    asked = len(requests)
    assert [source.read(span) for span in spans] == [data, data[-10:]]
    assert source.read(Span(key, -20, None, etag)) == data[-20:], "by the size that is known by now"
    assert source.read(_span(source, name)) == data
    assert len(requests) == asked + 1, "a look, by this test"


def test_parts_of_a_block_are_served_from_it(source, requests):
    source.read(_span(source, "large"))
    asked = len(requests)
    key, _, _, etag, *_ = _span(source, "large")
    for start, stop in [(0, 5), (9, 1000), (BLOCK + 1, 3 * BLOCK - 1), (SIZE - 1, SIZE)]:
        assert source.read(Span(key, start, stop, etag)) == DATA[start:stop]
    assert len(requests) == asked + 1


def test_only_missing_blocks_are_requested_with_adjacent_blocks_in_one_request(tmp_path):
    with serving({"key": DATA}) as (server, engine):
        layer = _layer(engine, tmp_path)
        read_many(layer, [Span("key", 2 * BLOCK, 3 * BLOCK, "e1")])
        before = len(ranges(server))
        assert read_many(layer, [Span("key", 10, SIZE, "e1", whole=False)]) == [DATA[10:]]
        assert sorted(ranges(server)[before:]) == [(10, 2 * BLOCK), (3 * BLOCK, SIZE)]
        memory = bytearray(SIZE)
        read_into(layer, Span("key", 0, SIZE, "e1", whole=True), Buffer.borrow(memory))
        assert memory == DATA
        assert ranges(server)[before + 2 :] == [(0, BLOCK)]


def _layer(engine, tmp_path, stat=None, **more):
    place = StorePlace(("test", id(engine)), "s3://bucket/", "", stat or (lambda _keys: []))
    return CacheLayer(engine, tiers_of(options(tmp_path, **more)), place)


@settings(max_examples=examples(40), deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(st.lists(st.tuples(st.integers(-SIZE, SIZE), st.integers(0, 3 * BLOCK), st.booleans()), max_size=12))
def test_any_spans_in_any_order_are_the_objects_bytes(source, wanted):
    key, _, _, etag, *_ = _span(source, "large")
    for start, size, many in wanted:
        if start < 0:
            assert source.read(Span(key, start, None, etag)) == DATA[start:]
            continue
        stop = min(SIZE, start + size)
        if stop > start:
            span = Span(key, start, stop, etag, whole=(start, stop) == (0, SIZE))
            assert (source.read_many([span, span]) if many else [_into(source, span)])[0] == DATA[start:stop]


def test_another_version_is_not_served_and_the_old_one_only_where_it_was_kept(source, tmp_path):
    old = _span(source, "small")
    assert source.read(old) == SMALL
    (tmp_path / "store" / "small").write_bytes(SMALL[::-1] * 2)
    new = _span(source, "small")
    assert new.etag != old.etag
    assert source.read(new) == SMALL[::-1] * 2
    assert source.read(old) == SMALL, "a pinned version is that version"
    large = _span(source, "large")
    (tmp_path / "store" / "large").write_bytes(DATA + b"1")
    with pytest.raises(Changed):
        source.read(large)
    assert not source.fetching().contains(large)


def test_errors_pass_and_are_not_kept(source, tmp_path):
    span = Span(f"{source.base}later", 0, 5, "e")
    for read in (partial(source.read, span), partial(_into, source, span)):
        with pytest.raises(NotFound, match="later"):
            read()
    (tmp_path / "store" / "later").write_bytes(b"bytes")
    assert source.read(_span(source, "later")) == b"bytes"


def test_reads_without_a_version_go_to_the_store(source, requests, tmp_path):
    span = Span(f"{source.base}small", 0, None)
    for data in (SMALL, b"other", b"another"):
        (tmp_path / "store" / "small").write_bytes(data)
        assert source.read(span) == data
    assert len(requests) == 3
    assert not source.fetching().contains(span)


def test_ttl_mode_serves_recent_reads_without_a_request_until_expiry(source, requests, tmp_path):
    source = _open(tmp_path, mode="ttl", ttl_s=math.inf)
    spans = [Span(f"{source.base}large", *each) for each in [(0, None), (5, 3 * BLOCK), (-9, None)]]
    assert [source.read(each) for each in spans] == [DATA, DATA[5 : 3 * BLOCK], DATA[-9:]]
    (tmp_path / "store" / "large").write_bytes(b"other")
    asked = len(requests)
    assert [source.read(each) for each in spans] == [DATA, DATA[5 : 3 * BLOCK], DATA[-9:]]
    assert _into(source, spans[1]) == DATA[5 : 3 * BLOCK]
    assert len(requests) == asked
    assert source.fetching().contains(spans[0])
    short = _open(tmp_path, mode="ttl", ttl_s=1e-9)
    assert not short.fetching().contains(spans[0])
    assert short.read(spans[0]) == b"other"


INDEX = (Span("key", 0, 100), Span("key", -100))


@pytest.mark.parametrize("index", INDEX)
def test_in_ttl_mode_parts_of_an_object_are_of_one_version(tmp_path, index):
    data, etags = {"key": DATA}, {"key": '"e1"'}
    part = Span("key", BLOCK, BLOCK + 500)
    with serving(data, etags=etags) as (server, engine):
        layers = [_layer(engine, tmp_path, mode="ttl") for _ in range(2)]
        old = read_many(layers[0], [index])
        data["key"], etags["key"] = DATA[::-1], '"e2"'
        for layer in layers:
            assert read_many(layer, [index]) == old, "within the time"
            with pytest.raises(Changed):
                read_many(layer, [part])
        new = DATA[::-1]
        end = new[:100] if index.stop else new[-100:]
        for layer in layers:
            assert read_many(layer, [index, part]) == [end, new[BLOCK : BLOCK + 500]]
        asked = len(server.received)
        assert read_many(layers[0], [index, part])[1] == new[BLOCK : BLOCK + 500]
        assert len(server.received) == asked


def test_in_ttl_mode_parts_are_kept_only_with_a_version_and_whole_objects_without(tmp_path):
    spans = (*INDEX, Span("key"), Span("key", 0, SIZE, whole=True))
    with serving({"key": DATA}, etags={"key": None}) as (server, engine):
        layer = _layer(engine, tmp_path, mode="ttl")
        read_many(layer, spans)
        asked = len(server.received)
        read_many(layer, spans)
        assert len(server.received) - asked == len(INDEX)


def test_ttl_does_not_believe_an_entry_of_a_time_to_come(source, tmp_path, monkeypatch):
    source, span = _open(tmp_path, mode="ttl", ttl_s=60), Span(f"{source.base}small", 0, None)
    monkeypatch.setattr(layers, "time", lambda: time() + 86_400)
    assert source.read(span) == SMALL
    monkeypatch.undo()
    (tmp_path / "store" / "small").write_bytes(b"new")
    assert not source.fetching().contains(span)
    assert source.read(span) == source.read(span) == b"new"
    assert source.fetching().contains(span)


def test_ttl_begins_with_the_request_however_long_the_read_takes(source, tmp_path, monkeypatch):
    source, span, now = _open(tmp_path, mode="ttl", ttl_s=60), Span(f"{source.base}small", 0, None), [time()]
    for module in (layers, disk):
        monkeypatch.setattr(module, "time", lambda: now[0])
    inbox, fetching = Inbox(), source.fetching()
    reads = fetching.prepare_reads([(span, None)], inbox)
    now[0] += 61
    fetching.send_reads(reads)
    inbox.wait(reads[0])
    assert reads[0].take() == SMALL
    assert not fetching.contains(span)
    assert source.read(span) == SMALL
    assert fetching.contains(span)


def test_revalidate_looks_and_serves_the_present_version(source, requests, tmp_path):
    source = _open(tmp_path, mode="revalidate")
    spans = [Span(f"{source.base}large", *each) for each in [(0, None), (5, 3 * BLOCK), (-9, None)]]
    wanted = [DATA, DATA[5 : 3 * BLOCK], DATA[-9:]]
    assert source.read_many(spans) == wanted
    asked = len(requests)
    assert source.read_many(spans) == wanted
    assert len(requests) == asked + 1, "one look for the object"
    other = DATA[::-1]
    (tmp_path / "store" / "large").write_bytes(other)
    assert source.read_many(spans) == [other, other[5 : 3 * BLOCK], other[-9:]]
    with pytest.raises(NotFound):
        source.read(Span(f"{source.base}gone", 0, None))


@pytest.mark.parametrize("span", [(0, None), (5, 3 * BLOCK), (-9, None), (0, SIZE)])
def test_an_object_replaced_after_its_revalidation_is_read_as_it_is(tmp_path, span):
    with FaultServer.start() as server:
        server.put("bucket", "key", DATA)
        other = DATA[::-1] + b"more"

        def look_then_replace(keys):
            metas = [source.head(key) for key in keys]
            server.put("bucket", "key", other)
            return metas

        with open_source("s3://bucket/", server.store)[0] as source:
            layer = _layer(source.fetching(), tmp_path, look_then_replace, mode="revalidate")
            (read,) = start_reads(layer, [Span("key", *span)], inbox := Inbox())
            inbox.wait(read)
            assert read.take() == other[slice(*span)]
            assert read.version == source.head("key").etag
            assert not layer.contains(Span("key", 0, SIZE, source.head("key").etag))


def test_a_listed_size_is_compared_with_that_of_the_revalidation(tmp_path):
    with FaultServer.start() as server:
        server.put("bucket", "key", DATA)
        store = replace(server.store, cache=options(tmp_path, mode="revalidate"))
        with open_source("s3://bucket/", store)[0] as source:
            assert source.read(Span("key", 0, 9, most=SIZE)) == DATA[:9]
            with pytest.raises(Changed):
                source.read(Span("key", 0, 9, most=SIZE - 1))


def test_a_version_that_cannot_be_looked_up_concerns_its_object_alone(tmp_path):
    with FaultServer.start() as server:
        for key in ("fine", "refused"):
            server.put("bucket", key, key.encode())
        server.fail(*[FAULTS["denied"]] * 10, when=Match(key="refused"))
        store = replace(server.store, cache=options(tmp_path, mode="revalidate"))
        with open_source("s3://bucket/", store)[0] as source:
            inbox = Inbox()
            reads = start_reads(source.fetching(), [Span("refused", 0, None), Span("fine", 0, None)], inbox)
            for read in reads:
                inbox.wait(read)
            assert reads[1].take() == b"fine"
            with pytest.raises(Denied):
                reads[0].take()


@pytest.mark.parametrize("size", [0, 5, BLOCK, 2 * BLOCK + 5])
def test_a_size_that_is_not_the_objects_is_refused_as_without_a_cache(tmp_path, size):
    with FaultServer.start() as server:
        server.put("bucket", "key", DATA)
        server.put("bucket", "small", SMALL)
        with open_source("s3://bucket/", replace(server.store, cache=options(tmp_path)))[0] as source:
            for key in ("key", "small"):
                meta = source.head(key)
                source.read(Span(key, 0, meta.size, meta.etag, whole=True))
                if size < meta.size:
                    with pytest.raises(Changed):
                        source.read(Span(key, 0, size, meta.etag, whole=True))
                    assert len(source.read(Span(key, 0, size, meta.etag))) == size


def test_contains_is_true_only_for_fully_cached_spans(source):
    whole, part = _span(source, "large"), _span(source, "large", 5, 2 * BLOCK)
    layer = source.fetching()
    assert not layer.contains(whole)
    source.read(part)
    assert layer.contains(part)
    assert not layer.contains(whole)
    assert not layer.contains(Span(whole.key, 0, None, whole.etag))
    source.read(whole)
    assert layer.contains(whole)
    for each in [(0, None), (-7, None), (3 * BLOCK + 5, 3 * BLOCK + 6)]:
        assert layer.contains(Span(whole.key, *each, whole.etag))
    assert layer.room_bytes() < 64 * MIB


def test_cache_hits_and_misses_emit_events_and_are_counted(source):
    span = _span(source, "small")
    with hearing(CacheHit, CacheMiss) as found:
        source.read(span)
        source.read(span)
    url = source.url(span.key)
    assert found == [CacheMiss(url, 0), CacheHit(url, 0, 1000)]
    counts = source.fetching().cache.counts
    assert (counts.hits, counts.misses, counts.stored) == (1, 1, 1)


def test_a_forked_child_and_a_pickled_source_read_the_same_cache(source, requests):
    span = _span(source, "large")
    assert source.read(span) == DATA

    def child():
        before = len(requests)
        assert pickle.loads(pickle.dumps(source)).read(span) == source.read(span) == DATA
        assert len(requests) == before

    in_child(child)


def test_a_store_in_memory_has_no_cache(tmp_path):
    source = open_source("memory://bucket/", ps.StoreOptions(cache=options(tmp_path)))[0]
    source.put("key", b"data")
    meta = source.head("key")
    assert source.read(Span("key", 0, 4, meta.etag)) == b"data"
    assert not (tmp_path / "cache").exists()
    assert add_cache(None, source.fetching(), ("s3", "b", None, ""), source.stat_existing) is source.fetching()


SPAN = Span("key", 0, 1000, "e1", whole=True)


def test_two_concurrent_reads_of_same_span_share_one_request(tmp_path):
    gate = Gate()
    with serving({"key": SMALL}, gate) as (server, engine):
        layer, span = _layer(engine, tmp_path), SPAN
        one, other = Inbox(), Inbox()
        first = start_reads(layer, [span], one)[0]
        gate.wait_for(1)
        second = start_reads(layer, [span], other)[0]
        gate.opened.set()
        other.wait(second)
        one.wait(first)
        assert first.take() == second.take() == SMALL
        assert (first.attempts, second.attempts) == (1, 0)
        assert len(server.received) == 1
        assert layer.cache.counts.stored == 1
        assert layer._flights == {}


class Ending:
    """A read of the store that ends at the n-th look at ``complete``, right behind it."""

    error, attempts, retries, size_bytes = None, 1, 0, len(SMALL)

    def __init__(self, looks):
        self.flight, self._looks = None, looks

    @property
    def complete(self):
        self._looks -= 1
        if self._looks == 0:
            self.end()
            return False
        return self._looks < 0

    def end(self):
        self._looks = 0
        self.flight.finished(self)


@pytest.mark.parametrize("looks", [1, 2, 3])
def test_a_request_that_ends_while_another_read_joins_it_ends_that_read(tmp_path, looks):
    layer, span = _layer(None, tmp_path), SPAN
    leader = FetchedRead(span, None, Inbox(), lambda _flight, _data: None, print)
    flight = Flight(Missing(span, (), "e1", 1000), leader, layer._close, joinable=True)
    flight.read = Ending(looks)
    flight.read.flight = flight
    layer._flights[span] = flight
    (joined,) = layer.prepare_reads([(span, None)], Inbox())
    flight.read.end()
    assert joined.flights == [flight]
    assert joined.complete


def test_last_bytes_in_two_blocks_of_an_object_whose_size_is_known_are_kept(tmp_path):
    with serving({"key": DATA}) as (server, engine):
        layer, span = _layer(engine, tmp_path), Span("key", -3000, None, "e1")
        layer._objects.keep(Missing(Span("key", 0, BLOCK, "e1"), (ALL,), "e1", SIZE), DATA[:BLOCK], "e1")
        assert read_many(layer, [span]) == [DATA[-3000:]]
        asked = len(server.received)
        assert read_many(layer, [span]) == [DATA[-3000:]]
        assert len(server.received) == asked
        assert all(each.size_bytes for each in Cache(layer.cache.options).entries())


def test_cancelling_one_of_two_joined_reads_leaves_the_other_running(tmp_path):
    for leaves in (0, 1):
        gate = Gate()
        with serving({"key": SMALL}, gate) as (server, engine):
            layer, span = _layer(engine, tmp_path), SPAN
            inboxes = [Inbox(), Inbox()]
            reads = [start_reads(layer, [span], inboxes[0])[0]]
            gate.wait_for(1)
            reads.append(start_reads(layer, [span], inboxes[1])[0])
            layer.cancel_reads([reads[leaves]])
            assert isinstance(reads[leaves].error, Cancelled)
            with pytest.raises(Cancelled):
                reads[leaves].take()
            gate.opened.set()
            inboxes[1 - leaves].wait(reads[1 - leaves])
            assert reads[1 - leaves].take() == SMALL
            assert len(server.received) == 1


def test_a_read_that_all_have_given_up_is_called_off(tmp_path):
    gate = Gate()
    with serving({"key": SMALL}, gate) as (_, engine):
        layer, span, inbox = _layer(engine, tmp_path), Span("key", 0, 1000, "e1", whole=True), Inbox()
        reads = start_reads(layer, [span, span._replace(whole=False)], inbox)
        gate.wait_for(2)
        layer.cancel_reads(reads)
        for read in reads:
            inbox.wait(read)
            assert isinstance(read.error, Cancelled)
        gate.opened.set()
        assert layer._flights == {}
        assert not layer.contains(span)
        assert read_many(layer, [span]) == [SMALL]


def test_many_threads_that_read_the_same_get_the_same(tmp_path):
    with serving({"key": DATA}) as (_, engine):
        layer = _layer(engine, tmp_path)

        def read(number):
            random = Random(number)
            for _ in range(30):
                start = random.randrange(SIZE - 1)
                stop = random.randrange(start + 1, SIZE + 1)
                assert read_many(layer, [Span("key", start, stop, "e1")]) == [DATA[start:stop]]

        assert at_once(*(partial(read, number // 2) for number in range(8)), limit_s=120) == [None] * 8
        assert layer._flights == {}


def test_stopped_reads_write_no_more_into_the_callers_memory(tmp_path):
    gate = Gate()
    with serving({"key": DATA}, gate) as (_, engine):
        layer, memory = _layer(engine, tmp_path), bytearray(SIZE)
        span = Span("key", 0, SIZE, "e1", whole=True)
        reads = layer.prepare_reads([(span, Buffer.borrow(memory))], Inbox())
        layer.send_reads(reads)
        gate.wait_for(1)
        layer.stop_reads(reads)
        assert reads[0].complete
        gate.opened.set()
        assert memory == bytes(SIZE)
        assert not layer.contains(span)


def test_a_store_without_versions_is_not_revalidated(tmp_path):
    with serving({"key": SMALL}, etags={"key": None}) as (server, engine):
        layer = _layer(engine, tmp_path, lambda keys: [ObjectMeta(key, 1000) for key in keys], mode="revalidate")
        assert read_many(layer, [Span("key", 0, None)] * 2) == [SMALL] * 2
        assert len(server.received) == 2
