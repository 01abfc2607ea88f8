"""Files keep every promise of a driver, as far as a path can be a key; what is half written is never seen."""

import mimetypes
import os
from fcntl import LOCK_EX, LOCK_UN, flock
from pathlib import Path

import pytest

from penstock.engine.contracts.driver import Attributes, Payload, UploadPart
from penstock.engine.transport.work import Threads
from penstock.errors import Changed, Forbidden, InvalidURL, NoSpace, NotFound, Transient, Unusable
from penstock.stores.local.driver import LocalDriver
from penstock.testing.drivers import Trial
from penstock.values import Span
from tests.children import unprivileged


@pytest.fixture
def trial(tmp_path):
    return Trial(LocalDriver(str(tmp_path)), Threads())


@pytest.mark.parametrize(
    ("key", "error"), [("", InvalidURL), ("trail/", InvalidURL), ("nul\0", InvalidURL), ("x" * 300, Unusable)]
)
def test_invalid_file_key_raises_the_matching_error(trial, key, error):
    with pytest.raises(error):
        trial.put(key, b"")


def test_file_in_place_of_directory_raises_unusable(trial):
    trial.put("a", b"")
    with pytest.raises(Unusable, match="a directory is needed here"):
        trial.put("a/b", b"")
    with pytest.raises(NotFound):
        trial.head("a/b")


def test_file_without_read_permission_raises_forbidden(tmp_path):
    mimetypes.init()  # nobody may not be able to read this interpreter's library

    def read():
        trial = Trial(LocalDriver("."), Threads())
        etag = trial.put("secret", b"data")
        assert trial.get("secret") == b"data"
        Path("secret").chmod(0)
        with pytest.raises(Forbidden):
            trial.get("secret")
        assert trial.head("secret").etag == etag

    assert unprivileged(read, tmp_path) == 0


def test_a_file_rewritten_in_place_has_changed(trial, tmp_path):
    etag = trial.put("key", b"one")
    os.utime(tmp_path / "key", ns=(1, 1))
    with pytest.raises(Changed):
        trial.read("key", 0, 3, etag)


def test_unfinished_upload_is_excluded_from_listing(trial, tmp_path):
    upload = trial.do(trial.driver.create("folder/key", Attributes()))
    trial.do(trial.driver.part("folder/key", upload, UploadPart(1, 0), Payload(b"half")))
    assert trial.keys() == []
    assert [path.name for path in (tmp_path / "folder").iterdir()] != ["key"]
    trial.do(trial.driver.abort("folder/key", upload))
    assert list((tmp_path / "folder").iterdir()) == []


def test_a_failed_write_leaves_no_file_aside(trial, tmp_path):
    (tmp_path / "folder").mkdir()
    with pytest.raises(Unusable, match="this is a directory, not a regular file"):
        trial.put("folder", b"a directory stands here")
    assert [path.name for path in tmp_path.iterdir()] == ["folder"]


def test_full_disk_error_reports_required_and_free_bytes(disk):
    trial = Trial(LocalDriver(str(disk)), Threads())
    with pytest.raises(NoSpace, match="4194304 bytes were to be written, 2097152 are free"):
        trial.put("folder/key", bytes(4 << 20))
    upload = trial.do(trial.driver.create("folder/key", Attributes()))
    with pytest.raises(NoSpace, match="4194304 bytes were to be written"):
        trial.do(trial.driver.part("folder/key", upload, UploadPart(1, 0), Payload(bytes(4 << 20))))
    trial.do(trial.driver.abort("folder/key", upload))
    assert list((disk / "folder").iterdir()) == []


def test_a_disk_that_fills_up_under_a_copy_s_last_bytes_leaves_no_part_of_it(disk, tmp_path):
    (tmp_path / "source").write_bytes(bytes(2 << 20))
    (disk / "other").write_bytes(bytes(512 << 10))  # so that the last write is cut short, and none comes after it
    trial = Trial(LocalDriver(str(tmp_path)), Threads())
    with pytest.raises(NoSpace, match="2097152 bytes were to be written"):
        trial.do(trial.driver.copy("source", "disk/copy"))
    assert [path.name for path in disk.iterdir()] == ["other"]


def test_the_whole_tree_is_served_by_default(tmp_path):
    (tmp_path / "file").write_bytes(b"bytes")
    trial = Trial(LocalDriver(), Threads())
    assert trial.driver.url("a/b") == "/a/b"
    assert trial.do(trial.driver.get(str(tmp_path / "file").lstrip("/"), "")) == b"bytes"
    assert Span("x").stop is None


def test_conditional_replace_fails_while_another_writer_holds_the_lock(trial, tmp_path):
    etag, body = trial.put("key", b"old"), Payload(b"new")
    replacing = Attributes(replaces=etag)
    folder = os.open(tmp_path, os.O_RDONLY)
    flock(folder, LOCK_EX)
    with pytest.raises(Transient, match="another writer"):
        trial.do(trial.driver.put("key", body, replacing))
    trial.put("key2", b"no condition, no lock")
    flock(folder, LOCK_UN)
    os.close(folder)
    trial.do(trial.driver.put("key", body, replacing))
    assert trial.get("key") == b"new"
    assert sorted(path.name for path in tmp_path.iterdir()) == ["key", "key2"]


@pytest.mark.parametrize("name", [".penstock-", ".penstock-notes", f".penstock-{'0' * 32}", f".penstock-{'0' * 32}/x"])
def test_reserved_temporary_file_names_raise_invalid_url(trial, tmp_path, name):
    (tmp_path / name).parent.mkdir(exist_ok=True)
    (tmp_path / name).write_bytes(b"")
    for verb in (trial.head, trial.get, lambda key: trial.put(key, b"")):
        with pytest.raises(InvalidURL, match="reserved for files being written"):
            verb(name)


