"""A file is written beside the one it will be, and nobody holds its folder's lock longer than a rename takes."""

import os

import pytest

from penstock.engine.contracts.driver import Attributes, Payload
from penstock.engine.transport.work import Threads
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
