"""Labels and classes of a catalog reach the samples, with workers or without."""

from __future__ import annotations

import inspect
import io
import json
import pickle
import random
import resource
import shutil
from itertools import islice, pairwise
from multiprocessing.reduction import ForkingPickler

import numpy as np
import pytest
import torch
from PIL import Image

import penstock as ps
from penstock.data.catalog.catalog import Catalog, Entry
from penstock.errors import (
    Changed,
    Damaged,
    InvalidURL,
    ManifestError,
    NotFound,
    StateMismatch,
    UnknownScheme,
    Unusable,
)
from penstock.testing.servers import Scripted, reply
from tests.children import forked
from tests.data.datasets.transforms import explode, key_and_bytes, numbered
from tests.data.datasets.transforms import number as number_of

CLASSES, PHOTOS = ("cat", "dog", "owl"), 48


@pytest.fixture(scope="module")
def photos():
    """Photographs of mixed sizes, JPEG and PNG, by name: in folders named by class, of one colour for each class."""
    image = pytest.importorskip("PIL.Image")
    draw, found = random.Random(0), {}
    for number in range(PHOTOS):
        kind, file = number % len(CLASSES), io.BytesIO()
        size = (draw.randrange(20, 300), draw.randrange(20, 300))
        colour = tuple(255 if channel == kind else 0 for channel in range(3))
        suffix = "png" if number % 4 == 0 else "jpg"
        image.new("RGB", size, colour).save(file, {"png": "PNG", "jpg": "JPEG"}[suffix])
        found[f"{CLASSES[kind]}/{number:03}.{suffix}"] = file.getvalue()
    return found


def decode(sample):
    """Return the image and its label."""
    from PIL import Image

    image = Image.open(sample).convert("RGB").resize((32, 32))
    return torch.from_numpy(np.array(image)).permute(2, 0, 1), sample.label


@pytest.mark.parametrize("workers", [0, 2])
def test_photographs_in_folders_become_batches_with_labels(bucket, photos, workers):
    for name, data in {**photos, "LICENSE": b"text"}.items():
        bucket.client.put_object(Bucket=bucket.name, Key=f"photos/{name}", Body=data)
    url, store = f"{bucket.url}photos/", bucket.store
    with pytest.raises(Unusable, match=r"no folder.*exclude=\['LICENSE'\]"):
        ps.MapDataset.from_prefix(url, labels="folder", store=store)
    dataset = ps.MapDataset.from_prefix(url, labels="folder", exclude="LICENSE", transform=decode, store=store)
    assert dataset.classes == dataset[:5].classes == CLASSES

    training, validation = dataset.catalog.split(0.75, seed=0, by="label")
    seen = []
    for part in (training, validation):
        part_of = ps.MapDataset.from_catalog(part, transform=decode, store=store)
        loader = ps.DataLoader(part_of, 8, shuffle=True, num_workers=workers)
        for images, labels in loader:
            assert (images.dtype, images.shape[1:], labels.dtype) == (torch.uint8, (3, 32, 32), torch.int64)
            assert images.float().mean((2, 3)).argmax(1).tolist() == labels.tolist(), "the colour says the class"
            seen += labels.tolist()
    assert np.bincount(seen[: len(training)]).tolist() == [12, 12, 12]
    assert np.bincount(seen).tolist() == [16, 16, 16]


def test_an_iterable_dataset_takes_labels_too(tmp_path, photos):
    for name, data in photos.items():
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).write_bytes(data)
    dataset = ps.IterableDataset.from_prefix(f"{tmp_path}/", labels=r"^(\w+)/", shuffle=True)
    assert dataset.classes == CLASSES
    assert all(dataset.classes[sample.label] == sample.key.split("/")[-2] for sample in dataset)


@pytest.mark.parametrize("labels", ["folders", "(a)(b)", 7, ["cat"]])
@pytest.mark.parametrize("kind", [ps.MapDataset, ps.IterableDataset])
def test_a_rule_that_labels_nothing_is_refused_before_anything_is_listed(kind, labels):
    for make in (kind.from_prefix, kind.from_manifest, lambda url, labels: kind.from_objects([url], labels=labels)):
        with pytest.raises(Unusable, match="labels="):
            make("s3://no-such-bucket-anywhere/list.txt", labels=labels)


