"""A profile by its name: its files are found, merged, expanded and typed, and held as long as they are the same."""

from __future__ import annotations

import logging
import os
import re
from dataclasses import dataclass, field, fields, replace
from time import monotonic
from typing import TYPE_CHECKING, Any, NamedTuple

from penstock.config.profiles.files import NAME, Signature, config_files, read_file, signature
from penstock.config.profiles.foreign import check_hosts, check_places
from penstock.config.profiles.multistorage import msc_files, msc_tables
from penstock.config.profiles.observing import named_sinks
from penstock.config.profiles.table import PART_KINDS, Table, Value, chain, meant, merged
from penstock.config.profiles.typed import expanded, literal_secrets, typed
from penstock.config.services import SERVICES
from penstock.errors import ConfigError, InvalidURL, Unusable
from penstock.providers.registry import find, schemes
from penstock.providers.urls import Location, parse
from penstock.values import as_folder

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from penstock.config.profiles.files import File
    from penstock.config.profiles.sinks import NamedSinks
    from penstock.options import StoreOptions
    from penstock.providers.provider import Provider

__all__ = ["KINDS", "MSC", "PENSTOCK", "Kind", "Profile", "bad_name", "built", "load", "tables_of"]

PENSTOCK, MSC = "penstock", "msc"
_FRESH_S = 0.1  # a list of a million URLs looks for other files a few times, and not a million
_STEERING = ("PENSTOCK_CONFIG", "MSC_CONFIG", "XDG_CONFIG_HOME", "XDG_CONFIG_DIRS", "HOME")
_LOG = logging.getLogger("penstock")
_TOKENS = ("gs", "gcs", "az", "abfs", "abfss", "adl", "azure", "ais")  # send bearer tokens that they find
_NAME = re.compile(r"[A-Za-z0-9._-]{1,255}")


def bad_name(name: str, scheme: str = PENSTOCK) -> str:
    """Say why a profile cannot be called so; empty where it can."""
    if _NAME.fullmatch(name):
        return ""
    if not name:
        return f"the name is no profile's, it is empty: write {scheme}://profile/key"
    if "@" in name or ":" in name:
        return f"credentials and ports do not belong in a URL: write {scheme}://profile/key, and put them into its file"
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
        sinks: Which are opened with its first store.

    """

    name: str
    origin: str
    values: Mapping[str, Value] = field(repr=False)
    provider: Provider = field(repr=False)
    target: Location | None
    options: StoreOptions
    sinks: NamedSinks


def load(name: str, environ: Mapping[str, str] = os.environ, scheme: str = PENSTOCK) -> Profile:
    """Return a profile of ``penstock.toml``, or of ``scheme``'s files, as they are now; one more file counts in 0.1 s.

    Raises:
        ConfigError: There is none, or it cannot work; the text names file, line and key.
        InvalidURL: The name cannot be one.

    """
    if fault := bad_name(name, scheme):
        raise InvalidURL(fault, url=f"{scheme}://")
    files, tables = KINDS[scheme]
    held, where = _held.get((scheme, name)), _where(environ)
    if held is not None and held.where == where and held.holds(environ):
        if monotonic() < held.fresh_until and all(signature(each.path) == each for each in held.files):
            return held.profile
        if held.files == files(environ):
            _held[scheme, name] = replace(held, fresh_until=monotonic() + _FRESH_S)
            return held.profile
    used: dict[str, str | None] = {}

    def lookup(variable: str) -> str | None:
        value = used[variable] = environ.get(variable)
        return value or None

    found = files(environ)
    profile = built(name, tables(name, environ), lookup)
    if not any(isinstance(each.raw, dict) for each in profile.values.values()):  # a secret's file may change
        _held[scheme, name] = _Held(where, found, used, profile, monotonic() + _FRESH_S)
    return profile


def _where(environ: Mapping[str, str]) -> tuple[str | None, ...]:
    """Return what says which files there are."""
    try:
        here = os.getcwd()  # noqa: PTH109  asked for each URL
    except FileNotFoundError:
        here = ""
    return here, *(environ.get(each) for each in _STEERING)


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


_held: dict[tuple[str, str], _Held] = {}
_files: dict[str, tuple[Signature, File]] = {}
_warned: set[str] = set()  # a forked worker need not say it again


def _read(found: Signature, kind: Any) -> File:  # noqa: ANN401  a literal
    held = _files.get(found.path)
    if held is None or held[0] != found or held[1].kind != kind:
        held = _files[found.path] = found, read_file(found.path, kind)
    return held[1]


def built(name: str, tables: list[Table], lookup: Callable[[str], str | None]) -> Profile:
    """Return the profile of these tables, the nearest first; ``lookup`` gives variables. Raises as ``load`` does."""
    values, origin = merged(tables), tables[0].origin
    check_places(values)
    provider, target = _target(name, origin, values, lookup)
    for each in tables:
        _warn_readable(provider, each)
        _warn_unused(each)
    _check_hosts(values, provider, target)
    options = typed(
        provider.options,
        _of("options", values),
        lookup,
        **_parts(values, lookup),
    )
    try:
        provider.take(options)
    except ConfigError as error:
        raise ConfigError(f"{origin}: {error.message}") from None
    return Profile(name, origin, values, provider, target, options, named_sinks(values, lookup))


def _parts(values: Mapping[str, Value], lookup: Callable[[str], str | None]) -> dict[str, Any]:
    """Return the parts that the values make; those that they do not mention are the class's."""
    made: dict[str, Any] = {
        part: typed(kind, own, lookup) for part, kind in PART_KINDS.items() if (own := _of(part, values))
    }
    cache, place = made.get("cache"), values.get("cache.path")
    if cache is not None and place is not None:
        made["cache"] = replace(cache, path=_path(cache.path, place))
    return made


