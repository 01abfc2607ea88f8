"""A catalog is a sequence of entries that never asks the store, and that a million of cost a worker nothing."""

import multiprocessing
import pickle
import subprocess
import sys
import timeit
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import penstock as ps
from penstock.data.catalog.catalog import Catalog, Entry
from penstock.errors import Unusable
from penstock.values import Span
from tests.children import PEAK_KIB
from tests.data.catalog.conftest import PETS
from tests.refusals import refused


def _travelled(thing):
    return pickle.loads(pickle.dumps(thing))


def test_the_class_itself_is_not_called():
    refused(Unusable, r"Catalog\.scan, from_shards", Catalog, "s3://bucket/", "", None)


class TestSequence:
    def test_catalog_is_a_sequence_of_its_entries(self, pets):
        assert len(pets) == 4
        assert list(pets) == PETS
        assert [pets[i] for i in range(4)] == PETS
        assert [pets[i] for i in range(-4, 0)] == PETS

    @pytest.mark.parametrize("index", [4, -5])
    def test_past_the_end_is_an_index_error(self, pets, index):
        with pytest.raises(IndexError):
            pets[index]
        with pytest.raises(IndexError):
            pets.span(index)

    def test_numpy_integers_are_indices(self, pets):
        assert pets[np.int64(1)] == PETS[1]
        assert pets.span(np.int64(-1)).key == "pets/unknown"

    @given(st.lists(st.slices(4), max_size=3))
    def test_slices_are_those_of_a_list_slices_of_slices_too(self, slices):
        catalog, entries = Catalog.build("s3://bucket/", "pets/", PETS), PETS
        for each in slices:
            catalog, entries = catalog[each], entries[each]
        rebuilt = Catalog.build("s3://bucket/", "pets/", entries)
        assert list(catalog) == entries
        assert catalog.sizes.tolist() == [entry.size for entry in entries]
        assert catalog.digest == rebuilt.digest

    def test_none_is_a_catalog_too(self):
        empty = Catalog.build("s3://bucket/", "pets/", [])
        assert (len(empty), list(empty), empty.total_bytes, empty.base) == (0, [], 0, "pets/")
        assert empty.sizes.dtype == np.int64
        assert empty.digest == _travelled(empty).digest

    def test_repr_gives_the_object_count_and_stays_short(self, pets):
        assert repr(pets) == "<Catalog of 4 objects under s3://bucket/pets/>"


class TestColumns:
    def test_a_span_is_the_whole_object_pinned_to_its_version(self, pets):
        assert pets.span(0) == Span("pets/cat.jpg", 0, 10, "e1", whole=True)
        assert pets.span(1) == Span("pets/dog é 🐶.jpg", 0, 0, "", whole=True)
        assert pets.span(-1) == Span("pets/unknown", 0, None, "e3", whole=True)

    def test_a_span_costs_a_few_microseconds(self, pets):
        assert min(timeit.repeat(lambda: pets.span(2), number=1000, repeat=20)) < 3e-3

    def test_sizes_cannot_be_written(self, pets):
        assert pets.sizes.tolist() == [10, 0, 10, -1]
        for sizes in (pets.sizes, pets[::2].sizes):
            with pytest.raises(ValueError, match="read-only"):
                sizes[0] = 1

    def test_the_total_is_unknown_when_a_size_is(self, pets):
        assert pets.total_bytes == -1
        assert pets[:3].total_bytes == 20

    def test_a_key_outside_the_base_makes_all_names_full(self):
        assert Catalog.build("s3://bucket/", "pets/", [*PETS, Entry("other/x")]).base == ""


def test_a_pickle_carries_everything(pets):
    copy = _travelled(pets[1:])
    assert list(copy) == PETS[1:]
    assert (copy.root, copy.base) == ("s3://bucket/", "pets/")


def _use(catalog, pipe):
    """Walk all of it in a worker; tell the private memory of the process."""
    checked = sum(len(catalog.span(i).key) for i in range(len(catalog))) + int(catalog.sizes.sum())
    with Path("/proc/self/smaps_rollup").open() as lines:
        private = sum(int(line.split()[1]) * 1024 for line in lines if line.startswith("Private_"))
    pipe.send((checked, private))


