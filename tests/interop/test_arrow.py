"""pyarrow's file reads what it is asked for, and of a Parquet file what it will be asked for, at the same time."""

from __future__ import annotations

import gc
import io
import pickle
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pyarrow as pa
import pyarrow.csv
import pyarrow.dataset as ds
import pyarrow.parquet as pq
import pytest
from pyarrow.fs import FileSelector, FileType

import penstock as ps
from penstock.errors import Changed, ConfigError, InvalidURL, NotFound, UnknownScheme, Unsupported
from penstock.interop.arrow import Layout, RandomFile, Recent, filesystem, from_url
from penstock.source import open_source
from penstock.testing.faults import FaultServer
from tests.children import forked

GROUPS, ROWS, COLUMNS = 20, 2000, 6
DATA = np.random.default_rng(0).bytes(3 << 20)


@pytest.fixture(scope="module")
def parquet():
    """Return a file of 20 row groups, of a size that is not read at once."""
    file, numbers = io.BytesIO(), np.random.default_rng(0)
    table = pa.table({f"c{n}": numbers.random(GROUPS * ROWS) for n in range(COLUMNS)})
    pq.write_table(table, file, row_group_size=ROWS, compression="none", use_dictionary=False)
    return file.getvalue()


def _opened(server, data=DATA, layouts=None):
    server.put("bucket", "key", data)
    source, key = open_source("s3://bucket/key", server.store)
    return RandomFile(source, source.head(key), layouts if layouts is not None else Recent(9))


def _ranges(server):
    return [seen.headers.get("range") for seen in server.seen() if seen.method == "GET"]


def test_random_file_requests_only_the_ranges_it_reads(server):
    with _opened(server) as file:
        assert (file.readable(), file.seekable(), file.writable(), file.mode) == (True, True, False, "rb")
        assert (file.seek(-100, 2), file.read(1000)) == (len(DATA) - 100, DATA[-100:])
        assert (file.seek(5), file.read(7), file.tell(), file.read(0)) == (5, DATA[5:12], 12, b"")
        buffer = bytearray(9)
        assert (file.readinto(buffer), buffer) == (9, DATA[12:21])
        assert (file.seek(10**9), file.read(), file.read(5)) == (10**9, b"", b"")
    assert _ranges(server) == [f"bytes={len(DATA) - 100}-{len(DATA) - 1}", "bytes=5-11", "bytes=12-20"]
    assert file.closed


def test_a_small_file_is_one_request(server):
    with _opened(server, b"0123456789") as file:
        assert (file.read(3), file.seek(-2, 2), file.read(), file.seek(0), file.read()) == (
            *(b"012", 8, b"89", 0, b"0123456789"),
        )
    assert _ranges(server) == [None]


def test_reading_an_empty_file_sends_no_request(server):
    with _opened(server, b"") as file:
        assert file.read() == b""
    assert _ranges(server) == []


def test_another_version_is_refused(server):
    file = _opened(server)
    file.read(3)
    server.put("bucket", "key", DATA[::-1])
    with pytest.raises(Changed):
        file.read(3)


def test_columns_are_read_ahead_and_once(server, parquet):
    file = _opened(server, parquet)
    table = pq.read_table(pa.PythonFile(file), columns=["c1", "c4"])
    assert table.equals(pq.read_table(io.BytesIO(parquet), columns=["c1", "c4"]))
    chunks = _ranges(server)[1:]
    assert len({*chunks}) >= 2 * GROUPS
    assert len(chunks) <= 3 * GROUPS, "half as much again as was asked for, at most"
    assert file._most > 2, "reads were expected rightly"


def test_the_reads_of_row_groups_overlap(server, parquet):
    """A read of one row group is asked for after those of the next ones were sent."""
    file, layouts = _opened(server, parquet), None
    metadata = pq.ParquetFile(pa.PythonFile(file), pre_buffer=False).metadata
    layouts, before = file._layouts, len(_ranges(server))
    other = RandomFile(file._source, file._meta, layouts)
    for group in range(4):
        column = metadata.row_group(group).column(2)
        other.seek(column.data_page_offset)
        assert len(other.read(column.total_compressed_size)) == column.total_compressed_size
    assert len(other._ahead) > 2
    other.close()
    assert len(_ranges(server)) - before <= 4 + 16