@pytest.mark.parametrize("kind", [ps.MapDataset, ps.IterableDataset])
class TestLabelsOfKeys:
    URLS = ("memory://labels/train/dog/1", "memory://labels/train/cat/2", "memory://labels/train/dog/3")

    @pytest.mark.parametrize("labels", ["folder", r"train/(\w+)/", lambda key: key.split("/")[1]])
    def test_objects_by_url(self, kind, labels):
        dataset = kind.from_objects(self.URLS, labels=labels)
        assert (dataset.classes, dataset.catalog.labels.tolist()) == (("cat", "dog"), [1, 0, 1])

    @pytest.mark.parametrize("labels", ["folder", r"^(\w+)/", lambda key: key.split("/")[0]])
    def test_a_manifest_whose_own_labels_they_replace(self, kind, labels, tmp_path):
        (tmp_path / "list.txt").write_text("dog/1 a mutt\ncat/2\ndog/3\n")
        dataset = kind.from_manifest(tmp_path / "list.txt", base="memory://labels/train/", labels=labels)
        assert (dataset.classes, dataset.catalog.labels.tolist()) == (("cat", "dog"), [1, 0, 1])

    def test_an_object_without_a_label_is_named(self, kind, tmp_path):
        (tmp_path / "list.txt").write_text("dog/1\n2\n")
        with pytest.raises(Unusable, match="1 objects have no folder below the prefix: '2'"):
            kind.from_manifest(tmp_path / "list.txt", base="memory://labels/train/", labels="folder")
        with pytest.raises(Unusable, match="do not match"):
            kind.from_objects(self.URLS, labels="/(cat)/")

    def test_none_may_be_meant(self, kind, tmp_path):
        (tmp_path / "list.txt").touch()
        empty = kind.from_manifest(tmp_path / "list.txt", labels="folder", allow_empty=True)
        assert len(empty.catalog.labels) == len(kind.from_objects([], labels="folder", allow_empty=True).catalog) == 0


def test_a_dataset_is_shown_with_its_class_its_size_and_its_place(tmp_path):
    class Scans(ps.MapDataset):
        pass

    folder = tmp_path / "Catalog"
    folder.mkdir()
    for number in range(3):
        (folder / f"{number}").write_bytes(b"x")
    scans = Scans.from_prefix(f"{folder}/")
    assert repr(scans) == f"<Scans of 3 objects under file://{folder}/>"
    assert repr(scans[1:]) == f"<Scans of 2 objects under file://{folder}/>"


def test_columns_reach_samples_and_travel_with_them():
    catalog = Catalog.build("memory://columns/", "", [Entry(f"{number}", 1) for number in range(4)])
    for entry in catalog:
        with ps.open(f"memory://columns/{entry.key}", "wb") as file:
            file.write(b"x")
    catalog = catalog.with_columns(weight=[0.5, 1, 1.5, 2], split=["a", "b", "a", "b"])
    dataset = ps.MapDataset.from_catalog(catalog[::-1])
    assert dataset[0].columns == {"weight": 2.0, "split": "b"}
    assert pickle.loads(pickle.dumps(dataset[1])).columns == {"weight": 1.5, "split": "a"}
    some = ps.IterableDataset.from_catalog(catalog.filter(mask=catalog.columns["split"] == "a"))
    assert [sample.columns["weight"] for sample in some] == [0.5, 1.5]
    assert ps.MapDataset.from_objects(["memory://columns/0"])[0].columns == {}