def _private_bytes_of_a_worker(method, catalog, use=None):
    processes = multiprocessing.get_context(method)
    here, there = processes.Pipe()
    worker = processes.Process(target=use or _use, args=(catalog, there))
    worker.start()
    assert here.poll(120)
    checked, private = here.recv()
    worker.join()
    return checked, private


@pytest.fixture(scope="module")
def million():
    return Catalog.build(
        "s3://bucket/", "", (Entry(f"train/{i:07d}.jpg", i, None, f"{i:032x}") for i in range(1_000_000))
    )


@pytest.mark.skipif(not Path("/proc/self/smaps_rollup").exists(), reason="reads /proc")
@pytest.mark.parametrize("method", ["fork", "spawn"])
def test_a_million_keys_add_less_than_ten_megabytes_to_a_worker(method, million):
    """Trap 12: a list of a million strings is copied into every worker by its reference counts."""
    some = Catalog.build("s3://bucket/", "", [Entry("train/a", 1)])
    _, before = _private_bytes_of_a_worker(method, some)
    checked, after = _private_bytes_of_a_worker(method, million)
    assert checked == 17 * 1_000_000 + 999_999 * 500_000
    assert after - before < 10 * 1024 * 1024


@pytest.mark.skipif(sys.platform != "linux", reason="reads /proc")
def test_building_streams():
    """Half a million entries would be 100 MB as objects; the table and its copy are about 2 * 20 MB."""
    code = (
        PEAK_KIB + "from penstock.data.catalog.catalog import Catalog, Entry\n"
        "before = peak_kib()\n"
        "catalog = Catalog.build('s3://b/', '', (Entry(f'train/{i:07d}.jpg', i) for i in range(500_000)))\n"
        "print(peak_kib() - before)"
    )
    added = int(subprocess.run([sys.executable, "-c", code], check=True, capture_output=True, text=True).stdout)
    assert added < 60 * 1024


def _use_some(catalog, pipe):
    """Read one entry of a hundred, with its label and columns; tell the private memory of the process."""
    checked = 0
    for index in range(0, len(catalog), 100):
        checked += catalog.span(index).stop + catalog.label(index) + catalog.row(index)["number"]
    with Path("/proc/self/smaps_rollup").open() as lines:
        private = sum(int(line.split()[1]) * 1024 for line in lines if line.startswith("Private_"))
    pipe.send((checked, private))


@pytest.mark.skipif(not Path("/proc/self/smaps_rollup").exists(), reason="reads /proc")
def test_row_numbers_classes_and_columns_are_mapped_into_a_spawned_worker_too(million):
    count = len(million)
    wide = million.with_labels(np.arange(count) % 2, classes=["even", "odd"]).with_columns(number=np.arange(count))
    part = wide[np.arange(count)[::-1]]
    _, before = _private_bytes_of_a_worker("spawn", Catalog.build("s3://b/", "", [Entry("a", 1)]), _use)
    checked, after = _private_bytes_of_a_worker("spawn", part, _use_some)
    last = np.arange(count)[::-1][::100]
    assert checked == int((2 * last + last % 2).sum())
    assert after - before < 10 * 1024 * 1024


# -- digests


