"""A web server's driver keeps every promise of reading on a real server, and believes none that is odd."""

from __future__ import annotations

import sys
from collections import Counter
from contextlib import contextmanager
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from threading import Thread

import pytest

import penstock as ps
from penstock.engine.contracts.exchange import Response
from penstock.engine.transport.loop import connect
from penstock.engine.transport.work import Threads
from penstock.errors import (
    Changed,
    ConfigError,
    Damaged,
    Forbidden,
    NotFound,
    Transient,
    Unauthenticated,
    Unsupported,
    Unusable,
)
from penstock.options import TransportOptions
from penstock.source import open_source
from penstock.stores.web.driver import WebDriver, index_of
from penstock.stores.web.index import Walk
from penstock.stores.web.route import WebRoute
from penstock.testing.drivers import DriverContract, ListingTests, Trial
from penstock.testing.servers import Scripted, reply
from penstock.values import Span
from tests.servers.folder import WEB_KEYS, Folder


class _OnNginx:
    keys = WEB_KEYS
    page_keys = sys.maxsize
    keeps_metadata = False
    lists_versions = False
    form = "index"

    @pytest.fixture
    def store(self, served):
        return WebDriver(served.roots[self.form]), connect(TransportOptions())

    @pytest.fixture
    def writer(self, served):
        return Folder(served.folder, served.roots[self.form]), Threads()


class TestNginx(_OnNginx, DriverContract):
    pass


class TestJson(_OnNginx, ListingTests):
    form = "json"


class TestRounded(_OnNginx, ListingTests):
    form = "rounded"


def _scripted(script):
    """Serve with `script(received)`, which returns an answer's bytes."""

    def answer(received, send):
        send(script(received))
        return False

    return Scripted(answer)


def _one(script, verb):
    with _scripted(script) as server:
        trial = Trial(WebDriver(f"{server.url}/"), connect(TransportOptions()))
        return verb(trial), server


def _source(server, **options):
    return open_source(f"{server.url}/", ps.HTTPOptions(**options))[0]


DATE, OTHER = "Sun, 22 Nov 2026 10:58:00 GMT", "Sun, 22 Nov 2026 10:59:00 GMT"


class TestAnswers:
    """What a server may say, and what we make of it."""

    @pytest.mark.parametrize("status", [405, 501])
    def test_where_head_is_refused_the_first_byte_is_asked_for(self, status):
        def script(received):
            if received.method == "HEAD":
                return reply(status)
            return reply(206, b"x", content_range="bytes 0-0/7", etag='"a"')

        with _scripted(script) as server:
            source = _source(server)
            assert [source.head(key).size for key in ("a", "b")] == [7, 7]
            assert [each.method for each in server.received] == ["HEAD", "GET", "GET"]

    def test_empty_head_response_falls_back_to_get_for_size(self):
        def script(received):
            if received.method == "HEAD":
                return b"HTTP/1.1 200 .\r\nContent-Length: 0\r\n\r\n"
            return reply(200, b"content")

        with _scripted(script) as server:
            assert _source(server).head("a").size == 7

    def test_object_without_length_is_readable_but_head_raises_unsupported(self):
        def script(received):
            body = b"" if received.method == "HEAD" else b"7\r\ncontent\r\n0\r\n\r\n"
            return b"HTTP/1.1 200 .\r\nTransfer-Encoding: chunked\r\n\r\n" + body

        with _scripted(script) as server:
            source = _source(server)
            assert source.read(Span("a")) == b"content"
            with pytest.raises(Unsupported, match="from_objects"):
                source.head("a")

    def test_a_signed_url_is_described_by_get_and_its_query_is_sent_as_it_is(self):
        def script(received):
            if received.method == "HEAD" or received.path != "/k%20x?X-Sig=a%2Fb+c/=&y":
                return reply(403)
            return reply(206, b"x", content_range="bytes 0-0/7")

        trial = lambda trial: trial.head("k x?X-Sig=a%2Fb+c/=&y").size  # noqa: E731
        assert _one(script, trial)[0] == 7

    def test_requests_ask_for_no_compression_and_hold_to_the_version(self):
        def script(_received):
            return reply(206, b"234", content_range="bytes 2-4/9", etag='"v"', last_modified=DATE)

        for etag, line in (("v", ("if-match", '"v"')), (DATE, ("if-unmodified-since", DATE))):
            _, server = _one(script, lambda trial, etag=etag: trial.read("k", 2, 5, etag))
            headers = server.received[0].headers
            assert (headers["accept-encoding"], headers["range"], headers[line[0]]) == (
                "identity",
                "bytes=2-4",
                line[1],
            )

    @pytest.mark.parametrize("whole", [True, False])
    @pytest.mark.parametrize("etag", ["v", DATE])
    def test_changed_version_raises_when_server_ignores_conditions(self, etag, whole):
        def script(_received):
            extra = {} if whole else {"content_range": "bytes 0-8/9"}
            return reply(200 if whole else 206, b"012345678", etag='"w"', last_modified=OTHER, **extra)

        with pytest.raises(Changed):
            _one(script, lambda trial: trial.read("k", 0, 9, etag, whole=whole))
        if whole:
            with pytest.raises(Changed):
                _one(script, lambda trial: trial.get("k", etag))

    def test_compressed_response_is_refused_by_every_verb(self):
        def script(received):
            extra = {"content_range": "bytes 0-8/9"} if "range" in received.headers else {}
            return reply(206 if extra else 200, b"012345678", content_encoding="gzip", etag='"v"', **extra)

        for verb in (
            lambda trial: trial.head("k"),
            lambda trial: trial.get("k"),
            lambda trial: trial.read("k", 0, 9),
            lambda trial: trial.read("k", 0, 9, whole=True),
        ):
            with pytest.raises(Unusable, match="compresses this file"):
                _one(script, verb)
        assert _one(script, lambda trial: trial.get("k.tar.gz"))[0] == b"012345678"

    def test_a_login_page_of_another_size_is_not_the_file(self):
        def script(_received):
            return reply(200, b"<html>Please log in</html>", content_type="text/html")

        with pytest.raises(Changed, match="listed with 9"):
            _one(script, lambda trial: trial.read("k", 0, 9, whole=True))

    def test_an_empty_file_that_is_not_empty_has_changed(self):
        with pytest.raises(Changed):
            _one(lambda _received: reply(200, b"x"), lambda trial: trial.read("k", 0, 0, whole=True))

    def test_a_body_of_unsaid_length_is_refused(self):
        with pytest.raises(Damaged, match="size"):
            _one(lambda _received: b"HTTP/1.1 200 .\r\n\r\ncontent", lambda trial: trial.get("k"))

    def test_read_continues_at_buffer_end_for_object_of_unknown_size(self):
        data = bytes(range(256)) * 8192

        def script(received):
            if received.range is None:
                return reply(200, data, last_modified=DATE)
            start, stop = received.range
            part = data[start:stop]
            total = f"bytes {start}-{stop - 1}/{len(data)}"
            return reply(206, part, content_range=total, last_modified=DATE)

        with _scripted(script) as server:
            source = _source(server)
            assert source.read(Span("a", most=1 << 20)) == data
            assert server.received[-1].headers["if-unmodified-since"] == DATE


