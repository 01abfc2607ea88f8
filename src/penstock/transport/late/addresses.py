"""The addresses that a host's name stands for, looked up aside: the I/O thread never waits for a resolver."""

from __future__ import annotations

import os
import socket
from _thread import start_new_thread
from contextlib import suppress
from time import monotonic
from typing import Final
from urllib.parse import urlsplit

__all__ = ["Addresses"]

_KEPT_S: Final = 10.0  # object stores change what their names stand for every few seconds
_HOSTS: Final = 64
_PORTS: Final = {"http": 80, "https": 443}
_PROXIES: Final = ("http_proxy", "https_proxy", "all_proxy", "HTTPS_PROXY", "ALL_PROXY")  # as libcurl reads them


class Addresses:
    """What is known of hosts. One thread asks; threads of its own, which end by themselves, look up."""

    def __init__(self) -> None:
        """Know nothing."""
        self._known: dict[tuple[str, int], tuple[float, tuple[str, ...]]] = {}

    def other(self, url: str, used: str) -> str:
        """Return another address of the URL's host than ``used``, of the same family; empty where none is known.

        Where the name was not looked up lately, that begins now, for those who ask later. Behind a proxy the name is
        the proxy's to resolve: empty.
        """
        parts = urlsplit(url)
        if parts.hostname is None or any(os.environ.get(each) for each in _PROXIES):
            return ""
        host = parts.hostname, parts.port or _PORTS.get(parts.scheme, 0)
        looked_at, addresses = self._known.get(host, (0.0, ()))
        if monotonic() - looked_at > _KEPT_S:
            self._begin(host)
        alike = [each for each in addresses if each != used and (":" in each) == (":" in used)]
        return alike[0] if alike else ""

    def _begin(self, host: tuple[str, int]) -> None:
        if len(self._known) >= _HOSTS:
            self._known.clear()
        self._known[host] = monotonic(), self._known.get(host, (0.0, ()))[1]  # one at a time
        with suppress(RuntimeError):  # no thread can be had
            start_new_thread(self._look, (host,))

    def _look(self, host: tuple[str, int]) -> None:
        with suppress(OSError, UnicodeError):
            found = socket.getaddrinfo(*host, type=socket.SOCK_STREAM)
            self._known[host] = monotonic(), tuple(dict.fromkeys(str(each[4][0]) for each in found))
