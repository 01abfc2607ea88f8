"""Only regular files are opened: a FIFO, socket, device or directory is refused without blocking."""

import os
import socket
from pathlib import Path

import pytest

from penstock.engine.contracts.driver import Attributes
from penstock.engine.transport.work import Threads
from penstock.errors import NotFound, Unusable
from penstock.stores.local.driver import LocalDriver
from penstock.testing.drivers import Trial


@pytest.fixture
def trial(tmp_path):
    return Trial(LocalDriver(str(tmp_path)), Threads())


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
        for verb in (
            lambda: trial.do(trial.driver.get("odd", "etag")),
            lambda: trial.read("odd", 0, 1, etag="etag"),
        ):
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