class TestRedirects:
    """Files that lie elsewhere, as Hugging Face's do: a hub that redirects to signed addresses on another host."""

    DATA = bytes(range(251)) * 400

    @contextmanager
    def _hub(self, expires=10**9):
        """Yield a hub and its files' host, whose addresses serve so many requests each."""
        used = Counter()

        def cdn(received, send):
            used[received.path] += 1
            if used[received.path] > expires or "Signature=hushhush" not in received.path:
                send(reply(403))
            elif received.range is None:
                send(reply(200, b"" if received.method == "HEAD" else self.DATA, etag='"v"', content_length="100400"))
            else:
                start, stop = received.range
                send(reply(206, self.DATA[start:stop], etag='"v"', content_range=f"bytes {start}-{stop - 1}/100400"))
            return False

        with Scripted(cdn) as files:

            def hub(received, send):
                where = f"{files.url}/x?Signature=hushhush{received.number}"
                send(reply(302, location=where) if "main" in received.path else reply(307, location="/main"))
                return False

            with Scripted(hub) as server:
                yield server, files

    def test_reads_follow_and_the_token_stays_with_the_hub(self):
        with self._hub() as (hub, files):
            source = _source(hub, token="never-to-be-told", headers={"X-Mine": "mine-alone"})
            meta = source.head("a/resolve/k")
            assert (meta.size, meta.etag) == (len(self.DATA), "v")
            assert source.read(Span("a/resolve/k")) == self.DATA
            assert source.read(Span("a/resolve/k", 0, len(self.DATA), "v", whole=True)) == self.DATA
            assert all(each.headers["authorization"] == "Bearer never-to-be-told" for each in hub.received)
            assert all(each.headers["x-mine"] == "mine-alone" for each in hub.received)
            assert not any({"authorization", "x-mine"} & set(each.headers) for each in files.received)

    def test_pinned_ranges_of_one_file_share_a_redirect(self):
        with self._hub() as (hub, _files):
            source = _source(hub)
            spans = [Span("main/k", start, start + 100, "v") for start in range(0, 10_000, 100)]
            assert source.read(spans[0]) == self.DATA[:100]
            asked = len(hub.received)
            assert b"".join(source.read_many(spans)) == self.DATA[:10_000]
            assert len(hub.received) == asked

    def test_an_address_that_has_expired_is_asked_for_anew(self):
        with self._hub(expires=2) as (hub, _files):
            source = _source(hub)
            for start in range(0, 1000, 100):
                assert source.read(Span("main/k", start, start + 100, "v")) == self.DATA[start : start + 100]
            assert 5 <= len(hub.received) <= 10

    def test_redirects_consume_zero_retry_attempts(self):
        with self._hub() as (hub, _files):
            source = _source(hub, retry=ps.RetryOptions(attempts=1))
            assert source.read(Span("a/resolve/k")) == self.DATA

    def test_a_refusal_names_the_host_and_no_signature(self):
        with self._hub(expires=0) as (hub, files), pytest.raises(Forbidden) as caught:
            _source(hub).read(Span("a/resolve/k"))
        assert files.url.removeprefix("http://") in str(caught.value)
        assert "hushhush" not in f"{caught.value}{vars(caught.value)}"

    def test_circles_end(self):
        # It keeps connections open: libcurl before 8.17 gives up after five that closed when it used them again.
        with Scripted(lambda _received, send: send(reply(302, location="/k")) is None) as server:
            # On a slow machine, a hedge would go round in the same circle.
            source = _source(server, read=ps.ReadOptions(hedge=False))
            with pytest.raises(ConfigError, match="redirects"):
                source.read(Span("k"))
            assert len(server.received) == 11


