"""Files that are written together: each is whole or not there, and their folders are flushed once for all of them."""

import os
import stat
import subprocess
import sys
from pathlib import Path

import pytest

from penstock.engine.contracts.driver import Attributes, Payload
from penstock.engine.transport.work import Threads
from penstock.errors import AlreadyExists, InvalidURL, PenstockError, PreconditionFailed, Unusable
from penstock.stores.local.driver import LocalDriver, NewFile, write_files
from penstock.testing.drivers import Trial


@pytest.fixture
def trial(tmp_path):
    return Trial(LocalDriver(str(tmp_path)), Threads())


def put_many(trial, *puts):
    return trial.do(trial.driver.put_many("", [(key, Payload(data), how) for key, data, how in puts]))


def test_files_written_together_get_content_mtime_and_previous_mode(trial, tmp_path):
    old = tmp_path / "old"
    old.write_bytes(b"before")
    old.chmod(0o440)
    timed = Attributes(metadata={"mtime": "1000000000.5"})
    etags = put_many(trial, ("a/b/new", b"new", timed), ("old", b"after", Attributes()), ("a/b/c", b"", Attributes()))
    assert etags == [trial.do(trial.driver.head(key)).etag for key in ("a/b/new", "old", "a/b/c")]
    assert (tmp_path / "a/b/new").read_bytes() == b"new"
    assert (tmp_path / "a/b/new").stat().st_mtime_ns == 1_000_000_000_500_000_000
    assert old.read_bytes() == b"after"
    assert stat.S_IMODE(old.stat().st_mode) == 0o440


def test_failed_writes_report_their_error_without_affecting_other_files(trial, tmp_path):
    (tmp_path / "folder").mkdir()
    (tmp_path / "file").write_bytes(b"stays")
    found = put_many(
        trial,
        ("first", b"1", Attributes()),
        ("folder", b"x", Attributes()),
        ("file/below", b"x", Attributes()),
        ("file", b"x", Attributes(create_only=True)),
        ("first", b"x", Attributes(replaces="another")),
        (".penstock-x", b"x", Attributes()),
        ("nul\0", b"x", Attributes()),
        ("last", b"2", Attributes()),
    )
    kinds = [type(each) for each in found]
    assert kinds == [str, Unusable, Unusable, AlreadyExists, PreconditionFailed, InvalidURL, InvalidURL, str]
    assert all(each.url for each in found if isinstance(each, PenstockError))
    files = {path.name: path.read_bytes() for path in tmp_path.rglob("*") if path.is_file()}
    assert files == {"first": b"1", "file": b"stays", "last": b"2"}


def test_folders_are_flushed_once_after_all_renames_and_files_before_them(tmp_path, monkeypatch):
    steps = []
    fsync, rename = os.fsync, os.replace

    def flushed(descriptor):
        steps.append(Path(f"/proc/self/fd/{descriptor}").readlink().name.partition("-")[0])
        fsync(descriptor)

    def renamed(here, there):
        steps.append(Path(there).name)
        rename(here, there)

    monkeypatch.setattr(os, "fsync", flushed)
    folder = tmp_path / "folder"
    folder.mkdir()
    write_files([NewFile(str(folder / name), b"x", {}, renamed) for name in "abc"])
    assert steps == [".penstock", ".penstock", ".penstock", "a", "b", "c", "folder"]


def test_a_file_whose_folder_cannot_be_flushed_is_not_called_written(tmp_path, monkeypatch):
    fsync = os.fsync

    def broken(descriptor):
        if stat.S_ISDIR(os.fstat(descriptor).st_mode):
            raise OSError(5, "Input/output error")
        fsync(descriptor)

    monkeypatch.setattr(os, "fsync", broken)
    assert [type(each) for each in write_files([NewFile(str(tmp_path / name), b"x", {}) for name in "ab"])] == [
        OSError,
        OSError,
    ]


def test_nothing_is_left_open_or_aside_after_an_interrupt(tmp_path):
    before = len([*Path("/proc/self/fd").iterdir()])

    def interrupted(_here, _there):
        raise KeyboardInterrupt

    files = [NewFile(str(tmp_path / "a"), b"x", {}, interrupted), NewFile(str(tmp_path / "b"), b"x", {})]
    with pytest.raises(KeyboardInterrupt):
        write_files(files)
    assert not list(tmp_path.iterdir())
    assert len([*Path("/proc/self/fd").iterdir()]) == before


_FEW = """
import os, resource, sys
from penstock.stores.local.driver import NewFile, write_files
lowest = os.dup(0)
os.close(lowest)
resource.setrlimit(resource.RLIMIT_NOFILE, (lowest + 4, lowest + 4))
folder = sys.argv[1]
found = write_files([NewFile(f"{folder}/{number}", b"x", {"mtime": "1000"}) for number in range(16)])
assert [each.st_mtime for each in found] == [1000] * 16, found
"""


def test_a_process_that_may_open_few_files_writes_as_many_together(tmp_path):
    subprocess.run([sys.executable, "-c", _FEW, str(tmp_path)], check=True)
    assert {path.name: path.read_bytes() for path in tmp_path.iterdir()} == {str(each): b"x" for each in range(16)}
