"""Options and environment of Google Cloud Storage as settings with nothing left to look up."""

from __future__ import annotations

import ipaddress
from dataclasses import dataclass
from hashlib import sha256
from typing import TYPE_CHECKING, Literal
from urllib.parse import urlsplit

from penstock.engine.endpoint import normal
from penstock.errors import ConfigError
from penstock.stores.http.network import ca_file, first, variables

if TYPE_CHECKING:
    from collections.abc import Mapping

    from penstock.stores.gcs.options import GCSOptions

__all__ = ["CHAIN", "KEYS", "WHERE", "GCSSettings", "resolve"]

# Of an HMAC key: MosaicML's Streaming, streaming/base/storage/download.py.
KEYS = ("GCS_KEY", "GCS_SECRET")
_EMULATOR = "STORAGE_EMULATOR_HOST"  # as in Google's own libraries
WHERE = f"endpoint= or {_EMULATOR}"  # settings that locate it, for messages
# Variables that google-auth's chain reads.
CHAIN = (
    *("GOOGLE_APPLICATION_CREDENTIALS", "CLOUDSDK_CONFIG", "GOOGLE_EXTERNAL_ACCOUNT_ALLOW_EXECUTABLES"),
    *("GCE_METADATA_HOST", "GCE_METADATA_IP", "GCE_METADATA_ROOT", "NO_GCE_CHECK", "GOOGLE_API_USE_CLIENT_CERTIFICATE"),
    *("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY", "AWS_SESSION_TOKEN", "AWS_REGION", "AWS_DEFAULT_REGION"),
)


@dataclass(frozen=True, slots=True, kw_only=True)
class GCSSettings:
    """Location of Google Cloud Storage and how to use it.

    Attributes:
        endpoint: ``scheme://host[:port][/path]``; None for Google's own.
        ca_file: PEM file to verify servers with; None if this machine has none.
        proxy: As given: None leaves it to the environment, "" means no proxy. It may hold a password.
        access: Authorisation of requests: ``keys`` (HMAC), a ``token``, or ``nothing``.
        user_project: Project that pays; empty for the bucket's own.

    """

    endpoint: str | None
    ca_file: str | None
    proxy: str | None
    access: Literal["keys", "token", "nothing"]
    user_project: str = ""


def resolve(options: GCSOptions, environ: Mapping[str, str]) -> tuple[GCSSettings, bytes]:
    """Resolve options and environment to settings and an identity; explicit options override the environment.

    The identity changes when the environment names other credentials; none of them can be read from it. Makes no
    request; of files, only the machine's CA file is looked up.

    Raises:
        ConfigError: A value is invalid; or tokens would be sent over plain HTTP to another machine.

    """
    named, text = first([("GCSOptions.endpoint", options.endpoint), *variables(environ, _EMULATOR)])
    if text is not None and named == _EMULATOR and "://" not in text:
        text = f"http://{text}"
    endpoint = None if text is None else normal(text, named)
    access = _access(options, environ, emulated=named == _EMULATOR)
    if access == "token" and endpoint is not None and endpoint.startswith("http:") and not _is_here(endpoint):
        message = (
            f"{named} is plain HTTP to another machine: anybody on the way could read and use a token sent there; "
            "use https://, or anonymous=True for a server that wants no credentials"
        )
        raise ConfigError(message)
    settings = GCSSettings(
        endpoint=endpoint,
        ca_file=ca_file(options.transport, environ),
        proxy=options.transport.proxy,
        access=access,
        user_project=options.user_project or "",
    )
    said = [(name, environ.get(name)) for name in (*KEYS, *CHAIN)]
    identity = b"" if _explicit(options) else sha256(repr(said).encode("utf-8", "surrogateescape")).digest()
    return settings, identity


def _explicit(options: GCSOptions) -> bool:
    own = (options.access_key, options.token, options.credentials, options.credentials_process)
    given = (*own, options.credentials_file, options.credentials_json)
    return options.anonymous or any(each is not None for each in given)


def _access(options: GCSOptions, environ: Mapping[str, str], *, emulated: bool) -> Literal["keys", "token", "nothing"]:
    if options.anonymous:
        return "nothing"
    if options.access_key is not None:
        return "keys"
    if _explicit(options) or options.service_account is not None:
        return "token"
    if any(environ.get(name) for name in KEYS):
        return "keys"
    # Google's own libraries, too, send no credentials to an emulator.
    return "nothing" if emulated else "token"


def _is_here(endpoint: str) -> bool:
    host = str(urlsplit(endpoint).hostname)
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return host == "localhost" or host.endswith(".localhost")  # RFC 6761
