"""What was given counts before a profile's, part by part."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

import penstock as ps
from penstock.config.profiles.overlay import changed, overlaid
from penstock.errors import ConfigError

RETRIES = st.builds(
    ps.RetryOptions, attempts=st.sampled_from([1, 7, 1000]), tokens=st.sampled_from([3, 500]), cap_s=st.just(10.0)
)
OPTIONS = st.builds(
    ps.S3Options,
    endpoint=st.sampled_from([None, "http://a", "http://b"]),
    region=st.sampled_from([None, "eu"]),
    retry=RETRIES,
    anonymous=st.booleans(),
)


@given(OPTIONS, OPTIONS)
def test_each_option_is_the_given_one_unless_that_is_the_default(under, given_ones):
    found, default = overlaid(under, given_ones), ps.S3Options()
    for name in ("endpoint", "region", "anonymous"):
        mine = getattr(given_ones, name)
        assert getattr(found, name) == (getattr(under, name) if mine == getattr(default, name) else mine)
    for name in ("attempts", "tokens"):
        mine = getattr(given_ones.retry, name)
        wanted = getattr(under.retry, name) if mine == getattr(default.retry, name) else mine
        assert getattr(found.retry, name) == wanted


@given(OPTIONS)
def test_nothing_given_changes_nothing(under):
    assert overlaid(under, ps.S3Options()) == under == overlaid(ps.S3Options(), under)


def test_what_was_changed_is_told_by_name():
    assert changed(ps.S3Options(region="eu")) == {"region": "eu"}
    assert changed(ps.S3Options()) == {}


def test_a_contradiction_is_refused():
    with pytest.raises(ConfigError, match="contradict"):
        overlaid(ps.S3Options(access_key="a", secret_key="b"), ps.S3Options(anonymous=True))


def test_a_cache_is_given_over_none_and_over_another():
    none, given_one = ps.S3Options(), ps.S3Options(cache=ps.CacheOptions(mode="ttl"))
    assert overlaid(none, given_one) == given_one == overlaid(given_one, none)
    under = ps.S3Options(cache=ps.CacheOptions(path="/x"))
    assert overlaid(under, given_one).cache == ps.CacheOptions(path="/x", mode="ttl")
