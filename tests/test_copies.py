"""A source is deleted once its copy is proven to be another object, by whatever names the two are reached."""

from __future__ import annotations

import os
from dataclasses import replace

import pytest

import penstock as ps
from penstock import copies
from penstock.copies import Copied, are_distinct, check_copies, copy_object, delete_sources, move_object
from penstock.errors import Changed, Damaged, InvalidURL, NotFound, Unusable
from penstock.source import open_source
from penstock.values import ObjectMeta

MIB = 1 << 20


def ends(here, there):
    source, key = open_source(here)
    target, to = open_source(there)
    return source, key, target, to


@pytest.mark.parametrize("size", [0, 5, 9 * MIB])
@pytest.mark.parametrize("turned", [False, True])
def test_moving_onto_another_name_of_the_object_keeps_it(names, size, turned):
    mine, its = reversed(names) if turned else names
    with ps.open(f"{names[0]}x", "wb", metadata={"of": "mine"}) as file:
        file.write(bytes(size))
    with pytest.raises(InvalidURL, match="under another name"):
        ps.copy(f"{mine}x", f"{its}x")
    with pytest.raises(InvalidURL, match="under another name"):
        move_object(*ends(f"{mine}x", f"{its}x"))
    assert ps.stat(f"{names[0]}x").size == size
    assert ps.stat(f"{names[0]}x").metadata["of"] == "mine"


def test_moving_to_another_key_of_the_other_name_deletes_the_source(names):
    mine, its = names
    source, _ = open_source(mine)
    source.put("x", b"x")  # without a mark
    move_object(*ends(f"{mine}x", f"{its}y"))
    move_object(*ends(f"{its}y", f"{mine}z"))
    assert [each.key for each in ps.list(mine)] == ["z"]


@pytest.mark.parametrize(("here", "there"), [("{0}", "fsspec+file://{0}"), ("fsspec+file://{0}", "{0}")])
@pytest.mark.parametrize("linked", [False, True])
def test_a_file_and_its_fsspec_name_are_one_object(tmp_path, here, there, linked):
    (tmp_path / "a").mkdir()
    (tmp_path / "b").symlink_to("a")
    (tmp_path / "a" / "x").write_bytes(b"x")
    name = tmp_path / ("b" if linked else "a") / "x"
    with pytest.raises((InvalidURL, Changed, Unusable), match="another name"):
        move_object(*ends(here.format(tmp_path / "a" / "x"), there.format(name)))
    assert (tmp_path / "a" / "x").read_bytes() == b"x"


def test_two_keys_of_one_filesystem_may_be_one_object(tmp_path):
    (tmp_path / "a").mkdir()
    (tmp_path / "b").symlink_to("a")
    (tmp_path / "a" / "x").write_bytes(b"x")
    for scheme in ("file", "fsspec+file"):
        with pytest.raises((InvalidURL, Changed, Unusable)):
            move_object(*ends(f"{scheme}://{tmp_path}/a/x", f"{scheme}://{tmp_path}/b/x"))
        assert (tmp_path / "a" / "x").read_bytes() == b"x"
    move_object(*ends(f"fsspec+file://{tmp_path}/a/x", f"fsspec+file://{tmp_path}/b/y"))
    assert [each.name for each in (tmp_path / "a").iterdir()] == ["y"]


def test_move_onto_symlink_is_refused_but_onto_hard_link_succeeds(tmp_path):
    (tmp_path / "x").write_bytes(b"x")
    (tmp_path / "hard").hardlink_to(tmp_path / "x")
    (tmp_path / "soft").symlink_to("x")
    with pytest.raises(InvalidURL, match="onto itself"):
        move_object(*ends(tmp_path / "x", tmp_path / "soft"))
    move_object(*ends(tmp_path / "x", tmp_path / "hard"))
    assert (tmp_path / "hard").read_bytes() == b"x"
    assert not (tmp_path / "x").exists()


