"""kill -9 of a listing or of a warming at any moment: what is left is whole, or goes on, and never wrong."""

from __future__ import annotations

import os
import random
import select
import signal
import time
from dataclasses import replace

import pytest

import penstock as ps
from penstock.testing.faults import FaultServer, Settings

KILLS = 6
KEYS = {f"run/{at:05}": at.to_bytes(4) * (at % 700) for at in range(1_200)}
NEAR = {f"near/{at:03}": at.to_bytes(4) * at for at in range(300)}


@pytest.fixture(scope="module")
def server():
    with FaultServer.start(Settings(latency_ms=2)) as running:
        for key, data in (KEYS | NEAR).items():
            running.put("bucket", key, data)
        yield running


@pytest.fixture
def store(server):
    return server.store


def killed_after(work, seconds):
    """Run ``work`` in a forked child and kill it after a while; return its exit status, and how long it ran."""
    ended, end = os.pipe()
    began = time.monotonic()
    pid = os.fork()
    if not pid:
        status = 1
        try:
            work()
            status = 0
        finally:
            os._exit(status)
    os.close(end)
    if not select.select([ended], [], [], seconds)[0]:
        os.kill(pid, signal.SIGKILL)
    status = os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])
    os.close(ended)
    return status, time.monotonic() - began


def kills(work, seed):
    """Yield after each kill of ``work`` at a random moment, until one came in the middle and ``KILLS`` are over."""
    draw, number, endings = random.Random(seed), 0, set()
    status, whole_s = killed_after(work, 120)
    assert status == 0
    while number < KILLS or -signal.SIGKILL not in endings:
        assert number < 20 * KILLS, "every run ended before it was killed"
        status, ran_s = killed_after(work, draw.uniform(0, 1.1 * whole_s))
        endings.add(status)
        if status == 0:
            # The first run, on a busy machine, may have taken several times as long as the others do.
            whole_s = min(whole_s, ran_s)
        yield number
        number += 1
    assert endings <= {0, -signal.SIGKILL}


def test_an_index_that_is_killed_leaves_the_old_catalog_or_the_whole_new_one(store, tmp_path, seed):
    url, to = "s3://bucket/run/", tmp_path / "a.catalog"
    old = ps.index(url, to, store=store, include="000*")
    stale = to.read_bytes()

    def work():
        ps.index(url, to, store=store)

    for _ in kills(work, seed):
        found = list(ps.Catalog.open(to, root=url))
        assert len(found) in (len(old), len(KEYS))
        ps.index(url, to, store=store)  # goes on
        assert {each.key: each.size for each in ps.Catalog.open(to, root=url)} == {
            key: len(data) for key, data in KEYS.items()
        }
        assert [each.name for each in tmp_path.iterdir() if ".penstock-" not in each.name] == ["a.catalog"]
        to.write_bytes(stale)


def test_killed_warm_leaves_a_valid_cache_and_can_be_resumed(store, tmp_path, seed):
    cached = replace(store, cache=ps.CacheOptions(path=str(tmp_path / "near"), size_bytes=64 << 20))

    def work():
        ps.warm("s3://bucket/near/", store=cached)

    for number in kills(work, seed):
        assert ps.cache.open_cache(str(tmp_path / "near")).verify().damaged == 0
        for key in random.Random(seed + number).sample(sorted(NEAR), 10):
            with ps.open(f"s3://bucket/{key}", store=cached) as file:
                assert file.read() == NEAR[key]
        done = ps.warm("s3://bucket/near/", store=cached)
        assert done.fetched + done.present == len(NEAR)
        ps.cache.open_cache(str(tmp_path / "near")).clear()
