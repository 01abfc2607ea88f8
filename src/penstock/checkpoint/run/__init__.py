"""The checkpoints of one training run: saved by step, restored, retained and cleaned."""
