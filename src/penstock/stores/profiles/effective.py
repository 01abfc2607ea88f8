"""Effective settings of a URL or a profile, with their origins; no request is made."""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping
from dataclasses import fields, replace
from typing import TYPE_CHECKING, NamedTuple

from penstock.errors import PenstockError, discreet
from penstock.options.parts import PART_KINDS
from penstock.options.private import given, hidden
from penstock.options.typed import CACHE_VARIABLES, UNSET, cache_options
from penstock.stores.profiles.files import candidates, config_files, find_tables, read_file
from penstock.stores.profiles.lookup import PENSTOCK, Profile, build_profile, load
from penstock.stores.profiles.multistorage import translations
from penstock.stores.profiles.sinks import open_named
from penstock.stores.store import Route
from penstock.stores.urls import Location, parse

if TYPE_CHECKING:
    from collections.abc import Hashable

    from penstock.options import CacheOptions, StoreOptions
    from penstock.stores.profiles.files import File, ProfileTable
    from penstock.stores.store import Store


class EffectiveSetting(NamedTuple):
    """Effective setting: its name, its value as text ("set" for a secret), and its origin."""

    name: str
    value: str
    origin: str


class Problem(NamedTuple):
    """Fault of a profile; ``note`` if the profile may work on another machine."""

    profile: str
    text: str
    note: bool


class _Recorded(Mapping[str, str]):
    """Environment that records which variables were looked up, and may hide one."""

    def __init__(self, environ: Mapping[str, str], without: str = "") -> None:
        self._environ = {name: value for name, value in environ.items() if name != without}
        self.asked: dict[str, None] = {}

    def __getitem__(self, name: str) -> str:
        self.asked[name] = None
        return self._environ[name]

    def __iter__(self) -> Iterator[str]:
        return iter(self._environ)

    def __len__(self) -> int:
        return len(self._environ)


def settings(place: str, environ: Mapping[str, str] = os.environ) -> list[EffectiveSetting]:
    """Return all settings of a URL, or of a profile by its name.

    An option that is not given has the value that the store derives from the environment, its own files and its
    defaults. A variable is named as the origin if the value would differ without it.
    """
    profile, location = _profile(place, environ)
    store = location.store if location is not None else profile.store  # type: ignore[union-attr]  # one of both
    if profile is not None and location is None:
        options = profile.options
    else:
        options = store.take(store.defaults or store.options())
    found = [EffectiveSetting("provider", store.name, _origin(profile, "provider") or _origin(profile, "url") or "URL")]
    if location is not None:
        found.append(EffectiveSetting("url", store.target or location.url, _origin(profile, "url") or "URL"))
    found += _sinks(profile)
    resolved = _resolve_settings(store, options, environ)
    own = [each for each in fields(options) if each.name not in PART_KINDS]
    found += [_setting("options", each, options, profile, resolved) for each in own]
    for part in PART_KINDS:
        inner = getattr(options, part)
        if inner is None:
            found += _cache(environ)
            continue
        found += [_setting(part, each, inner, profile, resolved) for each in fields(inner)]
    # A URL or an endpoint may hold a signature or a password, wherever it comes from.
    return [each._replace(value=discreet(each.value)) for each in found]


def _sinks(profile: Profile | None) -> list[EffectiveSetting]:
    if profile is None or profile.sinks is None:
        return []
    named = [EffectiveSetting("observe", each, _origin(profile, "observe")) for each in profile.sinks.words]
    return named + [
        EffectiveSetting(
            f"telemetry.{key}", _format_setting(value, secret=".headers." in key), _origin(profile, f"telemetry.{key}")
        )
        for key, value in profile.sinks.telemetry
    ]


def _profile(place: str, environ: Mapping[str, str]) -> tuple[Profile | None, Location | None]:
    if "/" not in place:
        profile = load(place, environ)
        return profile, None if profile.target is None else parse(f"{PENSTOCK}://{place}/")
    location = parse(place)
    # A profile of Multi-Storage Client may have its bucket behind the name.
    name = location.bucket.partition("/")[0]
    return (load(name, environ, location.scheme) if location.store.target else None), location


def _origin(profile: Profile | None, key: str) -> str:
    value = None if profile is None else profile.values.get(key)
    return "" if value is None else value.origin


class _Resolved(NamedTuple):
    """Store's settings from options and environment, and the settings without each variable that it read."""

    settings: Hashable
    without: Mapping[str, Hashable]


def _resolve_settings(store: Store, options: object, environ: Mapping[str, str]) -> _Resolved:
    whole = _Recorded(environ)
    settings = _inner(store.resolve(options, whole)[0])
    without: dict[str, Hashable] = {}
    for name in whole.asked:
        if name in environ:
            try:
                without[name] = _inner(store.resolve(options, _Recorded(environ, name))[0])
            except PenstockError:
                without[name] = None
    return _Resolved(settings, without)


