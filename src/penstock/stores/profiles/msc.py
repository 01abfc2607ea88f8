"""``msc://``: profiles of NVIDIA's Multi-Storage Client, from its own files; it need not be installed."""

from __future__ import annotations

import os
from dataclasses import replace
from typing import TYPE_CHECKING

from penstock.errors import ConfigError, PenstockError
from penstock.stores.profiles.lookup import MSC, Profile, bad_name, load
from penstock.stores.profiles.profile_provider import PROVIDER as PENSTOCK
from penstock.stores.profiles.profile_provider import through
from penstock.stores.urls import Location

if TYPE_CHECKING:
    from penstock.stores.provider import Provider

__all__ = ["PROVIDER"]

_providers: dict[str, tuple[Profile, Provider]] = {}


def _split(rest: str) -> tuple[str, str]:
    """Split after the profile; for a profile without a bucket, after the bucket, as for rclone's remotes."""
    name, _, path = rest.partition("/")
    try:
        whole = bad_name(name, MSC) or load(name, os.environ, MSC).target is not None
    except PenstockError:
        whole = True  # the location reports the error
    if whole or not path:
        return name, path
    bucket, _, key = path.partition("/")
    return f"{name}/{bucket}", key


def _fault(bucket: str) -> str:
    name, mark, inner = bucket.partition("/")
    return bad_name(name, MSC) or (bad_name(inner, MSC) if mark else "")


def _named(bucket: str) -> Provider:
    """Return the provider of ``msc://profile/…`` or ``msc://profile/bucket/…``; cached until the profile changes."""
    name, _, inner = bucket.partition("/")
    profile = load(name, os.environ, MSC)
    made = _providers.get(bucket)
    if made is None or made[0] is not profile:
        target = profile.target
        if target is None:
            if not inner:
                raise ConfigError(f"{profile.origin} names no bucket: write msc://{name}/bucket/key")
            target = Location(profile.provider.schemes[0], inner, "")
        there = through(MSC, replace(profile, name=bucket, target=target))
        made = _providers[bucket] = profile, replace(there, split=_split, bucket_fault=_fault)
    return made[1]


PROVIDER = replace(
    PENSTOCK,
    name="a profile of Multi-Storage Client",
    schemes=(MSC,),
    split=_split,
    bucket_fault=_fault,
    named=_named,
)
