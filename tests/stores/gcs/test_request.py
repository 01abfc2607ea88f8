"""google-auth's requests: over real HTTP, bounded, never redirected, and a failure is its own TransportError."""

from __future__ import annotations

import pytest
from google.auth.exceptions import TransportError

from penstock.stores.gcs.store import requests
from penstock.testing.servers import Scripted, reply
from tests.servers.google import TokenServer


def test_an_answer_comes_back_whole():
    with TokenServer.start() as server:
        answer = requests(None, "")(f"{server.url}/token", method="POST", body="a=b", headers={"x-a": "b"}, timeout=5)
        assert (answer.status, answer.headers["metadata-flavor"]) == (200, "Google")
        assert b"token-1" in answer.data
        assert server.forms == [{"a": "b"}]


def test_a_refusal_is_an_answer():
    with TokenServer.start() as server:
        server.refusal = 403, {"error": "denied"}
        answer = requests(None, "")(f"{server.url}/token")
        assert (answer.status, answer.data) == (403, b'{"error": "denied"}')


def test_no_redirect_is_followed():
    with TokenServer.start() as other:

        def script(_received, send):
            send(reply(302, location=f"{other.url}/stolen"))
            return True

        with Scripted(script) as server:
            answer = requests(None, "")(f"{server.url}/token", headers={"authorization": "Bearer secret"})
            assert answer.status == 302
        assert other.asked == []


@pytest.mark.parametrize("url", ["http://127.0.0.1:9/", "file:///etc/passwd", "ftp://127.0.0.1/x"])
def test_unreachable_or_non_http_token_url_raises_transport_error(url):
    with pytest.raises(TransportError):
        requests(None, "")(url)


def test_a_proxy_is_used():
    def script(received, send):
        assert received.path == "http://token.invalid/x"
        send(reply(200, b"proxied"))
        return True

    with Scripted(script) as proxy:
        assert requests(None, proxy.url)("http://token.invalid/x").data == b"proxied"
