"""Credentials shared by all threads of a process, and renewed before they expire."""

from __future__ import annotations

import contextlib
import logging
import math
import os
import threading
import time
import weakref
from dataclasses import fields
from typing import TYPE_CHECKING, Any, Generic, NamedTuple, TypeVar

from penstock.engine.waiting import Turn
from penstock.errors import PenstockError, conceal

if TYPE_CHECKING:
    from collections.abc import Callable

    from penstock.engine.contracts.credentials import CredentialSource, Renewable

__all__ = ["RefreshingCredentials"]

C = TypeVar("C", bound="Renewable")

_LOG = logging.getLogger("penstock")
_EVERY_S = 30.0  # between two warnings
_MARGIN_S = 300.0  # AWS issues new role credentials at least five minutes before the old ones expire
_PAUSE_S = 15.0  # between two loads from a source that failed, or whose keys are about to expire
# During this time, a refusal does not discard new credentials: requests sent with the old ones are still refused one
# after another, and each would cause another load.
_FRESH_S = 1.0


class _State(NamedTuple, Generic[C]):
    """Credentials and their times, in seconds since the epoch. Replaced as a whole, so reading them needs no lock."""

    credentials: C | None
    due: float
    expires: float
    renewed: float


class RefreshingCredentials(Generic[C]):
    """Credentials shared by all threads of a process, renewed on callers' threads, 300 s before they expire.

    Credentials with less time left are renewed after half of it, but at most 15 s later.

    A failed renewal is raised only after the old credentials have expired; until then it is retried every 15 s.
    Safe to fork at any moment: a child keeps the credentials and creates a new lock.
    """

    def __init__(self, source: CredentialSource[C], now: Callable[[], float] = time.time) -> None:
        """Hold the credentials of ``source``; nothing is loaded yet. ``now`` returns seconds since the epoch."""
        self._source = source
        self._now = now
        self._state: _State[C] | None = None
        self._quiet_until = -math.inf
        self._lock = Turn()
        _alive.add(self)

    def current(self) -> C | None:
        """Return the current credentials, None for unsigned requests; block only if nothing was ever loaded.

        They may have expired by the server's clock: a driver whose request is refused for that calls ``renew``.
        """
        if self._state is None:
            self.refresh_if_due()
        return self._state.credentials if self._state is not None else None

    def refresh_if_due(self) -> None:
        """Load if nothing is loaded yet or a renewal is due; call before a batch, never on the I/O thread.

        One thread loads. The others use the old credentials, or wait for the new ones if the old ones have expired.
        Raises the errors of the source's ``load``, unless there are valid credentials.
        """
        state, now = self._state, self._now()
        if state is not None and now < state.due:
            return
        lock = self._lock  # a fork inside load would replace it
        if lock.take(math.inf if state is None or now >= state.expires else 0.0):
            try:
                self._refresh()
            finally:
                lock.release()

    def due(self) -> bool:
        """Return whether ``refresh_if_due`` would load, and so might block."""
        state = self._state
        return state is None or self._now() >= state.due

    def invalidate(self) -> None:
        """Mark the credentials as expired: the next ``refresh_if_due`` loads new ones. Never blocks."""
        if self._state is not None:
            self._state = self._state._replace(due=-math.inf, expires=-math.inf)

    def renew(self) -> None:
        """Invalidate, and load on a separate thread; a failure appears at the next use.

        Within a second of the last renewal this does nothing: such a refusal is about the previous credentials.
        """
        state = self._state
        if state is not None and state.due > -math.inf and self._now() - state.renewed < _FRESH_S:
            return
        self.invalidate()
        threading.Thread(target=self._renewed, name="penstock-credentials", daemon=True).start()

    def _renewed(self) -> None:
        with contextlib.suppress(PenstockError):
            self.refresh_if_due()

    def _refresh(self) -> None:
        old, now = self._state, self._now()
        if old is not None and now < old.due:  # another thread was first
            return
        try:
            credentials = self._source.load()
        except PenstockError as error:
            if old is None or now >= old.expires:
                raise
            self._state = old._replace(due=min(now + _PAUSE_S, old.expires))
            if now >= self._quiet_until:
                self._quiet_until = now + _EVERY_S
                _LOG.warning(
                    "credentials could not be renewed: %s; those at hand last %.0f s more, and it is tried again",
                    error,
                    old.expires - now,
                )
            return
        if credentials is not None:
            conceal(*_secrets(credentials))
        expires = math.inf if credentials is None or credentials.expires_at is None else credentials.expires_at
        left = expires - now
        pause = min(_PAUSE_S, left / 2) if left > 0 else _PAUSE_S
        due = max(expires - _MARGIN_S, now + pause)
        renewed = self._now() if old is not None else -math.inf
        self._state = _State(credentials, due, max(expires, due), renewed)
        if old is not None:
            refused = old.due == -math.inf
            _LOG.log(
                logging.WARNING if refused else logging.INFO,
                "credentials were renewed%s; %s",
                ", for the store refused the old ones" if refused else "",
                "they do not expire" if left == math.inf else f"they last {left:.0f} s",
            )


def _secrets(credentials: Any) -> list[str]:  # noqa: ANN401  any dataclass
    """Return the secrets of credentials: the fields that a repr does not show, except the key's id."""
    return [
        getattr(credentials, each.name) for each in fields(credentials) if not each.repr and each.name != "access_key"
    ]


_alive: weakref.WeakSet[RefreshingCredentials[Any]] = weakref.WeakSet()


def _renew_locks() -> None:
    for each in _alive:
        # The parent's lock may be held by a thread that does not exist here.
        each._lock = Turn()  # noqa: SLF001


os.register_at_fork(after_in_child=_renew_locks)