class TestRanges:
    @pytest.fixture
    def ranged(self, bucket):
        """Return a catalog of ranges of two objects, and the bytes of each entry."""
        rng = random.Random(1)
        entries, bodies = [], []
        for key in ("a.bin", "b.bin"):
            body = rng.randbytes(5000)
            etag = bucket.client.put_object(Bucket=bucket.name, Key=f"shards/{key}", Body=body)["ETag"].strip('"')
            cuts = [0, 1, 1, 700, 4096, 5000]
            for start, stop in pairwise(cuts):
                entries.append(Entry(f"shards/{key}", stop - start, None, etag, start))
                bodies.append(body[start:stop])
            entries.append(Entry(f"shards/{key}", 5000, None, etag))
            bodies.append(body)
        return Catalog.build(bucket.url, "shards/", entries), bodies

    @pytest.mark.parametrize("workers", [0, 2])
    def test_each_entry_is_read_as_its_own_sample(self, bucket, ranged, workers):
        catalog, bodies = ranged
        dataset = ps.MapDataset.from_catalog(catalog, store=bucket.store)
        assert [bytes(sample.data) for sample in dataset] == bodies
        assert [bytes(dataset[index].data) for index in (1, 3, -1)] == [bodies[index] for index in (1, 3, -1)]
        loader = ps.DataLoader(dataset, 5, num_workers=workers, collate_fn=list)
        assert [bytes(sample.data) for batch in loader for sample in batch] == bodies

    def test_an_object_that_was_replaced_is_refused(self, bucket, ranged):
        catalog, _ = ranged
        bucket.client.put_object(Bucket=bucket.name, Key="shards/a.bin", Body=bytes(5000))
        with pytest.raises(Changed):
            ps.MapDataset.from_catalog(catalog, store=bucket.store)[3]

    def test_a_saved_one_is_opened_as_it_was(self, bucket, ranged):
        catalog, _ = ranged
        part = catalog[::-2]
        part.save(f"{bucket.url}lists/ranges", store=bucket.store)
        opened = ps.Catalog.open(f"{bucket.url}lists/ranges", store=bucket.store)
        assert list(opened) == list(part)
        assert [opened.span(index) for index in range(len(opened))] == [part.span(index) for index in range(len(part))]
        assert opened.digest == part.digest


def _image(body):
    with ps.open("memory://hints/image.png", "wb") as file:
        file.write(body)
    return "memory://hints/"


def _notes(transform, body=b"x"):
    dataset = ps.MapDataset.from_prefix(_image(body), transform=transform)
    with pytest.raises(Exception) as caught:  # noqa: PT011  of any kind: its notes are compared
        next(iter(ps.DataLoader(dataset)))
    return caught.value.__notes__


def test_damaged_image_error_note_suggests_on_error_skip():
    image = io.BytesIO()
    Image.new("RGB", (64, 64)).save(image, "PNG")
    for body in (b"no image", image.getvalue()[:-40], image.getvalue()[:60]):
        where, hint = _notes(lambda sample: np.array(Image.open(sample)), body)
        assert where == "while transforming memory://hints/image.png"
        assert 'ps.DataLoader(…, on_error="skip") leaves such samples out' in hint
    dataset = ps.MapDataset.from_prefix(_image(b"no image"), transform=Image.open)
    loader = ps.DataLoader(dataset, on_error="skip")
    with pytest.raises(Damaged, match="no sample of a batch"):
        list(loader)


def _convert(sample):
    return sample.convert("RGB")


def _pil_image(image):
    if not isinstance(image, Image.Image):
        raise TypeError(f"pic should be PIL Image or ndarray. Got {type(image)}")  # torchvision's words


@pytest.mark.parametrize("transform", [_convert, _pil_image])
def test_image_transform_error_note_explains_it_receives_a_sample(transform):
    _, hint = _notes(transform)
    assert hint.startswith("a transform is called with a ps.Sample")
    assert "PIL.Image.open(sample)" in hint


@pytest.mark.parametrize("error", [ValueError("odd"), TypeError("unsupported"), NotFound("gone")], ids=repr)
def test_other_errors_of_a_transform_are_not_explained(error):
    def transform(_):
        raise error

    assert _notes(transform) == ["while transforming memory://hints/image.png"]


@pytest.fixture
def folder(tmp_path):
    return numbered(tmp_path / "data", 20)


def _grow(folder):
    """Write objects that a new listing would find, before and after those that are there."""
    for name in ("000a", "011a", "020"):
        with open(folder + name, "wb") as file:
            file.write(b"99")


