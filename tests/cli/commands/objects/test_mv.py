"""``penstock mv``: nothing is deleted that was not seen whole at its new place."""

from __future__ import annotations

import os

import pytest

import penstock as ps
from penstock.testing.faults import FAULTS, FaultServer, Match


def test_a_tree_moves(penstock, bucket, tmp_path):
    for name in ["a", "b c/ü", "zero"]:
        path = tmp_path / "t" / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(name if name != "zero" else "")
    done = penstock("mv", "-r", f"{tmp_path}/t/", f"{bucket.url}1/", bucket=bucket)
    assert (done.returncode, done.stdout) == (0, ""), done.stderr
    assert [path for path in (tmp_path / "t").rglob("*") if path.is_file()] == []
    assert penstock("mv", "-r", f"{bucket.url}1/", f"{bucket.url}2/", bucket=bucket).returncode == 0
    assert penstock("mv", f"{bucket.url}2/b c/ü", f"{bucket.url}3", bucket=bucket).returncode == 0
    sizes = {each["Key"]: each["Size"] for each in bucket.client.list_objects_v2(Bucket=bucket.name)["Contents"]}
    assert sizes == {"2/a": 1, "2/zero": 0, "3": 6}


def test_moving_to_itself_is_refused_and_harms_nothing(penstock, tmp_path):
    (tmp_path / "a").write_text("x")
    done = penstock("mv", f"{tmp_path}/a", f"{tmp_path}/../{tmp_path.name}/a")
    assert done.returncode == 2
    assert "would overwrite one of the sources" in done.stderr
    assert (tmp_path / "a").read_text() == "x"


def test_a_dry_run_moves_nothing(penstock, tmp_path):
    (tmp_path / "a").write_text("x")
    done = penstock("mv", "--dry-run", f"{tmp_path}/a", f"{tmp_path}/b")
    assert done.stdout == f"file://{tmp_path}/a -> file://{tmp_path}/b\n"
    assert [path.name for path in tmp_path.iterdir()] == ["a"]


def test_a_failed_copy_keeps_its_source(penstock, tmp_path):
    with FaultServer.start() as server:
        server.make("bucket")
        server.fail(FAULTS["denied"], when=Match(verb="put", key="b", times=None))
        for name in ["a", "b"]:
            (tmp_path / name).write_text(name)
        done = penstock("mv", "-r", f"{tmp_path}/", "s3://bucket/", bucket=server)
        assert done.returncode == 3
        assert server.objects("bucket") == {"a": b"a"}
    assert [path.name for path in tmp_path.iterdir()] == ["b"]


def test_resume_deletes_sources_already_at_the_destination_without_copying(penstock, tmp_path):
    with FaultServer.start() as server:
        for name in ["same", "other", "short", "gone"]:
            (tmp_path / name).write_text(name)
            os.utime(tmp_path / name, (1e9, 1e9))  # one object, by whatever names, has one time
        for name, there in {"same": b"same", "other": b"OTHER", "short": b"s"}.items():  # all newer than their sources
            server.put("bucket", name, there)
        done = penstock("mv", "-r", "--resume", "--dry-run", f"{tmp_path}/", "s3://bucket/", bucket=server)
        assert (done.returncode, len(done.stdout.splitlines())) == (0, 4)
        done = penstock("mv", "-r", "--resume", f"{tmp_path}/", "s3://bucket/", bucket=server)
        assert done.returncode == 0, done.stderr
        assert "moved 4 objects" in done.stderr
        assert server.objects("bucket") == {name: name.encode() for name in ["same", "other", "short", "gone"]}
        assert {seen.key for seen in server.seen("put")} == {"other", "short", "gone"}
        assert list(tmp_path.iterdir()) == []
        for name, there in {"same": "same", "other": "OTHER"}.items():
            (tmp_path / name).write_text(there)
            os.utime(tmp_path / name, (1e9, 1e9))
        before = len(server.seen("get"))
        done = penstock("mv", "--resume", "s3://bucket/[a-z]*", f"{tmp_path}/", bucket=server)
        assert done.returncode == 0, done.stderr
        # Each once; or twice, where the store wrote it within the two seconds in which times of change tell nothing.
        assert {seen.key for seen in server.seen("get")[before:]} == {"other", "short", "gone"}
        assert server.objects("bucket") == {}
        assert {path.name: path.read_text() for path in tmp_path.iterdir()} == {
            name: name for name in ["same", "other", "short", "gone"]
        }


