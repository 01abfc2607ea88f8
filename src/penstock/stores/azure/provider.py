"""``az://`` and ``abfs[s]://``: containers of Azure Blob Storage, also of accounts with a hierarchical namespace."""

from __future__ import annotations

import re
from dataclasses import replace
from typing import TYPE_CHECKING
from urllib.parse import unquote

from penstock.engine.contracts.driver import Abilities
from penstock.engine.contracts.limits import Limits
from penstock.errors import ConfigError
from penstock.stores.azure.options import AzureOptions
from penstock.stores.azure.settings import WHERE, located, resolve, secured
from penstock.stores.http.connect import connected
from penstock.stores.provider import Opening, Provider

if TYPE_CHECKING:
    from penstock.engine.contracts.driver import Driver
    from penstock.engine.contracts.exchange import Transport

__all__ = ["PROVIDER"]

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
    from penstock.stores.azure.credentials import source
    from penstock.stores.azure.driver import Azure
    from penstock.stores.azure.signing import Container
    from penstock.stores.credentials.refreshing import RefreshingCredentials

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
