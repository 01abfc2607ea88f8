"""``file://`` and bare paths: the file system of this machine."""

from __future__ import annotations

from typing import TYPE_CHECKING

from penstock.protocols.driver import Abilities
from penstock.providers.provider import Opening, Provider

if TYPE_CHECKING:
    from penstock.protocols.driver import Driver
    from penstock.protocols.exchange import Transport

__all__ = ["PROVIDER"]


def _open(_opening: Opening) -> tuple[Driver, Transport]:
    from penstock.drivers.local import Local
    from penstock.transport.work import Threads

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
