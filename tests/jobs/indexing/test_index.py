"""The catalog of a prefix is written whole, and a listing that was killed goes on where it was."""

import pwd
import signal
import subprocess
import sys
import uuid

import pytest

import penstock as ps
from penstock.data.catalog.discovery import scan
from penstock.errors import AlreadyExists, ConfigError, NotFound, Unusable
from penstock.jobs.indexing.index import index_here as index
from penstock.testing.faults import FaultServer, Settings

_CODE = """
import os, signal, sys
import penstock as ps
from penstock.data.catalog.discovery import scan

take, pages = scan._Scan._take, 0
def killed(*given):
    global pages
    take(*given)
    pages += 1
    if pages == int(sys.argv[3]):
        os.kill(os.getpid(), signal.SIGKILL)
scan._Scan._take = killed
ps.index(sys.argv[1], sys.argv[2])
"""


def _names(folder):
    return [each.name for each in folder.iterdir()]


def test_index_writes_the_same_entries_that_a_scan_finds(tree, tmp_path):
    to = tmp_path / "a.catalog"
    made = index(f"{tree}/", to, include="**/*.jpg", exclude=["2/*"], labels="folder")
    opened = ps.Catalog.open(to)
    scanned = ps.Catalog.scan(f"{tree}/", exclude="2/*", labels="folder")
    assert list(made) == list(opened) == list(scanned)
    assert opened.classes == ("0", "1")
    assert [each.name for each in tmp_path.iterdir() if each != tree] == ["a.catalog"]


def test_killed_index_resumes_and_lists_only_the_remaining_keys(tmp_path, monkeypatch, fault_servers):
    server, name = fault_servers(Settings()), f"killed-{uuid.uuid4().hex}"
    for variable, value in server.environment.items():
        monkeypatch.setenv(variable, value)
    server.make(name)
    keys = [f"run/{at:05}" for at in range(5_500)]
    for key in keys:
        server.put(name, key, b"")
    to = tmp_path / "a.catalog"
    done = subprocess.run(
        [sys.executable, "-c", _CODE, f"s3://{name}/run/", str(to), "3"], check=False, capture_output=True
    )
    assert done.returncode == -signal.SIGKILL, done.stderr
    assert _names(tmp_path) == ["a.catalog.partial"]
    sent, rows = [], scan._Scan.rows  # the server may take up only now what the dead process has sent, and count it
    monkeypatch.setattr(scan._Scan, "rows", lambda self: (sent.append(self._sent), rows(self))[1])
    made = index(f"s3://{name}/run/", to)
    assert [entry.key for entry in made] == keys
    assert [3 <= count <= 4 for count in sent] == [True], "three pages, and where to divide them"
    assert list(ps.Catalog.open(to, root=f"s3://{name}/run/")) == list(made)
    assert _names(tmp_path) == ["a.catalog"]


def test_a_listing_of_another_store_is_not_continued(tmp_path, monkeypatch):
    """The same URL at another endpoint is another bucket."""
    monkeypatch.setattr(ps.Catalog, "save", lambda *_, **__: (_ for _ in ()).throw(KeyboardInterrupt))
    with FaultServer.within() as one, FaultServer.within() as other:
        one.put("bucket", "a", b"1")
        other.put("bucket", "b", b"22")
        with pytest.raises(KeyboardInterrupt):
            index("s3://bucket/", tmp_path / "a.catalog", store=one.store)
        monkeypatch.undo()
        assert _names(tmp_path) == ["a.catalog.partial"]
        assert [entry.key for entry in index("s3://bucket/", tmp_path / "a.catalog", store=other.store)] == ["b"]


def test_an_argument_that_there_is_not_is_refused(tree, tmp_path):
    with pytest.raises(TypeError, match="lables"):
        ps.index(f"{tree}/", tmp_path / "a.catalog", lables="folder")
    assert _names(tmp_path) == ["data"]


def test_nothing_there_writes_nothing(tree, tmp_path):
    with pytest.raises(NotFound, match=r"the nearest that exist are|holds") as caught:
        index(f"{tree}/none/", tmp_path / "a.catalog")
    assert "allow_empty" not in str(caught.value), "it has no such argument"
    assert _names(tmp_path) == ["data"]


@pytest.mark.parametrize("to", ["s3://bucket/", "s3://bucket/catalogs/"])
def test_a_catalog_is_one_file(tree, to):
    with pytest.raises(Unusable, match="name it"):
        index(f"{tree}/", to)


def test_file_of_another_kind_is_not_replaced(tree, tmp_path):
    for to in (str(tmp_path / "x.tar"), f"memory://index/{uuid.uuid4().hex}.tar"):
        with ps.open(to, "wb") as file:
            file.write(b"a shard")
        with pytest.raises(AlreadyExists, match=r"no catalog; name another.*\.tar"):
            index(tree, to)
        assert ps.open(to).read() == b"a shard"
        # Nothing is lost, as with a temporary file that was made before.
        with ps.open(to, "wb") as file:
            file.write(b"")
        index(tree, to)
        index(tree, to)
        assert len(ps.Catalog.open(to, root=tree)) > 0


def test_the_state_of_one_that_goes_to_a_store_lies_in_the_cache(tree, tmp_path, monkeypatch):
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    left = []

    def look(*_, **__):
        left.extend(_names(tmp_path / "cache" / "penstock"))
        raise KeyboardInterrupt

    monkeypatch.setattr(ps.Catalog, "save", look)
    with pytest.raises(KeyboardInterrupt):
        index(f"{tree}/", "memory://index/a.catalog")
    monkeypatch.undo()
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    assert len(left) == 1
    index(f"{tree}/", "memory://index/a.catalog")
    assert _names(tmp_path / "cache" / "penstock") == []


def test_missing_home_directory_raises_and_names_xdg_cache_home(tree, monkeypatch):
    monkeypatch.delenv("HOME", raising=False)
    monkeypatch.delenv("XDG_CACHE_HOME", raising=False)

    def unknown(number):
        raise KeyError(number)

    monkeypatch.setattr(pwd, "getpwuid", unknown)
    with pytest.raises(ConfigError, match="XDG_CACHE_HOME"):
        index(f"{tree}/", "memory://index-homeless/a.catalog")


@pytest.mark.parametrize("restart", ["no", 2, None])
def test_a_restart_that_is_neither_true_nor_false_is_refused(restart, tmp_path):
    with pytest.raises(Unusable, match="restart must be True or False"):
        index("memory://index-restart/", tmp_path / "catalog", restart=restart)
