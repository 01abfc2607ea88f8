"""Penstock's errors under the names that ``obspec.exceptions.map_exception`` knows: it looks at a class's name."""

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
    """No such object or bucket."""


class InvalidPathError(InvalidURL):
    """A path that no object can have."""


class NotSupportedError(Unsupported):
    """The store, or Penstock, does not offer this."""


class AlreadyExistsError(AlreadyExists):
    """There is an object already."""


class PreconditionError(PreconditionFailed):
    """The object is not the one that was asked for."""


class NotModifiedError(PenstockError):
    """The object is still the one that is known."""


class PermissionDeniedError(Forbidden):
    """The credentials may not do this."""


class UnauthenticatedError(Unauthenticated):
    """Credentials are missing, unknown or expired."""


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
    """Return an error under the name that obspec knows, or itself where it knows none."""
    kind = next((kind for each, kind in _NAMES if isinstance(error, each)), None)
    if kind is None or isinstance(error, kind):
        return error
    other = kind(error.message, url=error.url, attempts=error.attempts, elapsed_s=error.elapsed_s)
    other.code, other.retry_after_s = error.code, error.retry_after_s
    return other


@contextmanager
def renamed() -> Iterator[None]:
    """Raise errors of the block under the names that obspec knows."""
    try:
        yield
    except PenstockError as error:
        known = named(error)
        if known is error:
            raise
        raise known from error
