"""Hugging Face's Trainer and Accelerate go on from a bucket, on a machine that has nothing else, as if all were one."""

from __future__ import annotations

import signal
from pathlib import Path

import pytest
import torch

import penstock as ps
from penstock.errors import ChecksumMismatch, Unusable
from tests.edges.launch import program

transformers = pytest.importorskip("transformers")
accelerate = pytest.importorskip("accelerate")

from tests.edges.hugging import STEPS, Sending, resumed, trainer  # noqa: E402  it needs transformers


@pytest.fixture(scope="module")
def whole(tmp_path_factory):
    """Return the losses, step by step, of a training that nothing interrupts, and its last weights."""
    training = trainer(tmp_path_factory.mktemp("whole"))
    training.train()
    return _history(training)


def _history(training):
    losses = [each["loss"] for each in training.state.log_history if "loss" in each]
    return losses, [each.tolist() for each in training.model.parameters()]


def _environment(bucket):
    return bucket.server.environment | {"HF_HUB_OFFLINE": "1"}


def test_killed_training_resumes_on_new_machine_from_bucket_alone(bucket, whole, tmp_path):
    run = ps.CheckpointManager(f"{bucket.url}run", keep_last=2, store=bucket.store)
    for dies_at, saved in ((5, [2, 4]), (11, [8, 10])):  # the second goes on from the first
        output = tmp_path / f"machine-{dies_at}"
        ended = program(
            Path(__file__).with_name("hugging.py"), f"{bucket.url}run", output, dies_at, **_environment(bucket)
        )
        assert ended.returncode == -signal.SIGKILL, ended.stdout
        assert run.steps() == saved
    output = tmp_path / "bare"
    training = trainer(output, Sending(run))
    training.train(resume_from_checkpoint=resumed(run, output))
    assert _history(training) == whole
    assert run.steps() == [10, STEPS]


def test_a_damaged_checkpoint_is_not_gone_on_from(tmp_path):
    run = ps.CheckpointManager(tmp_path / "run")
    trainer(tmp_path / "first", Sending(run)).train()
    (stored,) = (tmp_path / f"run/{STEPS:012}").glob("*/optimizer.pt")
    data = bytearray(stored.read_bytes())
    data[len(data) // 2] ^= 1
    stored.write_bytes(data)
    with pytest.raises(ChecksumMismatch, match=r"optimizer\.pt"):
        resumed(run, tmp_path / "bare")
    assert list((tmp_path / "bare").iterdir()) == []


def _accelerated(bucket, run):
    """Return a generator of an accelerated training's losses, which goes on from ``run``; send it anything to save."""
    from accelerate import Accelerator

    torch.manual_seed(0)
    accelerator = Accelerator(cpu=True)
    model = torch.nn.Sequential(torch.nn.Linear(1, 4), torch.nn.Dropout(0.5), torch.nn.Linear(4, 1))
    optimizer = torch.optim.Adam(model.parameters(), 0.1)
    model, optimizer = accelerator.prepare(model, optimizer)
    dataset = ps.MapDataset.from_prefix(f"{bucket.url}data/", transform=_number, store=bucket.store)
    loader = ps.DataLoader(dataset, 3, shuffle=True)
    parts = {"model": accelerator.unwrap_model(model), "optimizer": optimizer}
    if run.latest() is not None:
        state = run.restore(loader=loader, map_location=accelerator.device)
        for name, part in parts.items():
            part.load_state_dict(state[name])
    for batch in loader:
        loss = model(batch).square().mean()
        accelerator.backward(loss)
        optimizer.step()
        optimizer.zero_grad()
        if (yield loss.item()):
            run.save(1, {name: part.state_dict() for name, part in parts.items()}, loader=loader)


def _number(sample):
    return torch.tensor([float(sample.read())])


def test_accelerate_resumes_model_optimizer_and_data_from_one_checkpoint(bucket):
    for number in range(20):
        bucket.client.put_object(Bucket=bucket.name, Key=f"data/{number:02}", Body=str(number).encode())
    whole = list(_accelerated(bucket, ps.CheckpointManager(f"{bucket.url}none", store=bucket.store)))
    run = ps.CheckpointManager(f"{bucket.url}run", store=bucket.store)
    stopped = _accelerated(bucket, run)
    losses = [next(stopped), next(stopped)]
    assert stopped.send("save") == whole[2]  # it saved after the second step
    stopped.close()
    assert losses + list(_accelerated(bucket, run)) == whole


@pytest.mark.parametrize("workers", [0, 2])
def test_loader_is_not_rebuilt_to_skip_batches_but_refused_with_what_to_do(tmp_path, workers):
    (tmp_path / "a.txt").write_text("a")
    loader = ps.DataLoader(ps.MapDataset.from_prefix(tmp_path), num_workers=workers)
    with pytest.raises(Unusable, match=r"loader\.load_state_dict\(\) .*ignore_data_skip=True"):
        accelerate.skip_first_batches(loader, 1)
