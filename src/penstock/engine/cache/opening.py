"""Access to this machine's cache by its directory, for programs and commands that inspect it."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

from penstock.engine.cache import tiers
from penstock.errors import ConfigError
from penstock.options import CacheOptions
from penstock.options.cache_settings import cache_options

if TYPE_CHECKING:
    from penstock.engine.cache.tiers import Cache

__all__ = ["open_cache"]


def open_cache(cache: CacheOptions | str | os.PathLike[str] | None = None) -> Cache:
    """Return a cache to inspect: ``entries``, ``usage``, ``verify``, ``clear``. Nothing is read or created yet.

    Args:
        cache: Its options, or its directory; default: ``PENSTOCK_CACHE``, then ``~/.cache/penstock``.

    Raises:
        ConfigError: A variable is invalid, a name is empty, or no home directory is known.

    Example:
        >>> options = ps.S3Options(cache=ps.CacheOptions(path="cache"))
        >>> ps.warm("s3://bucket/train/3/", store=options).fetched
        60
        >>> ps.open_cache("cache").usage().entries
        60

    """
    if isinstance(cache, str) and not cache:
        raise ConfigError("an empty text names no cache: leave it out for the default directory")
    given = CacheOptions(path=os.fspath(cache)) if isinstance(cache, str | os.PathLike) else cache
    return tiers.open_cache(cache_options(CacheOptions() if given is None else given) or CacheOptions())
