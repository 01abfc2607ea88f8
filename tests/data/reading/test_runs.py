"""Neighbours in shards are read together, each byte once; a unit is decoded once, and let go after its last row."""

from __future__ import annotations

import gc
import random
import weakref
from collections import Counter
from functools import partial
from zipfile import ZIP_DEFLATED

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from pyarrow import parquet

import penstock as ps
from penstock.data.catalog.catalog import Catalog, Entry
from penstock.data.catalog.contents import GAP_BYTES, Contents
from penstock.data.order.orders import CatalogOrder, FullShuffle
from penstock.data.reading import runs
from penstock.data.reading.runs import fitted_order, merged_spans, runs_of
from penstock.data.shards.parquet import ParquetFormat
from penstock.errors import Damaged, Unusable
from penstock.testing.restarts import check_restarts
from penstock.values import Span
from tests.amounts import examples
from tests.data.catalog.large import samples
from tests.data.reads import spans_of
from tests.data.shards.archives import tar, tfrecord, zipped

SHARDS, EACH = 4, 60


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    folder, draw = tmp_path_factory.mktemp("shards"), random.Random(0)
    for shard in range(SHARDS):
        members = [
            (f"{shard}{at:03}.{end}", draw.randbytes(draw.randrange(3000)) if end == "bin" else b"%d" % at)
            for at in range(EACH)
            for end in ("bin", "cls")
        ]
        (folder / f"{shard}.tar").write_bytes(tar(members))
    return folder


def pair(sample):
    return sample.key, bytes(sample["bin"].data), int(sample["cls"].read())


@pytest.fixture(scope="module")
def expected(folder):
    dataset = ps.MapDataset.from_shards(f"{folder}/", transform=pair)
    return [dataset[at] for at in range(len(dataset))]


ORDERS = {
    "catalog": False,
    "full": True,
    "blocks": ps.order.BlockShuffle(block_bytes=20_000, window_blocks=4),
    "lanes": ps.order.Lanes(block_bytes=20_000, window_blocks=4),
    "by-number": ps.order.BlockShuffle(7, 3),
    "lanes-in-order": ps.order.Lanes(9, shuffle=False),
    "defaults": ps.order.Lanes(),
}


@pytest.mark.parametrize("order", ["blocks", "lanes", "catalog", "defaults"])
def test_each_byte_is_read_once_in_few_requests(folder, order):
    dataset = ps.MapDataset.from_shards(f"{folder}/", transform=pair)
    loader = ps.DataLoader(dataset, 16, shuffle=ORDERS[order], collate_fn=list)
    for _ in loader:
        pass
    stats = loader.stats().total
    # Beside the samples, the padding between members.
    assert dataset.catalog.total_bytes <= stats.size_bytes <= dataset.catalog.total_bytes + SHARDS * EACH * 512
    assert stats.requests < SHARDS * EACH // 3


def test_read_from_ranks_each_byte_is_read_by_one_rank_in_lanes(folder, expected):
    dataset = ps.MapDataset.from_shards(f"{folder}/", transform=pair)
    order = ps.order.Lanes(block_bytes=20_000, window_blocks=2)
    found, requests = [], 0
    for rank in range(2):
        loader = ps.DataLoader(dataset, 8, shuffle=order, collate_fn=list, place=ps.Place(rank, 2))
        found += [each for batch in loader for each in batch]
        requests += loader.stats().total.requests
    assert sorted(found) == sorted(expected)
    blocks = len(runs_of(dataset.catalog, fitted_order(order, dataset.catalog)).starts) - 1
    assert requests <= blocks + 1


WRITERS = {
    "zip": lambda payloads: zipped([(f"{at}.bin", each) for at, each in enumerate(payloads)], ZIP_DEFLATED),
    "streamed.zip": lambda payloads: zipped([(f"{at}.bin", each) for at, each in enumerate(payloads)], streamed=True),
    "jsonl": b"\r\n".join,
    "tfrecord": tfrecord,
}


