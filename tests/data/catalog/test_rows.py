"""Indices, masks and conditions choose entries as they choose from a list, and give a catalog again."""

import pickle
from fnmatch import fnmatchcase

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from penstock.data.catalog.catalog import Catalog, Entry
from penstock.errors import ConfigError, Unusable
from tests.data.catalog.large import added_bytes, objects, samples
from tests.refusals import refused

ENTRIES = [Entry(f"pets/{'cat' if number % 3 else 'dog'}/{number:03}.jpg", number, None, "e") for number in range(60)]


@pytest.fixture(scope="module")
def pets():
    return Catalog.build("s3://bucket/", "pets/", ENTRIES)


class TestIndices:
    @given(st.lists(st.integers(-60, 59), max_size=9), st.slices(9), st.data())
    def test_they_choose_as_from_a_list_also_of_parts_of_parts(self, indices, part, data):
        catalog, entries = Catalog.build("s3://bucket/", "pets/", ENTRIES), ENTRIES
        for chosen in (indices, part):
            if isinstance(chosen, slice):
                catalog, entries = catalog[chosen], entries[chosen]
            else:
                catalog, entries = catalog[chosen], [entries[i] for i in chosen]
        some = st.lists(st.integers(-len(entries), len(entries) - 1), max_size=5) if entries else st.just([])
        again = data.draw(some)
        catalog, entries = catalog[again], [entries[i] for i in again]
        assert list(catalog) == entries
        assert [catalog[i] for i in range(-len(entries), len(entries))] == entries * 2
        assert catalog.sizes.tolist() == [entry.size for entry in entries]
        assert catalog.digest == Catalog.build("s3://bucket/", "pets/", entries).digest
        assert list(pickle.loads(pickle.dumps(catalog))) == entries

    @pytest.mark.parametrize(
        "indices",
        [[5, 3, -1], (5, 3, -1), np.array([5, 3, -1]), np.array([5, 3, 59], np.uint8), torch.tensor([5, 3, -1])],
        ids=["list", "tuple", "int64", "uint8", "tensor"],
    )
    def test_any_array_of_whole_numbers_will_do(self, pets, indices):
        assert list(pets[indices]) == [ENTRIES[5], ENTRIES[3], ENTRIES[-1]]

    def test_scalar_tensor_or_numpy_integer_selects_a_single_entry(self, pets):
        assert pets[torch.tensor(5)] == pets[np.int8(5)] == ENTRIES[5]

    def test_a_mask_is_one_too(self, pets):
        assert list(pets[pets.sizes > 57]) == ENTRIES[58:]
        assert list(pets[[True] * 2 + [False] * 58]) == ENTRIES[:2]

    @pytest.mark.parametrize("indices", [[60], [-61], np.array([1 << 63], np.uint64), [0, 1, 99]])
    def test_past_the_end_is_an_index_error_that_names_it(self, pets, indices):
        with pytest.raises(IndexError, match=rf"index {indices[-1]} is outside a catalog of 60 objects"):
            pets[indices]

    @pytest.mark.parametrize(
        ("indices", "word"),
        [
            ("pets/cat/001.jpg", r"catalog\[0\]"),
            (["pets/cat/001.jpg"], "filter"),
            (1.0, r"catalog\[0\]"),
            ([1.0], "whole numbers, got float64"),
            ([[1, 2]], "shape"),
            (None, r"catalog\[0\]"),
            ({1, 2}, "got set"),
            ([True], "bools, one for each object"),
            ([[1], [2, 3]], "indexed by numbers"),
        ],
    )
    def test_invalid_indices_are_refused_with_the_reason(self, pets, indices, word):
        with pytest.raises(Unusable, match=word):
            pets[indices]

    def test_many_row_numbers_lie_in_memory_that_workers_map(self):
        part = Catalog.build("s3://b/", "", (Entry(f"{i}", i) for i in range(40_000)))[np.arange(40_000)[::-1]]
        assert type(part._rows._numbers._memory).__name__ == "Region", "beyond 64 KiB rows are shared"
        assert part[5] == Entry("39994", 39994)
        assert part[::-1][:3].sizes.tolist() == [0, 1, 2]


