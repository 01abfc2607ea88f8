"""Multi-Storage Client's functions, by the URL of a profile or a store, or by local path."""

from __future__ import annotations

import os
import re
from typing import IO, TYPE_CHECKING, Any, NoReturn

from penstock.compat.multistorageclient.client import StorageClient
from penstock.compat.multistorageclient.config import FILESYSTEM, StorageClientConfig
from penstock.compat.multistorageclient.types import MSC_PROTOCOL, ExecutionMode, SymlinkHandling, refuse
from penstock.errors import InvalidURL
from penstock.stores.profiles.multistorage import map_path

if TYPE_CHECKING:
    import builtins
    from collections.abc import Callable, Iterator

    from penstock.compat.multistorageclient.types import ObjectMetadata, PatternList, SyncResult

_IMPLICIT = ("s3", "gs", "ais")


def resolve_storage_client(url: str | os.PathLike[str]) -> tuple[StorageClient, str]:
    """Return the client of a URL's profile, and the path below it, without a request.

    A URL or path in ``path_mapping`` belongs to the profile that the mapping names. Otherwise ``s3://bucket/key`` (also
    ``gs``, ``ais``) belongs to the profile ``_s3-bucket``, and a local path, or ``file://…``, to ``__filesystem__``.
    """
    profile, path = _resolve_url(os.fspath(url))
    return StorageClient(StorageClientConfig.from_file(profile=profile)), path


def _resolve_url(url: str) -> tuple[str, str]:
    if url.startswith("msc:/") and not url.startswith(MSC_PROTOCOL):  # as pathlib writes it
        url = MSC_PROTOCOL + url.removeprefix("msc:/")
    # The import shows that the program knows the configuration file: its mappings apply wherever it was found,
    # as in the original.
    scheme, mark, rest = map_path(url, os.environ).partition("://")
    if not mark:
        return FILESYSTEM, os.path.abspath(url)  # noqa: PTH100  a str
    bucket, _, path = rest.partition("/")
    path = re.sub("/+", "/", path).removeprefix("/")
    if scheme == "msc":
        return bucket, path
    if scheme == "file":
        return FILESYSTEM, f"/{path}"
    if scheme.lower() not in _IMPLICIT or not bucket:
        known = ", ".join(f"{each}://bucket/" for each in _IMPLICIT)
        raise InvalidURL(f"write {MSC_PROTOCOL}profile/path, {known} or a path of this machine, not {url!r}")
    return f"_{scheme.lower()}-{bucket}", path


def open(url: str | os.PathLike[str], mode: str = "rb", **kwargs: Any) -> Any:
    """Open an object as a file: see ``StorageClient.open``."""
    client, path = resolve_storage_client(url)
    return client.open(path, mode, **kwargs)


def glob(pattern: str, attribute_filter_expression: str | None = None) -> builtins.list[str]:
    """Return the URLs of matching objects and directories, or paths for a path: see ``StorageClient.glob``."""
    client, path = resolve_storage_client(pattern)
    return client.glob(path, include_url_prefix=True, attribute_filter_expression=attribute_filter_expression)


def upload_file(
    url: str, local_path: str | os.PathLike[str] | IO[Any], attributes: dict[str, Any] | None = None
) -> None:
    """Write a file as an object: see ``StorageClient.upload_file``."""
    client, path = resolve_storage_client(url)
    client.upload_file(path, local_path, attributes)


def download_file(url: str, local_path: str | os.PathLike[str] | IO[Any]) -> None:
    """Write an object to a file: see ``StorageClient.download_file``."""
    client, path = resolve_storage_client(url)
    client.download_file(path, local_path)


def is_empty(url: str) -> bool:
    client, path = resolve_storage_client(url)
    return client.is_empty(path)


def is_file(url: str) -> bool:
    client, path = resolve_storage_client(url)
    return client.is_file(path)