@pytest.mark.parametrize("end", WRITERS)
def test_every_format_delivers_each_sample_once_on_two_ranks_and_after_a_restart(tmp_path, end):
    draw = random.Random(0)
    payloads = [[draw.randbytes(draw.randrange(1, 400)).hex().encode() for _ in range(30)] for _ in range(3)]
    for shard, each in enumerate(payloads):
        (tmp_path / f"{shard}.{end}").write_bytes(WRITERS[end](each))
    fields = "bin" if "zip" in end else None
    dataset = ps.MapDataset.from_shards(tmp_path, fields=fields, transform=lambda sample: sample.read())
    expected = sorted(each for shard in payloads for each in shard)
    for order in (False, True, ps.order.Lanes(block_bytes=5000, window_blocks=2)):
        loaders = [ps.DataLoader(dataset, 7, shuffle=order, collate_fn=list, place=ps.Place(at, 2)) for at in (0, 1)]
        assert sorted(each for loader in loaders for batch in loader for each in batch) == expected
    order = ps.order.BlockShuffle(block_bytes=5000, window_blocks=2)
    check_restarts(lambda: ps.DataLoader(dataset, 16, shuffle=order, seed=5, collate_fn=list))


def test_damaged_sample_is_skipped_and_named_or_raised(folder, tmp_path):
    for path in folder.iterdir():
        data = bytearray(path.read_bytes())
        if path.name == "1.tar":
            catalog = ps.Catalog.from_shards(f"{folder}/")
            start = catalog[EACH + 3].offset
            data[start + 148 : start + 156] = b"77777777"
        (tmp_path / path.name).write_bytes(bytes(data))
    catalog.save(tmp_path / "catalog")
    moved = ps.Catalog.open(tmp_path / "catalog", root=tmp_path)
    dataset = ps.MapDataset(moved, transform=pair)
    loader = ps.DataLoader(dataset, 16, shuffle=ORDERS["blocks"], collate_fn=list, on_error="skip")
    assert sum(map(len, loader)) == SHARDS * EACH - 1
    [skipped] = loader.skipped
    assert skipped.url == f"file://{tmp_path}/1.tar#bytes={start}-{start + catalog[EACH + 3].size - 1}"
    assert dataset.url_of(EACH + 3) == skipped.url
    with pytest.raises(Damaged, match=r"no tar header.*1\.tar"):
        list(ps.DataLoader(dataset, 16, shuffle=ORDERS["blocks"], collate_fn=list))


@given(
    st.lists(st.tuples(st.integers(0, 3), st.integers(0, 200_000), st.integers(0, 90_000)), min_size=1, max_size=60),
    st.integers(1, 300_000),
    st.booleans(),
)
@settings(max_examples=examples(150))
def test_runs_are_neighbours_of_one_object_in_order(drawn, block_bytes, ordered):
    entries = [
        Entry(f"o{number}", size, offset=offset) for number, offset, size in (sorted(drawn) if ordered else drawn)
    ]
    catalog = Catalog.build("memory://bucket/", "", entries)
    order = fitted_order(ps.order.BlockShuffle(block_bytes=block_bytes), catalog)
    for each in (order, CatalogOrder(), ps.order.BlockShuffle(5), ps.order.Lanes(3)):
        runs = runs_of(catalog, each)
        assert runs.starts[0] == 0
        assert runs.starts[-1] == len(entries)
        assert (np.diff(runs.starts) > 0).all()
        numbers = runs.of(np.arange(len(entries)))
        for number, entry in zip(numbers.tolist(), entries, strict=True):
            span = runs.span(number)
            assert span.key == entry.key
            assert span.start <= entry.offset <= entry.offset + entry.size <= span.stop
    assert runs_of(catalog, FullShuffle()) is None


def _looked_at(monkeypatch, catalog, shuffle):
    """Return how many entries are looked at one by one to make an order and its runs."""
    looked = []
    for name in ("extents", "offsets"):
        method = getattr(Contents, name)

        def counted(self, *places, method=method):
            found = method(self, *places)
            values = found[0] if isinstance(found, tuple) else found
            # A view is not read.
            looked.append(0 if values is None or values.base is not None else len(values))
            return found

        monkeypatch.setattr(Contents, name, counted)
    runs_of(catalog, fitted_order(shuffle, catalog))
    monkeypatch.undo()
    return sum(looked)


@pytest.mark.parametrize("shuffle", [ps.order.Lanes(), ps.order.BlockShuffle(), False])
def test_entries_are_looked_at_once_for_all_orders(monkeypatch, shuffle):
    for count in (1000, 10_000, 100_000):
        catalog = samples(count)
        assert count <= _looked_at(monkeypatch, catalog, shuffle) < count + 100
        assert _looked_at(monkeypatch, catalog, shuffle) < 100
        assert _looked_at(monkeypatch, catalog, ps.order.Lanes(shuffle=False)) < 100


