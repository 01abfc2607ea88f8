"""What a dataset consists of is told by a digest, pickles small, and keeps small arrays."""

import pickle

import numpy as np

from penstock.datasets.zarr.dataset import ZarrDataset
from tests.datasets.zarr.stores import SPATIAL, numbered, write

VALUES = numbered((21, 6, 8))
DIMS = ("time", "y", "x")


def test_the_digest_tells_samples_apart_and_not_where_they_lie(tmp_path):
    for name in "ab":
        write(tmp_path / name, VALUES, DIMS, **SPATIAL)
    write(tmp_path / "c", VALUES[:20], DIMS, **SPATIAL)

    def digest(name, **arguments):
        return ZarrDataset(str(tmp_path / name), **arguments).contents.digest

    assert digest("a") == digest("b") == digest("a", shuffle=True)
    different = [digest("a"), digest("c"), digest("a", offsets=1), digest("a", dims="y"), digest("a", patch={"y": 3})]
    different += [digest("a", stride=2), digest("a", select={"x": slice(0, 4)}), digest("a", valid=[0, *[1] * 20])]
    assert len({*different}) == len(different)


def test_pickled_contents_read_the_same(tmp_path):
    write(tmp_path / "a", VALUES, DIMS, **SPATIAL)
    dataset = ZarrDataset(str(tmp_path / "a"), valid=[0, *[1] * 20])
    first = list(dataset)
    again = pickle.loads(pickle.dumps(dataset.contents))
    assert len(pickle.dumps(dataset.contents)) < 10_000
    assert again.digest == dataset.contents.digest
    assert len(again) == len(first) == 20


def test_an_array_that_all_samples_share_is_read_once(tmp_path):
    write(tmp_path / "a", VALUES, DIMS, **SPATIAL)
    write(tmp_path / "height", VALUES[0], ("y", "x"), chunks=(4, 5))
    urls = {name: str(tmp_path / name) for name in ("a", "height")}
    dataset = ZarrDataset(urls, patch={"y": 3})
    kept = dataset.contents.kept[1]
    assert dataset.contents.kept[1] is kept
    for sample, (_, y) in zip(dataset, dataset.contents.arrangement.space.positions(np.arange(42)), strict=True):
        np.testing.assert_array_equal(sample["height"].numpy(), VALUES[0, y : y + 3])


def test_a_sample_is_named_by_its_place(tmp_path):
    write(tmp_path / "a", VALUES, DIMS, **SPATIAL)
    assert ZarrDataset(str(tmp_path / "a")).contents.name_of([7]).endswith("/a/ at time=7")
