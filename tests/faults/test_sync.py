"""kill -9 of a sync at any moment: the next one goes on where it was, and in the end both trees are equal."""

from __future__ import annotations

import os
import random
import signal
from dataclasses import replace

import pytest

import penstock as ps
from penstock.jobs.syncing.sync import SyncRun
from penstock.testing.faults import FaultServer, Settings

KILLS = 25  # each way
SMALL, LONG = 60, 6 << 20
PARTS = ps.WriteOptions(part_bytes=5 << 20)


@pytest.fixture(scope="module")
def server():
    with FaultServer.start(Settings(latency_ms=1)) as running:
        yield running


def killed(work, moment):
    """Run ``work`` in a child that is killed with its ``moment``-th outcome, others being under way; how it ended."""
    pid = os.fork()
    if not pid:
        status, original, left = 1, SyncRun._outcome, [moment]

        def outcome(*arguments, **more):
            left[0] -= 1
            if not left[0]:
                os.kill(os.getpid(), signal.SIGKILL)
            return original(*arguments, **more)

        SyncRun._outcome = outcome
        try:
            work()
            status = 0
        finally:
            os._exit(status)
    return os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])


def names(seed):
    draw = random.Random(seed)
    return {f"{draw.choice('abc')}/{number:03} ü": draw.randbytes(draw.randint(0, 300)) for number in range(SMALL)} | {
        "long": draw.randbytes(LONG)
    }


def files(folder):
    found = (path for path in folder.rglob("*") if path.is_file() and not path.name.startswith(".penstock-"))
    return {str(path.relative_to(folder)): path.read_bytes() for path in found}


def play(server, seed, sync, verb, change, standing):
    """Kill a sync again and again, its source changing in between; what stands already is never touched again."""
    draw, endings = random.Random(seed), []
    for _ in range(KILLS):
        change(draw)
        before, count = standing(), len(server.seen(verb))
        endings.append(killed(sync, draw.randint(1, 12)))
        touched = {each.key.partition("/")[2] for each in server.seen(verb)[count:]}
        assert not touched & before, "done twice"
    assert set(endings) <= {0, -signal.SIGKILL}
    assert endings.count(-signal.SIGKILL) > KILLS // 2, "hardly one was killed while it worked"


def renewed(draw, data):
    """Give a third of the small objects other contents, of another size."""
    for name in draw.sample(sorted(data.keys() - {"long"}), SMALL // 3):
        data[name] = draw.randbytes(len(data[name]) + 1)
        yield name, data[name]


def write(tree, items):
    for name, body in items:
        (tree / name).parent.mkdir(parents=True, exist_ok=True)
        (tree / name).write_bytes(body)


def test_killed_sync_to_a_store_resumes_and_deletes_nothing_outside_its_prefix(server, tmp_path, seed):
    tree, data = tmp_path / "tree", names(seed)
    write(tree, data.items())
    server.make("uphill")
    outside = {"t0/a": b"1", "s/a": b"2", "t": b"3", "t.x": b"4"}
    for key, body in outside.items():
        server.put("uphill", key, body)
    for number in range(20):
        server.put("uphill", f"t/old/{number}", b"old")
    store = replace(server.store, write=PARTS)

    def sync():
        ps.sync(tree, "s3://uphill/t", delete=True, store=store)

    def standing():
        return {key[2:] for key, body in server.objects("uphill").items() if data.get(key[2:]) == body}

    play(server, seed, sync, "put", lambda draw: write(tree, renewed(draw, data)), standing)
    sync()
    stands = server.objects("uphill")
    assert {key[2:]: body for key, body in stands.items() if key.startswith("t/")} == data
    assert {key: body for key, body in stands.items() if not key.startswith("t/")} == outside
    count = [len(server.seen(verb)) for verb in ("put", "part", "delete")]
    again = ps.sync(tree, "s3://uphill/t", delete=True, store=store)
    assert (again.copied, again.deleted, again.unchanged) == (0, 0, len(data))
    assert [len(server.seen(verb)) for verb in ("put", "part", "delete")] == count


def test_killed_sync_to_files_resumes_and_leaves_no_partial_file(server, tmp_path, seed):
    data, tree = names(seed), tmp_path / "tree"
    seen = {name: {body, b"old"} for name, body in data.items()}
    server.make("downhill")

    def put(items):
        for name, body in items:
            server.put("downhill", f"t/{name}", body)
            seen.setdefault(name, set()).add(body)

    put(data.items())
    write(tree, {"old/x": b"old"}.items())
    write(tmp_path, {"outside": b"outside"}.items())

    def sync():
        ps.sync("s3://downhill/t", tree, delete=True, store=server.store)

    def standing():
        found = files(tree)
        found.pop("old/x", None)
        assert all(body in seen[name] for name, body in found.items()), "half written"
        return {name for name, body in found.items() if data[name] == body}

    play(server, seed, sync, "get", lambda draw: put(renewed(draw, data)), standing)
    sync()
    assert files(tree) == data
    assert (tmp_path / "outside").read_bytes() == b"outside"
    count = len(server.seen("get"))
    again = ps.sync("s3://downhill/t", tree, delete=True, store=server.store)
    assert (again.copied, again.deleted, again.unchanged) == (0, 0, len(data))
    assert len(server.seen("get")) == count
