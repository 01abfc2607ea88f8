"""Samples as their bytes come: in order, whole, once each; an error is that of one sample, until someone closes."""

from __future__ import annotations

import io
import itertools
import json
import pickle
import random
import threading
import uuid

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import penstock as ps
from penstock.data.reading.objects import MergedReading, ObjectReading, lists, singles
from penstock.data.reading.reading import Failed
from penstock.errors import Cancelled, ManifestError, NotFound, Unusable
from penstock.testing.faults import FAULTS, FaultServer, Match
from penstock.testing.restarts import check_restarts
from tests.amounts import examples
from tests.children import forked
from tests.data.datasets.transforms import number as number_of
from tests.data.datasets.transforms import numbered
from tests.data.shards.archives import tar

COUNT = 20
BATCHES = [[3, 1, 2], [0], [9, 9], [19, 4, 5, 6]]


@pytest.fixture
def folder(tmp_path):
    return numbered(tmp_path / "data", COUNT)


@pytest.fixture
def dataset(folder):
    return ps.MapDataset.from_prefix(folder, transform=number_of)


def each(item):
    """Return what an item makes, as a list: one sample, or several of a batch."""
    return item.make() if item.samples else [item.make()]


def test_items_say_where_they_belong(dataset):
    with ObjectReading(dataset, iter(BATCHES), 1) as reading:
        items = [(item.batch, item.slot, item.length, item.size, item.name[-3:], each(item)) for item in reading]
    at, found = 0, {}
    for which, slot, count, size, name, made in items:
        stop = slot + count
        batch = BATCHES[which]
        assert (size, name, made) == (len(batch), f"{batch[slot]:03d}", batch[slot:stop])
        assert slot == found.get(which, 0)
        found[which] = stop
        at += len(made)
    assert at == sum(map(len, BATCHES))


@pytest.mark.parametrize(("sample_s", "most"), [(0.00001, COUNT), (0.002, 1)])
def test_quick_samples_are_made_together_and_slow_ones_alone(folder, monkeypatch, sample_s, most):
    clock = [0.0]
    # A clock that only transforms move: on a busy machine any sample may be slow.
    monkeypatch.setattr("penstock.data.reading.reading.perf_counter", lambda: clock[0])
    dataset = ps.MapDataset.from_prefix(folder, transform=lambda _: clock.__setitem__(0, clock[0] + sample_s))
    with ObjectReading(dataset, [[*range(COUNT)]] * 20, 1) as reading:
        sizes = [len(each(item)) for item in reading]
    assert sum(sizes) == 20 * COUNT
    assert max(sizes) == most


def test_nothing_is_drawn_before_the_first_next(dataset):
    drawn = []
    reading = ObjectReading(dataset, map(lambda batch: drawn.append(batch) or batch, BATCHES), 1)  # noqa: C417
    assert drawn == []
    next(reading)
    assert drawn
    reading.close()


