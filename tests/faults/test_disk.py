"""Disks that fail in the middle of a file, or take two keys for one name: nothing wrong is published, or is silent."""

from __future__ import annotations

import subprocess

import pytest

import penstock as ps
from tests.cli.conftest import COMMAND, environment
from tests.disks import preloaded

MIB = 1 << 20


@pytest.fixture(scope="module")
def disk(tmp_path_factory):
    return preloaded(tmp_path_factory.mktemp("disk"))


@pytest.fixture
def bucket(s3_faults, request):
    s3_faults.make(name := f"b{abs(hash(request.node.name))}")
    s3_faults.root = f"s3://{name}"
    s3_faults.bucket = name
    return s3_faults


def run(bucket, variables, *words):
    return subprocess.run(
        [*COMMAND, *map(str, words)], env=environment(bucket) | variables, capture_output=True, text=True, check=False
    )


def files(folder):
    return {str(each.relative_to(folder)): each.read_bytes() for each in folder.rglob("*") if each.is_file()}


COPIES = (["sync"], ["cp", "-r"], ["mv", "-r"])


@pytest.mark.parametrize("words", COPIES, ids=" ".join)
def test_case_insensitive_disk_reports_colliding_keys_and_keeps_the_first_file(disk, bucket, tmp_path, words):
    for key in ("in/A", "in/a", "in/b", "in/x/\u00e9", "in/x/\u00c9"):
        bucket.put(bucket.bucket, key, key.encode())
    (tmp_path / "out").mkdir()
    folded = disk | {"FOLDED": f"{tmp_path}/out"}
    ends = f"{bucket.root}/in/", f"{tmp_path}/out/"
    if words[0] != "mv":
        planned = run(bucket, folded, *words, "--dry-run", *ends)
        assert planned.returncode == 2
        assert files(tmp_path / "out") == {}
    done = run(bucket, folded, *words, *ends)
    assert done.returncode == 2, done.stderr
    assert "another spelling, which this disk takes for the same" in done.stderr
    assert files(tmp_path / "out").items() >= {"a": b"in/A", "b": b"in/b"}.items()
    assert "in/a" in bucket.objects(bucket.bucket)


def test_case_sensitive_disk_receives_both_keys_that_differ_in_case(bucket, tmp_path):
    for key in ("A", "a"):
        bucket.put(bucket.bucket, key, key.encode())
    assert ps.sync(bucket.root, tmp_path / "out", store=bucket.store).copied == 2
    assert files(tmp_path / "out") == {"A": b"A", "a": b"a"}
    assert list(tmp_path.iterdir()) == [tmp_path / "out"]


@pytest.mark.parametrize("words", COPIES, ids=" ".join)
@pytest.mark.parametrize("size", [MIB, 20 * MIB])
@pytest.mark.parametrize("how", ["BROKEN_WRITE", "BROKEN_FSYNC"])
def test_a_write_error_of_the_disk_keeps_the_old_file_and_the_source(disk, bucket, tmp_path, words, size, how):
    for key in ("in/bad/x", "in/good"):
        bucket.put(bucket.bucket, key, bytes(size))
    (tmp_path / "out" / "bad").mkdir(parents=True)
    (tmp_path / "out" / "bad" / "x").write_bytes(b"old")
    broken = disk | {how: f"{tmp_path}/out/bad", "BROKEN_AT": str(size // 2)}
    done = run(bucket, broken, *words, f"{bucket.root}/in/", f"{tmp_path}/out/")
    assert done.returncode, done.stderr
    assert "Traceback" not in done.stderr
    assert "Input/output error" in done.stderr
    assert files(tmp_path / "out") == {"bad/x": b"old", "good": bytes(size)}
    assert "in/bad/x" in bucket.objects(bucket.bucket)


@pytest.mark.parametrize("words", COPIES, ids=" ".join)
@pytest.mark.parametrize("size", [MIB, 20 * MIB])
def test_a_read_error_of_the_disk_publishes_nothing_and_deletes_nothing(disk, bucket, tmp_path, words, size):
    (tmp_path / "in").mkdir()
    for name in ("bad", "good"):
        (tmp_path / "in" / name).write_bytes(bytes(size))
    bucket.put(bucket.bucket, "out/extra", b"extra")
    broken = disk | {"BROKEN_READ": f"{tmp_path}/in/bad", "BROKEN_AT": str(size // 2)}
    delete = ["--delete"] if words == ["sync"] else []
    done = run(bucket, broken, *words, *delete, f"{tmp_path}/in/", f"{bucket.root}/out/")
    assert done.returncode, done.stderr
    assert "Traceback" not in done.stderr
    assert "Input/output error" in done.stderr
    assert sorted(bucket.objects(bucket.bucket)) == ["out/extra", "out/good"]
    assert (tmp_path / "in" / "bad").stat().st_size == size
