"""The netrc file: user name and password of a host, as curl reads them."""

from __future__ import annotations

import os
from hashlib import sha256
from netrc import NetrcParseError, netrc
from pathlib import Path
from typing import TYPE_CHECKING

from penstock.errors import ConfigError

if TYPE_CHECKING:
    from collections.abc import Mapping

__all__ = ["digest", "login"]


def login(host: str, environ: Mapping[str, str]) -> tuple[str, str]:
    """Return user name and password of ``host`` (no port) in the netrc file: ``NETRC``, else ``~/.netrc``.

    Raises:
        ConfigError: The file does not exist, cannot be read, or has neither the host nor a ``default``.

    """
    path = _path(environ)
    try:
        found = netrc(path).authenticators(host)
    except FileNotFoundError:
        raise ConfigError(f"netrc=True, and there is no file {path}: write it, or set NETRC") from None
    except (NetrcParseError, OSError, ValueError) as error:
        where = f" in line {error.lineno}" if isinstance(error, NetrcParseError) else ""
        # The error's words may quote a password.
        raise ConfigError(f"netrc=True, and {path} cannot be read{where}") from None
    if found is None:
        raise ConfigError(f"netrc=True, and {path} names neither the machine {host} nor a default")
    return found[0], found[2] or ""


def digest(environ: Mapping[str, str]) -> bytes:
    """Return a digest that changes when the file names other credentials; none can be read from it."""
    path = _path(environ)
    try:
        return sha256(path.read_bytes()).digest()
    except OSError:
        return b""


def _path(environ: Mapping[str, str]) -> Path:
    named = environ.get("NETRC")
    return Path(named).expanduser() if named else Path(os.path.expanduser("~"), ".netrc")  # noqa: PTH111  HOME may be unset
