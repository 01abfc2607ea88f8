"""A sync deletes nothing that is its own source under another name, and asks no more where nothing looks like it."""

from __future__ import annotations

import os
import time

import pytest

import penstock as ps
from penstock.errors import Unusable
from penstock.jobs.syncing import job as parts
from penstock.jobs.syncing.mirror import Sieve
from penstock.source import open_source
from penstock.values import UNKNOWN_SIZE, ObjectMeta
from tests.trees import contents


def fill(url, **objects):
    source, prefix = open_source(url)
    for key, data in objects.items():
        source.put(prefix + key.replace("_", "/"), data)


def keys(url):
    return [each.key for each in ps.list(url)]


@pytest.mark.parametrize("dry_run", [False, True])
@pytest.mark.parametrize(("scheme", "turned"), [("", "fsspec+file://"), ("fsspec+file://", "")])
def test_a_tree_within_the_destination_keeps_its_files(tmp_path, scheme, turned, dry_run):
    sub = tmp_path / "t" / "sub" / "x"
    sub.mkdir(parents=True)
    for name in "ab":
        (sub / name).write_text(name)
    here, there = f"{scheme}{sub.parent}", f"{turned}{tmp_path}/t"
    with pytest.raises(Unusable, match="of the source under another name: nothing is deleted"):
        ps.sync(here, there, delete=True, dry_run=dry_run)
    assert contents(sub) == {"a": b"a", "b": b"b"}


def test_a_destination_within_the_source_keeps_the_source_s_files(tmp_path):
    sub = tmp_path / "t" / "sub"
    sub.mkdir(parents=True)
    for path in (tmp_path / "t" / "a", sub / "only"):
        path.write_text(path.name)
        os.utime(path, (1e9, 1e9))
    with pytest.raises(Unusable, match="under another name"):
        ps.sync(f"{tmp_path}/t", f"fsspec+file://{sub}", delete=True)
    assert (sub / "only").read_text() == "only"


@pytest.mark.parametrize("parts", [False, True])
@pytest.mark.parametrize("turned", [False, True])
@pytest.mark.parametrize(("prefix", "base"), [("sub/", ""), ("", "sub/")])
def test_two_names_of_a_bucket_keep_the_source(names, turned, prefix, base, parts, tmp_path):
    mine, its = reversed(names) if turned else names
    fill(mine, a=b"a", sub_b=b"b", sub_x_c=b"c")
    before = {url.removeprefix(mine) for url in (mine + each for each in keys(mine + prefix))}
    with pytest.raises(Unusable, match="under another name"):
        how = {"job": tmp_path / "job", "part_objects": 1} if parts else {}
        ps.sync(mine + prefix, its + base, delete=True, whole_bucket=True, **how)
    assert before <= set(keys(mine))


@pytest.mark.parametrize("later", [False, True])
def test_parts_list_the_source_again_only_for_what_looks_like_it(s3_faults, names, tmp_path, monkeypatch, later):
    mine, its = names
    fill(mine, from_a=b"a", from_m=b"m", from_z=b"z", to_b=b"old", to_n=b"older")
    # The plan's sieve knows all that is older than it.
    monkeypatch.setattr(parts, "time", lambda: time.time() + (0 if later else 3600))
    before = len(s3_faults.seen())
    found = ps.sync(f"{mine}from/", f"{its}to/", delete=True, job=tmp_path / "job", part_objects=1)
    assert (found.copied, found.deleted) == (3, 2)
    lists = sum(seen.verb == "list" for seen in s3_faults.seen()[before:])
    # One of the plan, two of each part, and one of each part that deletes.
    assert lists == 1 + 3 * 2 + (2 if later else 0)


@pytest.mark.parametrize("later", [False, True])
def test_a_part_keeps_what_another_part_has_at_the_source(names, tmp_path, monkeypatch, later):
    mine, its = names
    monkeypatch.setattr(parts, "time", lambda: time.time() + (0 if later else 3600))
    fill(mine, sub_a=b"a", sub_n=b"n", sub_z=b"z")
    with pytest.raises(Unusable, match="under another name"):
        # The last part has z, and would delete sub/a and sub/n.
        how = {"job": tmp_path / "job", "part_objects": 1, "exclude": "sub/z"}
        ps.sync(f"{mine}sub/", its, delete=True, whole_bucket=True, **how)
    assert {"sub/a", "sub/n", "sub/z"} <= set(keys(mine))


def test_sync_to_a_bucket_alias_is_refused_and_keeps_filtered_files(names):
    mine, its = names
    fill(mine, sub_sub_b=b"b", sub_skipped=b"s", sub_sub_keep=b"k")
    with pytest.raises(Unusable, match="under another name"):
        ps.sync(f"{mine}sub/", its, delete=True, include="sub/**", whole_bucket=True)
    assert {"sub/sub/b", "sub/skipped", "sub/sub/keep"} <= set(keys(mine))


def test_deletions_that_look_like_nothing_at_the_source_cost_no_listing(s3_faults, names):
    mine, its = names
    fill(mine, from_a=b"a", to_a=b"a", to_x_old=b"old", to_x_older=b"older")
    before = len(s3_faults.seen())
    found = ps.sync(f"{mine}from/", f"{its}to/", delete=True)
    assert (found.deleted, found.unchanged) == (2, 1)
    assert sorted(seen.verb for seen in s3_faults.seen()[before:]) == ["delete"] * 2 + ["head"] * 4 + ["list"] * 2


def test_twins_in_other_folders_are_deleted_where_the_trees_lie_apart(names):
    """One name, size and time, and one key ends in the other; but no tree lies in the other."""
    mine, its = names
    fill(mine, **{f"from_{key}": b"0" for key in ("a", "old_b", "c_d")}, to_b=b"0", to_old_old_b=b"0")
    found = ps.sync(f"{mine}from/", f"{its}to/", delete=True)
    assert (found.copied, found.deleted) == (3, 2)
    assert keys(f"{mine}to/") == ["to/a", "to/c/d", "to/old/b"]


def test_sieve_holds_all_added_entries_and_almost_no_others():
    sieve = Sieve()
    for number in range(10_000):
        sieve.add(ObjectMeta(f"folder/{number}", number))
    assert all(sieve.may_hold(ObjectMeta(f"other/{number}", number)) for number in range(10_000))
    assert sum(sieve.may_hold(ObjectMeta(f"{number}", number + 1)) for number in range(10_000)) < 10
    sieve.add(ObjectMeta("page", UNKNOWN_SIZE))
    assert sieve.may_hold(ObjectMeta("page", 5))
    kept = Sieve(sieve.bits, 5000.0)
    assert kept.may_hold(ObjectMeta("folder/7", 7, modified=1.0))
    assert [kept.may_hold(ObjectMeta("other", 7, modified=each)) for each in (4099.0, 4101.0, None)] == [
        False,
        True,
        True,
    ]