def sync(
    source_url: str,
    target_url: str,
    delete_unmatched_files: bool = False,
    execution_mode: ExecutionMode = ExecutionMode.LOCAL,
    patterns: PatternList | None = None,
    preserve_source_attributes: bool | None = None,
    ignore_hidden: bool = True,
    dryrun: bool = False,
    dryrun_output_path: str | None = None,
    symlink_handling: SymlinkHandling = SymlinkHandling.FOLLOW,
) -> SyncResult:
    """Make the objects below ``target_url`` equal to those below ``source_url``: see ``StorageClient.sync_from``."""
    source, source_path = resolve_storage_client(source_url)
    target, target_path = resolve_storage_client(target_url)
    return target.sync_from(
        source,
        source_path,
        target_path,
        delete_unmatched_files,
        execution_mode=execution_mode,
        patterns=patterns,
        preserve_source_attributes=preserve_source_attributes,
        ignore_hidden=ignore_hidden,
        dryrun=dryrun,
        dryrun_output_path=dryrun_output_path,
        symlink_handling=symlink_handling,
    )


def sync_replicas(source_url: str, *_args: object, **_options: object) -> NoReturn:
    refuse("sync_replicas", "sync to each store by its own profile")


def list(
    url: str,
    start_after: str | None = None,
    end_at: str | None = None,
    include_directories: bool = False,
    attribute_filter_expression: str | None = None,
    show_attributes: bool = False,
    patterns: PatternList | None = None,
    symlink_handling: SymlinkHandling = SymlinkHandling.FOLLOW,
) -> Iterator[ObjectMetadata]:
    """Yield the objects below a URL, with URLs as keys: see ``StorageClient.list``."""
    client, path = resolve_storage_client(url)
    return client.list(
        path,
        start_after,
        end_at,
        include_directories,
        include_url_prefix=True,
        attribute_filter_expression=attribute_filter_expression,
        show_attributes=show_attributes,
        patterns=patterns,
        symlink_handling=symlink_handling,
    )


def list_recursive(
    url: str,
    start_after: str | None = None,
    end_at: str | None = None,
    max_workers: int = 32,
    look_ahead: int = 2,
    patterns: PatternList | None = None,
    symlink_handling: SymlinkHandling = SymlinkHandling.FOLLOW,
) -> Iterator[ObjectMetadata]:
    """Yield all objects below a URL, with URLs as keys: see ``StorageClient.list``."""
    return list(url, start_after, end_at, patterns=patterns, symlink_handling=symlink_handling)


def write(url: str, body: bytes, attributes: dict[str, Any] | None = None) -> None:
    """Write an object atomically."""
    client, path = resolve_storage_client(url)
    client.write(path, body, attributes)


def delete(url: str, recursive: bool = False) -> None:
    """Delete an object, or with ``recursive`` all objects below a directory: see ``StorageClient.delete``."""
    client, path = resolve_storage_client(url)
    client.delete(path, recursive)


def info(url: str) -> ObjectMetadata:
    """Return the metadata of an object or a directory. Raise ``NotFound`` if neither exists."""
    client, path = resolve_storage_client(url)
    return client.info(path)


def make_symlink(url: str, target_url: str) -> NoReturn:
    refuse("make_symlink", "copy the object")


def commit_metadata(url: str) -> None:
    """Do nothing: metadata providers do not exist here, and written objects are visible immediately."""


def generate_presigned_url(
    url: str, *, method: str = "GET", signer_type: object = None, signer_options: dict[str, Any] | None = None
) -> str:
    """Return a presigned URL that reads or writes an object: see ``StorageClient.generate_presigned_url``."""
    client, path = resolve_storage_client(url)
    return client.generate_presigned_url(path, method=method, signer_type=signer_type, signer_options=signer_options)


def get_telemetry_provider() -> None:
    """Return None: telemetry providers do not exist here."""


def set_telemetry_provider(telemetry_provider: Callable[[], Any] | None) -> None:
    if telemetry_provider is not None:
        refuse("set_telemetry_provider", "open penstock.observe.OpenTelemetry(namespace='multistorageclient')")
