"""Links in local folders that lead to no file are refused where data are listed, and links to folders are named."""

import penstock as ps
from penstock.errors import NotFound
from tests.refusals import refused


def names(catalog):
    return [entry.key[len(catalog.base) :] for entry in catalog]


def test_broken_link_among_objects_is_refused(tmp_path):
    (tmp_path / "a.bin").touch()
    (tmp_path / "b.bin").symlink_to("nowhere")
    (tmp_path / ".#a.bin").symlink_to("me@here")
    refused(NotFound, r"the link leads to 'nowhere', which is not there: .*b\.bin", ps.Catalog.scan, f"{tmp_path}/")
    assert names(ps.Catalog.scan(f"{tmp_path}/", exclude="b.*")) == ["a.bin"]
    assert names(ps.Catalog.scan(f"{tmp_path}/a")) == ["a.bin"]


def test_broken_link_among_shards_is_refused(tmp_path):
    (tmp_path / "part-0.jsonl").write_text("{}\n")
    (tmp_path / "part-1.jsonl").symlink_to("nowhere")
    (tmp_path / "readme.txt").symlink_to("nowhere")
    refused(NotFound, r"part-1\.jsonl", ps.MapDataset.from_shards, f"{tmp_path}/")
    assert len(ps.MapDataset.from_shards(f"{tmp_path}/part-0*")) == 1


def test_links_to_folders_are_named_in_the_log(tmp_path, caplog):
    (tmp_path / "data/cat").mkdir(parents=True)
    (tmp_path / "data/cat/a.png").touch()
    (tmp_path / "data/dog").symlink_to(tmp_path)
    (tmp_path / "data/.hidden").symlink_to(tmp_path)
    assert names(ps.Catalog.scan(f"{tmp_path}/data/")) == ["cat/a.png"]
    (record,) = caplog.records
    assert "1 links to folders are not followed" in record.getMessage()
    assert str(tmp_path / "data/dog") in record.getMessage()