@given(st.lists(st.tuples(st.integers(0, 2), st.integers(0, 30), st.integers(0, 9)), max_size=40), st.integers(1, 9))
def test_stretches_are_found_alike_one_by_one_and_all_together(drawn, block_bytes):
    at, entries = 0, list[Entry]()
    for kind, step, size in drawn:
        at = 0 if kind == 1 else at + (step << 13 if kind == 2 else step)
        entries.append(Entry("x", size, offset=at))
        at += size
    catalog = Catalog.build("memory://bucket/", "", entries)
    found = []
    for few in (0, 1 << 60):
        with pytest.MonkeyPatch.context() as patched:
            patched.setattr(runs, "_FEW", few)
            found.append(runs.block_sizes(catalog, block_bytes).tolist())
    assert found[0] == found[1]
    starts = [
        0 < at < len(entries)
        and entries[at].offset // block_bytes == entries[at - 1].offset // block_bytes
        and 0 <= entries[at].offset - entries[at - 1].offset - entries[at - 1].size <= GAP_BYTES
        for at in range(len(entries) + 1)
    ]
    assert np.cumsum([0, *found[0]]).tolist() == [at for at, inside in enumerate(starts) if not inside]


def test_whole_objects_have_no_runs_and_blocks_by_their_sizes():
    catalog = Catalog.build("memory://bucket/", "", [Entry(f"{at}", 300_000) for at in range(10)])
    assert runs_of(catalog, CatalogOrder()) is None
    order = fitted_order(ps.order.BlockShuffle(block_bytes=1_000_000), catalog)
    assert order.block_samples.tolist() == [4, 3, 3]
    unknown = Catalog.build("memory://bucket/", "", [Entry("a")])
    with pytest.raises(Unusable, match="not all sizes are known"):
        fitted_order(ps.order.Lanes(), unknown)


@given(st.lists(st.tuples(st.sampled_from("ab"), st.integers(0, 400_000), st.integers(0, 90_000)), max_size=40))
@settings(max_examples=examples(150))
def test_merged_spans_hold_every_span_and_few_bytes_more(drawn):
    spans = [Span(key, start, start + size) for key, start, size in drawn]
    read, places = merged_spans(spans)
    for span, (number, start, stop) in zip(spans, places, strict=True):
        whole = read[number]
        assert (whole.key, whole.start + start, whole.start + stop) == (span.key, span.start, span.stop)
        assert stop <= whole.stop - whole.start
    gaps = (len(spans) + 1) * (64 << 10)
    assert sum(each.stop - each.start for each in read) <= sum(size for *_, size in drawn) + gaps


def test_neighbours_of_a_batch_are_read_in_one_request(folder, expected):
    dataset = ps.MapDataset.from_shards(f"{folder}/", transform=pair)
    sampler = ps.BatchSampler(dataset, 32, shuffle=ps.order.BlockShuffle(block_bytes=30_000, window_blocks=2))
    found = [each for batch in sampler for each in dataset.__getitems__(batch)]
    assert sorted(found) == sorted(expected)
    assert dataset.__getitems__([5, 3, 5, 4]) == [expected[at] for at in (5, 3, 5, 4)]


@pytest.mark.parametrize("order", [False, ps.order.Lanes(), ps.order.Lanes(3000, 2)])
def test_runs_of_more_samples_than_are_known_ahead_are_read_once(tmp_path, order):
    (tmp_path / "a").write_bytes(bytes(6_000_000))
    key = f"{tmp_path}/a".lstrip("/")
    catalog = Catalog.build("file:///", "", [Entry(key, 100, offset=at * 100) for at in range(60_000)])
    loader = ps.DataLoader(ps.MapDataset(catalog, transform=lambda sample: sample.size), 32, shuffle=order)
    for _ in loader:
        pass
    assert loader.stats().total.size_bytes == 6_000_000


