"""Profiles by name, built from their tables and cached until a file or a variable changes.

A profile is built in passes: its tables are merged; a project file's settings are checked, and the store is found; the
values are expanded, and become typed options.
"""

from __future__ import annotations

import logging
import os
import re
from dataclasses import dataclass, field, replace
from time import monotonic
from typing import TYPE_CHECKING

from penstock.engine.endpoint import normal
from penstock.errors import ConfigError, InvalidURL, Unusable
from penstock.options.typed import Value, expand_values, literal_secrets, local_path, make_store_options, suggest_word
from penstock.stores.profiles.files import (
    ProfileTable,
    Signature,
    config_signatures,
    config_tables,
    merge_tables,
    signature,
)
from penstock.stores.profiles.multistorage import msc_files, msc_tables
from penstock.stores.profiles.project_file import check_options, check_tables
from penstock.stores.profiles.sinks import NamedSinks
from penstock.stores.s3.services import SERVICES
from penstock.stores.urls import Location, Unmapped, find_store, parse, schemes
from penstock.values import as_folder

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from penstock.options import StoreOptions
    from penstock.stores.store import Store

PENSTOCK, MSC = "penstock", "msc"
_SCHEMES = (PENSTOCK, MSC)
# Scheme -> the signatures of its files, and a profile's tables, the nearest first.
_KINDS = {PENSTOCK: (config_signatures, config_tables), MSC: (msc_files, msc_tables)}
WORDS = ("jsonl", "chrome", "log", "otel", "prometheus")  # explained in ``observe/environment``
_FILES = ("jsonl", "chrome")
_LOG = logging.getLogger("penstock")
_NAME = re.compile(r"[A-Za-z0-9._-]{1,255}")
# A list of a million URLs checks for new files a few times, not a million times.
_FRESH_S = 0.1
_STEERING = ("PENSTOCK_CONFIG", "MSC_CONFIG", "XDG_CONFIG_HOME", "XDG_CONFIG_DIRS", "HOME")


def bad_name(name: str, scheme: str = PENSTOCK) -> str:
    """Return why a profile's name is invalid; empty if it is valid."""
    if _NAME.fullmatch(name):
        return ""
    if not name:
        return f"the name of the profile is empty: write {scheme}://profile/key"
    if "@" in name or ":" in name:
        return f"credentials and ports do not belong in a URL: write {scheme}://profile/key, and put them into its file"
    return f"{name[:80]!r} is not a profile: a name has 1 to 255 letters, digits, '.', '-' and '_'"


@dataclass(frozen=True, slots=True)
class Profile:
    """Completely resolved profile. Its repr shows no value.

    Attributes:
        origin: File, line and key of its table.
        values: Its values and those of the profiles that it extends, by ``url``, ``provider`` or ``table.key``; not
            expanded.
        target: Base of its paths; None without ``url``.
        sinks: Sinks to open with its first store.
    """

    name: str
    origin: str
    values: Mapping[str, Value] = field(repr=False)
    store: Store = field(repr=False)
    target: Location | None
    options: StoreOptions
    sinks: NamedSinks | None


def load(name: str, environ: Mapping[str, str] = os.environ, scheme: str = PENSTOCK) -> Profile:
    """Return the current profile of ``penstock.toml``, or of ``scheme``'s files; new files are seen after 0.1 s."""
    if fault := bad_name(name, scheme):
        raise InvalidURL(fault, url=f"{scheme}://")
    files, tables = _KINDS[scheme]
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
    profile = build_profile(name, tables(name, environ), lookup)
    # A secret's file may change: do not cache the profile.
    if not any(isinstance(each.raw, dict) for each in profile.values.values()):
        _held[scheme, name] = _HeldProfile(where, found, used, profile, monotonic() + _FRESH_S)
    return profile


def _where(environ: Mapping[str, str]) -> tuple[str | None, ...]:
    try:
        here = os.getcwd()  # noqa: PTH109  called for each URL
    except FileNotFoundError:
        here = ""
    return here, *(environ.get(each) for each in _STEERING)


@dataclass(frozen=True, slots=True)
class _HeldProfile:
    """Loaded profile, and its inputs."""

    where: tuple[str | None, ...]
    files: tuple[Signature, ...]
    used: Mapping[str, str | None] = field(repr=False)
    profile: Profile
    fresh_until: float

    def holds(self, environ: Mapping[str, str]) -> bool:
        return all(environ.get(name) == value for name, value in self.used.items())


_held: dict[tuple[str, str], _HeldProfile] = {}


# Warnings already given: forked workers inherit them and do not warn again.
_warned: set[str] = set()


def build_profile(name: str, tables: list[ProfileTable], lookup: Callable[[str], str | None]) -> Profile:
    """Return the profile of these tables, the nearest first; ``lookup`` returns variables. Raises as ``load`` does."""
    values, origin = merge_tables(tables), tables[0].origin
    check_tables(values)
    store, target = _locate_store(name, origin, values, lookup)
    _warn(store, tables)
    # Before variables and files are read: a project's file must not reach those of the user.
    check_options(values, store.options, store.schemes[0], _own_scheme(tables))
    options = make_store_options(store.options, values, lookup)
    try:
        store.take(options)
    except ConfigError as error:
        raise ConfigError(f"{origin}: {error.message}") from None
    _check_endpoint(values, options, store.schemes[0])
    return Profile(name, origin, values, store, target, options, named_sinks(values, lookup))


