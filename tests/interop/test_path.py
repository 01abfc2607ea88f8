"""Paths have pathlib's manners, and no key is another one than was written."""

from __future__ import annotations

import errno
import pickle
import stat
from dataclasses import replace
from pathlib import Path as LocalPath
from pathlib import PurePosixPath

import numpy as np
import pytest
from hypothesis import example, given
from hypothesis import strategies as st
from upath import UPath

import penstock as ps
from penstock.errors import AlreadyExists, ConfigError, Denied, InvalidURL, NotFound, UnknownScheme
from penstock.interop import path
from penstock.interop.path import Names, PenstockPath, join_path
from penstock.source import open_source
from penstock.testing.faults import FAULTS

ODD = [
    "a//b",
    "//a",
    "a//",
    "dir/",
    "a b",
    "é🐶",
    "a?b=1",
    "a#b",
    "a%20b",
    "./x",
    "a/../b",
    "x/.",
    "..",
    "a+b&c",
    "[x]*",
]


@pytest.fixture
def root(server):
    """Return a path with files in folders."""
    for key in ("run/a.txt", "run/b.tar.gz", "run/deep/c.txt", "run/deep/er/d.txt", "running", "run/mark/"):
        server.put("bucket", key, b"" if key.endswith("/") else key.encode())
    return ps.Path("s3://bucket/run", store=server.store)


def _names(paths):
    return [str(path).partition("bucket/")[2] for path in paths]


