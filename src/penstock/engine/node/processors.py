"""The number of processors that this process may use."""

from __future__ import annotations

import os

__all__ = ["processors"]


def processors() -> int:
    """Return how many processors a job scheduler leaves this process, or the machine's number if unknown."""
    affinity = getattr(os, "sched_getaffinity", None)  # Linux only
    return len(affinity(0)) if affinity is not None else os.cpu_count() or 1
