"""Files of this machine to objects and back."""

from __future__ import annotations

import io
import json
import os
from pathlib import Path
from uuid import uuid4

import pytest

from penstock.compat import multistorageclient as msc
from penstock.compat.multistorageclient.transfer import chosen_by
from penstock.compat.multistorageclient.types import ExecutionMode, PatternType
from penstock.errors import NotFound, Unsupported, Unusable

INCLUDE, EXCLUDE = PatternType.INCLUDE, PatternType.EXCLUDE


def test_a_file_is_uploaded_and_downloaded(base, tmp_path):
    (tmp_path / "up").write_bytes(b"upload")
    msc.upload_file(f"{base}/1", tmp_path / "up")
    msc.upload_file(f"{base}/2", io.BytesIO(b"binary"))
    msc.upload_file(f"{base}/3", io.StringIO("text ü"))
    msc.download_file(f"{base}/1", str(tmp_path / "new" / "down"))
    assert (tmp_path / "new" / "down").read_bytes() == b"upload"
    for name, data in (("2", b"binary"), ("3", "text ü".encode())):
        file = io.BytesIO()
        msc.download_file(f"{base}/{name}", file)
        assert file.getvalue() == data


def test_transfer_of_a_missing_source_leaves_no_destination(base, tmp_path):
    with pytest.raises(FileNotFoundError):
        msc.upload_file(f"{base}/1", tmp_path / "none")
    assert msc.is_empty(base)
    with pytest.raises(NotFound):
        msc.download_file(f"{base}/none", tmp_path / "down")
    assert not (tmp_path / "down").exists()


def test_many_are_transferred_and_the_first_failure_is_raised(base, tmp_path):
    client, path = msc.resolve_storage_client(base)
    names = [f"{path}/{number}" for number in range(5)]
    files = [str(tmp_path / str(number)) for number in range(5)]
    for number in range(5):
        (tmp_path / str(number)).write_text(str(number))
    client.upload_files(names, files, max_workers=2)
    down = [f"{file}-down" for file in files]
    client.download_files(names, down)
    assert [Path(file).read_text() for file in down] == ["0", "1", "2", "3", "4"]
    with pytest.raises(NotFound, match="none"):
        client.download_files([f"{path}/none", names[0]], down[:2])
    with pytest.raises(Unusable, match="numbers of paths must be equal"):
        client.download_files(names, down[:2])


@pytest.fixture
def folder(tmp_path):
    """Return a folder with two files, and a hidden one. The counts are those of Multi-Storage Client 1.3.1."""
    (tmp_path / "from" / "sub").mkdir(parents=True)
    (tmp_path / "from" / "f.txt").write_text("local")
    (tmp_path / "from" / "sub" / "g.txt").write_text("g")
    (tmp_path / "from" / ".hidden").write_text("h")
    for each in (tmp_path / "from").rglob("*.*"):
        os.utime(each, (1e9, 1e9))  # long before it is copied
    return tmp_path / "from"


def names(url):
    return [each.key.removeprefix(f"{url}/") for each in msc.list(url)]


def test_second_folder_sync_adds_no_files_and_can_delete_unmatched_ones(base, folder):
    found = msc.sync(str(folder), base)
    assert (found.total_files_added, found.total_bytes_added, found.total_files_deleted) == (2, 6, 0)
    assert (names(base), found.dryrun) == (["f.txt", "sub/g.txt"], None)
    assert msc.sync(str(folder), base).total_files_added == 0
    (folder / "f.txt").unlink()
    found = msc.sync(str(folder), base, delete_unmatched_files=True)
    assert (found.total_files_added, found.total_files_deleted, found.total_bytes_deleted) == (0, 1, 5)
    assert names(base) == ["sub/g.txt"]