class TestNames:
    """No requests."""

    @pytest.mark.parametrize("text", ["a", "a/b.txt", "a/b.tar.gz", "a/.hidden", "a.b/c", "x/y/z/w.e.f"])
    def test_they_are_pathlib_s(self, text):
        path, model = ps.Path(f"s3://bucket/{text}"), PurePosixPath(text)
        assert (path.name, path.stem, path.suffix, path.suffixes) == (
            *(model.name, model.stem, model.suffix, model.suffixes),
        )
        assert str(path.parent / path.name) == str(path)
        assert path.parts == ("bucket/", *model.parts)
        assert len(path.parents) == len(model.parents)
        assert str(path.with_name("new.x")) == f"s3://bucket/{model.with_name('new.x')}"
        assert str(path.with_suffix(".x")) == f"s3://bucket/{model.with_suffix('.x')}"
        assert str(path.with_stem("stem")) == f"s3://bucket/{model.with_stem('stem')}"
        assert str(path / "c" / "d") == f"s3://bucket/{model / 'c' / 'd'}" == str(path.joinpath("c", "d"))

    @pytest.mark.parametrize("key", ODD)
    def test_path_keeps_its_key_exactly_as_given(self, key):
        path = ps.Path(f"s3://bucket/{key}")
        assert str(path) == f"s3://bucket/{key}" == path.as_uri()
        assert pickle.loads(pickle.dumps(path)) == path
        assert ps.Path("s3://bucket", *([key] if not key.startswith("/") else [])) in (path, ps.Path("s3://bucket/"))

    def test_a_slash_at_the_end_is_another_key_and_no_other_name(self):
        path = ps.Path("s3://bucket/train/")
        assert path != ps.Path("s3://bucket/train")
        assert (path.name, str(path.parent), str(path / "x"), path.parts) == (
            *("train", "s3://bucket/", "s3://bucket/train/x", ("bucket/", "train")),
        )

    def test_equal_paths_are_one(self):
        first, second = ps.Path("s3://bucket/a") / "b", ps.Path("s3://bucket/a/b")
        assert first == second
        assert hash(first) == hash(second)
        assert len({first, second, ps.Path("gs://bucket/a/b"), ps.Path("s3://bucket/a/b", store="other")}) == 3
        assert min(second, ps.Path("s3://bucket/a")).name == "a"

    def test_relative_to_returns_the_remainder_or_raises_for_another_base(self):
        path = ps.Path("s3://bucket/a/b//c.txt")
        for base in ("s3://bucket/a", "s3://bucket/a/", ps.Path("s3://bucket/a")):
            relative = path.relative_to(base)
            assert (str(relative), relative.name, relative.suffix) == ("b//c.txt", "c.txt", ".txt")
            assert ps.Path("s3://bucket/a") / relative == path
            assert str(pickle.loads(pickle.dumps(relative))) == "b//c.txt"
        assert str(path.relative_to(path)) == "."
        assert path.is_relative_to("s3://bucket/a/b")
        local = ("/a", LocalPath("/a"), UPath("/a"), "", "none://bucket/a")
        for other in ("s3://bucket/a/bb", "s3://bucket/x", "gs://bucket/a", *local):
            assert not path.is_relative_to(other)
            with pytest.raises(ValueError, match="not below"):
                path.relative_to(other)
        with pytest.raises(InvalidURL, match="relative"):
            path.relative_to("s3://bucket/a").open()
        with pytest.raises(NotImplementedError):
            path.relative_to("s3://bucket/x", walk_up=True)

    def test_every_scheme_has_paths(self, tmp_path, monkeypatch):
        monkeypatch.chdir(tmp_path)
        urls = ("gs://bucket/k", "az://bucket/k", "abfss://bucket@account.dfs.core.windows.net/k", "oss://bucket/k")
        for url in (*urls, "https://host:8080/k?x=1", "memory://b/k", "file:///etc/k", "fsspec+ftp://host/k"):
            assert str(ps.Path(url)) == url
            assert type(ps.Path(url)) is PenstockPath
        assert str(ps.Path("x/y")) == f"file://{tmp_path}/x/y"
        assert ps.Path(tmp_path / "x").name == "x"

    def test_invalid_paths_and_names_are_refused(self):
        for call, error in (
            (lambda: ps.Path(""), InvalidURL),
            (lambda: ps.Path("s4://bucket/a"), UnknownScheme),
            (lambda: ps.Path("s3:/bucket/a"), InvalidURL),
            (lambda: ps.Path(LocalPath("s3://bucket/a")), InvalidURL),
            (lambda: ps.Path("s3://bucket/a") / "/b", InvalidURL),
            (lambda: ps.Path("s3://bucket/a") / "s3://bucket/b", InvalidURL),
            (lambda: ps.Path("s3://bucket/a") / ps.Path("s3://bucket/b"), InvalidURL),
            (lambda: ps.Path("s3://bucket/a").with_name("b/c"), ValueError),
            (lambda: ps.Path("s3://bucket/").with_name("c"), ValueError),
            (lambda: ps.Path("s3://bucket/a").with_suffix("txt"), ValueError),
            (lambda: "x" / ps.Path("s3://bucket/a"), TypeError),
            (lambda: ps.Path(3), TypeError),
        ):
            with pytest.raises(error):
                call()

    def test_path_operations_without_store_equivalent_raise_an_error(self):
        path = ps.Path("s3://bucket/a")
        for call in (path.owner, path.readlink, lambda: path.chmod(0o600), lambda: path.symlink_to("b"), path.cwd):
            with pytest.raises(NotImplementedError):
                call()
        assert (path.is_symlink(), path.is_absolute(), path.absolute(), path.resolve()) == (False, True, path, path)
        with pytest.raises(TypeError):
            LocalPath(path)  # os.makedirs(path) would make a local folder of the URL's name


