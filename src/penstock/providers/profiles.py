"""Profiles as providers: ``penstock://name/path`` is a path below the URL of the profile ``name``, with its options."""

from __future__ import annotations

import logging
import os
import re
from dataclasses import dataclass, field, replace
from time import monotonic
from typing import TYPE_CHECKING, Any

from penstock.config.profiles.files import NAME, config_files, read_file
from penstock.config.profiles.table import PARTS, Value, chain, meant, merged
from penstock.config.profiles.typed import expanded, literal_secrets, typed
from penstock.errors import ConfigError, InvalidURL, Unusable, alias
from penstock.options import ReadOptions, RetryOptions, StoreOptions, TransportOptions, WriteOptions
from penstock.providers.provider import Opening, Provider, Route
from penstock.providers.registry import find, schemes
from penstock.providers.urls import Location, parse
from penstock.values import as_folder

if TYPE_CHECKING:
    from collections.abc import Callable, Hashable, Mapping

    from penstock.config.profiles.files import File, Signature
    from penstock.config.profiles.table import Table
    from penstock.protocols.driver import Driver
    from penstock.protocols.exchange import Transport

__all__ = ["PROVIDER", "Profile", "chosen", "load"]

SCHEME = "penstock"
_FRESH_S = 0.1  # a list of a million URLs looks at the files a few times, and not a million
_LOG = logging.getLogger("penstock")
_NAME = re.compile(r"[A-Za-z0-9._-]{1,255}")
_PART_KINDS = {"transport": TransportOptions, "retry": RetryOptions, "read": ReadOptions, "write": WriteOptions}


def _bad_name(name: str) -> str:
    if _NAME.fullmatch(name):
        return ""
    if "@" in name or ":" in name:
        return f"credentials and ports do not belong in a URL: write {SCHEME}://profile/key, and put them into its file"
    return f"{name[:80]!r} is no profile: a name has 1 to 255 letters, digits, '.', '-' and '_'"


@dataclass(frozen=True, slots=True)
class Profile:
    """A profile with nothing left to look up. Its repr shows no value.

    Attributes:
        name: Its name.
        origin: File, line and key of its table.
        values: What it and those that it extends say, by ``url``, ``provider`` or ``table.key``; not expanded.
        provider: Whose it is.
        target: Where its paths begin; None where it has no ``url``.
        options: Of the provider's class.

    """

    name: str
    origin: str
    values: Mapping[str, Value] = field(repr=False)
    provider: Provider = field(repr=False)
    target: Location | None
    options: StoreOptions


def chosen(location: Location, store: StoreOptions | str | None) -> StoreOptions:
    """Return what ``store=`` means for a location: options, those of the profile of this name, or none.

    Raises:
        ConfigError: There is no such profile, or the location is a path of another one.

    """
    if not isinstance(store, str):
        return StoreOptions() if store is None else store
    if location.provider.defaults is None:
        return load(store).options
    if store == location.bucket:
        return StoreOptions()
    raise ConfigError(f"{location.root} has the options of its own profile: leave store={store!r} out")


def load(name: str, environ: Mapping[str, str] = os.environ) -> Profile:
    """Return a profile by name, from its files as they are now, or were 0.1 s ago.

    Raises:
        ConfigError: There is none, or it cannot work; the text names file, line and key.
        InvalidURL: The name cannot be one.

    """
    if fault := _bad_name(name):
        raise InvalidURL(fault, url=f"{SCHEME}://")
    held, where = _held.get(name), _where(environ)
    if held is not None and held.where == where and held.holds(environ):
        if monotonic() < held.fresh_until:
            return held.profile
        if held.files == tuple(each for _, each in config_files(environ)):
            _held[name] = replace(held, fresh_until=monotonic() + _FRESH_S)
            return held.profile
    used: dict[str, str | None] = {}

    def lookup(variable: str) -> str | None:
        value = used[variable] = environ.get(variable)
        return value or None

    found = config_files(environ)
    tables = _tables(name, [_read(each, kind) for kind, each in found], environ)
    profile = _profile(name, tables, lookup)
    if not any(isinstance(each.raw, dict) for each in profile.values.values()):  # a secret's file may change
        files = tuple(each for _, each in found)
        _held[name] = _Held(where, files, used, profile, monotonic() + _FRESH_S)
    return profile