@pytest.mark.parametrize("kind", ["s3", "file"])
def test_sync_to_a_profile_root_deletes_unmatched_files(kind, server, folder, tmp_path, monkeypatch):
    (tmp_path / "home").mkdir()
    monkeypatch.setenv("HOME", str(tmp_path / "home"))
    base = f"whole/{uuid4().hex}" if kind == "s3" else str(tmp_path / "to")
    options = {"base_path": base, **({"endpoint_url": server.endpoint} if kind == "s3" else {})}
    profiles = {"place": {"storage_provider": {"type": kind, "options": options}}}
    profiles["bucket"] = {"storage_provider": {"type": kind, "options": options | {"base_path": "whole"}}}
    (tmp_path / "msc.json").write_text(json.dumps({"profiles": profiles}))
    monkeypatch.setenv("MSC_CONFIG", str(tmp_path / "msc.json"))
    for name, value in server.environment.items():
        monkeypatch.setenv(name, value)
    if kind == "s3":
        server.client().create_bucket(Bucket="whole")
        server.client().put_object(Bucket="whole", Key="beside", Body=b"1")
    msc.write("msc://place/old", b"old")
    found = msc.sync(str(folder), "msc://place/", delete_unmatched_files=True, dryrun=True)
    assert (found.total_files_added, found.total_files_deleted) == (2, 1)
    assert names("msc://place") == ["old"]
    found = msc.sync(str(folder), "msc://place", delete_unmatched_files=True)
    assert (found.total_files_added, found.total_files_deleted) == (2, 1)
    assert names("msc://place") == ["f.txt", "sub/g.txt"]
    if kind == "s3":
        assert msc.sync(str(folder), "msc://bucket", delete_unmatched_files=True, dryrun=True).total_files_deleted == 3
        with pytest.raises(Unusable, match="whole bucket"):
            msc.sync(str(folder), "msc://bucket", delete_unmatched_files=True)
        assert msc.is_file("msc://bucket/beside")


def test_a_tree_is_synced_to_a_folder_by_patterns(tree, tmp_path):
    msc.sync(tree, str(tmp_path / "to"), patterns=[(INCLUDE, "*.txt")])
    assert sorted(str(each.relative_to(tmp_path)) for each in tmp_path.rglob("*.*")) == [
        "to/a.txt",
        "to/d/b.txt",
        "to/d/e/c.txt",
    ]
    with pytest.raises(Unsupported, match="pass source_files to sync_from"):
        msc.sync(tree, str(tmp_path / "to"), patterns=[(EXCLUDE, "*"), (INCLUDE, "*.txt")])


def test_sync_dry_run_changes_no_files_and_lists_the_planned_ones(base, folder, tmp_path):
    found = msc.sync(str(folder), base, ignore_hidden=False, dryrun=True, dryrun_output_path=str(tmp_path / "out"))
    assert (found.total_files_added, msc.is_empty(base)) == (3, True)
    lines = Path(found.dryrun.files_to_add).read_text().splitlines()
    assert [json.loads(line)["key"] for line in lines] == [".hidden", "f.txt", "sub/g.txt"]
    assert Path(found.dryrun.files_to_delete).read_text() == ""


def test_named_files_are_copied(tree):
    source, path = msc.resolve_storage_client(tree)
    found = source.sync_from(source, path, f"{path}/copy", source_files=["a.txt", "d/b.txt"])
    assert (found.total_files_added, names(f"{tree}/copy")) == (2, ["a.txt", "d/b.txt"])
    with pytest.raises(Unusable, match="not both"):
        source.sync_from(source, path, "x", source_files=[], patterns=[])
    for asked in ("dryrun", "delete_unmatched_files"):
        with pytest.raises(Unsupported, match=f"{asked}=True with source_files"):
            source.sync_from(source, path, f"{path}/dry", source_files=["a.txt"], **{asked: True})
    assert source.is_empty(f"{path}/dry")


def test_a_sync_of_nothing_or_in_another_mode_is_refused(base, folder):
    with pytest.raises(NotFound):
        msc.sync(f"{base}-none", base, delete_unmatched_files=True)
    with pytest.raises(Unsupported, match="threads of this process copy"):
        msc.sync(str(folder), base, execution_mode=ExecutionMode.RAY)
    config = {"profiles": {"x": {"storage_provider": {"type": "file", "options": {"base_path": str(folder)}}}}}
    client = msc.StorageClient(msc.StorageClientConfig.from_dict(config, "x"))
    with pytest.raises(Unsupported, match="from a dictionary"):
        msc.resolve_storage_client(base)[0].sync_from(client, "", "x")


@pytest.mark.parametrize(
    ("patterns", "include", "exclude"),
    [
        (None, [], []),
        ([(INCLUDE, "a*")], ["a***"], []),
        ([(EXCLUDE, "*/a")], [], ["***/a"]),
        ([(INCLUDE, "a"), (EXCLUDE, "b")], [], ["b"]),
    ],
)
def test_ordered_patterns_become_those_of_sync(patterns, include, exclude):
    assert chosen_by(patterns, ignore_hidden=False) == {"include": include, "exclude": exclude}