class TestWhatIsThere:
    def test_path_distinguishes_files_from_directories(self, root, asked):
        kinds = {
            name: ((p := root / name).exists(), p.is_file(), p.is_dir()) for name in ("a.txt", "deep", "no", "mark")
        }
        assert kinds == {
            "a.txt": (True, True, False),
            "deep": (True, False, True),
            "no": (False, False, False),
            "mark": (True, False, True),
        }
        assert (root.parent.exists(), root.parent.is_dir(), root.is_dir()) == (True, True, True)
        assert asked((root / "a.txt").exists) == ["HEAD"]
        assert asked(root.is_dir) == ["GET"]
        found = (root / "a.txt").stat()
        assert (found.st_size, found.st_mtime > 0, stat.S_ISREG(found.st_mode)) == (9, True, True)
        assert stat.S_ISDIR(root.stat().st_mode)
        with pytest.raises(NotFound):
            (root / "no").stat()

    def test_denied_request_raises_instead_of_reporting_a_missing_path(self, server):
        store = replace(server.store, retry=ps.RetryOptions(patience_s=0.01, first_contact_s=0.01))
        path = ps.Path("s3://bucket/a", store=store)
        for ask in (path.exists, path.is_file, path.is_dir):
            server.fail(FAULTS["denied"])
            with pytest.raises(Denied):
                ask()

    def test_directories_are_listed(self, root, asked, server):
        assert _names(root.iterdir()) == ["run/a.txt", "run/b.tar.gz", "run/deep", "run/mark"]
        assert _names((root / "mark").iterdir()) == []
        assert _names(root.parent.iterdir()) == ["run", "running"]
        assert asked(lambda: [*root.iterdir()]) == ["GET"]
        with pytest.raises(NotFound):
            [*(root / "no").iterdir()]
        with pytest.raises(NotADirectoryError):
            [*(root / "a.txt").iterdir()]
        server.put("bucket", "both", b"1")
        server.put("bucket", "both/x", b"1")
        server.put("bucket", "odd//x", b"1")
        assert _names(root.parent.iterdir()) == ["both", "odd", "run", "running"]
        (empty,) = (root.parent / "odd").iterdir()
        assert _names(empty.iterdir()) == ["odd//x"]
        assert next(iter(root.walk())) == (root, ["deep", "mark"], ["a.txt", "b.tar.gz"])

    @pytest.mark.parametrize(
        ("pattern", "found"),
        [
            ("*", ["a.txt", "b.tar.gz", "deep", "mark"]),
            ("*.txt", ["a.txt"]),
            ("[ab].*", ["a.txt", "b.tar.gz"]),
            ("**/*.txt", ["a.txt", "deep/c.txt", "deep/er/d.txt"]),
            ("*/", ["deep", "mark"]),
            ("**/", ["deep", "deep/er", "mark"]),
            ("*/*", ["deep/c.txt", "deep/er"]),
            ("deep/e*", ["deep/er"]),
            ("a.txt", ["a.txt"]),
            ("deep", ["deep"]),
            ("no", []),
            ("no*", []),
        ],
    )
    def test_patterns(self, root, pattern, found):
        assert _names(root.glob(pattern)) == [f"run/{name}" for name in found]

    def test_patterns_of_all_that_lies_below(self, root):
        assert _names(root.rglob("*.txt")) == ["run/a.txt", "run/deep/c.txt", "run/deep/er/d.txt"]
        assert _names(root.parent.glob("run*")) == ["run", "running"]
        bracket = root / "[x]"
        (bracket / "y").write_text("1")
        assert _names(bracket.glob("*")) == ["run/[x]/y"]
        for wrong in ("", "/a", "/"):
            with pytest.raises(InvalidURL, match="pattern must be relative"):
                root.glob(wrong).__next__()