class TestWeightedShuffles:
    """Classes of a weighted shuffle are labels, or values of a column, of the dataset that is given the order."""

    @pytest.fixture
    def dataset(self, tmp_path):
        for name, count in (("a", 30), ("b", 6), ("c", 12)):
            (tmp_path / name).mkdir()
            for number in range(count):
                (tmp_path / name / f"{number:03}").write_bytes(b"")
        return ps.MapDataset.from_prefix(f"{tmp_path}/", labels="folder", transform=lambda sample: sample.key[-5:])

    @pytest.mark.parametrize("iterable", [False, True])
    def test_all_classes_come_equally_often(self, dataset, iterable):
        order, options = ps.order.WeightedShuffle(epoch_samples=60), {"collate_fn": list}
        if iterable:
            again = ps.IterableDataset(dataset.catalog, transform=dataset.transform, shuffle=order)
            loader = ps.DataLoader(again, 20, **options)
        else:
            loader = ps.DataLoader(dataset, 20, shuffle=order, num_workers=1, **options)
        found = Counter(name[0] for batch in loader for name in batch)
        assert found == {"a": 20, "b": 20, "c": 20}
        check_restarts(lambda: ps.DataLoader(dataset, 7, shuffle=order, **options))

    def test_a_concatenation_has_the_classes_of_all_parts(self, dataset):
        both = ps.concat(dataset[:33], dataset[33:])
        loader = ps.DataLoader(both, 20, shuffle=ps.order.WeightedShuffle({"a": 0, "b": 1, "c": 3}), collate_fn=list)
        found = Counter(name[0] for batch in loader for name in batch)
        assert found == {"b": 12, "c": 36}

    def test_a_column_has_classes_too(self, dataset):
        dataset.catalog = dataset.catalog.with_columns(even=[number % 2 == 0 for number in range(48)])
        order = ps.order.WeightedShuffle({"True": 1, "False": 0}, by="even")
        sampler = ps.BatchSampler(dataset, 8, shuffle=order)
        assert {index % 2 for batch in sampler for index in batch} == {0}
        with pytest.raises(Unusable, match="no column 'odd'"):
            ps.DataLoader(dataset, 8, shuffle=ps.order.WeightedShuffle(by="odd"))

    def test_a_dataset_without_classes_is_refused(self, dataset):
        plain = ps.MapDataset.from_prefix(dataset.catalog.root + dataset.catalog.base)
        with pytest.raises(Unusable, match="no classes"):
            ps.DataLoader(plain, 8, shuffle=ps.order.WeightedShuffle())
        with pytest.raises(Unusable, match="needs a dataset with a catalog"):
            ps.BatchSampler(range(10), 2, shuffle=ps.order.WeightedShuffle())
        by_sample = ps.order.WeightedShuffle([1] * 9 + [0])
        assert sorted(sum(ps.BatchSampler(range(10), 2, shuffle=by_sample), [])) == [*range(9)]


