"""A system without what only Linux has: run as ``sitecustomize``, by the interpreter and by all that it starts.

``/proc``, ``/sys`` and ``/dev/shm`` are not there, nor memory files and affinity, and processes are spawned.
"""

from __future__ import annotations

import os
import subprocess  # noqa: F401  modules of the standard library that look at the platform when they are imported
import sys
import sysconfig
import urllib.request  # noqa: F401

ABSENT = ("/proc", "/sys/", "/dev/shm")  # noqa: S108  a place that is refused


def refuse(event: str, arguments: tuple[object, ...]) -> None:
    if event in ("open", "os.listdir", "os.scandir") and str(arguments[0]).startswith(ABSENT):
        raise FileNotFoundError(2, "absent here", arguments[0])


sysconfig.get_config_vars()
sys.addaudithook(refuse)
for name in ("memfd_create", "sched_getaffinity", "sched_setaffinity", "eventfd", "posix_fadvise"):
    if hasattr(os, name):
        delattr(os, name)
sys.platform = "darwin"
