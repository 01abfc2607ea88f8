"""Settings and authorisation of requests to Google Cloud Storage: by an HMAC key's signature, or by a bearer token."""

from __future__ import annotations

import ipaddress
import time
from dataclasses import dataclass, field, replace
from hashlib import sha256
from typing import TYPE_CHECKING, Literal
from urllib.parse import urlsplit

from penstock.engine.contracts.credentials import BearerToken, Credentials
from penstock.engine.endpoint import normal
from penstock.errors import ConfigError, Unsupported
from penstock.stores.http.network import ca_file, first, variables
from penstock.stores.s3.signing import EMPTY_SHA256, Address, Scheme, Signer, keyed_query, signed_query

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from penstock.stores.gcs.options import GCSOptions
    from penstock.stores.s3.vocabulary import Bucket, Sign


__all__ = [
    "CHAIN",
    "KEYS",
    "WHERE",
    "Bearer",
    "GCSSettings",
    "ServiceToken",
    "bearer",
    "google_query",
    "hmac_keys",
    "resolve",
]

_PAYER = "x-goog-user-project"
_SCHEME = Scheme(name="GOOG4", service="storage", prefix="x-goog-")


@dataclass(frozen=True, slots=True)
class ServiceToken(BearerToken):
    """Token of a service account whose private key is local.

    Attributes:
        account: Email address of the account.
        sign: Returns the RSA-SHA256 signature of bytes, by that key.

    """

    account: str = ""
    sign: Callable[[bytes], bytes] | None = field(default=None, compare=False)


class Bearer:
    """Signer that puts the current access token into each request."""

    __slots__ = ("_credentials", "_headers", "_proof", "_token")

    def __init__(self, credentials: Callable[[], BearerToken | None], headers: Mapping[str, str]) -> None:
        """Send ``headers`` along with each token; without credentials, send neither."""
        self._credentials = credentials
        self._headers = tuple(f"{name}: {value}" for name, value in headers.items())
        self._token: BearerToken | None = None
        self._proof: tuple[str, ...] = ()

    def sign(
        self, method: str, path: str, query: str, headers: Mapping[str, str], digest: str = EMPTY_SHA256
    ) -> tuple[str, ...]:
        """Return the header lines to send: ``headers`` and, unless anonymous, the token."""
        del method, path, query, digest
        token = self._credentials()
        lines = [f"{name}: {value}" for name, value in headers.items()]
        if token is None:
            return tuple(lines)
        if token is not self._token:
            self._proof = (f"Authorization: Bearer {token.token}", *self._headers)
            self._token = token
        return *self._proof, *lines


def google_query(user_project: str) -> Callable[[Address, BearerToken | Credentials], str]:
    """Return a function that signs a query by an HMAC key or a service account's private key; ``user_project`` pays."""
    # As a query field, which Google accepts in place of the header: users of the URL send no headers.
    payer = {"userProject": user_project} if user_project else {}

    def query(address: Address, credentials: BearerToken | Credentials) -> str:
        if isinstance(credentials, Credentials):
            return keyed_query(address, credentials, _SCHEME, payer)
        sign = credentials.sign if isinstance(credentials, ServiceToken) else None
        if not isinstance(credentials, ServiceToken) or sign is None:
            raise Unsupported(
                "an access token signs no address: use an HMAC key (access_key, secret_key), or the file of a service "
                "account, which holds a private key (credentials_file)"
            )
        fields = {"Credential": credentials.account, **payer}
        return signed_query(address, _SCHEME, "GOOG4-RSA-SHA256", fields, lambda text: sign(text.encode()).hex())

    return query


def bearer(user_project: str) -> Callable[[Bucket, str, str, Callable[[], BearerToken | None]], Sign]:
    """Return a maker of signers for OAuth 2.0 tokens; ``user_project`` pays, unless it is empty."""
    headers = {_PAYER: user_project} if user_project else {}

    def make(_bucket: Bucket, _host: str, _region: str, credentials: Callable[[], BearerToken | None]) -> Sign:
        return Bearer(credentials, headers).sign

    return make


def hmac_keys(user_project: str) -> Callable[[Bucket, str, str, Callable[[], Credentials | None]], Sign]:
    """Return a maker of signers for HMAC keys: GOOG4-HMAC-SHA256; ``user_project`` pays, unless it is empty."""
    scheme = replace(
        _SCHEME,
        headers={_PAYER: user_project} if user_project else {},
        # Google's front end rewrites this header before it checks the signature.
        unsigned=frozenset({"accept-encoding"}),
        # x-goog-hash, which is signed, holds the body's checksum.
        signs_body=False,
    )

    def make(_bucket: Bucket, host: str, region: str, credentials: Callable[[], Credentials | None]) -> Sign:
        return Signer(host, region, credentials, time.time, scheme).sign

    return make


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
