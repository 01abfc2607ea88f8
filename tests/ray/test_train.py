"""Checkpoints of Ray that name a step of Penstock's; on a cluster: ``test_cluster``."""

import contextlib

import pytest

import penstock as ps
from penstock.errors import Damaged, Unusable
from penstock.ray import Reported, report, reported


class Kept:
    """A checkpoint of Ray, as far as it is read."""

    def __init__(self, folder):
        self.folder = folder

    def as_directory(self):
        return contextlib.nullcontext(self.folder)


@pytest.mark.parametrize(
    "text", [None, "", "{}", "[]", '{"penstock checkpoint": 2, "url": "s3://b/", "step": 1}', "x" * 70_000]
)
def test_other_checkpoints_are_refused(tmp_path, text):
    if text is not None:
        (tmp_path / "penstock.json").write_text(text)
    with pytest.raises(Damaged, match="was not reported by"):
        reported(Kept(tmp_path))


def test_a_reported_checkpoint_names_its_step(tmp_path):
    (tmp_path / "penstock.json").write_text('{"penstock checkpoint": 1, "url": "s3://b/run/", "step": 7}')
    assert reported(Kept(tmp_path)) == Reported("s3://b/run/", 7)


def test_outside_of_a_train_function_nothing_is_saved(tmp_path):
    run = ps.CheckpointManager(f"{tmp_path}/run/")
    with pytest.raises(Unusable, match="cannot report to Ray Train: this is not a train function"):
        report({"loss": 1.0}, run, 1, {})
    assert run.latest() is None
