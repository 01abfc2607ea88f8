"""Rows of Ray Data as shards: each row once, whatever attempts have written; on a cluster: ``test_cluster``."""

import pickle
from types import SimpleNamespace

import pyarrow as pa
import pytest

import penstock as ps
from penstock.errors import AlreadyExists, ChecksumMismatch, NotFound, Unusable
from penstock.ray import CatalogSource, ShardSink, write
from tests.jobs.packed import fill, members, shards

ROWS = [{"key": f"a/{number}", "txt": f"t{number}", "cls": number % 3, "raw": bytes([number])} for number in range(10)]


def blocks(rows):
    return [pa.Table.from_pylist(part) for part in (rows[:4], rows[4:]) if part]


def begun(sink, rows, task=0):
    """Do what a task does, in another process as Ray does it."""
    return pickle.loads(pickle.dumps(sink)).write(blocks(rows), SimpleNamespace(task_idx=task))


def ended(sink, *returns):
    sink.on_write_complete(SimpleNamespace(write_returns=[*returns]))
    return sink.catalog()


def written(url, *tasks, **how):
    sink = ShardSink(url, **how)
    sink.on_write_start(None)
    return ended(sink, *(begun(sink, rows, task) for task, rows in enumerate(tasks)))


@pytest.mark.parametrize("form", ["tar", "zip", "parquet"])
def test_each_row_is_a_sample_with_its_fields(tmp_path, form):
    catalog = written(tmp_path, ROWS[:6], ROWS[6:], format=form, samples=4)
    assert [path.name for path in shards(tmp_path)] == [f"shard-00000{n}.{form}" for n in ("0-000", "0-001", "1-000")]
    found = [(sample["txt"], sample["cls"], sample["raw"]) for sample in ps.MapDataset.from_catalog(catalog)]
    expected = [(row["txt"].encode(), b"%d" % row["cls"], row["raw"]) for row in ROWS]
    assert [tuple(bytes(each.data if hasattr(each, "data") else each) for each in row) for row in found] == expected
    assert ps.Catalog.open(tmp_path / "index.catalog", root=f"{tmp_path}/").digest == catalog.digest


def test_objects_that_were_read_keep_their_names(tmp_path):
    for number in range(6):
        path = tmp_path / "objects" / f"{number}.jpg"
        path.parent.mkdir(exist_ok=True)
        path.write_bytes(b"%d" % number)
    catalog = ps.Catalog.scan(f"{tmp_path}/objects/").with_columns(weight=[0.5] * 6)
    rows = [row for task in CatalogSource(catalog).get_read_tasks(1) for table in task() for row in table.to_pylist()]
    written(tmp_path / "packed", rows)
    [path] = shards(tmp_path / "packed")
    found = [(name.rpartition("/")[2], data) for name, data in members(path)]
    assert found[:3] == [("0.jpg", b"0"), ("0.weight", b"0.5"), ("1.jpg", b"1")]


def test_rows_without_a_key_are_numbered_by_task(tmp_path):
    written(tmp_path, [{"txt": "a"}], [{"txt": "b"}])
    assert [members(path) for path in shards(tmp_path)] == [
        [("000000000000000.txt", b"a")],
        [("000001000000000.txt", b"b")],
    ]


def test_a_repeated_task_counts_once_and_shards_of_its_first_attempt_go(tmp_path):
    sink = ShardSink(tmp_path, samples=2)
    sink.on_write_start(None)
    begun(sink, ROWS[:6])
    catalog = ended(sink, begun(sink, ROWS[:4]), None)
    assert len(catalog) == 4
    assert len(shards(tmp_path)) == 2


def test_an_attempt_that_comes_late_is_compared(tmp_path):
    sink = ShardSink(tmp_path)
    sink.on_write_start(None)
    reported = begun(sink, ROWS)
    begun(sink, ROWS)
    assert len(ended(sink, reported)) == len(ROWS)
    [path] = shards(tmp_path)
    data = path.read_bytes()
    path.write_bytes(data[:-1] + b"x")
    with pytest.raises(ChecksumMismatch, match="read back"):
        ended(sink, reported)
    path.write_bytes(data[:-1])
    with pytest.raises(NotFound, match="has been deleted"):
        ended(sink, reported)


def test_a_destination_with_shards_is_refused_or_emptied(tmp_path):
    to = tmp_path / "packed"
    written(to, ROWS, samples=2)
    with pytest.raises(AlreadyExists, match="overwrite=True"):
        written(to, ROWS[:3])
    with pytest.raises(AlreadyExists):
        ps.pack(fill(tmp_path / "data"), to)
    assert len(written(to, ROWS[:3], overwrite=True)) == 3
    assert len(shards(to)) == 1


class TestRefusals:
    @pytest.mark.parametrize(
        ("row", "told"),
        [
            ({"key": "a"}, "has no field"),
            ({"key": "a.b", "txt": "x"}, "would be read as 'b.txt'"),
            ({"key": "a/../b", "txt": "x"}, "name of a member"),
            ({"key": "a", "bytes": b"x"}, "no key and field"),
        ],
    )
    def test_rows_that_could_not_be_read_again(self, tmp_path, row, told):
        with pytest.raises(Unusable, match=told):
            written(tmp_path, [row])
        assert not (tmp_path / "index.catalog").exists()

    def test_arguments(self, tmp_path):
        for options, told in (
            ({"format": "mds"}, "format must be"),
            ({"samples": 0}, "samples"),
            ({"key": len}, "key"),
        ):
            with pytest.raises(Unusable, match=told):
                ShardSink(tmp_path, **options)
        with pytest.raises(Unusable, match="dataset of Ray Data, got a list"):
            write(ROWS, tmp_path)
        store = ps.S3Options(access_key="a", secret_key="not-a-secret")
        with pytest.raises((Unusable, TypeError), match=r"(?i)secret|pickle"):
            pickle.dumps(ShardSink("s3://bucket/a/", store=store))

    def test_no_rows(self, tmp_path):
        with pytest.raises(NotFound, match="no rows"):
            written(tmp_path)


def test_a_misspelt_or_foreign_keyword_names_the_function(tmp_path):
    with pytest.raises(TypeError, match=r"^write\(\) got an unexpected keyword argument 'sampels'"):
        write(None, tmp_path, sampels=3)
    # One of ps.pack.
    with pytest.raises(TypeError, match=r"^ShardSink.* got an unexpected keyword argument 'include'"):
        ShardSink(tmp_path, include="*")
