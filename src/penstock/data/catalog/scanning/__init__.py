"""Parallel listing of a prefix: its requests and parts, a journal to resume from, and errors for empty results."""