def test_items_may_be_made_late_in_any_order_on_any_thread(dataset):
    items = list(ObjectReading(dataset, iter(BATCHES), 1))
    found = {}

    def make(item):
        found[item.batch, item.slot] = item.make()

    threads = [threading.Thread(target=make, args=(item,)) for item in reversed(items)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(60)
    assert [[found[number, slot] for slot in range(len(batch))] for number, batch in enumerate(BATCHES)] == BATCHES


def test_an_error_in_the_middle_is_its_own_samples_and_the_others_come(dataset, tmp_path):
    for gone in ("001", "009"):
        (tmp_path / "data" / gone).unlink()
    found = []
    for item in ObjectReading(dataset, iter(BATCHES), 1):
        try:
            found += [made.error.url[-3:] if isinstance(made, Failed) else made for made in each(item)]
        except NotFound as error:
            found.append(error.url[-3:])
    assert found == [3, "001", 2, 0, "009", "009", 19, 4, 5, 6]


def test_a_broken_order_is_raised_where_it_breaks(dataset):
    def broken():
        yield [1, 2]
        raise ValueError("no more")

    with pytest.raises(ValueError, match="no more"):
        list(ObjectReading(dataset, broken(), 1))
    with pytest.raises(IndexError):
        list(ObjectReading(dataset, [[1], [COUNT]], 1))


def test_empty_batch_list_yields_no_samples(dataset):
    assert list(ObjectReading(dataset, [], 1)) == list(lists(dataset, [], 1)) == list(singles(dataset, [], 1)) == []


def test_closing_ends_it_and_twice_does_nothing(dataset):
    reading = ObjectReading(dataset, iter(BATCHES), 1)
    first = next(reading)
    reading.close()
    reading.close()
    assert list(reading) == []
    assert first.make() == 3


def test_close_from_another_thread_wakes_a_waiting_reader():
    """The server never answers; without the close, the wait would last until the test's own limit."""
    with FaultServer.within() as server:
        server.put("bucket", "000", b"0")
        dataset = ps.MapDataset.from_prefix("s3://bucket/", store=server.store)
        server.fail(FAULTS["stall"], when=Match(verb="get", times=None))
        reading = ObjectReading(dataset, iter([[0]]), 1)
        waiting, outcome = threading.Event(), []

        def wait() -> None:
            waiting.set()
            try:
                outcome.append(next(reading).make())
            except (Cancelled, StopIteration) as error:
                outcome.append(error)

        thread = threading.Thread(target=wait, daemon=True)
        thread.start()
        assert waiting.wait(60)
        while thread.is_alive() and not server.seen("get", "bucket"):
            thread.join(0.01)
        reading.close()
        thread.join(60)
        assert not thread.is_alive()
        assert isinstance(outcome[0], Cancelled | StopIteration)


def test_a_reading_begun_before_a_fork_is_refused_in_the_child(dataset):
    reading = ObjectReading(dataset, iter(BATCHES), 1)
    next(reading)

    def child():
        with pytest.raises(Unusable, match="fork"):
            next(reading)

    with forked(child) as status:
        assert status() == 0
    assert next(reading).make() == 1


def test_lists_are_whole_batches_and_singles_their_samples(dataset):
    assert list(lists(dataset, iter(BATCHES), 1)) == BATCHES
    assert list(singles(dataset, iter(sum(BATCHES, [])), 1)) == sum(BATCHES, [])
    assert list(lists(dataset, iter(BATCHES), 3)) == BATCHES


def test_repeated_samples_are_marked_by_every_reading_method(folder):
    dataset = ps.MapDataset.from_prefix(folder, transform=lambda sample: sample.repeat)
    batch = [1, ps.order.Repeat(1), 2]
    assert next(lists(dataset, [batch], 1)) == list(singles(dataset, batch, 1)) == [False, True, False]
    assert [made for item in ObjectReading(dataset, [batch], 1) for made in each(item)] == [False, True, False]


def test_merged_datasets_are_waited_for_apart(tmp_path):
    quick, slow = (ps.MapDataset.from_prefix(numbered(tmp_path / name, 8), transform=number_of) for name in ("a", "b"))
    batches = [[(7, 0), (2, 5), (7, 1)], [], [(2, 0)]]
    with MergedReading({2: slow, 7: quick}, iter(batches), 1) as reading:
        made = [value for item in reading for value in each(item)]
    assert made == [0, 5, 1, 0]
    assert reading.waited_s.keys() == {2, 7}
    assert sum(reading.waited_s.values()) == pytest.approx(reading.counts.waiting_s)


PAIRS = 60


def label(number):
    return f"{number:04}"


@pytest.fixture(scope="module")
def paired(tmp_path_factory):
    """Make pairs, of which every seventh lacks its text."""
    paired, draw = tmp_path_factory.mktemp("pairs"), random.Random(0)
    for number in range(PAIRS):
        (paired / f"{label(number)}.bin").write_bytes(b"%d " % number + draw.randbytes(draw.randrange(2000)))
        if number % 7:
            (paired / f"{label(number)}.txt").write_text(f"caption {number}")
    return paired


@pytest.fixture(scope="module")
def masks():
    """Write masks into another store."""
    url = "memory://masks-of-groups/masks/"
    for number in range(PAIRS):
        with ps.open(f"{url}{label(number)}.tif", "wb") as file:
            file.write(b"mask %d" % number)
    return url


def plain(sample):
    """Return a sample as values that can be compared."""
    return sample.key, {field: sample[field] and bytes(sample[field].data) for field in sample.fields}


def expected(paired, missing):
    found = {}
    for number in range(PAIRS):
        values = {}
        for end in ("bin", "txt"):
            path = paired / f"{label(number)}.{end}"
            values[end] = path.read_bytes() if path.exists() else None
        if missing == "none" or None not in values.values():
            found[label(number)] = values
    return found


@pytest.mark.parametrize("missing", ["drop", "none"])
@pytest.mark.parametrize("workers", [0, 2])
@pytest.mark.parametrize("order", [False, True, ps.order.BlockShuffle(block_bytes=5000), ps.order.Lanes(8)], ids=str)
def test_every_sample_comes_once_and_whole(paired, missing, workers, order):
    dataset = ps.MapDataset.from_prefix(f"{paired}/", group="stem", missing=missing, transform=plain)
    loader = ps.DataLoader(dataset, 8, shuffle=order, collate_fn=list, num_workers=workers)
    found = [each for batch in loader for each in batch]
    assert len(found) == len(dataset)
    assert dict(found) == expected(paired, missing)


def test_all_ways_of_reading_give_the_same(paired):
    arguments = {"group": "stem", "missing": "none", "transform": plain}
    dataset = ps.MapDataset.from_prefix(f"{paired}/", **arguments)
    streamed = [*ps.IterableDataset.from_prefix(f"{paired}/", **arguments)]
    assert streamed == [*dataset] == [dataset[at] for at in range(len(dataset))] == dataset.__getitems__(range(PAIRS))
    assert dict(streamed) == expected(paired, "none")


def test_sample_names_its_objects(paired):
    dataset = ps.MapDataset.from_prefix(f"{paired}/", group="stem", missing="none")
    sample = dataset[8]
    assert (sample.key, sample.fields, sample.url) == ("0008", ("bin", "txt"), f"file://{paired}/0008.bin")
    assert sample["txt"].url == f"file://{paired}/0008.txt"
    assert sample["txt"].etag != sample["bin"].etag == sample.etag != ""
    assert sample.size == sample["bin"].size + sample["txt"].size
    assert dataset[7]["txt"] is None
    assert plain(pickle.loads(pickle.dumps(sample))) == plain(sample)
    with pytest.raises(KeyError, match=r"no field .*json.*; fields of .*0008.* are bin, txt"):
        sample["json"]


def test_label_and_columns_are_those_of_the_sample_and_its_members(tmp_path):
    for name in ("cat/1.jpg", "cat/1.json", "dog/2.jpg", "dog/2.json"):
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).write_bytes(name.encode())
    dataset = ps.MapDataset.from_prefix(f"{tmp_path}/", group="stem", labels="folder")
    dataset = ps.MapDataset(dataset.catalog.with_columns(at=[5, 6]))
    assert dataset.classes == ("cat", "dog")
    assert [(each.label, each["json"].label, each["jpg"].columns) for each in dataset] == [
        (0, 0, {"at": 5}), (1, 1, {"at": 6})
    ]  # fmt: skip


