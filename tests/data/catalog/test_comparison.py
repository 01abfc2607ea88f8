"""Differences of catalogs and their fingerprints: objects, shards, missing ETags, equal names, colliding numbers."""

from __future__ import annotations

import hashlib
import pickle
import time

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import penstock as ps
from penstock.data.catalog import comparison
from penstock.data.catalog.rows import Entry
from penstock.errors import Unusable
from tests.amounts import examples


def build(entries, base="t/", root="s3://bucket/"):
    return ps.Catalog.build(root, base, [Entry(base + name, *rest) for name, *rest in entries])


def names(catalog):
    return [entry.key for entry in catalog]


def md5(text):
    return hashlib.md5(text.encode(), usedforsecurity=False).hexdigest()


def test_added_removed_and_changed_objects_are_catalogs(tmp_path):
    objects = [(name, size, None, md5(name)) for size, name in enumerate("abc", 1)]
    before = build([*objects, ("é", 4, None, "x-2")])
    after = build([("é", 4, None, "x-3"), ("a", 1, None, md5("a")), ("c", 9, None, md5("c")), ("d", 1, None, "")])
    found = before.diff(after)
    assert (names(found.added), names(found.removed)) == (["t/d"], ["t/b"])
    assert [(each.key, each.size, each.etag) for each in found.changed] == [("t/é", 4, "x-3"), ("t/c", 9, md5("c"))]
    assert [(each.key, each.size, each.etag) for each in found.before] == [("t/é", 4, "x-2"), ("t/c", 3, md5("c"))]
    assert (found.equal, len(found.unproven)) == (1, 0)
    assert repr(found) == "<CatalogDiff: 1 added, 1 removed, 2 changed, 1 equal>"
    found.added.save(tmp_path / "added.catalog")
    nothing = before.diff(pickle.loads(pickle.dumps(before)))
    assert repr(nothing) == "<CatalogDiff: 0 added, 0 removed, 0 changed, 4 equal>"
    assert repr(build([]).diff(build([]))) == "<CatalogDiff: 0 added, 0 removed, 0 changed, 0 equal>"
    assert before.diff(after.filter(include="d")).equal == 0


def test_names_below_the_base_are_compared_so_that_copies_are_equal():
    entries = [("x", 1, None, md5("x")), ("y", 2, None, md5("y"))]
    other = build(entries, "elsewhere/deep/", "s3://other/")
    assert build(entries).diff(other).equal == 2
    assert build(entries).fingerprint == other.fingerprint
    assert build(entries)[::-1].diff(other).equal == 2


def test_missing_etags_or_sizes_are_unproven_and_named_in_the_fingerprint():
    sizes, etags = ((1, 2, -1, 3, 1), (1, 2, 5, 4, 1)), (("", "e", "e", "", "e"), ("", "", "e", "", "e"))
    rows = (
        [(name, size, None, etag) for name, size, etag in zip("abcde", *each, strict=True)]
        for each in zip(sizes, etags, strict=True)
    )
    before, after = map(build, rows)
    found = before.diff(after)
    assert names(found.unproven) == ["t/a", "t/b", "t/c"]
    assert (names(found.changed), found.equal) == (["t/d"], 1)
    assert "3 unproven, for lack of an ETag or a size" in repr(found)
    assert before.fingerprint.endswith(" (2 of 5 without ETag)")
    assert after.fingerprint.endswith(" (3 of 5 without ETag)")
    assert len({before.fingerprint, after.fingerprint}) == 2


def test_a_replaced_object_changes_the_fingerprint_and_not_the_digest():
    catalogs = [build([("a", 1, None, md5("a")), ("b", 1, None, etag)]) for etag in (md5("b"), md5("c"), "c", "C")]
    assert len({each.digest for each in catalogs}) == 1
    assert len({each.fingerprint for each in catalogs}) == 4
    assert all(each.fingerprint.startswith("sha256:") and len(each.fingerprint) == 71 for each in catalogs)
    assert catalogs[0][:1].fingerprint == catalogs[1][:1].fingerprint
    labelled = catalogs[0].with_labels(["x", "y"]).with_columns(n=[1, 2])
    assert labelled.fingerprint == catalogs[0].fingerprint


