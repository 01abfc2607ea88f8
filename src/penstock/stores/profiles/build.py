"""Profile from its tables: merged, its store found, its settings checked, and then expanded and typed, each once."""

from __future__ import annotations

import logging
import re
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from penstock.engine.endpoint import normal
from penstock.errors import ConfigError, Unusable
from penstock.options.table import ProfileTable, Value, merge_tables, suggest_word
from penstock.options.typed import expand_value, literal_secrets, local_path, typed_store
from penstock.stores.profiles.project_file import check_options, check_tables
from penstock.stores.profiles.sinks import NamedSinks
from penstock.stores.s3.services import SERVICES
from penstock.stores.urls import Location, Unmapped, find_store, parse, schemes
from penstock.values import as_folder

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from penstock.options import StoreOptions
    from penstock.stores.store import Store

__all__ = ["MSC", "PENSTOCK", "WORDS", "Profile", "bad_name", "build_profile", "named_sinks"]

PENSTOCK, MSC = "penstock", "msc"
_SCHEMES = (PENSTOCK, MSC)
WORDS = ("jsonl", "chrome", "log", "otel", "prometheus")  # explained in ``observe/environment``
_FILES = ("jsonl", "chrome")
_LOG = logging.getLogger("penstock")
_NAME = re.compile(r"[A-Za-z0-9._-]{1,255}")


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
    """Profile with nothing left to look up. Its repr shows no value.

    Attributes:
        name: Name of the profile.
        origin: File, line and key of its table.
        values: Its values and those of the profiles that it extends, by ``url``, ``provider`` or ``table.key``; not
            expanded.
        store: Its store.
        target: Base of its paths; None without ``url``.
        options: Options of the store's class.
        sinks: Sinks to open with its first store.

    """

    name: str
    origin: str
    values: Mapping[str, Value] = field(repr=False)
    store: Store = field(repr=False)
    target: Location | None
    options: StoreOptions
    sinks: NamedSinks


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
    options = typed_store(store.options, values, lookup)
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
    if (value := values.get("provider")) is not None:
        wanted = str(expand_value(value, lookup))
        if wanted in SERVICES:
            # A service of S3's dialect: its options are S3's.
            values.setdefault("options.provider", value)
            wanted = "s3"
        store = None if wanted in _SCHEMES else find_store(wanted)
        if store is None:
            known = [*(each for each in schemes() if each not in _SCHEMES), *SERVICES]
            raise ConfigError(
                f"{value.origin}: no provider {wanted!r}{suggest_word(wanted, known, '; ' + ', '.join(known))}"
            )
    if (value := values.get("url")) is not None:
        target = _parse_base(str(expand_value(value, lookup)), value)
        if store is not None and store.name != target.store.name:
            raise ConfigError(f"{value.origin}: {target.scheme}:// is not the provider {store.schemes[0]!r}: name one")
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
        found = parse(Unmapped(url))
    except Unusable as error:
        raise ConfigError(f"{value.origin}: {error.message}") from None
    return found.at(as_folder(found.key))


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


def named_sinks(values: Mapping[str, Value], lookup: Callable[[str], str | None]) -> NamedSinks:
    """Return the sinks that a profile's values name: a str with commas, or a list of str.

    Raises:
        ConfigError: A word does not name a sink, or a variable is not set; the message names file, line and key.

    """
    words: tuple[str, ...] = ()
    if (value := values.get("observe")) is not None:
        found = expand_value(value, lookup)
        listed = found.split(",") if isinstance(found, str) else found
        if not isinstance(listed, list) or not all(isinstance(each, str) for each in listed):
            raise ConfigError(f"{value.origin} must be a list of str, such as ['jsonl:events.jsonl']")
        words = tuple(_word(each.strip(), value) for each in listed if each.strip())
    telemetry = {
        key.partition(".")[2]: str(expand_value(each, lookup))
        for key, each in values.items()
        if key.startswith("telemetry.")
    }
    return NamedSinks(words, tuple(telemetry.items()))


def _word(word: str, value: Value) -> str:
    kind, _, rest = word.partition(":")
    if kind not in WORDS:
        raise ConfigError(
            f"{value.origin}: {kind!r} does not name a "
            f"sink{suggest_word(kind, WORDS, '; there are ' + ', '.join(WORDS))}"
        )
    if kind in _FILES and rest:
        return f"{kind}:{local_path(rest, value)}"
    return word
