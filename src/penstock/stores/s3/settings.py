"""Location of a store that speaks S3's dialect, and its settings from options, environment and profile."""

from __future__ import annotations

import os
import re
from dataclasses import dataclass, field, replace
from functools import wraps
from hashlib import sha256
from time import time
from typing import TYPE_CHECKING, Any, Literal, NamedTuple, TypeVar
from urllib.parse import urlsplit

from penstock.engine import endpoint
from penstock.errors import ConfigError
from penstock.options.private import given
from penstock.stores.http import network
from penstock.stores.http.network import first, variables
from penstock.stores.s3 import aws_files as shared
from penstock.stores.store import Store

if TYPE_CHECKING:
    from collections.abc import Callable, Hashable, Mapping

    from penstock.stores.s3.options import S3Options

_REGION = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]*")
_FALSE = ("", "no", "false", "off", "0")
_PLAIN = "https://s3.{region}.{domain}"
_FILES = ("AWS_CONFIG_FILE", "AWS_SHARED_CREDENTIALS_FILE")
_PROFILES = ("AWS_PROFILE", "AWS_DEFAULT_PROFILE")
# Variables that botocore's chain reads, secrets included: a secret may be replaced while its id stays.
_CHAIN = (
    *("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY", "AWS_SESSION_TOKEN", "AWS_SECURITY_TOKEN"),
    *("AWS_ROLE_ARN", "AWS_ROLE_SESSION_NAME", "AWS_WEB_IDENTITY_TOKEN_FILE"),
    *("AWS_CONTAINER_CREDENTIALS_RELATIVE_URI", "AWS_CONTAINER_CREDENTIALS_FULL_URI"),
    *("AWS_CONTAINER_AUTHORIZATION_TOKEN", "AWS_CONTAINER_AUTHORIZATION_TOKEN_FILE"),
    *("AWS_EC2_METADATA_DISABLED", "AWS_EC2_METADATA_SERVICE_ENDPOINT"),
)


_NAMES = {"{account}": "(?P<account>[a-z0-9-]+(?:\\.[a-z0-9-]+)?)", "{region}": "(?P<region>[A-Za-z0-9-]+)"}


class Service(Store):
    """Store that speaks S3's dialect: its default location, and the variables that override it.

    The defaults are AWS's. Instances of one class are equal, unless one is ``shared`` and the other is not.

    Attributes:
        endpoint: Endpoint, with ``{region}`` and ``{account}`` for region and account. None for AWS's own, empty if
            every user has a different one, which must be named.
        region: Signing region; empty if it must be named.
        addressing: Style of bucket addresses; None: ``virtual`` on AWS itself, ``path`` elsewhere.
        virtual_only: The service refuses path style.
        endpoints: Environment variables that name another endpoint; the first that is set counts.
        path: Added to an endpoint that has no path.
        regions: Environment variables that name the region; the first that is set counts.
        accounts: Environment variables that name the account; the first that is set counts.
        account_form: Regular expression that an account must match in full: it becomes part of an endpoint.
        account_in_url: A URL may name the account behind the bucket: ``scheme://bucket@account/key``.
        keys: Variables of key id, secret and session token.
        keyless: Requests without keys are sent unsigned.
        tokens: The service takes bearer tokens, as AIStore does.
        hosts: Domains of its endpoints: an endpoint in one of them is this service's.
        aws_files: Use settings and credentials that AWS's tools share, too: the profile in their files, the variables
            of their credential chain. A profile that was passed explicitly always counts.
        aws_roles: Use the rest of that chain, too: roles, single sign-on, processes, instance metadata.
        payer_advice: Advice about buckets with Requester Pays in a refusal.
    """

    name = "S3"
    endpoint: str | None = None
    region: str = "us-east-1"
    addressing: Literal["path", "virtual"] | None = None
    virtual_only: bool = False
    endpoints: tuple[str, ...] = ("AWS_ENDPOINT_URL_S3", "AWS_ENDPOINT_URL")
    path: str = ""
    regions: tuple[str, ...] = ("AWS_REGION", "AWS_DEFAULT_REGION")
    accounts: tuple[str, ...] = ()
    account_form: str = r"[a-z0-9-]{1,63}(\.[a-z0-9-]{1,20})?"
    account_in_url: bool = False
    keys: tuple[str, str, str] = ("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY", "AWS_SESSION_TOKEN")
    keyless: bool = False
    tokens: bool = False
    hosts: tuple[str, ...] = ()
    aws_files: bool = True
    aws_roles: bool = True
    payer_advice: str = "; a bucket with Requester Pays wants requester_pays=True or AWS_REQUEST_PAYER=requester"

    def __init__(self, *, shared: bool = False) -> None:
        """Make the service; ``shared`` puts AWS's variables and files after its own."""
        self._shared = shared
        if shared:
            self.endpoints = tuple(dict.fromkeys((*self.endpoints, *Service.endpoints)))
            self.regions = tuple(dict.fromkeys((*self.regions, *Service.regions)))
            self.aws_files = self.aws_roles = True
        named = [("endpoint=", self.endpoints), ("region=", self.regions), ("account=", self.accounts)]
        self.where = ", ".join(f"{option} or {min(names, key=len)}" for option, names in named if names)

    def __eq__(self, other: object) -> bool:
        return type(self) is type(other) and self._shared == other._shared

    def __hash__(self) -> int:
        return hash((type(self), self._shared))

    def __repr__(self) -> str:
        """Return the class's name; the same in every process, because processes share engines by it."""
        return f"{type(self).__name__}(shared={self._shared})"

    def shared(self) -> Service:
        """Return the service with AWS's variables and files after its own: for ``s3://``, where both apply."""
        return type(self)(shared=True)

    def has(self, url: str) -> bool:
        host = f".{urlsplit(url).hostname or ''}"
        return any(host.endswith(f".{domain}") for domain in self.hosts)

    def part_of(self, url: str, what: Literal["region", "account"]) -> str:
        """Return the region or account that an endpoint of this service names; empty if it names none."""
        pattern = re.escape(urlsplit(self.endpoint or "").netloc).replace(r"\{", "{").replace(r"\}", "}")
        for name, group in _NAMES.items():
            pattern = pattern.replace(name, group)
        match = re.fullmatch(pattern, urlsplit(url).netloc)
        return (match.groupdict().get(what) or "") if match else ""

    def key_settings(self) -> str:
        """Return the settings that name the service's credentials, options and variables, for messages."""
        if self.keyless:
            return "no keys are needed"
        profile = ", profile= or AWS_PROFILE" if self.aws_files else ""
        return f"access_key= or {self.keys[0]}{profile}"


