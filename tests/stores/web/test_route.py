"""Where requests go, with whose credentials, and what refusals mean."""

from urllib.parse import quote, unquote

import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock.engine.contracts.driver import MOVED
from penstock.engine.contracts.exchange import Response
from penstock.errors import (
    Changed,
    ConfigError,
    Forbidden,
    NotFound,
    Throttled,
    Transient,
    Truncated,
    Unauthenticated,
    Unreachable,
    Unusable,
)
from penstock.stores.web.route import (
    BY_DATE,
    BY_ETAG,
    WEB_CODES,
    Targets,
    WebRoute,
    asked_from,
    canonical,
    check_encoding,
    escape_key,
    hide_query,
    make_moved_error,
    parse_meta,
    plain,
    target_of,
    verification,
    version_of,
)

ROOT = "https://hub.example/"
SECRET = "Authorization: Bearer hush"


def _route(hint=lambda _url: ""):
    return WebRoute(ROOT, (SECRET,), hint)


def _follow(route, location, key="k", status=302, *, pinned=False):
    way, _ = route.next(key, pinned=pinned)
    return route.error(Response(status, {"location": location}), "read", key, way)


def test_requests_go_to_the_server_with_its_headers():
    way, lines = _route().next("a b?sig=1", pinned=False)
    assert (way.path, way.url, way.hops) == ("a%20b?sig=1", f"{ROOT}a%20b?sig=1", 0)
    assert lines == ("Accept-Encoding: identity", SECRET)


def test_a_redirect_is_asked_at_once_and_no_other_host_gets_the_credentials():
    route = _route()
    error = _follow(route, "https://cdn.example/x?Signature=hushhush")
    assert (error.code, error.retries) == (MOVED, 1)
    assert "hushhush" not in str(error)
    way, lines = route.next("k", pinned=False)
    assert (way.url, way.hops, lines) == ("https://cdn.example/x?Signature=hushhush", 1, ("Accept-Encoding: identity",))
    assert route.next("k", pinned=False)[0].hops == 0


@pytest.mark.parametrize(
    ("location", "sent"),
    [
        ("/other", True),
        ("https://HUB.example/other", True),
        ("https://hub.example:8443/other", False),
        ("https://hub.example.evil/other", False),
    ],
)
def test_credentials_go_to_the_same_origin_only(location, sent):
    route = _route()
    _follow(route, location)
    assert (SECRET in route.next("k", pinned=False)[1]) is sent


def test_redirects_end():
    route = _route()
    for _ in range(10):
        assert _follow(route, "https://cdn.example/again").code == MOVED
    error = _follow(route, "https://cdn.example/again")
    assert isinstance(error, ConfigError)
    assert (error.code, error.retries) == ("", 0)


@pytest.mark.parametrize("location", ["http://hub.example/k", "https://169.254.169.254/k?sig=hushhush", ""])
def test_a_redirect_that_is_not_followed_is_an_error_that_quotes_no_more_than_the_host(location):
    route = _route()
    error = _follow(route, location or "https://u:hushhush@cdn.example/")
    assert isinstance(error, ConfigError)
    assert error.code == ""
    assert "hushhush" not in str(error)


def test_redirect_to_directory_url_returns_not_found():
    assert isinstance(_follow(_route(), f"{ROOT}k/", status=301), NotFound)


def test_a_remembered_target_that_refuses_is_forgotten_once():
    route = _route()
    _follow(route, "https://cdn.example/x?old", pinned=True)
    first, _ = route.next("k", pinned=True)
    second, _ = route.next("k", pinned=True)
    assert (first.reused, second.reused, second.url) == (False, True, first.url)
    assert route.error(Response(403), "read", "k", second).code == MOVED
    assert route.next("k", pinned=True)[0].hops == 0
    error = route.error(Response(403), "read", "k", first)
    assert type(error) is Forbidden
    assert "redirected to cdn.example" in str(error)


