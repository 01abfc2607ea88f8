"""Train with torchtitan on CPUs, and log the rows and the loss of each step: what torchrun starts.

All arguments but ``--log`` are torchtitan's.
"""

from __future__ import annotations

import argparse
import json
import os
from hashlib import sha256
from pathlib import Path
from typing import TYPE_CHECKING, Any

# The first import: torchtitan asks for its device when it is imported.
import examples.torchtitan.cpu  # noqa: F401

# isort: split
import torch
from torch.distributed.fsdp import FSDPModule
from torchtitan.config import ConfigManager
from torchtitan.tools.logging import init_logger
from torchtitan.trainer import Trainer

from penstock.interop.fsspec import register

if TYPE_CHECKING:
    from collections.abc import Iterator


def digests(inputs: dict[str, torch.Tensor], labels: torch.Tensor) -> Iterator[str]:
    """Yield a digest of each sequence of a batch: of a window, or of a document in a packed row."""
    for tokens, places, targets in zip(inputs["input"], inputs["positions"], labels, strict=True):
        begins = (places == 0).nonzero()[1:, 0]
        for piece, wanted in zip(tokens.tensor_split(begins), targets.tensor_split(begins), strict=True):
            # A padding has no label; a window has one more than its input.
            if (wanted >= 0).any():
                last = wanted[-1:][wanted[-1:] >= 0]
                yield sha256(torch.cat((piece, last)).numpy().astype("u2").tobytes()).hexdigest()[:16]


class LoggedTrainer(Trainer):
    """torchtitan's trainer, which appends lines of JSON to a file."""

    def __init__(self, config: Any, log: Path) -> None:
        super().__init__(config)
        for module in self.model_parts[0].modules():
            # Gloo has no other reduction than the sum.
            if isinstance(module, FSDPModule):
                module.set_force_sum_reduction_for_comms(True)
        self.log = log.with_suffix(f".{torch.distributed.get_rank()}.jsonl").open("a")
        self.began = False
        show = self.metrics_processor.log

        def note(step: int, loss: float, *others: Any, **named: Any) -> None:
            self.loss = loss
            show(step, loss, *others, **named)

        self.metrics_processor.log = note

    def report(self, **values: Any) -> None:
        self.log.write(json.dumps(values) + "\n")
        self.log.flush()

    def train_step(self, data_iterator: Any) -> None:
        if not self.began:
            self.report(pid=os.getpid(), began=self.step - 1)
            self.began = True
        rows = list[str]()

        def watched() -> Iterator[Any]:
            for inputs, labels in data_iterator:
                rows.extend(digests(inputs, labels))
                yield inputs, labels

        super().train_step(watched())
        self.report(step=self.step, rows=rows, loss=self.loss)


def main() -> None:
    """Train until the epochs of the dataloader end."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--log", required=True, type=Path, help="file for lines of JSON; the rank is appended")
    given, rest = parser.parse_known_args()
    torch.set_num_threads(1)
    # torchtitan opens the URLs of its checkpoints with fsspec.
    register("s3")
    init_logger()
    trainer = LoggedTrainer(ConfigManager().parse_args(rest), given.log)
    trainer.train()
    trainer.close()
    torch.distributed.destroy_process_group()


if __name__ == "__main__":
    main()
