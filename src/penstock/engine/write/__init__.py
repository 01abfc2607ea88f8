"""Writes: parts in parallel, published in one step."""
