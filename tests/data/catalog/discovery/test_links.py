"""Links in local folders that lead to no file are refused where data are listed, and links to folders are named."""

import logging

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import penstock as ps
from penstock.data.catalog.catalog import scan_all
from penstock.errors import NotFound
from tests.refusals import refused


def names(catalog):
    return [entry.key[len(catalog.base) :] for entry in catalog]


def test_broken_link_among_objects_is_refused(tmp_path):
    (tmp_path / "a.bin").touch()
    (tmp_path / "b.bin").symlink_to("nowhere")
    (tmp_path / ".#a.bin").symlink_to("me@here")
    refused(NotFound, r"the link leads to 'nowhere', which does not exist: .*b\.bin", ps.Catalog.scan, f"{tmp_path}/")
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
    assert "1 links to folders were not followed" in record.getMessage()
    assert str(tmp_path / "data/dog") in record.getMessage()


# -- leftovers of other tools


LEFT = (
    "_temporary/0/a.png",
    ".ipynb_checkpoints/a-checkpoint.png",
    "_SUCCESS",
    ".DS_Store",
    "b.png.tmp",
    "cat/._a.png",
)


@pytest.fixture
def folder(tmp_path):
    """Return a folder of two images in classes, with leftovers around them."""
    for name in ("cat/a.png", "dog/_MG_1.png", *LEFT):
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_bytes(b"x")
    return tmp_path


def test_scan_leaves_leftovers_out_and_names_them_once(folder, caplog):
    assert names(ps.Catalog.scan(f"{folder}/")) == ["cat/a.png", "dog/_MG_1.png"]
    (record,) = caplog.records
    assert record.levelno == logging.WARNING
    assert "6 objects are leftovers of other tools" in record.getMessage()


def test_classes_by_folder_have_no_leftovers(folder):
    assert ps.Catalog.scan(f"{folder}/", labels="folder").classes == ("cat", "dog")


def test_glob_that_names_a_leftover_reads_it(folder):
    found = ps.Catalog.scan(f"{folder}/", include=["_temporary/**", "**/*.png", "**/*.tmp"])
    assert names(found) == ["_temporary/0/a.png", "b.png.tmp", "cat/a.png", "dog/_MG_1.png"]


def test_url_below_a_leftover_reads_it(folder):
    assert names(ps.Catalog.scan(f"{folder}/_temporary/")) == ["0/a.png"]
    assert names(ps.Catalog.scan(f"{folder}/_SUCC")) == ["_SUCCESS"]


def test_prefix_of_nothing_but_leftovers_is_refused_by_their_names(tmp_path):
    (tmp_path / "_SUCCESS").touch()
    (tmp_path / ".DS_Store").touch()
    refused(NotFound, r"2 objects are leftovers of other tools: .*_SUCCESS", ps.Catalog.scan, f"{tmp_path}/")


def test_refresh_takes_no_leftovers(folder):
    catalog = ps.Catalog.scan(f"{folder}/")
    for name in ("zebra/a.png", "zebra/.a.png"):
        (folder / name).parent.mkdir(exist_ok=True)
        (folder / name).touch()
    assert names(catalog.refresh())[2:] == ["zebra/a.png"]


def test_drop_ins_list_all_objects(folder):
    assert len(scan_all(f"{folder}/", None)) == 8


def test_index_takes_no_leftovers(folder, tmp_path_factory):
    to = tmp_path_factory.mktemp("index") / "a.catalog"
    ps.index(f"{folder}/", to)
    assert names(ps.Catalog.open(to)) == ["cat/a.png", "dog/_MG_1.png"]


@pytest.fixture
def tables(tmp_path):
    """Return a folder of one Parquet file of 10 rows, and the same in places where other tools leave files."""
    places = (
        "part-0.parquet",
        "_temporary/0/part-0.parquet",
        "_old/part-0.parquet",
        ".x/part-0.parquet",
        "_b=1/p.parquet",
    )
    for name in places:
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        pq.write_table(pa.table({"a": range(10)}), tmp_path / name)
    return tmp_path


def test_shards_are_those_of_pyarrow_dataset(tables, caplog):
    assert len(ps.MapDataset.from_shards(f"{tables}/")) == 20
    assert "3 objects are leftovers" in caplog.text
    assert len(ps.MapDataset.from_shards(f"{tables}/**/*.parquet")) == 20


def test_glob_list_or_url_of_shards_that_are_leftovers_reads_them(tables):
    assert len(ps.MapDataset.from_shards(f"{tables}/_temporary/**/*.parquet")) == 10
    assert len(ps.MapDataset.from_shards(f"{tables}/_old/")) == 10
    assert len(ps.MapDataset.from_shards([f"{tables}/.x/part-0.parquet"])) == 10
    assert len(ps.MapDataset.from_shards(f"{tables}/_*/*.parquet")) == 20


def test_folder_of_leftover_shards_alone_is_refused_by_their_names(tables):
    (tables / "part-0.parquet").unlink()
    (tables / "_b=1/p.parquet").unlink()
    refused(NotFound, "only leftovers: 3 objects", ps.MapDataset.from_shards, f"{tables}/")


def test_leftover_in_a_refused_compression_does_not_matter(tables):
    (tables / "_temporary/a.tar.xz").touch()
    assert len(ps.MapDataset.from_shards(f"{tables}/")) == 20
