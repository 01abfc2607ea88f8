"""The command index: a catalog is written, and refreshed; code 1 where there is nothing."""

from __future__ import annotations

import json

import pytest

import penstock as ps
from tests.data.shards.archives import tar
from tests.data.tokens.lengths import write_numbered
from tests.data.video.files import kind


@pytest.fixture
def tree(tmp_path):
    for name in ("a/1.png", "a/2.txt", "b/1.png"):
        (tmp_path / "data" / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / "data" / name).write_bytes(b"12345")
    return tmp_path / "data"


def test_a_catalog_is_written_and_refreshed(penstock, tree, tmp_path):
    to = tmp_path / "a.catalog"
    done = penstock("index", f"{tree}/", str(to), "--include", "**/*.png", "--labels", "folder")
    assert (done.returncode, done.stdout) == (0, f"{to}: 2 objects, 10 bytes\n"), done.stderr
    assert ps.Catalog.open(to).classes == ("a", "b")
    (tree / "c.png").write_bytes(b"")
    for options in (("--refresh",), ("--restart",)):
        done = penstock("index", f"{tree}/", str(tmp_path / "b.catalog"), "--json")
        told = json.loads(done.stdout)
        done = penstock("index", f"{tree}/", str(tmp_path / "b.catalog"), "--json", *options)
        assert json.loads(done.stdout) == told
        assert (told["objects"], told["size"], len(told["digest"])) == (4, 15, 64)
    (tree / "d.png").write_bytes(b"")
    done = penstock("index", f"{tree}/", str(tmp_path / "b.catalog"), "--refresh")
    assert (done.returncode, done.stdout) == (0, f"{tmp_path}/b.catalog: 5 objects, 15 bytes\n"), done.stderr


def test_nothing_and_wrong_uses(penstock, tree, tmp_path):
    for words, code, said in (
        ((f"{tree}/none/", f"{tmp_path}/a"), 1, "no objects"),
        ((f"{tree}/", f"{tmp_path}/a", "--refresh"), 1, "a"),
        ((f"{tree}/", f"{tmp_path}/a", "--refresh", "--restart"), 2, "leave one out"),
        ((f"{tree}/", f"{tmp_path}/a/"), 2, "the URL of a file"),
        ((f"{tree}/", f"{tmp_path}/a", "--labels", "(("), 2, "(("),
    ):
        done = penstock("index", *words)
        assert (done.returncode, done.stdout) == (code, ""), done.stderr
        assert said in done.stderr


def test_a_refresh_of_another_prefix_leaves_the_catalog_as_it_was(penstock, tree, tmp_path):
    to = tmp_path / "a.catalog"
    assert penstock("index", f"{tree}/a/", str(to)).returncode == 0
    before = to.read_bytes()
    (tree / "b" / "2.png").write_bytes(b"")
    done = penstock("index", f"{tree}/b/", str(to), "--refresh")
    assert (done.returncode, done.stdout) == (2, ""), done.stderr
    assert "lists objects below" in done.stderr
    assert to.read_bytes() == before


def test_a_refresh_below_the_prefix_keeps_the_keys(penstock, tree, tmp_path):
    to = tmp_path / "a.catalog"
    assert penstock("index", f"{tree}/", str(to)).returncode == 0
    before = [*ps.Catalog.open(to)]
    (tree / "b" / "2.png").write_bytes(b"")
    assert penstock("index", f"{tree}/b/", str(to), "--refresh").returncode == 0
    after = [*ps.Catalog.open(to)]
    assert after[:-1] == before
    assert after[-1].key.endswith("data/b/2.png")


def test_samples_inside_shards_are_indexed_and_refreshed(penstock, tmp_path):
    (tmp_path / "data").mkdir()
    for number in range(3):
        members = [(f"{number}{at}.{end}", b"12345") for at in range(2) for end in ("png", "cls")]
        (tmp_path / "data" / f"{number}.tar").write_bytes(tar(members))
    to = tmp_path / "a.catalog"
    words = ("index", f"{tmp_path}/data/", str(to), "--format", "tar")
    done = penstock(*words, "--fields", "png, cls", "--missing", "drop")
    assert (done.returncode, done.stdout.split(",")[0]) == (0, f"{to}: 6 samples"), done.stderr
    catalog = ps.Catalog.open(to)
    assert (catalog.format.fields, catalog.format.missing) == (("png", "cls"), "drop")
    (tmp_path / "data" / "3.tar").write_bytes(tar([("3.png", b"1"), ("3.cls", b"1")]))
    done = penstock(*words, "--refresh", "--json")
    assert json.loads(done.stdout)["objects"] == 7, done.stderr
    for more, said in (
        (("--fields", "png", "--refresh"), "--fields"),
        (("--include", "*.tar"), "glob"),
        (("--format", "rar"), "format must be"),
        (("--index", "dali"), "index must be"),
        (("--format", "rar", "--refresh"), "not of rar shards"),
    ):
        done = penstock(*words, *more)
        assert done.returncode == 2, done.stderr
        assert said in done.stderr


