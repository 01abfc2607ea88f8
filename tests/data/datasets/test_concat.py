"""Datasets end to end: each sample of each once, as its own dataset reads it, in any order, on any ranks, resumed."""

from __future__ import annotations

import itertools
import random
import uuid

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import penstock as ps
from penstock.data.datasets.concat import JoinedDataset, JointContents
from penstock.data.reading.reading import in_lists
from penstock.errors import StateMismatch, Unusable
from penstock.testing.restarts import check_restarts
from tests.amounts import examples
from tests.data.reads import spans_of
from tests.data.shards.archives import tar

OBJECTS, SHARDS, EACH, FILES = 40, 3, 30, 25


@pytest.fixture(scope="module")
def places(tmp_path_factory):
    """Make objects in a store, shards in a folder, and files in another."""
    folder, draw = tmp_path_factory.mktemp("parts"), random.Random(0)
    url = "memory://parts-of-concat/x/"
    for number in range(OBJECTS):
        with ps.open(f"{url}{number:03}.bin", "wb") as file:
            file.write(b"object %d" % number)
    for name in ("shards", "files"):
        (folder / name).mkdir()
    for shard in range(SHARDS):
        members = [
            (f"{shard}{at:03}.{end}", draw.randbytes(2000) if end == "bin" else b"%d" % at)
            for at in range(EACH)
            for end in ("bin", "cls")
        ]
        (folder / "shards" / f"{shard}.tar").write_bytes(tar(members))
    for number in range(FILES):
        (folder / "files" / f"{number:03}.txt").write_bytes(b"file %d" % number)
    return url, f"{folder}/shards/", f"{folder}/files/"


def whole(sample):
    return sample.key.rpartition("/")[2], sample.read()


def member(sample):
    return sample.key, bytes(sample["bin"].data), sample["cls"].read()


@pytest.fixture(scope="module")
def parts(places):
    objects, shards, files = places
    return (
        ps.MapDataset.from_prefix(objects, transform=whole),
        ps.MapDataset.from_shards(shards, transform=member),
        ps.MapDataset.from_prefix(files, transform=whole),
    )


@pytest.fixture(scope="module")
def expected(parts):
    return [sample for part in parts for sample in part]


ORDERS = {
    "catalog": False,
    "full": True,
    "blocks": ps.order.BlockShuffle(block_bytes=20_000, window_blocks=4),
    "lanes": ps.order.Lanes(block_bytes=9_000, window_blocks=3),
    "by-number": ps.order.BlockShuffle(7, 3),
    "lanes-in-order": ps.order.Lanes(9, shuffle=False),
    "defaults": ps.order.Lanes(),
}


@pytest.mark.parametrize("order", ORDERS)
@pytest.mark.parametrize("workers", [0, 2])
def test_every_sample_comes_once_in_each_epoch(parts, expected, order, workers):
    context = {"multiprocessing_context": "fork"} if workers else {}
    loader = ps.DataLoader(
        ps.concat(*parts), 16, shuffle=ORDERS[order], collate_fn=list, num_workers=workers, **context
    )
    for _ in range(2):
        found = [each for batch in loader for each in batch]
        assert sorted(found) == sorted(expected)
        assert order != "catalog" or found == expected
    assert loader.stats().total.samples == 2 * len(expected)


@pytest.mark.parametrize("order", ["full", "lanes", "catalog"])
def test_order_is_that_of_one_dataset_of_the_same_samples(parts, expected, order, tmp_path):
    for number, sample in enumerate(expected):
        (tmp_path / f"{number:04}").write_bytes(repr(sample).encode())
    one = ps.MapDataset.from_prefix(f"{tmp_path}/", transform=lambda sample: sample.read())
    shuffle = ps.order.Lanes(10, 3) if order == "lanes" else ORDERS[order]
    first, second = (
        [each for batch in ps.DataLoader(dataset, 8, shuffle=shuffle, seed=4, collate_fn=list) for each in batch]
        for dataset in (one, ps.concat(*parts))
    )
    assert first == [repr(sample).encode() for sample in second]


def test_indices_slices_and_batches_are_those_of_a_list(parts, expected):
    dataset = ps.concat(*parts)
    assert len(dataset) == len(expected)
    assert [*dataset] == expected
    assert [dataset[at] for at in (0, OBJECTS, -1)] == [expected[at] for at in (0, OBJECTS, -1)]
    rows = [3, 150, 41, 2, 41]
    assert dataset.__getitems__(rows) == [expected[row] for row in rows]
    assert dataset.__getitems__([]) == []
    with pytest.raises(IndexError):
        dataset[len(expected)]


