"""Compressed files appear, whole, when they are closed, and never otherwise."""

from __future__ import annotations

import gzip
import io
import uuid

import fsspec
import pytest

from penstock.errors import NotFound, Unusable
from penstock.interop.fsspec.files import Compressed, compressor


@pytest.fixture
def place():
    """Return a file system and a folder of this test's alone."""
    return fsspec.filesystem("penstock"), f"memory://compressed-{uuid.uuid4().hex}"


@pytest.mark.parametrize("compression", ["gzip", "bz2", "xz", "zip"])
def test_compressed_file_is_published_on_close_and_reads_back_unchanged(place, compression):
    fs, folder = place
    url = f"{folder}/x/{compression}"
    with fs.open(url, "wb", compression=compression) as file:
        assert (file.write(b"bytes " * 1000), file.writable(), file.mode, file.name) == (6000, True, "wb", url)
        assert not fs.exists(url)
    file.close()
    assert file.closed
    assert fs.size(url) < (7000 if compression == "zip" else 1000)  # fsspec's zip packs, and does not compress
    with fs.open(url, "rb", compression=compression) as file:
        assert file.read() == b"bytes " * 1000


def test_compression_of_text_files_is_inferred_from_the_file_name(place):
    fs, folder = place
    for name in ("x/t.gz", "x/t.txt"):
        with fs.open(f"{folder}/{name}", "w", compression="infer", encoding="utf-8") as file:
            file.write("händel\n")
        with fs.open(f"{folder}/{name}", "r", compression="infer", encoding="utf-8") as file:
            assert file.read() == "händel\n"
    assert gzip.decompress(fs.cat(f"{folder}/x/t.gz")) == fs.cat(f"{folder}/x/t.txt") == "händel\n".encode()


def test_failed_or_dropped_compressed_writer_publishes_nothing(place):
    fs, folder = place
    url = f"{folder}/x/k.gz"
    fs.pipe(url, b"before")
    with pytest.raises(RuntimeError), fs.open(url, "wb", compression="gzip") as file:
        file.write(b"half")
        raise RuntimeError
    assert file.closed
    file = fs.open(url, "wb", compression="gzip")
    file.write(b"half")
    del file
    text = fs.open(url, "w", compression="gzip")
    text.write("half")
    with pytest.warns(ResourceWarning, match="nothing was published"):
        del text
    assert fs.cat(url) == b"before"


def test_a_transaction_publishes_it_at_its_end(place):
    fs, folder = place
    with fs.transaction:
        with fs.open(f"{folder}/x/k.gz", "wb", compression="gzip") as file:
            file.write(b"whole")
        with pytest.raises(RuntimeError), fs.open(f"{folder}/x/h.gz", "wb", compression="gzip") as file:
            file.write(b"half")
            raise RuntimeError
        with pytest.raises(NotFound):
            fs.cat(f"{folder}/x/k.gz")
    assert gzip.decompress(fs.cat(f"{folder}/x/k.gz")) == b"whole"
    assert not fs.exists(f"{folder}/x/h.gz")


def test_an_unknown_compression_is_refused_before_anything_is_opened(place):
    fs, folder = place
    for mode in ("wb", "rb", "w", "r"):
        with pytest.raises(Unusable, match=r"compression='gzap': fsspec has .*'gzip'"):
            fs.open(f"{folder}/x/k", mode, compression="gzap")
    assert [compressor("a.gz", each) for each in ("infer", None, "bz2")] == ["gzip", None, "bz2"]


def test_compressed_writer_implements_the_file_interface(place):
    fs, folder = place
    with Compressed(fs.open(f"{folder}/x/k", "xb"), "gzip") as file:
        assert (file.mode, file.tell(), file.readable(), isinstance(file, io.BufferedIOBase)) == ("xb", 0, False, True)
        assert (file.write(memoryview(b"abc")), file.tell()) == (3, 3)
