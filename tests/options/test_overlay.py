"""What was given counts before a profile's, part by part, whatever its value."""

import copy
import pickle
from dataclasses import fields, replace
from multiprocessing.reduction import ForkingPickler

import pytest
from hypothesis import given as drawn
from hypothesis import strategies as st

import penstock as ps
from penstock.errors import ConfigError
from penstock.options.private import given
from penstock.options.typed import overlaid
from penstock.source import Source
from penstock.stores.profiles.lookup import load
from penstock.stores.urls import parse
from tests.options.kinds import KINDS


def some(kind, **values):
    """Draw options of a class, each given or not."""
    return st.fixed_dictionaries({}, optional=values).map(lambda given_ones: kind(**given_ones))


RETRIES = some(ps.RetryOptions, attempts=st.sampled_from([1, 7, 1000]), patience_s=st.sampled_from([3, 120.0]))
OPTIONS = some(
    ps.S3Options,
    endpoint=st.sampled_from(["http://a", "http://b"]),
    region=st.sampled_from([None, "eu"]),
    retry=RETRIES,
    anonymous=st.booleans(),
    addressing=st.sampled_from(["auto", "path"]),
)


@drawn(OPTIONS, OPTIONS)
def test_each_option_is_the_given_one_if_one_was_given(under, over):
    found = overlaid(under, over)
    for name in ("endpoint", "region", "anonymous", "addressing"):
        assert getattr(found, name) == getattr(over if name in given(over) else under, name)
    for name in ("attempts", "patience_s"):
        assert getattr(found.retry, name) == getattr(over.retry if name in given(over.retry) else under.retry, name)
    assert {*given(found)} == {*given(under), *given(over)}


@drawn(OPTIONS)
def test_nothing_given_changes_nothing(under):
    assert overlaid(under, ps.S3Options()) == under == overlaid(ps.S3Options(), under)


@drawn(OPTIONS)
def test_given_options_survive_pickle_copy_and_replace(made):
    for again in (
        pickle.loads(pickle.dumps(made)),
        pickle.loads(ForkingPickler.dumps(made)),
        copy.copy(made),
        copy.deepcopy(made),
        replace(made),
    ):
        assert again == made
        assert given(again) == given(made)
        assert given(again.retry) == given(made.retry)
    assert {*given(replace(made, fips=True))} == {*given(made), "fips"}


def test_options_that_were_given_as_their_defaults_equal_the_defaults():
    one, other = ps.TransportOptions(verify=True), ps.TransportOptions()
    assert one == other
    assert hash(one) == hash(other)
    assert repr(one) == repr(other)
    assert (given(one), given(other)) == ({"verify": True}, {})


def test_none_is_not_given_where_it_is_the_default():
    assert given(ps.S3Options(endpoint=None, region="eu")) == {"region": "eu"}


# A value beside the default, that no other option contradicts.
OTHER = {bool: lambda value: not value, int: lambda value: value * 2, float: lambda value: value * 2}
PAIRS = [
    (kind, each.name, OTHER[type(each.default)](each.default))
    for kind in KINDS
    for each in fields(kind)
    if type(each.default) in OTHER and each.name != "part_bytes"
] + [(ps.S3Options, "addressing", "path"), (ps.OSSOptions, "addressing", "path"), (ps.CacheOptions, "mode", "ttl")]


@pytest.mark.parametrize(("kind", "name", "other"), PAIRS)
def test_a_default_that_was_given_counts_in_every_class(kind, name, other):
    default = next(each.default for each in fields(kind) if each.name == name)
    assert getattr(overlaid(kind(**{name: other}), kind(**{name: default})), name) == default
    assert getattr(overlaid(kind(**{name: other}), kind()), name) == other
    if not issubclass(kind, ps.StoreOptions):
        part = next(each.name for each in fields(ps.StoreOptions) if kind.__name__ in str(each.type))
        under, over = (ps.S3Options(**{part: kind(**{name: value})}) for value in (other, default))
        assert getattr(getattr(overlaid(under, over), part), name) == default


def test_explicit_tls_verify_overrides_profile_and_survives_pickle(tmp_path, monkeypatch):
    monkeypatch.setenv("PENSTOCK_CONFIG", str(tmp_path / "mine.toml"))
    (tmp_path / "mine.toml").write_text(
        "[profiles.p]\nurl='s3://bucket/'\ntransport = { verify = false, idle_s = 9 }\n"
    )
    over = ps.StoreOptions(transport=ps.TransportOptions(verify=True))
    found = Source(parse("penstock://p/x"), over).options.transport
    assert (found.verify, found.idle_s) == (True, 9)
    sent = pickle.loads(pickle.dumps(Source(parse("penstock://p/x"), over)))
    assert sent.options.transport.verify
    assert not load("p").options.transport.verify


def test_a_cache_of_the_program_counts_before_the_environment(tmp_path, monkeypatch):
    monkeypatch.setenv("PENSTOCK_CACHE_MODE", "ttl")
    monkeypatch.setenv("PENSTOCK_CACHE_TTL", "7")
    cache = ps.CacheOptions(path=str(tmp_path), mode="immutable")
    found = Source(parse("s3://bucket/x"), ps.StoreOptions(cache=cache)).options.cache
    assert (found.mode, found.ttl_s) == ("immutable", 7)


def test_a_contradiction_is_refused():
    with pytest.raises(ConfigError, match="contradict"):
        overlaid(ps.S3Options(access_key="a", secret_key="b"), ps.S3Options(anonymous=True))


def test_a_cache_is_given_over_none_and_over_another():
    none, given_one = ps.S3Options(), ps.S3Options(cache=ps.CacheOptions(mode="ttl"))
    assert overlaid(none, given_one) == given_one == overlaid(given_one, none)
    under = ps.S3Options(cache=ps.CacheOptions(path="/x"))
    assert overlaid(under, given_one).cache == ps.CacheOptions(path="/x", mode="ttl")
