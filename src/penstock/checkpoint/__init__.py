"""Training state as objects: written whole or not at all, read in parallel ranges."""
