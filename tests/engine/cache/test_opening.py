"""The cache is found by options, by its directory, by the environment, and else where caches belong."""

import pytest

import penstock as ps
from penstock.engine.cache.entry import About
from penstock.errors import ConfigError


def test_a_cache_is_found_by_its_directory_and_by_options(tmp_path):
    by_path, by_options = (
        ps.cache.open_cache(tmp_path / "near"),
        ps.cache.open_cache(ps.CacheOptions(path=str(tmp_path / "near"))),
    )
    assert by_path._tiers is by_options._tiers is ps.cache.open_cache(str(tmp_path / "near"))._tiers
    assert isinstance(by_path, ps.cache.Cache)
    assert not [*tmp_path.iterdir()]
    by_path._tiers.store(b"n" * 16, b"data", About("s3://b/k", "e", 0, 4))
    assert [each.url for each in ps.cache.open_cache(tmp_path / "near").entries()] == ["s3://b/k"]


def test_a_cache_is_found_by_the_environment(tmp_path, monkeypatch):
    monkeypatch.setenv("PENSTOCK_CACHE", str(tmp_path / "near"))
    monkeypatch.setenv("PENSTOCK_CACHE_SIZE", "1 GiB")
    assert ps.cache.open_cache().path.startswith(str(tmp_path / "near"))
    assert ps.cache.open_cache().usage().size_bytes == 1 << 30
    assert ps.cache.open_cache(tmp_path / "own").path.startswith(str(tmp_path / "own"))
    monkeypatch.setenv("PENSTOCK_CACHE", "0")
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    assert ps.cache.open_cache().path.startswith(str(tmp_path / "penstock"))
    monkeypatch.setenv("PENSTOCK_CACHE_SIZE", "much")
    with pytest.raises(ConfigError, match="PENSTOCK_CACHE_SIZE"):
        ps.cache.open_cache()


@pytest.mark.parametrize("given", [3, {"path": "near"}, ps.StoreOptions(), 0, False, [], {}])
def test_invalid_cache_argument_of_open_cache_is_refused(given):
    with pytest.raises(ConfigError, match="must be a directory or CacheOptions"):
        ps.cache.open_cache(given)


def test_an_empty_name_is_not_the_default_directory():
    """A variable that is not set must not have the user's own cache cleared."""
    with pytest.raises(ConfigError, match="path must not be empty"):
        ps.cache.open_cache("")


@pytest.mark.parametrize("prefix", [5, None, b"s3://"])
def test_clear_refuses_a_prefix_with_a_non_string_type(tmp_path, prefix):
    with pytest.raises(ConfigError, match="the beginning of URLs"):
        ps.cache.open_cache(tmp_path).clear(prefix)