def _where(environ: Mapping[str, str]) -> tuple[str | None, ...]:
    """Return what says which files there are."""
    try:
        here = os.getcwd()  # noqa: PTH109  asked for each URL
    except FileNotFoundError:
        here = ""
    return here, *(environ.get(each) for each in ("PENSTOCK_CONFIG", "XDG_CONFIG_HOME", "HOME"))


@dataclass(frozen=True, slots=True)
class _Held:
    """A profile that was loaded, and what it was made of."""

    where: tuple[str | None, ...]
    files: tuple[Signature, ...]
    used: Mapping[str, str | None] = field(repr=False)
    profile: Profile
    fresh_until: float

    def holds(self, environ: Mapping[str, str]) -> bool:
        """Say whether the variables that it names are what they were."""
        return all(environ.get(name) == value for name, value in self.used.items())


_held: dict[str, _Held] = {}
_files: dict[str, tuple[Signature, File]] = {}
_providers: dict[str, tuple[Profile, Provider]] = {}
_warned: set[str] = set()  # a forked worker need not say it again


def _read(found: Signature, kind: Any) -> File:  # noqa: ANN401  a literal
    held = _files.get(found.path)
    if held is None or held[0] != found or held[1].kind != kind:
        held = _files[found.path] = found, read_file(found.path, kind)
    return held[1]


def _tables(name: str, files: list[File], environ: Mapping[str, str]) -> list[Table]:
    def table(wanted: str) -> Table | None:
        return next((each for file in files if (each := file.table(wanted)) is not None), None)

    if not files:
        instead = " (PENSTOCK_CONFIG names no file)" if environ.get("PENSTOCK_CONFIG") else ""
        raise ConfigError(
            f"no profile {name!r}: there is no {NAME} here, above, in ~/.config/penstock or /etc{instead}"
        )
    return chain(name, table, [each for file in files for each in file.profiles])


def _profile(name: str, tables: list[Table], lookup: Callable[[str], str | None]) -> Profile:
    values, origin = merged(tables), tables[0].origin
    provider, target = _target(name, origin, values, lookup)
    for each in tables:
        _warn_readable(provider, each)
    options = typed(
        provider.options,
        _of("options", values),
        lookup,
        **{part: typed(_PART_KINDS[part], _of(part, values), lookup) for part in PARTS},
    )
    try:
        provider.take(options)
    except ConfigError as error:
        raise ConfigError(f"{origin}: {error.message}") from None
    return Profile(name, origin, values, provider, target, options)


def _of(table: str, values: Mapping[str, Value]) -> dict[str, Value]:
    return {key.partition(".")[2]: value for key, value in values.items() if key.startswith(f"{table}.")}


def _target(
    name: str, origin: str, values: Mapping[str, Value], lookup: Callable[[str], str | None]
) -> tuple[Provider, Location | None]:
    provider = target = None
    if (value := values.get("provider")) is not None:
        wanted = str(expanded(value, lookup))
        provider = None if wanted in _PROFILED else find(wanted)
        if provider is None:
            known = [each for each in schemes() if each not in _PROFILED]
            raise ConfigError(f"{value.origin}: no provider {wanted!r}{meant(wanted, known, '; ' + ', '.join(known))}")
    if (value := values.get("url")) is not None:
        target = _location(str(expanded(value, lookup)), value)
        if provider is not None and provider.name != target.provider.name:
            raise ConfigError(
                f"{value.origin}: {target.scheme}:// is not the provider {provider.schemes[0]!r}: name one"
            )
        provider = target.provider
    if provider is None:
        raise ConfigError(
            f"{origin} names no store: add url = 's3://bucket/path/', or provider = 's3' for store={name!r}"
        )
    return provider, target


