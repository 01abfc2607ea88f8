"""No secret in options is shown, or pickled into anything but a worker."""

from __future__ import annotations

import copy
import inspect
import pickle
from dataclasses import dataclass, field, fields
from multiprocessing.reduction import ForkingPickler
from pathlib import Path

import numpy as np
import pytest

import penstock as ps
from penstock.errors import ConfigError, Unusable
from penstock.options import PUBLIC, RetryOptions, StoreOptions, TransportOptions
from penstock.options.private import HiddenMapping
from penstock.stores.s3.options import S3Options
from tests.options.kinds import KINDS


@pytest.mark.parametrize("kind", KINDS)
def test_signature_shows_each_option_and_no_private_parameter(kind):
    names = {each.name for each in fields(kind)}
    assert inspect.signature(kind).parameters.keys() == names
    assert inspect.signature(kind.__init__).parameters.keys() == {"self", *names}
    assert all(f"\n    {name}: " in inspect.getdoc(kind) for name in names)


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
def test_third_party_options_hide_secrets_by_default(secret):
    assert "xyzzy" not in f"{secret!r} {secret} {[secret]}"
    for protocol in range(pickle.HIGHEST_PROTOCOL + 1):
        with pytest.raises(Unusable, match=r"with a secret in it \((password|keys)\) is pickled for worker processes"):
            pickle.dumps([secret], protocol)
    assert pickle.loads(ForkingPickler.dumps(secret)) == secret
    assert copy.deepcopy(secret) is secret


def test_public_or_nonsecret_third_party_options_are_shown_and_pickled():
    plain = Slotted(project="climate", timeout_s=2.5, retry=RetryOptions(patience_s=3))
    assert "project='climate', timeout_s=2.5)" in repr(plain)
    assert pickle.loads(pickle.dumps(plain)) == plain


def test_every_field_of_options_that_is_not_public_is_a_secret():
    store = S3Options(endpoint="http://e", region="r", profile="p", addressing="path")
    assert pickle.loads(pickle.dumps(store)) == store
    named = "endpoint='http://e', region='r', profile='p', credentials=None, credentials_process=None"
    assert f"{named}, anonymous=False, requester_pays=False, addressing='path', " in repr(store)
    assert "ca_file='ca'" in repr(TransportOptions(ca_file="ca", user_agent_extra="job"))


@pytest.mark.parametrize(
    ("make", "words"),
    [
        (lambda: ps.ReadOptions(ahead_bytes="10GB"), r"ReadOptions.ahead_bytes must be a whole number, got a str"),
        (lambda: ps.ReadOptions(ahead_items=1.5), r"ReadOptions.ahead_items must be a whole number, got a float"),
        (lambda: ps.RetryOptions(attempts=True), r"RetryOptions.attempts must be a whole number, got a bool"),
        (lambda: ps.RetryOptions(patience_s="2m"), r"RetryOptions.patience_s must be a number, got a str"),
        (lambda: ps.TransportOptions(verify="no"), r"TransportOptions.verify must be True or False, got a str"),
        (lambda: ps.CacheOptions(path=5), r"CacheOptions.path must be text, got an int"),
        (lambda: ps.S3Options(secret_key=12345), r"S3Options.secret_key must be text, got an int"),
    ],
)
def test_values_of_another_kind_are_refused_and_not_shown(make, words):
    with pytest.raises(ConfigError, match=words) as failure:
        make()
    assert "12345" not in str(failure.value)


def test_numpy_numbers_and_paths_are_accepted_as_option_values():
    assert ps.ReadOptions(ahead_items=np.int64(5)).ahead_items == 5
    assert ps.RetryOptions(patience_s=np.float32(5), base_s=1).base_s == 1
    assert ps.TransportOptions(ca_file=Path("/etc/ca.pem")).verify


# -- A mapping that is an option cannot change, can be compared, and shows names alone --


def test_hidden_mapping_is_an_immutable_copy():
    items = {"a": "hush", "b": ["list"]}
    hidden = HiddenMapping(items)
    items["a"] = "other"
    assert dict(hidden) == {"a": "hush", "b": ["list"]}
    assert len(hidden) == 2
    with pytest.raises(TypeError):
        hidden["a"] = "other"


def test_equal_hidden_mappings_have_equal_hashes():
    one, two = HiddenMapping({"a": {}, "b": 1}), HiddenMapping({"b": 1, "a": {}})
    assert one == two == {"a": {}, "b": 1}
    assert hash(one) == hash(two)
    assert one != HiddenMapping({"a": {}, "b": 2})


def test_its_repr_shows_names_alone():
    assert repr(HiddenMapping({"a": "hush", "b": "hush"})) == "<a, b>"
    assert repr(HiddenMapping({})) == "<nothing>"


def test_hidden_mapping_survives_copy_and_pickle():
    hidden = HiddenMapping({"a": "x"})
    assert pickle.loads(pickle.dumps(hidden)) == copy.deepcopy(hidden) == hidden


# -- An option that a class does not have: the error says which one was meant, or where it is to be written --


@pytest.mark.parametrize(
    ("make", "said"),
    [
        (lambda: ps.S3Options(attempts=3), r"write S3Options\(retry=RetryOptions\(attempts=…\)\)"),
        (lambda: ps.StoreOptions(size_bytes=3), r"write StoreOptions\(cache=CacheOptions\(size_bytes=…\)\)"),
        (lambda: ps.ReadOptions(attempts=3), r"write RetryOptions\(attempts=…\)"),
        (lambda: ps.RetryOptions(attemps=3), "did you mean 'attempts'"),
        (lambda: ps.CacheOptions(max_bytes=3), r"here it is 'size_bytes', write CacheOptions\(size_bytes=…\)"),
        (lambda: ps.CacheOptions(xyz=3), "only path, size_bytes"),
        (lambda: ps.S3Options(account_key="x"), r"write AzureOptions\(account_key=…\)"),
        (lambda: ps.GCSOptions(requester_pays=True), "here it is 'user_project'"),
    ],
    ids=[
        "of a part",
        "of a part that is left out",
        "of another part",
        "misspelt",
        "another word",
        "of none",
        "of another store",
        "another store's word",
    ],
)
def test_misplaced_or_misspelled_option_error_suggests_correct_usage(make, said):
    with pytest.raises(ConfigError, match=said):
        make()


@pytest.mark.parametrize("kind", [ps.CacheOptions, ps.NodeOptions, ps.S3Options, ps.TransportOptions])
def test_positional_option_value_raises_and_suggests_a_keyword(kind):
    with pytest.raises(
        ConfigError, match=rf"{kind.__name__} accepts options only by name: write {kind.__name__}\(\w+=…\)"
    ):
        kind("folder")
