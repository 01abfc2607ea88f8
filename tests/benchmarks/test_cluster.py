"""The checks of the simulated cluster hold, in a process of their own."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

CHECKS = Path(__file__).parent / "cluster_checks.py"


def test_counts_of_simulated_ranks_hold():
    # The simulation replaces the clock of all of Penstock, also for threads that other tests have left.
    command = [sys.executable, "-m", "pytest", "-q", "-n", "0", "-p", "no:cacheprovider", str(CHECKS)]
    ran = subprocess.run(command, cwd=CHECKS.parents[2], capture_output=True, text=True, check=False, timeout=280)
    assert ran.returncode == 0, ran.stdout + ran.stderr
    assert " passed" in ran.stdout
