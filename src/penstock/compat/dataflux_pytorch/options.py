"""Store options for the clients and retry settings that Dataflux's classes take."""

from __future__ import annotations

from datetime import UTC
from typing import Any

from penstock.engine.contracts.credentials import BearerToken
from penstock.errors import MissingExtra, Unusable
from penstock.options import RetryOptions
from penstock.stores.gcs.options import GCSOptions

__all__ = ["store_options"]

_GOOGLE = "https://storage.googleapis.com"
_NO_DEADLINE_S = 1e9


def store_options(storage_client: Any = None, retry: Any = None) -> GCSOptions:  # noqa: ANN401  objects of Google's libraries
    """Return store options for a ``google.cloud.storage.Client`` and a ``google.api_core.retry.Retry``.

    The client supplies its credentials and its endpoint. Without a client: Google's application default credentials, or
    ``STORAGE_EMULATOR_HOST``. The retry settings supply the deadline, and the first and the longest delay.

    Raises:
        Unusable: An argument has a different type.

    """
    given: dict[str, Any] = {}
    if retry is not None:
        given["retry"] = _retries(retry)
    if storage_client is None:
        return GCSOptions(**given)
    credentials = getattr(storage_client, "_credentials", None)
    endpoint = getattr(getattr(storage_client, "_connection", None), "API_BASE_URL", None)
    if credentials is None or not isinstance(endpoint, str):
        raise Unusable(f"storage_client is a google.cloud.storage.Client, not {storage_client!r}")
    if endpoint.rstrip("/") != _GOOGLE:
        given["endpoint"] = endpoint
    if type(credentials).__name__ == "AnonymousCredentials":
        return GCSOptions(anonymous=True, **given)
    return GCSOptions(credentials=ClientToken(credentials), **given)


class ClientToken:
    """Source of tokens from a client's credentials, refreshed as the client would. Workers receive the credentials."""

    def __init__(self, credentials: Any) -> None:  # noqa: ANN401  google-auth has no types
        """Use ``credentials``."""
        self._credentials = credentials

    def __call__(self) -> BearerToken:
        """Return a valid token. Raise ``MissingExtra`` if it needs a refresh and google-auth is not installed."""
        held = self._credentials
        if not held.valid:
            try:
                from google.auth.transport.requests import Request
            except ImportError as error:
                raise MissingExtra("a client's credentials need google-auth: pip install 'penstock[gcs]'") from error
            held.refresh(Request())
        expires_at = None if held.expiry is None else held.expiry.replace(tzinfo=UTC).timestamp()
        return BearerToken(held.token, expires_at, "storage_client")


def _retries(retry: Any) -> RetryOptions:  # noqa: ANN401  an object of google.api_core
    try:
        initial, maximum, timeout = retry._initial, retry._maximum, retry._timeout  # noqa: SLF001  they are not public
    except AttributeError:
        raise Unusable(f"a retry configuration is a google.api_core.retry.Retry, not {retry!r}") from None
    patience = _NO_DEADLINE_S if timeout is None else timeout
    return RetryOptions(base_s=initial, cap_s=maximum, patience_s=patience)