def test_a_source_that_was_written_since_or_a_short_copy_keeps_the_source(names):
    mine, _ = names
    source, _ = open_source(mine)
    for data in (b"other", b"longer than that"):
        source.put("x", b"first")
        copied = copy_object(*ends(f"{mine}x", "memory://written-since/x"))
        source.put("x", data)
        with pytest.raises(Changed):
            delete_sources([copied])
    source.put("x", b"first")
    copied = copy_object(*ends(f"{mine}x", "memory://written-since/x"))
    copied.target.put("x", b"short"[:2])
    with pytest.raises(Damaged, match="5 bytes were copied, but the copy has 2"):
        delete_sources([copied])
    copied.target.delete(["x"])
    with pytest.raises(NotFound):
        delete_sources([copied])
    assert source.head("x").size == 5


def test_a_fresh_object_whose_copy_bears_no_mark_is_copied_again_after_a_pause(names, tmp_path, monkeypatch):
    """The copy's first time of change may be the source's own, as of one file behind both names."""
    mine, _ = names
    source, _ = open_source(mine)
    pauses = []
    monkeypatch.setattr(copies, "sleep", pauses.append)
    source.put("x", b"x")
    copied = copy_object(*ends(f"{mine}x", tmp_path / "x"))
    modified = source.head("x").modified
    os.utime(tmp_path / "x", (modified, modified))
    with pytest.raises(Unusable, match="may be this object under another name: not deleted"):
        check_copies([copied])  # the pause was none, and times are as they were
    assert pauses == [copies.PAUSE_S]
    os.utime(tmp_path / "x", (modified + copies.PAUSE_S,) * 2)
    check_copies([copied])
    assert pauses == [copies.PAUSE_S]


def test_metadata_of_two_names_decides_if_objects_are_distinct(names, tmp_path):
    mine, its = (open_source(each)[0] for each in names)
    disk, _ = open_source(f"fsspec+file://{tmp_path}/")
    one = ObjectMeta("x", 5, "etag", 1000.0)
    assert not are_distinct(mine, one, its, one)
    assert not are_distinct(mine, one, its, replace(one, modified=1001.9))
    assert not are_distinct(mine, one, its, replace(one, modified=None))
    assert not are_distinct(mine, one, disk, replace(one, metadata={"penstockwrite": "1"}))
    assert are_distinct(mine, one, its, replace(one, modified=1002.0))
    assert are_distinct(mine, one, its, replace(one, metadata={"penstockwrite": "1"}))
    assert are_distinct(mine, one, its, replace(one, size=6))
    assert are_distinct(mine, one, mine, replace(one, key="y"))
    assert not are_distinct(mine, one, mine, one)
    assert are_distinct(disk, one, disk, replace(one, key="y", modified=1000.1))
    assert not are_distinct(disk, one, disk, replace(one, key="y"))


def test_moving_one_object_within_a_bucket_needs_no_check(s3_faults, names):
    mine, _ = names
    source, _ = open_source(mine)
    source.put("x", b"x")
    before = len(s3_faults.seen())
    move_object(*ends(f"{mine}x", f"{mine}y"))
    assert [seen.method for seen in s3_faults.seen()[before:]] == ["HEAD", "PUT", "DELETE"]


def test_folder_moved_within_a_bucket_keeps_a_source_that_was_written_meanwhile(names):
    source, _ = open_source(names[0])
    for key in ("a", "b"):
        source.put(key, b"first")
    done = [copy_object(*ends(f"{names[0]}{key}", f"{names[0]}to/{key}")) for key in ("a", "b")]
    source.put("a", b"other")
    with pytest.raises(Changed):
        delete_sources(done)
    assert ps.open(f"{names[0]}a").read() == b"other"


def test_nothing_is_deleted_where_one_of_several_is_not_proven(names):
    mine, its = names
    source, _ = open_source(mine)
    for key in ("a", "x"):
        source.put(key, b"x")
    done = copy_object(*ends(f"{mine}a", f"{its}b"))
    bad = Copied(source, source.head("x"), open_source(its)[0], "x")
    with pytest.raises((Unusable, InvalidURL)):
        delete_sources([done, bad])
    assert {each.key for each in ps.list(mine)} == {"a", "b", "x"}
