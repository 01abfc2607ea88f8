"""``oss://``: Alibaba Cloud OSS, in its own dialect.

Settings come from options and environment; credentials also from Alibaba's file and the role of an ECS instance.
"""

from __future__ import annotations

import configparser
import json
import os
import re
from dataclasses import dataclass, field
from functools import partial
from hashlib import sha256
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal
from urllib.parse import unquote, urlsplit

from penstock.engine import endpoint as endpoints
from penstock.engine.contracts.credentials import Credentials
from penstock.engine.contracts.driver import Abilities, Conditions, Limits
from penstock.engine.endpoint import path_style
from penstock.errors import ConfigError, Unauthenticated, Unreachable
from penstock.stores.credentials import call_provider, direct_opener, make_keys, run_credential_program
from penstock.stores.http.listing import parse_iso_date
from penstock.stores.http.network import ca_file, first, make_transport, variables
from penstock.stores.oss.options import WHERE, OSSOptions, region_of
from penstock.stores.store import Opening, Store

if TYPE_CHECKING:
    from collections.abc import Mapping

    from penstock.engine.contracts.driver import Digest, Driver
    from penstock.engine.contracts.exchange import Transport
    from penstock.stores.s3.dialect import BucketAddress

_KIB, _GIB = 1 << 10, 1 << 30
_WEB = re.compile(r"https?://([a-z0-9-]+)\.oss-[a-z0-9-]+\.aliyuncs\.com/([^?#]*)", re.IGNORECASE)


def _make_digest(name: str) -> Digest:
    from penstock.stores.oss import dialect

    digest: Digest = getattr(dialect, name)()
    return digest


class OSS(Store):
    """``oss://``: buckets of Alibaba Cloud OSS."""

    name = "Alibaba OSS"
    schemes = ("oss",)
    buckets = r"[a-z0-9][a-z0-9-]{1,61}[a-z0-9]"
    bucket_rule = "3 to 63 small letters, digits and '-'"
    # "Limits and performance" of the OSS user guide.
    limits = Limits(
        least_part_bytes=100 * _KIB,
        most_part_bytes=5 * _GIB,
        most_parts=10_000,
        put_bytes=5 * _GIB,
        copy_bytes=_GIB,
        copy_part_bytes=128 << 20,
        key_bytes=1023,
        metadata_bytes=8 * _KIB,
    )
    abilities = Abilities(
        digest=partial(_make_digest, "Crc64"),
        put_digest=partial(_make_digest, "Crc64Md5"),
        sums=True,
        put=Conditions(create=True, replace=False),
        complete=Conditions(create=True, replace=False),
        jumps=True,
    )
    options = OSSOptions
    example = "OSSOptions(region=…, access_key=…, secret_key=…)"
    where = WHERE
    extra = "penstock[oss]"

    def open(self, opening: Opening) -> tuple[Driver, Transport]:
        """Return the driver of a bucket; a missing library fails here, not at the first answer."""
        from penstock.stores.credentials import RefreshingCredentials
        from penstock.stores.oss.dialect import Alibaba, library
        from penstock.stores.s3.driver import S3Driver

        library()
        settings = opening.settings
        dialect = Alibaba(internal=settings.internal, payer=settings.requester_pays)
        credentials = RefreshingCredentials(AlibabaCredentials(opening.options, opening.environ))
        driver = S3Driver(_bucket(opening), settings.region, credentials, dialect)
        driver.abilities, driver.page_keys = self.abilities, self.limits.page_keys
        return driver, make_transport(opening, settings.endpoint or "https://oss.aliyuncs.com", self.where)

    def resolve(self, options: OSSOptions, environ: Mapping[str, str]) -> tuple[OSSSettings, bytes]:
        """Look up every setting in the order that ``OSSOptions`` documents; return the settings and an identity."""
        named, text = first([("OSSOptions.endpoint", options.endpoint), *variables(environ, "OSS_ENDPOINT")])
        if text is not None and "://" not in text:
            text = f"https://{text}"  # OSS's own tools use bare hosts
        url = None if text is None or options.internal else endpoints.normal(text, named)
        told = region_of(urlsplit(url).hostname or "") if url is not None else ""
        said = [
            ("OSSOptions.region", options.region),
            ("the endpoint", told or None),
            *variables(environ, "OSS_REGION"),
        ]
        named, region = first(said)
        region = (region or "").removeprefix("oss-")  # consoles and endpoints write it
        if not _REGION(region):
            where = f", which {url} does not name" if url is not None and named == "" else ""
            wrong = f"{named} cannot be a region" if named else f"OSS needs the bucket's region{where}"
            raise ConfigError(f"{wrong}: pass OSSOptions(region='cn-hangzhou') or set OSS_REGION")
        if options.addressing == "cname" and url is None:
            raise ConfigError("addressing='cname' needs the domain that is bound to the bucket: pass endpoint=")
        settings = OSSSettings(
            endpoint=url,
            region=region,
            addressing=options.addressing,
            internal=options.internal,
            requester_pays=options.requester_pays,
            ca_file=ca_file(options.transport, environ),
            proxy=options.transport.proxy,
        )
        return settings, _identity(environ)

    def key_fault(self, key: str) -> str:
        return f"OSS has no keys that begin with {key[0]!r}" if key.startswith(("/", "\\")) else ""

    def advice(self, text: str) -> str:
        match = _WEB.match(text)
        return f"for this object write oss://{match[1]}/{unquote(match[2])}" if match else ""


