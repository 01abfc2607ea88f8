"""What spawned workers make of samples; a module of its own, so that they import nothing else of the tests."""

from __future__ import annotations

__all__ = ["number"]


def number(sample):
    """Return the number that a sample's bytes are."""
    return int(bytes(sample.data))
