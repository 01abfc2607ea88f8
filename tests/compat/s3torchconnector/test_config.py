from __future__ import annotations

import warnings

import pytest

from penstock.compat import arguments
from penstock.compat.s3torchconnector import S3ClientConfig, S3Exception
from penstock.compat.s3torchconnector.config import s3_url, store_options
from penstock.errors import ConfigError, InvalidURL, PenstockError, Unusable
from penstock.stores.s3.options import S3Options

MIB = 1 << 20


def test_defaults_are_penstocks_own():
    assert store_options("eu-west-1", "http://host:9000") == S3Options(region="eu-west-1", endpoint="http://host:9000")
    assert store_options(None) == S3Options()


def test_every_field_that_is_honoured_is_an_option():
    config = S3ClientConfig(part_size=32 * MIB, unsigned=True, force_path_style=True, max_attempts=3, profile=None)
    options = store_options("r", None, config)
    assert options.write.part_bytes == options.read.split_bytes == 32 * MIB
    assert options.write.buffer_bytes >= 2 * 32 * MIB
    assert options.anonymous
    assert options.addressing == "path"
    assert options.retry.attempts == 3
    assert store_options("r", None, S3ClientConfig(profile="other")).profile == "other"
    assert store_options("r", None, S3ClientConfig(requester_pays=True)).requester_pays
    assert not options.requester_pays


def test_a_field_that_is_not_honoured_is_named_in_one_warning(monkeypatch):
    monkeypatch.setattr(arguments, "_named", set())
    with pytest.warns(UserWarning, match=r"S3ClientConfig\.throughput_target_gbps is not honoured: .*adapts"):
        store_options("r", None, S3ClientConfig(throughput_target_gbps=100.0))
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        store_options("r", None, S3ClientConfig(throughput_target_gbps=100.0))


@pytest.mark.parametrize("given", [{"part_size": MIB}, {"part_size": 6 << 30}, {"max_attempts": 0}])
def test_values_that_cannot_work_are_refused(given):
    with pytest.raises(ConfigError) as caught:
        store_options("r", None, S3ClientConfig(**given))
    assert isinstance(caught.value, S3Exception)


def test_other_objects_are_refused_in_words():
    with pytest.raises(ConfigError, match="S3ClientConfig of this package"):
        store_options("r", None, {"part_size": 8 * MIB})
    with pytest.raises(Unusable, match="part_size"):
        store_options("r", None, S3ClientConfig(part_size="8MB"))


def test_s3_exception_is_an_alias_of_penstock_error():
    assert S3Exception is PenstockError
    assert not issubclass(S3Exception, (OSError, ValueError))


@pytest.mark.parametrize("url", ["", "bucket/key", "s3:/bucket", "s3://", "s3:///key", "gs://bucket/key", "/tmp/x"])  # noqa: S108  no file
def test_urls_that_are_not_of_s3_are_value_errors(url):
    with pytest.raises(ValueError, match=r"s3://|bucket") as caught:
        s3_url(url)
    assert isinstance(caught.value, InvalidURL)
