"""Exit of a command: one line for the user, one exit code for the calling script."""

from __future__ import annotations

import os
import sys
from contextlib import contextmanager
from typing import TYPE_CHECKING

from penstock.errors import Damaged, Denied, NoSpace, PenstockError, Transient, Unusable

if TYPE_CHECKING:
    from collections.abc import Iterator

__all__ = ["CODES", "INTERRUPTED", "MEANINGS", "exit_on_error", "outgoing", "write"]

MEANINGS = {
    0: "done",
    1: "nothing found, or another failure",
    2: "wrong usage or settings",
    3: "denied",
    4: "try later",
    5: "damaged data",
    6: "no space left",
    130: "interrupted",
    141: "the output's reader has gone",
}
CODES: dict[type[PenstockError], int] = {Unusable: 2, Denied: 3, Transient: 4, Damaged: 5, NoSpace: 6}
INTERRUPTED = 130
# 130 and 141 as in a shell after a signal: 128 + the number of the signal.
_OTHER, _PIPE_CLOSED = 1, 141


@contextmanager
def exit_on_error() -> Iterator[None]:
    """Print errors of Penstock in one line on standard error and exit with their code.

    ``PENSTOCK_DEBUG=1`` shows the traceback.
    """
    try:
        yield
    except KeyboardInterrupt:
        raise SystemExit(INTERRUPTED) from None
    except SystemExit as end:
        if isinstance(end.__context__, BrokenPipeError):
            # Help texts of rich and typer do not go through ``write``.
            raise SystemExit(_PIPE_CLOSED) from None
        raise
    except PenstockError as error:
        if os.environ.get("PENSTOCK_DEBUG") == "1":
            raise
        print(f"penstock: {error}", file=sys.stderr)
        code = next((code for kind, code in CODES.items() if isinstance(error, kind)), _OTHER)
        raise SystemExit(code) from None


def write(text: str) -> None:
    """Write to standard output and flush; if its reader has closed it, exit quietly, like other programs on SIGPIPE.

    Raises:
        NoSpace: Standard output goes to a full disk.
        Unusable: Standard output cannot be written.

    """
    with outgoing():
        sys.stdout.write(text)
        sys.stdout.flush()


@contextmanager
def outgoing() -> Iterator[None]:
    """Handle errors as ``write`` does, for a block that writes to standard output in a different way."""
    try:
        yield
    except OSError as error:
        # Discard buffered output; otherwise the interpreter would report an error at exit.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        if isinstance(error, BrokenPipeError):
            raise SystemExit(_PIPE_CLOSED) from None
        kind = NoSpace if error.errno in NoSpace.ERRNOS else Unusable
        raise kind(f"cannot write to standard output: {error.strerror}") from error
