"""A process that imports what programs import, once, and forks one of its kind for each that is to run.

Started as `nursery.py SOCKET`. An order names modules: the first nursery has none of them, forks another that imports
the first and hands the order on to it, and so forth; who is asked for no more forks a warden, which forks the programs,
waits until they and all that they started have ended, and answers for them. Everything dies with its parent.

A program finds what an interpreter of its own would give it: its arguments, variables, folder, path and output, nothing
else open, ``__main__``, a session, the signals as they come; and it ends as interpreters end. Three things it shares
with those that are forked beside it: what was imported, which is why a nursery imports only what the program names
itself, what the libraries read from the environment meanwhile, and the seed of strings' hashes. Where that matters,
and a program shall be started as users start it, use ``torchrun`` of tests.edges.launch, or ``subprocess``.
"""

from __future__ import annotations

import ctypes
import faulthandler
import gc
import os
import runpy
import signal
import sys
import time
from contextlib import suppress
from importlib import import_module
from importlib.machinery import SourceFileLoader
from multiprocessing import Pipe
from multiprocessing.connection import Connection
from pathlib import Path
from types import ModuleType
from typing import NamedTuple

__all__ = ["Ended", "Order"]

GRACE_S = 10  # between asking what is left to end, and ending it
STACKS = signal.SIGUSR2  # what makes a program print its stacks and end
DIES_WITH_PARENT, ADOPTS_ORPHANS = 1, 36  # of <linux/prctl.h>: PR_SET_PDEATHSIG, PR_SET_CHILD_SUBREAPER


class Order(NamedTuple):
    """Programs to run beside one another: the same words, folder and output, and variables of each one's own."""

    modules: list[str]
    words: list[str]
    folder: str
    output: str
    variables: list[dict[str, str]]
    limit_s: float


class Ended(NamedTuple):
    """How programs ended: their exit codes, below zero the signals; whether it was because they reached the limit."""

    codes: list[int]
    hung: bool


def serve(orders: Connection) -> tuple[Order, int] | None:
    """Attend to orders until there are no more; returns too in each program to be: its order, and its number in it."""
    grown: dict[str, Connection] = {}
    while (order := _next(orders)) is not None:
        if order.modules:
            name = order.modules.pop(0)
            if name not in grown:
                grown[name], theirs = Pipe()
                if not _fork():
                    for each in (orders, *grown.values()):
                        each.close()
                    _load(name)
                    return serve(theirs)
                theirs.close()
            grown[name].send(tuple(order))
            orders.send(grown[name].recv())
        elif warden := _fork():
            os.waitpid(warden, 0)
        elif (number := _attend(order, orders)) is not None:
            return order, number
    for each in grown.values():
        each.close()
    with suppress(ChildProcessError):
        while True:
            os.wait()
    return None


def _next(orders: Connection) -> Order | None:
    try:
        return Order(*orders.recv())
    except EOFError:
        return None


def _fork() -> int:
    pid = os.fork()
    if not pid:
        _control(DIES_WITH_PARENT, signal.SIGKILL)
    return pid


def _control(what: int, value: int) -> None:
    ctypes.CDLL(None).prctl(what, value)


def _load(name: str) -> None:
    """Import a module if that is possible; a program that names one that is not there says so itself."""
    with suppress(ImportError):
        import_module(name)
    if len(list(Path("/proc/self/task").iterdir())) > 1:
        raise RuntimeError(f"{name} starts threads when it is imported: what forks afterwards would miss them")
    gc.collect()
    gc.freeze()  # or each collection in a program would copy all of it


# -- the warden ------------------------------------------------------------------------------------------------------


def _attend(order: Order, orders: Connection) -> int | None:
    """Run programs and answer for them, then end; returns in the programs alone, with their number."""
    _control(ADOPTS_ORPHANS, 1)
    started = []
    for number in range(len(order.variables)):
        started.append(_fork())
        if not started[-1]:
            return number
    orders.send(tuple(_ended(started, order.limit_s)))
    os._exit(0)