@pytest.mark.parametrize("workers", [0, 2])
def test_several_stores_are_read_in_one_order(paired, masks, workers):
    joined = ps.Catalog.join({"image": ps.Catalog.scan(f"{paired}/", include="*.bin"), "mask": ps.Catalog.scan(masks)})
    dataset = ps.MapDataset(joined, transform=plain)
    context = {"multiprocessing_context": "fork"} if workers else {}
    loader = ps.DataLoader(dataset, 8, shuffle=True, collate_fn=list, num_workers=workers, **context)
    for _ in range(2):
        found = dict(each for batch in loader for each in batch)
        assert {key: each["mask"] for key, each in found.items()} == {
            label(number): b"mask %d" % number for number in range(PAIRS)
        }
        assert all(each["image"].startswith(b"%d " % int(key)) for key, each in found.items())
    assert [plain(each) for each in ps.MapDataset(joined)] == dataset.__getitems__(range(PAIRS))
    assert loader.stats().total.requests == 4 * PAIRS


@pytest.mark.parametrize("ranks", [1, 2, 3])
def test_ranks_share_the_samples(paired, ranks):
    dataset = ps.MapDataset.from_prefix(f"{paired}/", group="stem", missing="none", transform=plain)
    found = []
    for rank in range(ranks):
        loader = ps.DataLoader(dataset, 4, shuffle=True, collate_fn=list, place=ps.Place(rank, ranks))
        found += [each for batch in loader for each in batch]
    assert sorted(key for key, _ in found) == [label(number) for number in range(PAIRS)]
    assert dict(found) == expected(paired, "none")


