"""The keywords of ps.sync are the options, one for one."""

from __future__ import annotations

from dataclasses import fields

import pytest

import penstock as ps
from penstock.bulk.options import SyncKeywords, SyncOptions


def test_keywords_and_options_are_the_same():
    assert list(SyncKeywords.__annotations__) == [each.name for each in fields(SyncOptions)]


def test_another_keyword_is_refused_as_of_any_function(tmp_path):
    with pytest.raises(TypeError, match="deleet"):
        ps.sync(tmp_path, tmp_path / "x", deleet=True)
