"""Conditional uploads on stores whose completion takes no condition: uploaded to another key, and moved on it."""

from __future__ import annotations

from contextlib import suppress
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING
from urllib.parse import quote
from uuid import uuid4

from penstock.errors import PenstockError
from penstock.protocols.driver import STAGED, Delete, Move
from penstock.support import require, supports
from penstock.waiting import Inbox

if TYPE_CHECKING:
    from penstock.fetch.fetcher import Fetcher
    from penstock.fetch.writing.publish import Publication
    from penstock.protocols.driver import Attributes
    from penstock.protocols.exchange import Exchange
    from penstock.values import ObjectMeta

__all__ = ["needs_staging", "publish_staged", "staging_key", "unconditional"]

_DELETE_S = 5.0  # what is published need not wait longer for its leftover, nor an error that is on its way out


def needs_staging(fetcher: Fetcher, attributes: Attributes) -> bool:
    """Say whether the store heeds the condition of such a write where an object is moved, and not at a completion."""
    heeded = fetcher.driver.abilities.complete
    unmet = (attributes.create_only and not heeded.create) or (bool(attributes.replaces) and not heeded.replace)
    return unmet and supports(fetcher.driver, Move)


def staging_key(key: str, most_bytes: int) -> str:
    """Return a key of its own below ``STAGED``, which names ``key`` unless it would have more than ``most_bytes``.

    The key is escaped, so that a folder for it is made nowhere, and what waits for one prefix is found by it.
    """
    token = uuid4().hex
    named = f"{STAGED}{quote(key, safe='')}.{token}"
    return named if len(named) <= most_bytes else f"{STAGED}{token}"


def unconditional(attributes: Attributes) -> Attributes:
    """Return the attributes of the object that waits to be moved."""
    return replace(attributes, create_only=False, replaces="")


def publish_staged(staged: Publication, final: Publication, complete: partial[Exchange[str]]) -> ObjectMeta:
    """Complete the upload at the key of ``staged``, and move the object to that of ``final`` on its condition.

    Seven requests: two that complete and compare, three that look, move and compare, one that deletes what a move may
    leave; whatever goes wrong, nothing is left at the key of ``staged``, as far as the store can be reached. A process
    that is killed in between leaves an object there, which listings do not show: it counts as an unfinished upload.

    Raises:
        PenstockError: As ``Publication.send``.

    """
    driver, wanted = final.fetcher.driver, final.attributes
    try:
        there = staged.send(complete)
        move = require(driver, Move, final.key).move
        new, old = wanted.create_only, wanted.replaces
        return final.send(partial(move, staged.key, final.key, there.etag, create_only=new, replaces=old))
    finally:
        _discard(staged)


def _discard(staged: Publication) -> None:
    fetcher, key = staged.fetcher, staged.key
    with suppress(PenstockError):
        deleting = fetcher.operation(partial(require(fetcher.driver, Delete, key).delete, key), Inbox())
        fetcher.send((deleting,))
        deleting.wait(_DELETE_S)