@dataclass(frozen=True, slots=True, kw_only=True)
class StoreSettings:
    """Location and settings of a store, completely resolved.

    Attributes:
        endpoint: ``scheme://host[:port][/path]``; None for AWS's own. ``{account}`` in it is replaced from the URL.
        own: AWS's own endpoint, with ``{region}`` and ``{domain}``.
        addressing: The rule; ``engine.endpoint.path_style`` applies it to one bucket.
        ca_file: PEM file to verify servers with; None if this machine has none.
        proxy: As given: None leaves it to the environment, "" means no proxy. It may hold a password.
        identity: Changes when environment and profile name other credentials; no credential can be read from it.
    """

    endpoint: str | None
    region: str
    addressing: Literal["path", "virtual"]
    ca_file: str | None
    proxy: str | None = field(repr=False)
    anonymous: bool
    requester_pays: bool = False
    service: Service = field(default_factory=Service)
    own: str = _PLAIN
    identity: bytes = field(default=b"", repr=False)


def resolve(
    options: S3Options, environ: Mapping[str, str] = os.environ, service: Service | None = None
) -> StoreSettings:
    """Look up every setting in the order that ``S3Options`` documents; an empty variable counts as unset.

    ``AWS_IGNORE_CONFIGURED_ENDPOINT_URLS=true`` (or the profile's equivalent) hides endpoints of environment and
    profile, never an explicit one. Reads the two shared AWS files; makes no request.
    """
    service = service or Service()
    reads_files = service.aws_files or options.profile is not None
    profile = shared.profile(options.profile, environ) if reads_files else shared.Profile()
    url = _endpoint(options, environ, profile, service)
    region = _region(options, environ, profile, service, url)
    addressing = _choose_addressing(options, profile, url or service.endpoint, service)
    own = _own_endpoint(options, environ, profile, url, service)
    bundles = [*variables(environ, "AWS_CA_BUNDLE"), (f"ca_bundle of {_title(profile)}", profile.ca_bundle)]
    if url is None and service.endpoint is not None:
        url = _default_endpoint(options, environ, service, region)
    return StoreSettings(
        endpoint=url,
        region=region,
        addressing=addressing,
        ca_file=network.ca_file(options.transport, environ, bundles),
        proxy=options.transport.proxy,
        anonymous=is_unsigned(options, environ),
        requester_pays=options.requester_pays
        if "requester_pays" in given(options)
        else environ.get("AWS_REQUEST_PAYER", "").lower() == "requester",
        service=service,
        own=own,
        identity=_identity(options, environ, profile, service),
    )


