"""Units of samples: rows taken and joined keep their units, files that contradict themselves are refused."""

import io
import pickle

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import penstock as ps
from penstock.data.catalog.catalog import Catalog, make_catalog
from penstock.data.catalog.columns.column import Strings
from penstock.data.catalog.columns.table import Table, ranges_of
from penstock.data.catalog.columns.units import UnitTable, units_of
from penstock.data.catalog.discovery.journal import shard_journal
from penstock.data.catalog.discovery.shards import KeptWalks, Shard
from penstock.data.catalog.saved import Saved, load, save
from penstock.data.shards.format import Extents, Units
from penstock.data.shards.parquet import ParquetFormat
from penstock.errors import ManifestError, Unusable
from penstock.values import Span
from tests.refusals import refused

ROOT = "memory://bucket/"


def strings(texts):
    return Strings(memoryview(b"".join(texts)), memoryview(np.cumsum([0, *map(len, texts)], dtype=np.uint64)))


def catalog_of(shards):
    """Return a catalog of shards, each a list of units: the number of samples and the ranges."""
    units, offsets = [], []
    shards = [shard for shard in shards if shard]
    for shard in shards:
        counts = [count for count, _ in shard]
        ranges = [each for _, found in shard for each in found]
        columns = (
            np.cumsum([0, *counts])[:-1],
            [sum(stop - start for start, stop in found) * 3 for _, found in shard],
            np.cumsum([len(found) for _, found in shard]),
            [start for start, _ in ranges],
            [stop for _, stop in ranges],
        )
        units.append(Units(*(np.array(each, dtype=np.int64) for each in columns)))
        offsets.append(np.arange(sum(counts)))
    numbers = np.concatenate([np.zeros(0, np.int64), *offsets])
    objects = np.repeat(np.arange(len(shards)), [len(each) for each in offsets])
    table = Table.of(
        np.ones(len(numbers), np.int64),
        strings([b"shards/%d" % number for number in range(len(shards))]),
        strings([b"e%d" % number for number in range(len(shards))]),
        strings([b""] * len(numbers)),
        ranges_of(objects, numbers),
    )
    return make_catalog(ROOT, "shards/", table.having(format=ParquetFormat(), units=units_of(units, offsets)))


def ranges(catalog):
    """Return, for each entry, its spans, its number within the unit, and the number of the unit's first sample."""
    units = catalog.units
    return [(units.spans(at), *units.place(at)[1:]) for at in range(len(catalog))]


@st.composite
def places(draw):
    borders = sorted(draw(st.sets(st.integers(0, 1000), min_size=2, max_size=6)))
    return [*zip(borders[::2], borders[1::2], strict=False)]


SHARDS = st.lists(st.lists(st.tuples(st.integers(1, 4), places()), max_size=3), max_size=4)


@given(SHARDS, st.data())
def test_parts_and_sums_of_catalogs_keep_the_units_of_their_entries(shards, data):
    catalog = catalog_of(shards)
    expected = ranges(catalog)
    count = len(catalog)
    chosen = data.draw(st.lists(st.integers(0, count - 1), max_size=9) if count else st.just([]))
    assert ranges(catalog[chosen]) == [expected[at] for at in chosen]
    assert ranges(catalog[::-2]) == expected[::-2]
    taken = make_catalog(ROOT, "shards/", catalog[chosen]._table.take(np.array(chosen, dtype=np.int64)))
    assert ranges(taken) == [expected[at] for at in chosen]
    both = taken + catalog_of(shards)
    assert ranges(both) == [expected[at] for at in chosen] + expected
    both._table.check()
    assert ranges(pickle.loads(pickle.dumps(both))) == ranges(both)


@given(SHARDS)
def test_saved_catalog_has_its_units_and_a_copy_of_the_objects_elsewhere(tmp_path_factory, shards):
    catalog, file = catalog_of(shards), tmp_path_factory.getbasetemp() / "catalog"
    catalog.save(file)
    found = Catalog.open(file, root=ROOT + "shards/")
    assert ranges(found) == ranges(catalog)
    moved = Catalog.open(file, root="memory://other/below/")
    renamed = [
        ([span._replace(key=f"below/{span.key[7:]}", etag="") for span in spans], *more)
        for spans, *more in ranges(catalog)
    ]
    assert ranges(moved) == renamed