def test_resume_copies_again_if_the_etag_cannot_prove_equality(penstock, tmp_path):
    with FaultServer.start() as server:
        server.make("bucket")
        (tmp_path / "large").write_bytes(bytes(20 << 20))
        with ps.open("s3://bucket/large", "wb", store=server.store) as file:
            file.write(b"\1" * (20 << 20))  # of the same size, later, and with the ETag of an upload in parts
        done = penstock("mv", "--resume", f"{tmp_path}/large", "s3://bucket/", bucket=server)
        assert done.returncode == 0, done.stderr
        assert server.objects("bucket") == {"large": bytes(20 << 20)}
        assert list(tmp_path.iterdir()) == []


def _named_twice(tmp_path, server):
    """Write a profile of the server's bucket under another name of its host; returns the environment for it."""
    path = tmp_path / "profiles.toml"
    endpoint = server.endpoint.replace("127.0.0.1", "localhost")
    path.write_text(f"[profiles.p]\nurl = 's3://bucket/'\noptions.endpoint = '{endpoint}'\n")
    return {"PENSTOCK_CONFIG": str(path)}


@pytest.mark.parametrize("resume", [(), ("--resume",)])
@pytest.mark.parametrize("size", [3, 9 << 20])
def test_moving_onto_another_name_of_the_bucket_keeps_every_object(penstock, tmp_path, resume, size):
    with FaultServer.start() as server:
        server.make("bucket")
        server.put("bucket", "x", bytes(size))
        config = _named_twice(tmp_path, server)
        for words in (["s3://bucket/x", "penstock://p/x"], ["penstock://p/x", "s3://bucket/x"]):
            done = penstock("mv", *resume, *words, bucket=server, **config)
            assert done.returncode == 2, done.stderr
            assert "another name" in done.stderr
            assert server.objects("bucket") == {"x": bytes(size)}
        assert not server.seen("delete")
        done = penstock("mv", *resume, "s3://bucket/x", "penstock://p/y", bucket=server, **config)
        assert done.returncode == 0, done.stderr
        assert server.objects("bucket") == {"y": bytes(size)}


@pytest.mark.parametrize("resume", [(), ("--resume",)])
def test_moving_a_file_onto_another_name_of_it_keeps_it(penstock, tmp_path, resume):
    (tmp_path / "t").mkdir()
    (tmp_path / "link").symlink_to("t")
    path = tmp_path / "t" / "x"
    path.write_text("x")
    for words in (
        [f"{path}", f"fsspec+file://{path}"],
        [f"fsspec+file://{path}", f"{path}"],
        [f"fsspec+file://{path}", f"fsspec+file://{tmp_path}/link/x"],
        [f"{tmp_path}/link/x", f"fsspec+file://{path}"],
    ):
        done = penstock("mv", *resume, *words)
        assert done.returncode, words
        assert path.read_text() == "x"


def test_resume_keeps_a_source_that_the_destination_is_a_link_to(penstock, tmp_path):
    (tmp_path / "x").write_text("x")
    (tmp_path / "soft").symlink_to("x")
    (tmp_path / "hard").hardlink_to(tmp_path / "x")
    for scheme in ("", "fsspec+file://"):
        assert penstock("mv", "--resume", f"{tmp_path}/x", f"{scheme}{tmp_path}/soft").returncode in (0, 2)
        assert "x" in {(tmp_path / name).read_text() for name in ("x", "soft") if (tmp_path / name).exists()}
        (tmp_path / "soft").unlink()
        (tmp_path / "x").unlink(missing_ok=True)
        (tmp_path / "x").write_text("x")
        (tmp_path / "soft").symlink_to("x")
    (tmp_path / "other").hardlink_to(tmp_path / "hard")
    assert penstock("mv", "--resume", f"{tmp_path}/hard", f"{tmp_path}/other").returncode == 0
    assert (tmp_path / "other").read_text() == "x"
