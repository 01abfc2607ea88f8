"""The connections of one store: libcurl's pool, which the handles of one session share, and which closes with them."""

from __future__ import annotations

import ctypes
from typing import TYPE_CHECKING

from penstock.transport.libcurl import share_cleanup, share_init, share_setopt

if TYPE_CHECKING:
    from penstock.transport.stream import Pointer

__all__ = ["Pool"]

_SHARE, _CONNECTIONS = 1, 5  # CURLSHOPT_SHARE and CURL_LOCK_DATA_CONNECT, from curl/curl.h


class Pool:
    """Connections that are kept for reuse. libcurl wants no locks for them: one thread alone uses them."""

    __slots__ = ("handle",)

    def __init__(self) -> None:
        """Make an empty one; MemoryError where libcurl cannot."""
        self.handle: Pointer = share_init()
        if not self.handle or share_setopt(self.handle, _SHARE, ctypes.c_int(_CONNECTIONS)) != 0:
            raise MemoryError

    def close(self) -> None:
        """Close all of them; the handles that shared them are freed by now."""
        share_cleanup(self.handle)
