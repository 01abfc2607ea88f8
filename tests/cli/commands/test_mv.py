"""``penstock mv``: nothing is deleted that was not seen whole at its new place."""

from __future__ import annotations

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


def test_resume_deletes_what_is_there_already_without_copying_it_again(penstock, tmp_path):
    with FaultServer.start() as server:
        for name in ["same", "other", "short", "gone"]:
            (tmp_path / name).write_text(name)
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
        before = len(server.seen("get"))
        done = penstock("mv", "--resume", "s3://bucket/[a-z]*", f"{tmp_path}/", bucket=server)
        assert done.returncode == 0, done.stderr
        assert len(server.seen("get")) == before + 3
        assert server.objects("bucket") == {}
        assert {path.name: path.read_text() for path in tmp_path.iterdir()} == {
            name: name for name in ["same", "other", "short", "gone"]
        }


def test_resume_copies_again_what_no_store_s_word_proves(penstock, tmp_path):
    with FaultServer.start() as server:
        server.make("bucket")
        (tmp_path / "large").write_bytes(bytes(20 << 20))
        with ps.open("s3://bucket/large", "wb", store=server.store) as file:
            file.write(b"\1" * (20 << 20))  # of the same size, later, and with the ETag of an upload in parts
        done = penstock("mv", "--resume", f"{tmp_path}/large", "s3://bucket/", bucket=server)
        assert done.returncode == 0, done.stderr
        assert server.objects("bucket") == {"large": bytes(20 << 20)}
        assert list(tmp_path.iterdir()) == []
