"""Options refuse what could never work, when they are made, and show no secret."""

import copy
import pickle
from dataclasses import dataclass, field, fields
from multiprocessing.reduction import ForkingPickler

import pytest

from penstock import options
from penstock.errors import ConfigError, Unusable
from penstock.options import PUBLIC, ReadOptions, RetryOptions, S3Options, StoreOptions, TransportOptions, WriteOptions

KINDS = [getattr(options, name) for name in options.__all__]


@pytest.mark.parametrize("kind", KINDS)
def test_every_field_has_a_default_and_is_documented(kind):
    assert kind() == kind()
    assert hash(kind()) == hash(pickle.loads(pickle.dumps(kind())))
    for each in fields(kind):
        assert f"        {each.name}: " in kind.__doc__, each.name


@pytest.mark.parametrize(
    ("kind", "name"),
    [
        (kind, each.name)
        for kind in (TransportOptions, RetryOptions, ReadOptions)
        for each in fields(kind)
        if each.type in ("int", "float")
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


def test_a_buffer_holds_two_parts():
    with pytest.raises(ConfigError, match="part_bytes must be positive"):
        WriteOptions(part_bytes=0)
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
        S3Options(**fault)


def test_nothing_shows_a_secret():
    store = S3Options(
        access_key="xyzzy1",
        secret_key="xyzzy2",
        session_token="xyzzy3",
        transport=TransportOptions(proxy="http://u:xyzzy4@p"),
    )
    assert "xyzzy" not in repr(store)
    assert pickle.loads(ForkingPickler.dumps(store)) == store, "they travel to workers, for you passed them"


def test_neutral_options_refuse_an_option_of_s3_and_name_its_class():
    with pytest.raises(ConfigError, match=r"StoreOptions has no option 'endpoint': it is S3's, write S3Options\(endp"):
        StoreOptions(endpoint="http://localhost")
    with pytest.raises(ConfigError, match="S3Options has no option 'acess_key': did you mean 'access_key'"):
        S3Options(acess_key="a")
    with pytest.raises(ConfigError, match="only transport, retry, read, write"):
        StoreOptions(bucket="a")


@dataclass(frozen=True, slots=True, kw_only=True)
class Slotted(StoreOptions):
    password: str | None = None
    keys: tuple[str, ...] = ()
    project: str = field(default="", metadata=PUBLIC)
    timeout_s: float = 1.0


@dataclass(frozen=True, kw_only=True)
class Unslotted(S3Options):
    password: bytes = b""


@pytest.mark.parametrize(
    "secret",
    [Slotted(password="xyzzy"), Slotted(keys=("xyzzy",)), Unslotted(password=b"xyzzy")],
    ids=["text", "several", "bytes, without slots"],
)
def test_a_third_partys_options_keep_their_secrets_without_a_word_of_its_own(secret):
    assert "xyzzy" not in f"{secret!r} {secret} {[secret]}"
    for protocol in range(pickle.HIGHEST_PROTOCOL + 1):
        with pytest.raises(Unusable, match=r"with a secret in it \((password|keys)\) is pickled for worker processes"):
            pickle.dumps([secret], protocol)
    assert pickle.loads(ForkingPickler.dumps(secret)) == secret
    assert copy.deepcopy(secret) is secret


def test_what_a_third_party_declares_public_or_cannot_be_a_secret_is_shown_and_pickled():
    plain = Slotted(project="climate", timeout_s=2.5, retry=RetryOptions(patience_s=3))
    assert "project='climate', timeout_s=2.5)" in repr(plain)
    assert pickle.loads(pickle.dumps(plain)) == plain


def test_every_field_of_options_that_is_not_public_is_a_secret():
    store = S3Options(endpoint="http://e", region="r", profile="p", addressing="path")
    assert pickle.loads(pickle.dumps(store)) == store
    assert repr(store).endswith("endpoint='http://e', region='r', profile='p', anonymous=False, addressing='path')")
    assert "ca_file='ca'" in repr(TransportOptions(ca_file="ca", user_agent_extra="job"))