class TestFiles:
    @pytest.mark.parametrize("key", [key for key in ODD if not key.endswith("/")])
    def test_odd_keys_are_read_and_written(self, server, key):
        path = ps.Path(f"s3://bucket/{key}", store=server.store)
        path.write_bytes(b"1")
        assert [*server.objects("bucket")] == [key]
        assert (path.read_bytes(), path.is_file()) == (b"1", True)
        path.unlink()
        assert [*server.objects("bucket")] == []

    def test_files_are_read_and_written(self, root, asked):
        path = root / "new.txt"
        assert asked(lambda: path.write_text("zwölf\n")) == ["PUT", "HEAD"]
        assert asked(path.read_bytes) == ["GET"]
        assert (path.read_text(), path.read_bytes()) == ("zwölf\n", "zwölf\n".encode())
        assert path.write_bytes(b"abc") == 3
        with path.open() as file:
            assert (file.read(), file.mode) == ("abc", "r")
        with path.open("wb", metadata={"run": "7"}) as file:
            np.save(file, np.arange(3))
        with path.open("rb") as file:
            assert np.load(file)[2] == 2
        assert ps.stat(str(path), store=path.storage_options["store"]).metadata["run"] == "7"
        with pytest.raises(ZeroDivisionError), path.open("w") as file:
            file.write("half")
            raise ZeroDivisionError
        assert path.read_bytes()[:6] == b"\x93NUMPY"
        with pytest.raises(ConfigError, match="not appended to"):
            path.open("a")
        with pytest.raises(NotFound):
            (root / "no").read_text()
        with pytest.raises(InvalidURL, match="names a bucket"):
            root.parent.read_bytes()

    def test_an_empty_file_is_made_once(self, root, asked):
        path = root / "empty"
        assert asked(path.touch) == ["HEAD", "HEAD", "PUT", "HEAD"]
        path.write_text("x")
        path.touch()
        assert path.read_text() == "x"
        with pytest.raises(AlreadyExists):
            path.touch(exist_ok=False)
        assert asked(lambda: (root / "folder").mkdir(parents=True, exist_ok=False)) == []

    def test_files_go(self, root, asked):
        assert asked((root / "a.txt").unlink) == ["HEAD", "DELETE"]
        with pytest.raises(NotFound):
            (root / "a.txt").unlink()
        assert asked(lambda: (root / "a.txt").unlink(missing_ok=True)) == ["DELETE"]

    def test_directories_go_when_asked_to(self, root, server):
        for name, error in (("deep", OSError), ("no", NotFound), ("a.txt", NotADirectoryError)):
            with pytest.raises(error):
                (root / name).rmdir()
        (root / "mark").rmdir()
        (root / "deep").rmdir(recursive=True)
        assert sorted(server.objects("bucket")) == ["run/a.txt", "run/b.tar.gz", "running"]
        with pytest.raises(InvalidURL, match="a whole bucket"):
            root.parent.rmdir(recursive=True)

    def test_files_and_directories_are_renamed(self, root, server):
        path = root / "a.txt"
        assert path.rename(path.with_name("z.txt")).read_text() == "run/a.txt"
        assert path.rename.__self__.exists() is False
        (root / "deep").rename("s3://bucket/moved")
        assert sorted(server.objects("bucket")) == [
            *("moved/c.txt", "moved/er/d.txt", "run/b.tar.gz", "run/mark/", "run/z.txt", "running"),
        ]
        assert (root / "z.txt").rename(root / "z.txt") == root / "z.txt"
        for call, error in (
            (lambda: path.rename("b.txt"), InvalidURL),
            (lambda: path.rename(path.with_name("y")), NotFound),
            (lambda: root.rename(root / "below"), InvalidURL),
            (lambda: root.parent.rename("s3://other/x"), InvalidURL),
        ):
            with pytest.raises(error):
                call()
        assert (root / "z.txt").replace(root / "b.tar.gz").read_text() == "run/a.txt"

    def test_trees_are_copied(self, root, server, tmp_path):
        root.copy(root.parent / "copy")
        assert sorted(key for key in server.objects("bucket") if key.startswith("copy")) == [
            *("copy/a.txt", "copy/b.tar.gz", "copy/deep/c.txt", "copy/deep/er/d.txt"),
        ]
        root.copy(UPath(tmp_path / "down"))
        assert (tmp_path / "down" / "deep" / "c.txt").read_text() == "run/deep/c.txt"

    def test_the_library_takes_paths(self, root, server):
        assert ps.stat(root / "a.txt", store=server.store).size == 9
        assert len([*ps.list(root, store=server.store)]) == 6
        with ps.open(UPath("memory://bucket/x"), "wb") as file:
            file.write(b"1")


class TestUniversalPathlib:
    def test_its_entry_points_lead_here(self, tmp_path, monkeypatch):
        (tmp_path / "data").mkdir()
        monkeypatch.chdir(tmp_path)
        (tmp_path / "penstock.toml").write_text(f'[profiles.data]\nurl = "file://{tmp_path}/data/"\n')
        for url in ("penstock://data/a.txt", f"msc://__filesystem__{tmp_path}/data/a.txt"):
            path = UPath(url)
            assert type(path) is PenstockPath
            assert (path.protocol, path.name, str(path)) == (url.partition(":")[0], "a.txt", url)
            path.write_text(url)
            assert (tmp_path / "data" / "a.txt").read_text() == url
            assert [*path.parent.iterdir()] == [path]

    def test_a_path_has_its_file_system(self, root):
        pytest.importorskip("penstock.interop.fsspec.schemes")
        path = root / "a.txt"
        assert path.fs.cat_file(path.path) == b"run/a.txt"
        assert path.fs is path.fs


@pytest.mark.parametrize(
    ("path", "parent", "name"),
    [
        ("b/", "b/", ""),
        ("b/a", "b/", "a"),
        ("b/a/b", "b/a", "b"),
        ("b/a/", "b/", "a"),
        ("b/a//", "b/a", ""),
        ("b/a//b", "b/a//", "b"),
        ("b/a///b", "b/a///", "b"),
        ("b//", "b/", ""),
        ("b//a", "b//", "a"),
        ("/tmp/x", "/tmp", "x"),  # noqa: S108  a name
        ("s3://b/a/x", "b/a", "x"),
    ],
)
def test_a_path_is_a_parent_and_a_name(path, parent, name):
    assert Names.split(path) == (parent, name)


