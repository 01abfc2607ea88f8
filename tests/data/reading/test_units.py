"""Samples in units: each unit is fetched and decoded once an epoch, and let go after its last row."""

import gc
import weakref

import numpy as np
import pyarrow as pa
import pytest
from pyarrow import parquet

import penstock as ps
from penstock.data.order.orders import CatalogOrder
from penstock.data.reading.runs import fitted_order, runs_of
from penstock.data.shards.parquet import ParquetFormat
from penstock.errors import Damaged, Unusable
from penstock.testing.restarts import check_restarts

FILES, ROWS, GROUP = 3, 200, 24
UNITS = FILES * -(-ROWS // GROUP)


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    folder = tmp_path_factory.mktemp("rows")
    draw = np.random.default_rng(0)
    for file in range(FILES):
        numbers = np.arange(ROWS) + file * ROWS
        table = pa.table({"number": numbers, "data": [draw.bytes(500) for _ in numbers], "more": [b"x" * 900] * ROWS})
        parquet.write_table(table, folder / f"{file}.parquet", row_group_size=GROUP, compression="none")
    return folder


def pair(sample):
    return sample["number"], bytes(sample["data"].data)


def dataset_of(folder, kind=ps.MapDataset, **arguments):
    return kind.from_shards(f"{folder}/", fields=("number", "data"), transform=pair, **arguments)


def spans_of(dataset):
    """Return the spans of each unit, also those that several units have in common."""
    units, count = dataset.catalog.units, len(dataset.catalog)
    firsts = [at for at in range(count) if not units.place(at).number]
    return [span for at in firsts for span in units.spans(at)]


@pytest.fixture(scope="module")
def expected(folder):
    tables = [parquet.read_table(folder / f"{file}.parquet").to_pylist() for file in range(FILES)]
    return [(row["number"], row["data"]) for table in tables for row in table]


ORDERS = {
    "catalog": False,
    "lanes": ps.order.Lanes(),
    "blocks": ps.order.BlockShuffle(),
    "small-window": ps.order.Lanes(block_bytes=10_000, window_blocks=4),
    "large-blocks": ps.order.BlockShuffle(block_bytes=50_000, window_blocks=2),
    "lanes-in-order": ps.order.Lanes(lanes=8, shuffle=False),
}


@pytest.mark.parametrize("order", ORDERS.values(), ids=ORDERS.keys())
@pytest.mark.parametrize("workers", [0, 2])
def test_every_row_comes_once_with_its_values(folder, expected, order, workers):
    loader = ps.DataLoader(dataset_of(folder), 16, shuffle=order, collate_fn=list, num_workers=workers)
    for _ in range(2):
        found = [each for batch in loader for each in batch]
        assert sorted(found) == expected
    assert (found == expected) is (order is False)


@pytest.mark.parametrize("order", ORDERS.values(), ids=ORDERS.keys())
def test_iterable_and_map_read_the_same_rows(folder, order):
    streamed = dataset_of(folder, ps.IterableDataset, shuffle=order, seed=3)
    loader = ps.DataLoader(dataset_of(folder), 1, shuffle=order, seed=3, collate_fn=list)
    assert [*streamed] == [each for batch in loader for each in batch]


@pytest.mark.parametrize("order", ORDERS.values(), ids=ORDERS.keys())
def test_each_range_is_read_once_in_an_epoch(folder, order):
    dataset = dataset_of(folder)
    loader = ps.DataLoader(dataset, 16, shuffle=order, collate_fn=list)
    for _ in loader:
        pass
    fetched, stats = spans_of(dataset), loader.stats().total
    # A footer that a unit has in common with one before is read again only if that is not decoded yet.
    assert UNITS <= stats.requests <= len(fetched) <= 2 * UNITS
    assert sum(span.stop - span.start for span in {*fetched}) <= stats.size_bytes
    assert stats.size_bytes <= sum(span.stop - span.start for span in fetched)
    # To warm a cache, each range comes once: a footer belongs to every unit of its file.
    spans = [*dataset.spans()[1]]
    assert len({*spans}) == len(spans) < len(fetched)
    assert {*loader.spans()[1]} == {*spans}


@pytest.mark.parametrize("order", [False, ps.order.Lanes()])
def test_footer_that_was_read_is_not_read_again(tmp_path, order):
    draw = np.random.default_rng(0)
    data = [bytes([number]) * (24 << 20) for number in range(12)]
    # The column between keeps the wanted ones apart from the footer.
    table = pa.table({"data": data, "between": [draw.bytes(50_000) for _ in data]})
    parquet.write_table(table, tmp_path / "0.parquet", row_group_size=1, compression="zstd", use_dictionary=False)
    dataset = ps.MapDataset.from_shards(tmp_path, fields="data", transform=lambda sample: sample.data[0])
    fetched = len(spans_of(dataset))
    loader = ps.DataLoader(dataset, 1, shuffle=order, collate_fn=list)
    assert sorted(each for batch in loader for each in batch) == [*range(12)]
    assert fetched >= 23
    # Only the units that come before the first one is decoded read it, too.
    assert loader.stats().total.requests <= (18 if order is False else fetched)


def test_ranks_share_the_units_of_lanes(folder, expected):
    found, requests = [], 0
    for rank in range(2):
        loader = ps.DataLoader(
            dataset_of(folder), 8, shuffle=ORDERS["small-window"], collate_fn=list, place=ps.Place(rank, 2)
        )
        found += [each for batch in loader for each in batch]
        requests += loader.stats().total.requests
    assert sorted(found) == expected
    # One unit lies across the border of the ranks, and is two requests.
    assert requests <= len(spans_of(dataset_of(folder))) + 2


@pytest.mark.parametrize("order", [ORDERS["lanes"], ORDERS["small-window"], ORDERS["blocks"], False])
def test_every_restart_goes_on_exactly(folder, order):
    def make():
        dataset = ps.MapDataset.from_shards(f"{folder}/", fields=("number",), transform=lambda sample: sample["number"])
        return ps.DataLoader(dataset, 64, shuffle=order, seed=5, collate_fn=list)

    check_restarts(make)


@pytest.mark.parametrize(
    "make",
    [
        lambda folder: ps.DataLoader(dataset_of(folder), 8, shuffle=True),
        lambda folder: dataset_of(folder).batched(8, shuffle=True),
        lambda folder: dataset_of(folder, ps.IterableDataset, shuffle=True),
    ],
    ids=["loader", "batched", "iterable"],
)
def test_full_shuffle_is_refused_with_advice(folder, make):
    with pytest.raises(Unusable, match=r"shuffle=ps\.order\.Lanes\(\)"):
        make(folder)


def test_blocks_of_samples_must_be_whole_units(folder, expected):
    with pytest.raises(Unusable, match="block_samples would cut units"):
        ps.DataLoader(dataset_of(folder), 8, shuffle=ps.order.BlockShuffle(30))
    order = ps.order.BlockShuffle([200, 24, 24, 152, 200], 2)
    loader = ps.DataLoader(dataset_of(folder), 8, shuffle=order, collate_fn=list)
    assert sorted(each for batch in loader for each in batch) == expected
    # Each unit once; units of a file may share a range, which the later ones then need not read.
    assert len(expected) // 30 < loader.stats().total.requests <= len(spans_of(dataset_of(folder)))


def test_window_is_as_many_units_as_its_bytes_allow(folder):
    catalog = dataset_of(folder).catalog
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
def counted(folder):
    Counted.decodes = Counted.most = 0
    return ps.MapDataset.from_shards(f"{folder}/", format=Counted(("number", "data")), transform=pair)


def test_batch_by_index_decodes_each_of_its_units_once_and_keeps_its_order(counted, expected):
    rows = [5, 3, 205, 4, -1, 206, 30, 29, 5]
    assert counted.__getitems__(rows) == [expected[row] for row in rows]
    assert Counted.decodes == 4
    assert [counted[row] for row in rows] == [expected[row] for row in rows]
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


def test_parts_read_their_rows_only_and_keep_the_units(folder, expected):
    part = dataset_of(folder)[::7]
    assert [*part] == expected[::7]
    loader = ps.DataLoader(part, 4, shuffle=ps.order.Lanes(), collate_fn=list)
    assert sorted(each for batch in loader for each in batch) == expected[::7]
    first = dataset_of(folder)[:10]
    assert len([*first.spans()[1]]) <= 2
    assert len([*first.spans([[1, 2], [3]])[1]]) <= 2


def test_subclass_that_overrides_reading_still_reads_rows(folder, expected):
    class Doubled(ps.MapDataset):
        def __getitems__(self, indices):
            return [2 * number for number, _ in super().__getitems__(indices)]

    dataset = Doubled.from_shards(f"{folder}/", fields=("number", "data"), transform=pair)
    loader = ps.DataLoader(dataset[:20], 5, collate_fn=list)
    assert [each for batch in loader for each in batch] == [2 * number for number, _ in expected[:20]]


def test_labels_columns_and_repeats_are_those_of_the_row(folder):
    catalog = ps.Catalog.from_shards(f"{folder}/", fields=("number",), labels=r"(\d)\.parquet").with_columns(
        twice=np.arange(FILES * ROWS) * 2
    )
    for sample in ps.MapDataset(catalog)[::50]:
        assert (sample.label, sample.columns["twice"]) == (sample["number"] // ROWS, sample["number"] * 2)
        assert (sample.key, sample.fields) == ("", ("number",))


def test_damaged_unit_is_skipped_by_its_rows_or_raised_with_the_file(folder, tmp_path):
    catalog = dataset_of(folder).catalog
    damaged = catalog.units.spans(ROWS + 1)[0]
    for path in folder.iterdir():
        data = bytearray(path.read_bytes())
        if path.name == "1.parquet":
            data[damaged.start : damaged.start + 64] = bytes(64)
        (tmp_path / path.name).write_bytes(bytes(data))
    catalog.save(tmp_path / "catalog")
    dataset = ps.MapDataset(ps.Catalog.open(tmp_path / "catalog", root=tmp_path), transform=pair)
    loader = ps.DataLoader(dataset, 64, collate_fn=list, on_error="skip")
    assert sum(map(len, loader)) == FILES * ROWS - GROUP
    assert {each.url.rpartition("/")[2] for each in loader.skipped} == {f"1.parquet#sample={at}" for at in range(GROUP)}
    assert dataset.url_of(ROWS + 30).endswith("1.parquet#sample=30")
    with pytest.raises(Damaged, match=r"1\.parquet"):
        list(ps.DataLoader(dataset, 64, shuffle=ps.order.Lanes(), collate_fn=list))
    with pytest.raises(Damaged, match=r"1\.parquet"):
        dataset[ROWS + 1]


def test_datasets_with_and_without_units_are_concatenated(folder, expected, tmp_path):
    (tmp_path / "a.jsonl").write_text("".join(f"{at}\n" for at in range(50)))
    plain = ps.MapDataset.from_shards(tmp_path, transform=lambda sample: (-1 - int(sample.read()), b""))
    dataset = ps.concat(dataset_of(folder), plain)
    whole = sorted([*expected, *((-1 - at, b"") for at in range(50))])
    for order in (False, ps.order.Lanes(), ps.order.BlockShuffle(block_bytes=20_000, window_blocks=3)):
        loader = ps.DataLoader(dataset, 16, shuffle=order, collate_fn=list)
        assert sorted(each for batch in loader for each in batch) == whole
    assert [dataset[at] for at in (3, FILES * ROWS)] == [expected[3], (-1, b"")]
    with pytest.raises(Unusable, match="shuffle=True would read"):
        ps.DataLoader(dataset, 16, shuffle=True)
    assert dataset.fitted(ps.order.Lanes(block_bytes=1, window_blocks=9)).window_blocks == 2
