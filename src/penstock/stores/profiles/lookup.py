"""Lookup of profiles by name: finds, merges, expands and types their files, and caches the result until they change.

Settings that a ``penstock.toml`` in the working directory may set, since others may have written it. Pure.

``MAY`` lists them; design/0080 has the reasons. All other settings belong in the user's own file or the environment.
"""

from __future__ import annotations

import logging
import os
import re
from dataclasses import dataclass, field, replace
from time import monotonic
from typing import TYPE_CHECKING, Any, Literal, NamedTuple

from penstock.engine.endpoint import is_here, normal
from penstock.errors import ConfigError, InvalidURL, Unusable
from penstock.options.table import PART_KINDS, Table, Value, chain, meant, merged
from penstock.options.typed import expanded, literal_secrets, typed
from penstock.stores.profiles.files import NAME, Signature, config_files, read_file, signature
from penstock.stores.profiles.multistorage import msc_files, msc_tables
from penstock.stores.profiles.sinks import NamedSinks
from penstock.stores.s3.services import SERVICES
from penstock.stores.urls import Location, Unmapped, find_store, parse, schemes
from penstock.values import as_folder

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping

    from penstock.options import StoreOptions
    from penstock.stores.profiles.files import File
    from penstock.stores.store import Store

    Form = Literal["any", "literal", "place", "variable", "true"]

__all__ = [
    "KINDS",
    "MAY",
    "MSC",
    "PENSTOCK",
    "WORDS",
    "Kind",
    "Profile",
    "bad_name",
    "built",
    "check_options",
    "check_tables",
    "load",
    "named_sinks",
    "tables_of",
]

PENSTOCK, MSC = "penstock", "msc"
# A list of a million URLs checks for new files a few times, not a million times.
_FRESH_S = 0.1
_STEERING = ("PENSTOCK_CONFIG", "MSC_CONFIG", "XDG_CONFIG_HOME", "XDG_CONFIG_DIRS", "HOME")
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
    profile = built(name, tables(name, environ), lookup)
    # A secret's file may change: do not cache the profile.
    if not any(isinstance(each.raw, dict) for each in profile.values.values()):
        _held[scheme, name] = _Held(where, found, used, profile, monotonic() + _FRESH_S)
    return profile


def _where(environ: Mapping[str, str]) -> tuple[str | None, ...]:
    """Return the values that determine which files exist."""
    try:
        here = os.getcwd()  # noqa: PTH109  called for each URL
    except FileNotFoundError:
        here = ""
    return here, *(environ.get(each) for each in _STEERING)


@dataclass(frozen=True, slots=True)
class _Held:
    """Loaded profile, and its inputs."""

    where: tuple[str | None, ...]
    files: tuple[Signature, ...]
    used: Mapping[str, str | None] = field(repr=False)
    profile: Profile
    fresh_until: float

    def holds(self, environ: Mapping[str, str]) -> bool:
        """Return whether the variables that the profile uses are unchanged."""
        return all(environ.get(name) == value for name, value in self.used.items())


_held: dict[tuple[str, str], _Held] = {}
_files: dict[str, tuple[Signature, File]] = {}
# Warnings already given: forked workers inherit them and do not warn again.
_warned: set[str] = set()


def _read(found: Signature, kind: Any) -> File:  # noqa: ANN401  a literal
    held = _files.get(found.path)
    if held is None or held[0] != found or held[1].kind != kind:
        held = _files[found.path] = found, read_file(found.path, kind)
    return held[1]


def built(name: str, tables: list[Table], lookup: Callable[[str], str | None]) -> Profile:
    """Return the profile of these tables, the nearest first; ``lookup`` returns variables. Raises as ``load`` does."""
    values, origin = merged(tables), tables[0].origin
    check_tables(values)
    store, target = _target(name, origin, values, lookup)
    for each in tables:
        _warn_readable(store, each)
        _warn_unused(each)
    check_options(values, store.options, store.schemes[0], _own_scheme(tables))
    options = typed(store.options, _of("options", values), lookup, **_parts(values, lookup))
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


def _parts(values: Mapping[str, Value], lookup: Callable[[str], str | None]) -> dict[str, Any]:
    """Return the option parts that the values set; absent parts keep the class's defaults."""
    made: dict[str, Any] = {
        part: typed(kind, own, lookup) for part, kind in PART_KINDS.items() if (own := _of(part, values))
    }
    cache, place = made.get("cache"), values.get("cache.path")
    if cache is not None and place is not None:
        made["cache"] = replace(cache, path=_path(cache.path, place))
    return made