def _inner(settings: Hashable) -> Hashable:
    return settings.settings if isinstance(settings, Route) else settings


def _setting(
    table: str, field: object, options: object, profile: Profile | None, resolved: _Resolved
) -> EffectiveSetting:
    name: str = field.name  # type: ignore[attr-defined]  # a field of a dataclass
    value, key = getattr(options, name), f"{table}.{name}"
    secret = not field.repr or name in hidden(options)  # type: ignore[attr-defined]
    origin = _origin(profile, key)
    if not origin and name in given(options):
        origin = "option"
    if not origin:
        origin = "default"
        there = getattr(resolved.settings, name, None)
        if there is not None and there != value and table in ("options", "transport"):
            made = [each for each, other in resolved.without.items() if getattr(other, name, None) != there]
            value, origin = there, made[0] if made else "the provider's files or default"
    return EffectiveSetting(key, _format_setting(value, secret=secret), origin)


def _cache(environ: Mapping[str, str]) -> list[EffectiveSetting]:
    options = cache_options(None, environ)
    if options is None:
        return [EffectiveSetting("cache", "unset", "default")]
    variables = {option: name for name, option in CACHE_VARIABLES.items() if environ.get(name)}
    return [
        EffectiveSetting(
            f"cache.{each.name}",
            _format_setting(getattr(options, each.name), secret=False),
            variables.get(each.name, "default"),
        )
        for each in fields(options)
    ]


def cache_of(profile: str, environ: Mapping[str, str] = os.environ) -> CacheOptions | None:
    return load(profile, environ).options.cache


def _format_setting(value: object, *, secret: bool) -> str:
    if secret or callable(value):
        return "unset" if value is None else "set"
    if value is None:
        return "unset"
    return str(value).lower() if isinstance(value, bool) else str(value)


def place_of(table: ProfileTable, environ: Mapping[str, str] = os.environ) -> tuple[str, StoreOptions]:
    """Return the base URL of a profile's paths, and its options, for a table outside of files; open its sinks.

    For a profile without a bucket, the URL is the scheme alone.
    """
    found = build_profile(table.name, [table], environ.get)
    if found.sinks:
        open_named(found.sinks)
    return (f"{found.store.schemes[0]}://" if found.target is None else found.target.url), found.options


def profiles(environ: Mapping[str, str] = os.environ) -> list[tuple[str, str, str]]:
    """Return name, URL (as written) and location of each profile; of profiles with one name, the first is used."""
    found: dict[str, tuple[str, str, str]] = {}
    for kind, each in config_files(environ):
        file = read_file(each.path, kind)
        for name, content in file.profiles.items():
            url = content.get("url", "") if isinstance(content, dict) else ""
            found.setdefault(name, (name, discreet(str(url)), file.at(("profiles", name))))
    return list(found.values())


def check_files(path: str | None = None, environ: Mapping[str, str] = os.environ) -> tuple[int, list[Problem]]:
    """Return the number of profiles in a file, or in all files found, and their problems.

    A named file is checked alone, by the rules of a project's file if it is the one that is found here; YAML and JSON
    files are Multi-Storage Client's. A variable that is not set here is a note, and so is a key that Penstock does not
    use.
    """
    if path is not None and path.endswith((".yaml", ".yml", ".json")):
        return _check_msc(path, environ)
    files: list[File]
    if path is None:
        files = [read_file(each.path, kind) for kind, each in config_files(environ)]
    else:
        kinds = {os.path.realpath(place): kind for kind, place in candidates(environ)}
        files = [read_file(path, kinds.get(os.path.realpath(path), "PENSTOCK_CONFIG"))]
    names = list(dict.fromkeys(name for file in files for name in file.profiles))
    problems = []
    for name in names:
        try:
            build_profile(name, find_tables(name, files), lambda variable: environ.get(variable) or None)
        except PenstockError as error:
            problems.append(Problem(name, str(error), error.code == UNSET))
    return len(names), problems


def _check_msc(path: str, environ: Mapping[str, str]) -> tuple[int, list[Problem]]:
    found = translations(path)
    problems = []
    for name, made in found.items():
        try:
            profile = made()
            problems += [Problem(name, f"{profile.origin}: {key} is not used", note=True) for key in profile.notes]
            build_profile(name, [replace(profile, notes=())], lambda variable: environ.get(variable) or None)
        except PenstockError as error:
            problems.append(Problem(name, str(error), error.code == UNSET))
    return len(found), problems
