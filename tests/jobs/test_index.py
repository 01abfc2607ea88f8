"""The catalog of a prefix is written whole, and a listing that was killed goes on where it was."""

import json
import os
import pwd
import random
import signal
import subprocess
import sys
import time
import uuid
from pathlib import Path

import pytest

import penstock as ps
from penstock.data.catalog.discovery import scan
from penstock.data.catalog.discovery import shards as module
from penstock.errors import AlreadyExists, ConfigError, Damaged, NotFound, Unusable
from penstock.jobs.index import index
from penstock.testing.faults import FAULTS, FaultServer, Match, Settings
from tests.data.shards.archives import tar
from tests.jobs.packed import fill

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
    with pytest.raises(Unusable, match="the URL of a file"):
        index(f"{tree}/", to)


def test_file_of_another_kind_is_not_replaced(tree, tmp_path):
    for to in (str(tmp_path / "x.tar"), f"memory://index/{uuid.uuid4().hex}.tar"):
        with ps.open(to, "wb") as file:
            file.write(b"a shard")
        with pytest.raises(AlreadyExists, match=r"not a catalog; choose another.*\.tar"):
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


# An index of shards in parts has the bytes of one that a single process makes, after any stop.


COUNT = 100


def shard(number, count=3):
    return tar((f"c{at % 2}/{number:03}{at}.{end}", b"x" * at) for at in range(count) for end in ("jpg", "cls"))


@pytest.fixture
def folder(tmp_path):
    (tmp_path / "data").mkdir()
    for number in range(COUNT):
        (tmp_path / "data" / f"train-{number:03}.tar").write_bytes(shard(number))
    return tmp_path / "data"


def indexed(folder, **options):
    to = folder.parent / "parts.catalog"
    return ps.index(f"{folder}/", to, format="tar", job=folder.parent / "job", **options)


def alone(folder, **how):
    ps.index(f"{folder}/", folder.parent / "alone.catalog", format="tar", **how)
    return (folder.parent / "alone.catalog").read_bytes()


@pytest.mark.parametrize(
    "how",
    [{}, {"fields": ("jpg",), "labels": "folder"}, {"fields": ("jpg", "cls"), "skip": "*1.cls", "missing": "none"}],
)
def test_the_catalog_has_the_bytes_of_a_single_process(folder, how):
    catalog = indexed(folder, **how)
    assert (folder.parent / "parts.catalog").read_bytes() == alone(folder, **how)
    assert len(catalog) == 3 * COUNT
    assert catalog[0].key == ps.Catalog.open(folder.parent / "alone.catalog", root=f"{folder}/")[0].key


@pytest.mark.parametrize("form", ["parquet", "mds"])
def test_catalogs_of_rows_have_the_bytes_of_a_single_process(tmp_path, form):
    ps.pack(fill(tmp_path / "data"), tmp_path / "data-packed", format=form, samples=4)
    for name in ("job", None):
        to = tmp_path / f"{name}.catalog"
        ps.index(f"{tmp_path}/data-packed/", to, format=form, job=name and tmp_path / name)
    assert (tmp_path / "job.catalog").read_bytes() == (tmp_path / "None.catalog").read_bytes()
    if form == "mds":
        stated = tmp_path / "data-packed" / "index.json"
        stated.write_text(stated.read_text().replace('"samples": 4', '"samples": 5', 1))
        with pytest.raises(Damaged, match="states 5 samples"):
            ps.index(f"{tmp_path}/data-packed/", tmp_path / "x.catalog", format=form, job=tmp_path / "again")


def test_counts_of_wids_are_compared_in_parts(folder):
    listed = [{"url": f"train-{number:03}.tar", "nsamples": 3} for number in range(COUNT)]
    wids = folder.parent / "wids.json"
    wids.write_text(json.dumps({"wids_version": 1, "shardlist": listed}))
    assert len(indexed(folder, index=f"{wids}")) == 3 * COUNT
    assert (folder.parent / "parts.catalog").read_bytes() == alone(folder)
    listed[70]["nsamples"] = 4
    wids.write_text(json.dumps({"wids_version": 1, "shardlist": listed}))
    with pytest.raises(Damaged, match=r"says 4 samples.*train-070\.tar"):
        ps.index(f"{folder}/", folder.parent / "x", format="tar", index=f"{wids}", job=folder.parent / "again")


