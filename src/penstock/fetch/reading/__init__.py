"""Reads: spans into memory, verified; ahead of a consumer, in parallel, or as a file."""
