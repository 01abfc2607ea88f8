"""Carries a verb out for many keys, some hundred at a time."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, TypeVar

from penstock.errors import NotFound
from penstock.waiting import Inbox

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from penstock.fetch.fetcher import Fetcher
    from penstock.fetch.operation import Operation
    from penstock.protocols.exchange import Exchange

__all__ = ["each_key", "unless_missing"]

T = TypeVar("T")

_AT_ONCE = 256  # looks or deletions in flight


def each_key(fetcher: Fetcher, keys: Sequence[str], verb: Callable[[str], Exchange[T]]) -> Iterator[Operation[T]]:
    """Carry a verb of the fetcher's driver out for each key, up to 256 in flight; yield them in order, each complete.

    Leaving it, by an error or Ctrl-C, cancels those in flight.
    """
    inbox = Inbox()
    for at in range(0, len(keys), _AT_ONCE):
        operations = [fetcher.operation(partial(verb, key), inbox) for key in keys[at : at + _AT_ONCE]]
        try:
            fetcher.send(operations)
            for operation in operations:
                inbox.wait(operation)
                yield operation
        finally:
            fetcher.call_off(operations)


def unless_missing(looking: Operation[T]) -> T | None:
    """Return what an operation brought, or None where there is no such object; raises any other refusal."""
    return None if isinstance(looking.error, NotFound) else looking.result()
