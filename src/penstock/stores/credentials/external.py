"""Credentials from a user's own function, or from a process that prints JSON; for any provider."""

from __future__ import annotations

import json
import math
import shlex
import subprocess
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

from penstock.engine.contracts.credentials import BearerToken, Credentials
from penstock.errors import PenstockError, Unauthenticated, Unreachable

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

__all__ = ["called", "printed"]

C = TypeVar("C", Credentials, BearerToken)

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


def called(function: Callable[[], object], kind: type[C]) -> C:
    """Return the result of a user's function, which must be of ``kind``; it runs on a caller's thread, each time.

    Raises:
        Unauthenticated: The function raised, or returned something else. The message has the error's class, not its
            text.
        PenstockError: As the function raised it.

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
        failure = f"the function of credentials=, {name}, returns ps.{kind.__name__}(…), and returned {_kind(found)}"
    # Raised outside the except block, so that the original is not chained.
    raise Unauthenticated(failure)


def printed(command: str | tuple[str, ...], environ: Mapping[str, str], kind: type[C], limit_s: float = _LIMIT_S) -> C:
    """Run a program and return the credentials that it prints; a str is split like in a shell, but no shell runs.

    The program prints one JSON object: that of AWS's ``credential_process`` (``Version`` 1, ``AccessKeyId``,
    ``SecretAccessKey``, ``SessionToken``, ``Expiration``), Alibaba's (``AccessKeySecret``, ``SecurityToken``), or
    ``access_key``, ``secret_key``, ``token``, ``expires_at``. A bearer token has ``token`` and ``expires_at`` only. A
    time is ISO 8601 with its zone (UTC without one), or seconds since the epoch. Standard error is dropped.

    Raises:
        Unauthenticated: The program cannot be run, failed, or printed something else. No message quotes its output.
        Unreachable: The program did not end within ``limit_s`` seconds.

    """
    words = tuple(shlex.split(command)) if isinstance(command, str) else command
    name = f"the credentials process {Path(words[0]).name!r}" if words else "the credentials process"
    output = _output(words, name, environ, limit_s)
    try:
        said: object = json.loads(output)
    except (ValueError, RecursionError):
        said = None
    if not isinstance(said, dict):
        raise Unauthenticated(f"{name} printed no JSON object")
    try:
        return _read(said, name, kind)
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


class _Wrong(Exception):
    """Error in the JSON; its text quotes no value."""


def _read(said: dict[str, Any], name: str, kind: type[C]) -> C:
    found = {field: next((said[each] for each in names if each in said), None) for field, names in _NAMES.items()}
    if said.get("Version", 1) != 1:
        raise _Wrong("another Version than 1")
    expires_at = _time(found.pop("expires_at"))
    for field, value in found.items():
        if not (value is None or (isinstance(value, str) and all("!" <= char <= "~" for char in value))):
            raise _Wrong(f"{' or '.join(_NAMES[field])} that is no text of visible ASCII characters")
    if kind is BearerToken:
        if not found["token"] or found["access_key"]:
            raise _Wrong(
                "keys, where a bearer token is wanted: token, expires_at" if found["access_key"] else "no token"
            )
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
    raise _Wrong("Expiration or expires_at that is neither ISO 8601 nor seconds since the epoch")


def _kind(value: object) -> str:
    return "nothing" if value is None else f"a {type(value).__name__}"
