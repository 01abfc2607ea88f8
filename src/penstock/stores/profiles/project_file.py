"""Settings allowed in a ``penstock.toml`` of the working directory, which others may have written. Pure.

``MAY`` lists them; design/0080 has the reasons. All other settings belong in the user's own file or the environment.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Literal

from penstock.engine.endpoint import is_here
from penstock.errors import ConfigError
from penstock.options.parts import PART_KINDS

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from penstock.options.typed import Value

    Form = Literal["any", "literal", "place", "variable", "true"]

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
        "user_agent_extra": "literal",
        "idle_s": "any",
    },
    "retry": dict.fromkeys(("base_s", "cap_s", "patience_s", "first_contact_s", "attempts"), "any"),
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
    "HFOptions": {"endpoint": "place", "anonymous": "true"},
    "HTTPOptions": {},
    "FsspecOptions": {},
    "ObspecOptions": {},
}
_HOSTS = ("options.endpoint", "options.cluster")
# Each of these determines the server.
_SERVERS = ("provider", "options.provider", "options.account", *_HOSTS)
# Stores, by their first schemes, whose URLs name a bucket or a file. The URLs of all others name a host.
_WITHOUT_HOST = ("s3", "oss", "r2", "oci", "b2", "tigris", "ais", "gs", "az", "hf", "memory", "file")
_HERE = ("memory", "file")
_WEB = "https"  # this store receives only credentials that options name
_WHOLE = re.compile(r"\$\{[A-Za-z_][A-Za-z0-9_]*(?::-([^${}]*))?\}(/[^$]*)?")
_VARIABLE = re.compile(r"\$\{[A-Za-z_][A-Za-z0-9_]*\}")
_NO = {
    "observe": "must not open sinks: they hear of every object",
    "cache.path": "must not name the directory of a cache, unless a variable of yours is all of it",
}


def check_tables(values: Mapping[str, Value]) -> None:
    """Refuse settings that ``MAY`` does not allow, except the store's options; call before expansion."""
    for key, value in values.items():
        table, _, name = key.partition(".") if "." in key else ("", "", key)
        known = not table or name in getattr(PART_KINDS.get(table), "__dataclass_fields__", {})
        if value.foreign and known:
            _check_setting(key, value, MAY[table].get(name))


def check_options(values: Mapping[str, Value], kind: type, scheme: str, own: str) -> None:
    """Refuse options that a project file must not set, and credentials for a server that it names.

    That is: the profile extends one of the user's own that has credentials, and the project file determines the server;
    or the project file names a host, not this machine, that would receive a credential, a variable or a file.
    ``scheme`` is the store's first, ``own`` that of the store in the user's own files; empty if they name no store.
    """
    names = getattr(kind, "__dataclass_fields__", {})
    allowed: dict[str, Form] = {}
    for each in kind.__mro__:
        allowed |= MAY.get(each.__name__, {})
    for key, value in _options(values):
        if value.foreign and key in names:
            _check_setting(f"options.{key}", value, allowed.get(key))
    mine = [value for key, value in _options(values) if not value.foreign and key in names and key not in allowed]
    url = values.get("url")
    moved = [values[key] for key in _SERVERS if key in values and values[key].foreign]
    if url is not None and url.foreign and scheme != own:
        moved.append(url)
    if mine and moved:
        key = mine[0].origin.rpartition(": ")[2]
        raise _make_setting_error(
            moved[0], f"must not choose the server for the credentials of your own profile ({key})"
        )
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
            raise _make_setting_error(value, f"names a host ({host.origin}), which would receive this")
    anonymous = values.get("options.anonymous")
    if scheme != _WEB and (anonymous is None or anonymous.raw is not True):
        raise _make_setting_error(
            host, "names a host, which would receive your credentials: set options.anonymous = true"
        )


def _options(values: Mapping[str, Value]) -> Iterator[tuple[str, Value]]:
    return ((key.partition(".")[2], value) for key, value in values.items() if key.startswith("options."))


def _check_setting(key: str, value: Value, form: Form | None) -> None:
    raw = value.raw
    if form == "variable" and isinstance(raw, str) and _VARIABLE.fullmatch(raw):
        return
    if form in (None, "variable"):
        raise _make_setting_error(value, _NO.get(key, f"must not set {key}"))
    if form == "true" and raw is not True:
        raise _make_setting_error(value, f"must not set {key}, except to true")
    if _has_file(raw):
        raise _make_setting_error(value, "must not send the contents of a file")
    if form == "literal" and _borrows(raw):
        raise _make_setting_error(value, "must not use a variable here, because the server's owner would see it")
    if form == "place" and _borrows(raw) and not _is_the_users(raw):
        raise _make_setting_error(value, "must not use a variable as a part of a location")


def _make_setting_error(value: Value, why: str) -> ConfigError:
    return ConfigError(
        f"{value.origin}: a project's file {why}; write the profile in ~/.config/penstock/penstock.toml, set the "
        "environment instead, or, where you trust the project, set PENSTOCK_CONFIG to its file"
    )


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
    """Return whether a location is from the user's variable, or on this machine."""
    return isinstance(raw, str) and (_WHOLE.fullmatch(raw) is not None or raw.partition("://")[0].lower() in _HERE)


def _is_local(raw: object) -> bool:
    """Return whether a host is this machine, or is named by the user's variable only."""
    if not isinstance(raw, str):
        return False
    variable = _WHOLE.fullmatch(raw)
    place = raw if variable is None else variable[1] or ""
    return (variable is not None and not place) or is_here(place)