def test_columns_of_a_second_row_group_are_taken_for_all_row_groups(server, parquet):
    """pyarrow's threads ask in any order: all that was asked for before is expected of each row group."""
    file = _opened(server, parquet)
    metadata = pq.ParquetFile(pa.PythonFile(file), pre_buffer=False).metadata
    other = RandomFile(file._source, file._meta, file._layouts)
    for group, number in ((0, 1), (2, 4), (1, 4)):
        column = metadata.row_group(group).column(number)
        other.seek(column.data_page_offset)
        other.read(column.total_compressed_size)
    places = {other._layout.place(*span) for span in other._ahead}
    assert places >= {(0, (4,)), (1, (1,)), (2, (1,)), (3, (1,)), (3, (4,))}
    assert len(places) == 1 + 1 + 8
    other.close()


def test_prefetch_stops_after_its_reads_were_unused(server, parquet):
    """A filter leaves out nine row groups of ten."""
    file, read = _opened(server, parquet), set()
    metadata = pq.ParquetFile(pa.PythonFile(file), pre_buffer=False).metadata
    other = RandomFile(file._source, file._meta, file._layouts)
    for group in (0, 9, 19):
        column = metadata.row_group(group).column(2)
        other.seek(column.data_page_offset)
        read.add(other.read(column.total_compressed_size))
        for _ in range(60):  # as if another column followed
            other._count += 1
        other._forget()
    assert len(read) == 3
    assert (other._given_up > 0, other._most) == (True, 0)
    other.close()


def test_columns_that_are_not_wanted_are_given_up(server, parquet):
    """A filter leaves row groups out: what was expected there costs little."""
    file = _opened(server, parquet)
    metadata = pq.ParquetFile(pa.PythonFile(file), pre_buffer=False).metadata
    other, before = RandomFile(file._source, file._meta, file._layouts), len(_ranges(server))
    for number in range(COLUMNS):
        column = metadata.row_group(7).column(number)
        other.seek(column.data_page_offset)
        other.read(column.total_compressed_size)
    other.close()
    assert len(_ranges(server)) - before <= 2 * COLUMNS


def test_file_with_false_parquet_footer_is_read_as_plain_bytes(server):
    data = DATA[:-8] + (100).to_bytes(4, "little") + b"PAR1"
    with _opened(server, data) as file:
        file.seek(-200, 2)
        assert file.read() == data[-200:]
        file.seek(0)
        assert file.read(100) == data[:100]


@pytest.mark.parametrize("columns", [60, 150], ids=["longer than is asked for", "longer than is read first"])
def test_a_long_footer_is_read_once_and_known(server, columns):
    table = pa.table({f"column-{n:03}": np.arange(12_000.0) for n in range(columns)})
    file = io.BytesIO()
    pq.write_table(table, file, row_group_size=1_000, compression="none", use_dictionary=False)
    footer = int.from_bytes(file.getvalue()[-8:-4], "little")
    assert footer > (64 << 10)
    assert (footer > 128 << 10) is (columns == 150)
    opened = _opened(server, file.getvalue())
    found = pq.ParquetFile(pa.PythonFile(opened), pre_buffer=False).metadata
    assert (found.num_columns, opened._layout is not None) == (columns, True)
    spans = [tuple(map(int, each[6:].split("-"))) for each in _ranges(server)]
    assert sum(stop - start + 1 for start, stop in spans) == max(footer + 8, 128 << 10)
    assert len(spans) == (2 if columns == 150 else 1)


def test_a_footer_is_read_once_of_each_version(server, parquet):
    layouts = Recent(9)
    for _ in range(2):
        with _opened(server, parquet, layouts) as file:
            assert pq.read_metadata(pa.PythonFile(file)).num_row_groups == GROUPS
        assert len(_ranges(server)) == 1
    replaced = parquet[:1000] + bytes(8) + parquet[1008:]
    with _opened(server, replaced, layouts) as file:
        assert pq.read_metadata(pa.PythonFile(file)).num_row_groups == GROUPS
    assert len(_ranges(server)) == 2


FEW_COLUMNS, FEW_GROUPS = 4, 6


@pytest.fixture(scope="module")
def metadata():
    file = io.BytesIO()
    table = pa.table({f"c{n}": [str(i * n) for i in range(600)] for n in range(FEW_COLUMNS)})
    pq.write_table(table, file, row_group_size=100)
    return pq.read_metadata(file)


def _range(metadata, group, first, last=None):
    columns = [metadata.row_group(group).column(number) for number in (first, first if last is None else last)]
    starts = [column.dictionary_page_offset or column.data_page_offset for column in columns]
    return starts[0], starts[1] + columns[1].total_compressed_size


