"""Cache settings of a store: those of its options, else those of the environment."""

from __future__ import annotations

import os
from dataclasses import fields, replace
from typing import TYPE_CHECKING, TypeVar

from penstock.errors import ConfigError
from penstock.options import CacheOptions
from penstock.options.private import given as given_options
from penstock.options.table import Value
from penstock.options.typed import typed

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
    """Return the fully resolved options of the cache; None without a cache, also in the mode ``off``.

    ``PENSTOCK_CACHE`` names the cache directory of every store whose options have no cache (``1``: the default
    directory; ``0`` or empty: no cache). ``PENSTOCK_CACHE_SIZE=200GiB``, ``…_MODE``, ``…_TTL`` (seconds) and
    ``…_MEMORY`` set the other options, of such a cache and wherever an option was not given.

    Raises:
        ConfigError: The value of a variable is invalid, or no directory is known.

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
        if option != "path" and (text := environ.get(variable)) and option not in given_options(options)
    }
    own = {each.name: getattr(options, each.name) for each in fields(options) if each.init and each.name not in values}
    options = typed(CacheOptions, values, environ.get, **own)
    if options.mode == "off":
        return None
    path = os.path.expanduser(options.path or cache_folder(environ))  # noqa: PTH111  the path stays a str
    return replace(options, path=os.path.abspath(path))  # noqa: PTH100  links are not resolved


def with_cache(options: S, environ: Mapping[str, str] = os.environ) -> S:
    """Return ``options`` with the resolved options of the cache: see ``cache_options``."""
    cache = cache_options(options.cache, environ)
    return options if cache == options.cache else replace(options, cache=cache)


def cache_folder(environ: Mapping[str, str] = os.environ) -> str:
    """Return the cache directory for options that name none: that of ``PENSTOCK_CACHE``, else a folder of the user.

    That folder is ``$XDG_CACHE_HOME/penstock``, by default ``~/.cache/penstock``. Raises ``ConfigError`` if no home
    directory is known.
    """
    named = environ.get(_VARIABLE, "")
    if named and named.lower() not in (*_ON, *_OFF):
        return os.path.expanduser(named)  # noqa: PTH111  the path stays a str
    home = environ.get("XDG_CACHE_HOME") or os.path.join(environ.get("HOME") or "~", ".cache")  # noqa: PTH118
    folder = os.path.expanduser(home)  # noqa: PTH111
    if not os.path.isabs(folder):  # noqa: PTH117
        raise ConfigError(
            "no home directory is known for the cache: name one with CacheOptions(path=…) or PENSTOCK_CACHE"
        )
    return os.path.join(folder, "penstock")  # noqa: PTH118
