"""Pool of filesystem instances: each serves one call at a time, unless it is asynchronous; none survives a fork."""

from __future__ import annotations

import os
import sys
from contextlib import contextmanager, suppress
from queue import Empty, SimpleQueue
from typing import TYPE_CHECKING, Any

from penstock.errors import ConfigError, InvalidURL, MissingExtra, UnknownScheme

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from fsspec import AbstractFileSystem

__all__ = ["Instances", "filesystem_class"]


def filesystem_class(protocol: str, url: str) -> type[AbstractFileSystem]:
    """Return fsspec's class for a protocol.

    Raises:
        UnknownScheme: fsspec has no class for it.
        MissingExtra: A library that the class needs is not installed; the message is fsspec's.
        InvalidURL: The class is Penstock's own.

    """
    from fsspec import get_filesystem_class

    back = InvalidURL("this leads through fsspec back to Penstock: leave 'fsspec+' away", url=url)
    if protocol == "penstock":
        raise back
    try:
        found: type[AbstractFileSystem] = get_filesystem_class(protocol)
    except ValueError as error:
        raise UnknownScheme(f"fsspec knows no protocol {protocol!r}", url=url) from error
    except ImportError as error:
        raise MissingExtra(f"fsspec cannot open {protocol}://: {error}", url=url) from error
    if found.__module__.partition(".")[0] == "penstock":
        raise back
    return found


class Instances:
    """Pool of the instances for one root. FTP clients and the like have one connection, which two calls would mix up.

    fsspec's cached instances are never used: other libraries may use them at the same time.
    """

    def __init__(self, url: str, options: Mapping[str, object]) -> None:
        """Open ``url``, ``protocol://rest/``, with ``options`` as arguments, when first borrowed."""
        self._url = url
        self._options = options
        self._free: SimpleQueue[tuple[Any, str]] = SimpleQueue()

    @contextmanager
    def borrow(self) -> Iterator[tuple[Any, str]]:
        """Yield an instance and its path of the root, which ends in ``/``."""
        try:
            instance = self._free.get_nowait()
        except Empty:
            instance = self._make()
        shared = instance[0].async_impl  # all its calls run in one loop, from any thread
        if shared:
            self._free.put(instance)
        try:
            yield instance
        finally:
            if not shared:
                self._free.put(instance)

    def _make(self) -> tuple[Any, str]:
        from fsspec.core import url_to_fs

        try:
            instance, root = url_to_fs(self._url, **self._options, skip_instance_cache=True)
        except TypeError as error:
            raise ConfigError(f"the filesystem does not take these storage_options: {error}") from error
        return instance, root if root.endswith("/") else f"{root}/"


_loops: list[Any] = []  # fsspec's event loop at the last fork of this process


def _note() -> None:
    """Hold the loop before a fork, so that it is not freed in the child before ``_forget`` runs."""
    asyn = sys.modules.get("fsspec.asyn")
    _loops[:] = [] if asyn is None else [each for each in asyn.loop if each is not None]


def _forget() -> None:
    """Reset fsspec in a forked child, and keep the remains of its loop away from the parent's.

    Parent and child share one epoll set. A loop, a session or a connection that is freed in the child removes its
    sockets from that set, and the parent would wait for them forever. Closed loops leave the set alone, and so do their
    sessions and connections.
    """
    for loop in _loops:
        with suppress(Exception):
            loop._closed = True  # noqa: SLF001  ``close`` would remove the pipe that wakes the parent
            loop._selector.close()  # noqa: SLF001  only closes the child's descriptor of the set
    asyn = sys.modules.get("fsspec.asyn")
    if asyn is not None:
        asyn.reset_lock()


os.register_at_fork(before=_note, after_in_child=_forget)
