"""``az://`` and ``abfs[s]://``: containers of Azure Blob Storage, also of accounts with a hierarchical namespace.

Location and credentials come from options, connection string, environment and azure-identity's default chain.
"""

from __future__ import annotations

import importlib
import ipaddress
import logging
import os
import re
import time
from base64 import b64decode
from binascii import Error
from dataclasses import dataclass, field, replace
from hashlib import sha256
from typing import TYPE_CHECKING, Any
from urllib.parse import unquote, urlsplit

from penstock.engine import endpoint as endpoints
from penstock.engine.contracts.credentials import BearerToken
from penstock.engine.contracts.driver import Abilities, Limits
from penstock.errors import ConfigError, MissingExtra, PenstockError, Unauthenticated
from penstock.options.private import given
from penstock.stores.azure.options import WHERE, AzureOptions
from penstock.stores.azure.signing import AccountKey, SharedAccess
from penstock.stores.http.network import ca_file, first, make_transport, variables
from penstock.stores.store import Opening, Store

if TYPE_CHECKING:
    from collections.abc import Mapping

    from penstock.engine.contracts.driver import Driver
    from penstock.engine.contracts.exchange import Transport
    from penstock.stores.azure.signing import Authorization

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


class Azure(Store):
    """``az://`` and ``abfs[s]://``: containers, perhaps with their account's host: ``container@host``."""

    name = "Azure"
    schemes = ("az", "abfs", "abfss", "adl", "azure")
    # "Scalability and performance targets for Blob storage", of versions of the protocol since 2019-12-12.
    limits = Limits(
        most_part_bytes=4000 * _MIB,
        most_parts=50_000,
        put_bytes=5000 * _MIB,
        copy_bytes=256 * _MIB,
        copy_part_bytes=128 * _MIB,
        page_keys=5000,
        key_bytes=4 * _MOST_CHARACTERS,
        metadata_bytes=8 << 10,
    )
    abilities = Abilities(seeks=False, ranges=None)
    options = AzureOptions
    example = "AzureOptions(account=…, account_key=…)"
    where = WHERE
    extra = "penstock[azure]"

    def open(self, opening: Opening) -> tuple[Driver, Transport]:
        """Return the driver of a container; refuse to send a secret unencrypted."""
        from penstock.stores.azure.driver import AzureDriver
        from penstock.stores.azure.signing import Container
        from penstock.stores.credentials import RefreshingCredentials

        options, settings = opening.options, opening.settings
        name, _, host = opening.bucket.partition("@")
        account, endpoint = locate_container(settings, host)
        if not (is_secured(endpoint) or settings.anonymous or settings.key.value):
            raise ConfigError(
                f"{endpoint} has no TLS, and a token or a shared access signature would be sent unencrypted: "
                "write https://, or pass account_key=, which is never sent",
                url=opening.root,
            )
        identity: RefreshingCredentials[Authorization]
        identity = RefreshingCredentials(AzureCredentials(options, settings, opening.environ))
        driver = AzureDriver(Container(name, account, endpoint, opening.root), identity, checksums=options.checksums)
        driver.abilities = replace(self.abilities, digest=driver.abilities.digest, sums=driver.abilities.sums)
        driver.page_keys = self.limits.page_keys
        return driver, make_transport(opening, endpoint, self.where)

    def resolve(self, options: AzureOptions, environ: Mapping[str, str]) -> tuple[AzureSettings, bytes]:
        """Look up every setting in the order that ``AzureOptions`` documents; an empty variable counts as unset.

        Explicit credentials hide all of the environment's; a connection string's account and endpoint hide those of
        variables. Also returns an identity, which changes when the environment names other credentials. No error quotes
        a secret.
        """
        ways = (options.account_key, options.sas_token, options.connection_string, options.token, options.credential)
        explicit = options.anonymous or any(each is not None for each in ways)
        string, said = _string(options, environ, explicit=explicit)
        account = first([("AzureOptions.account", options.account), (said, string.get("accountname"))])
        key = first([("AzureOptions.account_key", options.account_key), (said, string.get("accountkey"))])
        sas = first([("AzureOptions.sas_token", options.sas_token), (said, string.get("sharedaccesssignature"))])
        where = first([("AzureOptions.endpoint", options.endpoint), (said, _endpoint_of(string))])
        if not string:
            account = first([account, *variables(environ, *_ACCOUNTS)])
            where = first([where, *variables(environ, _ENDPOINT)])
        anonymous = options.anonymous
        if not (explicit or string):
            key = first([key, *variables(environ, *_KEYS)])
            sas = first([sas, *variables(environ, _SAS)])
            if "anonymous" not in given(options):
                anonymous = environ.get(_ANON, "").lower() not in _FALSE
        settings = AzureSettings(
            account=_checked_account(account),
            endpoint=endpoints.normal(where[1], where[0]) if where[1] else "",
            ca_file=ca_file(options.transport, environ),
            proxy=options.transport.proxy,
            anonymous=anonymous,
            key=_checked_key(key),
            sas=_checked_sas(sas),
        )
        names = () if explicit else (*_KEYS, _SAS, _STRING, _ANON, *_CHAIN)
        told = [(name, environ.get(name)) for name in names]
        return settings, sha256(repr(told).encode("utf-8", "surrogateescape")).digest() if told else b""

    def bucket_fault(self, bucket: str) -> str:
        name, mark, host = bucket.partition("@")
        if not _CONTAINER(name):
            words = "3 to 63 lower-case letters, digits and single '-' between them, or $root, $web, $logs"
            return f"{name[:80]!r} cannot be a container: {words}"
        if mark and not _HOST(host):
            return f"{host[:80]!r} is not the host of an account: write container@account.dfs.core.windows.net"
        return ""

    def key_fault(self, key: str) -> str:
        """Refuse keys that Azure would change."""
        if "\\" in key:
            return "the key holds a backslash, of which Azure makes a '/'"
        if any(part.endswith(".") for part in key.split("/")):
            return "the key has a part that ends in a dot, which Azure leaves out"
        if _CONTROL.search(key):
            return "the key holds a control character, which Azure takes in no name"
        if len(key) > _MOST_CHARACTERS:
            return f"the key has {len(key)} characters; Azure holds {_MOST_CHARACTERS}"
        return ""

    def advice(self, text: str) -> str:
        if match := _URL.match(text):
            host, container, path = match.groups()
            host = host.lower().replace(".blob.", ".dfs.", 1)
            return f"for this object write abfss://{unquote(container)}@{host}{unquote(path or '/')}"
        return ""


