"""Options refuse what could never work, when they are made, and show no secret."""

import pickle
from dataclasses import fields
from multiprocessing.reduction import ForkingPickler

import pytest

from penstock import options
from penstock.errors import ConfigError
from penstock.options import ReadOptions, RetryOptions, StoreOptions, TransportOptions, WriteOptions

KINDS = [getattr(options, name) for name in options.__all__]


@pytest.mark.parametrize("kind", KINDS)
def test_every_field_has_a_default_and_is_documented(kind):
    assert kind() == kind()
    assert hash(kind()) == hash(pickle.loads(pickle.dumps(kind())))
    for field in fields(kind):
        assert f"        {field.name}: " in kind.__doc__, field.name


@pytest.mark.parametrize(
    ("kind", "name"),
    [
        (kind, field.name)
        for kind in (TransportOptions, RetryOptions, ReadOptions)
        for field in fields(kind)
        if field.type in ("int", "float")
    ],
)
@pytest.mark.parametrize("value", [0, -1, float("nan")])
def test_quantities_are_positive(kind, name, value):
    with pytest.raises(ConfigError, match=f"{kind.__name__}.{name} must be positive"):
        kind(**{name: value})


@pytest.mark.parametrize("words", ["job\r\nx-amz-acl: public-read", "job\0", "jöb"])
def test_what_follows_in_the_user_agent_is_no_other_header(words):
    with pytest.raises(ConfigError, match="printable ASCII"):
        TransportOptions(user_agent_extra=words)


def test_parts_are_as_s3_wants_them():
    with pytest.raises(ConfigError, match="S3's least part"):
        WriteOptions(part_bytes=(5 << 20) - 1)
    with pytest.raises(ConfigError, match="two parts"):
        WriteOptions(part_bytes=5 << 20, buffer_bytes=(10 << 20) - 1)
    assert WriteOptions(part_bytes=5 << 20, buffer_bytes=10 << 20)


@pytest.mark.parametrize(
    ("fault", "match"),
    [
        ({"access_key": "id"}, "go together"),
        ({"secret_key": "secret"}, "go together"),
        ({"session_token": "token"}, "needs access_key"),
        ({"anonymous": True, "access_key": "id", "secret_key": "secret"}, "contradict"),
        ({"addressing": "sideways"}, "sideways"),
    ],
)
def test_halves_and_contradictions_are_refused(fault, match):
    with pytest.raises(ConfigError, match=match):
        StoreOptions(**fault)


def test_nothing_shows_a_secret():
    store = StoreOptions(
        access_key="xyzzy1",
        secret_key="xyzzy2",
        session_token="xyzzy3",
        transport=TransportOptions(proxy="http://u:xyzzy4@p"),
    )
    assert "xyzzy" not in repr(store)
    assert pickle.loads(ForkingPickler.dumps(store)) == store, "they travel to workers, for you passed them"
