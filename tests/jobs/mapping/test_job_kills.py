"""Maps whose workers and drivers are killed at random moments: the shards are those of an undisturbed map."""

import json
import os
import random
import secrets
import signal
import subprocess
import sys
import time
from contextlib import suppress
from pathlib import Path

import pytest

import penstock as ps
from tests.jobs.mapping import functions
from tests.jobs.mapping.functions import fill_lines
from tests.jobs.mapping.test_job import contents, shards
from tests.jobs.parts.test_processes import is_alive

KILLS = 20 if os.environ.get("PENSTOCK_SOAK") else 4
DRIVER = """
import sys
import time
import penstock as ps
from tests.jobs.mapping import functions

def slowly(sample):
    time.sleep(0.001)
    return getattr(functions, sys.argv[4])(sample)

how = {"format": sys.argv[3], "part_bytes": 20_000, "version": "1", "processes": 2}
print(ps.map(sys.argv[1], slowly, sys.argv[2], **how).complete)
"""


def result(folder):
    """Return what map.json says, without URLs."""
    found = json.loads((folder / "map.json").read_text())
    del found["arguments"]
    return found


def children_of(pid):
    with suppress(OSError):
        return [*map(int, Path(f"/proc/{pid}/task/{pid}/children").read_text().split())]
    return []


@pytest.mark.slow
@pytest.mark.parametrize("victim", ["worker", "driver"])
@pytest.mark.parametrize("form", ["tokens", "jsonl", "parquet"])
def test_shards_are_those_of_an_undisturbed_map(tmp_path, form, victim):
    seed = secrets.randbits(32)
    print(f"seed {seed}")
    dice = random.Random(seed)
    source, name = fill_lines(tmp_path / "in", seed=3), "tokenise" if form == "tokens" else "rows"
    alone = ps.map(source, getattr(functions, name), tmp_path / "alone", format=form, part_bytes=20_000, version="1")
    command = [sys.executable, "-c", DRIVER, source, str(tmp_path / "to"), form, name]
    kills, runs = 0, 0
    while True:
        runs += 1
        driver = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
        workers = set()
        while driver.poll() is None and kills < KILLS:
            until = time.monotonic() + dice.uniform(0.2, 1.5 if victim == "driver" else 0.7)
            while time.monotonic() < until and driver.poll() is None:
                workers |= {*children_of(driver.pid)}
                time.sleep(0.01)
            chosen = [driver.pid] if victim == "driver" else children_of(driver.pid)
            if chosen and driver.poll() is None:
                with suppress(ProcessLookupError):
                    os.kill(dice.choice(chosen), signal.SIGKILL)
                    kills += 1
        out, errors = driver.communicate(timeout=120)
        if driver.returncode == 0:
            break
        expected = driver.returncode == -signal.SIGKILL or "was set aside" in errors or "cannot start" in errors
        assert expected, errors
        assert runs < 3 * KILLS
    print(f"{kills} kills, {runs} runs")
    assert out == "True\n"
    assert shards(tmp_path / "to") == shards(tmp_path / "alone")
    assert result(tmp_path / "to") == result(tmp_path / "alone")
    assert sorted(contents(tmp_path / "to")) == sorted(contents(tmp_path / "alone"))
    assert alone.samples == alone.kept + alone.left_out
    until = time.monotonic() + 20
    while any(map(is_alive, workers)):
        assert time.monotonic() < until
        time.sleep(0.05)