def test_rows_of_packed_documents_are_planned(penstock, tmp_path):
    (tmp_path / "data").mkdir()
    write_numbered(tmp_path / "data", [[30, 34, 100, 64], [20, 44]])
    words = ("index", f"{tmp_path}/data/", f"{tmp_path}/64.plan", "--format", "packing")
    done = penstock(*words, "--length", "64", "--json")
    found = json.loads(done.stdout)
    assert (found["rows"], found["tokens"], found["cut"], found["left_out"]) == (5, 292, 1, 0), done.stderr
    done = penstock(*words, "--length", "64", "--pack", "best-fit", "--longer", "leave-out", "--dtype", "int32")
    assert done.stdout.startswith(f"{tmp_path}/64.plan: <TokenDataset of 3 packed rows of 64 tokens"), done.stderr
    opened = ps.TokenDataset.from_shards(
        f"{tmp_path}/data/", length=64, pack="best-fit", longer="leave-out", plan=tmp_path / "64.plan"
    )
    assert (len(opened), opened.left_out) == (3, 100)
    for more, said in (
        ((), "pack= needs length="),
        (("--length", "64", "--longer", "refuse"), "longer='refuse'"),
        (("--length", "64", "--pack", "tight"), "pack must be"),
        (("--length", "64", "--fields", "png"), "fields= cannot be combined"),
        (("--length", "64", "--job", f"{tmp_path}/job"), "job= cannot be combined"),
        (("--length", "64", "--refresh"), "--refresh is for catalogs"),
    ):
        done = penstock(*words, *more)
        assert done.returncode != 0, more
        assert said in done.stderr, done.stderr


def test_versions_are_recorded_shown_and_refused_where_there_are_none(penstock, tree, bucket, tmp_path):
    to = str(tmp_path / "a.catalog")
    bucket.client.put_object(Bucket=bucket.name, Key="d/a", Body=b"first")
    done = penstock("index", f"{bucket.url}d/", to, "--versions", bucket=bucket)
    assert (done.returncode, "versioning of the bucket is not enabled" in done.stderr) == (2, True), done.stderr
    bucket.client.put_bucket_versioning(Bucket=bucket.name, VersioningConfiguration={"Status": "Enabled"})
    done = penstock("index", f"{bucket.url}d/", to, "--versions", bucket=bucket)
    assert done.returncode == 0, done.stderr
    assert "version ids are recorded" in penstock("catalog", "show", to).stdout
    assert json.loads(penstock("catalog", "show", to, "--json").stdout)["versions"] is True
    done = penstock("index", f"{tree}/", to, "--versions")
    assert (done.returncode, "cannot read versions by id" in done.stderr) == (2, True), done.stderr
    done = penstock("index", f"{tree}/", to, "--refresh", "--versions")
    assert (done.returncode, "--versions cannot be changed by --refresh" in done.stderr) == (2, True), done.stderr


def test_index_of_videos_is_written_and_brought_up_to_date(penstock, tmp_path):
    (tmp_path / "videos").mkdir()
    words = ("index", f"{tmp_path}/videos/", f"{tmp_path}/videos.index", "--format", "mp4")
    for number in (1, 2):
        (tmp_path / "videos" / f"{number}.mp4").write_bytes(kind("two video tracks"))
        done = penstock(*words, "--track", "2")
        text = f"{number} file{'s' if number > 1 else ''}, {60 * number} frames"
        assert done.stdout == f"{tmp_path}/videos.index: {text}\n", done.stderr
    found = json.loads(penstock(*words, "--json").stdout)
    assert (found["files"], found["frames"], found["index"]) == (2, 120, f"{tmp_path}/videos.index")
    dataset = ps.VideoDataset.from_shards(f"{tmp_path}/videos/", frames=4, index=tmp_path / "videos.index")
    assert len(dataset) == 30
    for more, message in (
        (("--refresh",), "--refresh is for catalogs: repeat the command without it for --format mp4"),
        (("--labels", "folder"), "labels= cannot be combined with format='mp4'"),
        (("--job", "records/"), "job= cannot be combined with format='mp4'"),
    ):
        done = penstock(*words, *more)
        assert done.returncode == 2
        assert message in done.stderr
