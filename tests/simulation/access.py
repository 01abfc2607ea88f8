"""Temporary credentials of the simulation: they expire, announced or not, and are renewed while requests are sent."""

from __future__ import annotations

from contextlib import contextmanager
from dataclasses import replace
from itertools import pairwise
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

import penstock as ps
from penstock.stores import credentials
from tests.simulation.clock import EPOCH_S, START_S

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from penstock.options import StoreOptions
    from tests.simulation.world import World

# The world whose tokens the functions below give: options name functions of modules.
_world: World | None = None
# Seconds for which a store accepts a token after the next one was issued.
_GRACE_S = 1.0
_VAIN_S = credentials._SOON_S + 1.0


class Tokens:
    """Tokens of a store, one after another.

    Attributes:
        lifetime_s: How long each lasts.
        announced: Whether their end is stated.

    """

    def __init__(self, lifetime_s: float, *, announced: bool) -> None:
        self.lifetime_s, self.announced = lifetime_s, announced
        self.asked_at: list[float] = []

    def renewed_in_vain(self, since: float) -> bool:
        """Return whether new tokens were refused within seconds: then requests do not wait for the next."""
        asked = [each for each in self.asked_at if each >= since - _VAIN_S]
        return any(later - earlier <= _VAIN_S for earlier, later in pairwise(asked))

    def issued(self, now: float) -> tuple[str, float | None]:
        """Return the token of a time, and when it ends, in seconds since the epoch."""
        number = int((now - START_S) // self.lifetime_s)
        ends = EPOCH_S + (number + 1) * self.lifetime_s
        return f"token-{number}", ends if self.announced else None

    def accepted(self, now: float) -> frozenset[str]:
        """Return the tokens that the store accepts at a time."""
        return frozenset(self.issued(at)[0] for at in (now, max(START_S, now - _GRACE_S)))


def _issued() -> tuple[str, float | None]:
    assert _world is not None
    tokens = _world.store.tokens
    assert tokens is not None
    tokens.asked_at.append(_world.clock.now)
    return tokens.issued(_world.clock.now)


def give_keys() -> ps.credentials.Credentials:
    """Return temporary keys."""
    assert _world is not None
    settings, (token, ends) = _world.store.settings, _issued()
    return ps.credentials.Credentials(settings.access_key, settings.secret_key, token, ends)


def give_token() -> ps.credentials.BearerToken:
    """Return a bearer token."""
    return ps.credentials.BearerToken(*_issued())


class _AzureCredential:
    """As azure-identity's credentials."""

    def get_token(self, *_scopes: str, **_how: Any) -> Any:
        token, ends = _issued()
        return SimpleNamespace(token=token, expires_on=int(ends if ends is not None else EPOCH_S + 10**6))


_AZURE = _AzureCredential()


def renewing(options: StoreOptions, dialect: str) -> StoreOptions:
    """Return options with temporary credentials."""
    if dialect == "azure":
        return replace(options, account_key=None, credential=_AZURE)
    give: Callable[[], Any] = give_token if dialect == "gcs" else give_keys
    return replace(options, access_key=None, secret_key=None, credentials=give)


@contextmanager
def issuing(world: World) -> Iterator[None]:
    """Let the functions of this module give the tokens of a world; a renewal takes a while, beside what waits."""
    global _world  # noqa: PLW0603

    class Renewal:
        def __init__(self, target: Callable[[], None], **_how: object) -> None:
            self._target, self._ended, self._process = target, False, world.process

        def start(self) -> None:
            world.wire.at(world.clock.now + world.store.dice("renewal").uniform(0.0, 0.5), self._run)

        def is_alive(self) -> bool:
            return not self._ended

        def _run(self) -> None:
            self._ended = True
            if self._process.alive:
                self._target()

    before, credentials.threading = credentials.threading, SimpleNamespace(Thread=Renewal)  # type: ignore[assignment]
    _world = world
    try:
        yield
    finally:
        credentials.threading, _world = before, None  # type: ignore[assignment]
