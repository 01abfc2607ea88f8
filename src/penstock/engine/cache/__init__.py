"""On-disk cache of objects and blocks, shared by all processes of a machine, and the read layer above it."""
