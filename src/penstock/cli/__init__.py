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

_COLLECTED = 10_000  # new objects; with Python's 700, looking for cycles takes 7% of the CPU of many small copies


def main() -> None:
    """Run the command line; ends the process with one of the codes that ``penstock --help`` lists."""
    gc.set_threshold(_COLLECTED)
    with exit_on_error():
        if sys.stdout is None:  # closed (``>&-``): to write there is an error, and no socket gets its number
            sys.stdout = open(os.open(os.devnull, os.O_RDONLY), "w", encoding="utf-8")  # noqa: PTH123, SIM115
        if isinstance(sys.stdout, TextIOWrapper):  # names of files that are no UTF-8 go out as they are
            utf_8 = sys.stdout.encoding.lower() == "utf-8"
            sys.stdout.reconfigure(errors="surrogateescape" if utf_8 else "backslashreplace")
        missing = [name for name in ("typer", "rich") if find_spec(name) is None]
        if missing:
            raise MissingExtra(f"the command needs {' and '.join(missing)}: pip install 'penstock[cli]'")
        from penstock.cli.app import build

        build("".join(sys.argv[1:2]))(prog_name="penstock")