def test_chunks_are_found(metadata):
    layout = Layout(metadata)
    for group in range(FEW_GROUPS):
        assert layout.place(*_range(metadata, group, 2)) == (group, (2,))
        assert layout.place(*_range(metadata, group, 1, 3)) == (group, (1, 2, 3))


def test_range_without_exact_column_chunks_has_no_place_in_the_layout(metadata):
    layout, (start, stop) = Layout(metadata), _range(metadata, 1, 2)
    for other in ((start, stop - 1), (start + 1, stop), (start - 1, stop), (0, 4), (stop, stop), (0, 10**9)):
        assert layout.place(*other) is None


def test_the_same_columns_elsewhere(metadata):
    layout = Layout(metadata)
    assert [*layout.ahead(0, [(2,)])] == [_range(metadata, group, 2) for group in range(FEW_GROUPS)]
    both = [_range(metadata, group, *which) for group in (3, 4, 5) for which in ((1, 2), (0,))]
    assert [*layout.ahead(3, [(1, 2), (0,)])] == both
    assert [*layout.ahead(3, [(1, 2), (0,)])] == both
    assert next(layout.ahead(-1, [(3,)])) == _range(metadata, 0, 3)
    assert [*layout.ahead(FEW_GROUPS, [(3,)])] == [*layout.ahead(0, [])] == []


def test_file_with_one_row_group_has_no_place_in_the_layout():
    file = io.BytesIO()
    pq.write_table(pa.table({"a": [1]}), file)
    assert Layout(pq.read_metadata(file)).place(4, 30) is None


def test_the_oldest_is_forgotten():
    recent = Recent(2)
    for key in ("a", "b", "c"):
        recent.keep(key, key.upper())
    assert [recent.get(key) for key in ("a", "b", "c", "c", "c")] == [None, "B", "C", "C", "C"]
    recent.keep("d", "D")
    assert [recent.get(key) for key in ("b", "c", "d")] == [None, "C", "D"]


def test_each_is_given_out_so_many_times():
    recent = Recent(9, uses=2)
    recent.keep("a", 1)
    assert [recent.get("a"), recent.get("a"), recent.get("a")] == [1, 1, None]
    recent.keep("a", 1)
    recent.get("a")
    recent.keep("a", 2)
    assert [recent.get("a"), recent.get("a"), recent.get("a")] == [2, 2, None]


def test_forgotten_entry_is_absent():
    recent = Recent(9)
    recent.keep("a", 1)
    recent.forget("a")
    recent.forget("a")
    assert recent.get("a") is None


TABLE = pa.table({"n": range(1000), "x": [0.5 * n for n in range(1000)], "part": [f"p{n % 3}" for n in range(1000)]})
PARTS = ds.partitioning(pa.schema([("part", pa.string())]), flavor="hive")


@pytest.fixture
def files(server):
    return filesystem(store=server.store)


def _failing():
    yield TABLE.to_batches()[0]
    raise ZeroDivisionError


