"""A store of a third party, in one file: `shelf://name/key` is the file `$SHELVES/name/key`."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from penstock.engine.contracts.driver import Limits
from penstock.engine.transport.work import Threads
from penstock.errors import ConfigError
from penstock.options import StoreOptions
from penstock.stores.local.driver import LocalDriver
from penstock.stores.store import Opening, Store

if TYPE_CHECKING:
    from collections.abc import Mapping


@dataclass(frozen=True, slots=True, kw_only=True)
class ShelfOptions(StoreOptions):
    """Where the shelves are; default: `SHELVES`."""

    folder: str = ""
    password: str | None = None


class ShelfDriver(LocalDriver):
    """One folder; files are named by URL."""

    def __init__(self, root: str, folder: str) -> None:
        super().__init__(folder)
        self._url = root

    def url(self, key: str) -> str:
        return self._url + key


class Shelf(Store):
    name = "the shelf"
    schemes = ("shelf",)
    options = ShelfOptions
    limits = Limits(key_bytes=100, least_part_bytes=1 << 20)

    def open(self, opening: Opening) -> tuple[ShelfDriver, Threads]:
        folder = Path(opening.settings, opening.bucket)
        folder.mkdir(parents=True, exist_ok=True)
        return ShelfDriver(opening.root, str(folder)), Threads()

    def resolve(self, options: ShelfOptions, environ: Mapping[str, str]) -> tuple[str, None]:
        folder = options.folder or environ.get("SHELVES", "")
        if not folder:
            raise ConfigError("no shelves: pass ShelfOptions(folder=…) or set SHELVES")
        return folder, None

    def key_fault(self, key: str) -> str:
        return "no file on a shelf begins with a dot" if key.startswith(".") else ""


class Tray(Shelf):
    schemes = ("board",)


BROKEN = "no store"