def _path(path: str, value: Value) -> str:
    """Return a local path from a file, relative to that file."""
    return os.path.join(value.folder, os.path.expanduser(path))  # noqa: PTH111, PTH118  pathlib drops slashes


def _own_scheme(tables: list[Table]) -> str:
    """Return the first scheme of the store in the user's own files; empty if they name none literally."""
    own = [each for each in tables if not any(value.foreign for value in each.values.values())]
    values = merged(own)
    url, named = values.get("url"), values.get("provider")
    word = "" if named is None else str(named.raw)
    word = ("s3" if word in SERVICES else word) if url is None else str(url.raw).partition("://")[0]
    store = None if word in KINDS else find_store(word)
    return "" if store is None else store.schemes[0]


def _of(table: str, values: Mapping[str, Value]) -> dict[str, Value]:
    return {key.partition(".")[2]: value for key, value in values.items() if key.startswith(f"{table}.")}


def _target(
    name: str, origin: str, values: dict[str, Value], lookup: Callable[[str], str | None]
) -> tuple[Store, Location | None]:
    store = target = None
    if (value := values.get("provider")) is not None:
        wanted = str(expanded(value, lookup))
        if wanted in SERVICES:
            # A service of S3's dialect: its options are S3's.
            values.setdefault("options.provider", value)
            wanted = "s3"
        store = None if wanted in KINDS else find_store(wanted)
        if store is None:
            known = [*(each for each in schemes() if each not in KINDS), *SERVICES]
            raise ConfigError(f"{value.origin}: no provider {wanted!r}{meant(wanted, known, '; ' + ', '.join(known))}")
    if (value := values.get("url")) is not None:
        target = _location(str(expanded(value, lookup)), value)
        if store is not None and store.name != target.store.name:
            raise ConfigError(f"{value.origin}: {target.scheme}:// is not the provider {store.schemes[0]!r}: name one")
        store = target.store
    if store is None:
        raise ConfigError(
            f"{origin} names no store: add url = 's3://bucket/path/', or provider = 's3' for store={name!r}"
        )
    return store, target


def _location(url: str, value: Value) -> Location:
    if "://" not in url:
        url = _path(url, value)
    scheme, _, rest = url.partition("://")
    if scheme in KINDS:
        name = rest.partition("/")[0]
        raise ConfigError(f"{value.origin} is a profile itself: write extends = {name!r}, or the store's own URL")
    try:
        # A second mapping could lead to another place with this profile's options, or in a circle.
        found = parse(Unmapped(url))
    except Unusable as error:
        raise ConfigError(f"{value.origin}: {error.message}") from None
    return found.at(as_folder(found.key))


def _warn_unused(table: Table) -> None:
    if table.notes and table.origin not in _warned:
        _warned.add(table.origin)
        _LOG.warning("%s has keys that Penstock does not use: %s", table.origin, ", ".join(table.notes))


def _warn_readable(store: Store, table: Table) -> None:
    secrets = literal_secrets(store.options, _of("options", table.values)) if table.open_to_all else []
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
    at = 0

    def table(wanted: str) -> Table | None:
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
    tables: Callable[[str, Mapping[str, str]], list[Table]]


KINDS = {PENSTOCK: Kind(_signatures, _tables), MSC: Kind(msc_files, msc_tables)}


WORDS = ("jsonl", "chrome", "log", "otel", "prometheus")  # explained in ``observe/environment``
_FILES = ("jsonl", "chrome")


def named_sinks(values: Mapping[str, Value], lookup: Callable[[str], str | None]) -> NamedSinks:
    """Return the sinks that a profile's values name: a str with commas, or a list of str.

    Raises:
        ConfigError: A word does not name a sink, or a variable is not set; the message names file, line and key.

    """
    words: tuple[str, ...] = ()
    if (value := values.get("observe")) is not None:
        found = expanded(value, lookup)
        listed = found.split(",") if isinstance(found, str) else found
        if not isinstance(listed, list) or not all(isinstance(each, str) for each in listed):
            raise ConfigError(f"{value.origin} must be a list of str, such as ['jsonl:events.jsonl']")
        words = tuple(_word(each.strip(), value) for each in listed if each.strip())
    telemetry = {
        key.partition(".")[2]: str(expanded(each, lookup))
        for key, each in values.items()
        if key.startswith("telemetry.")
    }
    return NamedSinks(words, tuple(telemetry.items()))


