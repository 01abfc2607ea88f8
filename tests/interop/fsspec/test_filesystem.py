"""Files through fsspec: what is written is read, listed and removed; nothing half, and no error taken for a no."""

from __future__ import annotations

import io
import json
import multiprocessing
import pickle
import subprocess
import sys
import urllib.request
from collections import Counter
from contextlib import suppress
from datetime import UTC, datetime, timedelta
from multiprocessing.reduction import ForkingPickler

import fsspec
import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.fs
import pyarrow.parquet as pq
import pytest
from fsspec.core import url_to_fs
from fsspec.transaction import Transaction
from pyarrow.dataset import dataset, field

import penstock as ps
from penstock.errors import (
    AlreadyExists,
    Changed,
    ConfigError,
    InvalidURL,
    NotFound,
    PenstockError,
    Unsupported,
    Unusable,
)
from penstock.interop.arrow import RandomFile
from penstock.interop.fsspec import PenstockFileSystem
from penstock.interop.fsspec import filesystem as looks
from penstock.interop.fsspec.filesystem import BucketSources, Looks, Storage, asked_by_pyarrow
from penstock.interop.fsspec.schemes import kind_of
from penstock.stores.urls import parse
from penstock.testing.faults import FaultServer, Settings
from penstock.values import ObjectMeta
from tests.children import forked, in_c_thread


@pytest.fixture
def memory():
    return PenstockFileSystem()


@pytest.fixture
def files(opened):
    """Return a file system with two files in folders, and the bucket's name."""
    for key in ("a/x", "a/b/y"):
        with ps.open(f"{opened.url}{key}", "wb", store=opened.store) as file:
            file.write(key.encode())
    return fsspec.filesystem("s3", store=opened.store), opened.name


def test_a_url_opens_the_registered_store(opened):
    with fsspec.open(f"{opened.url}run/ä b+%.txt", "w", encoding="utf-8") as file:
        file.write("händel\n")
    with fsspec.open(f"{opened.url}run/ä b+%.txt", "r", encoding="utf-8") as file:
        assert file.read() == "händel\n"
    with ps.open(f"{opened.url}run/ä b+%.txt", store=opened.store) as file:
        assert file.read() == "händel\n".encode()
    fs, path = url_to_fs(f"{opened.url}run/")
    assert path == f"{opened.name}/run"
    assert fs.unstrip_protocol(path) == f"{opened.url}run"


def test_filesystem_distinguishes_files_from_directories(files):
    fs, name = files
    assert fs.ls(f"s3://{name}", detail=False) == [f"{name}/a"]
    assert fs.ls(f"{name}/a", detail=False) == [f"{name}/a/x", f"{name}/a/b"]
    assert fs.ls(f"{name}/a/x", detail=False) == [f"{name}/a/x"]
    kinds = {path: (fs.exists(path), fs.isfile(path), fs.isdir(path)) for path in (name, f"{name}/a", f"{name}/a/x")}
    assert [*kinds.values()] == [(True, False, True), (True, False, True), (True, True, False)]
    assert (fs.exists(f"{name}/a/"), fs.exists(f"{name}/a/b/"), fs.exists(f"{name}/n")) == (True, True, False)
    assert sorted(fs.find(name)) == [f"{name}/a/b/y", f"{name}/a/x"]
    assert fs.glob(f"{name}/a/*/y") == [f"{name}/a/b/y"]
    assert abs(fs.modified(f"{name}/a/x") - datetime.now(UTC)) < timedelta(minutes=5)
    # a listing says it to the millisecond, a HEAD to the second
    assert abs(fs.modified(f"{name}/a/b") - fs.modified(f"{name}/a/b/y")) < timedelta(seconds=1)
    info = fs.info(f"{name}/a/x")
    assert (info["name"], info["type"], info["size"], bool(info["ETag"])) == (f"{name}/a/x", "file", 3, True)
    with pytest.raises(NotFound):
        fs.ls(f"{name}/n")


