"""An address lives as long as was asked for; longer than store or credentials allow is refused."""

from __future__ import annotations

import pytest

from penstock.engine.contracts.credentials import Credentials
from penstock.errors import Unusable
from penstock.stores.http.headers import WEEK_S, lifetime

LASTING = Credentials("a", "s")


@pytest.mark.parametrize(
    ("asked", "most", "expires_at", "seconds"),
    [
        (None, WEEK_S, None, 3600),
        (None, 60, None, 60),
        (None, WEEK_S, 1500.0, 500),
        (None, WEEK_S, 9000.0, 3600),
        (WEEK_S, WEEK_S, None, WEEK_S),
        (1, WEEK_S, None, 1),
        (1.9, WEEK_S, None, 1),
        (500, WEEK_S, 1500.0, 500),
    ],
)
def test_how_long_an_address_lives(asked, most, expires_at, seconds):
    keys = Credentials("a", "s", "t" * bool(expires_at), expires_at)
    assert lifetime(asked, most, keys, 1000.0) == (seconds, "")


@pytest.mark.parametrize(
    ("asked", "expires_at", "said"),
    [
        (WEEK_S + 1, None, "at most 604,800 seconds here, got 604,801"),
        (501, 1500.0, "expire in 500 seconds"),
        (None, 1000.5, "expire in"),
        (None, 900.0, "expire in 0 seconds"),
        (0.5, None, "at least 1, got 0.5"),
        (0, None, "at least 1, got 0"),
        ("60", None, "a number of seconds, at least 1, got '60'"),
    ],
)
def test_unusable_expiry_request_raises_with_reason(asked, expires_at, said):
    with pytest.raises(Unusable, match=said):
        lifetime(asked, WEEK_S, Credentials("a", "s", "", expires_at), 1000.0)


def test_session_token_with_unknown_expiry_adds_a_note():
    assert "session token" in lifetime(None, WEEK_S, Credentials("a", "s", "t"), 0.0).note
    assert lifetime(None, WEEK_S, LASTING, 0.0).note == ""
