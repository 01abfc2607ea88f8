"""Every read names the version of the object that its bytes are of, so that other reads can be held to it."""

import os
from contextlib import contextmanager

import pytest

import penstock as ps
from penstock.engine.buffer import Buffer
from penstock.engine.cache.layer import CachedRead, FetchedRead, add_cache
from penstock.engine.read.openread import OpenRead, SuffixRead
from penstock.engine.read.reader import complete_reads
from penstock.engine.read.spanread import SpanRead, SplitRead
from penstock.engine.waiting import Inbox
from penstock.options import ReadOptions
from penstock.source import open_source
from penstock.testing.servers import reply
from penstock.values import Span
from tests.engine.fetch.store import ETAG, first, serving, serving_whole
from tests.engine.read.test_hedging import Held, counted, well

DATA = os.urandom(300_000)
WHOLE = Span("key", 0, len(DATA), whole=True)
SPANS = {
    "span": (Span("key", 5, 100), SpanRead),
    "whole": (WHOLE, SpanRead),
    "open": (Span("key"), OpenRead),
    "suffix": (Span("key", -700), SuffixRead),
    "shorter than suffix": (Span("key", -(1 << 19)), SuffixRead),
}
VERSIONS = [(ETAG, "e1"), (None, ""), ('W/"e1"', "")]
PINNED = {name: (span._replace(etag="e1"), kind) for name, (span, kind) in SPANS.items()}


def _read(fetching, span, buffer=None):
    inbox = Inbox()
    (read,) = fetching.prepare_reads(((span, buffer),), inbox)
    fetching.send_reads((read,))
    inbox.wait(read)
    read.check()
    data = read.take() if buffer is None else bytes(buffer.view())
    assert data == (DATA[span.start :] if span.stop is None else DATA[span.start : span.stop])
    assert read.span == span or span.start < -200_000
    return read


# A span that is pinned to a version needs a server that has it.
@pytest.mark.parametrize(
    ("span", "kind", "etag", "version"),
    [(*each, etag, version) for etag, version in VERSIONS for each in SPANS.values()]
    + [(*each, ETAG, "e1") for each in PINNED.values()],
)
def test_each_read_names_the_version_of_the_answer(span, kind, etag, version):
    with serving({"key": DATA}, etags={"key": etag}) as (_, engine):
        read = _read(engine, span)
        assert type(read) is kind
        assert read.version == version


@pytest.mark.parametrize(("etag", "version"), [(ETAG, "e1"), (None, "")])
def test_an_open_read_of_more_than_its_buffer_names_the_version(etag, version):
    with serving({"key": DATA}, etags={"key": etag}) as (_, engine):
        for _ in range(2):
            assert _read(engine, Span("key", most=1000)).version == version


@pytest.mark.parametrize(("etag", "version"), [(ETAG, "e1"), (None, "")])
def test_a_read_in_parts_names_the_version(etag, version):
    options = ReadOptions(split_bytes=100_000)
    with serving({"key": DATA}, etags={"key": etag}, read=options) as (_, engine):
        for span in (WHOLE, Span("key", 7, 250_000), Span("key", -250_000)):
            read = _read(engine, span)
            assert isinstance(read, SplitRead)
            assert read.version == version


def test_an_end_that_breaks_off_and_goes_on_names_the_version():
    with serving({"key": DATA}, first(1, lambda answer: answer[: len(answer) // 2])) as (server, engine):
        assert _read(engine, Span("key", -100_000)).version == "e1"
        assert len(server.received) == 2


def test_spans_of_a_server_that_ignores_range_name_the_version():
    with serving_whole({"key": DATA}) as (_, _server, engine):
        for _ in range(2):
            assert [_read(engine, span).version for span, _ in SPANS.values()] == ["e1"] * len(SPANS)


@pytest.mark.parametrize("span", [span for span, _ in SPANS.values()], ids=[*SPANS])
@pytest.mark.parametrize("begun", [b"", reply(200, DATA, etag=ETAG)[:1000]], ids=["waits", "stands still"])
def test_a_second_request_that_is_answered_first_gives_its_version(span, begun):
    with well(Held(begun=begun), {"key": DATA}) as (_, engine):
        assert _read(engine, span).version == "e1"
        assert counted(engine)[:2] == (1, 1)


def test_an_empty_object_has_a_version():
    with serving({"key": b""}) as (_, engine):
        for span in (Span("key"), Span("key", 0, 0), Span("key", 0, 0, whole=True), Span("key", -5)):
            (read,) = complete_reads(engine, (span,))
            assert (read.take(), read.version) == (b"", "e1")


@contextmanager
def _through_a_cache(tmp_path, mode):
    with serving({"key": DATA}) as (server, engine):
        options = ps.CacheOptions(path=os.fspath(tmp_path), mode=mode, block_bytes=64 << 10)
        source_stat = lambda keys: [engine.run(lambda key=key: engine.driver.head(key)) for key in keys]  # noqa: E731
        yield server, add_cache(options, engine, ("s3", "bucket", ""), source_stat)


@pytest.mark.parametrize("mode", ["ttl", "revalidate", "immutable"])
# A buffer is for a span of known size.
@pytest.mark.parametrize(
    ("span", "into"),
    [
        (span, into)
        for span, _ in (*SPANS.values(), *PINNED.values())
        for into in ([False] if span.stop is None else [False, True])
    ],
)
def test_reads_through_a_cache_name_the_version_from_it_and_from_the_store(tmp_path, mode, span, into):
    with _through_a_cache(tmp_path, mode) as (server, layer):
        for hit in (False, True):
            asked = len(server.received)
            read = _read(layer, span, Buffer.allocate(span.stop - span.start) if into else None)
            assert read.version == "e1"
            gets = [each for each in server.received[asked:] if each.method == "GET"]
            if (span.etag or mode != "immutable") and span.start >= -1000:
                assert isinstance(read, CachedRead if hit else FetchedRead)
                assert bool(gets) is not hit


@pytest.mark.parametrize("kind", ["local", "memory"])
def test_files_and_memory_name_the_version(tmp_path, kind):
    source, key = open_source(f"memory://versions-{os.getpid()}/key" if kind == "memory" else f"{tmp_path}/key")
    source.put(key, DATA)
    etag = source.head(key).etag
    assert etag
    for span in (Span(key), Span(key, 3, 9), Span(key, 0, len(DATA), whole=True), Span(key, -9)):
        assert source.read_version(span)[1] == etag
