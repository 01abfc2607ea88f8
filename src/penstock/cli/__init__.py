"""The command ``penstock``.

From ``penstock cp a b`` in a shell to the exit code:

1. ``main`` (this file) prepares standard output, and ``output.exit_on_error`` surrounds all that follows.
2. ``app.build`` finds the word ``cp`` in its table, imports ``commands/objects/cp.py`` alone, and typer parses
   the arguments.
3. ``options.with_store`` turns ``--store``, ``-o`` and the like into the options of the URLs' provider.
4. ``commands.objects.cp.cp``, whose signature and docstring are the options and the help, calls public functions of
   Penstock or of ``jobs/``: here ``jobs.transfer``, which yields an outcome for each object.
5. ``output.Report`` prints a line of JSON for each, then errors and sums on standard error, and raises ``SystemExit``
   with the code of the worst failure. ``screen`` draws marks, colours and bars on a terminal.
6. Any other error of Penstock becomes one line and a code of ``output.CODES``.

The work of ``penstock doctor`` is in ``doctor.py``, ``findings.py`` and ``speed.py``, that of ``demo`` in ``demo/``.
"""

from __future__ import annotations

import gc
import os
import sys
from importlib.util import find_spec
from io import TextIOWrapper

from penstock.cli.output import exit_on_error
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
