"""A web server's driver keeps every promise of reading on a real server, and believes none that is odd."""

from __future__ import annotations

import json
import random
import sys
import time
from collections import Counter
from contextlib import contextmanager, suppress
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from itertools import count
from threading import Thread
from urllib.parse import unquote

import pytest

import penstock as ps
from penstock.engine.contracts.exchange import Response
from penstock.engine.listing.listing import Listing
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
from penstock.stores.http.listing import ListingWalks
from penstock.stores.web.driver import IndexEntry, Walk, WebDriver, index_of, read_index
from penstock.stores.web.route import WebRoute
from penstock.testing.drivers import DriverContract, ListingTests, Trial
from penstock.testing.servers import Scripted, reply
from penstock.values import UNKNOWN_SIZE, Span
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


URL = "https://h/a%20b/"
NGINX = """<html>
<head><title>Index of /a b/</title></head>
<body>
<h1>Index of /a b/</h1><hr><pre><a href="../">../</a>
<a href="sub%20dir/">sub dir/</a>                                           22-Nov-2026 10:58                   -
<a href="1%2B1%3D2.txt">1+1=2.txt</a>                                       22-Nov-2026 10:58                1234
<a href="{long}">{short}..&gt;</a> 22-Nov-2026 10:58                  7K
<a href="%26lt%3B.txt">&amp;lt;.txt</a>                                     22-Nov-2026 10:58                   0
</pre><hr></body>
</html>
"""
LONG = "x" * 60
APACHE = """<!DOCTYPE HTML PUBLIC "-//W3C//DTD HTML 3.2 Final//EN">
<html>
 <head>
  <title>Index of /a b</title>
 </head>
 <body>
<h1>Index of /a b</h1>
  <table>
<tr><th><img src="/icons/blank.gif" alt="[ICO]"></th><th><a href="?C=N;O=D">Name</a></th>
<th><a href="?C=M;O=A">Last modified</a></th></tr>
<tr><td><img src="/icons/back.gif" alt="[PARENTDIR]"></td><td><a href="/">Parent Directory</a>       </td></tr>
<tr><td valign="top"><a href="sub/"><img src="/icons/folder.gif" alt="[DIR]"></a></td><td><a href="sub/">sub/</a></td>
<td align="right">2026-11-22 10:58  </td><td align="right">  - </td></tr>
<tr><td><img src="/icons/text.gif" alt="[TXT]"></td><td><a href="./a:b.txt">a:b.txt</a></td>
<td align="right">2026-11-22 10:58  </td><td align="right">1.2K</td></tr>
<tr><td><img src="/icons/text.gif" alt="[TXT]"></td><td><a href="plus+plus">plus+plus</a></td>
<td align="right">2026-11-22 10:58  </td><td align="right">123 </td></tr>
</table>
<p>See <a href="README">the notes</a>, <a href="https://other/file.txt">file.txt</a>,
<a href="sub/deep.txt">deep.txt</a>.</p>
</body></html>
"""
PYTHON = """<!DOCTYPE HTML>
<html lang="en"><head><meta charset="utf-8"><title>Directory listing for /a b/</title></head>
<body><h1>Directory listing for /a b/</h1><hr><ul>
<li><a href="b%20c.txt">b c.txt</a></li>
<li><a href="link">link@</a></li>
<li><a href="sub/">sub/</a></li>
</ul><hr></body></html>
"""


def _read(page, kind="text/html; charset=utf-8", url=URL):
    return read_index(page.encode(), kind, url)


def test_nginx_index_sizes_are_exact_or_unknown():
    page = NGINX.replace("{long}", LONG).replace("{short}", LONG[:47])
    assert _read(page) == [
        IndexEntry("sub dir/"),
        IndexEntry("1%2B1=2.txt", 1234),
        IndexEntry(LONG, UNKNOWN_SIZE),
        IndexEntry("&lt%3B.txt", 0),
    ]


def test_apache_index_sizes_are_unknown_and_text_links_are_ignored():
    assert _read(APACHE) == [IndexEntry("sub/"), IndexEntry("a:b.txt"), IndexEntry("plus+plus")]


def test_python_server_index_entries_have_unknown_size():
    assert _read(PYTHON) == [IndexEntry("b c.txt"), IndexEntry("link"), IndexEntry("sub/")]


@pytest.mark.parametrize(
    "href",
    [
        *("../x", "/x", "/a%20b/../x", "//other/a%20b/x", "http://h/a%20b/x", "https://h:444/a%20b/x", "x?y=1", "x#y"),
        *("sub/x", "%2e%2e", "%2E", "..%2fx/y", "javascript:x", "", "https://[", "x/../y/z"),
    ],
)
def test_link_outside_the_directory_is_ignored(href):
    text = href.rstrip("/").rpartition("/")[2]
    found = _read(f'<title>Index of /</title><a href="{href}">{text}</a></html>')
    assert found == []


