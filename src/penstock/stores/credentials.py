"""Credentials shared by all threads of a process, and renewed before they expire; a user's own sources of them."""

from __future__ import annotations

import contextlib
import json
import logging
import math
import os
import shlex
import subprocess
import threading
import time
import weakref
from dataclasses import fields
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any, Generic, NamedTuple, TypeVar

from penstock.engine.contracts.credentials import BearerToken, Credentials
from penstock.engine.waiting import Turn
from penstock.errors import ConfigError, PenstockError, Unauthenticated, Unreachable, conceal, kind_of

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping
    from urllib.request import BaseHandler, OpenerDirector

    from penstock.engine.contracts.credentials import CredentialSource, Renewable

C = TypeVar("C", bound="Renewable")

_LOG = logging.getLogger("penstock")
_EVERY_S = 30.0  # between two warnings
_MARGIN_S = 300.0  # AWS issues new role credentials at least five minutes before the old ones expire
_PAUSE_S = 15.0  # between two loads from a source that failed, or whose keys are about to expire
# During this time, a refusal does not discard new credentials: requests sent with the old ones are still refused one
# after another, and each would cause another load.
_FRESH_S = 1.0
# New credentials that are refused this soon are wrong in another way: requests do not wait for the next ones.
_SOON_S = 10.0


