"""Lookup of profiles by name: the tables of its files, the profile built of them, cached until a file changes."""

from __future__ import annotations

import os
from dataclasses import dataclass, field, replace
from time import monotonic
from typing import TYPE_CHECKING, Any, NamedTuple

from penstock.errors import ConfigError, InvalidURL
from penstock.options.table import ProfileTable, chain
from penstock.stores.profiles.build import MSC, PENSTOCK, Profile, bad_name, build_profile
from penstock.stores.profiles.files import NAME, Signature, config_files, read_file, signature
from penstock.stores.profiles.multistorage import msc_files, msc_tables

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping

    from penstock.stores.profiles.files import File

# A list of a million URLs checks for new files a few times, not a million times.
_FRESH_S = 0.1
_STEERING = ("PENSTOCK_CONFIG", "MSC_CONFIG", "XDG_CONFIG_HOME", "XDG_CONFIG_DIRS", "HOME")


def load(name: str, environ: Mapping[str, str] = os.environ, scheme: str = PENSTOCK) -> Profile:
    """Return the current profile of ``penstock.toml``, or of ``scheme``'s files; new files are seen after 0.1 s.

    Raises:
        ConfigError: The profile does not exist or is invalid; the message names file, line and key.
        InvalidURL: The name is invalid.

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
    profile = build_profile(name, tables(name, environ), lookup)
    # A secret's file may change: do not cache the profile.
    if not any(isinstance(each.raw, dict) for each in profile.values.values()):
        _held[scheme, name] = _HeldProfile(where, found, used, profile, monotonic() + _FRESH_S)
    return profile


def _where(environ: Mapping[str, str]) -> tuple[str | None, ...]:
    """Return the values that determine which files exist."""
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
        """Return whether the variables that the profile uses are unchanged."""
        return all(environ.get(name) == value for name, value in self.used.items())


_held: dict[tuple[str, str], _HeldProfile] = {}


_files: dict[str, tuple[Signature, File]] = {}


def _read_cached(found: Signature, kind: Any) -> File:  # noqa: ANN401  a literal
    held = _files.get(found.path)
    if held is None or held[0] != found or held[1].kind != kind:
        held = _files[found.path] = found, read_file(found.path, kind)
    return held[1]


def _signatures(environ: Mapping[str, str]) -> tuple[Signature, ...]:
    return tuple(each for _, each in config_files(environ))


def _tables(name: str, environ: Mapping[str, str]) -> list[ProfileTable]:
    return tables_of(name, [_read_cached(each, kind) for kind, each in config_files(environ)])


def tables_of(name: str, files: list[File]) -> list[ProfileTable]:
    """Return a profile's tables in these files, the nearest first. Raises ``ConfigError`` as ``load`` does."""
    at = 0

    def table(wanted: str) -> ProfileTable | None:
        # A profile extends profiles of its own file and of later files: a project file cannot extend the user's.
        nonlocal at
        for number, file in enumerate(files):
            if number >= at and (found := file.table(wanted)) is not None:
                at = number
                return found
        return None

    def known() -> Iterator[str]:
        return (each for file in files[at:] for each in file.profiles)

    if not files:
        raise ConfigError(
            f"no profile {name!r}: no {NAME} found here, above, in ~/.config/penstock or /etc/penstock, and "
            "PENSTOCK_CONFIG names none"
        )
    return chain(name, table, known)


class Kind(NamedTuple):
    """Kind of profiles: a function for the existing files, and one for a profile's tables, the nearest first."""

    files: Callable[[Mapping[str, str]], tuple[Signature, ...]]
    tables: Callable[[str, Mapping[str, str]], list[ProfileTable]]


KINDS = {PENSTOCK: Kind(_signatures, _tables), MSC: Kind(msc_files, msc_tables)}
