"""How many processors this process may use."""

from __future__ import annotations

import os

__all__ = ["processors"]


def processors() -> int:
    """Return their number: those that a job scheduler leaves it, or the machine's where the system does not tell."""
    affinity = getattr(os, "sched_getaffinity", None)  # Linux alone tells
    return len(affinity(0)) if affinity is not None else os.cpu_count() or 1
