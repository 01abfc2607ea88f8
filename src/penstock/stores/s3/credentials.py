"""AWS credentials from options, environment, botocore's chain and the shared files."""

from __future__ import annotations

import contextlib
import importlib
import json
import os
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from penstock.engine.contracts.credentials import BearerToken, Credentials
from penstock.errors import ConfigError, PenstockError, Throttled, Unauthenticated, Unreachable
from penstock.stores.credentials import call_provider, make_keys, run_credential_program
from penstock.stores.http.network import first, variables
from penstock.stores.s3 import aws_files as shared
from penstock.stores.s3.settings import Service, chain_reads, is_unsigned, resolve

if TYPE_CHECKING:
    from collections.abc import Mapping

    from penstock.stores.s3.options import S3Options

_PUBLIC = "anonymous=True (--anonymous, AWS_NO_SIGN_REQUEST=YES) reads public data"


@dataclass(frozen=True, slots=True, repr=False)
class AmazonCredentials:
    """Source of credentials; nothing is looked up before its ``load``.

    In this order: explicit keys, the user's own function or process; unsigned (``anonymous=True``,
    ``AWS_NO_SIGN_REQUEST``); the environment's keys, unless a profile was passed explicitly; botocore's chain when
    botocore is installed (profile, role, SSO, process, web identity, container, instance metadata); else static keys of
    the shared AWS files. Each ``load`` starts over: it sees rotated files, roles and tokens, and shares no lock with
    a forked parent.

    Pass a copy of the environment to keep the identity that it names. botocore's chain reads the process's environment,
    so it is used only while both name the same identity. No error quotes foreign texts that might hold a key.
    """

    options: S3Options
    environ: Mapping[str, str]
    service: Service = field(default_factory=Service)

    def load(self) -> Credentials | BearerToken | None:
        options, environ, service = self.options, self.environ, self.service
        explicit = make_keys("S3Options", options.access_key, options.secret_key, options.session_token)
        if explicit or is_unsigned(options, environ):
            return explicit
        if options.credentials is not None:
            return call_provider(options.credentials, Credentials)
        if options.credentials_process is not None:
            return run_credential_program(options.credentials_process, environ, Credentials)
        if service.tokens and not options.profile:
            where, token = auth_token(environ)
            if token:
                return BearerToken(token, found_in=where)
        found = None if options.profile else self._named()
        if found is None and (service.aws_files or options.profile):
            roles = (service.aws_roles or bool(options.profile)) and _has_botocore()
            found = (_from_botocore if roles else _from_files)(options, environ)
        if found is None and not service.keyless:
            raise Unauthenticated(_nowhere(options, environ, service))
        return found

    def _named(self) -> Credentials | None:
        """Return the service's own keys from the environment, else those of AWS's tools."""
        service = self.service
        found = _from_environment(self.environ, service.keys)
        if found is None and service.aws_files and service.keys != Service.keys:
            found = _from_environment(self.environ, Service.keys)
        return found


def _from_environment(environ: Mapping[str, str], names: tuple[str, str, str]) -> Credentials | None:
    access_key, secret_key, token = (environ.get(name) or None for name in names)
    return make_keys(f"the environment ({names[0]}, {names[1]})", access_key, secret_key, token)


def _from_files(options: S3Options, environ: Mapping[str, str]) -> Credentials | None:
    profile = shared.profile(options.profile, environ)
    return make_keys(f"profile {profile.name or 'default'!r}", profile.access_key, profile.secret_key, profile.token)


def _has_botocore() -> bool:
    with contextlib.suppress(ImportError):
        importlib.import_module("botocore.session")
        return True
    return False


def _from_botocore(options: S3Options, environ: Mapping[str, str]) -> Credentials | None:
    profile = shared.profile(options.profile, environ).name
    if chain_reads(os.environ, profile) != chain_reads(environ, profile):
        raise Unauthenticated("the environment now names another identity: open a new source")
    # A new session for every load: botocore's refreshing object has locks, and a fork could copy them while held.
    session = importlib.import_module("botocore.session").Session(profile=profile)
    config_file, credentials_file = shared.files(environ)
    session.set_config_variable("config_file", str(config_file))
    session.set_config_variable("credentials_file", str(credentials_file))
    # The region is for STS; botocore ignores AWS_REGION.
    session.set_config_variable("region", resolve(options, environ).region)
    try:
        found = session.get_credentials()
        return None if found is None else _thaw_credentials(found)
    except Exception as error:  # noqa: BLE001  processes, parsers and servers raise any error, and may quote a key
        failure = _translate_error(error)
    # Raised outside the except block, so that the original is not chained.
    raise failure


