"""Several splits below a prefix are named in the log, with the URL of one of them."""

import pytest

import penstock as ps
from penstock.data.catalog.discovery.scan import first_names


@pytest.mark.parametrize(
    ("files", "one"),
    [
        (("data/test-00000-of-00001.jsonl", "data/train-00000-of-00001.jsonl"), "data/test*"),
        (("test/a.jsonl", "train/a.jsonl"), "test/"),
        (("x/c4-train.0.jsonl", "x/c4-validation.0.jsonl"), "x/c4-train*"),
    ],
)
def test_splits_of_shards_are_named(tmp_path, caplog, files, one):
    for name in files:
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text("{}\n")
    assert len(ps.MapDataset.from_shards(f"{tmp_path}/")) == 2
    (record,) = caplog.records
    assert "several splits are read as one" in record.getMessage()
    advice = record.getMessage().rpartition(" ")[2]
    assert advice.endswith(one)
    caplog.clear()
    assert len(ps.MapDataset.from_shards(advice)) == 1
    assert not caplog.records


def test_splits_of_objects_are_named(tmp_path, caplog):
    for name in ("images/test/cat/a.png", "images/train/cat/a.png", "images/train/dog/b.png"):
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).touch()
    ps.Catalog.scan(f"{tmp_path}/", labels="folder")
    assert "test (1), train (1); for one of them pass" in caplog.text
    caplog.clear()
    ps.Catalog.scan(f"{tmp_path}/images/train/", labels="folder")
    assert not caplog.records


def test_names_that_show_splits_are_found_in_few_steps():
    class Counted(list):
        asked = 0

        def __getitem__(self, at):
            Counted.asked += 1
            return super().__getitem__(at)

    keys = [f"b/{name}{at:06}".encode() for name in ("a/", "test-", "train-", "z/y/") for at in range(10_000)]
    assert first_names(Counted(keys), "b/") == ["a/", "test-000000", "train-000000", "z/"]
    assert Counted.asked < 200
