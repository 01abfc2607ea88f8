"""A provider of a third party, in one file: `shelf://name/key` is the file `$SHELVES/name/key`."""

from __future__ import annotations

from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING

from penstock.engine.contracts.driver import Limits
from penstock.engine.transport.work import Threads
from penstock.errors import ConfigError
from penstock.options import StoreOptions
from penstock.stores.local.driver import Local
from penstock.stores.provider import Opening, Provider

if TYPE_CHECKING:
    from collections.abc import Mapping


@dataclass(frozen=True, slots=True, kw_only=True)
class ShelfOptions(StoreOptions):
    """Where the shelves are; default: `SHELVES`."""

    folder: str = ""
    password: str | None = None


class Shelf(Local):
    """One folder; files are named by URL."""

    def __init__(self, root: str, folder: str) -> None:
        super().__init__(folder)
        self._url = root

    def url(self, key: str) -> str:
        return self._url + key


def _resolve(options: ShelfOptions, environ: Mapping[str, str]) -> tuple[str, None]:
    folder = options.folder or environ.get("SHELVES", "")
    if not folder:
        raise ConfigError("no shelves: pass ShelfOptions(folder=…) or set SHELVES")
    return folder, None


def _open(opening: Opening) -> tuple[Shelf, Threads]:
    folder = Path(opening.settings, opening.bucket)
    folder.mkdir(parents=True, exist_ok=True)
    return Shelf(opening.root, str(folder)), Threads()


PROVIDER = Provider(
    name="the shelf",
    schemes=("shelf",),
    open=_open,
    resolve=_resolve,
    options=ShelfOptions,
    limits=Limits(key_bytes=100, least_part_bytes=1 << 20),
    key_fault=lambda key: "no file on a shelf begins with a dot" if key.startswith(".") else "",
)
BROKEN = "no provider"
RENAMED = replace(PROVIDER, schemes=("board",))
