"""``gs://`` and ``gcs://``: Google Cloud Storage; its settings, and credentials from google-auth's chain."""

from __future__ import annotations

import json
import os
import re
from dataclasses import dataclass
from datetime import UTC
from hashlib import sha256
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, NamedTuple, NoReturn
from urllib.parse import unquote

from penstock.engine.contracts.credentials import BearerToken, Credentials
from penstock.engine.contracts.driver import Limits
from penstock.engine.endpoint import is_here, normal
from penstock.errors import ConfigError, MissingExtra, PenstockError, Unauthenticated, Unreachable
from penstock.stores.credentials import call_provider, direct_opener, make_keys, run_credential_program
from penstock.stores.gcs.options import KEYS, WHERE, GCSOptions
from penstock.stores.http.network import ca_file, first, make_transport, variables
from penstock.stores.store import Opening, Store

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping
    from email.message import Message

    from penstock.engine.contracts.driver import Driver
    from penstock.engine.contracts.exchange import Transport

_MIB, _GIB, _TIB = 1 << 20, 1 << 30, 1 << 40
_WEB = re.compile(
    r"https?://(?:storage\.(?:googleapis|cloud\.google)\.com/|console\.cloud\.google\.com/storage/browser/(?:_details/)?)"
    r"([^?#]*)",
    re.IGNORECASE,
)
_HOSTED = re.compile(r"https?://([a-z0-9][a-z0-9._-]+)\.storage\.googleapis\.com/([^?#]*)", re.IGNORECASE)
_CHALLENGE = ".well-known/acme-challenge/"