@example("a//b")
@example("//a")
@given(st.text("ab/.? ", max_size=8))
def test_parent_and_name_are_the_path_again(key):
    parent, name = Names.split(f"bucket/{key}")
    if name and not key.endswith("/") and name != ".":
        assert join_path(parent, name) == f"bucket/{key}"


@given(st.text("ab/.", max_size=12))
def test_every_path_leads_to_its_bucket(key):
    path, steps = f"bucket/{key}", 0
    while (parent := Names.split(path)[0]) != path:
        assert len(parent) <= len(path)
        path, steps = parent, steps + 1
        assert steps <= 2 * len(key) + 2
    assert path == "bucket/"


def test_joined_name_stays_below_its_base_and_absolute_names_are_refused():
    assert join_path("b/", "a", "", ".", "c//d", "e/") == "b/a/c//d/e/"
    assert join_path("s3://b/x/", "y") == "s3://b/x/y"
    for wrong in ("/a", "s3://b/c"):
        with pytest.raises(InvalidURL, match="the name is absolute"):
            join_path("b/", wrong)


def test_the_rest_of_a_parser():
    assert Names.splitdrive("s3://b/a/c") == ("b", "/a/c")
    assert Names.splitroot("b/a") == ("b", "/", "a")
    assert Names.splitext("a.tar.gz") == ("a.tar", ".gz")
    assert Names.splitext(".profile") == (".profile", "")
    assert (Names.join("s3://b/a", "c"), Names.normcase("Aa"), Names.isabs("x")) == ("b/a/c", "Aa", True)
    assert Names.strip_protocol("b/c://d") == "b/c://d"


KEYS = ("a", "a/b", "a/b/c", "d/", "d/e/", "d/e/f", "g//h", "data/")


@pytest.fixture
def source(request):
    source, _ = open_source(f"memory://{request.node.originalname.replace('_', '-')[:60]}/")
    for key in KEYS:
        source.put(key, b"full" if key == "data/" else b"" if key.endswith("/") else b"1")
    return source


def test_objects_and_directories_of_one_name(source):
    assert [path.file_at(source, key) is not None for key in ("a", "a/b", "d", "d/", "data/", "")] == [
        *(True, True, False, False, True, False),
    ]
    assert [path.directory(source, key) for key in ("a", "a/b", "a/b/c", "d", "d/e", "g", "g/", "")] == [
        *(True, True, False, True, True, True, True, True),
    ]
    assert path.stat_path(source, "a")["type"] == "file"
    assert path.stat_path(source, "d")["type"] == "directory"
    with pytest.raises(NotFound):
        path.stat_path(source, "no")


def test_children_come_once_and_in_order(source):
    assert [*path.children(source, "")] == ["a", "d", "data", "g"]
    assert [*path.children(source, "a")] == ["a/b"]
    assert [*path.children(source, "d")] == ["d/e"]
    assert [*path.children(source, "g")] == ["g//"]
    assert [*path.children(source, "g//")] == ["g//h"]
    with pytest.raises(NotADirectoryError):
        [*path.children(source, "a/b/c")]


def test_matches_are_files_and_directories(source):
    assert [*path.matches(source, "", "*")] == ["a", "d", "data", "g"]
    assert [*path.matches(source, "", "**")] == ["a", "a/b", "a/b/c", "d", "d/e", "d/e/f", "data", "g", "g//", "g//h"]
    assert [*path.matches(source, "", "**/")] == ["a", "a/b", "d", "d/e", "data", "g", "g//"]
    assert [*path.matches(source, "d", "*")] == ["d/e"]
    with pytest.raises(InvalidURL):
        [*path.matches(source, "d", "/")]


def test_nonempty_tree_is_removed_only_recursively(source):
    with pytest.raises(OSError, match="not empty") as caught:
        path.remove_tree(source, "d", recursive=False)
    assert caught.value.errno == errno.ENOTEMPTY
    path.remove_tree(source, "d", recursive=True)
    assert source.keys_below("d/") == []
    source.put("empty/", b"")
    path.remove_tree(source, "empty", recursive=False)
    for key, error in (("empty", NotFound), ("a/b/c", NotADirectoryError), ("", InvalidURL)):
        with pytest.raises(error):
            path.remove_tree(source, key, recursive=True)