def test_an_absolute_link_into_the_directory_is_an_entry_in_any_spelling():
    page = '<title>Index of /</title><a href="/a b/x">x</a><a href="https://h/%61%20b/y">y</a></html>'
    assert _read(page) == [IndexEntry("x"), IndexEntry("y")]


def test_a_name_that_stands_twice_counts_once():
    assert _read('<title>Index of /</title><a href="x">x</a><a href="./x">x</a></html>') == [IndexEntry("x")]


@pytest.mark.parametrize("page", ["<title>Welcome</title><a href='x'>x</a></html>", "plain text", "", "<html></html>"])
def test_page_without_index_format_returns_none(page):
    assert _read(page) is None


def test_a_page_that_is_cut_short_is_damaged():
    with pytest.raises(Damaged, match="truncated"):
        _read("<html><title>Index of /</title><a href='x'>x</a>")


def test_a_size_that_no_file_has_is_unknown():
    line = '<title>Index of /</title><a href="x">x</a> 22-Nov-2026 10:58 9999999999999999999\n</html>'
    assert _read(line) == [IndexEntry("x")]


def test_json_index_yields_names_with_valid_sizes_and_times():
    rows = [
        {"name": "sub", "type": "directory", "mtime": "Sun, 22 Nov 2026 10:58:00 GMT"},
        {"name": "100% ü?.txt", "type": "file", "mtime": "Sun, 22 Nov 2026 10:58:00 GMT", "size": 7},
        {"name": "socket", "type": "other", "mtime": "Sun, 22 Nov 2026 10:58:00 GMT"},
        {"name": "odd", "type": "file", "mtime": 7, "size": True},
    ]
    assert _read(json.dumps(rows), "application/json") == [
        IndexEntry("sub/"),
        IndexEntry("100%25 ü%3F.txt", 7, 1795345080.0),
        IndexEntry("odd"),
    ]


@pytest.mark.parametrize("rows", ['{"a": 1}', "[1]", "7"])
def test_json_of_unexpected_shape_returns_none(rows):
    assert _read(rows, "application/json") is None


@pytest.mark.parametrize("rows", ["[", '[{"name": "../x", "type": "file"}]', '[{"name": 7}]', '[{"name": ".."}]', ""])
def test_odd_json_is_damaged(rows):
    with pytest.raises(Damaged):
        _read(rows, "application/json")


def test_non_utf8_name_bytes_are_kept_percent_encoded():
    page = b'<title>Index of /</title><a href="%FFx">\xffx</a></html>'
    assert read_index(page, "text/html", URL) == [IndexEntry("%FFx")]
    assert read_index(b'[{"name": "\xffx", "type": "file", "size": 1}]', "application/json", URL) == [
        IndexEntry("%FFx", 1)
    ]


