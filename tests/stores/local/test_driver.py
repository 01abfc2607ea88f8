"""Files keep every promise of a driver, as far as a path can be a key; what is half written is never seen."""

from __future__ import annotations

import mimetypes
import os
from fcntl import LOCK_EX, LOCK_UN, flock
from pathlib import Path

import pytest

from penstock.engine.contracts.driver import Attributes, Payload, UploadPart
from penstock.engine.transport.work import Threads
from penstock.errors import Changed, Forbidden, InvalidURL, NoSpace, NotFound, Transient, Unusable
from penstock.source import open_source
from penstock.stores.local import driver as module
from penstock.stores.local.driver import DirectoryWalks, Local, LocalDriver
from penstock.stores.urls import parse
from penstock.testing.drivers import Trial
from penstock.values import Span
from tests.children import forked, unprivileged


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
    with pytest.raises(Unusable, match="this must be a directory"):
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
    with pytest.raises(NoSpace, match="cannot write 4194304 bytes, 2097152 bytes are left"):
        trial.put("folder/key", bytes(4 << 20))
    upload = trial.do(trial.driver.create("folder/key", Attributes()))
    with pytest.raises(NoSpace, match="cannot write 4194304 bytes"):
        trial.do(trial.driver.part("folder/key", upload, UploadPart(1, 0), Payload(bytes(4 << 20))))
    trial.do(trial.driver.abort("folder/key", upload))
    assert list((disk / "folder").iterdir()) == []


def test_a_disk_that_fills_up_under_a_copy_s_last_bytes_leaves_no_part_of_it(disk, tmp_path):
    (tmp_path / "source").write_bytes(bytes(2 << 20))
    (disk / "other").write_bytes(bytes(512 << 10))  # so that the last write is cut short, and none comes after it
    trial = Trial(LocalDriver(str(tmp_path)), Threads())
    with pytest.raises(NoSpace, match="cannot write 2097152 bytes"):
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
        with pytest.raises(Unusable, match="this must be a directory") as caught:
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
    with pytest.raises(Unusable, match="delete removes only files: use penstock rm -r"):
        trial.do(trial.driver.delete("folder"))
    assert (tmp_path / "folder").is_dir()


# -- A listing of many pages reads a folder twice at most, and shows nothing that is older than itself --


@pytest.fixture
def folder(tmp_path):
    for number in range(4500):
        (tmp_path / f"{number:04}").touch()
    return tmp_path


@pytest.fixture
def scans(monkeypatch):
    """Return the folders that were read, as they are read."""
    seen, original = [], os.scandir

    def counted(path):
        seen.append(path)
        return original(path)

    monkeypatch.setattr("penstock.stores.local.driver.os.scandir", counted)
    return seen


def page(local, prefix="", token="", delimiter=""):
    return local.list(prefix, token=token, delimiter=delimiter).request.run()


def keys(local, delimiter=""):
    token, found = "", []
    while True:
        shown = page(local, token=token, delimiter=delimiter)
        found += [each.key for each in shown.entries] + list(shown.prefixes)
        token = shown.token
        if not token:
            return found


@pytest.mark.parametrize("delimiter", ["", "/"])
def test_a_folder_is_read_twice_for_five_pages(folder, scans, delimiter):
    (folder / "sub").mkdir()
    (folder / "sub" / "file").touch()
    found = keys(LocalDriver(str(folder)), delimiter)
    assert found == [f"{number:04}" for number in range(4500)] + ["sub/" if delimiter else "sub/file"]
    assert len([each for each in scans if each == f"{folder}/"]) == 2


def test_files_that_come_and_go_meanwhile_change_nothing_else(folder):
    local = LocalDriver(str(folder))
    first = page(local)
    second = page(local, token=first.token)
    (folder / "2500").unlink()
    third = page(local, token=second.token)
    assert [each.key for each in third.entries] == [f"{number:04}" for number in range(2000, 3001) if number != 2500]


def test_new_listing_shows_new_files_despite_an_abandoned_older_listing(folder):
    local = LocalDriver(str(folder))
    second = page(local, token=page(local).token)
    for number in range(500):
        (folder / f"2000-{number:03}").touch()
    again = page(local, token=page(local).token)
    third = page(local, token=again.token)
    assert again.token == second.token
    assert "2000-000" in {each.key for each in third.entries}


def test_two_listings_at_once_do_not_disturb_one_another(folder):
    local = LocalDriver(str(folder))
    tokens, found = ["", ""], [[], []]
    for _ in range(5):
        for at in (0, 1):
            shown = page(local, token=tokens[at])
            found[at] += [each.key for each in shown.entries]
            tokens[at] = shown.token
    assert found[0] == found[1] == [f"{number:04}" for number in range(4500)]
    assert tokens == ["", ""]


