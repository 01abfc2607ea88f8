"""Where Azure's credentials come from: options, connection string, environment, azure-identity's default chain."""

from __future__ import annotations

import importlib
import logging
import os
import time
from typing import TYPE_CHECKING, Any

from penstock.config.azure import resolve
from penstock.drivers.azure.signing import AccountKey, SharedAccess
from penstock.errors import ConfigError, MissingExtra, PenstockError, Unauthenticated
from penstock.protocols.credentials import BearerToken

if TYPE_CHECKING:
    from collections.abc import Mapping

    from penstock.config.azure import AzureSettings
    from penstock.drivers.azure.signing import Authorization
    from penstock.options import AzureOptions
    from penstock.protocols.credentials import CredentialSource

__all__ = ["SCOPE", "source"]

SCOPE = "https://storage.azure.com/.default"
_VALID_S = 600.0  # what a function that names no expiry gives; it is asked again 300 s before


def source(
    options: AzureOptions, settings: AzureSettings, environ: Mapping[str, str]
) -> CredentialSource[Authorization]:
    """Return where credentials come from; nothing is looked up before its ``load``.

    In this order: what was passed (``anonymous``, key, SAS, connection string, token, ``credential``), the
    environment's key, SAS or connection string, and azure-identity's ``DefaultAzureCredential`` (environment, workload
    identity, managed identity, the command-line tools), which is made anew for every ``load`` and so shares no lock
    with a forked parent. The environment is ``environ``, a copy: azure-identity reads the process's own and is asked
    only as long as that names the same identity.

    ``load`` raises:
        MissingExtra: Only azure-identity is left, and it is not installed.
        Unauthenticated: It found nothing, or a ``credential`` failed; the text says where was looked.

    No text and no chained cause quotes what foreign code said where it might hold a secret.
    """
    return _Chain(options, settings, environ)


class _Chain:
    """The order ``source`` documents."""

    def __init__(self, options: AzureOptions, settings: AzureSettings, environ: Mapping[str, str]) -> None:
        self._options = options
        self._settings = settings
        self._environ = environ

    def load(self) -> Authorization | None:
        options, settings = self._options, self._settings
        if options.token is not None:
            return _bearer(options.token, None, "AzureOptions.token")
        if options.credential is not None:
            return _asked(options.credential, "AzureOptions.credential")
        if settings.anonymous:
            return None
        if settings.key.value:
            return AccountKey(settings.key.value, settings.key.by)
        if settings.sas.value:
            return SharedAccess(settings.sas.value, settings.sas.by)
        if resolve(options, os.environ)[1] != resolve(options, self._environ)[1]:
            raise Unauthenticated("the environment names another identity by now: open the source anew")
        return _asked(_default(), "azure-identity's default chain")


def _default() -> Any:  # noqa: ANN401  an optional library's
    try:
        identity = importlib.import_module("azure.identity")
    except ModuleNotFoundError as error:
        raise MissingExtra(
            f"{_nowhere()} azure-identity, which finds managed and workload identities and `az login`, is not "
            "installed: pip install penstock[azure]"
        ) from error
    return identity.DefaultAzureCredential()


def _nowhere() -> str:
    return (
        "no credentials for Azure: looked in AzureOptions, AZURE_STORAGE_CONNECTION_STRING, AZURE_STORAGE_ACCOUNT_KEY, "
        "AZURE_STORAGE_SAS_TOKEN and AZURE_STORAGE_ANON; anonymous=True (--anonymous, AZURE_STORAGE_ANON=true) reads "
        "public containers."
    )


def _asked(credential: Any, named: str) -> BearerToken:  # noqa: ANN401  anyone's
    """Return a token of a credential of azure-identity's kind, or of a function."""
    logger = logging.getLogger("azure.identity")
    level = logger.level
    logger.setLevel(logging.CRITICAL)  # it warns of each way that it tried
    try:
        found = credential.get_token(SCOPE) if hasattr(credential, "get_token") else credential()
        if isinstance(found, str):
            return _bearer(found, time.time() + _VALID_S, named)
        return _bearer(found.token, float(found.expires_on), named)
    except PenstockError:
        raise
    except Exception as error:  # noqa: BLE001  foreign code raises anything, and may quote a secret
        failure = Unauthenticated(
            f"{named} gave no token: {type(error).__name__}. {_nowhere()} `az account get-access-token "
            "--resource https://storage.azure.com` shows why, where the command-line tools are used"
        )
    finally:
        logger.setLevel(level)
    raise failure  # out here, so that the original is not chained to it


def _bearer(token: object, expires_at: float | None, named: str) -> BearerToken:
    if not isinstance(token, str) or not token or not all("!" <= char <= "~" for char in token):
        raise ConfigError(f"{named} gave no bearer token: printable ASCII, without spaces and line breaks")
    return BearerToken(token, expires_at, named)