class TestDigest:
    def test_neither_place_nor_etag_nor_label_count(self, pets):
        moved = [Entry(entry.key.replace("pets/", "a/b/"), entry.size) for entry in PETS]
        assert Catalog.build("gs://elsewhere/", "a/b/", moved).digest == pets.digest

    @pytest.mark.parametrize(
        ("one", "other"),
        [
            ([Entry("ab", 1), Entry("c", 1)], [Entry("a", 1), Entry("bc", 1)]),
            ([Entry("a", 1), Entry("b", 2)], [Entry("a", 2), Entry("b", 1)]),
            ([Entry("a", 1), Entry("b", 1)], [Entry("b", 1), Entry("a", 1)]),
            ([Entry("a", 1)], [Entry("a", 1), Entry("a", 1)]),
            ([Entry("a", 1)], [Entry("a", -1)]),
            ([], [Entry("", 0)]),
        ],
    )
    def test_names_sizes_order_and_number_count(self, one, other):
        assert Catalog.build("s3://b/", "", one).digest != Catalog.build("s3://b/", "", other).digest

    def test_digest_value_stays_the_same_across_releases(self, pets):
        # A resume state of last year holds it: changing how it is computed refuses them all.
        assert pets.digest == "15dbd2e028e7e16ebd6a0b2ef21cccb3d662a0064283cce519399c42407bdf88"

    def test_digest_covers_entries_beyond_the_first_block(self):
        entries = [Entry(f"k{i}", i) for i in range(9000)]
        catalog = Catalog.build("s3://b/", "", entries)
        entries[8999] = Entry("k8999", 1)
        assert Catalog.build("s3://b/", "", entries).digest != catalog.digest

    def test_digest_is_computed_once_and_survives_pickling(self, pets):
        digest = pets.digest
        assert _travelled(pets).__dict__["digest"] == digest

    def test_different_ranges_of_an_object_have_different_digests(self):
        def digest(*entries):
            return Catalog.build("s3://b/", "", entries).digest

        found = [
            digest(Entry("a", 5), Entry("a", 5)),
            digest(Entry("a", 5, offset=0), Entry("a", 5)),
            digest(Entry("a", 5, offset=0), Entry("a", 5, offset=0)),
            digest(Entry("a", 5, offset=0), Entry("a", 5, offset=5)),
            digest(Entry("a", 5, offset=5), Entry("a", 5, offset=0)),
            digest(Entry("a", 5, offset=0), Entry("b", 5, offset=5)),
        ]
        assert len(set(found)) == len(found)
        assert found[3] == "8217f301a4d4c5a8336af03ff8e408fc267742b935097c320c01370ac055f000", (
            "a resume state of last year holds it"
        )

    @pytest.mark.parametrize("start", [0, 1])
    def test_digest_of_ranges_does_not_depend_on_how_the_table_numbers_objects(self, start):
        entries = [Entry(f"k{at // 3 % 2}", 5, offset=5 * at) for at in range(start, 40_000)]
        # Another ETag begins another object of the table.
        others = [each._replace(etag=str(at % 2)) for at, each in enumerate(entries)]
        catalog, other = (Catalog.build("s3://b/", "", each) for each in (entries, others))
        assert len(other._table.keys) > len(catalog._table.keys)
        shuffled = Catalog.build("s3://b/", "", entries[::-1])[::-1]
        assert catalog.digest == other.digest == shuffled.digest
        assert catalog.digest != Catalog.build("s3://b/", "", [*entries[:-1], entries[-1]._replace(key="k2")]).digest

    def test_a_part_without_a_range_has_the_digest_of_whole_objects(self):
        mixed = Catalog.build("s3://b/", "", [Entry("a", 5, offset=0), Entry("b", 5)])
        assert mixed[1:].digest == Catalog.build("s3://b/", "", [Entry("b", 5)]).digest


# -- refreshes


def test_refresh_finds_keys_that_sort_after_the_last_key(bucket):
    def put(key, data):
        bucket.client.put_object(Bucket=bucket.name, Key=key, Body=data)

    for at in range(5):
        put(f"log/{at:04}", b"x")
    old = ps.Catalog.scan(f"{bucket.url}log/", store=bucket.store)
    assert old.refresh(store=bucket.store) is old
    put("log/0009", b"yy")
    put("log/0000a", b"not noticed")
    new = old.refresh(store=bucket.store)
    assert [entry.key for entry in new] == [*(entry.key for entry in old), "log/0009"]
    assert new.sizes.tolist() == [1] * 5 + [2]


def test_refresh_refuses_unsupported_catalogs_with_the_reason(tree):
    scanned = ps.Catalog.scan(f"{tree}/")
    refused(Unusable, "not sorted", scanned[::-1].refresh)
    refused(Unusable, "labels=", scanned.refresh, labels="folder")
    refused(Unusable, "labels=", scanned.with_labels("folder").refresh)
    refused(Unusable, "labels=", scanned.with_columns(a=[1] * 30).refresh)
    refused(Unusable, "below", scanned.refresh, "memory://other/")
    assert list(scanned[:0].refresh()) == list(scanned)
    labelled = scanned[:12].with_labels("folder").refresh(labels="folder")
    assert list(labelled) == list(scanned.with_labels("folder"))
