"""The command ``penstock``."""

from __future__ import annotations

from importlib.util import find_spec

from penstock.cli.exits import told
from penstock.errors import MissingExtra

__all__ = ["main"]


def main() -> None:
    """Run the command line; ends the process with one of the codes that ``penstock --help`` lists."""
    with told():
        missing = [name for name in ("typer", "rich") if find_spec(name) is None]
        if missing:
            raise MissingExtra(f"the command needs {' and '.join(missing)}: pip install 'penstock[cli]'")
        from penstock.cli.app import build

        build()(prog_name="penstock")
