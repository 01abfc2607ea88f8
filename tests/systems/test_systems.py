"""Substitutes for what only Linux has: they carry a whole program, without /proc, memory files, affinity and fork."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

from penstock.testing.faults import FaultServer, Settings

HERE = Path(__file__).parent


def test_a_program_runs_without_what_only_linux_has(tmp_path):
    with FaultServer.within(Settings()) as server:
        server.make("bucket")
        environment = os.environ | server.environment
        environment["PYTHONPATH"] = os.pathsep.join([str(HERE), os.environ["PYTHONPATH"]])
        command = [sys.executable, str(HERE / "training.py"), str(tmp_path), "s3://bucket/"]
        done = subprocess.run(command, env=environment, capture_output=True, text=True, check=False, timeout=240)
    assert done.returncode == 0, done.stderr
