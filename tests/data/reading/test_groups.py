"""Samples of several objects are delivered whole, once each, by any loader; an error is that of one sample."""

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
from penstock.errors import ManifestError, NotFound, Unusable
from penstock.testing.restarts import check_restarts
from tests.amounts import examples
from tests.data.shards.archives import tar

COUNT = 60


def label(number):
    return f"{number:04}"


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """Make pairs, of which every seventh lacks its text."""
    folder, draw = tmp_path_factory.mktemp("pairs"), random.Random(0)
    for number in range(COUNT):
        (folder / f"{label(number)}.bin").write_bytes(b"%d " % number + draw.randbytes(draw.randrange(2000)))
        if number % 7:
            (folder / f"{label(number)}.txt").write_text(f"caption {number}")
    return folder


@pytest.fixture(scope="module")
def masks():
    """Write masks into another store."""
    url = "memory://masks-of-groups/masks/"
    for number in range(COUNT):
        with ps.open(f"{url}{label(number)}.tif", "wb") as file:
            file.write(b"mask %d" % number)
    return url


def plain(sample):
    """Return a sample as values that can be compared."""
    return sample.key, {field: sample[field] and bytes(sample[field].data) for field in sample.fields}


def expected(folder, missing):
    found = {}
    for number in range(COUNT):
        values = {}
        for end in ("bin", "txt"):
            path = folder / f"{label(number)}.{end}"
            values[end] = path.read_bytes() if path.exists() else None
        if missing == "none" or None not in values.values():
            found[label(number)] = values
    return found


@pytest.mark.parametrize("missing", ["drop", "none"])
@pytest.mark.parametrize("workers", [0, 2])
@pytest.mark.parametrize("order", [False, True, ps.order.BlockShuffle(block_bytes=5000), ps.order.Lanes(8)], ids=str)
def test_every_sample_comes_once_and_whole(folder, missing, workers, order):
    dataset = ps.MapDataset.from_prefix(f"{folder}/", group="stem", missing=missing, transform=plain)
    loader = ps.DataLoader(dataset, 8, shuffle=order, collate_fn=list, num_workers=workers)
    found = [each for batch in loader for each in batch]
    assert len(found) == len(dataset)
    assert dict(found) == expected(folder, missing)


def test_all_ways_of_reading_give_the_same(folder):
    arguments = {"group": "stem", "missing": "none", "transform": plain}
    dataset = ps.MapDataset.from_prefix(f"{folder}/", **arguments)
    streamed = [*ps.IterableDataset.from_prefix(f"{folder}/", **arguments)]
    assert streamed == [*dataset] == [dataset[at] for at in range(len(dataset))] == dataset.__getitems__(range(COUNT))
    assert dict(streamed) == expected(folder, "none")


def test_sample_names_its_objects(folder):
    dataset = ps.MapDataset.from_prefix(f"{folder}/", group="stem", missing="none")
    sample = dataset[8]
    assert (sample.key, sample.fields, sample.url) == ("0008", ("bin", "txt"), f"file://{folder}/0008.bin")
    assert sample["txt"].url == f"file://{folder}/0008.txt"
    assert sample["txt"].etag != sample["bin"].etag == sample.etag != ""
    assert sample.size == sample["bin"].size + sample["txt"].size
    assert dataset[7]["txt"] is None
    assert plain(pickle.loads(pickle.dumps(sample))) == plain(sample)
    with pytest.raises(KeyError, match="'json': the sample '0008' has the fields bin, txt"):
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
def test_several_stores_are_read_in_one_order(folder, masks, workers):
    joined = ps.Catalog.join({"image": ps.Catalog.scan(f"{folder}/", include="*.bin"), "mask": ps.Catalog.scan(masks)})
    dataset = ps.MapDataset(joined, transform=plain)
    context = {"multiprocessing_context": "fork"} if workers else {}
    loader = ps.DataLoader(dataset, 8, shuffle=True, collate_fn=list, num_workers=workers, **context)
    for _ in range(2):
        found = dict(each for batch in loader for each in batch)
        assert {key: each["mask"] for key, each in found.items()} == {
            label(number): b"mask %d" % number for number in range(COUNT)
        }
        assert all(each["image"].startswith(b"%d " % int(key)) for key, each in found.items())
    assert [plain(each) for each in ps.MapDataset(joined)] == dataset.__getitems__(range(COUNT))
    assert loader.stats().total.requests == 4 * COUNT


