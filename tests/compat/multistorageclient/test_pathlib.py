"""``msc.Path`` has the manners of pathlib, for objects and for files."""

from __future__ import annotations

import os
import pickle
import stat
from pathlib import Path, PurePosixPath

import pytest

from penstock.compat import multistorageclient as msc
from penstock.errors import InvalidURL, NotFound, Unsupported


def test_a_path_is_taken_apart_and_put_together(tree):
    path = msc.Path(f"{tree}/d/b.txt")
    assert (path.name, path.stem, path.suffix, path.suffixes, path.parts[-2:]) == (
        "b.txt",
        "b",
        ".txt",
        [".txt"],
        ("d", "b.txt"),
    )
    assert str(path.parent) == f"{tree}/d"
    assert [str(each) for each in path.parents][:2] == [f"{tree}/d", tree]
    assert str(path.with_suffix(".c")) == f"{tree}/d/b.c"
    assert str(path.with_name("n").joinpath("m", "o") / "p") == f"{tree}/d/n/m/o/p"
    assert str(path.with_stem("s")) == f"{tree}/d/s.txt"
    assert path.relative_to(msc.Path(tree)) == PurePosixPath("d/b.txt")
    assert path.match("*.txt")
    assert path.is_absolute()
    assert path.resolve() == path.absolute() == path
    with pytest.raises(ValueError, match="is not below"):
        path.relative_to(msc.Path(f"{tree}/z"))


def test_paths_compare_hash_and_pickle(tree):
    one, two = (msc.Path(f"{tree}/{name}") for name in ("a.txt", "z.bin"))
    assert one < two
    assert two >= one
    assert sorted({two, one, msc.Path(f"{tree}//a.txt")}) == [one, two]
    assert pickle.loads(pickle.dumps(one)) == one
    assert repr(one) == f"MultiStoragePath('{tree}/a.txt')"
    assert one != str(one)


def test_exists_is_file_and_is_dir_distinguish_objects_from_directories(tree):
    there = [msc.Path(f"{tree}/{name}") for name in ("a.txt", "d", "none")]
    assert [each.exists() for each in there] == [True, True, False]
    assert [each.is_file() for each in there] == [True, False, False]
    assert [each.is_dir() for each in there] == [False, True, False]
    assert there[0].stat().st_size == 5
    with pytest.raises(NotFound):
        there[2].stat()


def test_path_iterdir_glob_and_rglob_find_the_directory_contents(tree):
    path = msc.Path(f"{tree}/d")
    assert sorted(each.name for each in path.iterdir()) == ["b.txt", "e"]
    assert [each.name for each in path.glob("*.txt")] == ["b.txt"]
    assert [each.name for each in path.rglob("*.txt")] == ["b.txt", "c.txt"]


def test_a_path_is_read_written_moved_and_deleted(base):
    path = msc.Path(base) / "new"
    path.mkdir(parents=True)
    path.write_text("ü")
    assert path.read_bytes() == "ü".encode()
    assert path.read_text() == "ü"
    with path.open("rb") as file:
        assert file.read() == "ü".encode()
    path.touch()
    assert path.stat().st_size == 2
    moved = path.rename(path.with_name("moved"))
    assert (path.exists(), moved.read_text()) == (False, "ü")
    moved.unlink()
    moved.unlink(missing_ok=True)
    with pytest.raises(NotFound):
        moved.unlink()
    moved.touch()
    assert moved.read_bytes() == b""
    with pytest.raises(InvalidURL, match="rename works within"):
        moved.rename("/elsewhere")


def test_a_local_copy_is_a_file_of_this_machine(tree):
    local = msc.Path(f"{tree}/d/b.txt").as_posix()
    assert Path(local).read_bytes() == b"d/b.txt"


def test_file_only_methods_raise_unsupported_on_multistorage_paths(tree):
    path = msc.Path(f"{tree}/a.txt")
    for name in ("is_symlink", "owner", "chmod"):
        with pytest.raises(Unsupported, match=rf"{name}\(\) is for local paths"):
            getattr(path, name)()
    with pytest.raises(AttributeError, match="no_such"):
        _ = path.no_such


def test_a_path_of_this_machine_is_pathlibs(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    path = msc.Path("sub/f.txt")
    path.parent.mkdir()
    path.write_text("local")
    assert (str(path), path.is_symlink(), path.exists(), path.as_posix()) == (
        f"{tmp_path}/sub/f.txt",
        False,
        True,
        str(path),
    )
    assert [str(each) for each in msc.Path(tmp_path).rglob("*.txt")] == [str(path)]
    assert [each.name for each in msc.Path(tmp_path).iterdir()] == ["sub"]
    assert path.stat().st_mode == Path(path).stat().st_mode
    assert path.rename("g.txt").is_file()
    msc.Path("g.txt").unlink()
    msc.Path("t").touch()
    assert (msc.Path.cwd(), msc.Path("t").resolve() == msc.Path("t"), msc.Path.home()) == (tmp_path, True, Path.home())
    assert msc.Path("sub").is_dir()


def test_a_text_is_opened_with_its_line_ends_and_errors(tree):
    path = msc.Path(f"{tree}/lines")
    path.write_bytes(b"a\r\nb\xff")
    with path.open(encoding="utf-8", errors="replace", newline="") as file:
        assert file.read() == "a\r\nb\ufffd"
    with pytest.raises(UnicodeDecodeError), path.open("a", encoding="utf-8", errors="ignore"):
        pass
    with path.open("w", newline="\r\n") as file:
        file.write("a\nb")
    assert path.read_bytes() == b"a\r\nb"
    with path.open("a", newline="") as file:
        file.write("\nc")
    assert path.read_bytes() == b"a\r\nb\nc"
    with pytest.raises(Unsupported, match="newline"):
        path.open("a", newline="\r\n")


def test_relative_to_refuses_text_and_requires_a_multistorage_path(tree):
    path = msc.Path(f"{tree}/d/b.txt")
    assert str(path.relative_to(msc.Path(tree))) == "d/b.txt"
    for other in (tree, str(path), None):
        assert not path.is_relative_to(other)
        with pytest.raises(TypeError, match="relative_to takes a MultiStoragePath, got"):
            path.relative_to(other)


def test_stat_has_the_fields_of_os_stat_result(tree):
    found = msc.Path(f"{tree}/a.txt").stat()
    assert (found.st_size, found.st_nlink, found.st_uid) == (5, 1, os.getuid())
    assert found.st_mtime == found.st_ctime == found.st_atime == pytest.approx(found.st_mtime_ns / 1e9)
    assert stat.S_ISREG(found.st_mode)
    assert stat.S_ISDIR(msc.Path(f"{tree}/d").lstat().st_mode)
    assert msc.Path(f"{tree}/a.txt").samefile(msc.Path(f"{tree}/a.txt"))


def test_link_of_this_machine_is_read_and_described(tmp_path):
    (tmp_path / "f").write_text("abc")
    (tmp_path / "link").symlink_to(tmp_path / "f")
    link = msc.Path(tmp_path / "link")
    assert link.readlink() == msc.Path(tmp_path / "f")
    assert (stat.S_ISLNK(link.lstat().st_mode), link.stat().st_size) == (True, 3)
    assert link.samefile(tmp_path / "f")
