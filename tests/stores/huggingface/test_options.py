"""Options of the hub: tokens that can be sent, and patience that outlasts a window of its rate limits."""

from __future__ import annotations

import pytest

import penstock as ps
from penstock.errors import ConfigError


@pytest.mark.parametrize("token", ["", "ü", "a\nb"])
def test_token_that_no_header_can_hold_is_refused(token):
    with pytest.raises(ConfigError, match="printable ASCII"):
        ps.HFOptions(token=token)


def test_token_and_anonymous_contradict_one_another():
    with pytest.raises(ConfigError, match="contradict"):
        ps.HFOptions(token="hf_x", anonymous=True)


def test_patience_is_longer_than_a_window_unless_it_is_given():
    assert ps.HFOptions().retry.patience_s > 300
    assert ps.HFOptions(retry=ps.RetryOptions(patience_s=5)).retry.patience_s == 5
