"""Options, environment and profile become one set of settings; what was said explicitly always wins."""

from __future__ import annotations

import os
import re
from dataclasses import dataclass, field
from hashlib import sha256
from typing import TYPE_CHECKING, Literal

from penstock.config import endpoint, network, shared
from penstock.config.network import first, variables
from penstock.errors import ConfigError

if TYPE_CHECKING:
    from collections.abc import Mapping

    from penstock.options import S3Options

__all__ = ["AWS", "Service", "StoreSettings", "chain_reads", "resolve", "unsigned"]

_REGION = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]*")
_FALSE = ("", "no", "false", "off", "0")
_FILES = ("AWS_CONFIG_FILE", "AWS_SHARED_CREDENTIALS_FILE")
_PROFILES = ("AWS_PROFILE", "AWS_DEFAULT_PROFILE")
# What botocore's chain reads. Secrets too: one may be replaced where its id stays.
_CHAIN = (
    *("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY", "AWS_SESSION_TOKEN", "AWS_SECURITY_TOKEN"),
    *("AWS_ROLE_ARN", "AWS_ROLE_SESSION_NAME", "AWS_WEB_IDENTITY_TOKEN_FILE"),
    *("AWS_CONTAINER_CREDENTIALS_RELATIVE_URI", "AWS_CONTAINER_CREDENTIALS_FULL_URI"),
    *("AWS_CONTAINER_AUTHORIZATION_TOKEN", "AWS_CONTAINER_AUTHORIZATION_TOKEN_FILE"),
    *("AWS_EC2_METADATA_DISABLED", "AWS_EC2_METADATA_SERVICE_ENDPOINT"),
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Service:
    """A service that speaks the S3 dialect: where it is unless somebody says otherwise, and which variables say so.

    Attributes:
        name: Its name in messages.
        endpoint: Its endpoint; ``{region}`` in it stands for the region. None for AWS's own.
        region: Signing region.
        addressing: How buckets are addressed there; None: ``virtual`` on AWS itself, ``path`` elsewhere.
        endpoints: Environment variables that name another endpoint, the first that is set counts.
        regions: The same for the region.
        keys: The variables of key id, secret and session token.
        aws_files: Settings and credentials that AWS's tools share count too: the profile in their files, the variables
            of their credential chain. A profile that was passed explicitly always counts.

    """

    name: str = "S3"
    endpoint: str | None = None
    region: str = "us-east-1"
    addressing: Literal["path", "virtual"] | None = None
    endpoints: tuple[str, ...] = ("AWS_ENDPOINT_URL_S3", "AWS_ENDPOINT_URL")
    regions: tuple[str, ...] = ("AWS_REGION", "AWS_DEFAULT_REGION")
    keys: tuple[str, str, str] = ("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY", "AWS_SESSION_TOKEN")
    aws_files: bool = True


AWS = Service()


@dataclass(frozen=True, slots=True, kw_only=True)
class StoreSettings:
    """Where a store is and how to talk to it, with nothing left to look up.

    Attributes:
        endpoint: ``scheme://host[:port][/path]``; None for AWS's own.
        region: Signing region.
        addressing: The rule; ``config.endpoint.path_style`` decides it for one bucket.
        ca_file: PEM file to verify servers by; None where this machine has none.
        proxy: As given: None leaves it to the environment, "" is none at all. It may hold a password.
        anonymous: Send unsigned requests.
        service: The defaults of the service.
        identity: Differs where environment and profile name other credentials; no credential can be read from it.

    """

    endpoint: str | None
    region: str
    addressing: Literal["path", "virtual"]
    ca_file: str | None
    proxy: str | None = field(repr=False)
    anonymous: bool
    service: Service = AWS
    identity: bytes = field(default=b"", repr=False)


def resolve(options: S3Options, environ: Mapping[str, str] = os.environ, service: Service = AWS) -> StoreSettings:
    """Look every setting up in the order ``S3Options`` documents; an empty variable counts as unset.

    ``AWS_IGNORE_CONFIGURED_ENDPOINT_URLS=true`` (or the profile's like) hides endpoints of environment and profile,
    never an explicit one. Reads the two shared AWS files; makes no request.

    Raises:
        ConfigError: A value that cannot work, a CA file that is not there, a profile that does not exist; the text
            names the option, variable or profile it came from.

    """
    profile = _profile(options, environ, service)
    region = _region(options, environ, profile, service)
    url = _endpoint(options, environ, profile, service)
    if url is None and service.endpoint is not None:
        url = service.endpoint.format(region=region)
    return StoreSettings(
        endpoint=url,
        region=region,
        addressing=_addressing(options, profile, url, service),
        ca_file=_ca_file(options, environ, profile),
        proxy=options.transport.proxy,
        anonymous=unsigned(options, environ),
        service=service,
        identity=_identity(options, environ, profile, service),
    )


def unsigned(options: S3Options, environ: Mapping[str, str]) -> bool:
    """Say whether requests go unsigned: ``anonymous=True``, or ``AWS_NO_SIGN_REQUEST`` with no explicit identity.

    The variable is GDAL's and rasterio's, which datasets of public imagery set; like there, anything but NO, FALSE,
    OFF and 0 switches it on.
    """
    explicit = _own(options) or options.profile is not None
    return options.anonymous or (not explicit and environ.get("AWS_NO_SIGN_REQUEST", "").lower() not in _FALSE)


def chain_reads(environ: Mapping[str, str], profile: str | None) -> list[str | None]:
    """Return the variables that say whose credentials botocore's chain finds, where it is given files and profile.

    Where ``profile`` is None, those that name one are among them. They hold secrets.
    """
    names = _CHAIN if profile else (*_CHAIN, *_PROFILES)
    return [environ.get(name) or None for name in names]


def _profile(options: S3Options, environ: Mapping[str, str], service: Service) -> shared.Profile:
    if service.aws_files or options.profile is not None:
        return shared.profile(options.profile, environ)
    return shared.Profile()


def _own(options: S3Options) -> bool:
    """Say whether the options themselves say whose credentials are used; they tell one such store from another."""
    return any(each is not None for each in (options.access_key, options.credentials, options.credentials_process))


def _identity(options: S3Options, environ: Mapping[str, str], profile: shared.Profile, service: Service) -> bytes:
    """Digest all that says who a store is asked as; explicit keys are told apart by the options themselves."""
    if _own(options) or unsigned(options, environ):
        return b""
    names = (*_CHAIN, *_FILES) if service.aws_files else service.keys
    said = [(name, environ.get(name)) for name in names]
    return sha256(repr((said, profile.name, profile.digest)).encode("utf-8", "surrogateescape")).digest()


def _endpoint(options: S3Options, environ: Mapping[str, str], profile: shared.Profile, service: Service) -> str | None:
    candidates: list[tuple[str, str | None]] = [("S3Options.endpoint", options.endpoint)]
    ignore = environ.get("AWS_IGNORE_CONFIGURED_ENDPOINT_URLS")
    if not (ignore.lower() == "true" if ignore else profile.ignore_endpoints):
        candidates += variables(environ, *service.endpoints)
        candidates += [(f"endpoint_url of {_title(profile)}", profile.endpoint)]
    named, text = first(candidates)
    return None if text is None else endpoint.normal(text, named)


def _region(options: S3Options, environ: Mapping[str, str], profile: shared.Profile, service: Service) -> str:
    named_by = variables(environ, *service.regions)
    named, text = first(
        [("S3Options.region", options.region), *named_by, (f"region of {_title(profile)}", profile.region)],
    )
    if text is None:
        return service.region
    if not _REGION.fullmatch(text):
        message = f"{named} cannot be a region: letters, digits, '-', '_' and '.' only, like us-east-1, not {text!r}"
        raise ConfigError(message)
    return text


def _addressing(
    options: S3Options, profile: shared.Profile, url: str | None, service: Service
) -> Literal["path", "virtual"]:
    style = options.addressing if options.addressing != "auto" else profile.addressing or "auto"
    styles: dict[str, Literal["path", "virtual"]]
    styles = {
        "path": "path",
        "virtual": "virtual",
        "auto": service.addressing or ("virtual" if url is None else "path"),
    }
    if style not in styles:
        message = f"s3.addressing_style of {_title(profile)} must be auto, path or virtual, not {style!r}"
        raise ConfigError(message)
    return styles[style]


def _ca_file(options: S3Options, environ: Mapping[str, str], profile: shared.Profile) -> str | None:
    own = [*variables(environ, "AWS_CA_BUNDLE"), (f"ca_bundle of {_title(profile)}", profile.ca_bundle)]
    return network.ca_file(options.transport, environ, own)


def _title(profile: shared.Profile) -> str:
    return f"profile {profile.name or 'default'!r}"