def test_a_marker_that_a_console_left_is_its_folder(files):
    fs, name = files
    fs_source = ps.open(f"s3://{name}/a/", "wb", store=fs.store)
    fs_source.close()
    assert fs.ls(f"{name}/a", detail=False) == [f"{name}/a/x", f"{name}/a/b"]
    ps.open(f"s3://{name}/empty/", "wb", store=fs.store).close()
    assert fs.ls(f"{name}/empty") == []
    assert fs.isdir(f"{name}/empty")


def test_files_move_and_go(files):
    fs, name = files
    fs.makedirs(f"{name}/new", exist_ok=False)
    assert not fs.exists(f"{name}/new")
    fs.mv(f"{name}/a/x", f"{name}/new/x")
    assert fs.cat(f"{name}/new/x") == b"a/x"
    fs.pipe({f"{name}/new/z": b"0123456789"})
    assert fs.cat_ranges([f"{name}/new/z"] * 2, [0, 5], [2, 7]) == [b"01", b"56"]
    fs.rm(f"s3://{name}/new", recursive=True)
    fs.rm(f"{name}/a/b/y")
    assert fs.find(name) == []
    assert fs.ls(name) == []


def test_a_write_is_whole_or_not_at_all(files):
    fs, name = files
    for mode in ("wb", "w"):
        with pytest.raises(RuntimeError), fs.open(f"{name}/a/x", mode) as file:
            file.write(b"half" if mode == "wb" else "half")
            raise RuntimeError
    with pytest.raises(AlreadyExists), fs.open(f"{name}/a/x", "xb") as file:
        file.write(b"another")
    for mode in ("ab", "r+b"):
        with pytest.raises(Unusable, match="mode must be"):
            fs.open(f"{name}/a/x", mode)
    assert fs.cat(f"{name}/a/x") == b"a/x"


def test_a_transaction_publishes_at_its_end(files):
    fs, name = files
    with fs.transaction:
        with fs.open(f"{name}/t", "w") as file:
            file.write("whole")
        for call in (file.buffer.tell, file.buffer.__enter__, lambda: file.buffer.write(b"more")):
            with pytest.raises(ValueError, match="closed"):
                call()
        assert not fs.exists(f"{name}/t")
    assert fs.cat(f"{name}/t") == b"whole"
    with pytest.raises(RuntimeError), fs.transaction:
        with fs.open(f"{name}/t", "wb") as file:
            file.write(b"another")
        raise RuntimeError
    with fs.transaction, pytest.raises(RuntimeError), fs.open(f"{name}/t", "wb") as file:
        file.write(b"half of another")
        raise RuntimeError
    assert fs.cat(f"{name}/t") == b"whole"


def test_a_store_that_cannot_be_asked_is_an_error_and_not_a_no(opened):
    refused = ps.S3Options(endpoint="http://127.0.0.1:9", access_key="a", secret_key="b", region="us-east-1")
    fs = kind_of("s3")(ps.S3Options(**{**_fields(refused), "retry": ps.RetryOptions(attempts=1)}))
    for ask in (fs.exists, fs.isfile, fs.isdir, fs.ls):
        with pytest.raises(PenstockError, match=r"127\.0\.0\.1"):
            ask("bucket/key")
    for path in ("", "s3://"):
        with pytest.raises(InvalidURL, match="buckets cannot be listed"):
            kind_of("s3")(opened.store).ls(path)


def _fields(options):
    return {name: getattr(options, name) for name in options.__dataclass_fields__}


def test_pickled_filesystem_keeps_its_options_in_another_process(files):
    fs, name = files
    via_url, _ = url_to_fs(f"s3://{name}")
    for each in (fs, via_url):
        program = "import pickle, sys; print(pickle.load(sys.stdin.buffer).cat(sys.argv[1]))"
        run = subprocess.run(
            [sys.executable, "-c", program, f"{name}/a/x"],
            input=ForkingPickler.dumps(each),
            capture_output=True,
            timeout=60,
            check=True,
        )
        assert run.stdout.strip() == b"b'a/x'"


