"""Samples of Zarr arrays: which elements make a sample, which chunks hold them, and when each chunk is read."""
