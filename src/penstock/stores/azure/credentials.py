"""Azure credentials from options, connection string, environment and azure-identity's default chain."""

from __future__ import annotations

import importlib
import logging
import os
import time
from typing import TYPE_CHECKING, Any

from penstock.engine.contracts.credentials import BearerToken
from penstock.errors import ConfigError, MissingExtra, PenstockError, Unauthenticated
from penstock.stores.azure.settings import resolve
from penstock.stores.azure.signing import AccountKey, SharedAccess

if TYPE_CHECKING:
    from collections.abc import Mapping

    from penstock.engine.contracts.credentials import CredentialSource
    from penstock.stores.azure.options import AzureOptions
    from penstock.stores.azure.settings import AzureSettings
    from penstock.stores.azure.signing import Authorization

__all__ = ["SCOPE", "source"]

SCOPE = "https://storage.azure.com/.default"
# Lifetime assumed for a token of a function that returns no expiry; it is renewed 300 s before.
_VALID_S = 600.0


def source(
    options: AzureOptions, settings: AzureSettings, environ: Mapping[str, str]
) -> CredentialSource[Authorization]:
    """Return the source of credentials; nothing is looked up before its ``load``.

    In this order: the options (``anonymous``, key, SAS, connection string, token, ``credential``), the environment's
    key, SAS or connection string, and azure-identity's ``DefaultAzureCredential`` (environment, workload identity,
    managed identity, the command-line tools). The latter is created for every ``load``, so it shares no lock with a
    forked parent. The environment is ``environ``, a copy. azure-identity reads the process's environment, so it is used
    only while both name the same identity.

    ``load`` raises:
        MissingExtra: Only azure-identity is left, and it is not installed.
        Unauthenticated: azure-identity found nothing, or a ``credential`` failed; the message lists the places
            searched.

    Neither the message nor a chained cause quotes foreign error texts that might hold a secret.
    """
    return _Chain(options, settings, environ)


class _Chain:
    """Credential source in the order that ``source`` documents."""

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
    """Return a token of a credential object like azure-identity's, or of a function."""
    logger = logging.getLogger("azure.identity")
    level = logger.level
    logger.setLevel(logging.CRITICAL)  # it warns of each way that failed
    try:
        found = credential.get_token(SCOPE) if hasattr(credential, "get_token") else credential()
        if isinstance(found, str):
            return _bearer(found, time.time() + _VALID_S, named)
        return _bearer(found.token, float(found.expires_on), named)
    except PenstockError:
        raise
    except Exception as error:  # noqa: BLE001  foreign code raises any error, and may quote a secret
        failure = Unauthenticated(
            f"{named} gave no token: {type(error).__name__}. {_nowhere()} `az account get-access-token "
            "--resource https://storage.azure.com` shows why, where the command-line tools are used"
        )
    finally:
        logger.setLevel(level)
    # Raised outside the except block, so that the original is not chained.
    raise failure


def _bearer(token: object, expires_at: float | None, named: str) -> BearerToken:
    if not isinstance(token, str) or not token or not all("!" <= char <= "~" for char in token):
        raise ConfigError(f"{named} gave no bearer token: printable ASCII, without spaces and line breaks")
    return BearerToken(token, expires_at, named)
