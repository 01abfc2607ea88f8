"""The command sync: lines, codes, and what it says."""

from __future__ import annotations

import json
import signal

import pytest

from penstock.testing.faults import FAULTS, FaultServer, Match


@pytest.fixture(scope="module")
def server():
    with FaultServer.start() as running:
        running.make("bucket")
        yield running


@pytest.fixture
def tree(tmp_path):
    for name in ("a", "x/b", "x/c.tmp"):
        path = tmp_path / "in" / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(name)
    return tmp_path / "in"


def test_a_sync_and_another(penstock, server, tree, tmp_path):
    dest = f"s3://bucket/{tmp_path.name}"
    words = ("sync", str(tree), dest, "--delete", "--exclude", "**/*.tmp")
    planned = penstock(*words, "--dry-run", **server.environment)
    assert planned.stdout.splitlines() == [f"file://{tree}/a -> {dest}/a", f"file://{tree}/x/b -> {dest}/x/b"]
    done = penstock(*words, **server.environment)
    assert (done.returncode, done.stdout) == (0, "")
    assert done.stderr.startswith("copied 2 objects, 4 bytes in ")
    server.put("bucket", f"{tmp_path.name}/old", b"old")
    planned = penstock(*words, "--dry-run", **server.environment)
    assert planned.stdout == f"delete {dest}/old\n"
    done = penstock(*words, "--json", "--report", str(tmp_path / "report"), **server.environment)
    line = {"source": None, "dest": f"{dest}/old", "size": 3, "status": "deleted"}
    assert [json.loads(each) for each in done.stdout.splitlines()] == [line]
    assert [json.loads(each) for each in (tmp_path / "report").read_text().splitlines()] == [line]
    done = penstock(*words, **server.environment)
    assert (done.returncode, done.stdout) == (0, "")
    assert "copied 0 objects" in done.stderr
    assert "2 unchanged" in done.stderr


def test_the_worst_failure_is_the_code_and_nothing_is_deleted(penstock, server, tree, tmp_path):
    dest = f"s3://bucket/{tmp_path.name}"
    server.put("bucket", f"{tmp_path.name}/old", b"old")
    server.fail(FAULTS["denied"], when=Match(verb="put", key=f"{tmp_path.name}/x/b"))
    done = penstock("sync", "--delete", str(tree), dest, **server.environment)
    server.heal()
    assert done.returncode == 3
    assert "1 failed" in done.stderr
    assert "not deleted, because something failed" in done.stderr
    assert f"{tmp_path.name}/old" in server.objects("bucket")


def test_wrong_uses_are_one_line(penstock, server, tree, tmp_path):
    (tmp_path / "empty").mkdir()
    for words, code, said in (
        ((str(tmp_path / "empty"), "s3://bucket/x", "--delete"), 1, "--allow-empty"),
        ((str(tmp_path / "none"), "s3://bucket/x"), 1, "no such directory"),
        ((str(tree), str(tree / "x")), 2, "overlap"),
        ((str(tree / "a"), "s3://bucket/x"), 2, "use penstock cp"),
        ((str(tree), "s3://bucket", "--delete"), 2, "--whole-bucket"),
        ((str(tree), "s3://bucket/x", "--report", str(tree / "report")), 2, "outside the trees"),
        ((str(tree), "s3://bucket/x", "--exclude", "[z-a]"), 2, "invalid glob"),
    ):
        done = penstock("sync", *words, **server.environment)
        assert (done.returncode, done.stdout) == (code, ""), done.stderr
        assert said in done.stderr
        assert done.stderr.count("\n") == 1, done.stderr


def test_ctrl_c_leaves_nothing_half_and_exits_130(start, server, tmp_path, monkeypatch):
    for name, value in server.environment.items():
        monkeypatch.setenv(name, value)
    (tmp_path / "in").mkdir()
    for number in range(40):
        (tmp_path / "in" / str(number)).write_bytes(bytes([number]) * 1000)
    for number in range(20, 40):  # these wait for their answers until the client leaves
        server.fail(FAULTS["stall"], when=Match(verb="put", key=f"c/{number}", times=None))
    process = start("sync", str(tmp_path / "in"), "s3://bucket/c")
    while not any(each.fault == "stall" for each in server.seen("put", "bucket")):
        assert process.poll() is None, process.communicate()
    process.send_signal(signal.SIGINT)
    _, told = process.communicate(timeout=60)
    server.heal()
    assert process.returncode == 130, told
    stands = {key: data for key, data in server.objects("bucket").items() if key.startswith("c/")}
    assert all(data == bytes([int(key[2:])]) * 1000 for key, data in stands.items())
