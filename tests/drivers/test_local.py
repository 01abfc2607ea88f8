"""Files keep every promise of a driver, as far as a path can be a key; what is half written is never seen."""

import os
from fcntl import LOCK_EX, LOCK_UN, flock

import pytest

from penstock.drivers.local import Local, _locked
from penstock.errors import Changed, Forbidden, InvalidURL, NoSpace, NotFound, Transient, Unusable
from penstock.protocols.driver import Attributes, Part, Payload
from penstock.testing.drivers import KEYS, DriverContract, Trial
from penstock.transport.work import Threads
from penstock.values import Span


def _can_be_a_path(key):
    return not {"", ".", ".."} & set(key.split("/"))


class TestContract(DriverContract):
    keys = tuple(key for key in KEYS if _can_be_a_path(key))
    keeps_metadata = False

    @pytest.fixture
    def store(self, tmp_path):
        return Local(str(tmp_path)), Threads()


@pytest.fixture
def trial(tmp_path):
    return Trial(Local(str(tmp_path)), Threads())


def test_a_directory_is_no_object(trial, tmp_path):
    (tmp_path / "folder").mkdir()
    for verb in (trial.head, trial.get):
        with pytest.raises(NotFound):
            verb("folder")
    with pytest.raises(NotFound):
        trial.read("folder", 0, 1)


@pytest.mark.parametrize(
    ("key", "error"), [("", InvalidURL), ("trail/", InvalidURL), ("nul\0", InvalidURL), ("x" * 300, Unusable)]
)
def test_what_cannot_be_a_file_is_said(trial, key, error):
    with pytest.raises(error):
        trial.put(key, b"")


def test_a_file_in_the_way_of_a_directory_is_said(trial):
    trial.put("a", b"")
    with pytest.raises(Unusable, match="a/b"):
        trial.put("a/b", b"")
    with pytest.raises(NotFound):
        trial.head("a/b")


@pytest.mark.skipif(os.geteuid() == 0, reason="root may read anything")
def test_what_may_not_be_read_is_forbidden(trial, tmp_path):
    trial.put("secret", b"")
    (tmp_path / "secret").chmod(0)
    with pytest.raises(Forbidden):
        trial.get("secret")


def test_a_file_rewritten_in_place_has_changed(trial, tmp_path):
    etag = trial.put("key", b"one")
    os.utime(tmp_path / "key", ns=(1, 1))
    with pytest.raises(Changed):
        trial.read("key", 0, 3, etag)


def test_what_is_being_written_is_not_listed(trial, tmp_path):
    upload = trial.do(trial.driver.create("folder/key", Attributes()))
    trial.do(trial.driver.part("folder/key", upload, Part(1, 0), Payload(b"half")))
    assert trial.keys() == []
    assert [path.name for path in (tmp_path / "folder").iterdir()] != ["key"]
    trial.do(trial.driver.abort("folder/key", upload))
    assert list((tmp_path / "folder").iterdir()) == []


def test_a_failed_write_leaves_no_file_aside(trial, tmp_path):
    (tmp_path / "folder").mkdir()
    with pytest.raises(NotFound):
        trial.put("folder", b"a directory stands here")
    assert [path.name for path in tmp_path.iterdir()] == ["folder"]


def test_a_full_disk_says_what_was_to_be_written_and_what_is_free(disk):
    trial = Trial(Local(str(disk)), Threads())
    with pytest.raises(NoSpace, match="4194304 bytes were to be written, 2097152 are free"):
        trial.put("folder/key", bytes(4 << 20))
    upload = trial.do(trial.driver.create("folder/key", Attributes()))
    with pytest.raises(NoSpace, match="4194304 bytes were to be written"):
        trial.do(trial.driver.part("folder/key", upload, Part(1, 0), Payload(bytes(4 << 20))))
    trial.do(trial.driver.abort("folder/key", upload))
    assert list((disk / "folder").iterdir()) == []


def test_a_missing_prefix_lists_nothing(trial):
    assert trial.keys("no/such/folder/") == []


def test_links_are_followed_to_files_and_not_to_directories(trial, tmp_path):
    trial.put("folder/file", b"bytes")
    (tmp_path / "link").symlink_to(tmp_path / "folder" / "file")
    (tmp_path / "loop").symlink_to(tmp_path)
    (tmp_path / "broken").symlink_to(tmp_path / "nowhere")
    assert trial.keys() == ["folder/file", "link"]
    assert trial.get("link") == b"bytes"


def test_names_that_are_no_utf_8_are_listed_and_read(trial, tmp_path):
    name = os.fsdecode(b"caf\xe9")
    (tmp_path / name).write_bytes(b"bytes")
    trial.put_all(["cafz", "caf/x"])
    assert trial.keys() == ["caf/x", "cafz", name]
    assert trial.keys(start_after="cafz") == [name]
    assert trial.get(name) == b"bytes"


def test_the_whole_tree_is_served_by_default(tmp_path):
    (tmp_path / "file").write_bytes(b"bytes")
    trial = Trial(Local(), Threads())
    assert trial.driver.url("a/b") == "/a/b"
    assert trial.do(trial.driver.get(str(tmp_path / "file").lstrip("/"), "")) == b"bytes"
    assert Span("x").stop is None


def test_who_replaces_a_version_keeps_others_out_who_do_the_same(trial, tmp_path):
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


def test_trap_01_a_child_forked_while_a_folder_is_locked_keeps_no_lock(trial, tmp_path):
    etag = trial.put("key", b"old")
    ended, end = os.pipe()
    with _locked(str(tmp_path)) as alone:
        assert alone
        pid = os.fork()
        if not pid:
            os.close(end)
            os.read(ended, 1)
            os._exit(0)
    trial.do(trial.driver.put("key", Payload(b"new"), Attributes(replaces=etag)))
    os.close(end)
    os.close(ended)
    assert os.waitpid(pid, 0)[1] == 0