def test_numpy_reads_through_it(files):
    import numpy as np

    fs, name = files
    with fs.open(f"{name}/n.npy", "wb") as file:
        np.save(file, np.arange(100_000))
    with fs.open(f"{name}/n.npy", "rb") as file:
        assert np.array_equal(np.load(io.BytesIO(file.read())), np.arange(100_000))


@pytest.mark.parametrize("below", ["", "/", "/a/.."])
def test_a_whole_bucket_is_not_deleted(files, below):
    system, bucket = files
    for path in (f"{bucket}{below}", [f"{bucket}/a/x", f"s3://{bucket}{below}"]):
        with pytest.raises(InvalidURL, match="whole bucket"):
            system.rm(path, recursive=True)
    assert sorted(system.find(bucket)) == [f"{bucket}/a/b/y", f"{bucket}/a/x"]


@pytest.mark.parametrize("how", [{"mode": "w"}, {"mode": "wb", "compression": "gzip"}])
def test_a_file_that_is_not_closed_in_its_transaction_is_not_published(memory, root, how):
    with pytest.raises(Unusable, match="not closed before its transaction"), memory.transaction:
        file = memory.open(f"{root}/k", **how)
        file.write("half" if how["mode"] == "w" else b"half")
    assert not memory.exists(f"{root}/k")
    memory.pipe_file(f"{root}/k", b"whole")
    assert memory.cat_file(f"{root}/k") == b"whole"
    with suppress(ValueError):
        file.close()


def test_a_transaction_that_fails_is_over(memory, root, monkeypatch):
    def as_in_2025(self, commit):
        while self.files:
            self.files.popleft().commit() if commit else None
        self.memory._intrans, self.memory._transaction, self.memory = False, None, None

    monkeypatch.setattr(Transaction, "complete", as_in_2025)
    with pytest.raises(AlreadyExists), memory.transaction:
        for name, mode in (("a", "wb"), ("b", "xb"), ("c", "wb")):
            with memory.open(f"{root}/{name}", mode) as file:
                file.write(name.encode())
        ps.copy(__file__, f"{root}/b")
    assert memory.find(root) == [f"{root}/a", f"{root}/b"]
    memory.pipe_file(f"{root}/later", b"1")
    assert memory.cat_file(f"{root}/later") == b"1"


@pytest.mark.parametrize("into", ["p/", "p/sub", "p/d/x/y"])
def test_a_directory_is_not_moved_into_itself(memory, root, into):
    memory.pipe({f"{root}/p/a": b"a", f"{root}/p/d/x": b"x"})
    for path in (f"{root}/p", f"{root}/p*"):
        with pytest.raises(Unusable, match="into itself"):
            memory.mv(path, f"{root}/{into}", recursive=True)
    assert memory.find(root) == [f"{root}/p/a", f"{root}/p/d/x"]


def test_mv_deletes_only_objects_that_were_moved(memory, root):
    memory.pipe({f"{root}/p/a": b"a", f"{root}/p/d/x": b"x", f"{root}/p/e[1]": b"e"})
    memory.mv(f"{root}/p/*", f"{root}/p/sub/", recursive=True)
    assert memory.find(root) == [f"{root}/p/sub/a", f"{root}/p/sub/d/x", f"{root}/p/sub/e[1]"]
    memory.mv(f"{root}/p/sub", f"{root}/q", recursive=True, maxdepth=1)
    assert memory.find(root) == [f"{root}/p/sub/d/x", f"{root}/q/a", f"{root}/q/e[1]"]