# Apache 2.4.68 and lighttpd 1.4.69 of Debian 12, over the same directory: what they wrote, without icons and scripts.
APACHE_TABLE = """<!DOCTYPE HTML PUBLIC "-//W3C//DTD HTML 4.01//EN" "http://www.w3.org/TR/html4/strict.dtd">
<html>
 <head>
  <title>Index of /debian</title>
 </head>
 <body>
<h1>Index of /debian</h1>
  <table>
   <tr><th><a href="?C=N;O=D">Name</a></th><th><a href="?C=M;O=A">Last modified</a></th></tr>
<tr><td valign="top">[PARENTDIR]</td><td><a href="/">Parent Directory</a></td><td align="right">  - </td></tr>
<tr><td><a href="%c3%bc&amp;%3cq%3e.txt">ü&amp;&lt;q&gt;.txt</a></td><td>2026-11-22 15:13  </td><td>  1 </td></tr>
<tr><td><a href="b%20c.txt">b c.txt</a></td><td align="right">2026-11-22 15:13  </td><td align="right">  2 </td></tr>
<tr><td><a href="big.bin">big.bin</a></td><td align="right">2026-11-22 15:13  </td><td align="right">121K</td></tr>
<tr><td><a href="dir/">dir/</a></td><td align="right">2026-11-22 15:13  </td><td align="right">  - </td></tr>
<tr><td><a href="per%2525cent">per%25cent</a></td><td>2026-11-22 15:13  </td><td>  1 </td></tr>
<tr><td><a href="plus+hash%23q%3fx">plus+hash#q?x</a></td><td align="right">2026-11-22 15:13  </td><td>  1 </td></tr>
<tr><td><a href="quo%22te.txt">quo&quot;te.txt</a></td><td align="right">2026-11-22 15:13  </td><td>  1 </td></tr>
<tr><td><a href="zz;semi=1">zz;semi=1</a></td><td align="right">2026-11-22 15:13  </td><td align="right">  1 </td></tr>
   <tr><th colspan="5"><hr></th></tr>
</table>
</body></html>
"""
LIGHTTPD = """<!DOCTYPE html>
<html>
<head>
<title>Index of /debian/</title>
</head>
<body>
<h2>Index of /debian/</h2>
<div class="list">
<table summary="Directory Listing" cellpadding="0" cellspacing="0">
<thead><tr><th class="n">Name</th><th class="m">Last Modified</th><th class="s">Size</th></tr></thead>
<tbody>
<tr class="d"><td class="n"><a href="../">..</a>/</td><td class="m">&nbsp;</td><td class="s">- &nbsp;</td></tr>
<tr class="d"><td class="n"><a href="dir/">dir</a>/</td><td class="m">2026-Nov-22 15:13:44</td></tr>
<tr><td class="n"><a href="b%20c.txt">b c.txt</a></td><td class="s">0.1K</td></tr>
<tr><td class="n"><a href="big.bin">big.bin</a></td><td class="s">120.5K</td></tr>
<tr><td class="n"><a href="per%2525cent">per%25cent</a></td><td class="m">2026-Nov-22 15:13:44</td></tr>
<tr><td class="n"><a href="plus%2Bhash%23q%3Fx">plus+hash#q?x</a></td><td class="m">2026-Nov-22 15:13:44</td></tr>
<tr><td class="n"><a href="quo%22te.txt">quo&#x22;te.txt</a></td><td class="m">2026-Nov-22 15:13:44</td></tr>
<tr><td class="n"><a href="zz%3Bsemi%3D1">zz;semi=1</a></td><td class="m">2026-Nov-22 15:13:44</td></tr>
<tr><td class="n"><a href="%C3%BC%26%3Cq%3E.txt">ü&#x26;&#x3C;q&#x3E;.txt</a></td></tr>
</tbody>
</table>
</div>
<div class="foot">lighttpd/1.4.69</div>
</body>
</html>
"""


@pytest.mark.parametrize("page", [APACHE_TABLE, LIGHTTPD], ids=["apache", "lighttpd"])
def test_the_pages_of_apache_and_lighttpd_name_the_same_files(page):
    found = read_index(page.encode(), "text/html;charset=UTF-8", "http://h/debian/")
    named = {unquote(each.name): each for each in found}
    files = {"b c.txt", "big.bin", "per%25cent", "plus+hash#q?x", 'quo"te.txt', "zz;semi=1", "ü&<q>.txt"}
    assert named.keys() == {*files, "dir/"}
    assert {each.size for each in found} == {UNKNOWN_SIZE}, "both round"


_TITLE = b"<title>Index of /</title>"
_HOSTILE = [
    b"<a ",
    b"<a",
    b"<",
    b"<!--",
    b"<!",
    b'<a href="',
    b"<a href='",
    b'<a x="y ',
    b"<a href=x>a<b>",
    b"<a href=x>",
]
_HOSTILE += [
    b"</a",
    b"</a>",
    b"&",
    b"&#1;",
    b"<script>",
    b"<a b c>",
    b"<a = ",
    b"<a href=\n",
    b"<style></styl",
    b"<title>x",
]
_HOSTILE += [
    b"<a href=x></a>x<title></title>",
    b"<img x='",
    b"<img x=",
    b"<a href=%ff>",
    b"<a href=../>",
    b"<A\tHREF = '&#9",
]