@pytest.mark.parametrize("kind", [ps.MapDataset, ps.IterableDataset])
class TestBoth:
    def test_a_prefix(self, kind, folder):
        dataset = kind.from_prefix(folder, transform=number_of)
        assert list(dataset) == list(range(20))
        assert (dataset.catalog[3].key.rpartition("/")[2], dataset.catalog[3].size) == ("003", 1)

    def test_globs_choose(self, kind, folder):
        assert list(kind.from_prefix(folder, include="01*", exclude=["*5", "*6"], transform=number_of)) == [
            10, 11, 12, 13, 14, 17, 18, 19,
        ]  # fmt: skip

    def test_objects_by_url_in_the_order_given(self, kind, folder):
        urls = [f"{folder}{name}" for name in ("007", "003", "003")]
        dataset = kind.from_objects(urls, transform=number_of)
        assert list(dataset) == [7, 3, 3]
        assert dataset.catalog[0].size == -1

    def test_a_manifest_beside_the_data(self, kind, folder):
        with open(f"{folder}list.txt", "w") as file:
            file.write("004 four\n002 two\n")
        dataset = kind.from_manifest(f"{folder}list.txt")
        assert [(sample.label, sample.read()) for sample in dataset] == [("four", b"4"), ("two", b"2")]

    def test_a_manifest_elsewhere_and_a_parser_of_ones_own(self, kind, folder, tmp_path):
        (tmp_path / "mine").write_bytes(b"001=one;012=twelve")

        def parser(reader):
            for item in reader.read().decode().split(";"):
                yield tuple(item.split("="))

        dataset = kind.from_manifest(tmp_path / "mine", parser=parser, base=folder)
        assert [(sample.label, sample.read()) for sample in dataset] == [("one", b"1"), ("twelve", b"12")]

    def test_a_catalog_is_listed_once_and_used_twice(self, kind, folder):
        catalog = ps.MapDataset.from_prefix(folder).catalog
        assert list(kind.from_catalog(catalog, transform=number_of)) == list(range(20))

    def test_saved_catalog_excludes_objects_added_later(self, kind, folder, tmp_path):
        ps.Catalog.scan(folder, include="01*").save(tmp_path / "train.catalog")
        _grow(folder)
        assert list(kind.from_catalog(tmp_path / "train.catalog", transform=number_of)) == list(range(10, 20))
        assert list(kind.from_catalog(f"{tmp_path}/train.catalog", transform=number_of)) == list(range(10, 20))

    def test_non_catalog_file_raises_manifest_error_with_its_url(self, kind, folder):
        with pytest.raises(ManifestError, match="not a catalog") as caught:
            kind.from_catalog(f"{folder}003")
        assert caught.value.url == f"file://{folder}003"
        with pytest.raises(NotFound):
            kind.from_catalog(f"{folder}none")

    def test_a_base_is_a_folder_however_it_is_written(self, kind, folder, tmp_path):
        (tmp_path / "list.jsonl").write_text('{"key": "001", "size": 1}')
        catalogs = [
            kind.from_manifest(tmp_path / "list.jsonl", base=base).catalog
            for base in (folder, folder.removesuffix("/"))
        ]
        assert catalogs[0].digest == catalogs[1].digest == ps.Catalog.scan(folder, include="001").digest

    def test_empty_listing_raises_unless_allow_empty_is_set(self, kind, tmp_path):
        with pytest.raises(NotFound, match="allow_empty") as caught:
            kind.from_prefix(f"{tmp_path}/none/")
        assert caught.value.url.endswith("/none/")
        with pytest.raises(NotFound, match="allow_empty"):
            kind.from_objects([])
        (tmp_path / "empty.txt").touch()
        with pytest.raises(NotFound, match="allow_empty"):
            kind.from_manifest(tmp_path / "empty.txt")
        assert list(kind.from_prefix(f"{tmp_path}/none/", allow_empty=True)) == []
        assert list(kind.from_objects([], allow_empty=True)) == []
        assert list(kind.from_manifest(tmp_path / "empty.txt", allow_empty=True)) == []

    @pytest.mark.parametrize("given", ["no", 2, None])
    def test_allow_empty_is_true_or_false(self, kind, given, tmp_path):
        (tmp_path / "empty.txt").write_text("\n")
        (tmp_path / "full").mkdir()
        (tmp_path / "full" / "a.bin").touch()
        (tmp_path / "empty.tar").write_bytes(bytes(10240))
        for make, what in (
            (kind.from_prefix, f"{tmp_path}/none/"),
            (kind.from_prefix, f"{tmp_path}/full/"),
            (kind.from_objects, []),
            (kind.from_objects, [f"{tmp_path}/full/a.bin"]),
            (kind.from_manifest, tmp_path / "empty.txt"),
            (kind.from_shards, tmp_path / "empty.tar"),
        ):
            with pytest.raises(Unusable, match="allow_empty must be True or False, got"):
                make(what, allow_empty=given)

    def test_a_line_that_does_not_parse_is_named(self, kind, tmp_path):
        (tmp_path / "bad.csv").write_text("key,size\na,1\nb,many\n")
        with pytest.raises(ManifestError, match="line 3"):
            kind.from_manifest(tmp_path / "bad.csv")

    def test_a_key_of_another_bucket_is_named_with_its_line(self, kind, tmp_path):
        (tmp_path / "stray.txt").write_text("a\ns3://other-bucket/b\n")
        with pytest.raises(ManifestError, match=r"stray.txt, line 2: 's3://other-bucket/b'"):
            kind.from_manifest(tmp_path / "stray.txt")

    def test_buckets_do_not_mix(self, kind):
        with pytest.raises(InvalidURL, match="other"):
            kind.from_objects(["s3://one-bucket/a", "s3://other-bucket/b"])

    def test_urls_that_cannot_be(self, kind):
        with pytest.raises(UnknownScheme):
            kind.from_prefix("s4://bucket/x")
        with pytest.raises(InvalidURL):
            kind.from_objects(["s3://"])

    def test_a_transforms_error_is_its_own_and_names_the_object(self, kind, folder):
        with pytest.raises(RuntimeError, match="boom") as caught:
            list(kind.from_prefix(folder, transform=explode))
        assert caught.value.__notes__ == [f"while transforming file://{folder}003"]

    def test_an_object_that_changed_since_it_was_listed(self, kind, folder):
        dataset = kind.from_prefix(folder)
        with open(f"{folder}005", "wb") as file:
            file.write(b"other")
        with pytest.raises(Changed) as caught:
            list(dataset)
        assert caught.value.url.endswith("005")

    def test_dataset_reads_objects_after_pickling(self, kind, folder):
        dataset = pickle.loads(pickle.dumps(kind.from_prefix(folder, transform=key_and_bytes)))
        assert [data for _, data in dataset] == [str(index).encode() for index in range(20)]

    def test_secrets_travel_only_where_they_were_passed(self, kind, monkeypatch):
        monkeypatch.setenv("AWS_ACCESS_KEY_ID", "AKENVIRONMENT")
        monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "secret-of-environment")
        silent = kind.from_objects(["s3://bucket/key"])
        assert b"secret-of" not in pickle.dumps(silent)
        told = kind.from_objects(["s3://bucket/key"], store=ps.S3Options(access_key="a", secret_key="secret-told"))
        assert b"secret-told" in bytes(ForkingPickler.dumps(told))
        with pytest.raises(Unusable, match="worker processes only"):
            pickle.dumps(told)
        assert "secret" not in repr(told) + repr(silent) + repr(vars(told))