@given(*[st.none() | st.integers(-170, 170)] * 2, st.integers(-60, 60).filter(bool))
@settings(max_examples=examples(30), deadline=None)
def test_slice_is_that_of_a_list(parts, expected, start, stop, step):
    part = ps.concat(*parts)[start:stop:step]
    assert [*part] == expected[start:stop:step]
    assert len(part) == len(expected[start:stop:step])


@pytest.mark.parametrize("order", ["full", "lanes", "by-number", "catalog"])
def test_every_restart_goes_on_exactly(parts, order):
    check_restarts(lambda: ps.DataLoader(ps.concat(*parts), 32, shuffle=ORDERS[order], collate_fn=list))


def test_iterable_among_the_parts_makes_the_whole_iterable(places, parts, expected):
    streamed = ps.IterableDataset.from_shards(places[1], transform=member)
    dataset = ps.concat(parts[0], streamed, parts[2], shuffle=True, seed=3)
    with pytest.raises(TypeError):
        len(dataset)
    first, second = [*dataset], [*dataset]
    assert sorted(first) == sorted(second) == sorted(expected)
    assert first != second
    check_restarts(
        lambda: ps.DataLoader(ps.concat(parts[0], streamed, shuffle=ps.order.Lanes(), seed=3), 16, collate_fn=list)
    )


