"""A store's cache is that of its options; else that of the environment; else there is none."""

import pytest

import penstock as ps
from penstock.errors import ConfigError
from penstock.options.typed import cache_folder, cache_options, with_cache

NEAR = {"PENSTOCK_CACHE": "/near"}


def test_cache_is_disabled_without_options_or_variable():
    assert cache_options(None, {}) is None
    assert cache_options(None, {"PENSTOCK_CACHE_SIZE": "1 GiB"}) is None


@pytest.mark.parametrize("word", ["", "0", "off", "No", "FALSE"])
def test_false_cache_variable_creates_no_cache_and_keeps_explicit_cache(word):
    assert cache_options(None, {"PENSTOCK_CACHE": word}) is None
    assert cache_options(ps.CacheOptions(path="/own"), {"PENSTOCK_CACHE": word}) == ps.CacheOptions(path="/own")


def test_a_variable_names_the_directory_or_asks_for_the_default():
    assert cache_options(None, NEAR) == ps.CacheOptions(path="/near")
    assert cache_options(None, {"PENSTOCK_CACHE": "1", "HOME": "/h"}) == ps.CacheOptions(path="/h/.cache/penstock")
    assert cache_options(ps.CacheOptions(), {"XDG_CACHE_HOME": "/c"}) == ps.CacheOptions(path="/c/penstock")
    assert cache_options(ps.CacheOptions(), NEAR) == ps.CacheOptions(path="/near")
    assert cache_folder(NEAR) == "/near"


def test_a_store_whose_mode_is_off_has_no_cache_under_the_variable():
    off = ps.CacheOptions(mode="off")
    assert cache_options(off, NEAR) is None
    assert cache_options(off, NEAR | {"PENSTOCK_CACHE_MODE": "ttl"}) is None
    assert with_cache(ps.S3Options(cache=off), NEAR).cache is None
    assert with_cache(ps.S3Options(), NEAR).cache == ps.CacheOptions(path="/near")


def test_options_count_before_variables_and_variables_before_defaults():
    environ = {
        **NEAR,
        "PENSTOCK_CACHE_SIZE": "200GiB",
        "PENSTOCK_CACHE_MODE": "ttl",
        "PENSTOCK_CACHE_TTL": "7.5",
        "PENSTOCK_CACHE_MEMORY": "64 MiB",
    }
    made = cache_options(None, environ)
    wanted = ps.CacheOptions(path="/near", size_bytes=200 << 30, mode="ttl", ttl_s=7.5, memory_bytes=64 << 20)
    assert made == wanted
    own = ps.CacheOptions(path="/own", size_bytes=1 << 30)
    assert cache_options(own, environ) == ps.CacheOptions(
        path="/own", size_bytes=1 << 30, mode="ttl", ttl_s=7.5, memory_bytes=64 << 20
    )


def test_a_relative_path_is_below_the_working_directory(monkeypatch, tmp_path):
    monkeypatch.chdir(tmp_path)
    assert cache_options(ps.CacheOptions(path="near"), {}) == ps.CacheOptions(path=str(tmp_path / "near"))


def test_a_tilde_is_the_home_directory_and_without_one_a_directory_has_to_be_named(monkeypatch, tmp_path):
    monkeypatch.setenv("HOME", str(tmp_path))
    assert cache_options(ps.CacheOptions(path="~/near"), {}) == ps.CacheOptions(path=str(tmp_path / "near"))
    monkeypatch.setattr("os.path.expanduser", lambda path: path)  # a user whom the machine does not know
    with pytest.raises(ConfigError, match=r"no home directory.*PENSTOCK_CACHE"):
        cache_options(None, {"PENSTOCK_CACHE": "1"})


@pytest.mark.parametrize(
    ("name", "text", "says"),
    [
        ("PENSTOCK_CACHE_SIZE", "much", "PENSTOCK_CACHE_SIZE must be a whole number, got 'much'"),
        (
            "PENSTOCK_CACHE_MODE",
            "lru",
            "PENSTOCK_CACHE_MODE must be 'immutable' or 'ttl' or 'revalidate' or 'off', got 'lru'",
        ),
        ("PENSTOCK_CACHE_TTL", "long", "PENSTOCK_CACHE_TTL must be a number"),
    ],
)
def test_a_variable_that_cannot_be_meant_is_refused_by_its_name(name, text, says):
    with pytest.raises(ConfigError) as refused:
        cache_options(None, NEAR | {name: text})
    assert says in str(refused.value)


def test_a_store_s_options_are_theirs_where_nothing_changes():
    plain, near = ps.S3Options(region="eu"), ps.S3Options(region="eu", cache=ps.CacheOptions(path="/near"))
    assert with_cache(plain, {}) is plain
    assert with_cache(near, {}) is near
    assert with_cache(plain, NEAR) == near
