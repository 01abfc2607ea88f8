"""Statuses of web servers, each with what to do."""

import pytest

from penstock.engine.contracts.exchange import Response
from penstock.errors import Forbidden, NotFound, Throttled, Transient, Unauthenticated
from penstock.stores.web.route import WEB_CODES


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
