"""OSS credentials from options, environment, Alibaba's file and the role of an ECS instance."""

from __future__ import annotations

import json
import urllib.error
import urllib.request
from typing import TYPE_CHECKING, Any

from penstock.engine.contracts.credentials import Credentials
from penstock.errors import ConfigError, Unauthenticated, Unreachable
from penstock.stores.credentials.external import called, printed
from penstock.stores.http.listing import parse_iso_date
from penstock.stores.oss.settings import KEYS, credentials_file, read_credentials

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

    from penstock.engine.contracts.credentials import CredentialSource
    from penstock.stores.oss.options import OSSOptions

__all__ = ["source"]

_METADATA = "http://100.100.100.200"  # link-local: no proxy, no redirects
_ROLES = "/latest/meta-data/ram/security-credentials/"
_LIMIT_S = 2.0  # an instance answers within milliseconds
_MOST_BYTES = 64 << 10
_LOOK_S = "60"  # lifetime of the metadata server's token: one lookup


def source(options: OSSOptions, environ: Mapping[str, str]) -> CredentialSource[Credentials]:
    """Return the source of credentials; nothing is looked up before its ``load``.

    In this order: explicit keys; unsigned (``anonymous=True``); ``credentials``, ``credentials_process``,
    ``credentials_file`` and ``ecs_role``, one of which may be given; keys of the environment (``OSS_…``, then
    ``ALIBABA_CLOUD_…``); Alibaba's file; ``ALIBABA_CLOUD_CREDENTIALS_URI``; the role of this ECS instance, unless
    ``ALIBABA_CLOUD_ECS_METADATA_DISABLED`` is true. Each ``load`` starts over, so it sees rotated files and roles.

    ``load`` raises:
        ConfigError: Half a pair of keys, an invalid file.
        Unauthenticated: No credentials were found; the message lists the places searched.
        Unreachable: A metadata server that was named explicitly did not answer.

    """
    return _Chain(options, environ)


class _Chain:
    """Credential source in the order that ``source`` documents."""

    def __init__(self, options: OSSOptions, environ: Mapping[str, str]) -> None:
        self._options = options
        self._environ = environ

    def load(self) -> Credentials | None:
        options, environ = self._options, self._environ
        if options.access_key is not None or options.anonymous:
            return _pair("OSSOptions", options.access_key, options.secret_key, options.session_token)
        if options.credentials is not None:
            return called(options.credentials, Credentials)
        if options.credentials_process is not None:
            return printed(options.credentials_process, environ, Credentials)
        if options.credentials_file is None and options.ecs_role is None:
            for names in KEYS:
                access_key, secret_key, token = (environ.get(name) or None for name in names)
                if access_key or secret_key:
                    return _pair(f"the environment ({names[0]}, {names[1]})", access_key, secret_key, token)
        named, path = credentials_file(options, environ)
        found = None if options.ecs_role is not None else _from_file(named, path, environ)
        return found or self._from_metadata(path)

    def _from_metadata(self, file: Path) -> Credentials:
        options, environ = self._options, self._environ
        uri = environ.get("ALIBABA_CLOUD_CREDENTIALS_URI")
        if uri and options.ecs_role is None:
            return _read(_fetch(uri, {}), "ALIBABA_CLOUD_CREDENTIALS_URI")
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


def _pair(
    named: str, access_key: str | None, secret_key: str | None, token: str | None, expires_at: float | None = None
) -> Credentials | None:
    if access_key is None and secret_key is None:
        return None
    if not access_key or not secret_key:
        raise ConfigError(f"{named} gives half a pair of keys, or an empty one: key id and secret go together")
    if not all("!" <= char <= "~" for char in access_key + secret_key + (token or "")):
        message = f"a key from {named} holds a space, a line break or worse: strip it (files often end in one)"
        raise ConfigError(message)
    return Credentials(access_key, secret_key, token or "", expires_at, found_in=named)


def _from_file(named: str, path: Path, environ: Mapping[str, str]) -> Credentials | None:
    try:
        fields = read_credentials(path, environ.get("ALIBABA_CLOUD_PROFILE") or "default")
    except FileNotFoundError:
        if named:
            raise ConfigError(f"{named} names the credentials file {path}, which is not there") from None
        return None
    return _read(fields, f"the credentials file {path}")


def _read(fields: Mapping[str, Any], named: str) -> Credentials:
    """Return the credentials in JSON of Alibaba's services and files."""
    key, secret, token = (fields.get(name) or None for name in ("AccessKeyId", "AccessKeySecret", "SecurityToken"))
    texts = all(each is None or isinstance(each, str) for each in (key, secret, token))
    expires_at = parse_iso_date(str(fields.get("Expiration") or ""))
    found = _pair(named, key, secret, token, expires_at) if texts else None
    if found is None:
        raise ConfigError(f"{named} gives no AccessKeyId and AccessKeySecret")
    return found


def _of_instance(role: str) -> Credentials:
    """Ask the metadata server of this ECS instance, in its hardened mode (a token, from a PUT, for every lookup)."""
    ttl = {"X-aliyun-ecs-metadata-token-ttl-seconds": _LOOK_S}
    token = {"X-aliyun-ecs-metadata-token": _text(f"{_METADATA}/latest/api/token", ttl, "PUT")}
    name = role or _text(f"{_METADATA}{_ROLES}", token).split("\n")[0].strip()
    if not name:
        raise Unreachable("this ECS instance has no RAM role")
    return _read(_fetch(f"{_METADATA}{_ROLES}{name}", token), f"the ECS instance's role {name[:80]!r}")


def _fetch(url: str, headers: Mapping[str, str]) -> dict[str, Any]:
    try:
        value = json.loads(_text(url, headers))
    except (ValueError, RecursionError):
        value = None
    if not isinstance(value, dict) or value.get("Code", "Success") != "Success":
        raise Unauthenticated("the service that gives out Alibaba's credentials answered with none")
    return value


class _NoRedirect(urllib.request.HTTPRedirectHandler):
    """Handler that follows no redirect: the target could be any host."""

    def redirect_request(self, *_arguments: object) -> None:
        """Return no request to follow."""


def _text(url: str, headers: Mapping[str, str], method: str = "GET") -> str:
    """Return the text of a short answer; on callers' threads only. Raises ``Unreachable``."""
    opener = urllib.request.build_opener(urllib.request.ProxyHandler({}), _NoRedirect())
    try:
        request = urllib.request.Request(url, headers=dict(headers), method=method)  # noqa: S310  the scheme is checked
        if request.type not in ("http", "https"):
            raise ConfigError("ALIBABA_CLOUD_CREDENTIALS_URI is no http or https URL")
        with opener.open(request, timeout=_LIMIT_S) as answer:
            body: bytes = answer.read(_MOST_BYTES)
            return body.decode()
    except urllib.error.HTTPError as error:
        failure = f"HTTP {error.code}"
        error.close()
    except (OSError, ValueError) as error:
        failure = type(error).__name__
    raise Unreachable(f"the service that gives out Alibaba's credentials did not answer ({failure})")
