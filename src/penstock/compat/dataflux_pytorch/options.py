"""The clients, retry settings and paths that Dataflux's classes take, as options and URLs of a store."""

from __future__ import annotations

from datetime import UTC
from pathlib import PurePath
from typing import TYPE_CHECKING, Any

from penstock.errors import InvalidURL, MissingExtra, Unusable
from penstock.options import GCSOptions, RetryOptions
from penstock.protocols.credentials import BearerToken
from penstock.providers.urls import parse

if TYPE_CHECKING:
    import os

__all__ = ["gcs_url", "store_options"]

_GOOGLE = "https://storage.googleapis.com"
_NO_DEADLINE_S = 1e9


def store_options(storage_client: Any = None, retry: Any = None) -> GCSOptions:  # noqa: ANN401  objects of Google's libraries
    """Return the options that a ``google.cloud.storage.Client`` and a ``google.api_core.retry.Retry`` mean.

    Of the client these are its credentials and its endpoint. Without one: Google's application default credentials, or
    ``STORAGE_EMULATOR_HOST``. Of the retry settings these are the deadline, and the first and the longest delay.

    Raises:
        Unusable: Neither is what it should be.

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
    """Tokens of the credentials that a client has, refreshed as the client would. Workers get the credentials."""

    def __init__(self, credentials: Any) -> None:  # noqa: ANN401  google-auth has no types
        """Ask ``credentials``."""
        self._credentials = credentials

    def __call__(self) -> BearerToken:
        """Return a token that is valid now. ``MissingExtra`` where what refreshes it is not installed."""
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
        initial, maximum, timeout = retry._initial, retry._maximum, retry._timeout  # noqa: SLF001  it shows them nowhere else
    except AttributeError:
        raise Unusable(f"a retry configuration is a google.api_core.retry.Retry, not {retry!r}") from None
    patience = _NO_DEADLINE_S if timeout is None else timeout
    return RetryOptions(base_s=initial, cap_s=maximum, patience_s=patience)


def gcs_url(path: str | os.PathLike[str]) -> str:
    """Return the URL of a ``gs://`` or ``gcs://`` path; also of a pathlib path, which has lost one of its slashes.

    Raises:
        TypeError: It is neither text nor a path.
        InvalidURL: It is of another store, or empty; a ``ValueError``, as in the original.

    """
    if not isinstance(path, str | PurePath):
        raise TypeError(f"a path is text or a pathlib.Path, not a {type(path).__name__}")
    url = str(path).replace(":/", "://", 1) if isinstance(path, PurePath) else path
    if not url.startswith(("gs://", "gcs://")):
        raise InvalidURL("a path begins with gcs:// or gs://", url=url)
    parse(url)
    return url
