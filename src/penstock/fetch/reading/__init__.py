"""Reads: spans into memory, verified; ahead of a consumer, side by side, or as a file."""
