"""Options have defaults and documentation, and an unknown one is refused with the name that was meant."""

import pickle
from dataclasses import fields
from inspect import cleandoc

import pytest

from penstock.errors import ConfigError
from penstock.options import CacheOptions, StoreOptions
from penstock.stores.gcs.options import GCSOptions
from penstock.stores.oss.options import OSSOptions
from penstock.stores.s3.options import S3Options
from tests.options.kinds import KINDS


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