def _bucket(opening: Opening) -> BucketAddress:
    from penstock.stores.s3.dialect import BucketAddress

    name, settings = opening.bucket, opening.settings
    endpoint, cname = settings.endpoint, settings.addressing == "cname"
    host = urlsplit(endpoint or "").hostname or ""
    if not cname and host.startswith(f"{name}."):
        raise ConfigError(f"the endpoint must not begin with the bucket: use {host.partition('.')[2]}")
    in_path = settings.addressing == "path" or path_style(name, "virtual", endpoint)
    return BucketAddress(name, endpoint, not (cname or in_path), opening.scheme, cname=cname)


# Variables of key id, secret and token: OSS's own tools (ossfs, ossutil, the SDKs), then Alibaba's general ones.
KEYS = (
    ("OSS_ACCESS_KEY_ID", "OSS_ACCESS_KEY_SECRET", "OSS_SESSION_TOKEN"),
    ("ALIBABA_CLOUD_ACCESS_KEY_ID", "ALIBABA_CLOUD_ACCESS_KEY_SECRET", "ALIBABA_CLOUD_SECURITY_TOKEN"),
)
_OTHERS = (
    *("ALIBABA_CLOUD_CREDENTIALS_FILE", "ALIBABA_CLOUD_CREDENTIALS_URI", "ALIBABA_CLOUD_PROFILE"),
    *("ALIBABA_CLOUD_ECS_METADATA", "ALIBABA_CLOUD_ECS_METADATA_DISABLED", "HOME"),
)
_REGION = re.compile(r"[a-z0-9]([a-z0-9-]{0,38}[a-z0-9])?").fullmatch
_FILE = "~/.alibabacloud/credentials"


@dataclass(frozen=True, slots=True, kw_only=True)
class OSSSettings:
    """Location and settings of OSS, completely resolved.

    Attributes:
        endpoint: ``scheme://host[:port]``; None for OSS's own in the region.
        addressing: The rule; for a host name ``auto`` is ``virtual``.
        ca_file: PEM file to verify servers with; None if this machine has none.
        proxy: As given: None leaves it to the environment, "" means no proxy. It may hold a password.
    """

    endpoint: str | None
    region: str
    addressing: Literal["auto", "virtual", "cname", "path"]
    internal: bool
    requester_pays: bool
    ca_file: str | None
    proxy: str | None = field(repr=False)


def _identity(environ: Mapping[str, str]) -> bytes:
    said = [environ.get(name) for name in (*KEYS[0], *KEYS[1], *_OTHERS)]
    return sha256(repr(said).encode("utf-8", "surrogateescape")).digest()


