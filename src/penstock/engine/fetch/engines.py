"""Engines of a process: one for each store, shared by its users, and released once it has none."""

from __future__ import annotations

from collections import OrderedDict
from typing import TYPE_CHECKING, Generic, TypeVar
from weakref import WeakSet, ref

from penstock.engine.waiting import Turn

if TYPE_CHECKING:
    from collections.abc import Callable, Hashable

    from penstock.engine.fetch.fetcher import Fetcher

__all__ = ["Engines"]

K = TypeVar("K", bound="Hashable")


class Engines(Generic[K]):
    """Engines by the key that identifies their store.

    Users hold their engine. This object holds the ``spare`` engines that were asked for last, so that opening a store
    again and again finds its connections. An engine that is neither held nor spare is garbage-collected, and its
    connections close.
    """

    def __init__(self, spare: int) -> None:
        """Start empty."""
        self._spare = spare
        self.forget()

    def forget(self) -> None:
        """Start empty, also in a forked child: threads and connections stay with the parent."""
        self._turn = Turn()
        self._all: dict[K, ref[Fetcher]] = {}
        self._recent: OrderedDict[K, Fetcher] = OrderedDict()
        self._users: dict[int, WeakSet[object]] = {}  # by the engine's identity

    def __len__(self) -> int:
        """Return the number of engines that are alive."""
        return sum(each() is not None for each in list(self._all.values()))

    def find(self, key: K, user: object) -> Fetcher | None:
        """Return the store's engine if it has a usable one, and register ``user`` with it; else None."""
        with self._turn:
            held = self._all.get(key)
            engine = held() if held is not None else None
            return self._join(key, engine, user) if engine is not None and engine.usable() else None

    def open(self, key: K, user: object, make: Callable[[], Fetcher]) -> Fetcher:
        """Return the store's engine as ``find`` does, or create it with ``make``."""
        with self._turn:
            return self.find(key, user) or self._join(key, make(), user)

    def leave(self, engine: Fetcher, user: object) -> None:
        """Unregister ``user`` from the engine; close the engine if this was its last user."""
        with self._turn:
            users = self._users.get(id(engine), WeakSet())
            users.discard(user)
            if users:
                return
            self._recent = OrderedDict((key, each) for key, each in self._recent.items() if each is not engine)
        engine.close()

    def _join(self, key: K, engine: Fetcher, user: object) -> Fetcher:
        if id(engine) not in self._users:
            self._users[id(engine)] = WeakSet()
            self._all[key] = ref(engine, self._gone(key, id(engine)))
        self._users[id(engine)].add(user)
        self._recent[key] = engine
        self._recent.move_to_end(key)
        while len(self._recent) > self._spare:
            self._recent.popitem(last=False)
        return engine

    def _gone(self, key: K, engine: int) -> Callable[[ref[Fetcher]], None]:
        # The garbage collector may run this on any thread, so it must not wait.
        def forget(held: ref[Fetcher]) -> None:
            if self._all.get(key) is held:
                self._all.pop(key, None)
            self._users.pop(engine, None)

        return forget
