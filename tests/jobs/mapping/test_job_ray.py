"""Maps on a real Ray cluster, whose workers and drivers are killed: a lambda of the main program arrives there."""

import os
import random
import secrets
import signal
import subprocess
import sys
import time
from contextlib import suppress

import pytest

import penstock as ps
from tests.jobs.mapping.functions import fill_lines, tokenise
from tests.jobs.mapping.test_job import shards
from tests.servers.ray_cluster import RayCluster

DRIVER = """
import sys
import time
import penstock as ps
from tests.jobs.mapping.functions import tokenise
pause_s = float(sys.argv[4])
how = {"format": "tokens", "part_bytes": 20_000, "on": ps.Ray(address=sys.argv[1], retries=20), "version": "1"}
print(ps.map(sys.argv[2], lambda sample: (time.sleep(pause_s), tokenise(sample))[1], sys.argv[3], **how).complete)
"""


@pytest.fixture(scope="module")
def cluster():
    with RayCluster.start() as running:
        yield running


KILLS = 20 if os.environ.get("PENSTOCK_SOAK") else 4


def start(cluster, source, to, pause_s):
    command = [sys.executable, "-W", "ignore", "-c", DRIVER, cluster.address, source, str(to), str(pause_s)]
    return subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, env=cluster.env)


def draw():
    seed = secrets.randbits(32)
    print(f"seed {seed}")
    return random.Random(seed)


def test_shards_are_those_of_one_process_though_workers_are_killed(cluster, tmp_path):
    dice, source = draw(), fill_lines(tmp_path / "in", seed=4)
    driver = start(cluster, source, tmp_path / "to", 0.005)
    killed = 0
    while driver.poll() is None and killed < KILLS:
        time.sleep(dice.uniform(0.05, 0.5))
        if workers := cluster.workers("penstock.map"):
            with suppress(ProcessLookupError):
                os.kill(dice.choice(workers), signal.SIGKILL)
                killed += 1
    out, errors = driver.communicate(timeout=200)
    assert driver.returncode == 0, errors
    assert out.strip().endswith("True")
    assert killed == KILLS
    ps.map(source, tokenise, tmp_path / "alone", format="tokens", part_bytes=20_000)
    assert shards(tmp_path / "to") == shards(tmp_path / "alone")


@pytest.mark.slow
def test_shards_are_those_of_one_process_though_drivers_are_killed(cluster, tmp_path):
    dice, source = draw(), fill_lines(tmp_path / "in", seed=5)
    for _ in range(KILLS):
        driver = start(cluster, source, tmp_path / "to", 0.02)
        until = time.monotonic() + 60
        while driver.poll() is None and not cluster.workers("penstock.map"):
            assert time.monotonic() < until
            time.sleep(0.05)
        time.sleep(dice.uniform(0.0, 2.5))
        driver.kill()
        driver.communicate()
    records = len([*(tmp_path / "to" / ".map" / "done").rglob("*.json")])
    print(f"{records} parts done by killed drivers")
    assert records > 0
    out, errors = start(cluster, source, tmp_path / "to", 0).communicate(timeout=200)
    assert out.strip().endswith("True"), errors
    ps.map(source, tokenise, tmp_path / "alone", format="tokens", part_bytes=20_000)
    assert shards(tmp_path / "to") == shards(tmp_path / "alone")
