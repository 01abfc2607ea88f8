"""What the profile of a project's file may say: the file may be another's, so it sends nothing of the user's to a host.

design/0039 has the reasons; pure.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from penstock.config.endpoint import is_here
from penstock.errors import ConfigError

if TYPE_CHECKING:
    from collections.abc import Collection, Mapping

    from penstock.config.profiles.table import Value

__all__ = ["check_hosts", "check_places"]

_HOSTS = ("options.endpoint", "options.cluster", "transport.proxy")
_PLACES = ("url", *_HOSTS)
_WHOLE = re.compile(r"\$\{[A-Za-z_][A-Za-z0-9_]*(?::-([^${}]*))?\}(/[^$]*)?")
_VARIABLE = re.compile(r"\$\{[A-Za-z_][A-Za-z0-9_]*\}")
_WITHOUT_HOSTS = ("memory", "file")  # schemes
_IDENTITIES = ("access_key", "token", "account_key", "sas_token", "connection_string", "credentials_json")


def check_places(values: Mapping[str, Value]) -> None:
    """Refuse variables and files in what a project's file says of places; before anything is expanded.

    Raises:
        ConfigError: The URL, or an option that names a host, takes a file, or a variable that is not all of the place
            (``${DATA}``, ``${DATA}/train/``: the user names it then); or another option of ``transport`` takes one; or
            a cache's directory, unless such a variable is all of it; or sinks.

    """
    for key, value in values.items():
        if value.foreign and key == "observe":  # a file that is appended to, a collector that hears of every key
            raise _refused(value, "opens no sinks")
        place = key in _PLACES and not _is_the_users(value.raw)
        if value.foreign and _borrows(value.raw) and (place or (key.startswith("transport.") and key not in _PLACES)):
            raise _refused(value, "takes no variable and no file here, which would reach the owner of the place")
        if value.foreign and key == "cache.path" and not _VARIABLE.fullmatch(str(value.raw)):
            # What lies in a directory that was downloaded would be served as the store's.
            raise _refused(value, "names no directory of a cache, unless a variable of yours is all of it")


def check_hosts(values: Mapping[str, Value], secrets: Collection[str], *, url: bool, tokens: bool) -> None:
    """Refuse to send what is the user's to a host, other than this machine, that a project's file names.

    Args:
        values: The profile's values, with those of the profiles that it extends.
        secrets: Names of the provider's options that hold secrets.
        url: The profile's URL names a host, as that of a web server does.
        tokens: The provider sends the credentials that the environment names as they are: bearer tokens.

    Raises:
        ConfigError: An option takes a variable or a file, or is a secret of the user's own files; or no option says
            who asks, and the user's tokens would be sent.

    """
    named = [key for key in (*_HOSTS, *(["url"] if url else [])) if key in values and values[key].foreign]
    host = next((values[key] for key in named if not _is_local(values[key].raw)), None)
    if host is None:
        return
    for key, value in values.items():
        table, _, name = key.partition(".")
        if (
            table == "options"
            and key not in _PLACES
            and (_borrows(value.raw) or (name in secrets and not value.foreign))
        ):
            raise _refused(value, f"names a host ({host.origin}), and this would be sent there")
    identified = any(f"options.{each}" in values for each in _IDENTITIES)
    anonymous = "options.anonymous" in values and values["options.anonymous"].raw is True
    if tokens and not (identified or anonymous):
        raise _refused(host, "names a host, and the user's own tokens would be sent there")


def _refused(value: Value, why: str) -> ConfigError:
    return ConfigError(
        f"{value.origin}: a project's file {why}: write the profile in ~/.config/penstock/penstock.toml, or, where you "
        "trust the project, set PENSTOCK_CONFIG to its file"
    )


def _borrows(raw: object) -> bool:
    """Say whether a value takes a variable, or what a file holds."""
    if isinstance(raw, str):
        return "${" in raw.replace("$${", "")
    if isinstance(raw, dict):
        return set(raw) == {"file"} or any(map(_borrows, raw.values()))
    return isinstance(raw, list) and any(map(_borrows, raw))


def _is_the_users(raw: object) -> bool:
    """Say whether a place is one that the user's variable names, or one that is on this machine."""
    return isinstance(raw, str) and (
        _WHOLE.fullmatch(raw) is not None or raw.partition("://")[0].lower() in _WITHOUT_HOSTS
    )


def _is_local(raw: object) -> bool:
    """Say whether a host is this machine, or named by the user's variable alone."""
    if not isinstance(raw, str):
        return False
    variable = _WHOLE.fullmatch(raw)
    place = raw if variable is None else variable[1] or ""
    return (variable is not None and not place) or is_here(place)