def _path(path: str, value: Value) -> str:
    """Return a local path that a file names, relative to the file."""
    return os.path.join(value.folder, os.path.expanduser(path))  # noqa: PTH111, PTH118  pathlib drops slashes


def _check_hosts(values: Mapping[str, Value], provider: Provider, target: Location | None) -> None:
    secrets = [each.name for each in fields(provider.options) if not each.repr]
    scheme = provider.schemes[0] if target is None else target.scheme
    url = scheme in ("http", "https") or scheme.startswith("fsspec+")
    tokens = scheme in _TOKENS or str(getattr(values.get("options.provider"), "raw", "")) == "ais"
    check_hosts(values, secrets, url=url, tokens=tokens)


def _of(table: str, values: Mapping[str, Value]) -> dict[str, Value]:
    return {key.partition(".")[2]: value for key, value in values.items() if key.startswith(f"{table}.")}


def _target(
    name: str, origin: str, values: dict[str, Value], lookup: Callable[[str], str | None]
) -> tuple[Provider, Location | None]:
    provider = target = None
    if (value := values.get("provider")) is not None:
        wanted = str(expanded(value, lookup))
        if wanted in SERVICES:  # of S3's dialect, so that its options are S3's
            values.setdefault("options.provider", value)
            wanted = "s3"
        provider = None if wanted in KINDS else find(wanted)
        if provider is None:
            known = [*(each for each in schemes() if each not in KINDS), *SERVICES]
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
        url = _path(url, value)
    scheme, _, rest = url.partition("://")
    if scheme in KINDS:
        name = rest.partition("/")[0]
        raise ConfigError(f"{value.origin} is a profile itself: write extends = {name!r}, or the store's own URL")
    try:
        found = parse(url)
    except Unusable as error:
        raise ConfigError(f"{value.origin}: {error.message}") from None
    return found.at(as_folder(found.key))


def _warn_unused(table: Table) -> None:
    if table.notes and table.origin not in _warned:
        _warned.add(table.origin)
        _LOG.warning("%s has keys that Penstock does not use: %s", table.origin, ", ".join(table.notes))


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


def _signatures(environ: Mapping[str, str]) -> tuple[Signature, ...]:
    return tuple(each for _, each in config_files(environ))


def _tables(name: str, environ: Mapping[str, str]) -> list[Table]:
    return tables_of(name, [_read(each, kind) for kind, each in config_files(environ)])


def tables_of(name: str, files: list[File]) -> list[Table]:
    """Return a profile's tables in these files, the nearest first. Raises ``ConfigError`` as ``load`` does."""

    def table(wanted: str) -> Table | None:
        return next((each for file in files if (each := file.table(wanted)) is not None), None)

    if not files:
        raise ConfigError(
            f"no profile {name!r}: there is no {NAME} here, above, in ~/.config/penstock or /etc/penstock, and "
            "PENSTOCK_CONFIG names none"
        )
    return chain(name, table, [each for file in files for each in file.profiles])


class Kind(NamedTuple):
    """A kind of profiles: which files there are, and what they say of one profile, the nearest table first."""

    files: Callable[[Mapping[str, str]], tuple[Signature, ...]]
    tables: Callable[[str, Mapping[str, str]], list[Table]]


KINDS: dict[
    str, tuple[Callable[[Mapping[str, str]], tuple[Signature, ...]], Callable[[str, Mapping[str, str]], list[Table]]]
]
KINDS = {PENSTOCK: Kind(_signatures, _tables), MSC: Kind(msc_files, msc_tables)}
