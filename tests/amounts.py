"""How much the random tests draw: in `make soak` more than in `make test`."""

from __future__ import annotations

import os

__all__ = ["SOAK", "examples"]

# Read when a test is imported: the environment is made clean before the first test runs.
SOAK = os.environ.get("PENSTOCK_SOAK") == "1"


def examples(count: int) -> int:
    """Return how many examples hypothesis draws for a test that draws ``count`` in `make test`."""
    return count * 20 if SOAK else count