@pytest.mark.parametrize(
    ("status", "kind"), [(404, NotFound), (403, Forbidden), (412, Changed), (416, Truncated), (503, Throttled)]
)
def test_refusal_error_suggests_store_url_only_when_missing_or_forbidden(status, kind):
    route = _route(lambda url: f"for {url} write s3://b/k")
    error = route.error(
        Response(status, {"retry-after": "3"}), "read", "k?sig=hushhush", route.straight("k?sig=hushhush")
    )
    assert type(error) is kind
    assert "hushhush" not in f"{error}{vars(error)}"
    assert ("write s3://b/k" in str(error)) is (kind in (NotFound, Forbidden))
    assert error.retry_after_s == (None if kind is Changed else 3.0)


def test_an_object_store_is_known_by_its_answer():
    body = b"<Error><Code>AccessDenied</Code><Message>no</Message></Error>"
    error = _route().error(Response(403, body=body), "read", "k", _route().straight("k"))
    assert error.code == "AccessDenied"
    assert "S3Options(endpoint=" in str(error)


def test_a_fault_is_itself_unless_the_server_refused():
    route, fault = _route(), Unreachable("gone")
    assert route.error(Response(200, fault=fault), "read", "k", route.straight("k")) is fault
    assert fault.url == f"{ROOT}k"
    assert isinstance(route.error(Response(404, fault=fault), "read", "k", route.straight("k")), NotFound)
    with pytest.raises(Unreachable):
        route.check(Response(200, fault=fault), "read", "k", route.straight("k"))
    route.check(Response(200, fault=fault, overflow=True), "read", "k", route.straight("k"))
    with pytest.raises(NotFound), route.locating("k"):
        raise NotFound("gone")


# -- Statuses of web servers, each with what to do --


@pytest.mark.parametrize(
    ("status", "kind", "words"),
    [
        (401, Unauthenticated, "HTTPOptions"),
        (403, Forbidden, "HTTPOptions"),
        (404, NotFound, "check the path"),
        (407, Unauthenticated, "proxy"),
        (410, NotFound, "gone"),
        (429, Throttled, ""),
        (451, Forbidden, "legal"),
        (500, Transient, ""),
        (521, Transient, ""),
    ],
)
def test_each_status_maps_to_its_error_class_and_advice(status, kind, words):
    error = WEB_CODES.refusal(Response(status), "read", "https://h/k").error
    assert type(error) is kind
    assert words in str(error)
    assert "bucket" not in str(error)


# -- What answers of web servers say of a file --


DATE = "Sun, 22 Nov 2026 10:58:00 GMT"


@pytest.mark.parametrize(
    ("headers", "version"),
    [
        ({"etag": '"abc"', "last-modified": DATE}, "abc"),
        ({"etag": 'W/"abc"', "last-modified": DATE}, DATE),
        ({"etag": 'W/"abc"'}, "W/abc"),
        ({"etag": '"a b"', "last-modified": DATE}, DATE),
        ({"last-modified": DATE}, DATE),
        ({}, ""),
    ],
)
def test_a_version_is_the_strongest_that_there_is(headers, version):
    assert version_of(headers) == version
    assert verification(headers) is (BY_DATE if version == DATE else BY_ETAG)


@pytest.mark.parametrize(
    ("status", "headers", "size"),
    [
        (200, {"content-length": "7", "etag": '"a"'}, 7),
        (200, {"content-length": "7"}, 7),
        (200, {"content-length": "0", "etag": '"a"'}, 0),
        (200, {"content-length": "0"}, None),
        (200, {"transfer-encoding": "chunked"}, None),
        (206, {"content-range": "bytes 0-0/7", "content-length": "1"}, 7),
        (206, {"content-range": "bytes 0-0/*", "content-length": "1"}, None),
        (206, {"content-length": "1"}, None),
        (416, {"content-range": "bytes */0"}, 0),
        (416, {"content-range": "bytes */7"}, None),
        (416, {}, None),
    ],
)
def test_object_size_is_derived_from_response_status_and_headers(status, headers, size):
    found = parse_meta("k", Response(status, headers))
    assert (None if found is None else found.size) == size