def _check_endpoint(values: Mapping[str, Value], options: StoreOptions, scheme: str) -> None:
    """Refuse an endpoint that cannot work before it is used: the error names its line, and a validation finds it."""
    value, endpoint = values.get("options.endpoint"), getattr(options, "endpoint", None)
    # That of OSS may be a host alone.
    if value is not None and endpoint and not (scheme == "oss" and "://" not in endpoint):
        normal(endpoint, value.origin)


def _own_scheme(tables: list[ProfileTable]) -> str:
    """Return the first scheme of the store in the user's own files; empty if they name none literally."""
    own = [each for each in tables if not any(value.foreign for value in each.values.values())]
    values = merge_tables(own)
    url, named = values.get("url"), values.get("provider")
    word = "" if named is None else str(named.raw)
    word = ("s3" if word in SERVICES else word) if url is None else str(url.raw).partition("://")[0]
    store = None if word in _SCHEMES else find_store(word)
    return "" if store is None else store.schemes[0]


def _locate_store(
    name: str, origin: str, values: dict[str, Value], lookup: Callable[[str], str | None]
) -> tuple[Store, Location | None]:
    store = target = None
    expanded = expand_values({key: values[key] for key in ("provider", "url") if key in values}, lookup)
    if (value := expanded.get("provider")) is not None:
        wanted = str(value.raw)
        if wanted in SERVICES:
            # A service of S3's dialect: its options are S3's.
            values.setdefault("options.provider", values["provider"])
            wanted = "s3"
        store = None if wanted in _SCHEMES else find_store(wanted)
        if store is None:
            known = [*(each for each in schemes() if each not in _SCHEMES), *SERVICES]
            raise ConfigError(
                f"{value.origin}: no provider {wanted!r}{suggest_word(wanted, known, '; ' + ', '.join(known))}"
            )
    if (value := expanded.get("url")) is not None:
        target = _parse_base(str(value.raw), value)
        if store is not None and store.name != target.store.name:
            raise ConfigError(f"{value.origin}: {target.scheme}:// contradicts provider {store.schemes[0]!r}: name one")
        store = target.store
    if store is None:
        raise ConfigError(
            f"{origin} names no store: add url = 's3://bucket/path/', or provider = 's3' for store={name!r}"
        )
    return store, target


def _parse_base(url: str, value: Value) -> Location:
    if "://" not in url:
        url = local_path(url, value)
    scheme, _, rest = url.partition("://")
    if scheme in _SCHEMES:
        name = rest.partition("/")[0]
        raise ConfigError(f"{value.origin} is a profile itself: write extends = {name!r}, or the store's own URL")
    try:
        # A second mapping could lead to another place with this profile's options, or in a circle.
        return parse(Unmapped(as_folder(url)))
    except Unusable as error:
        raise ConfigError(f"{value.origin}: {error.message}") from None


def _warn(store: Store, tables: list[ProfileTable]) -> None:
    """Warn once of keys that have no effect, and of secrets that every user of the machine can read."""
    for table in tables:
        if table.notes and table.origin not in _warned:
            _warned.add(table.origin)
            _LOG.warning("%s has keys that Penstock does not use: %s", table.origin, ", ".join(table.notes))
        path = table.origin.partition(": ")[0].rstrip("0123456789").rstrip(":")
        if table.open_to_all and path not in _warned and (secrets := literal_secrets(store.options, table.values)):
            _warned.add(path)
            _LOG.warning(
                "%s can be read by every user of this machine, and holds secrets (%s): chmod 600 %s, or name a "
                "variable, ${NAME}, or a file, {file = '…'}",
                path,
                ", ".join(secrets),
                path,
            )


def named_sinks(values: Mapping[str, Value], lookup: Callable[[str], str | None]) -> NamedSinks | None:
    """Return the sinks that a profile's values name: a str with commas, or a list of str; None for none."""
    words: tuple[str, ...] = ()
    own = {key: each for key, each in values.items() if key == "observe" or key.startswith("telemetry.")}
    expanded = expand_values(own, lookup)
    if (value := expanded.pop("observe", None)) is not None:
        listed = value.raw.split(",") if isinstance(value.raw, str) else value.raw
        if not isinstance(listed, list) or not all(isinstance(each, str) for each in listed):
            raise ConfigError(f"{value.origin} must be a list of str, such as ['jsonl:events.jsonl']")
        words = tuple(_word(each.strip(), value) for each in listed if each.strip())
    telemetry = tuple((key.partition(".")[2], str(each.raw)) for key, each in expanded.items())
    return NamedSinks(words, telemetry) if words or telemetry else None


def _word(word: str, value: Value) -> str:
    kind, _, rest = word.partition(":")
    if kind not in WORDS:
        raise ConfigError(
            f"{value.origin}: {kind!r} does not name a "
            f"sink{suggest_word(kind, WORDS, '; sinks are ' + ', '.join(WORDS))}"
        )
    if kind in _FILES and rest:
        return f"{kind}:{local_path(rest, value)}"
    return word
