"""``penstock demo`` from beginning to end: what it reports is so, and nothing is left of it."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
import time
import uuid
from pathlib import Path

import pytest

from tests.servers import Bucket

COMMAND = [sys.executable, "-c", "from penstock.cli import main; main()", "demo"]
MARK = "DEMO_UNDER_TEST"


class Run:
    """The command, and every process that came of it: they all inherit a mark in their environment."""

    def __init__(self, *words: str, **variables: str) -> None:
        self.mark = f"{MARK}={uuid.uuid4().hex}"
        env = os.environ | variables | dict([self.mark.split("=")])
        self.process = subprocess.Popen(
            [*COMMAND, *words], env=env, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
        )

    def end(self) -> tuple[int, str, str]:
        """Wait for the command; nothing may outlive it. What it says fits in its pipes."""
        status = self.process.wait(timeout=110)
        # A killed process takes a moment to go; workers that nobody killed take torch's five seconds.
        deadline = time.monotonic() + 4
        while (left := self.there()) and time.monotonic() < deadline:
            os.sched_yield()
        assert left == []
        return status, *self.process.communicate()

    def there(self) -> list[str]:
        found = []
        for path in Path("/proc").glob("[0-9]*/environ"):
            try:
                if self.mark in path.read_text("utf-8", "replace"):
                    found.append(path.with_name("cmdline").read_text().replace("\0", " "))
            except OSError:  # it has just ended, or is another's
                continue
        return found


@pytest.fixture
def demo():
    runs = []

    def start(*words: str, **variables: str) -> Run:
        runs.append(Run(*words, **variables))
        return runs[-1]

    yield start
    for run in runs:
        with run.process as process:
            process.terminate()


@pytest.fixture
def own(moto_server):
    """A user's own bucket and the environment that leads to it."""
    client, name = moto_server.client(), f"test-{uuid.uuid4().hex}"
    client.create_bucket(Bucket=name)
    return Bucket(moto_server, name, client)


KEYS = {"AWS_ACCESS_KEY_ID": "testing", "AWS_SECRET_ACCESS_KEY": "testing"}


def test_it_trains_is_killed_resumes_and_leaves_nothing_behind(demo):
    # Four epochs suffice for 98 %. The environment is that of someone whose own store is far away.
    hostile = {"AWS_ENDPOINT_URL": "http://127.0.0.1:9", "AWS_PROFILE": "absent", "http_proxy": "http://127.0.0.1:9"}
    status, out, err = demo("--epochs", "4", **hostile).end()
    assert (status, err) == (0, "")
    assert float(re.search(r"accuracy +([0-9.]+)%", out)[1]) >= 97
    assert re.search(r"reading +\d+ objects/s, [0-9.]+ MB/s, \d+% of the time waiting for data\n", out)
    assert re.search(r"killed +once, in epoch 3, after 11 of 23 batches\n", out)
    assert re.search(r"resumed +at epoch 3 of 4; 11 of 11 batches trained again had the very same loss\n", out)
    assert "s3://penstock-demo/checkpoints/epoch-0004.pt" in out
    assert [line.split()[1] for line in out.splitlines() if line.startswith("  epoch")] == ["1", "2", "3", "4"]


def test_in_a_bucket_of_the_user_s_it_tidies_up_even_when_it_fails(demo, own):
    own.client.put_object(Bucket=own.name, Key="penstock-demo", Body=b"the user's")
    words = ["--bucket", own.name, "--endpoint", own.server.endpoint, "--epochs", "1"]
    status, out, err = demo(*words, **KEYS).end()
    assert status == 1  # one epoch is too few, and the demo does not pretend
    assert re.fullmatch(r"penstock: a test accuracy of \d+\.\d% is below 95%\n", err)
    assert f"s3://{own.name}/penstock-demo-" in out
    assert [entry["Key"] for entry in own.client.list_objects_v2(Bucket=own.name)["Contents"]] == ["penstock-demo"]


def test_ctrl_c_takes_everything_along(demo):
    run = demo()
    line = next(line for line in run.process.stdout if line.startswith("  epoch"))  # workers are at it
    assert len(run.there()) >= 5, "the command, its server, the training and two workers"
    run.process.send_signal(signal.SIGINT)
    status, _, err = run.end()
    assert (line.split()[1], status, err) == ("1", 130, "")


def test_a_bucket_that_is_not_there_is_not_made(demo, own):
    status, _, err = demo("--bucket", "not-there-at-all", "--endpoint", own.server.endpoint, **KEYS).end()
    assert status == 1
    assert err == "penstock: no such bucket: the demo creates none, so make it first [s3://not-there-at-all/]\n"
    assert "not-there-at-all" not in [each["Name"] for each in own.client.list_buckets()["Buckets"]]


@pytest.mark.parametrize("words", [["--keep"], ["--endpoint", "http://127.0.0.1:9"]])
def test_options_about_a_bucket_need_one(demo, words):
    status, out, err = demo(*words).end()
    assert (status, out) == (2, "")
    assert "name it with --bucket" in err


def test_without_the_extra_it_says_what_to_install():
    code = "import sys; sys.modules['sklearn'] = None; from penstock.cli import main; main()"
    done = subprocess.run([sys.executable, "-c", code, "demo"], capture_output=True, text=True, check=False)
    assert (done.returncode, done.stdout) == (2, "")
    assert done.stderr == "penstock: the demo needs scikit-learn: pip install 'penstock[demo]'\n"