class GCS(Store):
    """``gs://`` and ``gcs://``: buckets of Google Cloud Storage."""

    name = "Google Cloud Storage"
    schemes = ("gs", "gcs")
    # "Bucket naming guidelines"; emulators accept more.
    buckets = r"[a-z0-9][a-z0-9._-]{1,220}[a-z0-9]"
    bucket_rule = "3 to 222 lower-case letters, digits, '.', '-' and '_'"
    limits = Limits(
        least_part_bytes=5 * _MIB,
        most_part_bytes=5 * _GIB,
        most_parts=10_000,
        put_bytes=5 * _TIB,
        # A copy within a bucket moves no data, whatever the size; parts cannot be copied.
        copy_bytes=5 * _TIB,
        key_bytes=1024,
        metadata_bytes=8 << 10,
    )
    options = GCSOptions
    example = "GCSOptions(credentials_file=…)"
    where = WHERE
    extra = "penstock[gcs]"

    def open(self, opening: Opening) -> tuple[Driver, Transport]:
        """Return the driver of a bucket; a missing library fails here, before the first request."""
        from penstock.stores.credentials import RefreshingCredentials
        from penstock.stores.gcs.driver import GCSDriver, Google, library
        from penstock.stores.s3.dialect import BucketAddress

        library()
        settings = opening.settings
        bucket = BucketAddress(opening.bucket, settings.endpoint, virtual=False, scheme=opening.scheme)
        dialect = Google(keys=settings.access == "keys", user_project=settings.user_project)
        identity = RefreshingCredentials(GoogleCredentials(opening.options, settings, opening.environ))
        driver = GCSDriver(bucket, identity, dialect, settings.user_project)
        driver.page_keys = self.limits.page_keys
        return driver, make_transport(opening, settings.endpoint or "https://storage.googleapis.com", self.where)

    def resolve(self, options: GCSOptions, environ: Mapping[str, str]) -> tuple[GCSSettings, bytes]:
        """Resolve options and environment to settings and an identity; explicit options override the environment.

        The identity changes when the environment names other credentials; none of them can be read from it. Tokens are
        never sent over plain HTTP to another machine.
        """
        named, text = first([("GCSOptions.endpoint", options.endpoint), *variables(environ, _EMULATOR)])
        if text is not None and named == _EMULATOR and "://" not in text:
            text = f"http://{text}"
        endpoint = None if text is None else normal(text, named)
        access = _access(options, environ, emulated=named == _EMULATOR)
        if access == "token" and endpoint is not None and endpoint.startswith("http:") and not is_here(endpoint):
            message = (
                f"{named} is plain HTTP to another machine: anyone on the network could read and use the token; "
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

    def key_fault(self, key: str) -> str:
        """Refuse keys that violate "Object name requirements" of Google's documentation."""
        if key in (".", ".."):
            return f"{key!r} cannot be an object of Google Cloud Storage: choose another name"
        if "\r" in key or "\n" in key:
            return "the key holds a line break, which Google Cloud Storage does not take"
        if key.startswith(_CHALLENGE):
            return f"Google Cloud Storage takes no keys that begin with {_CHALLENGE!r}"
        return ""

    def advice(self, text: str) -> str:
        if match := _WEB.match(text):
            return f"for this object write gs://{unquote(match[1])}"
        if match := _HOSTED.match(text):
            return f"for this object write gs://{unquote('/'.join(match.groups()))}"
        return ""


_EMULATOR = "STORAGE_EMULATOR_HOST"  # as in Google's own libraries
# Variables that google-auth's chain reads.
CHAIN = (
    *("GOOGLE_APPLICATION_CREDENTIALS", "CLOUDSDK_CONFIG", "GOOGLE_EXTERNAL_ACCOUNT_ALLOW_EXECUTABLES"),
    *("GCE_METADATA_HOST", "GCE_METADATA_IP", "GCE_METADATA_ROOT", "NO_GCE_CHECK", "GOOGLE_API_USE_CLIENT_CERTIFICATE"),
    *("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY", "AWS_SESSION_TOKEN", "AWS_REGION", "AWS_DEFAULT_REGION"),
)


@dataclass(frozen=True, slots=True, kw_only=True)
class GCSSettings:
    """Location and settings of Google Cloud Storage.

    Attributes:
        endpoint: ``scheme://host[:port][/path]``; None for Google's own.
        ca_file: PEM file to verify servers with; None if this machine has none.
        proxy: As given: None leaves it to the environment, "" means no proxy. It may hold a password.
        access: Authorisation of requests: ``keys`` (HMAC), a ``token``, or ``nothing``.
    """

    endpoint: str | None
    ca_file: str | None
    proxy: str | None
    access: Literal["keys", "token", "nothing"]
    user_project: str = ""


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


_SCOPES = ("https://www.googleapis.com/auth/devstorage.read_write",)
_IMPERSONATOR_SCOPES = ("https://www.googleapis.com/auth/cloud-platform",)  # required by IAM's credentials service
_OAUTH_CODE = re.compile(r"[a-z_]{1,40}(?=:|$)")  # RFC 6749, 5.2: a token service's error code
_HELP = "`gcloud auth application-default login` makes some; anonymous=True (--anonymous) reads public data"


@dataclass(frozen=True, slots=True, repr=False)
class GoogleCredentials:
    """Source of credentials; nothing is looked up before its ``load``.

    By ``settings.access``: none; an HMAC key of options or environment; or a token. A token is passed, returned by a
    function, printed by a program, or comes from google-auth: for ``credentials_json``, ``credentials_file``, or its
    application default credentials (``GOOGLE_APPLICATION_CREDENTIALS``, gcloud's file, the metadata server). Each
    ``load`` starts over, so it sees rotated files, and shares no lock with a forked parent. No error quotes foreign
    texts that might hold a secret.
    """

    options: GCSOptions
    settings: GCSSettings
    environ: Mapping[str, str]

    def load(self) -> Credentials | BearerToken | None:
        options = self.options
        if self.settings.access == "nothing":
            return None
        if self.settings.access == "keys":
            if options.access_key is not None:
                return make_keys("GCSOptions", options.access_key, options.secret_key)
            key, secret = (self.environ.get(name) for name in KEYS)
            return make_keys(" and ".join(KEYS), key, secret)
        own = self._own()
        return own if own is not None and options.service_account is None else self._from_google(own)

    def _own(self) -> BearerToken | None:
        """Return the token that the caller supplies; None if Google's chain must be asked."""
        options = self.options
        if options.token is not None:
            return BearerToken(_clean(options.token, "GCSOptions.token"), found_in="GCSOptions.token")
        if options.credentials is not None:
            return call_provider(options.credentials, BearerToken)
        if options.credentials_process is not None:
            return run_credential_program(options.credentials_process, self.environ, BearerToken)
        return None

    def _from_google(self, own: BearerToken | None) -> BearerToken:
        try:
            send = requests(self.settings.ca_file, self.settings.proxy)
            if own is None:
                found, where = self._found(send)
            else:
                from google.oauth2.credentials import Credentials as UserCredentials

                found, where = UserCredentials(own.token), own.found_in
            if (account := self.options.service_account) is not None:
                from google.auth.impersonated_credentials import Credentials as Impersonated

                found, where = Impersonated(found, account, list(_SCOPES)), f"{where}, as {account}"
            found.refresh(send)
            expires_at = None if found.expiry is None else found.expiry.replace(tzinfo=UTC).timestamp()
            return _token(found, expires_at, where)
        except ModuleNotFoundError as error:
            message = f"Google's credentials need {error.name}, which is not installed: pip install penstock[gcs]"
            raise MissingExtra(message) from error
        except Exception as error:  # noqa: BLE001  files, parsers and servers raise any error, and may quote a secret
            failure = _translate_error(error)
        # Raised outside the except block, so that the original is not chained.
        raise failure

    def _found(self, send: Any) -> tuple[Any, str]:  # noqa: ANN401  google-auth has no types
        options, environ = self.options, self.environ
        scopes = list(_IMPERSONATOR_SCOPES if options.service_account is not None else _SCOPES)
        if options.credentials_json is not None:
            where = "GCSOptions.credentials_json"
            return _of(_object(options.credentials_json, where), scopes, where), where
        if path := options.credentials_file or environ.get("GOOGLE_APPLICATION_CREDENTIALS"):
            named = "GCSOptions.credentials_file" if options.credentials_file else "GOOGLE_APPLICATION_CREDENTIALS"
            file = Path(path).expanduser()
            if not file.is_file():
                raise ConfigError(f"{named} names {path!r}, which does not exist: correct it, or unset it")
            return _of(_object(file.read_text("utf-8"), str(file)), scopes, str(file)), str(file)
        folder = environ.get("CLOUDSDK_CONFIG") or Path.home() / ".config" / "gcloud"
        gcloud = Path(folder, "application_default_credentials.json")
        if gcloud.is_file():
            return _of(_object(gcloud.read_text("utf-8"), str(gcloud)), scopes, str(gcloud)), str(gcloud)
        if any((os.environ.get(name) or None) != (environ.get(name) or None) for name in CHAIN):
            raise Unauthenticated("the environment now names other credentials: open a new source")
        import google.auth

        return google.auth.default(scopes, request=send)[0], "the metadata server"


def _token(found: Any, expires_at: float | None, where: str) -> BearerToken:  # noqa: ANN401  google-auth has no types
    """Return a token; with its account's signing function if the private key is local and needs no request."""
    from google.auth.crypt import RSASigner

    from penstock.stores.gcs.driver import ServiceToken

    token, signer = _clean(found.token, "google-auth"), getattr(found, "signer", None)
    if not isinstance(signer, RSASigner):
        return BearerToken(token, expires_at, where)
    return ServiceToken(token, expires_at, where, found.signer_email, signer.sign)


def _of(info: dict[str, Any], scopes: list[str], where: str) -> Any:  # noqa: ANN401  google-auth has no types
    """Return the credentials that a Google credentials file describes; only known types are created."""
    from google.auth import aws, external_account_authorized_user, identity_pool, impersonated_credentials, pluggable
    from google.oauth2 import credentials, service_account

    source = info.get("credential_source")
    external = source if isinstance(source, dict) else {}
    make: dict[str, Callable[[], Any]] = {
        "service_account": lambda: service_account.Credentials.from_service_account_info(info, scopes=scopes),
        "authorized_user": lambda: credentials.Credentials.from_authorized_user_info(info, scopes),
        "external_account_authorized_user": lambda: external_account_authorized_user.Credentials.from_info(info),
        "impersonated_service_account": lambda: (
            impersonated_credentials.Credentials.from_impersonated_service_account_info(info, scopes=scopes)
        ),
        "external_account": lambda: (
            aws.Credentials.from_info(info, scopes=scopes)
            if str(external.get("environment_id", "")).startswith("aws")
            else (pluggable if "executable" in external else identity_pool).Credentials.from_info(info, scopes=scopes)
        ),
    }
    kind = info.get("type")
    if kind not in make:
        known = ", ".join(make)
        raise ConfigError(f"{where} is not a usable file of Google's credentials: its type must be one of {known}")
    return make[str(kind)]()


def _clean(secret: str, named: str) -> str:
    if not secret or not all("!" <= char <= "~" for char in secret):
        message = f"{named} contains spaces or control characters: strip it (secret files may end in a line break)"
        raise ConfigError(message if secret else f"{named} is empty")
    return secret


def _object(text: str, named: str) -> dict[str, Any]:
    try:
        found = json.loads(text)
    except (ValueError, RecursionError):
        found = None
    if not isinstance(found, dict):
        raise ConfigError(f"{named} must be a JSON object: pass the text of the file, or its path as credentials_file=")
    return found


def _translate_error(error: Exception) -> PenstockError:  # noqa: PLR0911  a table of reasons, the most telling first
    """Translate an error of google-auth, quoting OAuth's codes only."""
    from google.auth import exceptions

    if isinstance(error, PenstockError):
        return error
    if isinstance(error, exceptions.DefaultCredentialsError):
        looked = "GCSOptions, GOOGLE_APPLICATION_CREDENTIALS, gcloud's file and the metadata server"
        return Unauthenticated(f"no credentials of Google's can be used: looked in {looked}; {_HELP}")
    if isinstance(error, exceptions.TransportError):
        return Unreachable(f"the service that gives out Google's tokens did not answer ({error})")
    if isinstance(error, exceptions.RefreshError):
        if error.retryable:
            return Unreachable("the service that gives out Google's tokens has a problem")
        code = _OAUTH_CODE.match(str(error.args[0])) if error.args else None
        said = f" ({code[0]})" if code else ""
        return Unauthenticated(f"Google refused a token{said}: the credentials were revoked or are incomplete; {_HELP}")
    if isinstance(error, (exceptions.GoogleAuthError, ValueError, KeyError)):
        return ConfigError(f"these credentials cannot be used: google-auth raised {type(error).__name__} on them")
    if isinstance(error, OSError):
        return ConfigError(f"the credentials cannot be read: {error.strerror}")
    return Unauthenticated(f"the credential chain failed: {type(error).__name__}; {_HELP}")


# Of one request; google-auth passes a timeout for the metadata server, which is near.
_TIMEOUT_S = 30.0
_MOST_BYTES = 1 << 20  # of an answer: tokens have a few KiB
_SCHEMES = ("http://", "https://")


class AuthAnswer(NamedTuple):
    """HTTP answer in the form that google-auth reads."""

    status: int
    headers: Message  # names are case-insensitive: google-auth asks for "metadata-flavor" and "content-type"
    data: bytes


def requests(ca_file: str | None, proxy: str | None) -> Callable[..., AuthAnswer]:
    """Return the blocking callable that google-auth sends its requests with.

    Without ``ca_file``, OpenSSL's certificates count; ``proxy`` is for all requests, "" for no proxy, None for the
    environment's.
    """
    # google-auth alone needs these: they take longer to import than the rest of this room.
    import ssl
    import urllib.error
    import urllib.request

    proxies = None if proxy is None else {"http": proxy, "https": proxy} if proxy else {}
    opener = direct_opener(
        urllib.request.ProxyHandler(proxies),
        urllib.request.HTTPSHandler(context=ssl.create_default_context(cafile=ca_file)),
    )

    def send(
        url: str,
        method: str = "GET",
        body: bytes | str | None = None,
        headers: Mapping[str, str] | None = None,
        timeout: float | None = None,
        **_: object,
    ) -> AuthAnswer:
        if not url.lower().startswith(_SCHEMES):
            _fail("credentials name a URL that is neither http:// nor https://")
        data = body.encode() if isinstance(body, str) else body
        request = urllib.request.Request(url, data, dict(headers or {}), method=method)  # noqa: S310  checked above
        try:
            with opener.open(request, timeout=timeout or _TIMEOUT_S) as answer:
                return AuthAnswer(answer.status, answer.headers, answer.read(_MOST_BYTES))
        except urllib.error.HTTPError as refusal:
            with refusal:
                return AuthAnswer(refusal.code, refusal.headers, refusal.read(_MOST_BYTES))
        except (OSError, ValueError) as error:
            reason = getattr(error, "reason", None) or error
            _fail(f"{type(reason).__name__}: {getattr(reason, 'strerror', None) or 'no answer'}")

    return send


def _fail(text: str) -> NoReturn:
    import google.auth.exceptions

    # The error that google-auth expects of a transport.
    raise google.auth.exceptions.TransportError(text)
