"""Shards are indexed into a file; an index that was killed walks only what is left, and a refresh only what is new."""

import signal
import subprocess
import sys
import uuid

import pytest

import penstock as ps
from penstock.data.catalog.discovery import shards as module
from penstock.errors import Damaged, NotFound, Unusable
from penstock.testing.faults import FaultServer
from tests.data.shards.archives import tar
from tests.refusals import refused

_CODE = """
import os, signal, sys
import penstock as ps
from penstock.data.catalog.discovery.shards import KeptWalks

add, walks = KeptWalks.add, 0
def killed(*given):
    global walks
    add(*given)
    walks += 1
    if walks == int(sys.argv[3]):
        os.kill(os.getpid(), signal.SIGKILL)
KeptWalks.add = killed
ps.index(sys.argv[1], sys.argv[2], format="tar", labels="folder")
"""


def shard(number, count=3):
    return tar((f"c{at % 2}/{number:03}{at}.{end}", b"x" * at) for at in range(count) for end in ("jpg", "cls"))


@pytest.fixture
def folder(tmp_path):
    (tmp_path / "data").mkdir()
    for number in range(20):
        (tmp_path / "data" / f"train-{number:03}.tar").write_bytes(shard(number))
    return tmp_path / "data"


@pytest.fixture
def walked(monkeypatch):
    """Return the numbers of the shards that were walked since."""
    numbers, walks = [], module.walked

    def counted(shards, coming):
        coming = [*coming]
        numbers.extend(coming)
        return walks(shards, coming)

    monkeypatch.setattr(module, "walked", counted)
    return numbers


def index(folder, **how):
    return ps.index(f"{folder}/", folder.parent / "a.catalog", **{"format": "tar"} | how)


def test_index_is_what_from_shards_finds(folder):
    made = index(folder, fields=("jpg",), labels="folder")
    wanted = ps.Catalog.from_shards(f"{folder}/", fields=("jpg",), labels="folder")
    for each in (made, ps.Catalog.open(folder.parent / "a.catalog")):
        assert ([*each], each.classes, each.format, each.digest) == (
            [*wanted],
            wanted.classes,
            wanted.format,
            wanted.digest,
        )
    assert sorted(each.name for each in folder.parent.iterdir()) == ["a.catalog", "data"]


def test_killed_index_goes_on_after_the_shards_it_has_walked(folder, walked):
    to = folder.parent / "a.catalog"
    done = subprocess.run([sys.executable, "-c", _CODE, f"{folder}/", to, "7"], check=False, capture_output=True)
    assert done.returncode == -signal.SIGKILL, done.stderr
    assert (folder.parent / "a.catalog.partial").exists()
    assert not to.exists()
    made = index(folder, labels="folder")
    assert len(walked) == 13
    assert [*made] == [*ps.Catalog.from_shards(f"{folder}/", labels="folder")]
    assert not (folder.parent / "a.catalog.partial").exists()


def test_shards_that_changed_or_came_since_are_walked_again(folder, walked):
    to = folder.parent / "a.catalog"
    (folder / "train-019.tar").write_bytes(b"x" * 4096)
    refused(Damaged, r"train-019\.tar", index, folder)
    first = set(walked)
    walked.clear()
    (folder / "train-003.tar").write_bytes(shard(3, count=5))
    (folder / "train-019.tar").write_bytes(shard(19))
    (folder / "train-000a.tar").write_bytes(shard(100))
    made = index(folder)
    assert first == {*range(20)}
    # train-000a lies behind train-000.
    assert {1, 4, 20} <= {*walked}
    assert [*made] == [*ps.Catalog.from_shards(f"{folder}/")] == [*ps.Catalog.open(to)]


@pytest.mark.parametrize("how", [{"fields": "jpg"}, {"labels": "folder"}, {"restart": True}])
def test_walks_of_another_index_are_not_taken(folder, walked, how):
    (folder / "train-019.tar").write_bytes(b"x" * 4096)
    with pytest.raises(Damaged):
        index(folder)
    walked.clear()
    (folder / "train-019.tar").write_bytes(shard(19))
    assert len(index(folder, **how)) == 60
    assert len(walked) == 20


