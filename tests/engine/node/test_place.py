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


def within(make, mode=0o700):
    """Return what makes the directory and then its file, of which ``make`` takes the path."""

    def made(where):
        where.mkdir()
        where.chmod(mode)
        make(where / FILE)

    return made


def written(data, mode):
    return within(lambda file: (file.write_bytes(data), file.chmod(mode)))


def linked(where):
    where.with_name("other").mkdir(mode=0o700)
    where.symlink_to(where.with_name("other"))


def file_linked(file):
    victim = file.parent.with_name("victim")
    victim.write_bytes(b"precious")
    file.symlink_to(victim)


def file_hard_linked(file):
    (victim := file.parent.with_name("victim")).write_bytes(b"")
    victim.chmod(0o600)
    os.link(victim, file)


def anothers(name):
    def made(where):
        if os.geteuid():
            pytest.skip("only root gives files away")
        os.close(open_file(where))
        os.chown(where / name, 12345, -1)

    return made


HOSTILE = {
    "a link": linked,
    "a file": lambda where: where.write_bytes(b""),
    "open to all": within(lambda _file: None, 0o777),
    "readable": within(lambda _file: None, 0o750),
    "its file is a link": within(file_linked),
    "its file is a hard link": within(file_hard_linked),
    "its file is a pipe": within(lambda file: os.mkfifo(file, 0o600)),
    "its file is a folder": within(Path.mkdir),
    "its file is writable": written(b"", 0o666),
    "its file is large": written(bytes(SIZE + 1), 0o600),
    "another's": anothers(""),
    "its file is another's": anothers(FILE),
}


@pytest.mark.parametrize("kind", HOSTILE)
def test_unsafe_node_file_or_directory_is_refused_and_left_unchanged(where, kind):
    spoil = HOSTILE[kind]
    spoil(where)
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
