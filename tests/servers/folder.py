"""Fills the folder that a web server serves, as a driver: what a read-only store's contract is tested with."""

from __future__ import annotations

import os
from itertools import count
from typing import TYPE_CHECKING
from urllib.error import HTTPError
from urllib.parse import quote, unquote
from urllib.request import Request, urlopen

from penstock.stores.direct import direct
from penstock.stores.local.driver import LocalDriver
from penstock.stores.web.route import canonical, escape_key, version_of
from penstock.testing.drivers import KEYS

if TYPE_CHECKING:
    from pathlib import Path

    from penstock.engine.contracts.driver import Attributes, Payload
    from penstock.engine.contracts.exchange import Exchange

__all__ = ["WEB_KEYS", "Folder"]

# Names that a folder can hold and a server does not fold into others, in the spelling that listings give.
WEB_KEYS = tuple(
    canonical(quote(key, safe="/"))
    for key in KEYS
    if "//" not in key and not key.startswith(("/", ".")) and not key.endswith("/") and "/." not in key
)


class Folder(LocalDriver):
    """A folder, and the server that shows it: what is put has the version that the server gives it."""

    def __init__(self, folder: Path, root: str) -> None:
        super().__init__(str(folder))
        self._folder = folder
        self._server = root
        self._clock = count()

    def put(self, key: str, body: Payload, attributes: Attributes) -> Exchange[str]:
        del attributes
        path = self._folder / unquote(key)

        def run() -> str:
            path.parent.mkdir(parents=True, exist_ok=True)
            aside = path.with_name(f".{next(self._clock)}")
            aside.write_bytes(body.data)
            os.utime(aside, (self._now(), self._now()))  # dates have seconds
            aside.replace(path)
            try:
                request = Request(self._server + escape_key(key), method="HEAD")  # noqa: S310  the test's own server
                with urlopen(request) as answer:  # noqa: S310  likewise
                    return version_of({name.lower(): value for name, value in answer.headers.items()})
            except HTTPError as error:
                return f"HTTP {error.code}"

        return direct(run)

    def _now(self) -> int:
        return int(self._folder.stat().st_mtime) + next(self._clock) // 2
