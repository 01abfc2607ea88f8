"""``multistorageclient`` (NVIDIA's Multi-Storage Client, 1.3) over Penstock: change the import, and nothing else.

    import penstock.compat.multistorageclient as msc

Differences from the original:

- Errors are Penstock's: a missing object raises ``NotFound`` (a ``FileNotFoundError``), an unknown profile
  ``ConfigError``.
- Files are Penstock's (``ps.open``): reads use parallel ranges of one version in bounded memory, and writes are atomic.
  ``fileno`` of an object's file is that of a local copy, which is created on request.
- The table ``cache`` of a configuration file sets up Penstock's cache (docs/cache.md). ``CacheConfig``, replicas,
  metadata providers, telemetry and provider bundles are left out: code that names them raises ``Unsupported``. A
  configuration file that names them raises ``ConfigError``, except for settings that only tune (docs/profiles.md).
- ``glob`` returns sorted results, also for local files, without a trailing ``/``.
- ``delete(recursive=True)`` deletes objects in parallel, and leaves empty directories of local files in place.
- Distributed checkpoints are in Penstock's own format; those of the original can be read.
- Clients and paths can be passed to forked and spawned processes, which open their own connections.
- YAML files require the extra ``msc``.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

from penstock.compat.arguments import refuse_name
from penstock.compat.multistorageclient.client import StorageClient
from penstock.compat.multistorageclient.config import StorageClientConfig
from penstock.compat.multistorageclient.pathlib import MultiStoragePath as Path
from penstock.compat.multistorageclient.shortcuts import (
    commit_metadata,
    delete,
    download_file,
    generate_presigned_url,
    get_telemetry_provider,
    glob,
    info,
    is_empty,
    is_file,
    list,  # noqa: A004  the original's name
    list_recursive,
    make_symlink,
    open,  # noqa: A004  the original's name
    resolve_storage_client,
    set_telemetry_provider,
    sync,
    sync_replicas,
    upload_file,
    write,
)
from penstock.compat.multistorageclient.types import (
    MODULES,
    CacheConfig,
    DryrunResult,
    ProviderBundleV2,
    ResolvedPath,
    ResolvedPathState,
    SignerType,
    StorageBackend,
    SymlinkHandling,
    SyncResult,
)

if TYPE_CHECKING:
    from penstock.compat.multistorageclient import numpy, os, pickle, torch, xarray, zarr  # noqa: F401  by __getattr__

__all__ = [
    "CacheConfig",
    "DryrunResult",
    "Path",
    "ProviderBundleV2",
    "ResolvedPath",
    "ResolvedPathState",
    "SignerType",
    "StorageBackend",
    "StorageClient",
    "StorageClientConfig",
    "SymlinkHandling",
    "SyncResult",
    "commit_metadata",
    "delete",
    "download_file",
    "generate_presigned_url",
    "get_telemetry_provider",
    "glob",
    "info",
    "is_empty",
    "is_file",
    "list",
    "list_recursive",
    "make_symlink",
    "open",
    "resolve_storage_client",
    "set_telemetry_provider",
    "sync",
    "sync_replicas",
    "upload_file",
    "write",
]

__version__ = "1.3.1"  # version of the interface

_MODULES = ("numpy", "os", "pickle", "torch", "xarray", "zarr")


def __getattr__(name: str) -> Any:
    """Import the module of another library on first access; raise ``Unsupported`` if it is left out."""
    if name in _MODULES:
        return import_module(f"{__name__}.{name}")
    return refuse_name(__name__, name, MODULES)
