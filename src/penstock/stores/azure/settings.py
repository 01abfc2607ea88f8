"""Location and credentials of an Azure storage account, from options, connection string and environment."""

from __future__ import annotations

import ipaddress
import re
from base64 import b64decode
from binascii import Error
from dataclasses import dataclass, field
from hashlib import sha256
from typing import TYPE_CHECKING
from urllib.parse import urlsplit

from penstock.engine import endpoint as endpoints
from penstock.errors import ConfigError
from penstock.options.private import given
from penstock.stores.http.network import ca_file, first, variables

if TYPE_CHECKING:
    from collections.abc import Mapping

    from penstock.stores.azure.options import AzureOptions

__all__ = ["WHERE", "AzureSettings", "Named", "account_of", "located", "resolve", "secured"]

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
# Settings that locate an account, for messages.
WHERE = f"endpoint= or {_ENDPOINT}, account= or {_ACCOUNTS[0]}"
# Azurite's, published in its manual.
_DEVELOPMENT = {
    "accountname": "devstoreaccount1",
    "accountkey": "Eby8vdM02xNOcqFlqUwJPLlmEtlCDXJ1OUzFT50uSRZ6IFsuFq2UVErCz4I6tq/K1SZFPTOtr/KBHBeksoGMGw==",
    "blobendpoint": "http://127.0.0.1:10000/devstoreaccount1",
}


@dataclass(frozen=True, slots=True)
class Named:
    """Value and its origin. The repr does not show the value.

    Attributes:
        value: The value; empty if none was given.
        by: The option or the variable.

    """

    value: str = field(default="", repr=False)
    by: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class AzureSettings:
    """Account and how to use it, without the parts that the URL names: see ``located``.

    Attributes:
        account: The account; empty if only the URL can name it.
        endpoint: ``scheme://host[:port][/path]`` of its blob service; empty for Azure's own.
        ca_file: PEM file to verify servers with; None if this machine has none.
        proxy: As given: None leaves it to the environment, "" means no proxy. It may hold a password.
        anonymous: Send requests without credentials.
        key: The account's key.
        sas: A shared access signature.

    """

    account: str = ""
    endpoint: str = ""
    ca_file: str | None = None
    proxy: str | None = field(default=None, repr=False)
    anonymous: bool = False
    key: Named = Named()
    sas: Named = Named()


def resolve(options: AzureOptions, environ: Mapping[str, str]) -> tuple[AzureSettings, bytes]:
    """Look up every setting in the order that ``AzureOptions`` documents; an empty variable counts as unset.

    Explicit credentials hide all of the environment's; a connection string's account and endpoint hide those of
    variables. Also returns an identity, which changes when the environment names other credentials. Makes no request.

    Raises:
        ConfigError: A value is invalid; the message names the option or variable and quotes no secret.

    """
    explicit = _is_explicit(options)
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


def located(settings: AzureSettings, host: str) -> tuple[str, str]:
    """Return account and endpoint of a container; ``host`` is the account's host in the URL, or empty.

    Raises:
        ConfigError: The account is not named anywhere, or URL and options name different ones.

    """
    named = host.partition(".")[0]
    endpoint = settings.endpoint
    account = settings.account or named or (account_of(endpoint) if endpoint else "")
    if named and settings.account not in ("", named):
        raise ConfigError(f"the URL names the account {named}, and options or environment {settings.account}")
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


def secured(endpoint: str) -> bool:
    """Return whether a secret may be sent to an endpoint: over TLS, or to this machine."""
    parts = urlsplit(endpoint)
    host = str(parts.hostname)
    if parts.scheme == "https" or host == "localhost" or host.endswith(".localhost"):
        return True
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False


def _is_explicit(options: AzureOptions) -> bool:
    ways = (options.account_key, options.sas_token, options.connection_string, options.token, options.credential)
    return options.anonymous or any(each is not None for each in ways)


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
            raise ConfigError(f"{named} is no connection string: it has NAME=VALUE pairs with ';' between")
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
        raise ConfigError(f"{by} cannot be a storage account: 3 to 24 lower-case letters and digits, not {account!r}")
    return account or ""


def _checked_key(named: tuple[str, str | None]) -> Named:
    by, key = named
    if key is None:
        return Named()
    try:
        if not b64decode(key, validate=True):
            raise ValueError
    except (Error, ValueError):
        raise ConfigError(f"{by} is no account key: base64, as the portal shows it") from None
    return Named(key, by)


def _checked_sas(named: tuple[str, str | None]) -> Named:
    by, sas = named
    if sas is None:
        return Named()
    query = sas.removeprefix("?")
    if "sig=" not in query or not all("!" <= char <= "~" for char in query) or "#" in query or "://" in query:
        raise ConfigError(f"{by} is no shared access signature: the query alone, such as sv=…&sp=…&sig=…")
    return Named(query, by)
