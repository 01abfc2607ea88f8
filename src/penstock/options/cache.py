"""Options of the cache: where objects are kept on this machine, how many bytes of them, and how long they count."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Literal

from penstock.errors import ConfigError
from penstock.options.private import PUBLIC, Part

__all__ = ["CacheOptions"]

_MIB = 1 << 20
_LEAST_BYTES = 4 * _MIB  # below it the cache's own directories would take the larger part


@dataclass(frozen=True, slots=True, kw_only=True)
class CacheOptions(Part):
    """A cache on local disk, shared by all processes of a machine that name the same directory.

    Attributes:
        path: Its directory, on a local disk; the cache has a subdirectory of its own there. Default:
            ``$XDG_CACHE_HOME/penstock``, then ``~/.cache/penstock``.
        size_bytes: Most bytes that it takes of the disk, as ``du`` counts them, over all processes.
        memory_bytes: Most bytes that each process keeps in memory besides; 0 keeps none. The operating system keeps
            files that were read lately in memory, too, once for all processes.
        block_bytes: Objects longer than this are kept in blocks of this size, each of which comes and goes by itself.
            4 MiB is what files read at once.
        mode: What happens to reads without a version (an ETag). ``immutable``: they go to the store. ``ttl``: they may
            be served from what was read up to ``ttl_s`` ago. ``revalidate``: a HEAD tells the present version, which
            is served. Reads of a known version are served without a request in each mode.
            ``off``: this store has no cache, whatever ``PENSTOCK_CACHE`` says.
        ttl_s: Seconds; for the mode ``ttl`` alone. ``math.inf`` is for objects that are never replaced.

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
