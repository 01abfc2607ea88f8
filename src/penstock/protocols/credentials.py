"""Contracts of credentials: a source that loads them, and an identity that keeps them fresh for a driver."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Protocol

__all__ = ["CredentialSource", "Credentials", "Identity"]


@dataclass(frozen=True, slots=True)
class Credentials:
    """One set of keys. The repr shows none of them.

    Attributes:
        access_key: Key id.
        secret_key: Secret.
        token: Session token; empty for long-lived keys.
        expires_at: Seconds since the epoch; None when they do not expire.

    """

    access_key: str = field(repr=False)
    secret_key: str = field(repr=False)
    token: str = field(default="", repr=False)
    expires_at: float | None = None


class CredentialSource(Protocol):
    """Where credentials come from. Thread-safe; may block (files, instance metadata), so never on the I/O thread."""

    def load(self) -> Credentials | None:
        """Return fresh credentials, or None for unsigned requests.

        Raises:
            Unauthenticated: There are none; the text says where was looked.

        """


class Identity(Protocol):
    """The credentials that a driver signs with, kept fresh."""

    def current(self) -> Credentials | None:
        """Return what to sign with, None for unsigned requests; never blocks once ``refresh_if_due`` has returned."""

    def refresh_if_due(self) -> None:
        """Load or renew when it is time; may block, so on callers' threads only. Raises what loading raises."""

    def renew(self) -> None:
        """Load other credentials in the background, because the server says that these have expired."""
