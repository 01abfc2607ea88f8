"""Options of S3 and of the stores that speak its dialect."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Literal

from penstock.errors import ConfigError
from penstock.options.private import PUBLIC
from penstock.options.sources import check_sources
from penstock.options.store import StoreOptions

if TYPE_CHECKING:
    from collections.abc import Callable

__all__ = ["S3Options"]


@dataclass(frozen=True, slots=True, kw_only=True)
class S3Options(StoreOptions):
    """Where an S3-compatible store is and who you are to it. These beat the environment and every file.

    Attributes:
        endpoint: Base URL of an S3-compatible server, with a path where it has one; default ``AWS_ENDPOINT_URL_S3``,
            ``AWS_ENDPOINT_URL``, the profile's ``endpoint_url``, then AWS's own for the region.
        region: Signing region; default ``AWS_REGION``, ``AWS_DEFAULT_REGION``, the profile's, then ``us-east-1``.
        access_key: Key id; with ``secret_key``. Default: the credential chain.
        secret_key: Secret; never shown, logged or written. Options with it are pickled for workers and nowhere else.
        session_token: Token of temporary credentials.
        profile: Name in the shared AWS files; default ``AWS_PROFILE``.
        credentials: A function of your own that returns ``ps.Credentials``; asked again before they expire. Workers get
            it by reference, so define it at a module's level.
        credentials_process: A program, with its arguments, that prints credentials as JSON (docs/credentials.md).
        anonymous: Send unsigned requests (public data).
        addressing: ``path`` (``host/bucket/key``), ``virtual`` (``bucket.host/key``), or ``auto``: virtual on AWS
            itself, path wherever an endpoint is given.
        transport: HTTP options.
        retry: Retry options.
        read: Reading options.
        write: Writing options.

    """

    endpoint: str | None = field(default=None, metadata=PUBLIC)
    region: str | None = field(default=None, metadata=PUBLIC)
    access_key: str | None = field(default=None, repr=False)
    secret_key: str | None = field(default=None, repr=False)
    session_token: str | None = field(default=None, repr=False)
    profile: str | None = field(default=None, metadata=PUBLIC)
    credentials: Callable[[], object] | None = None
    credentials_process: str | tuple[str, ...] | None = None
    anonymous: bool = False
    addressing: Literal["auto", "path", "virtual"] = field(default="auto", metadata=PUBLIC)

    def __post_init__(self) -> None:
        """Refuse halves and contradictions at once, not at the first request."""
        if (self.access_key is None) != (self.secret_key is None):
            message = "access_key and secret_key go together: one of them is missing"
            raise ConfigError(message)
        if self.session_token is not None and self.access_key is None:
            message = "session_token needs access_key and secret_key"
            raise ConfigError(message)
        check_sources(self, "anonymous", "access_key", "credentials", "credentials_process")
        if self.addressing not in ("auto", "path", "virtual"):
            message = f"addressing must be 'auto', 'path' or 'virtual', not {self.addressing!r}"
            raise ConfigError(message)
