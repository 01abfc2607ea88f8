"""Several stores behind one queue of reads: each key carries the number of its store."""

from __future__ import annotations

import os
from functools import partial
from threading import Lock
from typing import TYPE_CHECKING

from penstock.engine.contracts.fetching import CachedFetching

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from penstock.engine.buffer import Buffer
    from penstock.engine.contracts.fetching import Fetching, PendingRead, ReadOwner
    from penstock.options import StoreOptions
    from penstock.source import Source
    from penstock.values import Span

__all__ = ["HomeKey", "Stores", "homed", "joined"]

_lock = Lock()  # for all instances of Stores: held only briefly
os.register_at_fork(before=_lock.acquire, after_in_parent=_lock.release, after_in_child=_lock.release)


class HomeKey(str):
    """Key of an object that is not in the first store.

    Attributes:
        home: Number of the store, from 1.

    """

    __slots__ = ("home",)
    home: int


class Stores:
    """Stores that the arrays of a dataset are read from, by number. Thread-safe and picklable.

    Attributes:
        sources: The stores, in order of their numbers.
        grow: Whether stores may be added while arrays are read.

    """

    def __init__(self) -> None:
        """Create an empty list of stores."""
        self.sources: list[Source] = []
        self.grow = False
        self._numbers: dict[tuple[str, StoreOptions], int] = {}

    def number(self, source: Source) -> int:
        """Return the number of a store; a new store receives the next number."""
        with _lock:
            number = self._numbers.setdefault((source.root, source.options), len(self.sources))
            if number == len(self.sources):
                self.sources.append(source)
            return number


def homed(span: Span, home: int) -> Span:
    """Return a span of an object in store number ``home``."""
    if not home:
        return span
    key = HomeKey(span.key)
    key.home = home
    return span._replace(key=key)


def joined(stores: Stores) -> Source:
    """Return the first source, with reads of keys of other stores routed to their own source."""
    sources = stores.sources
    return sources[0] if len(sources) == 1 and not stores.grow else sources[0].through(partial(_Joined, sources))


class _Joined:
    """``Fetching`` over several stores: reads are started and cancelled in the store of their key."""

    def __init__(self, sources: Sequence[Source], _beneath: Fetching) -> None:
        # ``_beneath`` is not used for the first source either: that source may have a layer that ``_beneath`` lacks.
        self._sources = sources

    def prepare_reads(self, wanted: Iterable[tuple[Span, Buffer | None]], owner: ReadOwner) -> list[PendingRead]:
        """Return a pending read for each span, in order."""
        homes: dict[int, list[tuple[int, tuple[Span, Buffer | None]]]] = {}
        for number, each in enumerate(wanted):
            homes.setdefault(_home(each[0]), []).append((number, each))
        found: dict[int, PendingRead] = {}
        for home, some in homes.items():
            reads = self._sources[home].fetching().prepare_reads([each for _, each in some], owner)
            found.update(zip((number for number, _ in some), reads, strict=True))
        return [found[number] for number in range(len(found))]

    def send_reads(self, reads: Iterable[PendingRead]) -> None:
        """Send reads in their stores."""
        for home, some in _by_home(reads).items():
            self._sources[home].fetching().send_reads(some)

    def cancel_reads(self, reads: Iterable[PendingRead]) -> None:
        """Cancel reads."""
        for home, some in _by_home(reads).items():
            self._sources[home].fetching().cancel_reads(some)

    def stop_reads(self, reads: Iterable[PendingRead]) -> None:
        """Cancel reads and wait until none of them writes to its buffer."""
        for home, some in _by_home(reads).items():
            self._sources[home].fetching().stop_reads(some)

    def concurrency(self) -> int:
        """Return the number of concurrent requests of the first store."""
        return self._sources[0].fetching().concurrency()

    def contains(self, span: Span) -> bool:
        """Return whether the span's store has a cache that holds the span."""
        fetching = self._sources[_home(span)].fetching()
        return isinstance(fetching, CachedFetching) and fetching.contains(span)

    def room_bytes(self) -> int:
        """Return the least room, in bytes, among the caches of the stores; 0 without caches."""
        caches = [each for each in (source.fetching() for source in self._sources) if isinstance(each, CachedFetching)]
        return min((each.room_bytes() for each in caches), default=0)


def _home(span: Span) -> int:
    return span.key.home if isinstance(span.key, HomeKey) else 0


def _by_home(reads: Iterable[PendingRead]) -> dict[int, list[PendingRead]]:
    homes: dict[int, list[PendingRead]] = {}
    for read in reads:
        homes.setdefault(_home(read.span), []).append(read)
    return homes