def test_rm_accepts_overlapping_paths_and_deletes_nothing_if_one_is_missing(memory, root):
    memory.pipe({f"{root}/p/a": b"a", f"{root}/p/d/x": b"x"})
    with pytest.raises(NotFound):
        memory.rm([f"{root}/p", f"{root}/none"], recursive=True)
    assert len(memory.find(root)) == 2
    memory.rm(f"{root}/p/**", recursive=True)
    assert memory.find(root) == []


@pytest.fixture
def counted():
    """Return a file system, a Parquet file in it, and a function that counts requests."""
    with FaultServer.within(Settings()) as server:
        server.make("bucket")
        fs = kind_of("s3")(server.store)

        def asked(act):
            before = len(server.seen())
            return act(), Counter(each.method for each in server.seen()[before:])

        yield fs, asked, server


def _table(rows=20_000):
    rng = np.random.default_rng(0)
    columns = {f"c{number}": rng.random(rows) for number in range(8)}
    return pa.table({"year": np.arange(rows) % 4, **columns})


def test_an_open_file_pickles_to_the_same_version_at_its_position(counted, monkeypatch):
    _, asked, server = counted
    for name, value in server.environment.items():
        monkeypatch.setenv(name, value)
    server.put("bucket", "x", b"0123456789")
    files = kind_of("s3")(endpoint=server.endpoint)
    with files.open("bucket/x", cache_type="none", block_size=4096) as file:
        file.seek(3)
        data = pickle.dumps(file)
        copy, requests = asked(lambda: pickle.loads(data))
        assert not requests, "it was described already"
        assert (copy.tell(), copy.read(), file.read(2)) == (3, b"3456789", b"34")
        server.put("bucket", "x", b"another one")
        with pytest.raises(Changed):
            pickle.loads(data).read()
    with pytest.raises(ValueError, match="closed"):
        pickle.dumps(file)


def test_an_open_file_is_pickled_for_workers_only_where_the_options_hold_secrets(files):
    fs, name = files
    with fs.open(f"{name}/a/x") as file:
        with pytest.raises(Unusable, match="worker processes"):
            pickle.dumps(file)
        assert pickle.loads(ForkingPickler.dumps(file)).read() == b"a/x"


@pytest.mark.parametrize("verb", ["info", "isfile", "isdir", "exists", "ls", "find", "cat_file", "modified", "ukey"])
def test_threads_started_by_c_are_answered_as_others_are(files, verb):
    fs, name = files
    method = getattr(fs, verb)
    assert in_c_thread(method, f"{name}/a/x") == method(f"{name}/a/x")


@pytest.mark.parametrize("mode", ["rb", "r", "wb"])
def test_files_are_opened_read_and_written_in_threads_started_by_c(files, mode):
    fs, name = files
    file = in_c_thread(fs.open, f"{name}/a/x", mode)
    if mode == "wb":
        assert in_c_thread(file.write, b"new") == 3
    else:
        assert in_c_thread(file.read, -1) == ("a/x" if mode == "r" else b"a/x")
    in_c_thread(file.__class__.close, file)
    assert fs.cat_file(f"{name}/a/x") == (b"new" if mode == "wb" else b"a/x")


def test_a_table_is_one_look_and_two_reads(counted):
    fs, asked, _ = counted
    table = _table()
    with fs.open("bucket/t.parquet", "wb") as file:
        pq.write_table(table, file)
    for columns in (None, ["c1", "c5"]):
        found, requests = asked(lambda which=columns: pq.read_table("bucket/t.parquet", filesystem=fs, columns=which))
        assert found.equals(table if columns is None else table.select(columns))
        assert requests["HEAD"] <= 1
        assert requests["GET"] <= 2
        assert sum(requests.values()) <= 3


