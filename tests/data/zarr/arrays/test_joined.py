"""Arrays of several stores are read in parallel, each in its own."""

import numpy as np

import penstock as ps
from tests.data.zarr.stores import LAYOUTS, numbered, write

VALUES = numbered((21, 6, 8))
DIMS = ("time", "y", "x")


def copied(folder, url):
    for path in folder.rglob("*"):
        if path.is_file():
            with ps.open(f"{url}/{path.relative_to(folder)}", "wb") as file:
                file.write(path.read_bytes())


def test_samples_and_targets_may_lie_in_different_stores_under_one_key(tmp_path, monkeypatch):
    monkeypatch.setattr("penstock.data.zarr.samples.arrangement._KEPT_BYTES", 0)
    write(tmp_path / "a", VALUES, DIMS, **LAYOUTS["sharded"])
    write(tmp_path / "b", VALUES + 1000, DIMS, **LAYOUTS["sharded"])
    copied(tmp_path / "a", "memory://joined-one/x.zarr")
    copied(tmp_path / "b", "memory://joined-two/x.zarr")
    urls = {"local": str(tmp_path / "a"), "one": "memory://joined-one/x.zarr"}
    dataset = ps.ZarrDataset(urls, "memory://joined-two/x.zarr")
    loader = ps.DataLoader(dataset, 5)
    batches = list(loader)
    for name in urls:
        np.testing.assert_array_equal(np.concatenate([inputs[name] for inputs, _ in batches]), VALUES)
    np.testing.assert_array_equal(np.concatenate([targets for _, targets in batches]), VALUES + 1000)


def test_samples_and_targets_of_one_store_share_its_source(tmp_path):
    write(tmp_path / "a", VALUES, DIMS, **LAYOUTS["whole"])
    contents = ps.ZarrDataset(str(tmp_path / "a"), str(tmp_path / "a")).contents
    assert contents.source is contents.arrays[0].source
