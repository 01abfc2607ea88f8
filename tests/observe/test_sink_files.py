"""Whole pieces, also where several processes append; what a full disk cut off goes first."""

from __future__ import annotations

import os

import pytest

from penstock.errors import Unusable
from penstock.observe.sink import AppendedFile, named_path
from tests.children import forked


def test_a_path_is_absolute_and_has_the_process_and_its_rank(monkeypatch, tmp_path):
    monkeypatch.chdir(tmp_path)
    assert named_path("a-{pid}-{rank}") == f"{tmp_path}/a-{os.getpid()}-0"
    monkeypatch.setenv("RANK", "3")
    assert named_path(tmp_path / "{rank}") == f"{tmp_path}/3"


@pytest.mark.parametrize("path", ["{}", "{0}", "{host}", "{"])
def test_other_braces_are_refused(path):
    with pytest.raises(Unusable, match="braces"):
        named_path(path)


def test_processes_that_append_at_once_cut_no_line(tmp_path):
    path = str(tmp_path / "lines")

    def work():
        file = AppendedFile(path)
        for _ in range(50):
            file.write((f"{os.getpid()} " * 3000 + "\n").encode())
        file.close()
        file.close()

    with forked(work) as one, forked(work) as other, forked(work) as third:
        assert [one(), other(), third()] == [0, 0, 0]
    lines = (tmp_path / "lines").read_text().splitlines()
    assert len(lines) == 150
    assert all(len(set(line.split())) == 1 and len(line.split()) == 3000 for line in lines)


def test_record_cut_by_full_disk_is_completed_before_new_records(monkeypatch, tmp_path):
    file, write = AppendedFile(str(tmp_path / "file")), os.write
    file.write(b"one\n")
    room = [2]

    def full(descriptor, data):
        if not room[0]:
            raise OSError(28, "No space left on device")
        count = write(descriptor, data[: room[0]])
        room[0] -= count
        return count

    monkeypatch.setattr(os, "write", full)
    for _ in range(2):
        with pytest.raises(OSError, match="No space"):
            file.write(b"second\n")
    with pytest.raises(OSError, match="No space"):
        file.write(b"third\n")
    monkeypatch.undo()
    file.write(b"fourth\n")
    assert (tmp_path / "file").read_bytes() == b"one\nsecond\nfourth\n"


def test_only_one_process_is_alone(tmp_path):
    one, other = AppendedFile(str(tmp_path / "file")), AppendedFile(str(tmp_path / "file"))
    assert one.alone()
    one.share()
    assert not other.alone()
    other.share()
    one.close()
    assert other.alone()
    other.write(b"0123456789")
    assert (other.size(), other.head(3), other.tail(3)) == (10, b"012", b"789")
    other.cut(4)
    assert other.tail(10) == b"0123"
    other.close()