def test_of_a_wide_table_just_the_wanted_columns_are_read(counted):
    fs, asked, server = counted
    table = _table(100_000)
    with fs.open("bucket/wide.parquet", "wb") as file:
        pq.write_table(table, file, compression="none", use_dictionary=False)
    before = len(server.seen())
    found, requests = asked(lambda: pq.read_table("bucket/wide.parquet", filesystem=fs, columns=["c2"]))
    assert found.equals(table.select(["c2"]))
    assert (requests["HEAD"], requests["GET"]) == (1, 2)
    ranges = [each.headers["range"] for each in server.seen()[before:] if each.method == "GET"]
    sizes = [int(stop) - int(start) + 1 for start, stop in (each[6:].split("-") for each in ranges)]
    assert sum(sizes) < 1.2 * 100_000 * 8


def test_a_table_of_many_row_groups_is_read_ahead(counted, monkeypatch):
    """pyarrow lets one thread at a time read a file: what it asks for next is on its way by then."""
    fs, asked, _ = counted
    begun = Counter()
    monkeypatch.setattr(
        RandomFile, "_begin", lambda self, *span, real=RandomFile._begin: (begun.update([1]), real(self, *span))
    )
    table = _table(120_000)
    with fs.open("bucket/groups.parquet", "wb") as file:
        pq.write_table(table, file, row_group_size=6_000, compression="none", use_dictionary=False)
    found, requests = asked(lambda: pq.read_table("bucket/groups.parquet", filesystem=fs, columns=["c2", "c5"]))
    assert found.equals(table.select(["c2", "c5"]))
    assert requests["HEAD"] == 1
    assert begun.total() > 20, "of 40 column chunks"
    assert requests["GET"] <= 1 + 1.5 * 40


def test_a_stream_of_pyarrow_is_read_ahead(counted):
    fs, _, _ = counted
    fs.pipe_file("bucket/t.csv", b"n\n" + b"1\n" * 10_000)
    handler = pyarrow.fs.PyFileSystem(pyarrow.fs.FSSpecHandler(fs))
    with handler.open_input_stream("bucket/t.csv") as file:
        assert file.read() == b"n\n" + b"1\n" * 10_000
    found = dataset("bucket/t.csv", filesystem=fs, format="csv").to_table()
    assert found.num_rows == 10_000


def test_pyarrow_never_mixes_two_versions(counted):
    fs, _, server = counted
    for rows in (20_000, 10_000):
        sink = pa.BufferOutputStream()
        pq.write_table(_table(rows), sink)
        server.put("bucket", "t.parquet", sink.getvalue().to_pybytes())  # another client's
        assert pq.read_table("bucket/t.parquet", filesystem=fs).num_rows == rows
    with pytest.raises(FileNotFoundError):
        pq.read_table("bucket/none.parquet", filesystem=fs)
    handler = pyarrow.fs.PyFileSystem(pyarrow.fs.FSSpecHandler(fs))
    with pytest.raises(FileNotFoundError):
        handler.open_input_file("bucket/none.parquet")


def test_datasets_of_pyarrow_go_there_and_back(counted):
    fs, _, _ = counted
    table = _table(4_000)
    pq.write_to_dataset(table, "bucket/set", partition_cols=["year"], filesystem=fs)
    found = dataset("bucket/set", filesystem=fs, partitioning="hive")
    half = found.to_table(filter=(field("year") == 3) & (field("c0") < 0.5))
    wanted = table.filter((pc.field("year") == 3) & (pc.field("c0") < 0.5))
    assert sorted(half["c0"].to_pylist()) == sorted(wanted["c0"].to_pylist())
    assert {each["year"] for each in half.select(["year"]).to_pylist()} == {3}
    assert len(fs.glob("bucket/set/year=*/*.parquet")) == 4
    pyarrow.fs.PyFileSystem(pyarrow.fs.FSSpecHandler(fs)).delete_dir("bucket/set")
    assert fs.find("bucket/set") == []