_ACCOUNTS = ("AZURE_STORAGE_ACCOUNT_NAME", "AZURE_STORAGE_ACCOUNT", "AZURE_ACCOUNT_NAME")
_KEYS = ("AZURE_STORAGE_ACCOUNT_KEY", "AZURE_STORAGE_KEY", "AZURE_ACCOUNT_ACCESS_KEY")
_SAS, _STRING, _ANON = "AZURE_STORAGE_SAS_TOKEN", "AZURE_STORAGE_CONNECTION_STRING", "AZURE_STORAGE_ANON"
_ENDPOINT = "AZURE_STORAGE_ENDPOINT"
# Variables that azure-identity's default chain reads: another value is another identity.
_CHAIN = (
    *("AZURE_TENANT_ID", "AZURE_CLIENT_ID", "AZURE_CLIENT_SECRET", "AZURE_FEDERATED_TOKEN_FILE", "AZURE_USERNAME"),
    *("AZURE_CLIENT_CERTIFICATE_PATH", "AZURE_AUTHORITY_HOST", "AZURE_CONFIG_DIR", "IDENTITY_ENDPOINT", "MSI_ENDPOINT"),
    "AZURE_TOKEN_CREDENTIALS",
)
_FALSE = ("", "no", "false", "off", "0")
_ACCOUNT = re.compile(r"[a-z0-9]{3,24}").fullmatch
_SUFFIX = "core.windows.net"
# Azurite's, published in its manual.
_DEVELOPMENT = {
    "accountname": "devstoreaccount1",
    "accountkey": "Eby8vdM02xNOcqFlqUwJPLlmEtlCDXJ1OUzFT50uSRZ6IFsuFq2UVErCz4I6tq/K1SZFPTOtr/KBHBeksoGMGw==",
    "blobendpoint": "http://127.0.0.1:10000/devstoreaccount1",
}


@dataclass(frozen=True, slots=True)
class SourcedValue:
    """Value and its option or variable; empty if none was given. The repr does not show the value."""

    value: str = field(default="", repr=False)
    by: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class AzureSettings:
    """Settings of an account, without the parts in the URL: see ``locate_container``.

    Attributes:
        account: The account; empty if only the URL can name it.
        endpoint: ``scheme://host[:port][/path]`` of its blob service; empty for Azure's own.
        ca_file: PEM file to verify servers with; None if this machine has none.
        proxy: As given: None leaves it to the environment, "" means no proxy. It may hold a password.
    """

    account: str = ""
    endpoint: str = ""
    ca_file: str | None = None
    proxy: str | None = field(default=None, repr=False)
    anonymous: bool = False
    key: SourcedValue = SourcedValue()
    sas: SourcedValue = SourcedValue()


def locate_container(settings: AzureSettings, host: str) -> tuple[str, str]:
    """Return account and endpoint of a container; ``host`` is the account's host in the URL, or empty."""
    named = host.partition(".")[0]
    endpoint = settings.endpoint
    account = settings.account or named or (account_of(endpoint) if endpoint else "")
    if named and settings.account not in ("", named):
        raise ConfigError(f"the URL names the account {named}, but options or environment {settings.account}")
    if not account:
        raise ConfigError(
            "no storage account: pass AzureOptions(account=…), set AZURE_STORAGE_ACCOUNT_NAME, or write "
            "abfss://container@account.dfs.core.windows.net/key"
        )
    if not endpoint:
        return account, f"https://{host.replace('.dfs.', '.blob.', 1)}" if host else f"https://{account}.blob.{_SUFFIX}"
    parts = urlsplit(endpoint)
    # An emulator names the account in the path.
    if not parts.path and _is_local(str(parts.hostname)):
        endpoint = f"{endpoint}/{account}"
    return account, endpoint


