"""A server in a child process that dies with its owner, however its owner dies."""

from __future__ import annotations

import subprocess
from contextlib import contextmanager
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

__all__ = ["running"]


@contextmanager
def running(command: Sequence[str], env: Mapping[str, str] | None = None) -> Iterator[str]:
    """Start ``command`` and yield the first line it prints: its word that it answers, and where.

    The child must end when its standard input does. That is the whole protocol, and it holds when this process is
    killed: the kernel closes the pipe.

    Raises:
        RuntimeError: The child ended without a line; what it had to say is on standard error.
    """
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, env=env) as child:
        assert child.stdin is not None
        assert child.stdout is not None
        try:
            line = child.stdout.readline().strip()
            if not line:
                message = f"{command[0]} ended with {child.wait()} and no server: see its standard error above"
                raise RuntimeError(message)
            yield line
        finally:
            child.stdin.close()
            # Forked grandchildren of this process may hold the pipe open a little longer.
            child.terminate()