def test_units_of_entries_by_number_with_their_sizes_and_cover():
    far = 100_000
    catalog = catalog_of([[(2, [(0, 5), (9, 10), (far, far + 2)]), (1, [(20, 21)])], [(3, [(0, 7)])]])
    units = catalog.units
    assert units.of(np.arange(6)).tolist() == [0, 0, 1, 2, 2, 2]
    assert catalog[::-1].units.of(np.arange(6)).tolist() == [2, 2, 2, 1, 0, 0]
    assert units.units.sizes().tolist() == [24, 3, 21]
    assert catalog.span(1) == Span("shards/0", 0, far + 2, "e0")
    assert [(each.start, each.stop) for each in catalog.fetched()] == [(0, 10), (far, far + 2), (20, 21), (0, 7)]
    assert [*catalog[[4, 1, 5]].fetched()] == [*catalog[[3, 0]].fetched()]
    assert "6 samples in 2 parquet shards" in repr(catalog)


def test_pieces_are_the_ranges_of_a_unit_cut_from_its_spans():
    ranges = [(3, 5), (5, 9), (20, 22), (90_000, 90_007)]
    units = catalog_of([[(1, [(0, 3)]), (2, ranges)]]).units
    data = bytes(range(256)) * 400
    spans = units.spans(2)
    assert [(each.start, each.stop) for each in spans] == [(3, 22), (90_000, 90_007)]
    pieces = units.pieces(2, ((each, data[each.start : each.stop]) for each in spans))
    assert [(each.start, bytes(each.data)) for each in pieces] == [(start, data[start:stop]) for start, stop in ranges]


def columns(**changes):
    known = {
        "rows": [0, 0, 1],
        "firsts": [0, 2],
        "decoded": [1, 1],
        "ends": [2, 3],
        "starts": [0, 9, 20],
        "stops": [5, 10, 21],
    }
    return UnitTable.of([np.array(each, dtype=np.int64) for each in (known | changes).values()])


HOSTILE = {
    "row of no unit": {"rows": [0, 0, 2]},
    "negative unit": {"rows": [0, 0, -1]},
    "too few rows": {"rows": [0, 1]},
    "row before its unit": {"firsts": [0, 3]},
    "negative first": {"firsts": [-5, 2]},
    "negative bytes": {"decoded": [1, -1]},
    "unequal lengths": {"decoded": [1]},
    "unit without ranges": {"ends": [0, 3]},
    "descending ends": {"ends": [3, 2]},
    "ranges of no unit": {"ends": [1, 2]},
    "ends beyond the ranges": {"ends": [2, 1 << 40]},
    "empty range": {"stops": [5, 9, 21]},
    "negative start": {"starts": [-1, 9, 20]},
    "ranges over each other": {"starts": [0, 4, 20]},
    "unequal ranges": {"stops": [5, 10]},
    "unit of two objects": {"rows": [0, 1, 1], "firsts": [0, 0]},
}


@pytest.mark.parametrize("changes", HOSTILE.values(), ids=HOSTILE.keys())
def test_columns_that_contradict_each_other_are_refused(changes):
    objects, offsets = np.array([0, 0, 1]), np.array([0, 1, 2])
    columns().check(objects, offsets)
    refused(ValueError, "unit", columns(**changes).check, objects, offsets)


def test_journal_of_an_interrupted_index_keeps_units(tmp_path):
    shard = Shard("shards/0", 99, "e0")
    units = Units(*(np.array(each) for each in ([0, 2], [5, 6], [1, 3], [0, 9, 20], [5, 10, 21])))
    found = Extents(np.arange(3), np.ones(3, np.int64), (), [["a", "int64"]], units)
    with shard_journal(tmp_path / "partial", {}) as journal:
        KeptWalks(print, journal).add(shard, found)
    with shard_journal(tmp_path / "partial", {}) as journal:
        known = KeptWalks(print, journal).known(shard)
    assert [each.tolist() for each in known.units] == [each.tolist() for each in units]
    assert {each.dtype for each in known.units} == {np.dtype(np.int64)}


def test_entries_in_units_are_not_joined_with_others():
    catalog = catalog_of([[(2, [(0, 5)])]])
    refused(Unusable, "entries of 'a' are in units", ps.Catalog.join, {"a": catalog, "b": catalog}, on=["x", "y"])


def test_file_whose_format_and_units_do_not_fit_is_refused():
    catalog = catalog_of([[(2, [(0, 5)])]])
    for changes in ({"units": None}, {"format": None}):
        file = io.BytesIO()
        save(file, Saved(ROOT, "shards/", catalog.digest, catalog._table.having(**changes)))
        file.seek(0)
        file.size = len(file.getvalue())
        refused(ManifestError, "units of samples", load, file)