def test_blocks_by_bytes_end_where_a_part_ends_and_are_read_in_runs(parts):
    dataset = ps.concat(*parts)
    order = dataset._fit_order(ps.order.Lanes(block_bytes=20_000, window_blocks=2))
    borders = {sum(order.block_samples[:at]) for at in range(len(order.block_samples) + 1)}
    assert {0, OBJECTS, OBJECTS + SHARDS * EACH, len(dataset)} <= borders
    requests = []
    for rank in range(2):
        loader = ps.DataLoader(dataset, 8, shuffle=order, collate_fn=list, place=ps.Place(rank, 2))
        assert sum(len(batch) for batch in loader) in (len(dataset) // 2, len(dataset) - len(dataset) // 2)
        requests.append(loader.stats().total.requests)
    assert sum(requests) < OBJECTS + FILES + SHARDS * EACH // 2


def test_digest_is_that_of_all_parts_in_order(parts):
    a, b, c = parts
    digests = {ps.concat(*each).contents.digest for each in ((a, b, c), (a, c, b), (a, b), (a, b, c[:5]), (a,))}
    assert len(digests) == 5
    assert ps.concat(ps.concat(a, b), c).contents.digest == ps.concat(a, b, c).contents.digest
    state = ps.DataLoader(ps.concat(a, b), 8).state_dict()
    with pytest.raises(StateMismatch, match="catalog differs"):
        ps.DataLoader(ps.concat(b, a), 8).load_state_dict(state)


def test_inspection_and_warming_know_all_parts(parts, tmp_path):
    loader = ps.DataLoader(ps.concat(*parts), 8, shuffle=True)
    urls = [each.url for number in range(len(loader)) for each in loader.inspect(number)]
    assert sum(url.startswith("memory://") for url in urls) == OBJECTS
    assert sum(".tar" in url for url in urls) == SHARDS * EACH
    assert sum(len([*spans]) for _, spans in loader.reads()) == len(urls)
    options = ps.StoreOptions(cache=ps.CacheOptions(path=tmp_path))
    cached = [ps.MapDataset(parts[2].catalog[rows], store=options) for rows in (slice(0, 9), slice(9, None))]
    assert ps.warm(ps.concat(*cached)).fetched == FILES
    assert len(spans_of(ps.concat(*cached))) == FILES


def test_damaged_sample_is_skipped_whichever_part_it_is_of(parts, tmp_path):
    for number in range(6):
        (tmp_path / f"{number}").write_bytes(b"-")
    broken = ps.MapDataset.from_prefix(f"{tmp_path}/", transform=whole)
    (tmp_path / "3").unlink()
    loader = ps.DataLoader(ps.concat(parts[1], broken), 16, shuffle=True, collate_fn=list, on_error="skip")
    assert sum(map(len, loader)) == SHARDS * EACH + 5
    assert [each.url for each in loader.skipped] == [f"file://{tmp_path}/3"]


class TestClasses:
    def labelled(self, tmp_path, *names):
        for name in names:
            (tmp_path / name).mkdir(parents=True)
            (tmp_path / name / "1").write_text(name)
        return ps.MapDataset.from_prefix(f"{tmp_path}/", labels="folder")

    def test_classes_are_united_by_name(self, tmp_path, parts):
        first = self.labelled(tmp_path / "a", "cat", "owl")
        second = self.labelled(tmp_path / "b", "dog", "cat")
        dataset = ps.concat(first, second, ps.MapDataset(parts[2].catalog[:1]))
        assert dataset.classes == ("cat", "dog", "owl")
        assert [sample.label for sample in dataset] == [0, 2, 0, 1, None]
        assert [dataset.classes[sample.label] for sample in dataset[:4]] == [
            sample.read().decode() for sample in dataset[:4]
        ]
        assert first.classes == ("cat", "owl")
        assert first[1].label == 1

    def test_slice_of_a_subclass_with_other_classes_is_refused(self, tmp_path):
        class Own(ps.MapDataset):
            def __getitem__(self, index):
                return super().__getitem__(index)

        first = self.labelled(tmp_path / "a", "cat")
        second = Own(self.labelled(tmp_path / "b", "dog").catalog)[:1]
        with pytest.raises(Unusable, match="have different classes"):
            ps.concat(first, second)


class Doubled(ps.MapDataset):
    def __getitem__(self, index):
        found = super().__getitem__(index)
        return found if isinstance(index, slice) else (found, "twice")


class Longer(ps.MapDataset):
    def __len__(self):
        return 5


def test_subclass_and_its_slice_read_themselves(parts, expected):
    own = Doubled(parts[2].catalog, transform=whole)
    dataset = ps.concat(parts[0], own[4:9], own)
    every = [*expected[:OBJECTS], *((each, "twice") for each in [*expected[-FILES:][4:9], *expected[-FILES:]])]
    loader = ps.DataLoader(dataset, 7, shuffle=True, collate_fn=list)
    assert sorted(map(repr, (each for batch in loader for each in batch))) == sorted(map(repr, every))
    assert dataset[OBJECTS] == every[OBJECTS]


@pytest.mark.parametrize(
    ("make", "match"),
    [
        (lambda parts: ps.concat(*parts[:0]), "concat takes datasets"),
        (lambda parts: ps.concat(parts[0], 5), "MapDataset and IterableDataset, or TokenDataset, got an int"),
        (lambda parts: ps.concat(parts[0], parts[1].catalog), "got a Catalog"),
        (lambda parts: ps.concat([*parts]), "give its datasets one by one"),
        (lambda parts: ps.concat(ps.Mix({"a": parts[0]})), "got a Mix: give its sources to one ps.Mix"),
        (lambda parts: ps.concat(parts[0], Longer(parts[2].catalog)), "cannot concatenate a Longer"),
        (lambda parts: ps.concat(*parts, shuffle=True), "are the loader's"),
        (lambda parts: ps.concat(*parts, seed=1), "seed and place of map-style datasets"),
        (
            lambda parts: ps.concat(parts[0], ps.IterableDataset(parts[2].catalog, shuffle=True)),
            "must have no order",
        ),
        (
            lambda parts: ps.concat(parts[0], ps.IterableDataset(parts[2].catalog, place=ps.Place(1, 4))),
            r"dataset 1 has place=Place\(rank=1, world=4.*pass it to concat",
        ),
        (
            lambda parts: ps.DataLoader(ps.concat(ps.IterableDataset(parts[2].catalog)), 4, shuffle=True),
            "has its own shuffle",
        ),
    ],
)
def test_misuse_is_refused(parts, make, match):
    with pytest.raises(Unusable, match=match):
        make(parts)


def test_place_of_the_parts_may_be_that_of_the_whole(parts):
    place = ps.Place(1, 4)
    part = ps.IterableDataset(parts[2].catalog, transform=whole, place=place)
    assert sum(1 for _ in ps.concat(part, part, place=place)) == -(-(2 * FILES - 1) // 4)


@given(
    st.lists(st.integers(0, 12), min_size=1, max_size=4),
    st.integers(1, 3),
    st.integers(1, 5),
    st.sampled_from([False, True, ps.order.BlockShuffle(3, 2), ps.order.Lanes(block_bytes=10, window_blocks=2)]),
    st.data(),
)
@settings(max_examples=examples(40), deadline=None)
def test_samples_are_those_written_on_any_ranks_after_any_resume(lengths, ranks, size, shuffle, data):
    parts, written = [], []
    for number, length in enumerate(lengths):
        root = f"memory://concat-{uuid.uuid4().hex}/"
        for at in range(length):
            with ps.open(f"{root}{at:02}", "wb") as file:
                file.write(b"%d %d" % (number, at))
            written.append(b"%d %d" % (number, at))
        parts.append(ps.MapDataset.from_prefix(root, transform=lambda sample: sample.read(), allow_empty=True))
    dataset = ps.concat(*parts)
    if len(dataset) < ranks or not len(dataset):
        return

    def loader(rank):
        return ps.DataLoader(dataset, size, shuffle=shuffle, collate_fn=list, place=ps.Place(rank, ranks), seed=7)

    stop = data.draw(st.integers(0, len(loader(0))))
    found = []
    for rank in range(ranks):
        first, second = loader(rank), loader(rank)
        before = [*itertools.islice(first, stop)]
        second.load_state_dict(first.state_dict())
        rest = [*second] if len(before) < len(first) else []
        found += [each for batch in before + rest for each in batch]
    assert {*found} == {*written}
    last = len(written) % (size * ranks)
    assert len(found) == len(written) + (max(0, ranks - last) if last else 0)


@pytest.fixture
def small(tmp_path):
    for name, count in (("a", 3), ("b", 0), ("c", 2)):
        (tmp_path / name).mkdir()
        for number in range(count):
            (tmp_path / name / f"{number}").write_bytes(b"x" * (number + 1))
    return [ps.MapDataset.from_prefix(f"{tmp_path}/{name}/", allow_empty=True) for name in "abc"]


@pytest.fixture
def joined(small):
    dataset = JoinedDataset()
    dataset.join(small, [3, 0, 2])
    return dataset


def test_every_number_is_a_sample_of_one_part(joined):
    assert joined.split(range(5)) == ([0, 0, 0, 2, 2], [0, 1, 2, 0, 1])
    assert [joined.url_of(index).rpartition("/")[0][-1] for index in range(5)] == ["a", "a", "a", "c", "c"]


def test_repeats_stay_repeats(joined):
    numbers, indices = joined.split([4, ps.order.Repeat(3), ps.order.Repeat(0)])
    assert (numbers, indices) == ([2, 2, 0], [1, 0, 0])
    assert [isinstance(index, ps.order.Repeat) for index in indices] == [False, True, True]


def test_reads_are_those_of_each_part_in_turn(joined):
    found = [[span.key[-1] for span in spans] for _, spans in joined.reads(lambda: [[0, 4], [2]])]
    assert found == [["0", "2"], [], ["1"]]
    assert len(spans_of(joined)) == 5


def test_contents_tell_the_parts_and_their_order_apart(small):
    first, _, last = (each.contents for each in small)
    digests = {JointContents(each).digest for each in ([first, last], [last, first], [first], [first, first])}
    assert len(digests) == 4
    assert len(JointContents([first, last])) == 5


def test_objects_of_one_store_are_read_together_and_others_by_themselves(small, tmp_path):
    with ps.open("memory://other/x", "wb") as file:
        file.write(b"y")
    (tmp_path / "d").mkdir()
    (tmp_path / "d" / "0.tar").write_bytes(tar([("0.bin", b"z"), ("1.bin", b"z")]))
    shards = ps.MapDataset.from_shards(f"{tmp_path}/d/")
    others = [ps.MapDataset.from_prefix("memory://other/"), ps.MapDataset.from_prefix(f"{tmp_path}/c/")]
    dataset = JoinedDataset()
    dataset.join([small[0], others[0], shards, others[1], shards.ordered(ps.order.Lanes(2))], [3, 1, 2, 2, 2])
    # Of shards that are read by ranges, too: each sample is a request of its own, as an object is.
    assert [each.numbers for each in dataset.members()] == [(0, 2, 3), (1,), (4,)]
    dataset._lenient = frozenset({3})
    assert [each.numbers for each in dataset.members()] == [(0, 2), (1,), (3,), (4,)]


def test_joint_samples_are_those_of_the_parts_wherever_they_lie(small):
    dataset = JoinedDataset()
    dataset.join([part[:] for part in small], [3, 0, 2])
    reading = dataset.reading([[4, 0, 2], [1, 3], [0]], 1)
    assert [[sample.size for sample in batch] for batch in in_lists(reading)] == [[2, 1, 3], [2, 1], [1]]
    assert (reading.counts.requests, reading.counts.size_bytes) == (6, 10)