def test_pandas_reads_and_writes_urls(opened):
    import pandas as pd

    frame = pd.DataFrame({"a": [1, 2, 3], "b": ["x", "ü", ""]})
    frame.to_csv(f"{opened.url}t.csv.gz", index=False)
    assert pd.read_csv(f"{opened.url}t.csv.gz", keep_default_na=False).equals(frame)
    options = {name: getattr(opened.store, name) for name in ("endpoint", "region", "access_key", "secret_key")}
    PenstockFileSystem(**options).mv(f"{opened.url}t.csv.gz", f"{opened.url}u.csv.gz")
    frame.to_parquet(f"{opened.url}t.parquet", storage_options=options)
    assert pd.read_parquet(f"{opened.url}t.parquet", storage_options=options).equals(frame)
    with pytest.raises(ConfigError, match="did you mean 'region'"):
        pd.read_csv(f"{opened.url}u.csv.gz", storage_options={"regoin": "eu"})


def test_xarray_reads_zarr_through_it(opened):
    import xarray as xr

    whole = xr.Dataset({"t": (("x", "y"), np.arange(12.0).reshape(3, 4))})
    mapper = fsspec.get_mapper(f"{opened.url}set.zarr")
    mapper["a/b"] = b"1"
    assert dict(mapper.items()) == {"a/b": b"1"}
    whole.to_zarr(f"{opened.url}x.zarr", consolidated=True, zarr_format=2)
    assert xr.open_zarr(f"{opened.url}x.zarr").load().identical(whole)


def test_sizes_versions_times_and_addresses(counted):
    fs, _, server = counted
    fs.pipe({"bucket/a/x": b"123", "bucket/a/b/y": b"4567"})
    assert fs.du("bucket/a") == 7
    assert fs.du("bucket/a", total=False) == {"bucket/a/x": 3, "bucket/a/b/y": 4}
    assert fs.sizes(["bucket/a/x", "bucket/a/b/y"]) == [3, 4]
    assert fs.created("bucket/a/x") == fs.modified("bucket/a/x")
    before = fs.ukey("bucket/a/x"), fs.checksum("bucket/a/x")
    assert before == (fs.ukey("bucket/a/x"), fs.checksum("bucket/a/x"))
    fs.pipe_file("bucket/a/x", b"321")
    assert fs.ukey("bucket/a/x") != before[0]
    assert fs.checksum("bucket/a/x") != before[1]
    with urllib.request.urlopen(fs.sign("bucket/a/x", expiration=60)) as answer:  # noqa: S310  http of our own server
        assert answer.read() == b"321"
    with pytest.raises(Unusable, match="expiration and method"):
        fs.sign("bucket/a/x", expires=3)
    fs.touch("bucket/a/x")
    assert fs.size("bucket/a/x") == 0
    with pytest.raises(NotImplementedError):
        fs.touch("bucket/a/x", truncate=False)
    assert [each[0] for each in fs.walk("bucket/a")] == ["bucket/a", "bucket/a/b"]
    with pytest.raises(ValueError, match="maxdepth"):
        fs.find("bucket", maxdepth=0)
    assert fs.find("bucket", maxdepth=2, withdirs=True) == ["bucket/a", "bucket/a/b", "bucket/a/x"]
    assert server.objects("bucket").keys() == {"a/x", "a/b/y"}


def test_recursive_rm_deletes_a_folder_marker_with_its_contents(counted):
    fs, _, server = counted
    for key in ("f/", "f/x", "f/g/", "fx"):
        server.put("bucket", key, b"")
    fs.rm("bucket/f", recursive=True)
    assert server.objects("bucket").keys() == {"fx"}
    with pytest.raises(NotFound):
        fs.rm("bucket/f", recursive=True)
    with pytest.raises(InvalidURL):
        fs.open("bucket", "rb")


def test_filesystem_works_in_forked_and_spawned_children(counted):
    fs, _, _ = counted
    fs.pipe_file("bucket/k", b"0123")
    assert fs.cat_ranges(["bucket/k"], 1, 3) == [b"12"]
    with forked(lambda: _child(fs)) as status:
        assert status() == 0
    child = multiprocessing.get_context("spawn").Process(target=_child, args=(fs,))
    child.start()
    child.join(120)
    assert child.exitcode == 0


