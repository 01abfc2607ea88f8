"""A process that has the command's modules loaded and forks another for each command line: a fifth of what each costs.

What is forked finds what an interpreter of its own would give it: words, variables, folder and standard files.
"""

from __future__ import annotations

import gc
import json
import os
import pkgutil
import signal
import socket
import subprocess
import sys
import tempfile
import threading
from contextlib import ExitStack, contextmanager, suppress
from importlib import import_module
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    Run = Callable[[list[str], dict[str, str]], subprocess.CompletedProcess[str]]

__all__ = ["run", "warm"]

LIMIT_S = 240
_MOST_BYTES = 1 << 20


@contextmanager
def warm() -> Iterator[Run]:
    """Yield a function that runs a command line with an environment to its end; TimeoutExpired where it hangs."""
    ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    ours.settimeout(LIMIT_S)
    code = f"from tests.cli.warm import run; run({theirs.fileno()})"
    command = [sys.executable, "-c", code]
    with ours, theirs, subprocess.Popen(command, pass_fds=[theirs.fileno()], process_group=0) as process:
        theirs.close()
        try:
            yield lambda words, env: _ordered(ours, words, env)
        finally:
            os.killpg(process.pid, signal.SIGKILL)  # and with it what hangs


def _ordered(orders: socket.socket, words: list[str], env: dict[str, str]) -> subprocess.CompletedProcess[str]:
    with ExitStack() as ends:
        nothing = ends.enter_context(open(os.devnull, "rb"))
        out, err = (ends.enter_context(tempfile.TemporaryFile("w+", encoding="utf-8")) for _ in range(2))
        order = json.dumps([words, env, os.getcwd()]).encode()  # noqa: PTH109  a string
        socket.send_fds(orders, [order], [each.fileno() for each in (nothing, out, err)])
        try:
            status = int(orders.recv(64))
        except TimeoutError:
            raise subprocess.TimeoutExpired(words, LIMIT_S) from None
        for each in (out, err):
            each.seek(0)
        return subprocess.CompletedProcess(words, status, out.read(), err.read())


def run(descriptor: int) -> None:
    """Take orders until there are no more; in each child, be the command, and end as it ends."""
    import penstock.cli

    for each in pkgutil.walk_packages(penstock.cli.__path__, "penstock.cli."):
        import_module(each.name)
    import_module("penstock.engine.transport.libcurl")
    with suppress(ImportError):
        import_module("typer._adapters")  # which typer imports with the first value
    assert threading.active_count() == 1, "what is forked would miss them"
    gc.collect()
    gc.freeze()  # or each child would look through all of it when it ends, and copy it: half of its time
    with socket.socket(fileno=descriptor) as orders:
        while True:
            order, files, _, _ = socket.recv_fds(orders, _MOST_BYTES, 3)
            if not order:
                return
            pid = os.fork()
            if not pid:
                break
            for each in files:
                os.close(each)
            orders.send(str(os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])).encode())
    words, env, folder = json.loads(order)
    for number, each in enumerate(files):
        os.dup2(each, number)
        os.close(each)
    os.chdir(folder)
    os.environ.clear()
    os.environ.update(env)
    sys.argv = ["-c", *words]
    penstock.cli.main()
