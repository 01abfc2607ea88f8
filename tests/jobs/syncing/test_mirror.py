"""Two trees by their URLs: where they lie, which clock they have, and what may go of the second."""

from __future__ import annotations

from dataclasses import asdict, fields
from inspect import signature

import pytest

import penstock as ps
from penstock.errors import NotFound, Unsupported
from penstock.jobs.syncing.mirror import SyncOptions, open_mirror
from penstock.values import ObjectMeta


def mirror(source, dest, store=None, **how):
    return open_mirror(str(source), str(dest), SyncOptions(**how), store or ps.StoreOptions())


def test_a_slash_at_the_end_makes_no_difference(tmp_path):
    (tmp_path / "in").mkdir()
    found = [mirror(f"{tmp_path}/in{end}", f"memory://m/out{end}") for end in ("", "/")]
    assert len({(each.prefix, each.base) for each in found}) == 1
    assert found[0].base == "out/"
    assert mirror("memory://m", "memory://n/").base == ""


def test_mirror_clock_is_shared_within_one_server_or_local_machine(tmp_path):
    (tmp_path / "in").mkdir()
    one, two = (ps.S3Options(endpoint=f"http://127.0.0.1:{port}", anonymous=True) for port in (1, 2))
    assert mirror("s3://abc/x", "s3://def/x", one).one_clock
    assert mirror(tmp_path / "in", tmp_path / "out").one_clock
    assert not mirror(tmp_path / "in", "s3://abc/x", two).one_clock
    assert not mirror("s3://abc/x", tmp_path / "out", two).one_clock


def test_markers_are_deleted_only_where_the_source_could_have_them(tmp_path):
    (tmp_path / "in").mkdir()
    up, across = mirror(tmp_path / "in", "memory://m/out"), mirror("memory://m/in", "memory://m/out")
    marker, base, full = ObjectMeta("out/x/", 0), ObjectMeta("out/", 0), ObjectMeta("out/x/", 1)
    assert [up.deletable(each) for each in (marker, base, full)] == [False, False, True]
    assert [across.deletable(each) for each in (marker, base, full)] == [True, False, True]


def test_unsupported_or_missing_mirror_endpoint_raises_at_creation(tmp_path):
    (tmp_path / "in").mkdir()
    with pytest.raises(Unsupported, match="cannot write"):
        mirror(tmp_path / "in", "https://example.com/x")
    with pytest.raises(NotFound, match="no such directory"):
        mirror(tmp_path / "nowhere", "memory://m/x")


def test_signature_of_sync_shows_every_option_with_its_default():
    shown = signature(ps.sync).parameters
    assert {each.name: shown[each.name].default for each in fields(SyncOptions)} == asdict(SyncOptions())


def test_another_keyword_is_refused_as_of_any_function(tmp_path):
    with pytest.raises(TypeError, match="deleet"):
        ps.sync(tmp_path, tmp_path / "x", deleet=True)