def test_a_description_has_type_and_date():
    found = parse_meta("k", Response(200, {"content-length": "7", "last-modified": DATE, "content-type": "image/png"}))
    assert (found.etag, found.modified, found.content_type) == (DATE, 1795345080.0, "image/png")


@pytest.mark.parametrize(
    ("key", "encoding"), [("x.txt", "gzip"), ("x", "br"), ("x.png?a=.gz", "GZIP"), ("x.gz.txt", "gzip")]
)
def test_compressed_response_for_uncompressed_key_is_refused(key, encoding):
    with pytest.raises(Unusable, match="compresses this file"):
        check_encoding(Response(200, {"content-encoding": encoding}), key)


@pytest.mark.parametrize(
    ("key", "encoding"), [("x.tar.gz", "x-gzip"), ("x.GZ?sig=1", "gzip"), ("x", "identity"), ("x", "")]
)
def test_content_encoding_identity_or_matching_key_suffix_is_accepted(key, encoding):
    check_encoding(Response(200, {"content-encoding": encoding}), key)


def test_moved_error_allows_exactly_one_retry():
    assert (make_moved_error("why", "u").code, make_moved_error("why", "u").retries) == (MOVED, 1)


def test_an_empty_file_without_a_version_is_believed_when_it_was_asked_for_by_get():
    """lighttpd sends neither ETag nor date for empty files, and programs that answer every HEAD send the same."""
    answer = Response(200, {"content-length": "0", "content-type": "text/plain"})
    assert parse_meta("empty", answer) is None
    found = parse_meta("empty", answer, by_get=True)
    assert (found.size, found.etag, found.content_type) == (0, "", "text/plain")


# -- Redirects are followed to where they may lead, and remembered for a minute --


URL = "https://hub.example/a/resolve/main/x.bin"


@pytest.mark.parametrize(
    ("url", "location", "target"),
    [
        (URL, "https://cdn.example/x?Signature=a%2Fb", "https://cdn.example/x?Signature=a%2Fb"),
        (URL, "/other/x", "https://hub.example/other/x"),
        (URL, "y.bin#part", "https://hub.example/a/resolve/main/y.bin"),
        (URL, "//cdn.example:8443/x", "https://cdn.example:8443/x"),
        ("http://hub.example/x", "https://hub.example/x", "https://hub.example/x"),
        ("http://127.0.0.1:1/x", "http://127.0.0.1:2/x", "http://127.0.0.1:2/x"),
        ("http://localhost:1/x", "http://127.0.0.1:2/x", "http://127.0.0.1:2/x"),
        ("http://10.0.0.1/x", "http://10.0.0.1:81/x", "http://10.0.0.1:81/x"),
    ],
)
def test_redirect_target_of_equal_or_better_security_is_resolved(url, location, target):
    assert target_of(url, location) == target


@pytest.mark.parametrize(
    ("url", "location"),
    [
        *((URL, "http://hub.example/x"), (URL, "http://cdn.example/x"), (URL, "ftp://cdn.example/x")),
        *((URL, "file:///etc/passwd"), (URL, "https://user:word@cdn.example/x"), (URL, "https://[")),
        *((URL, "https://cdn.example:port/x"), (URL, "https://cdn.éxample/x"), (URL, "https://cdn.example/a b")),
        *((URL, "https://cdn.example/\x01"), (URL, "javascript:x")),
        *((URL, "https://127.0.0.1/x"), (URL, "https://localhost/x"), (URL, "https://[::1]/x")),
        *((URL, "https://169.254.169.254/latest/meta-data"), (URL, "https://10.0.0.1/x"), (URL, "https://[fe80::1]/x")),
        *(
            (URL, f"https://{host}/x")
            for host in ("2130706433", "0x7f000001", "127.1", "0177.0.0.1", "0", "127.0.0.1.")
        ),
        *((URL, f"https://{host}/x") for host in ("localhost.", "[::]", "[::ffff:10.0.0.1]", "[64:ff9b::a00:1]")),
        *((URL, "https://metadata.google.internal/x"), ("http://hub.example/x", "http://192.168.0.1/x")),
    ],
)
def test_a_redirect_to_something_worse_is_not_followed(url, location):
    assert target_of(url, location) == ""


