"""``oss://``: Alibaba Cloud OSS, in its own dialect."""

from __future__ import annotations

import re
from dataclasses import replace
from typing import TYPE_CHECKING
from urllib.parse import unquote, urlsplit

from penstock.engine.contracts.driver import Abilities, Conditions
from penstock.engine.contracts.limits import Limits
from penstock.engine.endpoint import path_style
from penstock.errors import ConfigError
from penstock.stores.http.connect import connected
from penstock.stores.oss.options import OSSOptions
from penstock.stores.oss.settings import WHERE, resolve
from penstock.stores.provider import Opening, Provider, bucket_names

if TYPE_CHECKING:
    from collections.abc import Hashable, Mapping

    from penstock.engine.contracts.driver import Digest, Driver
    from penstock.engine.contracts.exchange import Transport
    from penstock.stores.s3.vocabulary import Bucket

__all__ = ["PROVIDER"]

_KIB, _GIB = 1 << 10, 1 << 30
_WEB = re.compile(r"https?://([a-z0-9-]+)\.oss-[a-z0-9-]+\.aliyuncs\.com/([^?#]*)", re.IGNORECASE)


def _resolve(options: OSSOptions, environ: Mapping[str, str]) -> tuple[Hashable, Hashable]:
    return resolve(options, environ)


def _open(opening: Opening) -> tuple[Driver, Transport]:
    from penstock.stores.credentials.refreshing import RefreshingCredentials
    from penstock.stores.oss.crc import library
    from penstock.stores.oss.credentials import source
    from penstock.stores.oss.vocabulary import ALIBABA, internal_endpoint, sign_as_payer
    from penstock.stores.s3.driver import S3

    # A missing library fails here, not at the first answer.
    library()
    options, settings = opening.options, opening.settings
    bucket = _bucket(opening)
    spoken = replace(ALIBABA, endpoint=internal_endpoint) if settings.internal else ALIBABA
    spoken = replace(spoken, signer=sign_as_payer) if settings.requester_pays else spoken
    driver = S3(bucket, settings.region, RefreshingCredentials(source(options, opening.environ)), spoken)
    driver.abilities, driver.page_keys = opening.provider.abilities, opening.provider.limits.page_keys
    where = settings.endpoint or "https://oss.aliyuncs.com"
    return driver, connected(opening, where)


def _bucket(opening: Opening) -> Bucket:
    from penstock.stores.s3.vocabulary import Bucket

    name, settings = opening.bucket, opening.settings
    endpoint, cname = settings.endpoint, settings.addressing == "cname"
    host = urlsplit(endpoint or "").hostname or ""
    if not cname and host.startswith(f"{name}."):
        raise ConfigError(f"the endpoint begins with the bucket: leave it away there, {host.partition('.')[2]}")
    in_path = settings.addressing == "path" or path_style(name, "virtual", endpoint)
    return Bucket(name, endpoint, not (cname or in_path), opening.scheme, cname=cname)


def _digest() -> Digest:
    from penstock.stores.oss.crc import Crc64

    return Crc64()


def _put_digest() -> Digest:
    from penstock.stores.oss.crc import Crc64Md5

    return Crc64Md5()


def _key_fault(key: str) -> str:
    return f"OSS has no keys that begin with {key[0]!r}" if key.startswith(("/", "\\")) else ""


def _advice(text: str) -> str:
    match = _WEB.match(text)
    return f"for this object write oss://{match[1]}/{unquote(match[2])}" if match else ""


PROVIDER = Provider(
    name="Alibaba OSS",
    schemes=("oss",),
    open=_open,
    bucket_fault=bucket_names(r"[a-z0-9][a-z0-9-]{1,61}[a-z0-9]", "3 to 63 small letters, digits and '-'"),
    key_fault=_key_fault,
    # "Limits and performance" of the OSS user guide.
    limits=Limits(
        least_part_bytes=100 * _KIB,
        most_part_bytes=5 * _GIB,
        most_parts=10_000,
        put_bytes=5 * _GIB,
        copy_bytes=_GIB,
        copy_part_bytes=128 << 20,
        key_bytes=1023,
        metadata_bytes=8 * _KIB,
    ),
    abilities=Abilities(
        digest=_digest,
        put_digest=_put_digest,
        sums=True,
        put=Conditions(create=True, replace=False),
        complete=Conditions(create=True, replace=False),
        jumps=True,
    ),
    options=OSSOptions,
    resolve=_resolve,
    example="OSSOptions(region=…, access_key=…, secret_key=…)",
    advice=_advice,
    where=WHERE,
    extra="penstock[oss]",
)