def test_torn_line_of_the_journal_is_walked_again(folder, walked):
    (folder / "train-019.tar").write_bytes(b"x" * 4096)
    with pytest.raises(Damaged):
        index(folder)
    partial = folder.parent / "a.catalog.partial"
    kept = len(partial.read_bytes().splitlines()) - 1
    partial.write_bytes(partial.read_bytes()[:-5])
    walked.clear()
    (folder / "train-019.tar").write_bytes(shard(19))
    index(folder)
    assert len(walked) == 20 - (kept - 1)


def test_arguments_that_belong_to_the_other_kind_are_refused(folder):
    refused(Unusable, "pass format=", index, folder, format=None, fields="jpg")
    refused(Unusable, "pass a glob", index, folder, include="*.tar")
    with pytest.raises(NotFound):
        index(folder.parent / "none")
    refused(Unusable, "format must be", index, folder, format="rar")
    refused(Unusable, "function", index, folder, key=lambda name: (name, "x"))


def test_glob_and_braces_name_shards(folder):
    assert len(ps.index(f"{folder}/train-00*.tar", folder.parent / "a.catalog", format="tar")) == 30
    assert len(ps.index(f"{folder}/train-{{000..004}}.tar", folder.parent / "a.catalog", format="tar")) == 15


def test_index_of_a_store_keeps_its_journal_on_this_machine(tmp_path, monkeypatch):
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    with FaultServer.within() as server:
        bucket = f"index-{uuid.uuid4().hex}"
        for number in range(3):
            server.put(bucket, f"s/{number}.tar", shard(number) if number < 2 else b"x" * 512)
        url = f"s3://{bucket}/"
        with pytest.raises(Damaged):
            ps.index(f"{url}s/", f"{url}s.catalog", format="tar", store=server.store)
        assert [each.suffix for each in (tmp_path / "cache" / "penstock").iterdir()] == [".partial"]
        server.put(bucket, "s/2.tar", shard(2))
        before = len(server.seen("get", bucket))
        made = ps.index(f"{url}s/", f"{url}s.catalog", format="tar", store=server.store)
        assert {each.key for each in server.seen("get", bucket)[before:]} <= {"s/2.tar", "s/1.tar"}
        assert ps.Catalog.open(f"{url}s.catalog", store=server.store).digest == made.digest
        assert not [*(tmp_path / "cache" / "penstock").iterdir()]


# -- refresh


def test_refresh_walks_only_shards_that_were_added(folder, walked):
    known = ps.Catalog.from_shards(f"{folder}/", fields=("jpg",))
    assert known.refresh() is known
    walked.clear()
    for number in (20, 21):
        (folder / f"train-{number:03}.tar").write_bytes(shard(number))
    (folder / "zzz.txt").write_text("no shard")
    grown = known.refresh()
    assert walked == [0, 1]
    assert [*grown] == [*ps.Catalog.from_shards(f"{folder}/", fields=("jpg",))]
    assert grown.format == known.format
    assert len(known.refresh(f"{folder}/train-020*.tar")) == 63
    assert len(ps.Catalog.from_shards(f"{folder}/train-00*.tar").refresh()) == 66


def test_refresh_of_classes_needs_their_rule(folder):
    known = ps.Catalog.from_shards(f"{folder}/", labels="folder")
    (folder / "train-020.tar").write_bytes(shard(20))
    refused(Unusable, "labels= is needed exactly if", known.refresh)
    grown = known.refresh(labels="folder")
    assert grown.labels.tolist() == ps.Catalog.from_shards(f"{folder}/", labels="folder").labels.tolist()
    refused(Unusable, "labels= is needed exactly if", ps.Catalog.from_shards(f"{folder}/").refresh, labels="folder")


def test_refresh_that_cannot_tell_new_shards_is_refused(folder):
    known = ps.Catalog.from_shards(f"{folder}/")
    refused(Unusable, "not sorted", known[::-1].refresh)
    refused(Unusable, "pass a glob", known.refresh, include="*.tar")
    refused(Unusable, "braces", known.refresh, f"{folder}/train-{{000..030}}.tar")
    refused(Unusable, "columns", known.with_columns(n=range(60)).refresh)