def test_every_restart_goes_on_exactly(paired, masks):
    joined = ps.Catalog.join({"image": ps.Catalog.scan(f"{paired}/", include="*.bin"), "mask": ps.Catalog.scan(masks)})

    def make():
        dataset = ps.MapDataset(joined, transform=lambda sample: (sample.key, sample["mask"].read()))
        return ps.DataLoader(dataset, 16, shuffle=True, seed=5, collate_fn=list)

    check_restarts(make)


def test_parts_keep_their_members(paired):
    dataset = ps.MapDataset.from_prefix(f"{paired}/", group="stem", missing="none", transform=plain)
    every = expected(paired, "none")
    names = [*every]
    for part, rows in ((dataset[5:], names[5:]), (dataset[::-3], names[::-3]), (dataset[3:40][::7], names[3:40][::7])):
        assert [*part] == [(name, every[name]) for name in rows]
    for part in dataset.catalog.split(0.6, seed=2):
        assert all(every[key] == values for key, values in ps.MapDataset(part, transform=plain))


class Doubled(ps.MapDataset):
    def __getitem__(self, index):
        found = super().__getitem__(index)
        return found if isinstance(index, slice) else (found,) * 2


def test_subclass_with_a_reading_method_gets_groups(paired):
    dataset = Doubled.from_prefix(f"{paired}/", group="stem", missing="none", transform=plain)
    assert dataset[3:9][0] == (("0003", expected(paired, "none")["0003"]),) * 2
    loader = ps.DataLoader(dataset[3:9], 3, collate_fn=list)
    assert [each[0][0] for batch in loader for each in batch] == [label(number) for number in range(3, 9)]


def test_missing_object_is_the_error_of_its_sample(paired, tmp_path):
    for path in paired.iterdir():
        (tmp_path / path.name).write_bytes(path.read_bytes())
    dataset = ps.MapDataset.from_prefix(f"{tmp_path}/", group="stem", missing="drop", transform=plain)
    (tmp_path / "0009.txt").unlink()
    loader = ps.DataLoader(dataset, 8, collate_fn=list, on_error="skip")
    found = dict(each for batch in loader for each in batch)
    assert found.keys() == expected(paired, "drop").keys() - {"0009"}
    [skipped] = loader.skipped
    assert skipped.url.endswith("/0009.bin")
    assert "0009.txt" in skipped.error
    with pytest.raises(NotFound, match=r"0009\.txt"):
        list(ps.DataLoader(dataset, 8, collate_fn=list))