def _ended(started: list[int], limit_s: float) -> Ended:
    """Wait until all processes have ended; once one program fails, or at the limit, end what is left."""
    codes: dict[int, int] = {}
    ending, hung, until = None, False, time.monotonic() + limit_s
    while _reap(codes):
        if ending is None and any(codes.get(pid) for pid in started):
            ending, until = signal.SIGTERM, time.monotonic() + GRACE_S
        if ending is not None:
            _signal(ending)
        if signal.sigtimedwait({signal.SIGCHLD}, max(0, until - time.monotonic())) is None:
            hung |= ending is None
            ending, until = signal.SIGKILL if ending else STACKS, time.monotonic() + GRACE_S
    return Ended([codes[pid] for pid in started], hung)


def _reap(codes: dict[int, int]) -> bool:
    """Note how those ended that have; False where none is left."""
    try:
        while (ended := os.waitpid(-1, os.WNOHANG))[0]:
            codes.setdefault(ended[0], os.waitstatus_to_exitcode(ended[1]))
    except ChildProcessError:
        return False
    return True


def _signal(number: signal.Signals) -> None:
    """Send a signal to all children, also those that were left behind by others and fell to this process."""
    for pid in Path(f"/proc/self/task/{os.getpid()}/children").read_text("ascii").split():
        os.kill(int(pid), number)  # it is ours until we reap it


# -- a program -------------------------------------------------------------------------------------------------------


def become(order: Order, number: int) -> None:
    """Be a program: what it raises goes on from here, so that the interpreter ends as it would."""
    _detach(order, order.variables[number])
    _freshen()
    sys.argv = list(order.words)
    if order.words[0] == "-m":
        del sys.argv[0]
        sys.path.insert(0, order.folder)
        runpy.run_module(order.words[1], run_name="__main__", alter_sys=True)
        return
    sys.path.insert(0, str(Path(order.words[0]).resolve().parent))
    main = ModuleType("__main__")
    main.__annotations__, main.__cached__ = {}, None
    main.__file__ = str(Path(order.words[0]).absolute())
    main.__loader__ = SourceFileLoader("__main__", main.__file__)
    sys.modules["__main__"] = main  # not runpy's: threads and exit handlers find it after the last line too
    exec(compile(Path(main.__file__).read_bytes(), main.__file__, "exec", dont_inherit=True), main.__dict__)  # noqa: S102


def _detach(order: Order, variables: dict[str, str]) -> None:
    """Leave the nursery: its session, signals, folder, variables, and all that it has open."""
    os.setsid()
    signal.pthread_sigmask(signal.SIG_SETMASK, [])
    output = os.open(order.output, os.O_WRONLY | os.O_APPEND)
    os.dup2(output, 1)
    os.dup2(output, 2)
    os.closerange(3, max(int(each.name) for each in Path("/proc/self/fd").iterdir()) + 1)
    faulthandler.register(STACKS, all_threads=True, chain=True)
    os.chdir(order.folder)
    os.environ.clear()
    os.environ.update(variables)


def _freshen() -> None:
    """Have libraries that are there decide anew what they decided when they were imported."""
    if "numpy.random" in sys.modules:
        sys.modules["numpy.random"].seed()  # or all would draw the same; the standard library sees to its own
    if "torch" in sys.modules and "OMP_NUM_THREADS" in os.environ:
        sys.modules["torch"].set_num_threads(int(os.environ["OMP_NUM_THREADS"]))


def main() -> None:
    del sys.path[0]  # this folder is none of theirs
    _control(DIES_WITH_PARENT, signal.SIGKILL)
    signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGCHLD})  # it is waited for
    program = serve(Connection(int(sys.argv[1])))
    if program is None:
        os._exit(0)  # taking apart what it has imported would take a while
    become(*program)


if __name__ == "__main__":
    main()
