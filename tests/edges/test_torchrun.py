"""A training by ranks, real ones and real kills, torchrun's too: its ledger is exact, whatever ranks and workers."""

from __future__ import annotations

import json
import uuid
from itertools import chain
from pathlib import Path

import pytest

import penstock as ps
from tests.edges.launch import ranks, torchrun
from tests.edges.train import named

TRAIN = Path(__file__).with_name("train.py")
SAMPLES, GLOBAL_BATCH, EPOCHS = 37, 12, 3  # an epoch ends with one sample, for two ranks or three
STEPS = 4  # of an epoch


class Job:
    """Trainings over one set in a bucket, and what they are to deliver."""

    def __init__(self, server, bucket, folder):
        client = server.client()
        client.create_bucket(Bucket=bucket)
        for number in range(SAMPLES):
            client.put_object(Bucket=bucket, Key=f"train/{number:03}", Body=b"x")
        self.environment = {
            "AWS_ENDPOINT_URL": server.endpoint,
            "AWS_ACCESS_KEY_ID": server.access_key,
            "AWS_SECRET_ACCESS_KEY": server.secret_key,
            "AWS_REGION": server.region,
        }
        self.url = f"s3://{bucket}/train/"
        self.saved = f"s3://{bucket}/state.pt"
        self.folder = folder

    def run(self, name, launched, count, **plan):
        """Train; return how it ended, and each rank's ledger."""
        plan = {
            "data": self.url,
            "saved": self.saved,
            "ledger": str(self.folder / name),
            "epochs": EPOCHS,
            "global_batch": GLOBAL_BATCH,
            "workers": 0,
            "every": 3,
        } | plan
        ended = launched(count, TRAIN, json.dumps(plan), **self.environment)
        files = sorted(self.folder.glob(f"{name}.*"))
        return ended, [[json.loads(line) for line in file.read_text("utf-8").splitlines()] for file in files]

    def expected(self):
        """Return the samples of every global batch, epoch after epoch, as one rank without workers gets them."""
        loader = ps.DataLoader(ps.MapDataset.from_prefix(self.url, transform=named), GLOBAL_BATCH, shuffle=True)
        return [batch[1] for _ in range(EPOCHS) for batch in loader]


@pytest.fixture
def job(moto_server, tmp_path, monkeypatch):
    made = Job(moto_server, f"job-{uuid.uuid4().hex}", tmp_path)
    for name, value in made.environment.items():
        monkeypatch.setenv(name, value)
    return made


def _delivered(ledgers):
    """Return the samples of each step that all ranks noted, in rank order, without the repeats that fill up."""
    steps = sorted(set.intersection(*({row[0] for row in ledger} for ledger in ledgers)))
    rows = [(row[0], _new(row)) for ledger in ledgers for row in ledger]
    return {step: tuple(chain.from_iterable(names for at, names in rows if at == step)) for step in steps}


def _new(row):
    return [name for name, repeat in zip(row[2], row[3], strict=True) if not repeat]


def _shared(one, other):
    """Return whether two ranks got the same, as far as both got."""
    return all(left == right for left, right in zip(one, other, strict=False))


def test_resume_on_different_rank_count_loses_and_repeats_no_sample(job):
    expected = job.expected()
    for epoch in range(EPOCHS):
        names = chain.from_iterable(expected[epoch * STEPS : (epoch + 1) * STEPS])
        assert sorted(names) == [f"train/{number:03}" for number in range(SAMPLES)]

    killed, first = job.run("first", ranks, 4, mesh=[2, 2], dies=[2, 4])
    assert killed.returncode != 0
    assert _shared(first[0], first[1])  # tensor-parallel ranks get the same batches
    assert _shared(first[2], first[3])
    again, second = job.run("second", torchrun, 3, workers=1, dies=[0, 7])
    assert again.returncode != 0
    ended, third = job.run("third", torchrun, 2, workers=2)
    assert ended.returncode == 0, ended.stdout

    # Each goes on from the step that was saved last; the one that killed is noted by those who came to it.
    for ledgers, begin, end in ((first[::2], 0, 4), (second, 3, 7), (third, 6, EPOCHS * STEPS)):
        run = _delivered(ledgers)
        assert run == {step: expected[step] for step in run}
        assert list(run)[: end - begin] == list(range(begin, end))
    last = [row for ledger in third for row in ledger if row[0] % STEPS == STEPS - 1]
    assert [len(names) for _, _, names, _ in last] == [1] * 4  # one sample for two ranks: a repeat, not an empty batch


def test_catalogs_that_differ_end_the_job_at_once(job):
    ended, ledgers = job.run("differ", ranks, 2, hidden=["**/036"])  # in less than the group's patience, or it raises
    assert ended.returncode != 0
    assert "StateMismatch: rank " in ended.stdout  # of the two, the one that came later
    assert "has 36 " in ended.stdout
    assert "has 37 " in ended.stdout
    assert not any(ledgers)
