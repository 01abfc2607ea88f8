"""Quantities that could never work are refused when options are made."""

import pickle
from dataclasses import fields
from inspect import cleandoc

import pytest

import penstock as ps
from penstock.errors import ConfigError
from penstock.options import CacheOptions, ReadOptions, RetryOptions, StoreOptions, TransportOptions, WriteOptions
from penstock.stores.gcs.options import GCSOptions
from penstock.stores.oss.options import OSSOptions
from penstock.stores.s3.options import S3Options
from tests.options.kinds import KINDS


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
    with pytest.raises(ConfigError, match=rf"{kind.__name__}\.{name} must be (positive|a whole number, got a float)"):
        kind(**{name: value})


@pytest.mark.parametrize("words", ["job\r\nx-amz-acl: public-read", "job\0", "jöb"])
def test_invalid_user_agent_extra_raises_config_error(words):
    with pytest.raises(ConfigError, match="printable ASCII"):
        TransportOptions(user_agent_extra=words)


def test_a_buffer_holds_two_parts():
    with pytest.raises(ConfigError, match="part_bytes must be positive"):
        WriteOptions(part_bytes=0)
    with pytest.raises(ConfigError, match="two parts"):
        WriteOptions(part_bytes=5 << 20, buffer_bytes=(10 << 20) - 1)
    assert WriteOptions(part_bytes=5 << 20, buffer_bytes=10 << 20)


# -- Options of the cache: what cannot work is refused at once, and they travel to workers --


@pytest.mark.parametrize(
    "options",
    [
        {"size_bytes": 1},
        {"memory_bytes": -1},
        {"block_bytes": 1},
        {"mode": "never"},
        {"ttl_s": 0},
        {"ttl_s": float("nan")},
    ],
)
def test_values_that_cannot_work_are_refused(options):
    with pytest.raises(ConfigError, match=next(iter(options))):
        ps.CacheOptions(**options)


def test_options_with_a_cache_are_pickled_and_compared():
    options = ps.S3Options(cache=ps.CacheOptions(path="/x", ttl_s=float("inf"), mode="ttl"))
    assert pickle.loads(pickle.dumps(options)) == options
    assert hash(options) == hash(pickle.loads(pickle.dumps(options)))
    assert ps.S3Options().cache is None


# -- Options name one source of credentials, and one that can be one --


def function():
    return ps.credentials.Credentials("AKIA", "hush")


@pytest.mark.parametrize(
    ("options", "says"),
    [
        ({"anonymous": True, "credentials": function}, "anonymous=True and credentials contradict one another"),
        ({"credentials": function, "credentials_process": "x"}, "credentials and credentials_process contradict"),
        ({"access_key": "a", "secret_key": "b", "credentials_process": "x"}, "access_key and credentials_process"),
        ({"credentials": "AKIA"}, "credentials must be a function that returns credentials, got a str"),
        ({"credentials_process": ""}, "credentials_process must be a command"),
        ({"credentials_process": ()}, "a tuple of a program and its arguments"),
        ({"credentials_process": ("x", 3)}, "a tuple of a program and its arguments"),
        ({"credentials_process": ["x"]}, "a tuple of a program and its arguments"),
    ],
)
def test_two_sources_or_none_that_can_be_one_are_refused(options, says):
    with pytest.raises(ConfigError) as refused:
        ps.S3Options(**options)
    assert says in str(refused.value)


def test_credential_source_is_accepted_beside_an_aws_profile():
    assert ps.S3Options(credentials=function, profile="minio").credentials is function
    assert ps.S3Options(anonymous=True, profile="minio").anonymous
    assert "hush" not in repr(ps.S3Options(credentials_process=("x", "--password=hush")))


class Unhashable:
    """A source of credentials that is compared by what it holds, as a dataclass is."""

    __hash__ = None

    def __eq__(self, other):
        return isinstance(other, Unhashable)

    def __call__(self):
        return ps.credentials.Credentials("AKIA", "hush")


@pytest.mark.parametrize(
    "kind",
    [
        lambda source: ps.S3Options(credentials=source),
        lambda source: ps.GCSOptions(credentials=source),
        lambda source: ps.OSSOptions(credentials=source),
        lambda source: ps.AzureOptions(credential=source),
    ],
    ids=["s3", "gcs", "oss", "azure"],
)
def test_a_source_that_cannot_be_hashed_is_one(kind):
    assert hash(kind(Unhashable())) == hash(kind(Unhashable()))
    assert kind(Unhashable()) != kind(function)


# -- Options have defaults and documentation, and an unknown one is refused with the name that was meant --


@pytest.mark.parametrize("kind", KINDS)
def test_every_field_has_a_default_and_is_documented(kind):
    assert kind() == kind()
    assert hash(kind()) == hash(pickle.loads(pickle.dumps(kind())))
    for each in fields(kind):
        assert f"\n    {each.name}: " in cleandoc(kind.__doc__), each.name  # Python 3.13 dedents docstrings


def test_neutral_options_refuse_an_option_of_s3_and_name_its_class():
    with pytest.raises(ConfigError, match=r"StoreOptions has no option 'profile': it is an option of S3Options, wr"):
        StoreOptions(profile="minio")
    with pytest.raises(ConfigError, match=r"has no option 'endpoint': it is an option of .*GCSOptions.* S3Options"):
        StoreOptions(endpoint="http://localhost")
    with pytest.raises(ConfigError, match="S3Options has no option 'acess_key': did you mean 'access_key'"):
        S3Options(acess_key="a")
    with pytest.raises(ConfigError, match="only transport, retry, read, write"):
        StoreOptions(bucket="a")


@pytest.mark.parametrize("part", ["transport", "retry", "read", "write", "node"])
@pytest.mark.parametrize("given", [{"attempts": 3}, None, CacheOptions(path="x"), "3"], ids=str)
def test_a_part_of_another_class_is_refused_before_it_is_used(part, given):
    for kind in (StoreOptions, S3Options):
        with pytest.raises(ConfigError, match=rf"{kind.__name__}\.{part} must be {part.title()}Options\(…\), got "):
            kind(**{part: given})


def test_an_option_that_is_called_otherwise_here_is_named():
    with pytest.raises(ConfigError, match=r"'requester_pays': here it is 'user_project', write GCSOptions\(us"):
        GCSOptions(requester_pays=True)
    for kind in (S3Options, OSSOptions):
        with pytest.raises(ConfigError, match=rf"'user_project': here it is 'requester_pays', write {kind.__name__}\("):
            kind(user_project="mine")


@pytest.mark.parametrize("cache", ["/near", True, {"path": "/near"}])
def test_cache_option_of_wrong_type_raises_with_correct_usage(cache):
    with pytest.raises(ConfigError, match=r"S3Options\.cache must be CacheOptions\(path=…\), got a "):
        S3Options(cache=cache)
