"""A bare path and a file URL are one place on this machine, and name no host."""

from __future__ import annotations

import pytest

from penstock.errors import InvalidURL
from penstock.source import open_source
from penstock.stores.local.driver import Local
from penstock.stores.urls import parse


def test_a_path_and_its_url_open_the_same_engine(tmp_path):
    (one, key), (other, same) = open_source(tmp_path / "a"), open_source(f"file://{tmp_path}/a")
    assert key == same == f"{tmp_path}/a"[1:]
    assert one._fetcher() is other._fetcher()
    assert type(parse(tmp_path).store) is Local
    assert parse(tmp_path).local


def test_a_file_url_with_a_host_is_refused():
    with pytest.raises(InvalidURL, match="three slashes"):
        parse("file://data/train")
    assert Local().bucket_fault("") == ""