class _Resolution(NamedTuple):
    """Resolved settings and identity, with everything that they depend on."""

    service: Service
    options: S3Options
    variables: Mapping[Any, Any]
    files: list[tuple[str, object]]  # paths and stamps
    found: tuple[Hashable, Hashable]


S = TypeVar("S", bound=Service)
_RESOLUTIONS = 64
_SETTLED_S = 1.0  # a file that changed later may change again without a new time of change


def remember_settings(
    resolve: Callable[[S, S3Options, Mapping[str, str]], tuple[Hashable, Hashable]],
) -> Callable[[S, S3Options, Mapping[str, str]], tuple[Hashable, Hashable]]:
    """Wrap ``resolve`` of a service: keep its results while options, environment and files are the same.

    A program that opens one object after another by URL would spend half of its time on resolving the same settings.
    """
    held: dict[tuple[int, int], _Resolution] = {}

    @wraps(resolve)
    def resolved(self: S, options: S3Options, environ: Mapping[str, str]) -> tuple[Hashable, Hashable]:
        if environ is not os.environ:
            return resolve(self, options, environ)
        variables, known = _variables(), held.get((id(self), id(options)))
        same = known is not None and known.service is self and known.options is options and known.variables == variables
        if known is not None and same and all(_stamp(path) == stamp for path, stamp in known.files):
            return known.found
        variables = dict(variables)
        # Before they are read: a change during the reading is noticed the next time.
        files = [(str(path), _stamp(str(path))) for path in shared.files(environ)]
        found = resolve(self, options, environ)
        ca_file = getattr(found[0], "ca_file", None) or ""
        files.append((ca_file, _stamp(ca_file)))
        if ca_file and all(stamp is None or time() - stamp[0] / 1e9 > _SETTLED_S for _, stamp in files):
            if len(held) >= _RESOLUTIONS:
                held.clear()
            held[id(self), id(options)] = _Resolution(self, options, variables, [*files], found)
        return found

    return resolved


def _variables() -> Mapping[Any, Any]:
    """Return the environment in the internal form of ``os``: decoding it takes 20 times as long as comparing."""
    raw: Mapping[Any, Any] = getattr(os.environ, "_data", os.environ)
    return raw


def _stamp(path: str) -> tuple[int, int, int] | None:
    """Return the values that show a change of a file; None for a missing file."""
    try:
        found = os.stat(path)  # noqa: PTH116  a Path takes longer than the call
    except OSError:
        return None
    return found.st_mtime_ns, found.st_size, found.st_ino


def aws_endpoint(options: S3Options, environ: Mapping[str, str]) -> str | None:
    """Return the endpoint that AWS's variables or files name; None without one. Raises as ``resolve``."""
    profile = shared.profile(options.profile, environ)
    return _endpoint(replace(options, endpoint=None), environ, profile, Service())


def is_unsigned(options: S3Options, environ: Mapping[str, str]) -> bool:
    """Return whether requests go unsigned: by ``anonymous``, or by ``AWS_NO_SIGN_REQUEST`` without explicit options.

    Explicit are ``anonymous`` itself, credentials and a profile. The variable comes from GDAL and rasterio; datasets of
    public imagery set it. As there, any value but NO, FALSE, OFF and 0 switches it on.
    """
    explicit = _own(options) or options.profile is not None or "anonymous" in given(options)
    return options.anonymous or (not explicit and environ.get("AWS_NO_SIGN_REQUEST", "").lower() not in _FALSE)


def chain_reads(environ: Mapping[str, str], profile: str | None) -> list[str | None]:
    """Return the variables that select the identity in botocore's chain, given ``profile``; the values hold secrets."""
    names = _CHAIN if profile else (*_CHAIN, *_PROFILES)
    return [environ.get(name) or None for name in names]


def _own(options: S3Options) -> bool:
    """Return whether the options themselves name the credentials; then they distinguish such stores."""
    return any(each is not None for each in (options.access_key, options.credentials, options.credentials_process))


def _identity(options: S3Options, environ: Mapping[str, str], profile: shared.Profile, service: Service) -> bytes:
    """Return a digest of the environment's identity; explicit keys are distinguished by the options themselves."""
    if _own(options) or is_unsigned(options, environ):
        return b""
    names = (*service.keys, *_CHAIN, *_FILES) if service.aws_files else service.keys
    names = (*names, "AIS_AUTHN_TOKEN", "AIS_AUTHN_TOKEN_FILE") if service.tokens else names
    said = [(name, environ.get(name)) for name in names]
    return sha256(repr((said, profile.name, profile.digest)).encode("utf-8", "surrogateescape")).digest()