@pytest.mark.parametrize("ranks", [1, 2, 3])
def test_ranks_share_the_samples(folder, ranks):
    dataset = ps.MapDataset.from_prefix(f"{folder}/", group="stem", missing="none", transform=plain)
    found = []
    for rank in range(ranks):
        loader = ps.DataLoader(dataset, 4, shuffle=True, collate_fn=list, place=ps.Place(rank, ranks))
        found += [each for batch in loader for each in batch]
    assert sorted(key for key, _ in found) == [label(number) for number in range(COUNT)]
    assert dict(found) == expected(folder, "none")


def test_every_restart_goes_on_exactly(folder, masks):
    joined = ps.Catalog.join({"image": ps.Catalog.scan(f"{folder}/", include="*.bin"), "mask": ps.Catalog.scan(masks)})

    def make():
        dataset = ps.MapDataset(joined, transform=lambda sample: (sample.key, sample["mask"].read()))
        return ps.DataLoader(dataset, 16, shuffle=True, seed=5, collate_fn=list)

    check_restarts(make)


def test_parts_keep_their_members(folder):
    dataset = ps.MapDataset.from_prefix(f"{folder}/", group="stem", missing="none", transform=plain)
    every = expected(folder, "none")
    names = [*every]
    for part, rows in ((dataset[5:], names[5:]), (dataset[::-3], names[::-3]), (dataset[3:40][::7], names[3:40][::7])):
        assert [*part] == [(name, every[name]) for name in rows]
    for part in dataset.catalog.split(0.6, seed=2):
        assert all(every[key] == values for key, values in ps.MapDataset(part, transform=plain))


class Doubled(ps.MapDataset):
    def __getitem__(self, index):
        found = super().__getitem__(index)
        return found if isinstance(index, slice) else (found,) * 2


def test_subclass_with_a_reading_method_gets_groups(folder):
    dataset = Doubled.from_prefix(f"{folder}/", group="stem", missing="none", transform=plain)
    assert dataset[3:9][0] == (("0003", expected(folder, "none")["0003"]),) * 2
    loader = ps.DataLoader(dataset[3:9], 3, collate_fn=list)
    assert [each[0][0] for batch in loader for each in batch] == [label(number) for number in range(3, 9)]


def test_missing_object_is_the_error_of_its_sample(folder, tmp_path):
    for path in folder.iterdir():
        (tmp_path / path.name).write_bytes(path.read_bytes())
    dataset = ps.MapDataset.from_prefix(f"{tmp_path}/", group="stem", missing="drop", transform=plain)
    (tmp_path / "0009.txt").unlink()
    loader = ps.DataLoader(dataset, 8, collate_fn=list, on_error="skip")
    found = dict(each for batch in loader for each in batch)
    assert found.keys() == expected(folder, "drop").keys() - {"0009"}
    [skipped] = loader.skipped
    assert skipped.url.endswith("/0009.bin")
    assert "0009.txt" in skipped.error
    with pytest.raises(NotFound, match=r"0009\.txt"):
        list(ps.DataLoader(dataset, 8, collate_fn=list))


@pytest.mark.parametrize("stores", [1, 2])
def test_samples_that_are_made_quickly_come_several_in_an_item(masks, stores):
    images = f"memory://{'masks' if stores == 1 else 'images'}-of-groups/images/"
    for number in range(COUNT):
        with ps.open(f"{images}{label(number)}.bin", "wb") as file:
            file.write(b"%d" % number)
    parts = {"image": ps.Catalog.scan(images, include="*.bin"), "mask": ps.Catalog.scan(masks, include="*.tif")}
    whole = {"image": parts["image"], "mask": parts["mask"].filter(exclude="0011.tif")}
    dataset = ps.MapDataset(ps.Catalog.join(whole, missing="none"), transform=plain)
    batches = [[*range(30)], [], [*range(30, COUNT)]]
    items, made = [], []
    with dataset.reading(iter(batches), 1) as reading:
        for item in reading:
            items.append(item)
            made += item.make() if item.samples else [item.make()]
            threading.Event().wait(0.002)  # so that the next ones arrive
    assert max(item.samples for item in items) > 1
    assert made == [
        (label(at), {"image": b"%d" % at, "mask": None if at == 11 else b"mask %d" % at}) for at in range(COUNT)
    ]
    assert [item.batch for item in items] == sorted(item.batch for item in items)
    assert sum(item.samples or 1 for item in items if item.batch == 1) == 30


