"""Labels and classes of a catalog reach the samples, with workers or without."""

from __future__ import annotations

import io
import pickle
import random
from itertools import pairwise

import numpy as np
import pytest
import torch
from PIL import Image

import penstock as ps
from penstock.data.catalog.catalog import Catalog, Entry
from penstock.errors import Changed, Damaged, NotFound, Unusable

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
