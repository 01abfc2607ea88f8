"""Checkpoints that several ranks save and load together, through torch's Distributed Checkpoint."""
