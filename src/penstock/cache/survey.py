"""What is in a cache, entry by entry: for people and commands."""

from __future__ import annotations

from dataclasses import dataclass

__all__ = ["Cleared", "Entry", "Usage", "Verified"]


@dataclass(frozen=True, slots=True)
class Entry:
    """An object in the cache, or a part of one.

    Attributes:
        url: The object's URL.
        etag: Its version; empty where that is not known.
        start: Where in the object the entry begins; negative, of its last bytes: so many before its end.
        size_bytes: Of the entry.
        object_bytes: Of the object; -1 where that is not known.
        stored_bytes: What the entry takes of the disk.
        used_s: When it was read last, in seconds since the epoch, half a minute exactly.
        kept_s: When it was written, in seconds since the epoch.

    """

    url: str
    etag: str
    start: int
    size_bytes: int
    object_bytes: int
    stored_bytes: int
    used_s: float
    kept_s: float


@dataclass(frozen=True, slots=True)
class Usage:
    """How full a cache is.

    Attributes:
        path: Its directory.
        size_bytes: Most bytes that it takes of the disk.
        stored_bytes: What it takes, with what is being written.
        entries: How many entries it has.
        hit_share: The share of reads that were served from it, lately, over all processes.

    """

    path: str
    size_bytes: int
    stored_bytes: int
    entries: int
    hit_share: float


@dataclass(frozen=True, slots=True)
class Verified:
    """What came of comparing a cache with its checksums.

    Attributes:
        entries: How many were compared.
        size_bytes: Their bytes.
        damaged: How many were not what had been written, and were removed.

    """

    entries: int
    size_bytes: int
    damaged: int


@dataclass(frozen=True, slots=True)
class Cleared:
    """What was removed.

    Attributes:
        entries: How many.
        stored_bytes: What they took of the disk.

    """

    entries: int
    stored_bytes: int
