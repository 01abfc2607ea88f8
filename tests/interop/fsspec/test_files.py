"""Files of a file system: how they are read ahead, written, and carried whole."""

from __future__ import annotations

import gc
import gzip
import io
import random
import sys
from itertools import pairwise

import pytest
from fsspec.callbacks import Callback

import penstock as ps
from penstock.errors import AlreadyExists, NotFound, Unusable
from penstock.interop.fsspec import PenstockFileSystem
from penstock.interop.fsspec.files import Compressed, block_bytes, compressor, exact, make_span, merge_ranges
from penstock.values import ObjectMeta, Span

DATA = bytes(range(256)) * 400


@pytest.fixture
def root(root):
    with ps.open(f"{root}/a/k", "wb") as file:
        file.write(DATA)
    return root


@pytest.fixture
def fs():
    return PenstockFileSystem()


def test_blocks_follow_cache_type_and_block_size():
    assert [block_bytes(each, None, 1 << 20) for each in ("none", "all", "readahead", None)] == [
        4096,
        1 << 20,
        None,
        None,
    ]
    assert [block_bytes("bytes", each, 1 << 20) for each in (1, "default", 1 << 16, 1 << 40)] == [
        *(4096, None, 1 << 16, 64 << 20)
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
    with pytest.raises(Unusable, match="mode must be"):
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


TWENTY = bytes(range(20))


@pytest.mark.parametrize("start", [None, 0, 3, 19, 25, -1, -5, -30])
@pytest.mark.parametrize("end", [None, 0, 4, 20, 30, -1, -18, -30])
def test_a_slice_is_that_of_python(start, end):
    span = exact(ObjectMeta("k", 20, "e"), start, end)
    assert TWENTY[span.start : span.stop] == TWENTY[start:end]
    assert span.whole == (TWENTY[start:end] == TWENTY)
    quick = make_span("k", start, end)
    if quick is not None:
        stop = quick.stop if quick.stop is not None else len(TWENTY)
        assert TWENTY[quick.start : stop] == TWENTY[start:end]


def test_only_slices_that_need_the_size_ask_for_it():
    asking = [(5, None), (-5, -1), (-5, 10), (0, -1)]
    assert [make_span("k", *each) for each in asking] == [None] * 4
    assert make_span("k", None, None) == Span("k")
    assert make_span("k", -5, None) == Span("k", -5)


def test_ranges_within_the_gap_are_one_run_and_others_are_not():
    spans = [Span("a", 100, 110), Span("a", 0, 10), Span("b", 10, 20), Span("a", 12, 20), Span("a"), Span("b", 15, 18)]
    runs = [*merge_ranges(spans, 2)]
    assert sorted(at for run in runs for at in run.members) == list(range(6))
    assert {run.span[:3] for run in runs} == {("a", 0, 20), ("a", 100, 110), ("b", 10, 20), ("a", 0, None)}
    assert len([*merge_ranges(spans, 90)]) == 3
    assert [*merge_ranges([], 5)] == []


def test_every_span_lies_in_the_run_that_holds_it(seed):
    drawn = random.Random(seed)
    for _ in range(200):
        starts = [drawn.randrange(100) for _ in range(drawn.randrange(1, 20))]
        spans = [Span(drawn.choice("ab"), start, start + drawn.randrange(1, 30)) for start in starts]
        gap = drawn.randrange(10)
        runs = [*merge_ranges(spans, gap)]
        assert sorted(at for run in runs for at in run.members) == list(range(len(spans)))
        for run in runs:
            for at in run.members:
                assert run.span.key == spans[at].key
                assert run.span.start <= spans[at].start <= spans[at].stop <= run.span.stop
        for one, other in pairwise(runs):
            assert one.span.key != other.span.key or other.span.start - one.span.stop > gap


def test_merged_run_does_not_exceed_the_efficient_request_size():
    mib = 1 << 20
    runs = [*merge_ranges([Span("k", at * mib, (at + 1) * mib) for at in range(9)], 0)]
    assert [run.span.stop - run.span.start for run in runs] == [4 * mib, 4 * mib, mib]


@pytest.fixture
def place(root, monkeypatch):
    """Return a file system and a folder of this test's alone."""
    # Python 3.13 reports that gzip cannot write the end of what was dropped.
    if sys.version_info >= (3, 13):
        monkeypatch.setattr(sys, "unraisablehook", lambda _report: None)
    yield PenstockFileSystem(), root
    gc.collect()


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
