"""The cache of this machine by its directory: for programs and commands that look into it."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

from penstock.cache import tiers
from penstock.config.caching import cache_options
from penstock.errors import ConfigError
from penstock.options import CacheOptions

if TYPE_CHECKING:
    from penstock.cache.tiers import Cache

__all__ = ["open_cache"]


def open_cache(cache: CacheOptions | str | os.PathLike[str] | None = None) -> Cache:
    """Return a cache, to look into it: ``entries``, ``usage``, ``verify``, ``clear``. Nothing is read or made yet.

    Args:
        cache: Its options, or its directory; default: ``PENSTOCK_CACHE``, then ``~/.cache/penstock``.

    Raises:
        ConfigError: A variable that cannot be meant, an empty name, or no home directory is known.

    """
    if isinstance(cache, str) and not cache:
        raise ConfigError("an empty text names no cache: leave it out for the default directory")
    given = CacheOptions(path=os.fspath(cache)) if isinstance(cache, str | os.PathLike) else cache
    return tiers.open_cache(cache_options(CacheOptions() if given is None else given) or CacheOptions())