@pytest.mark.parametrize("stores", [1, 2])
def test_samples_that_are_made_quickly_come_several_in_an_item(masks, stores):
    images = f"memory://{'masks' if stores == 1 else 'images'}-of-groups/images/"
    for number in range(PAIRS):
        with ps.open(f"{images}{label(number)}.bin", "wb") as file:
            file.write(b"%d" % number)
    parts = {"image": ps.Catalog.scan(images, include="*.bin"), "mask": ps.Catalog.scan(masks, include="*.tif")}
    whole = {"image": parts["image"], "mask": parts["mask"].filter(exclude="0011.tif")}
    dataset = ps.MapDataset(ps.Catalog.join(whole, missing="none"), transform=plain)
    batches = [[*range(30)], [], [*range(30, PAIRS)]]
    items, made = [], []
    with dataset.reading(iter(batches), 1) as reading:
        for item in reading:
            items.append(item)
            made += item.make() if item.samples else [item.make()]
            threading.Event().wait(0.002)  # so that the next ones arrive
    assert max(item.samples for item in items) > 1
    assert made == [
        (label(at), {"image": b"%d" % at, "mask": None if at == 11 else b"mask %d" % at}) for at in range(PAIRS)
    ]
    assert [item.batch for item in items] == sorted(item.batch for item in items)
    assert sum(item.samples or 1 for item in items if item.batch == 1) == 30


def test_error_of_a_transform_names_the_sample(paired):
    def fail(sample):
        raise ValueError(sample.key)

    dataset = ps.MapDataset.from_prefix(f"{paired}/", group="stem", missing="none", transform=fail)
    with pytest.raises(ValueError, match="0000") as caught:
        dataset[0]
    assert "0000.bin" in caught.value.__notes__[0]


def test_inspection_and_warming_know_all_objects(paired, masks, tmp_path):
    options = ps.StoreOptions(cache=ps.CacheOptions(path=tmp_path))
    joined = ps.Catalog.join({"image": ps.Catalog.scan(f"{paired}/", include="*.bin"), "mask": ps.Catalog.scan(masks)})
    dataset = ps.MapDataset(joined)
    loader = ps.DataLoader(dataset, 8, shuffle=True, collate_fn=list)
    planned = [each.url for each in loader.inspect(0)]
    assert planned == [sample.url for sample in next(iter(loader))]
    reads = {source.root: len([*spans]) for source, spans in loader.reads()}
    assert reads == {"file:///": PAIRS, "memory://masks-of-groups/": PAIRS}
    pairs = ps.Catalog.scan(f"{paired}/", group="stem", missing="none")
    warmed = ps.warm(ps.DataLoader(ps.MapDataset(pairs, store=options), 8, shuffle=True))
    again = ps.warm(pairs, store=options)
    assert warmed.fetched == again.present == len([*paired.iterdir()])


def test_options_may_differ_by_field(paired, masks):
    joined = ps.Catalog.join({"image": ps.Catalog.scan(f"{paired}/", include="*.bin"), "mask": ps.Catalog.scan(masks)})
    options = {"mask": ps.StoreOptions(read=ps.ReadOptions(ahead_items=8))}
    assert ps.MapDataset(joined, store=options)[3]["mask"].read() == b"mask 3"
    for wrong, match in (
        ({"depth": ps.StoreOptions()}, "options for 'depth', but the fields are image, mask"),
        ({"mask": 5}, "got an int"),
    ):
        with pytest.raises(Unusable, match=match):
            ps.MapDataset(joined, store=wrong)
    with pytest.raises(Unusable, match="got a dict"):
        ps.MapDataset.from_prefix(f"{paired}/", store=options)


