"""Which cache a store's reads go through: that of its options, else that of the environment."""

from __future__ import annotations

import os
from dataclasses import MISSING, fields, replace
from typing import TYPE_CHECKING, TypeVar

from penstock.config.profiles.table import Value
from penstock.config.profiles.typed import typed
from penstock.errors import ConfigError
from penstock.options import CacheOptions

if TYPE_CHECKING:
    from collections.abc import Mapping

    from penstock.options import StoreOptions

__all__ = ["CACHE_VARIABLES", "cache_folder", "cache_options", "with_cache"]

S = TypeVar("S", bound="StoreOptions")

_VARIABLE = "PENSTOCK_CACHE"
# Variable -> option of ``CacheOptions``.
CACHE_VARIABLES: Mapping[str, str] = {
    _VARIABLE: "path",
    "PENSTOCK_CACHE_SIZE": "size_bytes",
    "PENSTOCK_CACHE_MODE": "mode",
    "PENSTOCK_CACHE_TTL": "ttl_s",
    "PENSTOCK_CACHE_MEMORY": "memory_bytes",
}
_ON, _OFF = ("1", "true", "yes", "on"), ("0", "false", "no", "off")


def cache_options(given: CacheOptions | None, environ: Mapping[str, str] = os.environ) -> CacheOptions | None:
    """Return the cache's options with nothing left to look up; None: there is no cache, as in the mode ``off``.

    ``PENSTOCK_CACHE`` names the directory of a cache for every store whose options have none (``1``: the default
    directory; ``0`` or empty: no cache). ``PENSTOCK_CACHE_SIZE=200GiB``, ``…_MODE``, ``…_TTL`` (seconds) and
    ``…_MEMORY`` are the other options, of such a cache and wherever options have the default.

    Raises:
        ConfigError: A variable that cannot be meant, or no directory is known.

    """
    if given is not None and not isinstance(given, CacheOptions):
        raise ConfigError(
            f"a cache is named by its directory or by CacheOptions(path=…), not by a {type(given).__name__}"
        )
    named = environ.get(_VARIABLE, "")
    if given is None and named.lower() in ("", *_OFF):
        return None
    options = CacheOptions() if given is None else given
    values = {
        option: Value(text, variable)
        for variable, option in CACHE_VARIABLES.items()
        if option != "path" and (text := environ.get(variable)) and getattr(options, option) == _default(option)
    }
    own = {each.name: getattr(options, each.name) for each in fields(options) if each.init and each.name not in values}
    options = typed(CacheOptions, values, environ.get, **own)
    if options.mode == "off":
        return None
    path = os.path.expanduser(options.path or cache_folder(environ))  # noqa: PTH111  it stays a text
    return replace(options, path=os.path.abspath(path))  # noqa: PTH100  as it is named


def with_cache(options: S, environ: Mapping[str, str] = os.environ) -> S:
    """Return a store's options with the cache that holds for it: see ``cache_options``."""
    cache = cache_options(options.cache, environ)
    return options if cache == options.cache else replace(options, cache=cache)


def cache_folder(environ: Mapping[str, str] = os.environ) -> str:
    """Return the directory of a cache that no options name: ``PENSTOCK_CACHE``'s, else the user's for caches.

    That is ``$XDG_CACHE_HOME/penstock``, by default ``~/.cache/penstock``. ``ConfigError``: no home directory is known.
    """
    named = environ.get(_VARIABLE, "")
    if named and named.lower() not in (*_ON, *_OFF):
        return os.path.expanduser(named)  # noqa: PTH111  it stays a text
    home = environ.get("XDG_CACHE_HOME") or os.path.join(environ.get("HOME") or "~", ".cache")  # noqa: PTH118
    folder = os.path.expanduser(home)  # noqa: PTH111
    if not os.path.isabs(folder):  # noqa: PTH117
        raise ConfigError(
            "no home directory is known for the cache: name one with CacheOptions(path=…) or PENSTOCK_CACHE"
        )
    return os.path.join(folder, "penstock")  # noqa: PTH118


def _default(option: str) -> object:
    return next(each.default for each in fields(CacheOptions) if each.name == option and each.default is not MISSING)
