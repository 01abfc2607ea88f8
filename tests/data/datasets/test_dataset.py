"""Labels and classes of a catalog reach the samples, with workers or without."""

import io
import random

import numpy as np
import pytest
import torch

import penstock as ps
from penstock.errors import Unusable

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
