"""Connection pool of one store: a libcurl share that the handles of one session use, closed together with them."""

from __future__ import annotations

import ctypes
from typing import TYPE_CHECKING

from penstock.engine.transport.libcurl import share_cleanup, share_init, share_setopt

if TYPE_CHECKING:
    from penstock.engine.transport.stream import Pointer

__all__ = ["Pool"]

_SHARE, _CONNECTIONS = 1, 5  # CURLSHOPT_SHARE and CURL_LOCK_DATA_CONNECT, from curl/curl.h


class Pool:
    """Connections kept for reuse. libcurl needs no locks for them, because only one thread uses them."""

    __slots__ = ("handle",)

    def __init__(self) -> None:
        """Create an empty pool. Raises MemoryError if libcurl cannot."""
        self.handle: Pointer = share_init()
        if not self.handle or share_setopt(self.handle, _SHARE, ctypes.c_int(_CONNECTIONS)) != 0:
            raise MemoryError

    def close(self) -> None:
        """Close all connections. The handles that shared them must have been freed before."""
        share_cleanup(self.handle)
