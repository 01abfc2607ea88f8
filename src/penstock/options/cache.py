"""Options of the cache: its directory, its size in bytes, and how long its entries are valid."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Literal

from penstock.errors import ConfigError
from penstock.options.private import PUBLIC, Part

__all__ = ["CacheOptions"]

_MIB = 1 << 20
# Below this size, the cache's own directories would take most of the space.
_LEAST_BYTES = 4 * _MIB


@dataclass(frozen=True, slots=True, kw_only=True)
class CacheOptions(Part):
    """A cache on local disk, shared by all processes of a machine that name the same directory.

    Attributes:
        path: A directory on a local disk, in which the cache makes a subdirectory. Default:
            ``$XDG_CACHE_HOME/penstock``, then ``~/.cache/penstock``.
        size_bytes: Maximum bytes on disk, as ``du`` counts them, over all processes.
        memory_bytes: Maximum bytes that each process also keeps in memory; 0 keeps none. The operating system itself
            keeps recently read files in memory, once for all processes.
        block_bytes: Objects longer than this are kept in blocks of this size, which are stored and removed separately.
            4 MiB is the block size of open files.
        mode: How reads without a version (an ETag) are served. ``immutable``: by the store. ``ttl``: also by data that
            were read up to ``ttl_s`` ago. ``revalidate``: a HEAD request finds the current version, which is served.
            In each of these modes, reads of a known version are served without a request. ``off``: this store has no
            cache, even if ``PENSTOCK_CACHE`` names one.
        ttl_s: Seconds, for the mode ``ttl`` only. Use ``math.inf`` for objects that are never replaced.

    Example:
        >>> cache = ps.CacheOptions(path="cache", size_bytes=100 << 30, mode="revalidate")
        >>> with ps.open("s3://bucket/train/3/0000.png", store=ps.S3Options(cache=cache)) as file:
        ...     file.read()[1:4]
        b'PNG'
        >>> ps.open_cache("cache").usage().entries
        1

    """

    path: str = field(default="", metadata=PUBLIC)
    size_bytes: int = field(default=10 * 1024 * _MIB, metadata={"elsewhere": ("max_bytes", "max_size", "size")})
    memory_bytes: int = 0
    block_bytes: int = 4 * _MIB
    mode: Literal["immutable", "ttl", "revalidate", "off"] = field(default="immutable", metadata=PUBLIC)
    ttl_s: float = 60.0

    def __post_init__(self) -> None:
        """Refuse values that could never work."""
        for name, least in (("size_bytes", _LEAST_BYTES), ("memory_bytes", 0), ("block_bytes", 64 << 10)):
            if not getattr(self, name) >= least:
                raise ConfigError(f"CacheOptions.{name} must be at least {least}, not {getattr(self, name)!r}")
        if self.mode not in ("immutable", "ttl", "revalidate", "off"):
            raise ConfigError(f"CacheOptions.mode must be 'immutable', 'ttl', 'revalidate' or 'off', not {self.mode!r}")
        if not self.ttl_s > 0:
            raise ConfigError(f"CacheOptions.ttl_s must be positive, not {self.ttl_s!r}")