class TestLinks:
    def test_writing_over_a_link_replaces_the_link(self, trial, tmp_path):
        (tmp_path / "target").write_bytes(b"old")
        (tmp_path / "link").symlink_to("target")
        (tmp_path / "dangling").symlink_to("nowhere")
        for name in ("link", "dangling"):
            trial.put(name, b"new")
            assert not (tmp_path / name).is_symlink()
        assert (tmp_path / "target").read_bytes() == b"old"
        assert not (tmp_path / "nowhere").exists()

    def test_deleting_a_link_deletes_the_link(self, trial, tmp_path):
        trial.put("folder/file", b"bytes")
        (tmp_path / "link").symlink_to("folder")
        trial.do(trial.driver.delete("link"))
        assert trial.keys() == ["folder/file"]


class TestModes:
    @pytest.mark.parametrize("mode", [0o600, 0o644, 0o640, 0o755, 0o400])
    def test_overwritten_file_keeps_its_mode(self, trial, tmp_path, mode):
        for write in (
            lambda: trial.put("key", b"new"),
            lambda: _put(trial, "key", replaces=trial.head("key").etag),
            lambda: trial.do(trial.driver.copy("other", "key")),
            lambda: _in_parts(trial, "key"),
        ):
            (tmp_path / "key").unlink(missing_ok=True)
            trial.put("other", b"new")
            trial.put("key", b"old")
            (tmp_path / "key").chmod(mode)
            write()
            assert (tmp_path / "key").stat().st_mode & 0o7777 == mode
            assert trial.get("key") == b"new"

    def test_new_file_mode_follows_the_umask(self, trial, tmp_path):
        for mask in (0o022, 0o077, 0o002):
            before = os.umask(mask)
            try:
                trial.put(f"{mask}/key", b"new")
            finally:
                os.umask(before)
            assert (tmp_path / str(mask) / "key").stat().st_mode & 0o777 == 0o666 & ~mask

    def test_temporary_file_mode_matches_the_replaced_file(self, trial, tmp_path):
        trial.put("secret", b"old")
        (tmp_path / "secret").chmod(0o640)
        aside = trial.do(trial.driver.create("secret", Attributes()))
        assert Path(aside).stat().st_mode & 0o777 == 0o640
        trial.do(trial.driver.abort("secret", aside))

    @pytest.mark.skipif(os.geteuid() != 0, reason="only root gives files away")
    def test_root_overwrite_keeps_the_file_owner(self, trial, tmp_path):
        trial.put("key", b"old")
        os.chown(tmp_path / "key", 1234, 5678)
        trial.put("key", b"new")
        found = (tmp_path / "key").stat()
        assert (found.st_uid, found.st_gid) == (1234, 5678)

    def test_a_folder_that_may_not_be_written_is_forbidden(self, tmp_path):
        def write():
            Path("folder").mkdir(mode=0o500)
            with pytest.raises(Forbidden):
                Trial(LocalDriver("."), Threads()).put("folder/key", b"")
            assert not list(Path("folder").iterdir())

        assert unprivileged(write, tmp_path) == 0


def _put(trial, key, **conditions):
    trial.do(trial.driver.put(key, Payload(b"new"), Attributes(**conditions)))


def _in_parts(trial, key):
    upload = trial.do(trial.driver.create(key, Attributes()))
    etag = trial.do(trial.driver.part(key, upload, UploadPart(1, 0), Payload(b"new")))
    trial.do(trial.driver.complete(key, upload, [etag]))


def test_file_and_folders_are_synced_around_the_rename(trial, tmp_path, monkeypatch):
    done = []
    paths = {name: getattr(os, name) for name in ("fsync", "replace", "link")}

    def fsync(descriptor):
        name = str(Path(f"/proc/self/fd/{descriptor}").readlink())
        done.append("file" if ".penstock-" in name else os.path.relpath(name, tmp_path))
        paths["fsync"](descriptor)

    monkeypatch.setattr(os, "fsync", fsync)
    for name in ("replace", "link"):
        monkeypatch.setattr(os, name, lambda *words, name=name: (done.append(name), paths[name](*words)))
    trial.put("a/b/key", b"")
    assert done == [".", "a", "file", "replace", "a/b"]
    del done[:]
    _put(trial, "a/b/new", create_only=True)
    assert done == ["file", "link", "a/b"]


def test_a_file_where_a_folder_is_needed_is_named(trial, tmp_path):
    trial.put("a", b"")
    (tmp_path / "dangling").symlink_to("nowhere")
    for key, name in (("a/b", "a"), ("a/b/c", "a"), ("dangling/x", "dangling")):
        with pytest.raises(Unusable, match="a directory is needed here") as caught:
            trial.put(key, b"")
        assert caught.value.url == str(tmp_path / name)


def test_of_two_writers_the_last_to_end_wins_and_nothing_is_mixed(trial, tmp_path):
    uploads = [trial.do(trial.driver.create("key", Attributes())) for _ in range(2)]
    for number, text in ((1, b"first half "), (2, b"second half")):
        for who, upload in enumerate(uploads):
            part = UploadPart(number, (number - 1) * 11)
            trial.do(trial.driver.part("key", upload, part, Payload(text + b" of %d" % who)))
    for who in (1, 0):
        trial.do(trial.driver.complete("key", uploads[who], ["1", "2"]))
        assert trial.get("key") == b"first half second half of %d" % who
    assert [path.name for path in tmp_path.iterdir()] == ["key"]


def test_a_directory_is_not_deleted(trial, tmp_path):
    (tmp_path / "folder").mkdir()
    with pytest.raises(Unusable, match="delete removes files only: penstock rm -r"):
        trial.do(trial.driver.delete("folder"))
    assert (tmp_path / "folder").is_dir()