def _child(fs):
    assert fs.cat_file("bucket/k", -2) == b"23"
    assert fs.cat_ranges(["bucket/k"], 1, 3) == [b"12"]  # by the loop of this process
    assert fs.glob("bucket/*") == ["bucket/k"]


def test_chained_file_systems_stand_on_it(opened, tmp_path):
    with fsspec.open(f"{opened.url}a/k", "wb") as file:
        file.write(b"data")
    cached = {"cache_storage": str(tmp_path)}
    with fsspec.open(f"simplecache::{opened.url}a/k", simplecache=cached) as file:
        assert file.read() == b"data"
    with fsspec.open(f"filecache::{opened.url}a/k", filecache=cached) as file:
        assert file.read() == b"data"
    with pytest.raises(Unsupported, match="two versions"):
        fsspec.open(f"blockcache::{opened.url}a/k", blockcache={"cache_storage": f"{tmp_path}/b"}).open()
    below = fsspec.filesystem("dir", path=f"{opened.name}/a", fs=fsspec.filesystem("s3"))
    assert below.cat("k") == b"data"


META = ObjectMeta("k", 3, "e")


def test_a_look_serves_two_files():
    kept = Looks()
    kept.keep("b/k", META)
    assert [kept.take("b/k") for _ in range(3)] == [META, META, None]
    assert kept.take("b/other") is None


def test_a_look_is_forgotten_in_time_and_when_the_file_is_written(monkeypatch):
    now = [0.0]
    monkeypatch.setattr(looks, "monotonic", lambda: now[0])
    kept = Looks()
    for forget in (lambda: kept.forget("b/k"), kept.forget, lambda: now.__setitem__(0, now[0] + 6)):
        kept.keep("b/k", META)
        forget()
        assert kept.take("b/k") is None


def test_looks_are_bounded():
    kept = Looks()
    for number in range(1000):
        kept.keep(str(number), META)
    assert kept.take("999") == META
    assert kept.take("0") is None
    assert len(kept._looks) <= 256


def test_only_pyarrow_is_pyarrow():
    assert not asked_by_pyarrow()
    scope = {"__name__": "pyarrow.fs", "look": lambda: asked_by_pyarrow()}  # noqa: PLW0108  a frame of its own
    exec("def handler():\n    return look()", scope)  # noqa: S102  a function of a module of that name
    assert scope["handler"]() == "handler"


def test_a_bucket_has_one_source():
    places = BucketSources(Storage("penstock", None, {}))
    one, key = places.find("memory://a/x/y")
    other, _ = places.find("memory://a/z")
    assert one is other
    assert key == "x/y"
    assert places.find("memory://b/x")[0] is not one
    with pytest.raises(InvalidURL):
        places.find("s3://bucket:80/key")


S3 = {"endpoint": "http://127.0.0.1:9", "region": "eu", "access_key": "canary-id", "secret_key": "canary-secret"}


def test_keywords_become_options_of_the_provider():
    storage = Storage("s3", None, {**S3, "retry": {"attempts": "3"}, "anonymous": "false"})
    assert storage.store == ps.S3Options(**S3, retry=ps.RetryOptions(attempts=3))
    over = Storage("s3", ps.S3Options(region="us", read=ps.ReadOptions(split_bytes=1 << 20)), {"region": "eu"})
    assert (over.store.region, over.store.read.split_bytes) == ("eu", 1 << 20)
    neutral = Storage("s3", ps.StoreOptions(retry=ps.RetryOptions(attempts=2)), {"region": "eu"})
    assert neutral.store == ps.S3Options(region="eu", retry=ps.RetryOptions(attempts=2))


