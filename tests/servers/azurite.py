"""Azurite, Microsoft's emulator of Azure Blob Storage, which checks signatures and MD5 as the service does."""

from __future__ import annotations

import shutil
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

from tests.servers import Account
from tests.servers.child import running

if TYPE_CHECKING:
    from collections.abc import Iterator

__all__ = ["azurite", "missing"]

_SCRIPT = Path(__file__).with_name("azurite.js")
_FOLDER = Path(__file__).parents[2] / ".venv/azurite"
# The account that every Azurite has, with the key that its manual publishes.
_ACCOUNT = "devstoreaccount1"
_KEY = "Eby8vdM02xNOcqFlqUwJPLlmEtlCDXJ1OUzFT50uSRZ6IFsuFq2UVErCz4I6tq/K1SZFPTOtr/KBHBeksoGMGw=="


def missing() -> list[str]:
    """Return what would be needed and is not installed."""
    return [
        *(["node"] if shutil.which("node") is None else []),
        *([] if (_FOLDER / "node_modules/azurite").is_dir() else [f"azurite in {_FOLDER}"]),
    ]


@contextmanager
def azurite(*options: str) -> Iterator[Account]:
    """Run a fresh, empty account, all in memory, until the block ends; ``options`` are Azurite's own."""
    with running(["node", str(_SCRIPT), str(_FOLDER), *options]) as endpoint:
        yield Account(f"{endpoint}/{_ACCOUNT}", _ACCOUNT, _KEY)