def credentials_file(options: OSSOptions, environ: Mapping[str, str]) -> tuple[str, Path]:
    """Return the setting that names the credentials file, and its path; an unnamed default file need not exist."""
    named, text = first(
        [
            ("OSSOptions.credentials_file", options.credentials_file),
            *variables(environ, "ALIBABA_CLOUD_CREDENTIALS_FILE"),
        ]
    )
    return named, Path(os.path.expanduser(text or _FILE))  # noqa: PTH111  pathlib's raises without HOME


def read_credentials(path: Path, profile: str = "default") -> dict[str, str]:
    """Return the fields of a credentials file, by the names of its JSON form; no error quotes the file.

    Alibaba's connectors for Python write that form (``AccessKeyId``, ``AccessKeySecret``, ``SecurityToken``,
    ``Expiration``). The SDKs' form, an INI file with a section for each profile, is also read.
    """
    try:
        text = path.read_text("utf-8-sig")
    except UnicodeDecodeError:
        text = ""
    except FileNotFoundError:
        raise
    except OSError as error:
        fault = f"cannot be read: {error.strerror}"
        raise ConfigError(f"the credentials file {path} {fault}") from None
    found = _from_json(text) if text.lstrip().startswith("{") else _from_ini(text, profile)
    if found is None:
        message = f"neither JSON with AccessKeyId and AccessKeySecret nor INI with {profile!r} (ALIBABA_CLOUD_PROFILE)"
        raise ConfigError(f"the credentials file {path} is {message}")
    return found


def _from_json(text: str) -> dict[str, str] | None:
    try:
        value = json.loads(text)
    except (ValueError, RecursionError):
        return None
    if not isinstance(value, dict):
        return None
    return {str(name): each for name, each in value.items() if isinstance(each, str)}


def _from_ini(text: str, profile: str) -> dict[str, str] | None:
    parser = configparser.RawConfigParser()
    try:
        parser.read_string(text)
        section = dict(parser[profile])
    except (configparser.Error, KeyError):
        return None
    names = {"AccessKeyId": "access_key_id", "AccessKeySecret": "access_key_secret", "SecurityToken": "security_token"}
    return {name: section[each] for name, each in names.items() if each in section}


_METADATA = "http://100.100.100.200"  # link-local: no proxy, no redirects
_ROLES = "/latest/meta-data/ram/security-credentials/"
_LIMIT_S = 2.0  # an instance answers within milliseconds
_MOST_BYTES = 64 << 10
_LOOK_S = "60"  # lifetime of the metadata server's token: one lookup


@dataclass(frozen=True, slots=True, repr=False)
class AlibabaCredentials:
    """Source of credentials; nothing is looked up before its ``load``.

    In this order: explicit keys; unsigned (``anonymous=True``); ``credentials``, ``credentials_process``,
    ``credentials_file`` and ``ecs_role``, one of which may be given; keys of the environment (``OSS_…``, then
    ``ALIBABA_CLOUD_…``); Alibaba's file; ``ALIBABA_CLOUD_CREDENTIALS_URI``; the role of this ECS instance, unless
    ``ALIBABA_CLOUD_ECS_METADATA_DISABLED`` is true. Each ``load`` starts over, so it sees rotated files and roles.
    """

    options: OSSOptions
    environ: Mapping[str, str]

    def load(self) -> Credentials | None:
        options, environ = self.options, self.environ
        if options.access_key is not None or options.anonymous:
            return make_keys("OSSOptions", options.access_key, options.secret_key, options.session_token)
        if options.credentials is not None:
            return call_provider(options.credentials, Credentials)
        if options.credentials_process is not None:
            return run_credential_program(options.credentials_process, environ, Credentials)
        if options.credentials_file is None and options.ecs_role is None:
            for names in KEYS:
                access_key, secret_key, token = (environ.get(name) or None for name in names)
                if access_key or secret_key:
                    return make_keys(f"the environment ({names[0]}, {names[1]})", access_key, secret_key, token)
        named, path = credentials_file(options, environ)
        found = None if options.ecs_role is not None else _from_file(named, path, environ)
        return found or self._from_metadata(path)

    def _from_metadata(self, file: Path) -> Credentials:
        options, environ = self.options, self.environ
        uri = environ.get("ALIBABA_CLOUD_CREDENTIALS_URI")
        if uri and options.ecs_role is None:
            return _parse_key_fields(_fetch(uri, {}), "ALIBABA_CLOUD_CREDENTIALS_URI")
        role = options.ecs_role or environ.get("ALIBABA_CLOUD_ECS_METADATA") or ""
        if role or environ.get("ALIBABA_CLOUD_ECS_METADATA_DISABLED", "").lower() not in ("1", "true"):
            try:
                return _of_instance(role)
            except Unreachable:
                if role:
                    raise
        looked = f"OSSOptions, {KEYS[0][0]}, {KEYS[1][0]}, {file}, and the metadata of an ECS instance"
        public = "anonymous=True (--anonymous) reads public data"
        raise Unauthenticated(f"no credentials for OSS: looked in {looked}; {public}")


