"""Who signs: a credential source and the values it yields."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Protocol

__all__ = ["CredentialSource", "Credentials"]


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
