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

from penstock.testing.faults import FAULTS, Match
from penstock.testing.faults.dialect import find_words
from tests.emulators import EMULATORS

COMMAND = [sys.executable, "-c", "from penstock.cli import main; main()", "demo"]
MARK = "DEMO_UNDER_TEST"
# What the fault server of a row speaks, besides S3: 12 s of CPU for each. The demo's server is tested in each dialect,
# and that a low accuracy is a failure, in tests/cli/demo.
OTHERS = sorted({row.settings.dialect for row in EMULATORS.values() if row.settings} - {"s3"})


class Run:
    """The command, and every process that came of it: they all inherit a mark in their environment."""

    def __init__(self, *words: str, **variables: str) -> None:
        self.mark = f"{MARK}={uuid.uuid4().hex}"
        env = os.environ | variables | dict([self.mark.split("=")])
        self.process = subprocess.Popen(
            [*COMMAND, *words], env=env, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
        )

    def end(self, limit_s: int = 110) -> tuple[int, str, str]:
        """Wait for the command; nothing may outlive it. What it says fits in its pipes."""
        status = self.process.wait(timeout=limit_s)
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


def test_the_demo_trains_is_killed_resumes_in_mid_epoch_and_leaves_nothing_behind(demo):
    # Four epochs suffice for 98 %. The environment is that of someone whose own store is far away.
    hostile = {"AWS_ENDPOINT_URL": "http://127.0.0.1:9", "AWS_PROFILE": "absent", "http_proxy": "http://127.0.0.1:9"}
    status, out, err = demo("--epochs", "4", **hostile).end()
    assert (status, err) == (0, "")
    assert float(re.search(r"accuracy +([0-9.]+)%", out)[1]) >= 97
    assert re.search(r"reading +[\d,]+ objects/s, \d+% of the time waiting for data\n", out)
    assert re.search(r"killed +once, in epoch 3, after (?:1[1-9]|2[0-2]) of 23 batches\n", out)
    at, again, of = re.search(
        r"resumed +in epoch 3, after (\d+) of 23 batches; (\d+) of (\d+) batches trained again had", out
    ).groups()
    assert int(at) % 10 == 4, "every tenth step is saved, and 46 lie before"
    assert again == of != "0"
    assert "1,437 images in each of 4 epochs: 0 missed, 0 repeated" in out
    assert [line.split()[1] for line in out.splitlines() if line.startswith("  epoch")] == ["1", "2", "3", "4"]


@pytest.mark.slow
@pytest.mark.parametrize("provider", OTHERS)
def test_on_every_dialect_the_demo_resumes_and_does_not_pretend_that_one_epoch_is_enough(demo, provider):
    status, out, err = demo("--epochs", "1", "--provider", provider).end(250)
    assert status == 1
    assert f"{find_words(provider).scheme}://penstock-demo/" in out
    assert "1,437 images in each of 1 epochs: 0 missed, 0 repeated" in out
    assert re.search(r"resumed +in epoch 1, after \d+ of 23 batches; (\d+) of \1 batches trained again had", out)
    assert re.fullmatch(r"penstock: a test accuracy of \d+\.\d% is below 95%\n", err)


def test_in_a_bucket_of_the_user_s_the_demo_tidies_up_even_when_it_fails(demo, own_server):
    own_server.put("mine", "penstock-demo", b"the user's")
    own_server.fail(FAULTS["denied"], when=Match(verb="put", nth=500))
    status, out, err = demo("--bucket", "mine", "--endpoint", own_server.endpoint, **own_server.environment).end()
    assert status == 3
    assert "AccessDenied" in err
    assert "s3://mine/penstock-demo-" in out
    assert own_server.objects("mine") == {"penstock-demo": b"the user's"}
    assert len(own_server.seen("put", "mine")) >= 500


def test_ctrl_c_ends_every_process_of_the_demo(demo):
    run = demo()
    next(line for line in run.process.stdout if line.startswith("  training"))  # it is at it
    assert len(run.there()) >= 3, "the command, its server and the training"
    run.process.send_signal(signal.SIGINT)
    status, _, err = run.end()
    assert (status, err) == (130, "")


def test_a_missing_bucket_is_not_created(demo, own_server):
    words = ["--bucket", "not-there-at-all", "--endpoint", own_server.endpoint]
    status, _, err = demo(*words, **own_server.environment).end()
    assert status == 1
    assert err == "penstock: no such bucket: create it first [s3://not-there-at-all/]\n"
    with pytest.raises(KeyError):
        own_server.objects("not-there-at-all")


@pytest.mark.parametrize(
    ("words", "remedy"),
    [
        (["--keep"], "pass it as --bucket"),
        (["--endpoint", "http://127.0.0.1:9"], "pass it as --bucket"),
        (["--provider", "gcs", "--bucket", "mine"], "pass your own bucket as a URL: gs://bucket"),
        (["--provider", "ftp"], "must be one of s3, gcs"),
    ],
)
def test_options_that_contradict_one_another_are_refused(demo, words, remedy):
    status, out, err = demo(*words).end()
    assert (status, out) == (2, "")
    assert remedy in err


def test_demo_without_its_extra_reports_the_install_command():
    code = "import sys; sys.modules['sklearn'] = None; from penstock.cli import main; main()"
    done = subprocess.run([sys.executable, "-c", code, "demo"], capture_output=True, text=True, check=False)
    assert (done.returncode, done.stdout) == (2, "")
    assert done.stderr == "penstock: the demo needs scikit-learn: pip install 'penstock[demo]'\n"
