"""A test that hangs ends the run and shows where, in one process and in several; signals reach tests in both."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
HOOKS = "from tests.watch import pytest_configure, pytest_runtest_protocol"
HANGS = """
import threading

def test_before():
    pass

def test_hangs():
    threading.Thread(target=beside, daemon=True).start()
    threading.Event().wait()  # for ever

def beside():
    threading.Event().wait()
"""
OTHER = """
import os
import signal
import time

import pytest

def test_ctrl_c_reaches_a_test():
    with pytest.raises(KeyboardInterrupt):
        os.kill(os.getpid(), signal.SIGINT)
        time.sleep(60)  # the signal ends it

def test_a_test_runs_on_the_main_thread():
    signal.signal(signal.SIGALRM, signal.SIG_DFL)  # refused anywhere else
"""


@pytest.mark.parametrize("jobs", [0, 2])
def test_a_test_that_hangs_shows_every_stack_and_ends_the_run(tmp_path, jobs):
    for name, text in {"conftest": HOOKS, "test_1_other": OTHER, "test_2_hangs": HANGS}.items():
        (tmp_path / f"{name}.py").write_text(text)
    command = ["-m", "pytest", "-c", ROOT / "pyproject.toml", "-o", "faulthandler_timeout=2", "--rootdir", tmp_path]
    # They take seconds to import, in each process.
    command += ["-p", "no:zarr", "-p", "no:hypothesispytest"]
    done = subprocess.run(
        [sys.executable, *command, "-v", "-n", str(jobs), tmp_path],
        cwd=ROOT,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        timeout=120,
        check=False,
    )
    said = done.stdout
    assert done.returncode == 1, said
    assert said.count("PASSED") == 3, said
    assert "test_2_hangs.py::test_hangs takes long; the main thread is here:" in said
    assert "threading.Event().wait()  # for ever" in said, "the line that hangs, in the main thread's own stack"
    stacks = said.partition("Timeout (")[2]
    assert " in beside" in stacks
    assert stacks.index(" in beside") < stacks.index(" in test_hangs"), "the main thread is the last"
    if jobs:
        assert "crashed while running 'test_2_hangs.py::test_hangs'" in said