FILES, ROWS, GROUP = 3, 200, 24
UNITS = FILES * -(-ROWS // GROUP)


@pytest.fixture(scope="module")
def unit_folder(tmp_path_factory):
    unit_folder = tmp_path_factory.mktemp("rows")
    draw = np.random.default_rng(0)
    for file in range(FILES):
        numbers = np.arange(ROWS) + file * ROWS
        table = pa.table({"number": numbers, "data": [draw.bytes(500) for _ in numbers], "more": [b"x" * 900] * ROWS})
        parquet.write_table(table, unit_folder / f"{file}.parquet", row_group_size=GROUP, compression="none")
    return unit_folder


def unit_pair(sample):
    return sample["number"], bytes(sample["data"].data)


def dataset_of(unit_folder, kind=ps.MapDataset, **arguments):
    return kind.from_shards(f"{unit_folder}/", fields=("number", "data"), transform=unit_pair, **arguments)


def unit_spans(dataset):
    """Return the spans of each unit, also those that several units have in common."""
    units, count = dataset.catalog.units, len(dataset.catalog)
    firsts = [at for at in range(count) if not units.place(at).number]
    return [span for at in firsts for span in units.spans(at)]


@pytest.fixture(scope="module")
def unit_rows(unit_folder):
    tables = [parquet.read_table(unit_folder / f"{file}.parquet").to_pylist() for file in range(FILES)]
    return [(row["number"], row["data"]) for table in tables for row in table]


UNIT_ORDERS = {
    "catalog": False,
    "lanes": ps.order.Lanes(),
    "blocks": ps.order.BlockShuffle(),
    "small-window": ps.order.Lanes(block_bytes=10_000, window_blocks=4),
    "large-blocks": ps.order.BlockShuffle(block_bytes=50_000, window_blocks=2),
    "lanes-in-order": ps.order.Lanes(lanes=8, shuffle=False),
}


@pytest.mark.parametrize("order", UNIT_ORDERS.values(), ids=UNIT_ORDERS.keys())
def test_each_range_is_read_once_in_an_epoch(unit_folder, order):
    dataset = dataset_of(unit_folder)
    loader = ps.DataLoader(dataset, 16, shuffle=order, collate_fn=list)
    for _ in loader:
        pass
    fetched, stats = unit_spans(dataset), loader.stats().total
    # A footer that a unit has in common with one before is read again only if that is not decoded yet.
    assert UNITS <= stats.requests <= len(fetched) <= 2 * UNITS
    assert sum(span.stop - span.start for span in {*fetched}) <= stats.size_bytes
    assert stats.size_bytes <= sum(span.stop - span.start for span in fetched)
    # To warm a cache, each range comes once: a footer belongs to every unit of its file.
    spans = spans_of(dataset)
    assert len({*spans}) == len(spans) < len(fetched)
    assert {*spans_of(loader)} == {*spans}


@pytest.mark.parametrize("order", [False, ps.order.Lanes()])
def test_footer_that_was_read_is_not_read_again(tmp_path, order):
    draw = np.random.default_rng(0)
    data = [bytes([number]) * (24 << 20) for number in range(12)]
    # The column between keeps the wanted ones apart from the footer.
    table = pa.table({"data": data, "between": [draw.bytes(50_000) for _ in data]})
    parquet.write_table(table, tmp_path / "0.parquet", row_group_size=1, compression="zstd", use_dictionary=False)
    dataset = ps.MapDataset.from_shards(tmp_path, fields="data", transform=lambda sample: sample.data[0])
    fetched = len(unit_spans(dataset))
    loader = ps.DataLoader(dataset, 1, shuffle=order, collate_fn=list)
    assert sorted(each for batch in loader for each in batch) == [*range(12)]
    assert fetched >= 23
    # Only the units that come before the first one is decoded read it, too.
    assert loader.stats().total.requests <= (18 if order is False else fetched)


def test_ranks_share_the_units_of_lanes(unit_folder, unit_rows):
    found, requests = [], 0
    for rank in range(2):
        loader = ps.DataLoader(
            dataset_of(unit_folder), 8, shuffle=UNIT_ORDERS["small-window"], collate_fn=list, place=ps.Place(rank, 2)
        )
        found += [each for batch in loader for each in batch]
        requests += loader.stats().total.requests
    assert sorted(found) == unit_rows
    # One unit lies across the border of the ranks, and is two requests.
    assert requests <= len(unit_spans(dataset_of(unit_folder))) + 2


@pytest.fixture
def kinds(folder, expected, unit_folder, unit_rows):
    """Return for each kind of shards a function that makes a dataset, and its samples."""

    def archives(kind=ps.MapDataset, **arguments):
        return kind.from_shards(f"{folder}/", transform=pair, **arguments)

    return {"tar": (archives, expected), "parquet": (partial(dataset_of, unit_folder), unit_rows)}


CASES = [("tar", name) for name in ORDERS] + [("parquet", name) for name in UNIT_ORDERS]


@pytest.mark.parametrize(("end", "name"), CASES)
@pytest.mark.parametrize("workers", [0, 2])
def test_every_sample_comes_once_with_its_bytes(kinds, end, name, workers):
    (make, samples), order = kinds[end], (ORDERS if end == "tar" else UNIT_ORDERS)[name]
    loader = ps.DataLoader(make(), 16, shuffle=order, collate_fn=list, num_workers=workers)
    for _ in range(2):
        found = [each for batch in loader for each in batch]
        assert sorted(found) == sorted(samples)
    # On one rank, nine lanes by default are one.
    assert (found == samples) is (order is False or order == ORDERS["lanes-in-order"])


@pytest.mark.parametrize(("end", "name"), CASES)
def test_iterable_and_map_read_the_same_samples(kinds, end, name):
    make, order = kinds[end][0], (ORDERS if end == "tar" else UNIT_ORDERS)[name]
    streamed = make(ps.IterableDataset, shuffle=order, seed=3)
    loader = ps.DataLoader(make(), 1, shuffle=order, seed=3, collate_fn=list)
    assert [*streamed] == [each for batch in loader for each in batch]


@pytest.mark.parametrize(
    ("end", "name"), [case for case in CASES if case[1] in {"blocks", "lanes", "by-number", "small-window", "catalog"}]
)
def test_every_restart_goes_on_exactly(kinds, end, name):
    make, order = kinds[end][0], (ORDERS if end == "tar" else UNIT_ORDERS)[name]
    batch = 32 if end == "tar" else 64

    def load():
        dataset = make()
        # Small values, because each restart compares all of them.
        dataset.transform = _first_value
        return ps.DataLoader(dataset, batch, shuffle=order, seed=5, collate_fn=list)

    check_restarts(load)


def _first_value(sample):
    return pair(sample)[0] if "bin" in sample else sample["number"]


@pytest.mark.parametrize(
    "make",
    [
        lambda unit_folder: ps.DataLoader(dataset_of(unit_folder), 8, shuffle=True),
        lambda unit_folder: dataset_of(unit_folder).batched(8, shuffle=True),
        lambda unit_folder: dataset_of(unit_folder, ps.IterableDataset, shuffle=True),
    ],
    ids=["loader", "batched", "iterable"],
)
def test_full_shuffle_is_refused_with_advice(unit_folder, make):
    with pytest.raises(Unusable, match=r"shuffle=ps\.order\.Lanes\(\)"):
        make(unit_folder)


def test_blocks_of_samples_must_be_whole_units(unit_folder, unit_rows):
    with pytest.raises(Unusable, match="block_samples would cut units"):
        ps.DataLoader(dataset_of(unit_folder), 8, shuffle=ps.order.BlockShuffle(30))
    order = ps.order.BlockShuffle([200, 24, 24, 152, 200], 2)
    loader = ps.DataLoader(dataset_of(unit_folder), 8, shuffle=order, collate_fn=list)
    assert sorted(each for batch in loader for each in batch) == unit_rows
    # Each unit once; units of a file may share a range, which the later ones then need not read.
    assert len(unit_rows) // 30 < loader.stats().total.requests <= len(unit_spans(dataset_of(unit_folder)))


def test_window_is_as_many_units_as_its_bytes_allow(unit_folder):
    catalog = dataset_of(unit_folder).catalog
    each = int(catalog.units.units.sizes().sum()) // UNITS
    assert fitted_order(ps.order.Lanes(), catalog).window_blocks == 160
    order = fitted_order(ps.order.Lanes(block_bytes=each // 2 + 1, window_blocks=10), catalog)
    assert (len(order.block_samples), order.window_blocks) == (UNITS, 5)
    assert fitted_order(ps.order.Lanes(block_bytes=1, window_blocks=1), catalog).window_blocks == 1
    assert fitted_order(ps.order.Lanes(block_bytes=1, window_blocks=9), catalog).window_blocks == 2
    assert len(fitted_order(ps.order.BlockShuffle(block_bytes=3 * each), catalog).block_samples) < UNITS
    assert runs_of(catalog, CatalogOrder()).held_bytes() == catalog.units.units.sizes().sum()


ALIVE = weakref.WeakSet()


class Counted(ParquetFormat):
    """Parquet files whose decoded units are counted while they are in memory."""

    decodes = 0
    most = 0

    def decode(self, pieces, first):
        found = super().decode(pieces, first)
        Counted.decodes += 1
        ALIVE.add(found)
        Counted.most = max(Counted.most, len(ALIVE))
        return found


@pytest.fixture
def counted(unit_folder):
    Counted.decodes = Counted.most = 0
    return ps.MapDataset.from_shards(f"{unit_folder}/", format=Counted(("number", "data")), transform=unit_pair)


def test_batch_by_index_decodes_each_of_its_units_once_and_keeps_its_order(counted, unit_rows):
    rows = [5, 3, 205, 4, -1, 206, 30, 29, 5]
    assert counted.__getitems__(rows) == [unit_rows[row] for row in rows]
    assert Counted.decodes == 4
    assert [counted[row] for row in rows] == [unit_rows[row] for row in rows]
    assert Counted.decodes == 4 + len(rows)
    with pytest.raises(IndexError):
        counted[FILES * ROWS]


def test_units_are_let_go_after_their_last_row(counted):
    for _ in counted.batched(16, list, shuffle=ps.order.Lanes(block_bytes=1, window_blocks=2)):
        pass
    gc.collect()
    assert (Counted.decodes, len(ALIVE)) == (UNITS, 0)
    Counted.decodes = Counted.most = 0
    assert len([*counted]) == FILES * ROWS
    gc.collect()
    assert (Counted.decodes, len(ALIVE)) == (UNITS, 0)
    assert Counted.most <= 3


def test_parts_read_their_rows_only_and_keep_the_units(unit_folder, unit_rows):
    part = dataset_of(unit_folder)[::7]
    assert [*part] == unit_rows[::7]
    loader = ps.DataLoader(part, 4, shuffle=ps.order.Lanes(), collate_fn=list)
    assert sorted(each for batch in loader for each in batch) == unit_rows[::7]
    first = dataset_of(unit_folder)[:10]
    assert len(spans_of(first)) <= 2
    assert len(spans_of(first, [[1, 2], [3]])) <= 2


def test_subclass_that_overrides_reading_still_reads_rows(unit_folder, unit_rows):
    class Doubled(ps.MapDataset):
        def __getitems__(self, indices):
            return [2 * number for number, _ in super().__getitems__(indices)]

    dataset = Doubled.from_shards(f"{unit_folder}/", fields=("number", "data"), transform=unit_pair)
    loader = ps.DataLoader(dataset[:20], 5, collate_fn=list)
    assert [each for batch in loader for each in batch] == [2 * number for number, _ in unit_rows[:20]]


def test_labels_columns_and_repeats_are_those_of_the_row(unit_folder):
    catalog = ps.Catalog.from_shards(f"{unit_folder}/", fields=("number",), labels=r"(\d)\.parquet").with_columns(
        twice=np.arange(FILES * ROWS) * 2
    )
    for sample in ps.MapDataset(catalog)[::50]:
        assert (sample.label, sample.columns["twice"]) == (sample["number"] // ROWS, sample["number"] * 2)
        assert (sample.key, sample.fields) == ("", ("number",))


def test_damaged_unit_is_skipped_by_its_rows_or_raised_with_the_file(unit_folder, tmp_path):
    catalog = dataset_of(unit_folder).catalog
    damaged = catalog.units.spans(ROWS + 1)[0]
    for path in unit_folder.iterdir():
        data = bytearray(path.read_bytes())
        if path.name == "1.parquet":
            data[damaged.start : damaged.start + 64] = bytes(64)
        (tmp_path / path.name).write_bytes(bytes(data))
    catalog.save(tmp_path / "catalog")
    dataset = ps.MapDataset(ps.Catalog.open(tmp_path / "catalog", root=tmp_path), transform=unit_pair)
    loader = ps.DataLoader(dataset, 64, collate_fn=list, on_error="skip")
    assert sum(map(len, loader)) == FILES * ROWS - GROUP
    assert {each.url.rpartition("/")[2] for each in loader.skipped} == {f"1.parquet#sample={at}" for at in range(GROUP)}
    assert dataset.url_of(ROWS + 30).endswith("1.parquet#sample=30")
    with pytest.raises(Damaged, match=r"1\.parquet"):
        list(ps.DataLoader(dataset, 64, shuffle=ps.order.Lanes(), collate_fn=list))
    with pytest.raises(Damaged, match=r"1\.parquet"):
        dataset[ROWS + 1]


def test_datasets_with_and_without_units_are_concatenated(unit_folder, unit_rows, tmp_path):
    (tmp_path / "a.jsonl").write_text("".join(f"{at}\n" for at in range(50)))
    plain = ps.MapDataset.from_shards(tmp_path, transform=lambda sample: (-1 - int(sample.read()), b""))
    dataset = ps.concat(dataset_of(unit_folder), plain)
    whole = sorted([*unit_rows, *((-1 - at, b"") for at in range(50))])
    for order in (False, ps.order.Lanes(), ps.order.BlockShuffle(block_bytes=20_000, window_blocks=3)):
        loader = ps.DataLoader(dataset, 16, shuffle=order, collate_fn=list)
        assert sorted(each for batch in loader for each in batch) == whole
    assert [dataset[at] for at in (3, FILES * ROWS)] == [unit_rows[3], (-1, b"")]
    with pytest.raises(Unusable, match="shuffle=True would read"):
        ps.DataLoader(dataset, 16, shuffle=True)
    assert dataset._fit_order(ps.order.Lanes(block_bytes=1, window_blocks=9)).window_blocks == 2