def _from_file(named: str, path: Path, environ: Mapping[str, str]) -> Credentials | None:
    try:
        fields = read_credentials(path, environ.get("ALIBABA_CLOUD_PROFILE") or "default")
    except FileNotFoundError:
        if named:
            raise ConfigError(f"{named} names the credentials file {path}, which does not exist") from None
        return None
    return _parse_key_fields(fields, f"the credentials file {path}")


def _parse_key_fields(fields: Mapping[str, Any], named: str) -> Credentials:
    key, secret, token = (fields.get(name) or None for name in ("AccessKeyId", "AccessKeySecret", "SecurityToken"))
    texts = all(each is None or isinstance(each, str) for each in (key, secret, token))
    expires_at = parse_iso_date(str(fields.get("Expiration") or ""))
    found = make_keys(named, key, secret, token, expires_at) if texts else None
    if found is None:
        raise ConfigError(f"{named} has no AccessKeyId and AccessKeySecret")
    return found


def _of_instance(role: str) -> Credentials:
    """Ask the metadata server of this ECS instance, in its hardened mode (a token, from a PUT, for every lookup)."""
    ttl = {"X-aliyun-ecs-metadata-token-ttl-seconds": _LOOK_S}
    token = {"X-aliyun-ecs-metadata-token": _fetch_text(f"{_METADATA}/latest/api/token", ttl, "PUT")}
    name = role or _fetch_text(f"{_METADATA}{_ROLES}", token).split("\n")[0].strip()
    if not name:
        raise Unreachable("this ECS instance has no RAM role")
    return _parse_key_fields(_fetch(f"{_METADATA}{_ROLES}{name}", token), f"the ECS instance's role {name[:80]!r}")


def _fetch(url: str, headers: Mapping[str, str]) -> dict[str, Any]:
    try:
        value = json.loads(_fetch_text(url, headers))
    except (ValueError, RecursionError):
        value = None
    if not isinstance(value, dict) or value.get("Code", "Success") != "Success":
        raise Unauthenticated("the service that gives out Alibaba's credentials returned none")
    return value


def _fetch_text(url: str, headers: Mapping[str, str], method: str = "GET") -> str:
    """Return the text of a short answer; on callers' threads only. Raises ``Unreachable``."""
    import urllib.error
    import urllib.request

    opener = direct_opener(urllib.request.ProxyHandler({}))
    try:
        request = urllib.request.Request(url, headers=dict(headers), method=method)  # noqa: S310  the scheme is checked
        if request.type not in ("http", "https"):
            raise ConfigError("ALIBABA_CLOUD_CREDENTIALS_URI must be an http or https URL")
        with opener.open(request, timeout=_LIMIT_S) as answer:
            body: bytes = answer.read(_MOST_BYTES)
            return body.decode()
    except urllib.error.HTTPError as error:
        failure = f"HTTP {error.code}"
        error.close()
    except (OSError, ValueError) as error:
        failure = type(error).__name__
    raise Unreachable(f"the service that gives out Alibaba's credentials did not answer ({failure})")
