"""How much memory this machine has, or this container."""

from __future__ import annotations

import os
from contextlib import suppress
from functools import cache
from pathlib import Path
from typing import Final

__all__ = ["memory_bytes"]

_LIMITS: Final = ("/sys/fs/cgroup/memory.max", "/sys/fs/cgroup/memory/memory.limit_in_bytes")  # version 2, version 1


@cache
def memory_bytes(limits: tuple[str, ...] = _LIMITS) -> int:
    """Return the bytes of memory that all processes here may use together: the machine's, or the control group's.

    It is looked up once in a process.
    """
    found = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    for limit in limits:
        with suppress(OSError, ValueError):  # another version, or "max"
            found = min(found, int(Path(limit).read_text("ascii")))
    return found
