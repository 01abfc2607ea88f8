"""A directory tree is listed as keys in byte order; links to folders are not followed, unfinished files are hidden."""

import os

import pytest

from penstock.engine.transport.work import Threads
from penstock.errors import Forbidden
from penstock.stores.local.driver import LocalDriver
from penstock.testing.drivers import Trial
from tests.children import forked


@pytest.fixture
def trial(tmp_path):
    return Trial(LocalDriver(str(tmp_path)), Threads())


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
