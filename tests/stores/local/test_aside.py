"""A file is written beside the one it will be, and nobody holds its folder's lock longer than a rename takes."""

import os
import socket
from pathlib import Path

import pytest

from penstock.engine.contracts.driver import Attributes, Payload
from penstock.engine.transport.work import Threads
from penstock.errors import NotFound, Unusable
from penstock.stores.local.aside import _lock_folder, is_aside, is_reserved, names
from penstock.stores.local.driver import LocalDriver
from penstock.testing.drivers import Trial
from tests.children import forked


@pytest.fixture
def trial(tmp_path):
    return Trial(LocalDriver(str(tmp_path)), Threads())


@pytest.mark.parametrize(
    ("key", "reserved"),
    [
        ("a/.penstock-x", True),
        (".penstock-", True),
        (f".penstock-{'a' * 32}/x", True),
        (".penstock-run/x", False),
        ("a.penstock-x", False),
        ("penstock-x", False),
    ],
)
def test_reserved_names(key, reserved):
    assert is_reserved(key) is reserved


def test_trap_01_a_child_forked_while_a_folder_is_locked_keeps_no_lock(trial, tmp_path):
    etag = trial.put("key", b"old")
    ended, end = os.pipe()
    with _lock_folder(str(tmp_path)) as alone:
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


@pytest.mark.skipif(os.geteuid() != 0, reason="only root may become somebody else")
def test_a_folder_that_may_be_written_and_not_read_takes_every_kind_of_write(tmp_path):
    folder = tmp_path / "drop"
    folder.mkdir()
    folder.chmod(0o1733)
    here = os.open(folder, os.O_PATH)  # what is above it belongs to root alone

    def write():
        os.fchdir(here)
        os.seteuid(65534)
        trial = Trial(LocalDriver("."), Threads())
        with pytest.raises(PermissionError):
            os.scandir(".")
        etag = trial.put("key", b"old")
        trial.do(trial.driver.put("key", Payload(b"new"), Attributes(replaces=etag)))
        trial.do(trial.driver.put("once", Payload(b"once"), Attributes(create_only=True)))
        trial.put("below/deeper/key", b"deep")

    with forked(write) as status:
        assert status() == 0
    os.close(here)
    found = {str(path.relative_to(folder)): path.read_bytes() for path in folder.rglob("*") if path.is_file()}
    assert found == {"key": b"new", "once": b"once", "below/deeper/key": b"deep"}


def test_names_drawn_together_differ_and_are_known_as_those_of_files_being_written(monkeypatch):
    monkeypatch.setattr(os, "urandom", lambda count: b"\xff" * count)
    drawn = names(3)
    assert len({*drawn}) == len(drawn)
    assert all(is_aside(f".penstock-{name}") for name in drawn)


# -- Only regular files are opened: a FIFO, socket, device or directory is refused without blocking --


def test_directory_key_raises_not_found(trial, tmp_path):
    (tmp_path / "folder").mkdir()
    for verb in (trial.head, trial.get):
        with pytest.raises(NotFound):
            verb("folder")
    with pytest.raises(NotFound):
        trial.read("folder", 0, 1)


def test_a_listed_file_is_opened_without_a_look_before(trial, monkeypatch):
    trial.put("key", b"bytes")
    etag, looks, stat = trial.head("key").etag, [], os.stat
    monkeypatch.setattr(os, "stat", lambda *words, **named: (looks.append(words), stat(*words, **named))[1])
    assert trial.do(trial.driver.get("key", etag)) == b"bytes"
    assert trial.read("key", 0, 5, etag=etag) == b"bytes"
    assert looks == []
    assert trial.read("key", 0, 5) == b"bytes"
    assert len(looks) == 1


class TestNoRegularFiles:
    @pytest.fixture(params=["FIFO", "socket", "character device"])
    def odd(self, request, tmp_path):
        path = tmp_path / "odd"
        if request.param == "FIFO":
            os.mkfifo(path)
        elif request.param == "socket":
            with socket.socket(socket.AF_UNIX) as listening:
                listening.bind(str(path))
        else:
            path.symlink_to("/dev/zero")
        return request.param

    def test_they_are_neither_read_nor_replaced(self, trial, tmp_path, odd):
        for verb in (
            lambda: trial.head("odd"),
            lambda: trial.get("odd"),
            lambda: trial.read("odd", 0, 1),
            lambda: trial.put("odd", b"new"),
            lambda: trial.do(trial.driver.create("odd", Attributes())),
            lambda: trial.do(trial.driver.copy("odd", "copy")),
        ):
            with pytest.raises(Unusable, match=f"is a {odd}, not a regular file"):
                verb()
        assert [path.name for path in tmp_path.iterdir()] == ["odd"]

    def test_they_are_not_read_where_a_listed_file_was(self, trial, odd):
        for verb in (lambda: trial.do(trial.driver.get("odd", "etag")), lambda: trial.read("odd", 0, 1, etag="etag")):
            with pytest.raises(Unusable, match="No such device" if odd == "socket" else f"is a {odd}, not a regular"):
                verb()

    def test_they_are_not_listed(self, trial, odd):  # noqa: ARG002  there beside
        trial.put("file", b"")
        assert trial.keys() == ["file"]

    @pytest.mark.skipif(not Path("/proc/self/status").exists(), reason="no /proc")
    def test_file_without_reported_size_raises_unusable(self):
        whole = Trial(LocalDriver(), Threads())
        for verb in (whole.head, whole.get, lambda key: whole.read(key, 0, 1)):
            with pytest.raises(Unusable, match="does not report the size"):
                verb("proc/self/status")

    def test_an_empty_file_is_a_file(self, trial):
        trial.put("empty", b"")
        assert (trial.head("empty").size, trial.get("empty")) == (0, b"")