def test_few_are_kept_and_none_for_long(monkeypatch):
    walks = DirectoryWalks()
    for number in range(6):
        walks.keep(f"p{number}", "", "token", iter(()))
    kept = [walks.left(f"p{number}", "", "token") is not None for number in range(6)]
    assert kept == [False] * 2 + [True] * 4
    walks.keep("p", "", "token", iter(()))
    now = module.monotonic()
    monkeypatch.setattr(module, "monotonic", lambda: now + 61)
    assert walks.left("p", "", "token") is None


# -- A directory tree is listed as keys in byte order; links to folders are not followed, unfinished files are hidden --


def test_a_missing_prefix_lists_nothing(trial):
    assert trial.keys("no/such/folder/") == []


def test_links_are_followed_to_files_and_not_to_directories(trial, tmp_path):
    trial.put("folder/file", b"bytes")
    (tmp_path / "link").symlink_to(tmp_path / "folder" / "file")
    (tmp_path / "loop").symlink_to(tmp_path)
    (tmp_path / "broken").symlink_to(tmp_path / "nowhere")
    assert trial.keys() == ["folder/file", "link"]
    assert trial.get("link") == b"bytes"


def test_links_that_lead_to_themselves_are_left_out(trial, tmp_path):
    trial.put("file", b"bytes")
    (tmp_path / "itself").symlink_to("itself")
    (tmp_path / "there").symlink_to("back")
    (tmp_path / "back").symlink_to("there")
    assert trial.keys() == ["file"]


def test_a_link_in_the_prefix_is_followed_and_none_below(trial, tmp_path):
    trial.put("folder/file", b"bytes")
    (tmp_path / "folder" / "loop").symlink_to(tmp_path)
    (tmp_path / "link").symlink_to("folder")
    assert trial.keys("link/") == ["link/file"]


def test_file_names_with_invalid_utf8_are_listed_and_read(trial, tmp_path):
    name = os.fsdecode(b"caf\xe9")
    (tmp_path / name).write_bytes(b"bytes")
    trial.put_all(["cafz", "caf/x"])
    assert trial.keys() == ["caf/x", "cafz", name]
    assert trial.keys(start_after="cafz") == [name]
    assert trial.get(name) == b"bytes"


def test_names_are_in_the_order_of_their_bytes_which_is_not_that_of_their_characters(trial, tmp_path):
    names = [b"\xff", "🐶".encode(), b"a/x", b"a.x"]
    for name in map(os.fsdecode, names):
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).write_bytes(b"")
    assert trial.keys() == [os.fsdecode(name) for name in sorted(names)]


def test_only_temporary_upload_files_are_hidden(trial, tmp_path):
    for name in (".penstock-notes", f".penstock-{'0' * 32}", ".penstock-run/file", f".penstock-{'1' * 32}/file"):
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).write_bytes(b"")
    assert trial.keys() == [".penstock-notes", ".penstock-run/file"]
    assert trial.get(".penstock-run/file") == b""


def test_unfinished_files_are_those_whose_path_begins_with_the_prefix(trial, tmp_path):
    for folder in ("run", "run2", "run/x"):
        (tmp_path / folder).mkdir()
        (tmp_path / folder / f".penstock-{0:032x}").write_bytes(b"half")
    (tmp_path / "run" / ".penstock-notes").touch()
    found = trial.do(trial.driver.uploads("run/")).entries
    assert [each.key.rpartition("/")[0] for each in found] == ["run", "run/x"]
    assert trial.do(trial.driver.uploads("ru/")).entries == ()


@pytest.mark.skipif(os.geteuid() != 0, reason="only root may become somebody else")
def test_a_listing_names_the_directory_that_may_not_be_read(tmp_path):
    (tmp_path / "run" / "closed").mkdir(parents=True)
    (tmp_path / "run" / "closed").chmod(0o700)
    here = os.open(tmp_path, os.O_PATH)

    def look():
        os.fchdir(here)
        os.seteuid(65534)
        for prefix in ("run/", "run/cl", ""):
            with pytest.raises(Forbidden) as caught:
                Trial(LocalDriver("."), Threads()).keys(prefix)
            assert caught.value.url == "./run/closed/"

    tmp_path.chmod(0o755)
    with forked(look) as status:
        assert status() == 0
    os.close(here)


# -- A bare path and a file URL are one place on this machine, and name no host --


def test_a_path_and_its_url_open_the_same_engine(tmp_path):
    (one, key), (other, same) = open_source(tmp_path / "a"), open_source(f"file://{tmp_path}/a")
    assert key == same == f"{tmp_path}/a"[1:]
    assert one._fetcher() is other._fetcher()
    assert type(parse(tmp_path).store) is Local
    assert parse(tmp_path).local


def test_a_file_url_with_a_host_is_refused():
    with pytest.raises(InvalidURL, match="three slashes"):
        parse("file://data/train")
    assert Local().bucket_fault("") == ""
