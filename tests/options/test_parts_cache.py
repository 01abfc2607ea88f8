"""Options of the cache: what cannot work is refused at once, and they travel to workers."""

import pickle

import pytest

import penstock as ps
from penstock.errors import ConfigError


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
