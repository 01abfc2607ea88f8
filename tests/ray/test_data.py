"""Samples of catalogs as datasets of Ray Data: each sample is a row, whatever its format; tasks need no driver."""

import io
import pickle
import subprocess
import sys
import tarfile

import pyarrow as pa
import pytest

import penstock as ps
from penstock.errors import Changed, Unusable
from penstock.ray import CatalogSource
from penstock.ray import data as datas

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