def account_of(endpoint: str) -> str:
    """Return the account of an endpoint: the end of its path, else the first label of its host."""
    parts = urlsplit(endpoint)
    if parts.path:
        return parts.path.rpartition("/")[2]
    host = str(parts.hostname)
    return "" if _is_local(host) else host.partition(".")[0]


def is_secured(endpoint: str) -> bool:
    """Return whether a secret may be sent to an endpoint: over TLS, or to this machine."""
    return endpoint.startswith("https:") or endpoints.is_here(endpoint)


def _is_local(host: str) -> bool:
    try:
        ipaddress.ip_address(host)
    except ValueError:
        return "." not in host
    return True


def _string(options: AzureOptions, environ: Mapping[str, str], *, explicit: bool) -> tuple[dict[str, str], str]:
    """Return a connection string's fields by their names in lower case, and its origin."""
    candidates = [("AzureOptions.connection_string", options.connection_string)]
    named, text = first([*candidates, *([] if explicit else variables(environ, _STRING))])
    if text is None:
        return {}, named
    fields: dict[str, str] = {}
    for piece in filter(None, map(str.strip, text.split(";"))):
        name, mark, value = piece.partition("=")
        if not mark:
            raise ConfigError(f"{named} must be a connection string: NAME=VALUE pairs with ';' between")
        fields[name.strip().lower()] = value.strip()
    if fields.get("usedevelopmentstorage", "").lower() == "true":
        fields = {**_DEVELOPMENT, **fields}
    if not fields.keys() & {"accountkey", "sharedaccesssignature"}:
        raise ConfigError(f"{named} has neither an AccountKey nor a SharedAccessSignature")
    return fields, named


def _endpoint_of(string: Mapping[str, str]) -> str | None:
    if "blobendpoint" in string:
        return string["blobendpoint"]
    account, suffix = string.get("accountname"), string.get("endpointsuffix", _SUFFIX)
    scheme = string.get("defaultendpointsprotocol", "https")
    return f"{scheme}://{account}.blob.{suffix}" if account else None


def _checked_account(named: tuple[str, str | None]) -> str:
    by, account = named
    if account and not _ACCOUNT(account):
        raise ConfigError(f"{by} must be a storage account, 3 to 24 lower-case letters and digits, got {account!r}")
    return account or ""


def _checked_key(named: tuple[str, str | None]) -> SourcedValue:
    by, key = named
    if key is None:
        return SourcedValue()
    try:
        if not b64decode(key, validate=True):
            raise ValueError
    except (Error, ValueError):
        raise ConfigError(f"{by} must be an account key in base64, as the portal shows it") from None
    return SourcedValue(key, by)


def _checked_sas(named: tuple[str, str | None]) -> SourcedValue:
    by, sas = named
    if sas is None:
        return SourcedValue()
    query = sas.removeprefix("?")
    if "sig=" not in query or not all("!" <= char <= "~" for char in query) or "#" in query or "://" in query:
        raise ConfigError(f"{by} must be a shared access signature: the query alone, such as sv=…&sp=…&sig=…")
    return SourcedValue(query, by)


SCOPE = "https://storage.azure.com/.default"
# Lifetime assumed for a token of a function that returns no expiry; it is renewed 300 s before.
_VALID_S = 600.0


@dataclass(frozen=True, slots=True, repr=False)
class AzureCredentials:
    """Source of credentials; nothing is looked up before its ``load``.

    In this order: the options (``anonymous``, key, SAS, connection string, token, ``credential``), the environment's
    key, SAS or connection string, and azure-identity's ``DefaultAzureCredential`` (environment, workload identity,
    managed identity, the command-line tools). The latter is created for every ``load``, so it shares no lock with a
    forked parent. The environment is ``environ``, a copy. azure-identity reads the process's environment, so it is used
    only while both name the same identity. No error quotes foreign texts that might hold a secret.
    """

    options: AzureOptions
    settings: AzureSettings
    environ: Mapping[str, str]

    def load(self) -> Authorization | None:
        options, settings = self.options, self.settings
        if options.token is not None:
            return _bearer(options.token, None, "AzureOptions.token")
        if options.credential is not None:
            return _request_token(options.credential, "AzureOptions.credential")
        if settings.anonymous:
            return None
        if settings.key.value:
            return AccountKey(settings.key.value, settings.key.by)
        if settings.sas.value:
            return SharedAccess(settings.sas.value, settings.sas.by)
        if Azure().resolve(options, os.environ)[1] != Azure().resolve(options, self.environ)[1]:
            raise Unauthenticated("the environment now names another identity: open a new source")
        return _request_token(_default(), "azure-identity's default chain")


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


def _request_token(credential: Any, named: str) -> BearerToken:  # noqa: ANN401  anyone's
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