class TestTables:
    def test_a_table_goes_and_comes_back(self, files, asked):
        assert asked(lambda: pq.write_table(TABLE, "bucket/t.parquet", filesystem=files)) == ["PUT", "HEAD"]
        assert pq.read_table("bucket/t.parquet", filesystem=files).equals(TABLE)
        assert pq.read_table("s3://bucket/t.parquet", filesystem=files, columns=["x"]).equals(TABLE.select(["x"]))
        assert asked(lambda: pq.read_table("bucket/t.parquet", filesystem=files)) == ["HEAD", "GET", "GET"]
        assert asked(lambda: pq.ParquetFile("bucket/t.parquet", filesystem=files).read()) == ["HEAD", "GET"]

    def test_a_dataset_in_parts(self, files, asked):
        ds.write_dataset(TABLE, "bucket/set", filesystem=files, format="parquet", partitioning=PARTS)
        dataset = ds.dataset("bucket/set", filesystem=files, partitioning=PARTS)
        assert dataset.files == [f"bucket/set/part=p{n}/part-0.parquet" for n in range(3)]
        assert dataset.to_table().num_rows == 1000
        found = dataset.to_table(filter=(ds.field("part") == "p1") & (ds.field("n") > 900))
        assert found["n"].to_pylist() == [*range(901, 1000, 3)]
        # Of one of three files: a look at its version, and all of it.
        assert asked(lambda: dataset.to_table(filter=ds.field("part") == "p1")) == ["HEAD", "GET"]
        ds.write_dataset(
            *(TABLE.slice(0, 3), "bucket/set"),
            filesystem=files,
            format="parquet",
            partitioning=PARTS,
            existing_data_behavior="delete_matching",
        )
        assert ds.dataset("bucket/set", filesystem=files, partitioning=PARTS).count_rows() == 3

    def test_csv_and_feather(self, files):
        for kind in ("csv", "feather"):
            ds.write_dataset(TABLE, f"bucket/{kind}", filesystem=files, format=kind)
            assert ds.dataset(f"bucket/{kind}", filesystem=files, format=kind).to_table().num_rows == 1000
        with files.open_input_stream("bucket/csv/part-0.csv") as file:
            assert pyarrow.csv.read_csv(file).num_rows == 1000
        with files.open_output_stream("bucket/a.csv.gz") as file:
            pyarrow.csv.write_csv(TABLE, file)
        with files.open_input_stream("bucket/a.csv.gz") as file:
            assert pyarrow.csv.read_csv(file).num_rows == 1000

    def test_failed_or_dropped_arrow_write_publishes_nothing(self, files, server):
        with pytest.raises(ZeroDivisionError):
            ds.write_dataset(
                pa.RecordBatchReader.from_batches(TABLE.schema, _failing()),
                *("bucket/set",),
                filesystem=files,
                format="parquet",
            )
        with (
            pytest.raises(ZeroDivisionError),
            pq.ParquetWriter("bucket/t.parquet", TABLE.schema, filesystem=files) as writer,
        ):
            for batch in _failing():
                writer.write_batch(batch)
        files.open_output_stream("bucket/dropped").write(b"half")
        gc.collect()
        assert server.objects("bucket") == {}
        assert server.uploads("bucket") == []