@given(st.integers(1, 3), st.integers(0, 30), st.integers(1, 9), st.booleans(), st.data())
@settings(max_examples=examples(40))
def test_samples_are_those_written_on_any_ranks_after_any_resume(ranks, count, size, shuffle, data):
    root = f"memory://groups-{uuid.uuid4().hex}/"
    fields = ("a", "b", "c")
    written = {}
    for number in range(count):
        there = data.draw(st.sets(st.sampled_from(fields), min_size=1))
        written[f"{number:02}"] = {
            field: b"%d%s" % (number, field.encode()) if field in there else None for field in fields
        }
        for field in there:
            with ps.open(f"{root}{number:02}.{field}", "wb") as file:
                file.write(written[f"{number:02}"][field])
    if not count:
        return
    catalog = ps.Catalog.scan(root, group="stem", fields=fields, missing="none")
    dataset = ps.MapDataset(catalog, transform=plain)
    stop = data.draw(st.integers(0, count))
    found = []
    for rank in range(ranks):
        loader = ps.DataLoader(
            dataset, size, shuffle=shuffle, collate_fn=list, place=ps.Place(rank, ranks), tail="short", seed=7
        )
        before = [*itertools.islice(loader, stop)]
        state = loader.state_dict()
        again = ps.DataLoader(
            dataset, size, shuffle=shuffle, collate_fn=list, place=ps.Place(rank, ranks), tail="short", seed=7
        )
        again.load_state_dict(state)
        rest = [*again] if len(before) < len(loader) else []
        found += [each for batch in before + rest for each in batch]
    assert dict(found) == written
    # With fewer samples than ranks, some are repeated.
    assert len(found) == count or count % (size * ranks) < ranks


def test_workers_of_a_fork_server_read_groups(paired):
    dataset = ps.MapDataset.from_prefix(f"{paired}/", group="stem", missing="none", transform=plain)
    loader = ps.DataLoader(dataset, 20, collate_fn=list, num_workers=1, multiprocessing_context="forkserver")
    assert dict(each for batch in loader for each in batch) == expected(paired, "none")


def test_samples_of_shards_are_joined_with_objects(paired, tmp_path):
    numbers = [*range(0, PAIRS, 2)]
    members = [(f"{label(number)}.{end}", b"%d %s" % (number, end.encode())) for number in numbers for end in "ab"]
    (tmp_path / "a.tar").write_bytes(tar(members[:20]))
    (tmp_path / "b.tar").write_bytes(tar(members[20:]))
    shards = ps.Catalog.from_shards(f"{tmp_path}/")
    objects = ps.Catalog.scan(f"{paired}/", include="*.bin")
    on = {"shard": [label(number) for number in numbers], "object": "stem"}
    joined = ps.Catalog.join({"shard": shards, "object": objects}, on=on)
    joined.save(tmp_path / "catalog")
    for catalog in (joined, ps.Catalog.open(tmp_path / "catalog")[::-1]):
        loader = ps.DataLoader(ps.MapDataset(catalog), 8, shuffle=True, collate_fn=list)
        found = {sample["shard"].key: sample for batch in loader for sample in batch}
        assert found.keys() == {label(number) for number in numbers}
        for key, sample in found.items():
            assert sample["shard"]["b"].read() == b"%d b" % int(key)
            assert sample["object"].read().startswith(b"%d " % int(key))
            assert sample.size == sample["shard"].size + sample["object"].size