class _CredentialState(NamedTuple, Generic[C]):
    """Credentials and their times, in seconds since the epoch. Replaced as a whole, so reading them needs no lock."""

    credentials: C | None
    due: float
    expires: float
    renewed: float
    # Whether they were loaded because the store had refused the ones before.
    forced: bool


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
        self._state: _CredentialState[C] | None = None
        self._quiet_until = -math.inf
        self._renewal: threading.Thread | None = None
        self._helps = False  # whether the latest renewal is likely to help
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

    def renew(self) -> bool:
        """Invalidate, and load on a separate thread; a failure appears at the next use.

        Within a second of the last renewal, and while one is under way, this does nothing: such a refusal is about the
        previous credentials, and many requests may get one at once. Return True then, unless the credentials before had
        been renewed in vain.
        """
        state, now = self._state, self._now()
        if state is not None and state.due > -math.inf:
            # The clock may have been set back since.
            new = 0 <= now - state.renewed < _FRESH_S
        else:
            new = self._renewal is not None and self._renewal.is_alive()
        if new:
            return self._helps
        self._helps = state is None or not (state.forced and 0 <= now - state.renewed <= _SOON_S)
        self.invalidate()
        self._renewal = threading.Thread(target=self._renewed, name="penstock-credentials", daemon=True)
        self._renewal.start()
        return False

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
                    "credentials could not be renewed: %s; the old ones expire in %.0f s; renewal will be retried",
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
        refused = old is not None and old.due == -math.inf
        self._state = _CredentialState(credentials, due, max(expires, due), renewed, refused)
        if old is not None:
            _LOG.log(
                logging.WARNING if refused else logging.INFO,
                "credentials were renewed%s; %s",
                ", because the store refused the old ones" if refused else "",
                "they do not expire" if left == math.inf else f"they expire in {left:.0f} s",
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


F = TypeVar("F", Credentials, BearerToken)

# A person may have to touch a hardware key; AWS's tools wait without a limit.
_LIMIT_S = 60.0
_MOST_BYTES = 1 << 20
# Names of each field: those that AWS's credential_process prints, Alibaba's where they differ, then Penstock's own.
_NAMES = {
    "access_key": ("AccessKeyId", "access_key"),
    "secret_key": ("SecretAccessKey", "AccessKeySecret", "secret_key"),
    "token": ("SessionToken", "SecurityToken", "token"),
    "expires_at": ("Expiration", "expires_at"),
}


def call_provider(function: Callable[[], object], kind: type[F]) -> F:
    """Return the result of a user's function, an instance of ``kind``; it runs on a caller's thread each time.

    Raises ``Unauthenticated`` for a foreign error, with its class and not its text, or for another result.
    """
    name = getattr(function, "__qualname__", type(function).__qualname__)
    try:
        found = function()
    except PenstockError:
        raise
    except Exception as error:  # noqa: BLE001  user code raises any error, and may quote a secret
        failure = f"the function of credentials=, {name}, raised {type(error).__name__}"
    else:
        if isinstance(found, kind):
            return found
        returned = "nothing" if found is None else kind_of(found)
        failure = f"the function of credentials=, {name}, returns ps.{kind.__name__}(…), and returned {returned}"
    # Raised outside the except block, so that the original is not chained.
    raise Unauthenticated(failure)


def run_credential_program(
    command: str | tuple[str, ...], environ: Mapping[str, str], kind: type[F], limit_s: float = _LIMIT_S
) -> F:
    """Run a program and return the credentials that it prints; a str is split like in a shell, but no shell runs.

    The program prints one JSON object: that of AWS's ``credential_process`` (``Version`` 1, ``AccessKeyId``,
    ``SecretAccessKey``, ``SessionToken``, ``Expiration``), Alibaba's (``AccessKeySecret``, ``SecurityToken``), or
    ``access_key``, ``secret_key``, ``token``, ``expires_at``. A bearer token has ``token`` and ``expires_at`` only. A
    time is ISO 8601 with its zone (UTC without one), or seconds since the epoch. No error quotes its output; standard
    error is dropped.
    """
    words = tuple(shlex.split(command)) if isinstance(command, str) else command
    name = f"the credentials process {Path(words[0]).name!r}" if words else "the credentials process"
    output = _output(words, name, environ, limit_s)
    try:
        said: object = json.loads(output)
    except (ValueError, RecursionError):
        said = None
    if not isinstance(said, dict):
        raise Unauthenticated(f"the output of {name} is not a JSON object")
    try:
        return _parse_credentials(said, name, kind)
    except _Wrong as wrong:
        failure = f"{name} printed {wrong}"
    raise Unauthenticated(failure)


def _output(words: tuple[str, ...], name: str, environ: Mapping[str, str], limit_s: float) -> bytes:
    failure: PenstockError
    try:
        ended = subprocess.run(  # noqa: S603  the user's own command
            words,
            env=dict(environ),
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            timeout=limit_s,
            check=False,
        )
    except subprocess.TimeoutExpired:
        failure = Unreachable(f"{name} did not end within {limit_s:g} s")
    except (OSError, ValueError, IndexError) as error:
        why = error.strerror if isinstance(error, OSError) else "it holds a NUL, or nothing"
        failure = Unauthenticated(f"{name} cannot be run: {why}")
    else:
        if ended.returncode == 0 and len(ended.stdout) <= _MOST_BYTES:
            return ended.stdout
        how = f"ended with status {ended.returncode}" if ended.returncode else "printed more than 1 MiB"
        failure = Unauthenticated(f"{name} {how}: run it by hand to see why")
    # Raised outside the except block: a chained error would hold the output.
    raise failure


def make_keys(
    named: str,
    access_key: str | None,
    secret_key: str | None,
    token: str | None = None,
    expires_at: float | None = None,
) -> Credentials | None:
    """Return a pair of keys that ``named`` gives; None without any. Half a pair raises ``ConfigError``."""
    if access_key is None and secret_key is None:
        return None
    if not access_key or not secret_key:
        raise ConfigError(f"{named} gives an incomplete or empty pair of keys: key id and secret go together")
    if not all("!" <= char <= "~" for char in access_key + secret_key + (token or "")):
        raise ConfigError(
            f"a key from {named} contains spaces or control characters: strip it (secret files may end in a line break)"
        )
    return Credentials(access_key, secret_key, token or "", expires_at, found_in=named)


class _Wrong(Exception):
    """Error in the JSON; its text quotes no value."""


def _parse_credentials(said: dict[str, Any], name: str, kind: type[F]) -> F:
    found = {field: next((said[each] for each in names if each in said), None) for field, names in _NAMES.items()}
    if said.get("Version", 1) != 1:
        raise _Wrong("a Version different from 1")
    expires_at = _time(found.pop("expires_at"))
    for field, value in found.items():
        if not (value is None or (isinstance(value, str) and all("!" <= char <= "~" for char in value))):
            raise _Wrong(f"{' or '.join(_NAMES[field])}, which must be a str of visible ASCII characters")
    if kind is BearerToken:
        if not found["token"] or found["access_key"]:
            raise _Wrong("keys instead of a bearer token (token, expires_at)" if found["access_key"] else "no token")
        bearer: Any = BearerToken(found["token"], expires_at, name)
        return bearer  # type: ignore[no-any-return]
    if not found["access_key"] or not found["secret_key"]:
        raise _Wrong("no pair of keys: AccessKeyId and SecretAccessKey, or access_key and secret_key")
    keys: Any = Credentials(found["access_key"], found["secret_key"], found["token"] or "", expires_at, name)
    return keys  # type: ignore[no-any-return]


def _time(value: object) -> float | None:
    if value is None:
        return None
    if isinstance(value, (int, float)) and not isinstance(value, bool) and math.isfinite(value):
        return float(value)
    if isinstance(value, str):
        try:
            moment = datetime.fromisoformat(value)
        except ValueError:
            pass
        else:
            # A time without a zone is UTC, as in AWS's tools.
            return (moment if moment.tzinfo else moment.replace(tzinfo=UTC)).timestamp()
    raise _Wrong("Expiration or expires_at, which must be ISO 8601 or seconds since the epoch")


def direct_opener(*handlers: BaseHandler) -> OpenerDirector:
    """Return an opener for a service that issues credentials; it follows no redirect, since requests hold secrets."""
    import urllib.request  # most programs do without it

    class NoRedirects(urllib.request.HTTPRedirectHandler):
        """Handler that returns no request to follow."""

        def redirect_request(self, *_: Any) -> None:  # noqa: ANN401  urllib's own signature
            ...

    return urllib.request.build_opener(*handlers, NoRedirects())
