"""Samples of catalogs as datasets of Ray Data: each sample is a row, whatever its format; tasks need no driver."""

import io
import pickle
import subprocess
import sys
import tarfile
from types import SimpleNamespace

import pyarrow as pa
import pytest

import penstock as ps
from penstock.errors import AlreadyExists, Changed, ChecksumMismatch, NotFound, Unusable
from penstock.ray import CatalogSource, ShardSink, write
from penstock.ray import data as datas
from tests.jobs.packed import fill, members, shards

COUNT = 40


@pytest.fixture
def folder(tmp_path):
    for number in range(COUNT):
        path = tmp_path / "objects" / "ab"[number % 2] / f"{number:02}"
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(bytes([number]) * number)
    return f"file://{tmp_path}/objects/"


@pytest.fixture
def catalog(folder):
    return ps.Catalog.scan(folder, labels="folder").with_columns(weight=[number / 2 for number in range(COUNT)])


def rows(source, parallelism=3):
    """Return the rows of all tasks, each of which was pickled, as Ray does it."""
    tasks = pickle.loads(pickle.dumps([task.read_fn for task in source.get_read_tasks(parallelism)]))
    return [row for task in tasks for table in task() for row in table.to_pylist()]


@pytest.mark.parametrize("parallelism", [1, 3, 1000])
@pytest.mark.parametrize("saved", [False, True])
def test_each_sample_is_a_row_in_the_order_of_the_catalog(catalog, tmp_path, parallelism, saved):
    if saved:
        catalog.save(f"file://{tmp_path}/all.catalog")
    source = CatalogSource(f"file://{tmp_path}/all.catalog" if saved else catalog)
    found = rows(source, parallelism)
    assert [row["key"] for row in found] == [entry.key for entry in catalog]
    assert [(row["label"], row["weight"]) for row in found] == [
        (entry.label, number / 2) for number, entry in enumerate(catalog)
    ]
    assert all(row["bytes"] == bytes([int(row["key"][-2:])]) * int(row["key"][-2:]) for row in found)
    tasks = source.get_read_tasks(parallelism)
    assert len(tasks) == min(parallelism, COUNT)
    assert sum(task.metadata.num_rows for task in tasks) == COUNT
    assert source.estimate_inmemory_data_size() == sum(range(COUNT))


def test_a_task_imports_no_torch(catalog):
    [task] = CatalogSource(catalog).get_read_tasks(1)
    code = (
        "import pickle, sys\n"
        "tables = [*pickle.load(sys.stdin.buffer)()]\n"
        "print(sum(table.num_rows for table in tables), 'torch' in sys.modules)"
    )
    words = [sys.executable, "-c", code]
    done = subprocess.run(words, input=pickle.dumps(task.read_fn), stdout=subprocess.PIPE, check=True)
    assert done.stdout.split() == [b"%d" % COUNT, b"False"]


def test_fields_of_samples_inside_shards_are_columns(tmp_path):
    with tarfile.open(tmp_path / "a.tar", "w") as tar:
        for number in range(9):
            for name, data in ((f"{number}.txt", b"t%d" % number), (f"{number}.cls", b"%d" % (number % 2))):
                info = tarfile.TarInfo(name)
                info.size = len(data)
                tar.addfile(info, io.BytesIO(data))
    found = rows(CatalogSource(ps.Catalog.from_shards(f"file://{tmp_path}/", format="tar")))
    assert found == [{"key": f"{n}", "txt": b"t%d" % n, "cls": b"%d" % (n % 2)} for n in range(9)]


def test_a_field_named_as_another_column_is_refused(folder):
    catalog = ps.Catalog.scan(folder).with_columns(key=[0] * COUNT)
    with pytest.raises(Unusable, match="two values are named 'key'"):
        rows(CatalogSource(catalog))


def test_no_samples_are_one_empty_block(catalog):
    [task] = CatalogSource(catalog[:0]).get_read_tasks(8)
    assert [table.num_rows for table in task()] == [0]


def test_large_samples_come_in_several_blocks(catalog, monkeypatch):
    monkeypatch.setattr(datas, "_BLOCK_BYTES", 100)
    monkeypatch.setattr(datas, "_BATCH", 4)
    [task] = CatalogSource(catalog).get_read_tasks(1)
    tables = [*task()]
    assert len(tables) > 3
    assert pa.concat_tables(tables).num_rows == COUNT


def test_a_catalog_that_is_replaced_after_the_plan_is_refused(catalog, tmp_path):
    url = f"file://{tmp_path}/all.catalog"
    catalog.save(url)
    [task] = CatalogSource(url).get_read_tasks(1)
    catalog[:10].save(url)
    datas._open_catalog_version.cache_clear()
    with pytest.raises(Changed, match="the catalog was replaced"):
        [*task()]


def test_labels_of_a_catalog_that_was_saved_anew_are_those_of_now(catalog, tmp_path):
    url, half = f"file://{tmp_path}/all.catalog", len(catalog) // 2
    for names in (["a"] * half + ["b"] * half, ["b"] * half + ["a"] * half):
        labelled = catalog.with_labels(names, classes=("a", "b"))
        labelled.save(url)
        [task] = CatalogSource(url).get_read_tasks(1)
        assert [label for table in task() for label in table["label"].to_pylist()] == labelled.labels.tolist()


def test_secrets_do_not_travel(catalog):
    source = CatalogSource(catalog, store=ps.S3Options(access_key="a", secret_key="not-a-secret"))
    with pytest.raises((Unusable, TypeError), match=r"(?i)secret|pickle"):
        pickle.dumps([task.read_fn for task in source.get_read_tasks(1)])


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
