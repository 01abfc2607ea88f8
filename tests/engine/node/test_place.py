"""The file is this user's alone: links, pipes, and what others own, may read or may write, are refused."""

from __future__ import annotations

import os
import stat
from pathlib import Path

import pytest

from penstock.engine.node.member import FILE, directory, open_file
from penstock.engine.node.table import SIZE
from penstock.errors import ConfigError


@pytest.fixture
def where(tmp_path):
    return tmp_path / "runtime"


def test_the_directory_is_made_for_this_user_alone(where):
    before = os.umask(0)
    try:
        descriptor = open_file(where)
    finally:
        os.umask(before)
    try:
        assert stat.S_IMODE(where.stat().st_mode) == 0o700
        assert stat.S_IMODE((where / FILE).stat().st_mode) == 0o600
        assert not os.get_inheritable(descriptor)
    finally:
        os.close(descriptor)


def test_existing_node_file_is_reopened(where):
    os.close(open_file(where))
    (where / FILE).write_bytes(bytes(SIZE))
    descriptor = open_file(where)
    assert os.fstat(descriptor).st_size == SIZE
    os.close(descriptor)


def descriptors():
    return sum(1 for _ in Path("/dev/fd").iterdir())


def linked(where):
    where.with_name("other").mkdir(mode=0o700)
    where.symlink_to(where.with_name("other"))


def plain(where):
    where.write_bytes(b"")


def open_to_all(where):
    where.mkdir(mode=0o700)
    where.chmod(0o777)


def readable(where):
    where.mkdir(mode=0o700)
    where.chmod(0o750)


def file_linked(where):
    where.mkdir(mode=0o700)
    victim = where.with_name("victim")
    victim.write_bytes(b"precious")
    (where / FILE).symlink_to(victim)


def file_hard_linked(where):
    where.mkdir(mode=0o700)
    (victim := where.with_name("victim")).write_bytes(b"")
    victim.chmod(0o600)
    os.link(victim, where / FILE)


def pipe(where):
    where.mkdir(mode=0o700)
    os.mkfifo(where / FILE, 0o600)


def folder(where):
    where.mkdir(mode=0o700)
    (where / FILE).mkdir()


def writable(where):
    where.mkdir(mode=0o700)
    (where / FILE).write_bytes(b"")
    (where / FILE).chmod(0o666)


def large(where):
    where.mkdir(mode=0o700)
    (where / FILE).write_bytes(bytes(SIZE + 1))
    (where / FILE).chmod(0o600)


def anothers(where):
    if os.geteuid():
        pytest.skip("only root gives files away")
    where.mkdir(mode=0o700)
    os.chown(where, 12345, -1)


def file_anothers(where):
    if os.geteuid():
        pytest.skip("only root gives files away")
    os.close(open_file(where))
    os.chown(where / FILE, 12345, -1)


HOSTILE = [linked, plain, open_to_all, readable, file_linked, file_hard_linked, pipe, folder, writable, large]
HOSTILE += [anothers, file_anothers]


@pytest.mark.parametrize("make", HOSTILE)
def test_unsafe_node_file_or_directory_is_refused_and_left_unchanged(where, make):
    make(where)
    before = descriptors()
    with pytest.raises((ConfigError, OSError)):
        os.close(open_file(where))
    assert descriptors() == before
    victim = where.with_name("victim")
    assert not victim.exists() or victim.read_bytes() in (b"precious", b"")


def test_node_directory_is_chosen_from_environment_variables(tmp_path):
    own = Path(f"/tmp/penstock-{os.geteuid()}")  # noqa: S108  nothing is opened
    assert directory({}) == own
    assert directory({"TMPDIR": str(tmp_path)}) == own
    assert directory({"XDG_RUNTIME_DIR": str(tmp_path)}) == tmp_path / "penstock"
    assert directory({"XDG_RUNTIME_DIR": str(tmp_path / "gone")}) == own
    assert directory({"XDG_RUNTIME_DIR": "run"}) == own
    assert directory({"PENSTOCK_NODE": "/run/job", "XDG_RUNTIME_DIR": str(tmp_path)}) == Path("/run/job")
    assert directory({"PENSTOCK_NODE": "off", "XDG_RUNTIME_DIR": str(tmp_path)}) is None
    assert directory({"PENSTOCK_NODE": "OFF"}) is None


@pytest.mark.parametrize("said", ["run/job", "0", "false", "~/node"])
def test_penstock_node_with_a_relative_path_is_refused(said):
    with pytest.raises(ConfigError, match=f"absolute path .* or off, got '{said}'"):
        directory({"PENSTOCK_NODE": said})