def _location(url: str, value: Value) -> Location:
    if "://" not in url:
        url = os.path.join(value.folder, os.path.expanduser(url))  # noqa: PTH111, PTH118  pathlib drops slashes
    scheme, _, rest = url.partition("://")
    if scheme in _PROFILED:
        name = rest.partition("/")[0]
        raise ConfigError(f"{value.origin} is a profile itself: write extends = {name!r}, or the store's own URL")
    try:
        found = parse(url)
    except Unusable as error:
        raise ConfigError(f"{value.origin}: {error.message}") from None
    return found.at(as_folder(found.key))


def _warn_readable(provider: Provider, table: Table) -> None:
    secrets = literal_secrets(provider.options, _of("options", table.values)) if table.open_to_all else []
    path = table.origin.partition(": ")[0].rstrip("0123456789").rstrip(":")
    if secrets and path not in _warned:
        _warned.add(path)
        _LOG.warning(
            "%s can be read by every user of this machine, and holds secrets (%s): chmod 600 %s, or name a variable, "
            "${NAME}, or a file, {file = '…'}",
            path,
            ", ".join(secrets),
            path,
        )


def _named(name: str) -> Provider:
    """Return the provider of ``penstock://name/…``; the same as long as the profile is."""
    profile = load(name)
    made = _providers.get(name)
    if made is None or made[0] is not profile:
        made = _providers[name] = profile, through(SCHEME, profile)
    return made[1]


def through(scheme: str, profile: Profile) -> Provider:
    """Return the provider of ``scheme://profile/…``: paths below the profile's URL, with its options.

    Raises:
        ConfigError: The profile has no URL.

    """
    name, real, target = profile.name, profile.provider, profile.target
    if target is None:
        raise ConfigError(f"{profile.origin} has no url: it is for store={name!r}, and {scheme}://{name}/ needs one")
    base, local = target.key, target.local
    alias(f"/{base}" if local else target.url, f"{scheme}://{name}/")  # as the drivers say it

    def fault(key: str) -> str:
        if local and ".." in key.split("/"):
            return "'..' does not leave the directory of a profile"
        return real.key_fault(base + key)

    def resolved(options: Any, environ: Mapping[str, str]) -> tuple[Hashable, Hashable]:  # noqa: ANN401  the provider's
        settings, identity = real.resolve(options, environ)
        return Route(target.scheme, target.bucket, base, settings), identity

    whole = replace(
        _below(real, base),
        schemes=(scheme,),
        split=PROVIDER.split,
        bucket_fault=_bad_name,
        key_fault=fault,
        defaults=profile.options,
        target=target.url,
        resolve=resolved,
        named=None,
    )

    def variant(route: Route) -> Provider | None:
        found = real.variant(route.settings)
        return found and replace(whole, **_store_parts(_below(found, base)))

    return replace(whole, variant=variant)


def _below(real: Provider, base: str) -> Provider:
    """Return a provider whose keys all begin with ``base``, which the key that a user names leaves out."""

    def opened(opening: Opening) -> tuple[Driver, Transport]:
        from penstock.drivers.below import below

        route = opening.settings
        inner = replace(opening, provider=real, scheme=route.scheme, bucket=route.bucket, settings=route.settings)
        driver, transport = real.open(inner)
        return below(driver, route.base, opening.root), transport

    most = max(real.limits.key_bytes - len(base.encode()), 0)
    return replace(real, open=opened, limits=replace(real.limits, key_bytes=most))


def _store_parts(provider: Provider) -> dict[str, Any]:
    """Return what a preset decides: how a bucket is opened, what its store can do, and how large things may be."""
    return {each: getattr(provider, each) for each in ("name", "open", "limits", "abilities", "extra")}


def _unnamed(opening: Opening) -> tuple[Driver, Transport]:
    raise ConfigError("a profile is opened by its name", url=opening.root)


PROVIDER = Provider(
    name="a profile",
    schemes=(SCHEME,),
    open=_unnamed,
    bucket_fault=_bad_name,
    any_options=True,
    named=_named,
)
_PROFILED = (SCHEME, "msc")
