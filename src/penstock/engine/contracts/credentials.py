"""Contracts of credentials: a source that loads them, and an identity that keeps them fresh for a driver."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Protocol, TypeVar


class Renewable(Protocol):
    """Any credentials: keys, a bearer token, a signed query. Fields that the repr hides are secrets."""

    @property
    def token(self) -> str:
        """Token that marks temporary credentials, which may be renewed when refused; empty for lasting ones."""

    @property
    def expires_at(self) -> float | None:
        """Seconds since the epoch; None when they do not expire."""

    @property
    def found_in(self) -> str:
        """Origin of the credentials, for display: names and paths only."""


@dataclass(frozen=True, slots=True)
class Credentials:
    """A set of keys. The repr shows none of them.

    Attributes:
        access_key: Key id.
        secret_key: Secret.
        token: Session token; empty for long-lived keys.
        expires_at: Seconds since the epoch; None when they do not expire.
        found_in: Origin of the credentials, for display: names and paths only.

    Example:
        >>> def fetched():
        ...     return ps.credentials.Credentials("testing", "testing", expires_at=4e9)
        >>> ps.stat("s3://bucket/train/3/0000.png", store=ps.S3Options(credentials=fetched)).key
        'train/3/0000.png'
    """

    access_key: str = field(repr=False)
    secret_key: str = field(repr=False)
    token: str = field(default="", repr=False)
    expires_at: float | None = None
    found_in: str = field(default="", compare=False)


@dataclass(frozen=True, slots=True)
class BearerToken:
    """An OAuth 2.0 access token (RFC 6750). The repr does not show it.

    Attributes:
        token: The text after ``Bearer`` in ``Authorization``.
        expires_at: Seconds since the epoch; None if unknown.
        found_in: Origin of the credentials, for display: names and paths only.

    Example:
        >>> def fetched():
        ...     return ps.credentials.BearerToken("ya29.token", expires_at=4e9)
        >>> options = ps.GCSOptions(credentials=fetched)
        >>> fetched()
        BearerToken(expires_at=4000000000.0, found_in='')
    """

    token: str = field(repr=False)
    expires_at: float | None = None
    found_in: str = field(default="", compare=False)


C_co = TypeVar("C_co", bound=Renewable, covariant=True)


class CredentialSource(Protocol[C_co]):
    """A source of credentials. Thread-safe; may block (files, instance metadata), so never on the I/O thread."""

    def load(self) -> C_co | None:
        """Return fresh credentials, or None for unsigned requests.

        Raises:
            Unauthenticated: No credentials were found; the message names the places that were searched.
        """


class Identity(Protocol[C_co]):
    """The credentials that a driver signs with, kept fresh."""

    def current(self) -> C_co | None:
        """Return the credentials to sign with, None for unsigned requests; never blocks after ``refresh_if_due``."""

    def refresh_if_due(self) -> None:
        """Load or renew credentials when due; may block, so on callers' threads only. Raises what loading raises."""

    def due(self) -> bool:
        """Return whether ``refresh_if_due`` would load, and so may block."""

    def renew(self) -> bool:
        """Load new credentials in the background, because the server reports that these have expired.

        Return whether the report is about older credentials: such a load is under way already, or has just ended.
        """
