"""Lightning's checkpoints on an object store: a plugin, a callback and a strategy."""

from penstock.errors import needing

with needing("penstock.checkpoint.lightning needs lightning", torch="lightning", lightning="lightning"):
    from penstock.checkpoint.lightning.plugins import (
        AsyncCheckpointIO,
        CheckpointIO,
        ModelCheckpoint,
        ModelParallelStrategy,
    )

__all__ = ["AsyncCheckpointIO", "CheckpointIO", "ModelCheckpoint", "ModelParallelStrategy"]
