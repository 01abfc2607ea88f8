"""An option that a class does not have: the error says which one was meant, or where it is to be written."""

from __future__ import annotations

import pytest

import penstock as ps
from penstock.errors import ConfigError


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
    with pytest.raises(ConfigError, match=rf"{kind.__name__} takes options by name: write {kind.__name__}\(\w+=…\)"):
        kind("folder")