def test_error_of_a_transform_names_the_sample(folder):
    def fail(sample):
        raise ValueError(sample.key)

    dataset = ps.MapDataset.from_prefix(f"{folder}/", group="stem", missing="none", transform=fail)
    with pytest.raises(ValueError, match="0000") as caught:
        dataset[0]
    assert "0000.bin" in caught.value.__notes__[0]


def test_inspection_and_warming_know_all_objects(folder, masks, tmp_path):
    options = ps.StoreOptions(cache=ps.CacheOptions(path=tmp_path))
    joined = ps.Catalog.join({"image": ps.Catalog.scan(f"{folder}/", include="*.bin"), "mask": ps.Catalog.scan(masks)})
    dataset = ps.MapDataset(joined)
    loader = ps.DataLoader(dataset, 8, shuffle=True, collate_fn=list)
    planned = [each.url for each in loader.inspect(0)]
    assert planned == [sample.url for sample in next(iter(loader))]
    reads = {source.root: len([*spans]) for source, spans in loader.reads()}
    assert reads == {"file:///": COUNT, "memory://masks-of-groups/": COUNT}
    with pytest.raises(Unusable, match="lie in several stores"):
        dataset.spans()
    pairs = ps.Catalog.scan(f"{folder}/", group="stem", missing="none")
    warmed = ps.warm(ps.DataLoader(ps.MapDataset(pairs, store=options), 8, shuffle=True))
    again = ps.warm(pairs, store=options)
    assert warmed.fetched == again.present == len([*folder.iterdir()])


def test_options_may_differ_by_field(folder, masks):
    joined = ps.Catalog.join({"image": ps.Catalog.scan(f"{folder}/", include="*.bin"), "mask": ps.Catalog.scan(masks)})
    options = {"mask": ps.StoreOptions(read=ps.ReadOptions(ahead_items=8))}
    assert ps.MapDataset(joined, store=options)[3]["mask"].read() == b"mask 3"
    for wrong, match in (
        ({"depth": ps.StoreOptions()}, "options for 'depth', but the fields are image, mask"),
        ({"mask": 5}, "got an int"),
    ):
        with pytest.raises(Unusable, match=match):
            ps.MapDataset(joined, store=wrong)
    with pytest.raises(Unusable, match="got a dict"):
        ps.MapDataset.from_prefix(f"{folder}/", store=options)


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


def test_workers_of_a_fork_server_read_groups(folder):
    dataset = ps.MapDataset.from_prefix(f"{folder}/", group="stem", missing="none", transform=plain)
    loader = ps.DataLoader(dataset, 20, collate_fn=list, num_workers=1, multiprocessing_context="forkserver")
    assert dict(each for batch in loader for each in batch) == expected(folder, "none")


def test_samples_of_shards_are_joined_with_objects(folder, tmp_path):
    numbers = [*range(0, COUNT, 2)]
    members = [(f"{label(number)}.{end}", b"%d %s" % (number, end.encode())) for number in numbers for end in "ab"]
    (tmp_path / "a.tar").write_bytes(tar(members[:20]))
    (tmp_path / "b.tar").write_bytes(tar(members[20:]))
    shards = ps.Catalog.from_shards(f"{tmp_path}/")
    objects = ps.Catalog.scan(f"{folder}/", include="*.bin")
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
            ("image_file_name,mask_file_name\ns3://other/a,b\n", {}, "line 2: 's3://other/a' does not lie in"),
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
        with pytest.raises(Unusable, match="parser= reads one without columns"):
            ps.MapDataset.from_manifest(manifest, fields=("a", "b"), parser=list)
        with pytest.raises(Unusable, match="names of several fields"):
            ps.MapDataset.from_manifest(manifest, fields="image")
