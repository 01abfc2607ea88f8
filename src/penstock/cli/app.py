"""The command line for typer: the module of ``commands`` for each command. Only needed modules are imported."""
# No `from __future__ import annotations`: typer evaluates annotations, and must find its own names in them.

import platform
from importlib import import_module
from importlib.metadata import version as installed
from typing import Annotated

from typer import Exit, Option, Typer

from penstock.cli.output import MEANINGS, write
from penstock.version import VERSION

# Module of ``commands`` with each command, in the order of the help. Its ``app`` has the command.
_HOMES = {
    "ls": "objects.ls",
    "stat": "objects.ls",
    "cp": "objects.cp",
    "mv": "objects.cp",
    **{name: f"objects.{name}" for name in ("rm", "cat", "du")},
    "find": "objects.ls",
    "mb": "buckets",
    "rb": "buckets",
    **{name: name for name in ("index", "catalog", "pack", "map", "sync")},
    "copy-tree": "jobs",
    "verify": "jobs",
    "jobs": "jobs",
    "presign": "objects.presign",
    **{name: name for name in ("checkpoint", "seen", "zarr", "cache", "config", "doctor", "report", "top", "demo")},
}


def build(word: str = "") -> Typer:
    """Return the whole command line or, if its first ``word`` is a command, only that command.

    Importing and preparing all commands takes longer than a copy of a few objects.
    """
    codes = "; ".join(f"{code} {meaning}" for code, meaning in MEANINGS.items())
    app = Typer(
        name="penstock",
        help="Stream training data and checkpoints between PyTorch and object storage.",
        epilog=f"Exit codes: {codes}. PENSTOCK_DEBUG=1 shows an error's traceback.",
        no_args_is_help=True,
        pretty_exceptions_enable=False,
        context_settings={"help_option_names": ["-h", "--help"]},
    )
    app.callback()(_root)
    names = (word,) if word in _HOMES else tuple(_HOMES)
    for home in dict.fromkeys(_HOMES[name] for name in names):
        part: Typer = import_module(f"penstock.cli.commands.{home}").app
        app.registered_commands += [
            each for each in part.registered_commands if (each.name or getattr(each.callback, "__name__", "")) in names
        ]
        app.registered_groups += [each for each in part.registered_groups if each.name in names]
    return app


def _show_versions(wanted: bool) -> None:  # noqa: FBT001  typer's form of a callback
    if wanted:
        write(f"penstock {VERSION} (Python {platform.python_version()}, pycurl {installed('pycurl')})\n")
        raise Exit


def _root(
    *,
    version: Annotated[
        bool, Option("--version", callback=_show_versions, is_eager=True, help="Print versions.")
    ] = False,
) -> None: ...
