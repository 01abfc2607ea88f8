"""pyarrow reads and writes stores as it does any file system, with few requests, and what fails is not there."""

from __future__ import annotations

import gc
import pickle
from concurrent.futures import ThreadPoolExecutor

import pyarrow as pa
import pyarrow.csv
import pyarrow.dataset as ds
import pyarrow.parquet as pq
import pytest
from pyarrow.fs import FileSelector, FileType

import penstock as ps
from penstock.errors import Changed, ConfigError, InvalidURL, NotFound, UnknownScheme, Unsupported
from penstock.interop.arrow import filesystem, from_url
from penstock.testing.faults import FaultServer
from tests.children import forked

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
            (lambda: files.get_file_info([""]), InvalidURL, "buckets are not listed"),
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
