"""Penstock's errors under the class names that ``obspec.exceptions.map_exception`` recognizes."""

from __future__ import annotations

from contextlib import contextmanager
from typing import TYPE_CHECKING

from penstock.errors import (
    AlreadyExists,
    Changed,
    Forbidden,
    InvalidURL,
    NotFound,
    PenstockError,
    PreconditionFailed,
    Unauthenticated,
    Unsupported,
)

if TYPE_CHECKING:
    from collections.abc import Iterator

__all__ = ["NotModifiedError", "NotSupportedError", "PreconditionError", "named", "renamed"]


class NotFoundError(NotFound):
    """A missing object or bucket."""


class InvalidPathError(InvalidURL):
    """A path that no object can have."""


class NotSupportedError(Unsupported):
    """An operation that the store or Penstock does not support."""


class AlreadyExistsError(AlreadyExists):
    """An object that exists already."""


class PreconditionError(PreconditionFailed):
    """An object that does not match the requested version or condition."""


class NotModifiedError(PenstockError):
    """An object that has not changed since the known version."""


class PermissionDeniedError(Forbidden):
    """An operation that the credentials do not permit."""


class UnauthenticatedError(Unauthenticated):
    """Missing, unknown or expired credentials."""


_NAMES: tuple[tuple[type[PenstockError], type[PenstockError]], ...] = (
    (NotFound, NotFoundError),
    (InvalidURL, InvalidPathError),
    (Unsupported, NotSupportedError),
    (AlreadyExists, AlreadyExistsError),
    (PreconditionFailed, PreconditionError),
    (Changed, PreconditionError),
    (Forbidden, PermissionDeniedError),
    (Unauthenticated, UnauthenticatedError),
)


def named(error: PenstockError) -> PenstockError:
    """Return an error under the class name that obspec knows, or the error itself if obspec does not know it."""
    kind = next((kind for each, kind in _NAMES if isinstance(error, each)), None)
    if kind is None or isinstance(error, kind):
        return error
    other = kind(error.message, url=error.url, attempts=error.attempts, elapsed_s=error.elapsed_s)
    other.code, other.retry_after_s = error.code, error.retry_after_s
    return other


@contextmanager
def renamed() -> Iterator[None]:
    """Raise errors of the block under the class names that obspec knows."""
    try:
        yield
    except PenstockError as error:
        known = named(error)
        if known is error:
            raise
        raise known from error