class TestFiles:
    @pytest.fixture(autouse=True)
    def _filled(self, server):
        for key in ("a/x.txt", "a/b/y.txt", "a/b/c/z.txt", "top.txt", "empty/"):
            server.put("bucket", key, key.encode() if not key.endswith("/") else b"")

    def test_file_info_distinguishes_files_from_directories(self, files, asked):
        paths = ["bucket/a/x.txt", "bucket/a", "bucket/a/", "bucket", "bucket/no", "bucket/top.tx", "bucket/empty"]
        found = files.get_file_info(paths)
        assert [info.path for info in found] == paths
        assert [info.type for info in found] == [
            *(FileType.File, FileType.Directory, FileType.Directory, FileType.Directory),
            *(FileType.NotFound, FileType.NotFound, FileType.Directory),
        ]
        assert (found[0].size, bool(found[0].mtime), found[1].size) == (7, True, None)
        assert asked(lambda: files.get_file_info(["bucket/a/x.txt"])) == ["HEAD"]

    def test_file_info_is_refreshed_after_copy_move_and_delete(self, files):
        for write in (
            lambda: files.copy_file("bucket/a/b/y.txt", "bucket/a/x.txt"),
            lambda: files.move("bucket/a/b/c/z.txt", "bucket/a/x.txt"),
        ):
            files.get_file_info(["bucket/a/x.txt", "bucket/a/b/c/z.txt"])
            write()
            assert files.open_input_file("bucket/a/x.txt").read() in (b"a/b/y.txt", b"a/b/c/z.txt")
        files.get_file_info(["bucket/a/x.txt"])
        files.delete_file("bucket/a/x.txt")
        for path in ("bucket/a/x.txt", "bucket/a/b/c/z.txt"):
            with pytest.raises(FileNotFoundError):
                files.open_input_file(path)

    def test_directories_are_listed(self, files, asked):
        def listed(base, **how):
            return {info.path: info.type.name for info in files.get_file_info(FileSelector(base, **how))}

        assert listed("bucket/a") == {"bucket/a/x.txt": "File", "bucket/a/b": "Directory"}
        assert listed("bucket/a/", recursive=True) == {
            "bucket/a/x.txt": "File",
            "bucket/a/b": "Directory",
            "bucket/a/b/y.txt": "File",
            "bucket/a/b/c": "Directory",
            "bucket/a/b/c/z.txt": "File",
        }
        assert listed("bucket") == {
            "bucket/a": "Directory",
            "bucket/top.txt": "File",
            "bucket/empty": "Directory",
        }
        assert listed("bucket/empty") == {}
        assert listed("bucket/no", allow_not_found=True) == {}
        with pytest.raises(NotFound):
            listed("bucket/no")
        with pytest.raises(NotADirectoryError):
            listed("bucket/top.txt")
        assert asked(lambda: listed("bucket", recursive=True)) == ["GET"]

    def test_files_move_and_go(self, files, server):
        files.copy_file("bucket/top.txt", "bucket/copy.txt")
        files.move("bucket/copy.txt", "bucket/moved.txt")
        files.move("bucket/a", "bucket/new")
        assert sorted(server.objects("bucket")) == [
            *("empty/", "moved.txt", "new/b/c/z.txt", "new/b/y.txt", "new/x.txt", "top.txt"),
        ]
        files.delete_file("bucket/top.txt")
        files.delete_dir("bucket/new/b")
        files.delete_dir_contents("bucket/never", missing_dir_ok=True)
        files.create_dir("bucket/made")
        assert sorted(server.objects("bucket")) == ["empty/", "moved.txt", "new/x.txt"]

    def test_missing_object_raises_not_found_in_every_call(self, files):
        for call in (
            lambda: files.open_input_file("bucket/no"),
            lambda: files.open_input_stream("bucket/no"),
            lambda: files.delete_file("bucket/no"),
            lambda: files.delete_dir("bucket/no"),
            lambda: files.move("bucket/no", "bucket/to"),
            lambda: files.copy_file("bucket/no", "bucket/to"),
        ):
            with pytest.raises(NotFound) as caught:
                call()
            assert "s3://bucket/no" in str(caught.value)

    def test_unsupported_operations_and_invalid_urls_are_refused_with_advice(self, files):
        for call, error, advice in (
            (lambda: files.open_append_stream("bucket/x"), Unsupported, "not appended to"),
            (lambda: files.open_input_file("bucket"), InvalidURL, "names a bucket"),
            (lambda: files.open_output_stream("gs://bucket/x"), InvalidURL, "from_url"),
            (lambda: files.get_file_info([""]), InvalidURL, "buckets cannot be listed"),
            (lambda: files.delete_dir("bucket"), InvalidURL, "a whole bucket"),
            (lambda: files.delete_dir_contents("bucket"), InvalidURL, "a whole bucket"),
        ):
            with pytest.raises(error, match=advice):
                call()
        with pytest.raises(UnknownScheme):
            filesystem("s4")
        with pytest.raises(ConfigError):
            filesystem("s3", store=ps.GCSOptions())

    def test_metadata_goes_with_a_file(self, files, server):
        with files.open_output_stream("bucket/m", metadata={"Content-Type": "text/plain", "run": "7"}) as file:
            file.write(b"x")
        meta = ps.stat("s3://bucket/m", store=server.store)
        assert (meta.content_type, meta.metadata["run"]) == ("text/plain", "7")

    def test_a_file_is_the_version_that_was_described(self, files, server):
        large = bytes(3 << 20)
        server.put("bucket", "f", large)
        files.get_file_info("bucket/f")
        server.put("bucket", "f", large + b"1")
        for _ in range(2):
            with files.open_input_file("bucket/f") as file, pytest.raises(Changed):
                file.read_at(10, 0)
        with files.open_input_file("bucket/f") as file:
            assert file.size() == len(large) + 1
        files.get_file_info("bucket/f")
        with files.open_output_stream("bucket/f") as file:
            file.write(b"new")
        with files.open_input_file("bucket/f") as file:
            assert file.read() == b"new"

    def test_threads_read_one_file_system(self, files):
        with ThreadPoolExecutor(8) as threads:
            read = [threads.submit(lambda: files.open_input_file("bucket/top.txt").read()) for _ in range(50)]
        assert {each.result() for each in read} == {b"top.txt"}

    def test_filesystem_is_picklable_and_works_in_a_forked_child(self, files):
        again = pickle.loads(pickle.dumps(filesystem("memory")))
        assert again == filesystem("memory")
        assert again != filesystem("file")

        def child():
            assert files.open_input_file("bucket/top.txt").read() == b"top.txt"

        child()
        with FaultServer.start() as other:
            other.put("bucket", "top.txt", b"top.txt")
            files = filesystem(store=other.store)
            child()
            with forked(child) as status:
                assert status() == 0

    def test_a_url_names_a_file_system_and_a_path(self, tmp_path):
        files, path = from_url(f"file://{tmp_path}/x.parquet")
        pq.write_table(TABLE, path, filesystem=files)
        assert pq.read_table(path, filesystem=files).equals(TABLE)
        assert pq.read_table(tmp_path / "x.parquet").equals(TABLE)
        files, path = from_url("s3://bucket/a b/ä.parquet")
        assert (files.type_name, path) == ("py::penstock+s3", "bucket/a b/ä.parquet")
