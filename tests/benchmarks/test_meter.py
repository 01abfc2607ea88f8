"""What the stopwatch counts: CPU of a peer's worker processes too, while they run and after."""

from __future__ import annotations

import subprocess
import sys
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

BURN = "import time\nwhile time.process_time() < {seconds}: pass\nprint('done', flush=True)\ninput()\n"


@pytest.fixture
def cpu_s(monkeypatch):
    monkeypatch.syspath_prepend(str(Path(__file__).parents[2] / "benchmarks" / "peers"))
    from meter import cpu_s

    return cpu_s


def test_workers_count_while_they_run_and_after(cpu_s):
    nested = f"import subprocess, sys; subprocess.run([sys.executable, '-c', {BURN.format(seconds=0.5)!r}])"
    before = cpu_s()
    with subprocess.Popen([sys.executable, "-c", nested], stdin=subprocess.PIPE, stdout=subprocess.PIPE) as worker:
        worker.stdout.readline()
        running = cpu_s()
        worker.communicate(b"\n")
    after = cpu_s()
    assert running - before > 0.45
    assert after >= running - 0.02  # what has ended is counted by ticks no longer
    assert time.process_time() < after


def test_threads_and_processes_that_end_meanwhile_count_for_nothing(cpu_s):
    over = threading.Event()

    def churn():
        while not over.is_set():
            each = threading.Thread(target=int)
            each.start()
            each.join()
            subprocess.run(["true"], check=True)

    with ThreadPoolExecutor(2) as pool:
        churning = [pool.submit(churn) for _ in range(2)]
        try:
            for _ in range(300):
                cpu_s()
        finally:
            over.set()
        for each in churning:
            each.result()
