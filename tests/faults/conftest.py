"""The cases of the table are begun before the tests beside it, and have done most of their waiting when it is asked."""

from __future__ import annotations

import os
import pickle
import subprocess
import sys

import pytest

KEYS = {"AWS_ACCESS_KEY_ID": "penstock-testing", "AWS_SECRET_ACCESS_KEY": "not-a-secret"}
LIMIT_S = 280


@pytest.fixture(scope="package", autouse=True)
def playing(request):
    """Begin, where a test of this run asks for the cases; whatever comes, it is over with the last test here."""
    if not any("played" in getattr(item, "fixturenames", ()) for item in request.session.items):
        yield None
        return
    command = [sys.executable, "-c", "from tests.faults.play import main; main()"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, env=os.environ | KEYS) as process:
        yield process
        process.kill()


@pytest.fixture(scope="package")
def played(playing):
    """Return every case, played."""
    cases, _ = playing.communicate(timeout=LIMIT_S)
    assert playing.returncode == 0, "what is above says why"
    return pickle.loads(cases)