def test_keywords_wait_for_a_path_where_stores_differ():
    storage = Storage("penstock", None, {"anonymous": True})
    assert storage.options(parse("s3://bucket/key")) == ps.S3Options(anonymous=True)
    assert storage.of("gs://bucket/key") == ps.GCSOptions(anonymous=True)
    with pytest.raises(ConfigError, match="AzureOptions has no option 'region'"):
        Storage("penstock", None, {"region": "eu"}).of("az://container/key")


@pytest.mark.parametrize(
    ("scheme", "options", "words"),
    [
        ("s3", {"regoin": "eu"}, "did you mean 'region'"),
        ("penstock", {"regoin": "eu"}, "did you mean 'region'"),
        ("s3", {"endpoint_url": "http://x"}, "Penstock calls it endpoint"),
        ("penstock", {"key": "x"}, "Penstock calls it access_key"),
        ("s3", {"anon": True}, "Penstock calls it anonymous"),
        ("gs", {"region": "eu"}, "OSSOptions or S3Options"),
        ("s3", {"retry": {"atempts": 3}}, "did you mean 'attempts'"),
        ("s3", {"retry": {"attempts": "many"}}, "a whole number"),
        ("s3", {"anonymous": "perhaps"}, "true or false"),
    ],
)
def test_wrong_options_are_refused_when_the_file_system_is_made(scheme, options, words):
    with pytest.raises(ConfigError, match=words):
        kind_of(scheme)(**options)


def test_a_profile_takes_no_options_beside():
    with pytest.raises(ConfigError, match="into the profile"):
        PenstockFileSystem("name", region="eu")


def test_limits_of_listings_without_listings_are_refused():
    with pytest.raises(Unusable, match="use_listings_cache=True"):
        PenstockFileSystem(max_paths=3)


@pytest.mark.parametrize("scheme", ["s3", "penstock"])
def test_secrets_go_to_workers_and_nowhere_else(scheme):
    fs = kind_of(scheme)(**S3)
    for text in (repr(fs), repr(fs.store), str(fs._storage)):
        assert "canary" not in text
    with pytest.raises(Unusable, match="secret"):
        pickle.dumps(fs)
    for way in (fs.to_json, fs.to_dict):
        with pytest.raises(Unusable, match=r"secret.*include_password=False"):
            way()
        assert "canary" not in str(way(include_password=False))
    again = pickle.loads(ForkingPickler.dumps(fs))
    assert again == fs
    assert hash(again) == hash(fs)
    assert again.storage_options.keys() <= {"store", *S3, "asynchronous", "batch_size"}


@pytest.mark.parametrize(
    "fs",
    [
        PenstockFileSystem(),
        kind_of("s3")(region="eu", retry={"attempts": 3}),
        kind_of("s3")(ps.S3Options(region="eu")),
        kind_of("gs")("profile"),
        PenstockFileSystem(anonymous=True, use_listings_cache=True, max_paths=7),
        PenstockFileSystem(asynchronous=True),
    ],
    ids=["plain", "named", "store", "profile", "several", "asynchronous"],
)
def test_filesystem_without_secrets_survives_pickle_and_json(fs):
    for again in (pickle.loads(pickle.dumps(fs)), fsspec.AbstractFileSystem.from_json(fs.to_json())):
        assert (again, again.protocol, again.asynchronous) == (fs, fs.protocol, fs.asynchronous)
        assert again.unstrip_protocol("b/k") == fs.unstrip_protocol("b/k")
    assert json.loads(fs.to_json())["protocol"] in ("s3", "gs", "penstock")


def test_a_function_goes_into_no_text():
    with pytest.raises(Unusable):
        kind_of("s3")(credentials=len).to_json(include_password=False)


def test_file_systems_of_other_secrets_are_others():
    assert kind_of("s3")(**S3) == kind_of("s3")(**S3)
    assert kind_of("s3")(**S3) != kind_of("s3")(**{**S3, "secret_key": "another-secret"})
    assert kind_of("s3")(region="eu") != kind_of("gs")()
