"""Checkpoints as objects: written atomically, read in parallel ranges."""
