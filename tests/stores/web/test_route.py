"""Where requests go, with whose credentials, and what refusals mean."""

import pytest

from penstock.engine.contracts.driver import MOVED
from penstock.engine.contracts.exchange import Response
from penstock.errors import (
    Changed,
    ConfigError,
    Forbidden,
    NotFound,
    Throttled,
    Truncated,
    Unreachable,
)
from penstock.stores.web.route import WebRoute

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