def _word(word: str, value: Value) -> str:
    kind, _, rest = word.partition(":")
    if kind not in WORDS:
        raise ConfigError(
            f"{value.origin}: {kind!r} does not name a sink{meant(kind, WORDS, '; there are ' + ', '.join(WORDS))}"
        )
    if kind in _FILES and rest:
        return f"{kind}:{os.path.join(value.folder, os.path.expanduser(rest))}"  # noqa: PTH111, PTH118  stays a str
    return word


# Table of a profile, or class of its ``options`` -> name -> the form in which a project file may set it: ``any`` value,
# also with variables; ``literal``: no variable, because its value would be sent to a third party; ``place``: a literal,
# or a value that is a variable as a whole (``${DATA}``, ``${DATA}/train/``), so that the user chooses the place;
# ``variable``: only a variable; ``true``: only true. Names that are not listed are refused.
MAY: Mapping[str, Mapping[str, Form]] = {
    "": {"url": "place", "provider": "literal", "extends": "literal"},
    "transport": {
        "connections": "any",
        "connect_timeout_s": "any",
        "stall_timeout_s": "any",
        "stall_bytes_per_s": "any",
        "user_agent_extra": "literal",
        "idle_s": "any",
    },
    "retry": dict.fromkeys(("base_s", "cap_s", "patience_s", "first_contact_s", "attempts", "tokens"), "any"),
    "read": dict.fromkeys(("split_bytes", "ahead_bytes", "ahead_items", "hedge"), "any"),
    "write": {"part_bytes": "any", "buffer_bytes": "any", "content_type": "literal"},
    # Penstock would serve files from a downloaded directory as the store's objects.
    "cache": {
        "path": "variable",
        **dict.fromkeys(("size_bytes", "memory_bytes", "block_bytes", "mode", "ttl_s"), "any"),
    },
    "node": dict.fromkeys(("share", "connections", "ahead_bytes"), "any"),
    "S3Options": {
        "endpoint": "place",
        "cluster": "place",
        "region": "any",
        "account": "any",
        "provider": "literal",
        "anonymous": "true",
        **dict.fromkeys(("addressing", "dual_stack", "fips", "accelerate"), "any"),
    },
    "OSSOptions": {
        "endpoint": "place",
        "region": "any",
        "anonymous": "true",
        **dict.fromkeys(("addressing", "internal"), "any"),
    },
    "GCSOptions": {"endpoint": "place", "anonymous": "true"},
    "AzureOptions": {"endpoint": "place", "account": "any", "anonymous": "true", "checksums": "true"},
    "HTTPOptions": {},
    "FsspecOptions": {},
}
_HOSTS = ("options.endpoint", "options.cluster")
# Each of these determines the server.
_SERVERS = ("provider", "options.provider", "options.account", *_HOSTS)
# Stores, by their first schemes, whose URLs name a bucket or a file. The URLs of all others name a host.
_WITHOUT_HOST = ("s3", "oss", "r2", "oci", "b2", "tigris", "ais", "gs", "az", "memory", "file")
_HERE = ("memory", "file")
_WEB = "https"  # this store receives only credentials that options name
_WHOLE = re.compile(r"\$\{[A-Za-z_][A-Za-z0-9_]*(?::-([^${}]*))?\}(/[^$]*)?")
_VARIABLE = re.compile(r"\$\{[A-Za-z_][A-Za-z0-9_]*\}")
_NO = {
    "observe": "must not open sinks: they hear of every object",
    "cache.path": "must not name the directory of a cache, unless a variable of yours is all of it",
}


def check_tables(values: Mapping[str, Value]) -> None:
    """Refuse settings that a project file must not have, except the store's options; call before expansion.

    Raises:
        ConfigError: ``MAY`` does not allow a setting, or not in this form.

    """
    for key, value in values.items():
        table, _, name = key.partition(".") if "." in key else ("", "", key)
        known = not table or name in getattr(PART_KINDS.get(table), "__dataclass_fields__", {})
        if value.foreign and known:
            _check(key, value, MAY[table].get(name))


