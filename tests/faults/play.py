"""Plays every case, side by side, in a process of its own, and writes them to its output: most of it is waiting."""

from __future__ import annotations

import pickle
import sys
from concurrent.futures import ThreadPoolExecutor

from tests.faults.cases import WAITS, Case, everything, run, small_limits

__all__ = ["main"]

WAITING, WORKING = 64, 4  # at once: those that wait are not in each other's way, and those that work would be


def main() -> None:
    """Play all cases, the waiting ones beside the others; stdout gets them, pickled, in any order."""
    cases = everything()
    with small_limits(), ThreadPoolExecutor(WAITING) as waiting, ThreadPoolExecutor(WORKING) as working:
        played = [(waiting if case.fault in WAITS else working).submit(_run, case) for case in cases]
        pickle.dump([each.result() for each in played], sys.stdout.buffer)


def _run(case: Case) -> Case:
    """Play one case; whatever else than an outcome comes of it is that case's alone."""
    try:
        return run(case)
    except Exception as error:  # noqa: BLE001  told by the case's test
        case.wrong.append(f"{type(error).__name__}: {error}")
        return case