class TestAPrefixThatGrows:
    """A run is stopped, the prefix grows, and the run goes on."""

    @staticmethod
    def _batches(dataset):
        return dataset.batched(3, collate_fn=list)

    def test_saved_catalog_resumes_where_a_new_listing_is_refused(self, folder, tmp_path):
        options = {"shuffle": True, "seed": 5, "transform": number_of}
        ps.Catalog.scan(folder).save(tmp_path / "train.catalog")
        whole = list(self._batches(ps.IterableDataset.from_catalog(tmp_path / "train.catalog", **options)))

        first = self._batches(ps.IterableDataset.from_catalog(tmp_path / "train.catalog", **options))
        seen = list(islice(first, 4))
        state = json.loads(json.dumps(first.state_at(4)))
        _grow(folder)

        again = self._batches(ps.IterableDataset.from_catalog(tmp_path / "train.catalog", **options))
        again.load_state_dict(state)
        assert seen + list(again) == whole
        with pytest.raises(StateMismatch):
            self._batches(ps.IterableDataset.from_prefix(folder, **options)).load_state_dict(state)

    def test_so_does_a_copy_elsewhere(self, folder, tmp_path):
        ps.Catalog.scan(folder).save(tmp_path / "train.catalog")
        first = self._batches(ps.IterableDataset.from_catalog(tmp_path / "train.catalog", transform=number_of))
        assert len(list(islice(first, 4))) == 4
        state = first.state_at(4)
        shutil.copytree(folder, tmp_path / "copy")
        shutil.rmtree(folder)
        catalog = ps.Catalog.open(tmp_path / "train.catalog", root=tmp_path / "copy")
        again = self._batches(ps.IterableDataset.from_catalog(catalog, transform=number_of))
        again.load_state_dict(state)
        assert [each for batch in again for each in batch] == list(range(12, 20))


