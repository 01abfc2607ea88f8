"""Files of the drop-in have the methods that programs of Multi-Storage Client call on its files."""

from __future__ import annotations

import gc
import io
import mmap
import os
import pickle
import subprocess
import sys
import tarfile
from pathlib import Path

import numpy as np
import pytest

from penstock.compat import multistorageclient as msc
from penstock.compat.multistorageclient.file import ObjectFile, PosixFile, local_copy
from penstock.errors import Changed, ConfigError

TEXT = b"one\ntwo\nthree"


@pytest.fixture
def url(base):
    msc.write(f"{base}/f", TEXT)
    return f"{base}/f"


def test_file_is_of_its_class_and_named_by_its_path(url):
    with msc.open(url) as file:
        assert isinstance(file, io.IOBase)
        assert type(file) is (PosixFile if "disk" in url else ObjectFile)
        assert (file.name, file.mode, file.closed) == (msc.resolve_storage_client(url)[1], "rb", False)
        assert (file.readable(), file.writable(), file.seekable()) == (True, False, True)
    assert file.closed


def test_readall_returns_the_remaining_bytes_or_text(url):
    with msc.open(url) as file:
        file.seek(4)
        assert file.readall() == b"two\nthree"
    with msc.open(url, "r") as file:
        assert (file.readline(), file.readall()) == ("one\n", "two\nthree")


def test_file_is_an_iterator_of_lines(url):
    with msc.open(url) as file:
        assert next(file) == b"one\n"
        assert list(file) == [b"two\n", b"three"]
        with pytest.raises(StopIteration):
            next(file)
    assert list(io.TextIOWrapper(msc.open(url))) == ["one\n", "two\n", "three"]


@pytest.mark.parametrize("mode", ["rb", "r"])
def test_descriptor_is_of_the_same_content(url, mode):
    with msc.open(url, mode) as file:
        file.readline()
        at = file.tell()
        assert file.fileno() == file.fileno()
        with mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) as mapped:
            assert mapped[:] == TEXT
        assert os.fstat(file.fileno()).st_size == len(TEXT)
        os.posix_fadvise(file.fileno(), 0, 0, os.POSIX_FADV_SEQUENTIAL)
        assert (file.tell(), file.readline()) == (at, "two\n" if mode == "r" else b"two\n")
        descriptor = file.fileno()
    with pytest.raises(OSError, match="Bad file descriptor"):
        os.fstat(descriptor)


def test_array_behind_a_header_is_read_by_descriptor(base):
    msc.write(f"{base}/a", b"head" + np.arange(5, dtype="<i4").tobytes())
    with msc.open(f"{base}/a") as file:
        file.read(4)
        assert np.fromfile(file, dtype="<i4").tolist() == [0, 1, 2, 3, 4]


def test_descriptor_of_a_file_that_was_replaced_is_refused(tmp_path):
    (tmp_path / "f").write_bytes(TEXT)
    with msc.open(tmp_path / "f") as file:
        msc.write(str(tmp_path / "f"), b"longer than it was before")
        with pytest.raises(Changed, match="replaced after it was opened"):
            file.fileno()


def test_path_of_the_content_is_given_to_readers_alone(url):
    with msc.open(url) as file, open(file.resolve_filesystem_path(), "rb") as local:
        assert local.read() == TEXT
    if "disk" not in url:
        with msc.open(url, "ab") as file, pytest.raises(ValueError, match="is for reading"):
            file.resolve_filesystem_path()


def test_writer_can_be_synced_and_its_descriptor_takes_no_bytes(url):
    with msc.open(url, "wb") as file:
        file.write(b"new")
        file.flush()
        file.fsync()
        os.fsync(file.fileno())
        with pytest.raises(OSError, match="Bad file descriptor"):
            os.write(file.fileno(), b"lost")
    assert msc.open(url).read() == b"new"


def test_writer_that_is_discarded_or_dropped_publishes_nothing(url):
    file = msc.open(url, "wb")
    file.write(b"half")
    file.discard()
    file.close()
    file = msc.open(url, "wb")
    file.write(b"half")
    del file
    gc.collect()
    with pytest.raises(RuntimeError, match="mine"), msc.open(url, "w") as file:
        file.write("half")
        raise RuntimeError("mine")
    assert msc.open(url).read() == TEXT


@pytest.mark.parametrize("mode", ["", "z", "r+", "rw", "w+b", "bb"])
def test_bad_mode_is_a_value_error(url, mode):
    with pytest.raises(ValueError, match="mode must be 'r', 'w', 'a' or 'x'") as refused:
        msc.open(url, mode)
    assert isinstance(refused.value, ConfigError)
    assert msc.open(url).read() == TEXT


def test_archives_are_read_through_it(base):
    with msc.open(f"{base}/t.tar", "wb") as file, tarfile.open(fileobj=file, mode="w|") as archive:
        archive.addfile(tarfile.TarInfo("x"))
    for mode in ("r:", "r|"):
        with msc.open(f"{base}/t.tar") as file, tarfile.open(fileobj=file, mode=mode) as archive:
            assert archive.getnames() == ["x"]


def test_open_file_is_not_pickled(url):
    with msc.open(url) as file, pytest.raises(TypeError, match="cannot be pickled"):
        pickle.dumps(file)


def test_a_copy_has_the_bytes_and_the_suffix(tree):
    client, path = msc.resolve_storage_client(f"{tree}/a.txt")
    copy = local_copy(client.download_file, path)
    assert copy.endswith("a.txt")
    with open(copy, "rb") as file:
        assert file.read() == b"a.txt"
    assert local_copy(client.download_file, path) != copy


def test_copies_go_with_the_process_that_made_them_and_not_with_its_child(tree):
    program = """
import os, sys
from penstock.compat import multistorageclient as msc
client, path = msc.resolve_storage_client(sys.argv[1])
from penstock.compat.multistorageclient.file import local_copy
copy = local_copy(client.download_file, path)
if not (child := os.fork()):
    sys.exit(0)
os.waitpid(child, 0)
assert os.path.exists(copy)
print(copy)
"""
    words = [sys.executable, "-c", program, f"{tree}/a.txt"]
    copy = subprocess.run(words, check=True, capture_output=True, text=True).stdout.strip()
    assert copy
    assert not Path(copy).parent.exists()
