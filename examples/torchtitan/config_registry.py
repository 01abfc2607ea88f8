"""Configurations of torchtitan's debug model with tokens of a bucket: ``--module examples.torchtitan --config packed``.

Pass ``--dataloader.dataset_path s3://bucket/tokens/``.
"""

from __future__ import annotations

import os
from dataclasses import dataclass
from typing import Any, Never

from torchtitan.components.tokenizer import BaseTokenizer
from torchtitan.models.llama3.config_registry import llama3_debugmodel

from examples.torchtitan.loader import PenstockLoader


class NoTokenizer(BaseTokenizer):
    """The tokenizer of a training whose data are tokens already."""

    @dataclass(kw_only=True, slots=True)
    class Config(BaseTokenizer.Config):
        """No settings."""

    def __init__(self, config: Config, **_: Any) -> None:
        super().__init__()

    def encode(self, *_: Any, **__: Any) -> Never:
        raise NotImplementedError

    decode = get_vocab_size = encode


def windows() -> Any:
    """Return the debug model on windows of tokens: two epochs, 12 rows a step on 1, 2, 3 or 6 ranks."""
    config = llama3_debugmodel()
    config.tokenizer = NoTokenizer.Config()
    config.dataloader = PenstockLoader.Config(infinite=False, epochs=2, lanes=6)
    config.training.seq_len, config.training.mixed_precision_param = 64, "float32"
    config.training.local_batch_size = 12 // int(os.environ["WORLD_SIZE"])
    config.training.steps = 1_000
    config.checkpoint.enable, config.checkpoint.interval = True, 2
    config.debug.seed = 1
    return config


def packed() -> Any:
    """Return the same on rows of whole documents."""
    config = windows()
    config.dataloader.pack = "best-fit"
    return config