def test_manifest_in_the_bucket_and_listing_of_it(bucket):
    bucket.client.put_object(Bucket=bucket.name, Key="train/a b", Body=b"1")
    bucket.client.put_object(Bucket=bucket.name, Key="train/ü", Body=b"22")
    bucket.client.put_object(Bucket=bucket.name, Key="train/dir/", Body=b"")
    bucket.client.put_object(
        Bucket=bucket.name, Key="lists/m.jsonl", Body='{"key": "a b", "label": [1]}\n{"key": "ü"}'.encode()
    )
    listed = ps.MapDataset.from_prefix(f"{bucket.url}train/", store=bucket.store)
    assert [(sample.key, sample.read()) for sample in listed] == [("train/a b", b"1"), ("train/ü", b"22")]
    told = ps.IterableDataset.from_manifest(f"{bucket.url}lists/m.jsonl", base=f"{bucket.url}train", store=bucket.store)
    assert [(sample.label, sample.read()) for sample in told] == [([1], b"1"), (None, b"22")]
    bucket.client.put_object(Bucket=bucket.name, Key="train/ü", Body=b"33")
    with pytest.raises(Changed):
        listed[1]


def test_secrets_are_in_no_error_of_a_dataset(bucket):
    wrong = ps.S3Options(endpoint=bucket.server.endpoint, access_key="AKWRONG", secret_key="very-secret-value")
    with pytest.raises(ps.PenstockError) as caught:
        ps.MapDataset.from_prefix(f"{bucket.url}none/", store=wrong)
    assert "very-secret" not in f"{caught.value!r} {caught.value} {vars(caught.value)}"


def test_datasets_of_one_catalog_take_no_descriptor_each(folder):
    catalog = ps.MapDataset.from_prefix(folder).catalog

    def many() -> None:
        resource.setrlimit(resource.RLIMIT_NOFILE, (256, 256))
        kept = [kind.from_catalog(catalog, transform=number_of) for kind in (ps.MapDataset, ps.IterableDataset) * 150]
        batches = [dataset.batched(5) for dataset in kept]
        samplers = [ps.BatchSampler(dataset, 5) for dataset in kept[::2]]
        assert [len(each) for each in (*batches, *samplers)] == [4] * 450
        assert list(kept[-1]) == list(kept[0]) == list(range(20))
        batches[1].set_epoch(5)
        assert [each.state_dict()["epoch"] for each in batches[:5]] == [0, 5, 0, 0, 0]

    with forked(many) as status:
        assert status() == 0


CONSTRUCTORS = {
    "from_prefix": ("url", {"include", "exclude", "allow_empty"}),
    "from_objects": ("urls", {"allow_empty"}),
    "from_manifest": ("manifest", {"parser", "base", "allow_empty"}),
    "from_catalog": ("catalog", set()),
}
OWN = {ps.MapDataset: {"transform", "store"}, ps.IterableDataset: {"transform", "shuffle", "seed", "place", "store"}}


@pytest.mark.parametrize("name", CONSTRUCTORS)
@pytest.mark.parametrize("kind", OWN)
def test_a_constructor_names_each_argument(kind, name):
    first, others = CONSTRUCTORS[name]
    parameters = inspect.signature(getattr(kind, name)).parameters
    assert next(iter(parameters)) == first
    assert {each for each in parameters if each != first} >= others | OWN[kind]
    assert {each.kind for each in list(parameters.values())[1:]} == {inspect.Parameter.KEYWORD_ONLY}
    described = inspect.getdoc(getattr(kind, name))
    assert all(each in described for each in others)
    assert f"Args:\n    {first}: " in described


@pytest.fixture(scope="module")
def counting():
    """A store that answers anything with 404 and counts what is asked."""
    with Scripted(lambda _received, send: send(reply(404)) or True) as server:
        yield server


