"""The checkpoints of one training run: saved by step, restored, retained and cleaned.

``steps`` is ``CheckpointManager``, with retention; ``store`` lists and deletes committed steps; ``restore`` finds and
reads one; ``ranks`` saves and restores with all ranks of a group; ``background`` saves a copy of the state on a thread.
"""
