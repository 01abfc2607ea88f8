"""``memory://``: objects in the memory of this process."""

from __future__ import annotations

from typing import TYPE_CHECKING

from penstock.engine.contracts.driver import Abilities
from penstock.stores.provider import Opening, Provider

if TYPE_CHECKING:
    from penstock.engine.contracts.driver import Driver
    from penstock.engine.contracts.exchange import Transport

__all__ = ["PROVIDER"]


def _open(opening: Opening) -> tuple[Driver, Transport]:
    from penstock.engine.transport.work import Threads
    from penstock.stores.memory.driver import Memory

    return Memory(opening.bucket), Threads(2)


PROVIDER = Provider(
    name="memory",
    schemes=("memory",),
    open=_open,
    abilities=Abilities(digest=None, forks=False),
    any_options=True,
)
