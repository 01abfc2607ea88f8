"""Parts of a split are disjoint, whole, drawn by name and seed alone, and never without an object."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock.data.catalog.catalog import Catalog, Entry
from penstock.errors import Unusable
from tests.refusals import refused

ENTRIES = [Entry(f"train/{number % 10}/{number:04}", number, None, f"e{number}") for number in range(2000)]


@pytest.fixture(scope="module")
def catalog():
    return Catalog.build("s3://bucket/", "train/", ENTRIES)


def _drawn(entries):
    return {entry.key for entry in entries}


@given(st.data())
def test_parts_hold_each_entry_once_in_the_catalogs_order(data):
    count = data.draw(st.integers(2, 200))
    sizes = data.draw(st.lists(st.integers(1, 20), min_size=1, max_size=4).filter(lambda some: sum(some) < count))
    entries = ENTRIES[:count]
    parts = Catalog.build("s3://b/", "train/", entries)[::-1].split(
        *sizes, count - sum(sizes), seed=data.draw(st.integers())
    )
    assert [len(part) for part in parts] == [*sizes, count - sum(sizes)]
    assert sorted(entry for part in parts for entry in part) == sorted(entries)
    for part in parts:
        assert [*part] == sorted(part, key=entries.index, reverse=True)


def test_fractions_are_near_and_counts_are_exact(catalog):
    assert [len(part) for part in catalog.split(1800, seed=3)] == [1800, 200]
    assert [len(part) for part in catalog.split(1000, 700, 300)] == [1000, 700, 300]
    sizes = [len(part) for part in catalog.split(0.5, 0.25, 0.25, seed=3)]
    assert sum(sizes) == 2000
    assert np.allclose(sizes, [1000, 500, 500], atol=100)


def test_an_entry_stays_on_its_side_when_the_prefix_grows_or_moves(catalog):
    validation = _drawn(catalog.split(0.9, seed=1)[1])
    grown = Catalog.build("s3://b/", "train/", [*ENTRIES, *(Entry(f"train/new/{i}", 1) for i in range(2000))])
    assert _drawn(grown.split(0.9, seed=1)[1]) & _drawn(ENTRIES) == validation
    moved = Catalog.build("s3://b/", "copy/x/", [entry._replace(key=f"copy/x/{entry.key[6:]}") for entry in ENTRIES])
    assert {f"train/{key[7:]}" for key in _drawn(moved.split(0.9, seed=1)[1])} == validation


def test_another_seed_is_another_split(catalog):
    first, second = (_drawn(catalog.split(0.9, seed=seed)[1]) for seed in (1, 2))
    assert len(first & second) < 60
    assert catalog.split(0.9, seed=1)[1].digest == catalog.split(0.9, seed=1)[1].digest


def test_the_draw_is_the_same_for_ever():
    # Another draw would move objects that a run has trained on into its validation.
    names = ["a", "b", "", "train/é.jpg", "c" * 300]
    parts = Catalog.build("s3://b/", "", [Entry(name, 1) for name in names * 2]).split(0.5, seed=7)
    assert [sorted(entry.key for entry in part) for part in parts] == [
        ["a", "a", "c" * 300, "c" * 300, "train/é.jpg", "train/é.jpg"],
        ["", "", "b", "b"],
    ]


def test_every_class_is_in_every_part(catalog):
    labelled = catalog.with_labels("folder")
    parts = labelled.split(0.8, 0.1, 0.1, seed=1, by="label")
    assert [np.bincount(part.labels).tolist() for part in parts] == [[160] * 10, [20] * 10, [20] * 10]
    assert {part.classes for part in parts} == {labelled.classes}


@given(st.lists(st.integers(2, 30), min_size=1, max_size=8), st.floats(0.01, 0.99), st.integers(0, 99))
def test_each_class_is_divided_as_near_to_the_fractions_as_whole_objects_allow(counts, fraction, seed):
    names = [f"{label}/{number}" for label, count in enumerate(counts) for number in range(count)]
    labelled = Catalog.build("s3://b/", "", [Entry(name, 1) for name in names]).with_labels("folder")
    first, second = labelled.split(fraction, seed=seed, by="label")
    for label, count in enumerate(counts):
        code = labelled.classes.index(str(label))
        have = int((first.labels == code).sum())
        assert have + int((second.labels == code).sum()) == count
        assert 1 <= have < count
        assert abs(have - fraction * count) < 1 or have in (1, count - 1)


def test_labels_of_manifests_divide_too():
    entries = [entry._replace(label={"kind": number % 3}) for number, entry in enumerate(ENTRIES[:300])]
    part = Catalog.build("s3://b/", "train/", entries).split(0.5, by="label")[0]
    assert sorted(entry.label["kind"] for entry in part) == [0] * 50 + [1] * 50 + [2] * 50
    refused(Unusable, "objects have no label", Catalog.build("s3://b/", "train/", ENTRIES).split, 0.5, by="label")


def test_a_class_with_fewer_objects_than_parts_is_named():
    few = Catalog.build("s3://b/", "", [Entry(name, 1) for name in ("a/1", "a/2", "b/1")]).with_labels("folder")
    refused(Unusable, r"too few objects.*2 parts: 'b' \(1\)", few.split, 0.5, by="label")
    kept = few.filter(labels="a")
    assert [len(part) for part in kept.split(0.5, by="label")] == [1, 1]


@pytest.mark.parametrize(
    ("parts", "word"),
    [
        ((), "split needs fractions or counts"),
        ((0,), "counts are 1 or more"),
        ((0.0,), "above 0 and below 1"),
        ((1,), "one object or all"),
        ((1.0,), "above 0 and below 1"),
        ((1.5,), "above 0 and below 1"),
        ((-0.1,), "above 0 and below 1"),
        ((float("nan"),), "above 0 and below 1"),
        (("90%",), "got '90%'"),
        ((True,), "got True"),
        (([0.9, 0.1],), r"got \[0.9, 0.1\]"),
        ((0.9, 0.2), "sum must be 1"),
        ((0.9, 100), "mixes"),
        ((1000, 999), "make 2000 together"),
        ((2000,), "counts are 1 or more"),
        ((1e-9,), r"gave parts of 0, 2000 objects; pass counts"),
    ],
)
def test_invalid_split_parts_are_refused_with_the_reason(catalog, parts, word):
    refused(Unusable, word, catalog.split, *parts)


def test_invalid_split_options_are_refused_with_the_reason(catalog):
    refused(Unusable, "by must be 'sample' or 'label'", catalog.split, 0.9, by="class")
    refused(Unusable, "by fractions", catalog.with_labels("folder").split, 1000, by="label")
    refused(Unusable, "seed must be a whole number", catalog.split, 0.9, seed=0.5)