class TestFilter:
    def test_conditions_are_met_together(self, pets):
        found = pets.filter(size=(10, 50), include="cat/*", exclude=["*/01*"], mask=pets.sizes % 2 == 0)
        assert list(found) == [
            entry
            for entry in ENTRIES
            if 10 <= entry.size <= 50
            and entry.size % 2 == 0
            and fnmatchcase(entry.key, "pets/cat/*")
            and not fnmatchcase(entry.key, "pets/*/01*")
        ]

    @pytest.mark.parametrize(("size", "count"), [((None, 9), 10), ((50, None), 10), ((5, 5), 1), ([58, 1 << 80], 2)])
    def test_sizes_are_inclusive(self, pets, size, count):
        assert len(pets.filter(size=size)) == count

    def test_labels_are_kept_by_name_or_number_and_classes_stay(self, pets):
        labelled = pets.with_labels("folder")
        for labels in ("dog", ["dog"], 1, np.array([1]), range(1, 2)):
            assert list(labelled.filter(labels=labels)) == list(labelled[labelled.labels == 1])
        assert labelled.filter(labels="dog").classes == ("cat", "dog")

    def test_labels_of_manifests_are_kept_by_value(self):
        entries = [Entry("a", 1, "x"), Entry("b", 1, {"y": [1]}), Entry("c", 1, 3)]
        catalog = Catalog.build("s3://b/", "", entries)
        assert list(catalog.filter(labels=["x", {"y": [1]}])) == entries[:2]

    def test_filters_of_parts_look_at_their_own_entries(self, pets):
        part = pets[::-2].filter(include="dog/*")
        assert list(part) == [entry for entry in ENTRIES[::-2] if "dog" in entry.key]

    def test_nothing_left_is_an_empty_catalog(self, pets):
        assert list(pets.filter(include="bird/*")) == []

    @pytest.mark.parametrize(
        ("conditions", "word"),
        [
            ({"size": 100}, "size must be \\(least, most\\)"),
            ({"size": (1, 2, 3)}, "size must be \\(least, most\\)"),
            ({"size": ("1", None)}, "size must be \\(least, most\\)"),
            ({"size": (1.5, None)}, "size must be \\(least, most\\)"),
            ({"size": (9, 1)}, "least must not exceed most"),
            ({"mask": [True]}, "a mask must have 60 bools"),
            ({"mask": [1] * 60}, "a mask must be bool, got int64"),
            ({"mask": "cat"}, "one bool for each object"),
            ({"mask": bool}, "got type"),
            ({"labels": "cat"}, "objects have no label"),
        ],
    )
    def test_invalid_filter_conditions_are_refused_with_the_reason(self, pets, conditions, word):
        refused(Unusable, word, pets.filter, **conditions)

    def test_an_unknown_label_is_refused_with_those_there_are(self, pets):
        for label in ("bird", 2, -1, 1.5):
            refused(Unusable, r"unknown label.*'cat', 'dog'", pets.with_labels("folder").filter, labels=[label])

    def test_an_impossible_glob_is_refused(self, pets):
        refused(ConfigError, "invalid glob", pets.filter, include="[z-a]")

    def test_unknown_sizes_are_refused_and_not_taken_for_small(self):
        with pytest.raises(Unusable, match="1 objects have no known size"):
            Catalog.build("s3://b/", "", [Entry("a"), Entry("b", 1)]).filter(size=(None, 5))


# -- memory


@pytest.mark.parametrize("form", ["tar", "parquet", None])
def test_sums_and_copies_of_parts_need_little_memory_for_each_row(form):
    def make(count):
        given = [objects(count, end) if form is None else samples(count, form) for end in ("jpg", "json")]
        order = np.random.default_rng(1).permutation(count)
        return given[0], given[1][order]

    small = 20_000 if form is None else 50_000
    assert added_bytes(make, lambda one, two: one + two, small) < 32
    # Half of the rows are in any order.
    assert added_bytes(make, lambda one, two: two.with_columns(place=np.zeros(len(one), np.int8)), small) < 32
