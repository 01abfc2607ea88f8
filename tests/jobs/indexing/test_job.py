"""An index of shards in parts has the bytes of one that a single process makes, after any stop."""

import json
import os
import random
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

import penstock as ps
from penstock.data.catalog.discovery import shards as module
from penstock.errors import AlreadyExists, Damaged, Unusable
from penstock.testing.faults import FAULTS, FaultServer, Match, Settings
from tests.data.shards.archives import tar
from tests.jobs.packed import fill

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
from penstock.jobs.indexing import job as index
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
            ({"job": job, "format": "tar", "restart": True}, "restart= is for"),
            ({"job": job, "format": "tar", "labels": len}, "texts and lists"),
            ({"part": "1/2", "format": "tar"}, "pass job="),
            ({"on": ps.Ray(), "format": "tar"}, "pass job="),
        ):
            with pytest.raises(Unusable, match=told):
                ps.index(f"{folder}/", to, **options)
        to.write_bytes(b"a shard")
        with pytest.raises(AlreadyExists, match="no catalog"):
            ps.index(f"{folder}/", to, job=job, format="tar")
        assert not job.exists()
