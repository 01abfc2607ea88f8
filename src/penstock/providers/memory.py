"""``memory://``: objects in the memory of this process."""

from __future__ import annotations

from typing import TYPE_CHECKING

from penstock.protocols.driver import Abilities
from penstock.providers.provider import Opening, Provider

if TYPE_CHECKING:
    from penstock.protocols.driver import Driver
    from penstock.protocols.exchange import Transport

__all__ = ["PROVIDER"]


def _open(opening: Opening) -> tuple[Driver, Transport]:
    from penstock.drivers.memory import Memory
    from penstock.transport.work import Threads

    return Memory(opening.bucket), Threads(2)


PROVIDER = Provider(
    name="memory",
    schemes=("memory",),
    open=_open,
    abilities=Abilities(digest=None, forks=False),
    any_options=True,
)
