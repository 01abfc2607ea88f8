"""A Hugging Face Trainer whose checkpoints go to a bucket: its callback, and a training that is killed."""

from __future__ import annotations

import os
import signal
import sys
from pathlib import Path

import torch
from accelerate import PartialState
from transformers import PretrainedConfig, PreTrainedModel, Trainer, TrainerCallback, TrainingArguments

import penstock as ps

__all__ = ["Sending", "resumed", "trainer"]

STEPS = 12


class Sending(TrainerCallback):
    """Sends each checkpoint, once it is written, by way of a ``ps.CheckpointManager``."""

    def __init__(self, run):
        self.run = run

    def on_save(self, args, state, control, **_):  # noqa: ARG002  the Trainer's signature
        process = PartialState()
        process.wait_for_everyone()  # each rank writes a file of its own
        if process.is_main_process:
            folder = f"{args.output_dir}/checkpoint-{state.global_step}"
            self.run.save_folder(state.global_step, folder, overwrite=True)


def resumed(run, output):
    """Bring the newest checkpoint of the bucket to this machine; None where there is none."""
    step = run.latest()
    if step is None:
        return None
    folder = Path(output, f"checkpoint-{step}")
    if not folder.exists():
        run.restore_folder(folder, step)
    return str(folder)


class Line(PreTrainedModel):
    """A straight line, with dropout, so that it shows whether the generators come back too."""

    config_class = PretrainedConfig

    def __init__(self, config):
        super().__init__(config)
        self.layer = torch.nn.Linear(2, 1)
        self.post_init()

    def forward(self, x, labels):
        found = torch.nn.functional.dropout(self.layer(x), 0.5, self.training).squeeze(-1)
        return {"loss": torch.nn.functional.mse_loss(found, labels), "logits": found}


class Ending(TrainerCallback):
    """Ends the process by SIGKILL after a step, before that step is saved."""

    def __init__(self, step):
        self.step = step

    def on_step_end(self, args, state, control, **_):  # noqa: ARG002  the Trainer's signature
        if state.global_step == self.step:
            os.kill(os.getpid(), signal.SIGKILL)


def trainer(output, *callbacks):
    torch.manual_seed(0)
    model = Line(PretrainedConfig())
    data = [{"x": torch.tensor([number / 9, 1.0]), "labels": torch.tensor(number / 3)} for number in range(30)]
    arguments = TrainingArguments(
        output_dir=str(output),
        max_steps=STEPS,
        save_steps=2,
        save_total_limit=1,
        per_device_train_batch_size=4,
        logging_steps=1,
        report_to=[],
        use_cpu=True,
        disable_tqdm=True,
    )
    return Trainer(model=model, args=arguments, train_dataset=data, callbacks=list(callbacks))


def _main(url, output, dies_at):
    run = ps.CheckpointManager(url, keep_last=2)
    training = trainer(output, Sending(run), Ending(int(dies_at)))
    training.train(resume_from_checkpoint=resumed(run, output))


if __name__ == "__main__":
    _main(*sys.argv[1:])
