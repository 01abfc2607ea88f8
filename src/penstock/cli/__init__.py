"""The command ``penstock``."""

from __future__ import annotations

import gc
import os
import sys
from importlib.util import find_spec
from io import TextIOWrapper

from penstock.cli.exits import exit_on_error
from penstock.errors import MissingExtra

__all__ = ["main"]

# New objects per garbage collection; with Python's 700, the search for cycles takes 7% of the CPU of many small copies.
_COLLECTED = 10_000


def main() -> None:
    """Run the command line; ends the process with one of the codes that ``penstock --help`` lists."""
    gc.set_threshold(_COLLECTED)
    with exit_on_error():
        # Standard output is closed (``>&-``): writing to it is an error, and no socket may get its file descriptor.
        if sys.stdout is None:
            sys.stdout = open(os.open(os.devnull, os.O_RDONLY), "w", encoding="utf-8")  # noqa: PTH123, SIM115
        # File names that are not UTF-8 are written unchanged.
        if isinstance(sys.stdout, TextIOWrapper):
            utf_8 = sys.stdout.encoding.lower() == "utf-8"
            sys.stdout.reconfigure(errors="surrogateescape" if utf_8 else "backslashreplace")
        missing = [name for name in ("typer", "rich") if find_spec(name) is None]
        if missing:
            raise MissingExtra(f"the command needs {' and '.join(missing)}: pip install 'penstock[cli]'")
        from penstock.cli.app import build

        build("".join(sys.argv[1:2]))(prog_name="penstock")
