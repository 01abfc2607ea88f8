"""What hurried users write with a run's checkpoints, and the word that tells them what to do instead."""

from pathlib import Path

import numpy as np
import pytest
import torch

import penstock as ps
from penstock.checkpoint.lightning import CheckpointIO, ModelCheckpoint
from penstock.errors import AlreadyExists, CheckpointError, InvalidURL, NotFound, Unusable

MISUSES = [
    # what is written, the error, a word of its text
    (lambda run: run.save("6", {}), Unusable, "step must be an integer, got a str"),
    (lambda run: run.save(6.0, {}), Unusable, "step must be an integer, got a float"),
    (lambda run: run.save(-1, {}), Unusable, "step must be 0 to"),
    (lambda run: run.save(10**18, {}), Unusable, "step must be 0 to"),
    (lambda run: run.save({}, 6), Unusable, "step must be an integer, got a dict"),
    (lambda run: run.save(6, {}, metric="low"), Unusable, "metric must be one number"),
    (lambda run: run.save(6, {}, metric=torch.ones(2)), Unusable, "metric must be one number"),
    (lambda run: run.save(6, {}, metric="0.5"), Unusable, "metric must be one number, got a str"),
    (lambda run: run.save(6, {}, loader=[1]), Unusable, "loader must have state_dict"),
    (lambda run: run.restore(loader="loader"), Unusable, "loader must have state_dict"),
    (lambda _: ps.CheckpointManager("run", mode=["min"]), Unusable, "mode must be 'min' or 'max'"),
    (lambda run: run.save(5, {}), AlreadyExists, "committed already: pass overwrite=True to replace it"),
    (lambda run: run.load(), AttributeError, r"'load': write restore\(\)"),
    (lambda run: run.speling, AttributeError, "has no attribute 'speling'$"),
    (lambda _: ps.save("a.pt", {}), Unusable, r"ps.save\(obj, url\), got a dict"),
    (lambda run: run.restore("5"), Unusable, "step must be an integer"),
    (lambda run: run.restore(6), NotFound, "000000000006"),
    (lambda run: run.delete("5"), Unusable, "step must be an integer"),
    (lambda run: run.delete(-1), Unusable, "step must be 0 to"),
    (lambda run: run.verify("5"), Unusable, "step must be an integer"),
    (lambda run: run.restore_folder("there"), CheckpointError, "is a state"),
    (lambda run: run.save_folder(6, "there"), NotFound, "folder does not exist"),
    (lambda run: run.save_folder(6, "notes.txt"), NotFound, "folder does not exist"),
    (lambda run: run.save(6, {"x": [object()]}), Unusable, "weights_only=False when it is saved"),
    (lambda run: run.save(6, {"keys": ps.S3Options(access_key="a", secret_key="b")}), Unusable, "pass profile="),
    (lambda _: ps.load("s3://bucket"), InvalidURL, "names a bucket, not an object"),
    (lambda _: ps.save({}, "s3://bucket/"), InvalidURL, "names a bucket, not an object"),
    (lambda _: ps.CheckpointManager(""), InvalidURL, "empty"),
    (lambda _: ps.CheckpointManager(Path("s3://bucket/run")), InvalidURL, "pathlib drops a slash"),
    (lambda _: ps.CheckpointManager("run", keep_last=0), Unusable, "1 or more"),
    (lambda _: CheckpointIO().remove_checkpoint(""), InvalidURL, "empty"),
    (lambda _: CheckpointIO().remove_checkpoint(Path()), InvalidURL, "the working directory"),
    (lambda _: CheckpointIO().remove_checkpoint(".."), InvalidURL, "the working directory"),
    (lambda _: CheckpointIO().remove_checkpoint("s3://bucket"), InvalidURL, "a whole bucket"),
    (lambda _: CheckpointIO().remove_checkpoint("run"), Unusable, "not a checkpoint"),
    (lambda _: CheckpointIO().save_checkpoint({}, Path("s3://bucket/a.ckpt")), InvalidURL, "pass the URL as text"),
    (lambda _: CheckpointIO().save_checkpoint({}, "a.ckpt", storage_options={}), Unusable, "store="),
    (lambda _: ModelCheckpoint(Path("s3://bucket/run")).setup(None), InvalidURL, "pass the URL as text"),
]


@pytest.fixture
def run(tmp_path, monkeypatch):
    """Work beside a run that has step 5."""
    monkeypatch.chdir(tmp_path)
    (tmp_path / "notes.txt").write_text("mine")
    run = ps.CheckpointManager("run", keep_best=1)
    run.save(5, {"kept": True}, metric=1.0)
    return run


@pytest.mark.parametrize(("write", "kind", "word"), MISUSES, ids=[f"{i}-{m[2]}" for i, m in enumerate(MISUSES)])
def test_invalid_checkpoint_call_raises_and_loses_no_data(run, write, kind, word):
    with pytest.raises(kind, match=word):
        write(run)
    assert run.restore() == {"kept": True}
    assert sorted(path.name for path in Path().iterdir()) == ["notes.txt", "run"]


def test_numbers_of_numpys_and_torchs_are_steps_and_metrics(run):
    for step, metric in ((np.int64(6), np.float32(0.5)), (torch.tensor(7), torch.tensor(0.25)), (True, 1)):
        run.save(step, {}, metric=metric)
    assert (run.steps(), run.describe(7).metric) == ([1, 7], 0.25), "the step just saved, and the best"
