"""Threads of the tests: many that work at the same moment, and waits for what others bring about."""

from __future__ import annotations

import sys
import threading
from time import monotonic, sleep

__all__ = ["at_once", "interrupt", "until"]


def at_once(*works, limit_s=60):
    """Do each work on a thread of its own, all at the same moment; returns what each returned or raised."""
    together, outcomes = threading.Barrier(len(works)), []

    def one(work):
        together.wait(limit_s)
        try:
            outcomes.append(work())
        except Exception as error:  # noqa: BLE001  the test's to judge
            outcomes.append(error)

    threads = [threading.Thread(target=one, args=(work,)) for work in works]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(limit_s)
    return outcomes


def interrupt(work, step, function=None):
    """Press Ctrl-C at such a step of the work, or of a function within it; returns whether it came so far.

    Each instruction of Python is a step.
    """
    left = step

    def steps(frame, _event, _argument):
        nonlocal left
        frame.f_trace_opcodes = True
        left -= 1
        if left == 0:
            raise KeyboardInterrupt
        return steps

    def within(frame, _event, _argument):
        return steps if frame.f_code is function.__code__ else None

    sys.settrace(steps if function is None else within)
    try:
        work()
    except KeyboardInterrupt:
        return True
    finally:
        sys.settrace(None)
    return False


def until(condition, limit_s=60):
    """Return once the condition holds."""
    ends_at = monotonic() + limit_s
    while not condition():
        assert monotonic() < ends_at
        sleep(0.005)
