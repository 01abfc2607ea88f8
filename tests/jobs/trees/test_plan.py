"""Every object has one place or a reason; nobody's place is another's, a source, or outside of the destination."""

from __future__ import annotations

import posixpath

import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock.errors import Unusable
from penstock.jobs.trees.plan import Destination, Origin, plan, refuse_self_copy
from penstock.values import ObjectMeta

S3, FILE = "s3://bucket/", "file:///"
# Few letters, so that prefixes, globs and places meet; and everything that means something in a path.
KEYS = st.lists(st.text("ab./é\0\ud800", min_size=1, max_size=7), max_size=12, unique=True)
ROOTS = st.sampled_from([S3, "s3://other/", FILE])
PREFIXES = st.sampled_from(["", "a/", "a/b/", "b/"])
ORIGINS = st.one_of(
    st.builds(Origin, ROOTS, st.text("ab./", min_size=1, max_size=4).filter(lambda k: k[-1] != "/"), st.just("object")),
    st.builds(Origin, ROOTS, PREFIXES, st.just("tree"), lead=st.sampled_from(["", "a/", "dir/"])),
    st.builds(Origin, ROOTS, PREFIXES, st.just("glob"), glob=st.sampled_from(["*", "**", "a*", "**/*b", "?"])),
)
INTO = st.builds(Destination, ROOTS, PREFIXES, into=st.just(value=True))
DESTINATIONS = st.one_of(
    INTO, st.builds(Destination, ROOTS, st.sampled_from(["a", "a/b", "c"]), into=st.just(value=False))
)


def found(origins, keys):
    """List what each origin has of the keys, in order, as stores do."""
    for origin in origins:
        mine = [origin.prefix] if origin.kind == "object" else [key for key in keys if key.startswith(origin.prefix)]
        for key in sorted(mine, key=lambda key: key.encode("utf-8", "surrogatepass")):
            yield origin, ObjectMeta(key, len(key) % 3)


@given(origins=st.lists(ORIGINS, min_size=1, max_size=3), keys=KEYS, dest=INTO, lone=DESTINATIONS)
def test_every_planned_object_has_a_unique_destination_or_a_reason(origins, keys, dest, lone):
    dest = lone if len(origins) == 1 and origins[0].kind != "glob" else dest
    listed = list(found(origins, keys))
    steps = list(plan(origins, listed, dest))
    assert [(step.root, step.meta) for step in steps] == [(origin.root, meta) for origin, meta in listed]
    gone = [step.to for step in steps if not step.fault and not step.note]
    assert len(gone) == len(set(gone))
    assert all(to and "\0" not in to and "\ud800" not in to for to in gone)
    read = {meta.key for origin, meta in listed if origin.root == dest.root and origin.kind != "glob"}
    assert read.isdisjoint(gone)
    if dest.root == FILE:
        assert all(to.startswith(dest.key) and posixpath.normpath(to) == to for to in gone)
        assert not any(f"{one}/" == other[: len(one) + 1] for one in gone for other in gone)


@pytest.mark.parametrize(
    ("origin", "key", "into", "new"),
    [
        (Origin(S3, "a/b.png", "object"), "a/b.png", "d/b.png", "d"),
        (Origin(S3, "a/", "tree"), "a/b/c", "d/b/c", "d/b/c"),
        (Origin(S3, "x/a/", "tree", lead="a/"), "x/a/b/c", "d/a/b/c", "d/b/c"),
        (Origin(S3, "x/", "glob", glob="*/c"), "x/b/c", "d/b/c", "d/b/c"),
    ],
)
def test_into_keeps_the_name_and_as_replaces_it(origin, key, into, new):
    assert Destination(FILE, "d/", into=True).place(origin, key) == into
    assert Destination(FILE, "d", into=False).place(origin, key) == new


@pytest.mark.parametrize(
    ("key", "why"),
    [
        ("t/../../etc/passwd", "'..'"),
        ("t//etc/passwd", "''"),
        ("t/./x", "'.'"),
        ("t/data/", "''"),
        ("t/a\0b", "NUL"),
        ("t/" + "é" * 128, "256 bytes"),
    ],
)
def test_hostile_key_is_refused_as_file_name_with_a_reason(key, why):
    tree = Origin(S3, "t/", "tree")
    (step,) = plan([tree], [(tree, ObjectMeta(key, 1))], Destination(FILE, "home/", into=True))
    assert why in step.fault


def test_a_path_cannot_be_a_file_and_a_directory():
    tree = Origin(S3, "", "tree")
    metas = [(tree, ObjectMeta(key, 1)) for key in ["a", "a!", "a/b", "a/b/c", "ab/c"]]
    faults = {step.meta.key: step.fault for step in plan([tree], metas, Destination(FILE, "d/", into=True))}
    assert {key for key, fault in faults.items() if fault} == {"a/b", "a/b/c"}
    assert not any(step.fault for step in plan([tree], metas, Destination("s3://other/", "", into=True)))


@pytest.mark.parametrize("keys", [("1/a", "2/a/b"), ("1/a/b", "2/a"), ("1/a/b/c", "2/a/b")])
def test_nor_where_the_two_come_from_different_sources(keys):
    trees = [Origin(S3, "1/", "tree"), Origin(S3, "2/", "tree")]
    found = [(tree, ObjectMeta(key, 1)) for tree, key in zip(trees, keys, strict=True)]
    assert [bool(step.fault) for step in plan(trees, found, Destination(FILE, "d/", into=True))] == [False, True]
    assert not any(step.fault for step in plan(trees, found, Destination("s3://other/", "", into=True)))


def test_the_second_source_for_a_place_is_refused():
    one, two = Origin(S3, "a/x", "object"), Origin(S3, "b/x", "object")
    steps = plan(
        [one, two], [(one, ObjectMeta("a/x", 1)), (two, ObjectMeta("b/x", 1))], Destination(S3, "c/", into=True)
    )
    assert ["two sources" in step.fault for step in steps] == [False, True]


@pytest.mark.parametrize(
    ("root", "dest"), [(S3, Destination(S3, "a/b", into=False)), (FILE, Destination(FILE, "a/", into=True))]
)
def test_a_tree_is_not_copied_into_itself(root, dest):
    with pytest.raises(Unusable, match="inside the source"):
        refuse_self_copy([Origin(root, "a/", "tree")], dest)
    refuse_self_copy([Origin(root, "a/c/", "tree")], dest)


def test_a_marker_is_left_out_only_where_it_cannot_be():
    tree = Origin(S3, "t/", "tree")
    (step,) = plan([tree], [(tree, ObjectMeta("t/d/", 0))], Destination(FILE, "", into=True))
    assert step.note == "a directory's marker"
    (step,) = plan([tree], [(tree, ObjectMeta("t/d/", 0))], Destination(S3, "u/", into=True))
    assert (step.note, step.fault, step.to) == ("", "", "u/d/")