def _endpoint(options: S3Options, environ: Mapping[str, str], profile: shared.Profile, service: Service) -> str | None:
    candidates: list[tuple[str, str | None]] = [("S3Options.endpoint", options.endpoint)]
    ignore = environ.get("AWS_IGNORE_CONFIGURED_ENDPOINT_URLS")
    if not (ignore.lower() == "true" if ignore else profile.ignore_endpoints):
        candidates += variables(environ, *service.endpoints)
        if _means_aws(options, service):
            candidates += [(f"endpoint_url of {_title(profile)}", profile.endpoint)]
    named, text = first(candidates)
    if text is None:
        return None
    url = endpoint.normal(text, named)
    return url if urlsplit(url).path else url + service.path


def _means_aws(options: S3Options, service: Service) -> bool:
    return options.profile is not None or Service.endpoints[-1] in service.endpoints


def _default_endpoint(options: S3Options, environ: Mapping[str, str], service: Service, region: str) -> str:
    pattern = service.endpoint or ""
    if not pattern:
        variable = f" or set {service.endpoints[0]}" if service.endpoints else ""
        raise ConfigError(f"{service.name} has no default endpoint: pass S3Options(endpoint=…){variable}")
    named, account = first([("S3Options.account", options.account), *variables(environ, *service.accounts)])
    if account is not None and not re.fullmatch(service.account_form, account):
        raise ConfigError(f"{named} must be an account of {service.name}, got {account[:80]!r}")
    if "{account}" in pattern and account is None and not service.account_in_url:
        variable = f" or set {service.accounts[0]}" if service.accounts else ""
        raise ConfigError(f"{service.name} needs an account: pass S3Options(account=…){variable}")
    return pattern.format(region=region, account="{account}" if account is None else account)


def _own_endpoint(
    options: S3Options, environ: Mapping[str, str], profile: shared.Profile, url: str | None, service: Service
) -> str:
    asked = {
        name: wanted for name in ("dual_stack", "fips", "accelerate") if (wanted := getattr(options, name)) is not None
    }
    if url is not None or service.endpoint is not None:
        if wanted := [name for name, on in asked.items() if on]:
            where = f"the endpoint is {url}" if url else f"this is {service.name}"
            raise ConfigError(f"S3Options.{wanted[0]} selects an endpoint of AWS, but {where}")
        return _PLAIN
    said = {
        "dual_stack": environ.get("AWS_USE_DUALSTACK_ENDPOINT"),
        "fips": environ.get("AWS_USE_FIPS_ENDPOINT"),
        "accelerate": None,
    }
    for name, text in said.items():
        asked.setdefault(name, text.lower() == "true" if text else name in profile.forms)
    dual, fips = asked["dual_stack"], asked["fips"]
    if asked["accelerate"]:
        if fips:
            raise ConfigError("S3 Transfer Acceleration has no FIPS endpoint: pass accelerate=True or fips=True")
        return f"https://s3-accelerate{'.dualstack' if dual else ''}.{{domain}}"
    return f"https://s3{'-fips' if fips else ''}{'.dualstack' if dual else ''}.{{region}}.{{domain}}"


def _region(
    options: S3Options, environ: Mapping[str, str], profile: shared.Profile, service: Service, url: str | None
) -> str:
    said = [("S3Options.region", options.region), *variables(environ, *service.regions)]
    if _means_aws(options, service):
        said += [(f"region of {_title(profile)}", profile.region)]
    told = service.part_of(url, "region") if url is not None else ""
    if told:
        # The endpoint's region beats a variable, which may belong to another store.
        said[1:1] = [("the endpoint", told)]
    named, text = first(said)
    if text is None:
        text = service.region or (Service.region if url is not None else "")
    if not text and not named:
        raise ConfigError(f"{service.name} needs a region: pass S3Options(region=…) or set {service.regions[0]}")
    if not _REGION.fullmatch(text):
        message = f"{named} must be a region, of letters, digits, '-', '_' and '.' only, like us-east-1, got {text!r}"
        raise ConfigError(message)
    return text


def _choose_addressing(
    options: S3Options, profile: shared.Profile, url: str | None, service: Service
) -> Literal["path", "virtual"]:
    style = options.addressing if options.addressing != "auto" else profile.addressing or "auto"
    if style == "path" and service.virtual_only:
        raise ConfigError(f"{service.name} needs the bucket in the host name: leave addressing= at its default")
    styles: dict[str, Literal["path", "virtual"]]
    styles = {
        "path": "path",
        "virtual": "virtual",
        "auto": service.addressing or ("virtual" if url is None else "path"),
    }
    if style not in styles:
        raise ConfigError(f"s3.addressing_style of {_title(profile)} must be auto, path or virtual, got {style!r}")
    return styles[style]


def _title(profile: shared.Profile) -> str:
    return f"profile {profile.name or 'default'!r}"
