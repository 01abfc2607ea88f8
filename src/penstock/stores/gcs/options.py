"""Options of Google Cloud Storage."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from penstock.errors import ConfigError
from penstock.options.parts import StoreOptions, check_sources
from penstock.options.private import PUBLIC

if TYPE_CHECKING:
    from collections.abc import Callable

WHERE = "endpoint= or STORAGE_EMULATOR_HOST"  # settings that locate it, for messages
# Variables of an HMAC key: MosaicML's Streaming, streaming/base/storage/download.py.
KEYS = ("GCS_KEY", "GCS_SECRET")

_SOURCES = (
    *("anonymous", "access_key", "token", "credentials", "credentials_process"),
    *("credentials_file", "credentials_json"),
)


@dataclass(frozen=True, slots=True, kw_only=True)
class GCSOptions(StoreOptions):
    """Location and credentials of Google Cloud Storage. These options override the environment and every file.

    With none of them, Google's application default credentials are used.

    Attributes:
        endpoint: Base URL of a server that speaks Google's XML API; default ``STORAGE_EMULATOR_HOST``, then
            ``https://storage.googleapis.com``.
        user_project: The project that pays for requests to a bucket with Requester Pays.
        credentials_file: A file of Google's credentials in JSON (a service account's key, workload identity, …);
            default ``GOOGLE_APPLICATION_CREDENTIALS``, then the result of ``google.auth.default()``.
        credentials_json: The text of such a file; never shown, logged or written.
        credentials: A function of your own that returns ``ps.credentials.BearerToken``; called again before the token
            expires. It is pickled for workers, so define it at a module's level.
        credentials_process: A program, with its arguments, that prints a token as JSON (docs/credentials.md).
        service_account: Act as this service account (its email), as the credentials may.
        token: An OAuth 2.0 access token, which nothing renews; never shown, logged or written.
        access_key: Id of an HMAC key; with ``secret_key``. Default: ``GCS_KEY``, where it is set.
        secret_key: Secret of an HMAC key; default ``GCS_SECRET``. Never shown, logged or written. Options
            with a secret are pickled for workers and nowhere else.
        anonymous: Send requests without credentials (public data).
        transport: HTTP options.
        retry: Retry options.
        read: Reading options.
        write: Writing options.
        cache: Cache of objects on this machine, so that reading them again needs no request.
        node: Resources shared with other processes of the machine.

    Example:
        >>> options = ps.GCSOptions(credentials_file="key.json", user_project="billed")
        >>> options.user_project
        'billed'
    """

    endpoint: str | None = field(default=None, metadata=PUBLIC)
    user_project: str | None = field(default=None, metadata=PUBLIC | {"elsewhere": ("requester_pays",)})
    credentials_file: str | None = field(default=None, metadata=PUBLIC)
    credentials_json: str | None = field(default=None, repr=False)
    credentials: Callable[[], object] | None = field(default=None, hash=False)  # may be unhashable
    credentials_process: str | tuple[str, ...] | None = None
    service_account: str | None = field(default=None, metadata=PUBLIC)
    token: str | None = field(default=None, repr=False)
    access_key: str | None = field(default=None, repr=False)
    secret_key: str | None = field(default=None, repr=False)
    anonymous: bool = False

    def __post_init__(self) -> None:
        check_sources(self, *_SOURCES)
        given = [name for name in _SOURCES if getattr(self, name) not in (None, False)]
        if self.service_account is not None and given and given[0] in ("anonymous", "access_key"):
            raise ConfigError(f"service_account needs Google's credentials: leave out {given[0]}")
