"""No secret in options is shown, or pickled into anything but a worker."""

import copy
import pickle
from dataclasses import dataclass, field
from multiprocessing.reduction import ForkingPickler

import pytest

from penstock.errors import Unusable
from penstock.options import PUBLIC, RetryOptions, S3Options, StoreOptions, TransportOptions


def test_nothing_shows_a_secret():
    store = S3Options(
        access_key="xyzzy1",
        secret_key="xyzzy2",
        session_token="xyzzy3",
        transport=TransportOptions(proxy="http://u:xyzzy4@p"),
    )
    assert "xyzzy" not in repr(store)
    assert pickle.loads(ForkingPickler.dumps(store)) == store, "they travel to workers, for you passed them"


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
    named = "endpoint='http://e', region='r', profile='p', credentials=None, credentials_process=None"
    assert f"{named}, anonymous=False, requester_pays=False, addressing='path', " in repr(store)
    assert "ca_file='ca'" in repr(TransportOptions(ca_file="ca", user_agent_extra="job"))