def check_options(values: Mapping[str, Value], kind: type, scheme: str, own: str) -> None:
    """Refuse options that a project file must not set, and credentials for a server that it names.

    Args:
        values: The profile's values, with those of the profiles that it extends.
        kind: The store's class of options.
        scheme: The store's first scheme.
        own: The first scheme of the store in the user's own files; empty if they name no store.

    Raises:
        ConfigError: ``MAY`` does not allow an option, or not in this form; the profile extends one of the user's own
            that has credentials, and the project file determines the server; or the project file names a host,
            not this machine, that would receive a credential, a variable or a file.

    """
    names = getattr(kind, "__dataclass_fields__", {})
    allowed: dict[str, Form] = {}
    for each in kind.__mro__:
        allowed |= MAY.get(each.__name__, {})
    for key, value in _options(values):
        if value.foreign and key in names:
            _check(f"options.{key}", value, allowed.get(key))
    mine = [value for key, value in _options(values) if not value.foreign and key in names and key not in allowed]
    url = values.get("url")
    moved = [values[key] for key in _SERVERS if key in values and values[key].foreign]
    if url is not None and url.foreign and scheme != own:
        moved.append(url)
    if mine and moved:
        raise _refused(moved[0], f"must not say which server gets the credentials of your own profile ({_at(mine[0])})")
    hosts = [key for key in _HOSTS if key.partition(".")[2] in names]
    _check_host(values, scheme, hosts if scheme in _WITHOUT_HOST else [*hosts, "url"])


def _check_host(values: Mapping[str, Value], scheme: str, hosts: list[str]) -> None:
    """Refuse to send the user's data to a host that a project file names."""
    named = [values[key] for key in hosts if key in values]
    host = next((each for each in named if each.foreign and not _is_local(each.raw)), None)
    if host is None:
        return
    for key, value in _options(values):
        if f"options.{key}" not in _HOSTS and _borrows(value.raw):
            raise _refused(value, f"names a host ({host.origin}), and this would be sent there")
    anonymous = values.get("options.anonymous")
    if scheme != _WEB and (anonymous is None or anonymous.raw is not True):
        raise _refused(
            host, "names a host, and your credentials would be sent there: options.anonymous = true sends none"
        )


def _options(values: Mapping[str, Value]) -> Iterator[tuple[str, Value]]:
    return ((key.partition(".")[2], value) for key, value in values.items() if key.startswith("options."))


def _check(key: str, value: Value, form: Form | None) -> None:
    raw = value.raw
    if form == "variable" and isinstance(raw, str) and _VARIABLE.fullmatch(raw):
        return
    if form in (None, "variable"):
        raise _refused(value, _NO.get(key, f"must not set {key}"))
    if form == "true" and raw is not True:
        raise _refused(value, f"must not set {key}, unless to true")
    if _has_file(raw):
        raise _refused(value, "must not have the contents of a file sent")
    if form == "literal" and _borrows(raw):
        raise _refused(value, "must not have a variable here, which would reach the owner of the place")
    if form == "place" and _borrows(raw) and not _is_the_users(raw):
        raise _refused(value, "must not have a variable in a place, unless it is all of it")


def _refused(value: Value, why: str) -> ConfigError:
    return ConfigError(
        f"{value.origin}: a project's file {why}; write the profile in ~/.config/penstock/penstock.toml, set the "
        "environment instead, or, where you trust the project, set PENSTOCK_CONFIG to its file"
    )


def _at(value: Value) -> str:
    return value.origin.rpartition(": ")[2]


def _borrows(raw: object) -> bool:
    """Return whether a value uses a variable or the contents of a file."""
    if isinstance(raw, str):
        return "${" in raw.replace("$${", "")
    if isinstance(raw, dict):
        return set(raw) == {"file"} or any(map(_borrows, raw.values()))
    return isinstance(raw, list) and any(map(_borrows, raw))


def _has_file(raw: object) -> bool:
    return isinstance(raw, dict) or (isinstance(raw, list) and any(map(_has_file, raw)))


def _is_the_users(raw: object) -> bool:
    """Return whether a place is named by the user's variable, or is on this machine."""
    return isinstance(raw, str) and (_WHOLE.fullmatch(raw) is not None or raw.partition("://")[0].lower() in _HERE)


def _is_local(raw: object) -> bool:
    """Return whether a host is this machine, or is named by the user's variable only."""
    if not isinstance(raw, str):
        return False
    variable = _WHOLE.fullmatch(raw)
    place = raw if variable is None else variable[1] or ""
    return (variable is not None and not place) or is_here(place)