def test_a_server_that_ignores_ranges_is_read_all_the_same(tmp_path):
    data = bytes(range(256)) * 400
    (tmp_path / "x").write_bytes(data)
    with ThreadingHTTPServer(("127.0.0.1", 0), _quiet(tmp_path)) as server:
        Thread(target=server.serve_forever, daemon=True).start()
        root = f"http://127.0.0.1:{server.server_port}/"
        source = open_source(root)[0]
        meta = source.head("x")
        assert meta.etag.endswith("GMT")
        spans = [Span("x", start, start + 100, meta.etag) for start in range(5, 50_000, 5_000)]
        assert source.read_many(spans) == [data[span.start : span.stop] for span in spans]
        assert [each.key for each in ps.list(root)] == ["x"]
        server.shutdown()


def _quiet(folder):
    class Handler(SimpleHTTPRequestHandler):
        def __init__(self, *args):
            super().__init__(*args, directory=folder)

        def log_message(self, *_):
            pass

    return Handler


# -- Answers to requests for a directory: its names, or why there are none --


PAGE = b"<title>Index of /</title><a href='x'>x</a></html>"
HEADERS = {"content-length": str(len(PAGE)), "content-type": "text/html"}


def _index(response, directory="d/", *, first=True):
    route = WebRoute("https://h/", (), lambda _url: "")
    walk = Walk("", directory=directory, first=first)
    return index_of(response, walk, route.straight(directory), route)


def test_an_index_is_read():
    assert [each.name for each in _index(Response(200, HEADERS, PAGE))] == ["x"]


@pytest.mark.parametrize(
    ("response", "directory", "kind"),
    [
        (Response(404), "d/", NotFound),
        (Response(404), "", Unsupported),
        (Response(403), "d/", Unsupported),
        (Response(200, HEADERS, b"x" * len(PAGE)), "d/", Unsupported),
        (Response(200, HEADERS, overflow=True), "d/", Unsupported),
    ],
)
def test_unusable_directory_index_error_suggests_from_manifest(response, directory, kind):
    with pytest.raises(kind, match="from_manifest"):
        _index(response, directory)


def test_a_directory_that_is_gone_meanwhile_is_empty_and_one_that_is_refused_is_not():
    assert _index(Response(404), first=False) == []
    with pytest.raises(Forbidden):
        _index(Response(403), first=False)


@pytest.mark.parametrize(
    ("response", "kind"),
    [
        (Response(401), Unauthenticated),
        (Response(500), Transient),
        (Response(200, HEADERS, PAGE[:-1]), Transient),
        (Response(200, {"content-type": "text/html"}, PAGE), Damaged),
        (Response(200, HEADERS | {"content-encoding": "gzip"}, PAGE), Unusable),
    ],
)
def test_failed_or_incomplete_index_response_raises_error(response, kind):
    with pytest.raises(kind):
        _index(response)


def _begin_listing(prefix, delimiter, hint=""):
    WebDriver("https://h/", hint=lambda _url: hint).list(prefix, delimiter=delimiter)


def test_unsupported_prefix_or_delimiter_is_refused_before_any_request():
    _begin_listing("a/", "/")
    for prefix, delimiter in (("a/", "-"), ("a/?sig=hushhush", "")):
        with pytest.raises(Unsupported) as caught:
            _begin_listing(prefix, delimiter)
        assert "hushhush" not in f"{caught.value}{vars(caught.value)}"
    with pytest.raises(Unsupported, match="write s3://b/a"):
        _begin_listing("a/", "", "write s3://b/a")
