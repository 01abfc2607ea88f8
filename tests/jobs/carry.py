"""Carries one task out, for tests that look at what came of it."""

from __future__ import annotations

from threading import Event

from penstock.errors import PenstockError
from penstock.jobs.tasks import run_jobs


def carry(task):
    """Return what a task returns, or raise what it raises."""
    ((_, result),) = run_jobs([task], lambda task: task, lambda _: 0, Event())
    if isinstance(result, PenstockError):
        raise result
    return result
