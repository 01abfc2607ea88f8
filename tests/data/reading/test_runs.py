"""Neighbours in shards are read together, each byte once; the samples are those of any other way to read them."""

import random
from collections import Counter
from zipfile import ZIP_DEFLATED

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import penstock as ps
from penstock.data.catalog.catalog import Catalog, Entry
from penstock.data.order.orders import CatalogOrder, FullShuffle
from penstock.data.reading.runs import fitted_order, merged_spans, runs_of
from penstock.errors import Damaged, Unusable
from penstock.testing.restarts import check_restarts
from penstock.values import Span
from tests.amounts import examples
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


@pytest.mark.parametrize("order", ORDERS.values(), ids=ORDERS.keys())
@pytest.mark.parametrize("workers", [0, 2])
def test_every_sample_comes_once_with_its_bytes(folder, expected, order, workers):
    dataset = ps.MapDataset.from_shards(f"{folder}/", transform=pair)
    loader = ps.DataLoader(dataset, 16, shuffle=order, collate_fn=list, num_workers=workers)
    found = [each for batch in loader for each in batch]
    assert sorted(found) == sorted(expected)


@pytest.mark.parametrize("order", ORDERS.values(), ids=ORDERS.keys())
def test_iterable_and_map_read_the_same_samples(folder, order):
    streamed = ps.IterableDataset.from_shards(f"{folder}/", transform=pair, shuffle=order, seed=3)
    mapped = ps.MapDataset.from_shards(f"{folder}/", transform=pair)
    loader = ps.DataLoader(mapped, 1, shuffle=order, seed=3, collate_fn=list)
    assert [*streamed] == [each for batch in loader for each in batch]


@pytest.mark.parametrize("order", [ORDERS["blocks"], ORDERS["lanes"], ORDERS["by-number"], False])
def test_every_restart_goes_on_exactly(folder, order):
    def make():
        dataset = ps.MapDataset.from_shards(f"{folder}/", transform=lambda sample: sample.key)
        return ps.DataLoader(dataset, 32, shuffle=order, seed=5, collate_fn=list)

    check_restarts(make)


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
        with pytest.raises(Unusable, match="for a dataset with a catalog"):
            ps.BatchSampler(range(10), 2, shuffle=ps.order.WeightedShuffle())
        by_sample = ps.order.WeightedShuffle([1] * 9 + [0])
        assert sorted(sum(ps.BatchSampler(range(10), 2, shuffle=by_sample), [])) == [*range(9)]