class TestManifest:
    @pytest.fixture
    def base(self, tmp_path):
        for name in ("i/1.jpg", "i/2.jpg", "m/1.png", "m/2.png"):
            (tmp_path / name).parent.mkdir(exist_ok=True)
            (tmp_path / name).write_text(name)
        return tmp_path

    def written(self, base, name, text):
        (base / name).write_bytes(text if isinstance(text, bytes) else text.encode())
        return base / name

    ROWS = (("i/1.jpg", "m/1.png", "one"), ("i/2.jpg", "m/2.png", "two"))

    def forms(self):
        import pyarrow as pa
        import pyarrow.parquet as pq

        names = ("image_file_name", "mask_file_name", "text")
        table = io.BytesIO()
        columns = dict(zip(names, map(list, zip(*self.ROWS, strict=True)), strict=True))
        pq.write_table(pa.table(columns), table)
        lines = [json.dumps(dict(zip(names, row, strict=True))) for row in self.ROWS]
        text = "\n".join(map(",".join, (names, *self.ROWS)))
        return {"metadata.csv": text, "list": text, "a.jsonl": "\n".join(lines), "a.parquet": table.getvalue()}

    @pytest.mark.parametrize("name", ["metadata.csv", "list", "a.jsonl", "a.parquet"])
    @pytest.mark.parametrize("kind", [ps.MapDataset, ps.IterableDataset])
    def test_columns_of_file_names_are_the_fields(self, base, name, kind):
        dataset = kind.from_manifest(self.written(base, name, self.forms()[name]), base=f"{base}/")
        assert [(plain(sample)[1], sample.label) for sample in dataset] == [
            ({"image": image.encode(), "mask": mask.encode()}, {"text": text}) for image, mask, text in self.ROWS
        ]
        assert [sample.key for sample in dataset] == ["i/1.jpg", "i/2.jpg"]

    def test_fields_name_the_columns(self, base):
        manifest = self.written(base, "a.csv", "a,b,label,c\nm/1.png,i/1.jpg,x,-\n")
        dataset = ps.MapDataset.from_manifest(manifest, fields=("b", "a"), labels=r"(\w)/")
        assert dataset.catalog.fields == ("b", "a")
        assert (plain(dataset[0])[1], dataset.classes) == ({"b": b"i/1.jpg", "a": b"m/1.png"}, ("i",))

    def test_missing_object_is_an_error_dropped_or_none(self, base):
        text = "image_file_name,mask_file_name\ni/1.jpg,m/1.png\n,m/2.png\ni/2.jpg,\n"
        manifest = self.written(base, "a.csv", text)
        with pytest.raises(ManifestError, match=r"a\.csv, line 3: no image, in a column image or image_file_name"):
            ps.MapDataset.from_manifest(manifest)
        assert len(ps.MapDataset.from_manifest(manifest, missing="drop")) == 1
        dataset = ps.MapDataset.from_manifest(manifest, missing="none")
        assert [[*plain(sample)[1].values()] for sample in dataset] == [
            [b"i/1.jpg", b"m/1.png"], [None, b"m/2.png"], [b"i/2.jpg", None]
        ]  # fmt: skip
        dataset.catalog.save(base / "catalog")
        assert ps.Catalog.open(base / "catalog").digest == dataset.catalog.digest

    def test_single_file_name_is_an_object(self, base):
        manifest = self.written(base, "metadata.csv", "file_name,text\ni/1.jpg,one\n")
        dataset = ps.MapDataset.from_manifest(manifest)
        assert (dataset[0].read(), dataset[0].label, dataset.catalog.fields) == (b"i/1.jpg", {"text": "one"}, ())

    @pytest.mark.parametrize(
        ("text", "arguments", "match"),
        [
            ("image_file_name,mask_file_name\ns3://other/a,b\n", {}, "line 2: 's3://other/a' is not in"),
            ('{"image_file_name": 5, "mask_file_name": "b"}', {}, "line 1: a key must be a string"),
            (r'{"image_file_name": "a", "mask_file_name": "\ud800"}', {}, "line 1: 'utf-8' codec can't encode"),
            ("i/1.jpg one\n", {"fields": ("image", "mask")}, "line 1: no image"),
            ("key,image_file_name\na,b\n", {"fields": ("image", "mask")}, "line 2: no mask"),
        ],
    )
    def test_invalid_row_is_named(self, base, text, arguments, match):
        with pytest.raises(ManifestError, match=match):
            ps.MapDataset.from_manifest(self.written(base, "list", text), **arguments)

    def test_misuse_is_refused(self, base):
        manifest = self.written(base, "list", "i/1.jpg\n")
        with pytest.raises(Unusable, match="fields= is for a manifest with columns"):
            ps.MapDataset.from_manifest(manifest, fields=("a", "b"), parser=list)
        with pytest.raises(Unusable, match="names of several fields"):
            ps.MapDataset.from_manifest(manifest, fields="image")
