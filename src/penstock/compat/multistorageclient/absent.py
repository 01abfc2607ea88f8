"""Names of Multi-Storage Client that Penstock does not implement: each raises ``Unsupported`` with an alternative."""

from __future__ import annotations

from typing import NoReturn

from penstock.errors import Unsupported

__all__ = [
    "MODULES",
    "CacheConfig",
    "ProviderBundleV2",
    "ResolvedPath",
    "ResolvedPathState",
    "StorageBackend",
    "refuse",
]

MODULES = {
    "async_fs": "fsspec finds its file system for msc://, penstock.interop.fsspec.PenstockFileSystem",
    "ray": "map over URLs in your own tasks: each process opens its own connections",
    "hydra": "read the configuration with ps.open",
}


def refuse(name: str, instead: str) -> NoReturn:
    """Raise ``Unsupported``."""
    raise Unsupported(f"{name} is not a part of penstock.compat.multistorageclient: {instead}")


class _Absent:
    """Base of classes that are not implemented; their constructor raises ``Unsupported``."""

    _instead = ""

    def __init__(self, *_args: object, **_options: object) -> None:
        """Raise ``Unsupported``."""
        refuse(type(self).__name__, self._instead)


class CacheConfig(_Absent):
    """Settings of a disk cache, not implemented."""

    _instead = "write the table cache into the configuration, or pass store=ps.StoreOptions(cache=ps.CacheOptions(…))"


class ProviderBundleV2(_Absent):
    """Providers in code, not implemented."""

    _instead = "name a profile with a storage_provider, or add a provider to Penstock (penstock.providers)"


class StorageBackend(ProviderBundleV2):
    """A store in code, not implemented."""


class ResolvedPath(_Absent):
    """A path that a metadata provider has resolved, not implemented."""

    _instead = "there are no metadata providers: list a dataset once and save it as a ps.Catalog"


class ResolvedPathState(ResolvedPath):
    """The state of a resolved path, not implemented."""
