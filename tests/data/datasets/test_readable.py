"""Columns and byte ranges of a catalog reach the samples; errors of a transform have notes."""

import io
import pickle
import random
from itertools import pairwise

import numpy as np
import pytest
from PIL import Image

import penstock as ps
from penstock.data.catalog.catalog import Catalog, Entry
from penstock.errors import Changed, Damaged, NotFound


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
