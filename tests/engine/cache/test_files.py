"""Files of entries: parts of them, memory of the caller's, damage, and what is no entry."""

import os
from pathlib import Path
from random import Random

import pytest

from penstock.engine.cache import files
from penstock.engine.cache.entry import PAGE_BYTES, About, footer
from penstock.engine.cache.ledger import Folder
from penstock.errors import Damaged

NAME = bytes(range(16))
SIZE = 2 * PAGE_BYTES + 1000
DATA = Random(7).randbytes(SIZE)


@pytest.fixture
def folder(tmp_path):
    return Folder(str(tmp_path))


@pytest.fixture
def path(tmp_path, folder):
    path = str(tmp_path / files.path_of(NAME))
    Path(path).parent.mkdir()
    files.write(
        folder, files.path_of(NAME), (DATA, footer(NAME, DATA, About("s3://b/" + "k" * 3000, "e", 0, SIZE), 1.0))
    )
    return path


@pytest.mark.usefixtures("path")
@pytest.mark.parametrize(
    ("low", "high"), [(0, SIZE), (0, 1), (5, 9), (PAGE_BYTES, 2 * PAGE_BYTES), (PAGE_BYTES - 1, SIZE), (7, 7)]
)
def test_any_part_is_read_alone_or_into_memory_that_is_there(folder, low, high):
    memory = bytearray(high - low)
    assert files.read_entry(folder, NAME, low, high).data == DATA[low:high]
    assert files.read_entry(folder, NAME, low, high, memoryview(memory)).data is None
    assert memory == DATA[low:high]
    assert (
        files.read_entry(folder, NAME, 0, files.WHOLE).data == DATA == files.read_all(folder, files.path_of(NAME), NAME)
    )


@pytest.mark.usefixtures("path")
def test_more_than_there_is_is_not_read(folder):
    hit = files.read_entry(folder, NAME, 0, SIZE + 1)
    assert (hit.filled, hit.found.size_bytes) == (False, SIZE)


def test_damage_in_another_page_does_not_matter_and_in_a_page_that_is_read_it_does(path, folder):
    with open(path, "r+b") as file:
        file.seek(PAGE_BYTES + 3)
        file.write(bytes([DATA[PAGE_BYTES + 3] ^ 1]))
    assert files.read_entry(folder, NAME, 0, 100).data == DATA[:100]
    for low, high, memory in [(PAGE_BYTES, PAGE_BYTES + 1, None), (0, SIZE, memoryview(bytearray(SIZE)))]:
        with pytest.raises(Damaged):
            files.read_entry(folder, NAME, low, high, memory)


@pytest.mark.parametrize("left", [0, 1, 63, 64, SIZE, SIZE + 10])
def test_a_file_that_was_cut_is_damaged(path, folder, left):
    os.truncate(path, left)
    with pytest.raises(Damaged):
        files.read_entry(folder, NAME, 0, 1)


def test_an_entry_under_another_name_is_damaged(path, folder):
    other = NAME[:-1] + b"x"
    Path(path).rename(Path(path).parent.parent / files.path_of(other))
    with pytest.raises(Damaged):
        files.read_entry(folder, other, 0, 1)


def test_links_are_not_followed(path, folder):
    Path(path).rename(path + "1")
    Path(path).symlink_to(path + "1")
    with pytest.raises(OSError, match="symbolic"):
        files.read_entry(folder, NAME, 0, 1)


@pytest.mark.usefixtures("path")
def test_paths_lists_entries_and_foreign_files_in_the_folder(folder, tmp_path):
    (tmp_path / "00" / "zz").write_bytes(b"")
    path = files.path_of(NAME)
    assert dict(files.paths(folder)) == {path: NAME, "00/zz": b""}
    assert {each.path for each in files.candidates(folder, "00")} == {path, "00/zz"}
    assert [*files.candidates(folder, "01")] == []


def test_a_zero_byte_entry(tmp_path, folder):
    (tmp_path / files.path_of(NAME)).parent.mkdir()
    files.write(folder, files.path_of(NAME), (b"", footer(NAME, b"", About("s3://b/k", "e", 0, 0), 1.0)))
    assert files.read_entry(folder, NAME, 0, files.WHOLE) == files.read_entry(folder, NAME, 0, 0)
    assert files.read_entry(folder, NAME, 0, 0).data == b""
