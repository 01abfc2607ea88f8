"""Settings of Alibaba Cloud OSS from options and environment: regions, endpoints, and files of credentials."""

from __future__ import annotations

import configparser
import json
import os
import re
from dataclasses import dataclass, field
from hashlib import sha256
from pathlib import Path
from typing import TYPE_CHECKING, Literal
from urllib.parse import urlsplit

from penstock.engine import endpoint as endpoints
from penstock.errors import ConfigError
from penstock.stores.http import network
from penstock.stores.http.network import first, variables

if TYPE_CHECKING:
    from collections.abc import Mapping

    from penstock.stores.oss.options import OSSOptions

__all__ = ["KEYS", "WHERE", "OSSSettings", "credentials_file", "read_credentials", "region_of", "resolve"]

# Variables of key id, secret and token: OSS's own tools (ossfs, ossutil, the SDKs), then Alibaba's general ones.
KEYS = (
    ("OSS_ACCESS_KEY_ID", "OSS_ACCESS_KEY_SECRET", "OSS_SESSION_TOKEN"),
    ("ALIBABA_CLOUD_ACCESS_KEY_ID", "ALIBABA_CLOUD_ACCESS_KEY_SECRET", "ALIBABA_CLOUD_SECURITY_TOKEN"),
)
WHERE = "endpoint= or OSS_ENDPOINT, region= or OSS_REGION"  # settings that locate it, for messages
_OTHERS = (
    *("ALIBABA_CLOUD_CREDENTIALS_FILE", "ALIBABA_CLOUD_CREDENTIALS_URI", "ALIBABA_CLOUD_PROFILE"),
    *("ALIBABA_CLOUD_ECS_METADATA", "ALIBABA_CLOUD_ECS_METADATA_DISABLED", "HOME"),
)
# The host of a region, perhaps after a bucket or "s3"; "-internal" is for access from Alibaba's own networks.
_ENDPOINT = re.compile(r"(?:[a-z0-9-]+\.)?oss-([a-z0-9-]{1,40}?)(?:-internal)?\.aliyuncs\.com")
# Dual-stack, like cn-beijing.oss.aliyuncs.com.
_DUAL = re.compile(r"(?:[a-z0-9-]+\.)?([a-z0-9-]{1,40})\.oss\.aliyuncs\.com")
_NO_REGION = ("accelerate", "accelerate-overseas")
_REGION = re.compile(r"[a-z0-9]([a-z0-9-]{0,38}[a-z0-9])?").fullmatch
_FILE = "~/.alibabacloud/credentials"


@dataclass(frozen=True, slots=True, kw_only=True)
class OSSSettings:
    """Location of OSS and how to use it, with nothing left to look up.

    Attributes:
        endpoint: ``scheme://host[:port]``; None for OSS's own in the region.
        region: Signing region.
        addressing: The rule; for a host name ``auto`` is ``virtual``.
        internal: Use OSS's own endpoint within Alibaba's network.
        requester_pays: The user pays for requests, if the bucket requires it.
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


def region_of(host: str) -> str:
    """Return the region in a host name of OSS; empty if it names none (acceleration, a custom domain)."""
    match = _ENDPOINT.fullmatch(host) or _DUAL.fullmatch(host)
    return match[1] if match and match[1] not in _NO_REGION else ""


def resolve(options: OSSOptions, environ: Mapping[str, str]) -> tuple[OSSSettings, bytes]:
    """Look up every setting in the order that ``OSSOptions`` documents; return the settings and an identity.

    Raises:
        ConfigError: A value is invalid, or the region is missing.

    """
    named, text = first([("OSSOptions.endpoint", options.endpoint), *variables(environ, "OSS_ENDPOINT")])
    url = None if text is None or options.internal else endpoints.normal(_with_scheme(text), named)
    told = region_of(urlsplit(url).hostname or "") if url is not None else ""
    said = [("OSSOptions.region", options.region), ("the endpoint", told or None), *variables(environ, "OSS_REGION")]
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
        ca_file=network.ca_file(options.transport, environ),
        proxy=options.transport.proxy,
    )
    return settings, _identity(environ)


def _with_scheme(text: str) -> str:
    """Return an endpoint with a scheme: OSS's own tools use bare hosts."""
    return text if "://" in text else f"https://{text}"


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
    """Return the fields of a credentials file, by the names of its JSON form.

    Alibaba's connectors for Python write that form (``AccessKeyId``, ``AccessKeySecret``, ``SecurityToken``,
    ``Expiration``). The SDKs' form, an INI file with a section for each profile, is also read.

    Raises:
        ConfigError: The file cannot be read or parsed; the message does not quote it.
        FileNotFoundError: The file does not exist.

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
