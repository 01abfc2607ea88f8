"""Children of the tests: forks that must end, and interpreters that run a script."""

from __future__ import annotations

import ctypes
import os
import select
import signal
import subprocess
import sys
import textwrap
import traceback
from contextlib import contextmanager
from functools import partial
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

__all__ = ["PEAK_KIB", "children", "forked", "in_c_thread", "in_child", "killing", "python", "unprivileged"]

NOBODY = 65534

# For scripts: a function of the most memory this program has held. ru_maxrss will not do: a child inherits its
# parent's, so beside a large test process nothing would ever be seen to grow. And one that makes it what is held now,
# so that one interpreter, which takes seconds to import torch, can measure one thing after another.
PEAK_KIB = """
def peak_kib():
    with open("/proc/self/status") as lines:
        return next(int(line.split()[1]) for line in lines if line.startswith("VmHWM"))

def forget_peak():
    with open("/proc/self/clear_refs", "w") as file:
        file.write("5")
"""


def children() -> list[int]:
    """Return the processes that this one has forked, on this thread, and not waited for."""
    return [int(each) for each in Path(f"/proc/self/task/{os.getpid()}/children").read_text().split()]


@contextmanager
def forked(work: Callable[[], object], limit_s: float = 60) -> Iterator[Callable[[], int]]:
    """Run ``work`` in a forked child; what is yielded waits for its exit status, and kills it where it hangs."""
    ended, signal_end = os.pipe()
    pid = os.fork()
    if pid == 0:
        status = 1
        try:
            work()
            status = 0
        except BaseException:
            traceback.print_exc()
            raise
        finally:
            os._exit(status)
    os.close(signal_end)

    def status() -> int:
        if not select.select([ended], [], [], limit_s)[0]:
            os.kill(pid, signal.SIGKILL)
        return os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])

    try:
        yield status
    finally:
        os.close(ended)


def in_child(work: Callable[[], object], limit_s: float = 60) -> None:
    """Run ``work`` in a forked child, which must end well."""
    with forked(work, limit_s) as status:
        assert status() == 0


def in_c_thread(work: Callable[..., object], *arguments: object) -> object:
    """Return what ``work`` returns in a thread that C has started, where no function of Python's has called it."""
    found: list[object] = []
    # Only C calls here: extend, map, and then the work itself.
    call = ctypes.CFUNCTYPE(None)(partial(found.extend, map(work, *([each] for each in arguments))))
    library, thread = ctypes.CDLL(None), ctypes.c_ulong()
    assert library.pthread_create(ctypes.byref(thread), None, call, None) == 0
    assert library.pthread_join(thread, None) == 0
    return found[0]


def unprivileged(work: Callable[[], object], folder: Path) -> int:
    """Run ``work`` in a forked child within a folder of its own, held to the modes of files; returns its exit status.

    Root, which is held to none, becomes another user there for good.
    """
    here = os.open(folder, getattr(os, "O_PATH", os.O_RDONLY))  # what is above it may belong to root alone
    root = os.geteuid() == 0
    if root:
        for each in (folder, *folder.rglob("*")):
            os.chown(each, NOBODY, NOBODY)

    def work_there() -> None:
        os.fchdir(here)
        if root:
            os.setgroups([])
            os.setgid(NOBODY)
            os.setuid(NOBODY)
        work()

    with forked(work_there) as status:
        os.close(here)
        return status()


def python(script: str, *arguments: str, limit_s: float = 60) -> subprocess.CompletedProcess[str]:
    """Run a script in an interpreter of its own; raises TimeoutExpired where it hangs."""
    command = [sys.executable, "-X", "faulthandler", "-c", textwrap.dedent(script), *arguments]
    return subprocess.run(command, capture_output=True, text=True, timeout=limit_s, check=False)


def killing(work: Callable[[str, str], object], *modules: str) -> None:
    """Take lines `word word seconds`: fork a child that works, kill it after that many, if any, and say how it ended.

    So that killing one costs no interpreter; nor does each import again what writing to S3 takes, and ``modules``.
    """
    s3 = ("penstock.stores.s3.credentials", "penstock.stores.s3.driver", "penstock.engine.transport.loop")
    for name in (*s3, *modules):
        import_module(name)
    for line in sys.stdin:
        one, other, seconds = line.split()
        ended, held = os.pipe()  # the end that the child holds closes when it ends
        pid = os.fork()
        if not pid:
            status = 1
            try:
                work(one, other)
                status = 0
            finally:
                os._exit(status)
        os.close(held)
        if float(seconds) and not select.select([ended], [], [], float(seconds))[0]:
            os.kill(pid, signal.SIGKILL)  # ours still, even if it has ended: nobody has waited for it yet
        os.close(ended)
        print(os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]), flush=True)