@pytest.mark.parametrize("piece", _HOSTILE, ids=repr)
@pytest.mark.parametrize("end", [b"", b"></html>", b"'\"></a></html>"], ids=repr)
def test_a_hostile_page_takes_time_in_proportion_to_its_length(piece, end):
    """48 KiB of ``<a <a`` took a minute."""
    began = time.thread_time()
    with suppress(Damaged):
        read_index(_TITLE + piece * ((1 << 19) // len(piece)) + end, "text/html", URL)
    assert time.thread_time() - began < 3


@pytest.mark.parametrize("page", [b"[" * 100_000, b'[{"name":' * 100_000, b"9" * 5000, b'[{"name": "\\ud800"}]'])
def test_hostile_json_is_damaged(page):
    with pytest.raises(Damaged):
        read_index(page, "application/json", URL)


@pytest.mark.parametrize(
    ("page", "kind"),
    [
        (_TITLE + b"<a href=x>" * 101, "text/html"),
        (_TITLE + b"<b>" * 1001, "text/html"),
        (b"[" + b'{"name":"x"},' * 101 + b'{"name":"x"}]', "application/json"),
        (b"[" + b"[]," * 1001 + b"1]", "application/json"),
    ],
    ids=["links", "tags", "rows", "values"],
)
def test_a_page_of_more_than_any_directory_holds_is_damaged(page, kind, monkeypatch):
    monkeypatch.setattr("penstock.stores.web.driver._MOST_LINKS", 100)
    monkeypatch.setattr("penstock.stores.web.driver._MOST_MARKS", 1000)
    with pytest.raises(Damaged, match="more than"):
        read_index(page, kind, URL)


def test_a_number_that_names_no_character_is_damaged():
    with pytest.raises(Damaged, match="character"):
        read_index(_TITLE + b"<a href=x>&#" + b"1" * 5000 + b";</a></html>", "text/html", URL)


def test_tags_in_comments_scripts_and_attribute_values_are_ignored():
    page = (
        '<title>Index of /</title><!-- <a href="no">no</a> --><script>"<a href=no>no</a>"</script>'
        "<img alt='><a href=no>no</a>'><a title='a>b' href = \"x\" class=y>x</a><A\nHREF=y >y</A></html>"
    )
    assert _read(page) == [IndexEntry("x"), IndexEntry("y")]


# -- A walk through directories tells what a sorted listing of all keys would tell, however it is continued --


def _children(keys, folder):
    names = {key[len(folder) :] for key in keys if key.startswith(folder)}
    return list({IndexEntry(name.partition("/")[0] + ("/" if "/" in name else "")) for name in names})


def _listed(keys, walk):
    """Follow a walk to its end, each page held to what was asked for."""
    listing = Listing(walk.prefix, walk.after, "/" if walk.flat else "")
    found = []
    while walk is not None:
        page, walk = walk.enter(_children(keys, walk.directory))
        found += [each.key for each in listing.take(page).entries]
        listing.over = False
    return found


def _some_keys(seed):
    draw = random.Random(seed)
    keys = {"/".join(draw.choice("abAü.-0") * draw.randint(1, 2) for _ in range(draw.randint(1, 4))) for _ in range(60)}
    return {key for key in keys if not any(other.startswith(f"{key}/") for other in keys)}


@pytest.mark.parametrize("trial", range(20))
def test_walk_yields_the_same_keys_as_a_sorted_flat_listing(trial, seed):
    keys = _some_keys(seed * 100 + trial)
    draw = random.Random(seed + trial)
    for prefix in ("", "a", "a/", "b/a", "zz", draw.choice(sorted(keys))):
        if prefix.endswith("/") and not any(key.startswith(prefix) for key in keys):
            continue
        matching = sorted((key for key in keys if key.startswith(prefix)), key=str.encode)
        assert _listed(keys, Walk.begin(prefix)) == matching
        for after in {draw.choice(matching) if matching else "", f"{prefix}a", f"{prefix}b/"}:
            expected = [key for key in matching if key.encode() > after.encode()]
            assert _listed(keys, Walk.begin(prefix, after)) == expected


@pytest.mark.parametrize("every", [1, 3])
def test_listing_resumes_at_its_position_after_walk_is_discarded(every, seed):
    keys = _some_keys(seed)
    walks, found, walk = ListingWalks(Walk.begin), [], Walk.begin("")
    for number in count():
        page, following = walk.enter(_children(keys, walk.directory))
        found += [each.key for each in page.entries]
        token = walks.keep(following, found[-1] if found else "")
        if not token:
            break
        if page.entries and number % every == 0:
            walks._walks.clear()
        walk = walks.find(token, "", flat=False)
    assert found == sorted(keys, key=str.encode)


def test_a_delimiter_names_directories_and_enters_none():
    keys = {"a/1", "a/2", "a.txt", "b/c/d", "e"}
    page, following = Walk.begin("", flat=True).enter(_children(keys, ""))
    assert ([each.key for each in page.entries], page.prefixes, following) == (["a.txt", "e"], ("a/", "b/"), None)
    page, _ = Walk.begin("b/", flat=True).enter(_children(keys, "b/"))
    assert page.prefixes == ("b/c/",)
    page, _ = Walk.begin("", "a/", flat=True).enter(_children(keys, ""))
    assert ([each.key for each in page.entries], page.prefixes) == (["e"], ("b/",))


def test_keys_have_the_spelling_that_was_asked_for():
    page, _ = Walk.begin("my%20data/%c3%bc").enter([IndexEntry("ü1"), IndexEntry("x")])
    assert [each.key for each in page.entries] == ["my%20data/%c3%bc1"]


def test_a_directory_in_itself_ends():
    walk = Walk.begin("")
    with pytest.raises(Damaged, match="deep"):
        while walk is not None:
            _, walk = walk.enter([IndexEntry("loop/")])