@pytest.mark.parametrize(
    ("url", "address", "public"),
    [
        (URL, "8.8.8.8", True),
        (URL, "2606:4700::1111", True),
        (URL, "10.0.0.1", False),
        (URL, "", True),
        ("http://127.1/x", "", False),
    ],
)
def test_a_redirect_comes_from_a_public_server_by_its_address(url, address, public):
    assert asked_from(url, address) is public


class _Clock:
    now = 0.0

    def __call__(self):
        return self.now


def test_a_target_serves_once_or_for_a_minute_where_a_version_is_pinned():
    clock = _Clock()
    targets = Targets(clock)
    assert not targets
    targets.add("p", "https://cdn/x?sig=hush", 1)
    assert "hush" not in repr(targets.take("p", pinned=True))
    assert targets.take("p", pinned=True).hops == 1
    assert targets.take("p", pinned=False).url == "https://cdn/x?sig=hush"
    assert targets.take("p", pinned=False) is None
    targets.add("p", "https://cdn/x", 1)
    clock.now = 61.0
    assert targets.take("p", pinned=True) is None
    assert not targets


def test_targets_are_bounded():
    targets = Targets()
    for number in range(5000):
        targets.add(str(number), "https://cdn/x", 1)
    assert len(targets._targets) <= 1024
    targets.drop("4999")
    assert targets.take("4999", pinned=True) is None


# -- What is sent, shown and listed of a key --


@pytest.mark.parametrize(
    ("key", "sent"),
    [
        ("a/b.txt", "a/b.txt"),
        ("a b", "a%20b"),
        ("a%20b", "a%20b"),
        ("100%", "100%25"),
        ("100%25", "100%25"),
        ("a+b&c=d;e,f:g@h!i$j'k(l)m*n", "a+b&c=d;e,f:g@h!i$j'k(l)m*n"),
        ("ü/日", "%C3%BC/%E6%97%A5"),
        ('"<>\\^`{|}[]', "%22%3C%3E%5C%5E%60%7B%7C%7D%5B%5D"),
        ("x/../y", "x/../y"),
        ("a\r\nHost: evil", "a%0D%0AHost:%20evil"),
        ("k?X-Sig=a%2Fb+c/=&q=[1]", "k?X-Sig=a%2Fb+c/=&q=[1]"),
        ("a b?c d=ü", "a%20b?c%20d=%C3%BC"),
        ("k?a?b", "k?a?b"),
        ("ha#sh", "ha%23sh"),
    ],
)
def test_unsafe_url_characters_are_escaped_and_existing_escapes_are_kept(key, sent):
    assert escape_key(key) == sent
    assert escape_key(sent) == sent
    assert bool(plain(key)) is (key == sent and key.isascii() and quote(key, safe="/~") == key)


def test_a_query_is_not_shown():
    assert hide_query("a b?sig=hush") == "a b?…"
    assert hide_query("a/b") == "a/b"


@pytest.mark.parametrize(
    ("spelling", "listed"),
    [
        ("a%20b", "a b"),
        ("%41%7E", "A~"),
        ("%c3%bc", "ü"),
        ("%FF%fe", "%FF%FE"),
        ("%00%0a", "%00%0A"),
        ("a%2Fb%3F%23%25%2B%3B", "a%2Fb%3F%23%25%2B%3B"),
        ("a+b;c", "a+b;c"),
        ("50%", "50%25"),
        ("%E2%80%AE", "%E2%80%AE"),  # turns the direction of text
    ],
)
def test_listings_have_one_readable_spelling(spelling, listed):
    assert canonical(spelling) == listed
    assert canonical(listed) == listed


@given(st.text(st.characters(exclude_categories=["Cs"], exclude_characters="/"), min_size=1))
def test_a_listed_name_leads_to_the_file_of_that_name(name):
    key = canonical(quote(name, safe=""))
    assert unquote(escape_key(key)) == name
    assert key.isprintable()
    assert not {"?", "#"} & set(key)