def test_shares_make_the_catalog_together(folder):
    assert indexed(folder, part="2/3") is None
    assert indexed(folder, part="1/3") is None
    assert not (folder.parent / "parts.catalog").exists()
    assert len(indexed(folder, part="3/3")) == 3 * COUNT
    assert (folder.parent / "parts.catalog").read_bytes() == alone(folder)


def test_a_damaged_shard_is_named_and_the_other_parts_are_kept(folder):
    path = folder / "train-040.tar"
    data = path.read_bytes()
    path.write_bytes(b"x" * len(data))
    with pytest.raises(Damaged, match=r"train-040\.tar"):
        indexed(folder)
    assert len([*(folder.parent / "job" / "done").rglob("*.json")]) == 3
    listed = path.stat()
    path.write_bytes(data)
    # The plan has the version that was listed.
    os.utime(path, ns=(listed.st_atime_ns, listed.st_mtime_ns))
    assert len(indexed(folder)) == 3 * COUNT


PROGRAM = """
import sys
import penstock as ps
from penstock.jobs import index
index._SHARDS = 10
folder, to, job = sys.argv[1:]
print(len(ps.index(folder + "/", to, format="tar", labels="folder", job=job)))
"""


def test_an_index_that_is_killed_again_and_again_walks_no_part_twice(folder, seed):
    draw, done = random.Random(seed), folder.parent / "job" / "done"
    words = [sys.executable, "-c", PROGRAM, f"{folder}", f"{folder.parent}/parts.catalog", f"{folder.parent}/job"]
    seen = {}
    for _ in range(3):
        process = subprocess.Popen(words, stdout=subprocess.PIPE)
        wanted = len(seen) + draw.randrange(1, 4)
        while process.poll() is None and (not done.exists() or len([*done.rglob("*.json")]) < wanted):
            time.sleep(0.001)
        process.send_signal(signal.SIGKILL)
        process.communicate()
        assert seen.items() <= {path: path.read_bytes() for path in done.rglob("*.json")}.items()
        seen = {path: path.read_bytes() for path in done.rglob("*.json")}
    assert subprocess.run(words, check=True, capture_output=True).stdout.split() == [b"300"]
    assert seen.items() <= {path: path.read_bytes() for path in done.rglob("*.json")}.items()
    assert (folder.parent / "parts.catalog").read_bytes() == alone(folder, labels="folder")


def test_a_bucket_that_fails(tmp_path, monkeypatch):
    with FaultServer.start(Settings()) as server:
        server.make("bucket")
        for number in range(COUNT):
            server.put("bucket", f"data/train-{number:03}.tar", shard(number))
        server.fail(FAULTS["503"], when=Match(times=None, rate=0.05))
        url, store = "s3://bucket/data/", server.store
        ps.index(url, f"{tmp_path}/alone.catalog", format="tar", store=store)
        made = ps.index(url, "s3://bucket/x.catalog", format="tar", job="s3://bucket/job/", store=store)
        assert server.objects("bucket")["x.catalog"] == Path(f"{tmp_path}/alone.catalog").read_bytes()
        # The last step knows all shards.
        monkeypatch.setattr(module, "walked", lambda _shards, coming: iter([*coming]))
        assert len(made) == 3 * COUNT


class TestRefusals:
    def test_arguments_that_do_not_fit(self, folder):
        to, job = folder.parent / "x", folder.parent / "job"
        for options, told in (
            ({"job": job}, "pass format="),
            ({"job": job, "format": "tar", "include": "*"}, "pass a glob"),
            ({"job": job, "format": "tar", "restart": True}, "restart= cannot be combined"),
            ({"job": job, "format": "tar", "labels": len}, "texts and lists"),
            ({"part": "1/2", "format": "tar"}, "pass job="),
            ({"on": ps.Ray(), "format": "tar"}, "pass job="),
        ):
            with pytest.raises(Unusable, match=told):
                ps.index(f"{folder}/", to, **options)
        to.write_bytes(b"a shard")
        with pytest.raises(AlreadyExists, match="not a catalog"):
            ps.index(f"{folder}/", to, job=job, format="tar")
        assert not job.exists()
