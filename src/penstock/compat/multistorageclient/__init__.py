"""``multistorageclient`` (NVIDIA's Multi-Storage Client, 1.3) by its own names: change the import, and nothing else.

    import penstock.compat.multistorageclient as msc

What differs from the original:

- Errors are Penstock's: a missing object is ``NotFound`` (a ``FileNotFoundError``), an unknown profile ``ConfigError``.
- Files are Penstock's (``ps.open``): reads go in parallel ranges of one version and in bounded memory, and a write is
  atomic. They have no ``resolve_filesystem_path``; ``Path.as_posix`` gives a local copy.
- The cache of a file is Penstock's (docs/cache.md). ``CacheConfig``, replicas, metadata providers, telemetry and
  provider bundles are left out: what names them in code raises ``Unsupported``; in a file they are named in a warning
  (docs/profiles.md).
- ``glob`` gives its answers sorted, for local files too, and no ``/`` at the end.
- ``delete(recursive=True)`` deletes objects in parallel, and leaves empty directories of local files in place.
- Distributed checkpoints are Penstock's own format; those of the original are read.
- Clients and paths travel to forked and spawned processes, which open their own connections.
- Files in YAML need the extra ``msc``.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

from penstock.compat.multistorageclient.absent import (
    MODULES,
    CacheConfig,
    ProviderBundleV2,
    ResolvedPath,
    ResolvedPathState,
    StorageBackend,
    refuse,
)
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
    list,  # noqa: A004  as there
    list_recursive,
    make_symlink,
    open,  # noqa: A004  as there
    resolve_storage_client,
    set_telemetry_provider,
    sync,
    sync_replicas,
    upload_file,
    write,
)
from penstock.compat.multistorageclient.types import DryrunResult, SignerType, SymlinkHandling, SyncResult

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

_MODULES = ("numpy", "os", "pickle", "torch", "xarray", "zarr")


def __getattr__(name: str) -> Any:
    """Load a module for another library when it is first named."""
    if name in _MODULES:
        return import_module(f"{__name__}.{name}")
    if name in MODULES:
        refuse(name, MODULES[name])
    message = f"module {__name__!r} has no attribute {name!r}"
    raise AttributeError(message)
