"""Training state as objects: written atomically, read in parallel ranges."""
