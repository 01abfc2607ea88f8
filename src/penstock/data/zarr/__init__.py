"""Datasets of Zarr arrays: the elements of each sample, the chunks that hold them, and the order of chunk reads."""
