"""``file://`` and bare paths: the file system of this machine."""

from __future__ import annotations

from typing import TYPE_CHECKING

from penstock.engine.contracts.driver import Abilities
from penstock.stores.provider import Opening, Provider

if TYPE_CHECKING:
    from penstock.engine.contracts.driver import Driver
    from penstock.engine.contracts.exchange import Transport

__all__ = ["PROVIDER"]


def _open(_opening: Opening) -> tuple[Driver, Transport]:
    from penstock.engine.transport.work import Threads
    from penstock.stores.local.driver import Local

    return Local(), Threads()


def _host(bucket: str) -> str:
    return "a file URL names no host: write file:///absolute/path with three slashes, or a bare path" if bucket else ""


PROVIDER = Provider(
    name="the file system",
    schemes=("file",),
    open=_open,
    bucket_fault=_host,
    abilities=Abilities(digest=None),
    any_options=True,
)
