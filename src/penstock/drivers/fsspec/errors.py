"""Errors of filesystems as Penstock's: by their class and number, since their words differ from library to library."""

from __future__ import annotations

import errno
from asyncio import TimeoutError as AsyncTimeout
from typing import TYPE_CHECKING

from penstock.errors import (
    AlreadyExists,
    Forbidden,
    NoSpace,
    NotFound,
    PenstockError,
    TimedOut,
    Transient,
    Unreachable,
    Unsupported,
    Unusable,
)

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

__all__ = ["translated"]

_UNREACHABLE = {
    *(errno.ECONNREFUSED, errno.ECONNRESET, errno.ECONNABORTED, errno.EHOSTUNREACH, errno.ENETUNREACH, errno.EPIPE),
    *(errno.ENETDOWN, errno.EHOSTDOWN, errno.ENOTCONN),
}
_FOR_GOOD = {errno.EINVAL, errno.ENAMETOOLONG, errno.ELOOP, errno.EROFS, errno.EXDEV, errno.EFBIG}
# The first that fits; what Python's own classes do not tell is told by a number, or by the class's name.
_KINDS: tuple[tuple[tuple[type[BaseException], ...], type[PenstockError]], ...] = (
    ((FileNotFoundError, NotADirectoryError, IsADirectoryError), NotFound),
    ((FileExistsError,), AlreadyExists),
    ((PermissionError,), Forbidden),
    ((TimeoutError, AsyncTimeout), TimedOut),
    ((ConnectionError, EOFError), Unreachable),
    ((NotImplementedError,), Unsupported),
    ((ValueError, TypeError, AttributeError, KeyError, ImportError), Unusable),
)
# Of classes that are no OSError: those of HTTP clients and SDKs.
_NAMED: Mapping[str, type[PenstockError]] = {
    "timeout": TimedOut,
    "notfound": NotFound,
    "auth": Forbidden,
    "permission": Forbidden,
    "forbidden": Forbidden,
}


def translated(error: Exception, action: str, url: str, secrets: Iterable[str] = ()) -> PenstockError:
    """Return the error that ``action`` (a verb) met with as one of Penstock's, with its cause.

    A cause whose words hold one of the ``secrets`` is left out: a traceback would show it.
    """
    if isinstance(error, PenstockError):
        error.url = error.url or url
        return error
    words = f"cannot {action}: {type(error).__name__}"
    if text := str(error).strip():
        words = f"{words}: {text}"
    found = _kind(error)(words, url=url)
    if not any(secret in f"{error!r}{error}" for secret in secrets):
        found.__cause__ = error
    return found


def _kind(error: Exception) -> type[PenstockError]:
    cause = error.__cause__
    if isinstance(error, FileNotFoundError) and isinstance(cause, ConnectionError | TimeoutError | OSError):
        told = _kind(cause)  # fsspec's own HTTP filesystem says this of each server that it cannot reach
        if issubclass(told, Unreachable | TimedOut):
            return told
    for classes, kind in _KINDS:
        if isinstance(error, classes):
            return kind
    if isinstance(error, OSError):
        if error.errno in NoSpace.ERRNOS:
            return NoSpace
        if error.errno in _UNREACHABLE:
            return Unreachable
        return Unusable if error.errno in _FOR_GOOD else Transient
    name = type(error).__name__.lower()
    return next((kind for word, kind in _NAMED.items() if word in name), Transient)
