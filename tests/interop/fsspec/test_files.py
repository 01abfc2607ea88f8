"""Files of a file system: how they are read ahead, written, and carried whole."""

from __future__ import annotations

import io
import uuid

import pytest
from fsspec.callbacks import Callback

import penstock as ps
from penstock.errors import AlreadyExists, NotFound, Unusable
from penstock.interop.fsspec import PenstockFileSystem
from penstock.interop.fsspec.files import block_bytes

DATA = bytes(range(256)) * 400


@pytest.fixture
def root():
    url = f"memory://{uuid.uuid4().hex}"
    with ps.open(f"{url}/a/k", "wb") as file:
        file.write(DATA)
    return url


@pytest.fixture
def fs():
    return PenstockFileSystem()


def test_blocks_follow_cache_type_and_block_size():
    assert [block_bytes(each, None, 1 << 20) for each in ("none", "all", "readahead", None)] == [4096, 1 << 20, 0, 0]
    assert [block_bytes("bytes", each, 1 << 20) for each in (1, "default", 1 << 16, 1 << 40)] == [
        *(4096, 0, 1 << 16, 64 << 20)
    ]
    for kind, size in (("fast", None), ("readahead", 0), ("readahead", "big"), ("readahead", True)):
        with pytest.raises(Unusable):
            block_bytes(kind, size, 1)


@pytest.mark.parametrize("cache_type", ["none", "readahead", "bytes", "all", "background", "first"])
def test_every_cache_type_reads_the_same(fs, root, cache_type):
    with fs.open(f"{root}/a/k", cache_type=cache_type, block_size=5000, cache_options={}) as file:
        assert file.read(10) == DATA[:10]
        file.seek(-7, io.SEEK_END)
        assert file.read() == DATA[-7:]
        file.seek(0)
        assert file.read() == DATA
    with fs.open(f"{root}/a/k", "rt", encoding="latin-1", cache_type=cache_type) as file:
        assert file.read(3) == "\x00\x01\x02"
    for wrong in ({"cache_type": "fast"}, {"block_size": -1}):
        with pytest.raises(Unusable):
            fs.open(f"{root}/a/k", **wrong)


def test_exclusive_files_are_refused_at_once_and_at_the_end(fs, root):
    with pytest.raises(AlreadyExists):
        fs.open(f"{root}/a/k", "xb")
    late = fs.open(f"{root}/a/new", "xb")
    late.write(b"mine")
    fs.pipe_file(f"{root}/a/new", b"theirs", mode="create")
    with pytest.raises(AlreadyExists):
        late.close()
    with pytest.raises(AlreadyExists):
        fs.pipe_file(f"{root}/a/new", b"again", mode="create")
    assert fs.cat_file(f"{root}/a/new") == b"theirs"
    with pytest.raises(Unusable, match="overwrite"):
        fs.pipe_file(f"{root}/a/new", b"", mode="append")
    with pytest.raises(Unusable, match="opened"):
        fs.open(f"{root}/a/k", "ab")


class Counted(Callback):
    """A callback that keeps what it is told."""

    def __init__(self):
        super().__init__()
        self.told = 0

    def relative_update(self, inc=1):
        self.told += inc


def test_whole_files_go_both_ways(fs, root, tmp_path):
    told = Counted()
    fs.get_file(f"{root}/a/k", str(tmp_path / "deep/k"), callback=told)
    assert (tmp_path / "deep/k").read_bytes() == DATA
    assert (told.told, told.size) == (len(DATA), len(DATA))
    told = Counted()
    fs.put_file(str(tmp_path / "deep/k"), f"{root}/b/k", callback=told)
    assert (fs.cat_file(f"{root}/b/k"), told.told) == (DATA, len(DATA))
    with pytest.raises(AlreadyExists):
        fs.put_file(str(tmp_path / "deep/k"), f"{root}/b/k", mode="create")
    with pytest.raises(Unusable):
        fs.put_file(str(tmp_path / "deep/k"), f"{root}/b/k", mode="half")
    fs.put_file(str(tmp_path / "deep"), f"{root}/c")
    assert not fs.exists(f"{root}/c")
    buffer = io.BytesIO()
    fs.get_file(f"{root}/a/k", buffer)
    assert buffer.getvalue() == DATA
    fs.get_file(f"{root}/a", str(tmp_path / "folder"))
    assert (tmp_path / "folder").is_dir()
    with pytest.raises(NotFound):
        fs.get_file(f"{root}/none", str(tmp_path / "none"))
    assert not (tmp_path / "none").exists()
    with pytest.raises(FileNotFoundError):
        fs.put_file(str(tmp_path / "none"), f"{root}/none")
    assert not fs.exists(f"{root}/none")


def test_copies_within_a_store_and_between_two(fs, root, tmp_path):
    fs.cp_file(f"{root}/a/k", f"{root}/b")
    fs.cp_file(f"{root}/a/k", f"file://{tmp_path}/k")
    assert fs.cat_file(f"{root}/b") == (tmp_path / "k").read_bytes() == DATA
    fs.cp_file(f"{root}/a", f"{root}/c")  # a directory: nothing is made of it
    assert not fs.exists(f"{root}/c")
    with pytest.raises(NotFound):
        fs.cp_file(f"{root}/none", f"{root}/c")
    with pytest.raises(Unusable, match="itself"):
        fs.cp_file(f"{root}/b", f"{root}/b")
    assert fs.cat_file(f"{root}/b") == DATA


def test_large_values_are_piped_as_files_are_written(root, monkeypatch):
    seen, fs = [], PenstockFileSystem(write={"part_bytes": "5MiB"})
    monkeypatch.setattr("penstock.source.Source.put", lambda *_args, **_options: seen.append("put"))
    fs.pipe_file(f"{root}/large", bytes((5 << 20) + 1))
    assert (seen, fs.size(f"{root}/large")) == ([], (5 << 20) + 1)