def test_ranges_are_matched_by_their_first_bytes():
    before = build([("s", 10, None, "e", 0), ("s", 10, None, "e", 10), ("t", 5, None, "e", 0)])
    after = build([("s", 10, None, "e", 10), ("s", 12, None, "e", 0), ("t", 5)])
    found = before.diff(after)
    assert [(each.key, each.offset) for each in found.changed] == [("t/s", 0)]
    assert [(each.key, each.offset) for each in found.added] == [("t/t", -1)]
    assert [(each.key, each.offset) for each in found.removed] == [("t/t", 0)]
    assert found.equal == 1
    assert before.fingerprint != after.fingerprint


def test_entries_that_are_there_twice_are_matched_twice():
    once, twice = [("a", 1, None, "e")], [("a", 1, None, "e"), ("b", 1, None, "e"), ("a", 1, None, "e")]
    found = build(twice).diff(build(once))
    assert (sorted(names(found.removed)), found.equal) == (["t/a", "t/b"], 1)
    assert build(twice).diff(build(twice)).equal == 3


def test_catalogs_of_groups_and_other_values_are_refused_and_groups_have_fingerprints():
    objects = [("1.jpg", 1, None, "a"), ("1.json", 1, None, "b")]
    plain = build(objects)
    grouped, changed = (each.with_groups("stem") for each in (plain, build([*objects[:1], ("1.json", 1, None, "c")])))
    for pair in (plain, grouped), (grouped, plain):
        with pytest.raises(Unusable, match="several objects: compare the catalogs"):
            pair[0].diff(pair[1])
    with pytest.raises(Unusable, match="diff takes a Catalog, got a str"):
        plain.diff("s3://bucket/train.catalog")
    assert grouped.fingerprint != changed.fingerprint
    assert grouped.digest == changed.digest


ENTRY = st.tuples(st.text("ab", max_size=3), st.integers(0, 2), st.none(), st.sampled_from(["", "x", "y", md5("z")]))


@pytest.mark.parametrize("bits", [64, 1, 0])
@given(data=st.data())
@settings(max_examples=examples(60), deadline=None)
def test_differences_are_those_of_a_dictionary_whatever_the_numbers_of_names(bits, data):
    first, second = (
        list({each[0]: each for each in data.draw(st.lists(ENTRY, max_size=12))}.values()) for _ in range(2)
    )
    whole = comparison.hash_entries
    with pytest.MonkeyPatch.context() as patch:
        if bits < 64:
            patch.setattr(comparison, "hash_entries", lambda *given: whole(*given) & np.uint64((1 << bits) - 1))
        found = build(first).diff(build(second))
    mine, theirs = ({each[0]: each for each in some} for some in (first, second))
    assert names(found.added) == [f"t/{name}" for name in theirs if name not in mine]
    assert names(found.removed) == [f"t/{name}" for name in mine if name not in theirs]
    both = [(mine[name], theirs[name]) for name in theirs if name in mine]
    changed = [new for old, new in both if old[1] != new[1] or (old[3] and new[3] and old[3] != new[3])]
    assert names(found.changed) == [f"t/{each[0]}" for each in changed]
    unproven = [new for old, new in both if new not in changed and not (old[3] and new[3])]
    assert names(found.unproven) == [f"t/{each[0]}" for each in unproven]
    assert found.equal == len(both) - len(changed) - len(unproven)


def test_many_rows_take_microseconds_each():
    entries = [(f"{number:06}", number, None, md5(str(number))) for number in range(50_000)]
    before, after = build(entries), build([*entries[100:], ("z", 1, None, "e")])
    began = time.process_time()
    found = before.diff(after)
    assert (len(found.removed), len(found.added), found.equal) == (100, 1, 49_900)
    assert time.process_time() - began < 2
