"""Entries as tests make them: small objects of one store, each in a cache by its name."""

from __future__ import annotations

import os
from random import Random

from penstock.engine.cache.entry import About, CachedPart, Namer
from penstock.engine.cache.tiers import Cache, CacheTiers
from penstock.options import CacheOptions

MIB = 1 << 20
NAMER = Namer("a store")


def cache_in(path, size_bytes=64 * MIB, **options):
    """Return a cache with separate tiers, as in another process."""
    given = CacheOptions(path=os.fspath(path), size_bytes=size_bytes, **options)
    cache = Cache(given)
    cache._tiers = CacheTiers(given)
    cache._disk = cache._tiers.disk
    return cache


def name(key):
    return NAMER.name(key, "etag", CachedPart("b", 0, None))


def content(key, size=10_000):
    """Return the bytes of an object, which its key determines."""
    return Random(key).randbytes(size)


def keep(cache, key, size=10_000):
    data = content(key, size)
    return cache._tiers.store(name(key), data, About(f"s3://bucket/{key}", "etag", 0, size))


def held(cache, key):
    """Return what the cache has of an object; None where it has nothing."""
    hit = cache._tiers.read(name(key), 0, -1)
    return None if hit is None else hit.data


def du(path):
    """Return what a directory takes of the disk, as ``du`` counts."""
    total = 0
    for folder, _, names in os.walk(path):
        for each in [folder, *(f"{folder}/{name}" for name in names)]:
            try:
                total += os.lstat(each).st_blocks * 512
            except FileNotFoundError:
                continue
    return total