MEANT_OTHERWISE = {
    "transform": ({"transform": 3}, Unusable, "plain function"),
    "store": ({"store": {"region": "eu"}}, Unusable, "ps.S3Options"),
    "option of the store": ({"region": "eu-west-1"}, TypeError, r"store=ps\.S3Options\(region="),
    "endpoint": ({"endpoint": "http://localhost"}, TypeError, r"store=ps\.S3Options\(endpoint="),
    "retry": ({"retry": ps.RetryOptions()}, TypeError, r"store=ps\.StoreOptions\(retry="),
    "batch size": ({"batch_size": 4}, TypeError, "ps.DataLoader"),
    "sampler": ({"sampler": None}, TypeError, "ps.DataLoader"),
    "anything": ({"nonsense": 1}, TypeError, "nonsense"),
    "seed": ({"seed": 0.5}, Unusable, "whole number"),
    "shuffle": ({"shuffle": "yes"}, Unusable, "True"),
    "place": ({"place": 1}, Unusable, "ps.Place"),
}


@pytest.mark.parametrize("name", ["from_prefix", "from_manifest", "from_catalog"])
@pytest.mark.parametrize("wrong", MEANT_OTHERWISE)
@pytest.mark.parametrize("kind", OWN)
def test_a_wrong_argument_costs_no_request(kind, wrong, name, counting):
    arguments, error, says = MEANT_OTHERWISE[wrong]
    if kind is ps.MapDataset and wrong in ("seed", "shuffle", "place"):
        error, says = TypeError, "ps.DataLoader"
    store = ps.S3Options(endpoint=counting.url, access_key="a", secret_key="b")
    with pytest.raises(error, match=says):
        getattr(kind, name)("s3://bucket/train/", **{"store": store, **arguments})
    assert not counting.received


def test_a_request_that_is_made_is_counted(counting):
    store = ps.S3Options(endpoint=counting.url, access_key="a", secret_key="b")
    with pytest.raises(NotFound):
        ps.MapDataset.from_catalog("s3://bucket/train/", store=store)
    assert counting.received
    counting.received.clear()


class Scaled(ps.MapDataset):
    """Takes one argument more, which has no default."""

    def __init__(self, catalog, *, scale, **options):
        super().__init__(catalog, **options)
        self.scale = scale

    def __getitem__(self, index):
        return self.scale * super().__getitem__(index)


class Fixed(ps.IterableDataset):
    """Takes fewer arguments, and other defaults."""

    def __init__(self, catalog, *, shuffle=True, store=None):
        super().__init__(catalog, transform=number_of, shuffle=shuffle, seed=7, store=store)


class Named(Scaled):
    """Gives ``transform`` another meaning."""

    def __init__(self, catalog, *, transform, **options):
        super().__init__(catalog, transform={"number": number_of}[transform], **options)


def test_constructor_arguments_of_a_subclass_are_passed_through(folder):
    dataset = Scaled.from_prefix(folder, include="00*", transform=number_of, scale=3)
    assert (type(dataset), dataset[4]) == (Scaled, 12)
    assert Scaled.from_catalog(dataset.catalog, transform=number_of, scale=2)[4] == 8
    assert Named.from_prefix(folder, transform="number", scale=2)[5] == 10


def test_a_slice_of_a_subclass_keeps_its_arguments(folder):
    dataset = Scaled.from_prefix(folder, transform=number_of, scale=3)
    part = ps.MapDataset.__getitem__(dataset, slice(4, 8))
    assert (isinstance(part, ps.MapDataset), len(part), part[1]) == (True, 4, 15)
    assert (type(part.whole), part.whole.scale, [*part.rows]) == (Scaled, 3, [4, 5, 6, 7])


def test_a_subclass_keeps_its_defaults_unless_the_caller_overrides_them(folder):
    assert sorted(Fixed.from_prefix(folder)) == list(range(20)) != list(Fixed.from_prefix(folder))
    assert list(Fixed.from_prefix(folder, shuffle=False)) == list(range(20))


@pytest.mark.parametrize("arguments", [{}, {"scale": 1, "scope": 2}, {"scale": 1, "seed": 2}])
def test_an_argument_a_subclass_lacks_costs_no_request(arguments, counting):
    store = ps.S3Options(endpoint=counting.url, access_key="a", secret_key="b")
    with pytest.raises(TypeError, match=r"Scaled\.from_prefix\(\).*(scale|scope|seed)"):
        Scaled.from_prefix("s3://bucket/train/", store=store, **arguments)
    assert not counting.received
