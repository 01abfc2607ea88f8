"""``s3://`` through fsspec: what is written is read, listed and removed; nothing half, and no error taken for a no."""

from __future__ import annotations

import io
import subprocess
import sys
from datetime import UTC, datetime, timedelta
from multiprocessing.reduction import ForkingPickler

import fsspec
import pytest
from fsspec.core import url_to_fs
from fsspec.registry import _registry

import penstock as ps
from penstock.errors import AlreadyExists, InvalidURL, NotFound, PenstockError, Unusable
from penstock.interop.fsspec import PenstockFileSystem, register


@pytest.fixture
def opened(bucket):
    """Have fsspec open the bucket with Penstock, for this test alone."""
    register(bucket.store)
    yield bucket
    PenstockFileSystem.default = None
    _registry.pop("s3")


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


def test_files_and_folders_are_told_apart(files):
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
        with pytest.raises(Unusable, match="opened"):
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
    fs = PenstockFileSystem(ps.S3Options(**{**_fields(refused), "retry": ps.RetryOptions(attempts=1)}))
    for ask in (fs.exists, fs.isfile, fs.isdir, fs.ls):
        with pytest.raises(PenstockError, match=r"127\.0\.0\.1"):
            ask("bucket/key")
    for path in ("", "s3://"):
        with pytest.raises(InvalidURL, match="buckets are not listed"):
            PenstockFileSystem(opened.store).ls(path)


def _fields(options):
    return {name: getattr(options, name) for name in options.__dataclass_fields__}


def test_it_travels_to_another_process_with_its_options(files):
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
