"""``az://`` and ``abfs[s]://``: containers of Azure Blob Storage, also of accounts with a hierarchical namespace.

Azure credentials from options, connection string, environment and azure-identity's default chain.
"""

from __future__ import annotations

import importlib
import logging
import os
import re
import time
from dataclasses import replace
from typing import TYPE_CHECKING, Any
from urllib.parse import unquote

from penstock.engine.contracts.credentials import BearerToken
from penstock.engine.contracts.driver import Abilities, Limits
from penstock.errors import ConfigError, MissingExtra, PenstockError, Unauthenticated
from penstock.stores.azure.options import AzureOptions
from penstock.stores.azure.settings import WHERE, located, resolve, secured
from penstock.stores.azure.signing import AccountKey, SharedAccess
from penstock.stores.http.network import connected
from penstock.stores.provider import Opening, Provider

if TYPE_CHECKING:
    from collections.abc import Mapping

    from penstock.engine.contracts.credentials import CredentialSource
    from penstock.engine.contracts.driver import Driver
    from penstock.engine.contracts.exchange import Transport
    from penstock.stores.azure.settings import AzureSettings
    from penstock.stores.azure.signing import Authorization


__all__ = ["PROVIDER", "SCOPE", "source"]

_MIB = 1 << 20
_CONTAINER = re.compile(r"(?=.{3,63}$)[a-z0-9]+(-[a-z0-9]+)*|\$(root|web|logs)").fullmatch
# Azure's own domains, and those of its national clouds.
_DOMAINS = r"core\.(?:windows\.net|chinacloudapi\.cn|usgovcloudapi\.net)|fabric\.microsoft\.com|storage\.azure\.net"
_HOST = re.compile(rf"[a-z0-9]{{3,24}}(?:\.z[0-9]+)?\.(?:dfs|blob)\.(?:{_DOMAINS})").fullmatch
_URL = re.compile(
    rf"https?://([a-z0-9]{{3,24}}\.(?:dfs|blob)\.(?:{_DOMAINS}))(?::\d+)?/([^/?#]+)(/[^?#]*)?", re.IGNORECASE
)
_CONTROL = re.compile(r"[\x00-\x1f\x7f-\x9f\ufffe\uffff]")
_MOST_CHARACTERS = 1024


def _open(opening: Opening) -> tuple[Driver, Transport]:
    from penstock.stores.azure.driver import Azure
    from penstock.stores.azure.signing import Container
    from penstock.stores.credentials import RefreshingCredentials

    options, settings = opening.options, opening.settings
    name, _, host = opening.bucket.partition("@")
    account, endpoint = located(settings, host)
    if not (secured(endpoint) or settings.anonymous or settings.key.value):
        raise ConfigError(
            f"{endpoint} has no TLS, and a token or a shared access signature would go there for all to read: write "
            "https://, or pass account_key=, which is never sent",
            url=opening.root,
        )
    identity = RefreshingCredentials(source(options, settings, opening.environ))
    driver = Azure(Container(name, account, endpoint, opening.root), identity, checksums=options.checksums)
    driver.abilities = replace(opening.provider.abilities, digest=driver.abilities.digest, sums=driver.abilities.sums)
    driver.page_keys = opening.provider.limits.page_keys
    return driver, connected(opening, endpoint)


def _bucket_fault(bucket: str) -> str:
    name, mark, host = bucket.partition("@")
    if not _CONTAINER(name):
        words = "3 to 63 lower-case letters, digits and single '-' between them, or $root, $web, $logs"
        return f"{name[:80]!r} cannot be a container: {words}"
    if mark and not _HOST(host):
        return f"{host[:80]!r} is no account's host: write container@account.dfs.core.windows.net"
    return ""


def _key_fault(key: str) -> str:
    if "\\" in key:
        return "the key holds a backslash, of which Azure makes a '/'"
    if any(part.endswith(".") for part in key.split("/")):
        return "the key has a part that ends in a dot, which Azure leaves out"
    if _CONTROL.search(key):
        return "the key holds a control character, which Azure takes in no name"
    if len(key) > _MOST_CHARACTERS:
        return f"the key has {len(key)} characters; Azure holds {_MOST_CHARACTERS}"
    return ""


def _advice(text: str) -> str:
    if match := _URL.match(text):
        host, container, path = match.groups()
        host = host.lower().replace(".blob.", ".dfs.", 1)
        return f"for this object write abfss://{unquote(container)}@{host}{unquote(path or '/')}"
    return ""


PROVIDER = Provider(
    name="Azure",
    schemes=("az", "abfs", "abfss", "adl", "azure"),
    open=_open,
    bucket_fault=_bucket_fault,
    key_fault=_key_fault,
    # "Scalability and performance targets for Blob storage", of versions of the protocol since 2019-12-12.
    limits=Limits(
        most_part_bytes=4000 * _MIB,
        most_parts=50_000,
        put_bytes=5000 * _MIB,
        copy_bytes=256 * _MIB,
        copy_part_bytes=128 * _MIB,
        page_keys=5000,
        key_bytes=4 * _MOST_CHARACTERS,
        metadata_bytes=8 << 10,
    ),
    abilities=Abilities(seeks=False, ranges=None),
    options=AzureOptions,
    resolve=resolve,
    example="AzureOptions(account=…, account_key=…)",
    advice=_advice,
    where=WHERE,
    extra="penstock[azure]",
)


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
