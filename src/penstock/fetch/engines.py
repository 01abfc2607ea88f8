"""The engines of a process: one for each store, shared by its users, and let go when it has none."""

from __future__ import annotations

from collections import OrderedDict
from typing import TYPE_CHECKING, Generic, TypeVar
from weakref import WeakSet, ref

from penstock.waiting import Turn

if TYPE_CHECKING:
    from collections.abc import Callable, Hashable

    from penstock.fetch.fetcher import Fetcher

__all__ = ["Engines"]

K = TypeVar("K", bound="Hashable")


class Engines(Generic[K]):
    """Engines by what tells their stores apart.

    Users hold their engine; this holds the ``spare`` engines that were asked for last, so that who opens a store again
    and again finds its connections. An engine that is neither held nor spare is collected, and its connections close.
    """

    def __init__(self, spare: int) -> None:
        """Hold none yet."""
        self._spare = spare
        self.forget()

    def forget(self) -> None:
        """Begin anew, in a forked child: threads and connections stay behind with the parent."""
        self._turn = Turn()
        self._all: dict[K, ref[Fetcher]] = {}
        self._recent: OrderedDict[K, Fetcher] = OrderedDict()
        self._users: dict[int, WeakSet[object]] = {}  # by the engine's identity

    def __len__(self) -> int:
        """Return how many there are."""
        return sum(each() is not None for each in list(self._all.values()))

    def find(self, key: K, user: object) -> Fetcher | None:
        """Return the store's engine, which ``user`` has from here on; None where there is none that works."""
        with self._turn:
            held = self._all.get(key)
            engine = held() if held is not None else None
            return self._join(key, engine, user) if engine is not None and engine.usable() else None

    def open(self, key: K, user: object, make: Callable[[], Fetcher]) -> Fetcher:
        """Return the store's engine, as ``find`` does, or make it."""
        with self._turn:
            return self.find(key, user) or self._join(key, make(), user)

    def leave(self, engine: Fetcher, user: object) -> None:
        """Take note that ``user`` has the engine no more; its last user closes it."""
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
        def forget(held: ref[Fetcher]) -> None:  # the collector may run it on any thread: it waits for nothing
            if self._all.get(key) is held:
                self._all.pop(key, None)
            self._users.pop(engine, None)

        return forget