def _thaw_credentials(found: Any) -> Credentials | None:  # noqa: ANN401  botocore has no types
    keys = found.get_frozen_credentials()
    # botocore has no public attribute for the expiry.
    expiry = getattr(found, "_expiry_time", None)
    static = make_keys(f"botocore's {found.method}", keys.access_key, keys.secret_key, keys.token)
    if static is None or expiry is None:
        return static
    return replace(static, expires_at=expiry.timestamp())


def _translate_error(error: Exception) -> PenstockError:
    """Translate an error of botocore's chain, quoting only texts that botocore itself composes from names."""
    kinds = importlib.import_module("botocore.exceptions")
    if isinstance(error, PenstockError):
        return error
    if isinstance(error, (kinds.InvalidConfigError, kinds.PartialCredentialsError)):
        return ConfigError(str(error))
    if isinstance(error, (kinds.HTTPClientError, kinds.ConnectionError)):
        return Unreachable(f"the service that gives out credentials did not answer ({type(error).__name__})")
    if isinstance(error, kinds.ClientError):
        return _make_service_error(error.response)
    detail = type(error).__name__
    if isinstance(error, kinds.SSOError):
        detail = str(error)
    elif isinstance(error, kinds.CredentialRetrievalError):
        detail = f"{error.kwargs.get('provider')} failed"
    elif isinstance(error, OSError):
        detail = f"{detail}: {error.strerror}"
    return Unauthenticated(f"the credential chain failed: {detail}; `aws sts get-caller-identity` shows why, in full")


def _make_service_error(response: Mapping[str, Any]) -> PenstockError:
    status = response.get("ResponseMetadata", {}).get("HTTPStatusCode", 0)
    code = response.get("Error", {}).get("Code", "")
    message = f"the service that gives out credentials answered {status} {code}"
    if "Throttl" in code or status == 429:  # noqa: PLR2004  HTTP's Too Many Requests
        return Throttled(message)
    return Unreachable(message) if status >= 500 else Unauthenticated(message)  # noqa: PLR2004  HTTP's server errors


def _nowhere(options: S3Options, environ: Mapping[str, str], service: Service) -> str:
    own = f"{service.keys[0]} and {service.keys[1]}"
    if not service.aws_files and not options.profile:
        return f"no credentials for {service.name}: looked in S3Options, {own}; {_PUBLIC}"
    profile = options.profile or environ.get("AWS_PROFILE") or "default"
    also = f", {Service.keys[0]} and {Service.keys[1]}" if service.keys != Service.keys else ""
    environment = "" if options.profile else f"{own}{also}, "
    looked = f"S3Options, {environment}profile {profile!r} of {' and '.join(map(str, shared.files(environ)))}"
    more = "and in container and instance metadata"
    if not (service.aws_roles or options.profile):
        more = "(roles count for AWS only)"
    elif not _has_botocore():
        more = "(roles, SSO, processes and instance metadata need botocore: pip install penstock[s3])"
    return f"no credentials found: looked in {looked} {more}; {_PUBLIC}"


_FILE = "~/.config/ais/cli/auth.token"  # where ``ais auth login`` writes it


def auth_token(environ: Mapping[str, str]) -> tuple[str, str]:
    """Return the origin of a token, and the token: from ``AIS_AUTHN_TOKEN``, else from ``AIS_AUTHN_TOKEN_FILE``.

    The default file is the one of AIStore's command line. Without a token, both texts are empty.
    """
    if token := environ.get("AIS_AUTHN_TOKEN"):
        return "AIS_AUTHN_TOKEN", _clean_token(token, "AIS_AUTHN_TOKEN")
    named, text = first(variables(environ, "AIS_AUTHN_TOKEN_FILE"))
    path = Path(os.path.expanduser(text or _FILE))  # noqa: PTH111  pathlib's raises without HOME
    try:
        held = path.read_text("utf-8")
    except (FileNotFoundError, NotADirectoryError):
        if text is None:
            return "", ""
        raise ConfigError(f"{named} names the file {path}, which does not exist") from None
    except (OSError, UnicodeDecodeError) as error:
        raise ConfigError(f"the token file {path} cannot be read: {type(error).__name__}") from None
    try:
        value = json.loads(held)
    except (ValueError, RecursionError):
        value = held
    token = value.get("token") if isinstance(value, dict) else held.strip()
    return f"the token file {path}", _clean_token(token, f"the token file {path}")


def _clean_token(token: object, named: str) -> str:
    if not isinstance(token, str) or not token or not all("!" <= char <= "~" for char in token):
        raise ConfigError(f"{named} holds no token: text of visible ASCII characters, or JSON with token")
    return token
