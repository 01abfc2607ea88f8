"""Types of Multi-Storage Client's arguments and results, and names that Penstock does not implement.

The latter raise ``Unsupported`` with an alternative.
"""

from __future__ import annotations

from dataclasses import asdict, dataclass, replace
from datetime import UTC, datetime
from enum import Enum, StrEnum
from typing import TYPE_CHECKING, Any, NoReturn

from penstock.compat.arguments import refuse_name
from penstock.errors import ConfigError, PenstockError, PreconditionFailed, Transient, Unsupported
from penstock.values import MARK

if TYPE_CHECKING:
    from penstock.values import ObjectMeta

MODULES = {
    "async_fs": "fsspec finds its file system for msc://, penstock.interop.fsspec.PenstockFileSystem",
    "ray": "map over URLs in your own tasks: each process opens its own connections",
    "hydra": "read the configuration with ps.open",
}


def refuse(name: str, instead: str) -> NoReturn:
    raise Unsupported(f"{name} is not a part of penstock.compat.multistorageclient: {instead}")


class _Absent:
    """Base of classes that are not implemented; their constructor raises ``Unsupported``."""

    _instead = ""

    def __init__(self, *_args: object, **_options: object) -> None:
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

    _instead = "metadata providers are not supported: list a dataset once and save it as a ps.Catalog"


class ResolvedPathState(ResolvedPath):
    """The state of a resolved path, not implemented."""


MSC_PROTOCOL_NAME = "msc"
MSC_PROTOCOL = "msc://"
AWARE_DATETIME_MIN = datetime.min.replace(tzinfo=UTC)
_UNKNOWN = AWARE_DATETIME_MIN
# Exceptions that programs catch: Penstock's, by the original's names.
PreconditionFailedError = PreconditionFailed
RetryableError = Transient
SyncError = PenstockError
CODE = "name a profile in the configuration, or add a provider to Penstock (penstock.providers)"
_ABSENT = {
    **dict.fromkeys(("Credentials", "CredentialsProvider", "StorageProvider", "StorageProviderConfig"), CODE),
    "ProviderBundle": CODE,
    "MetadataProvider": "list a dataset once and save it as a ps.Catalog",
    "AutoCommitConfig": "what is written is there at once",
    "Replica": "sync to each store by its own profile",
    "RetryConfig": "write retry into the profile, or pass store=ps.StoreOptions(retry=ps.RetryOptions(…))",
    **dict.fromkeys(("BatchTransferError", "BatchTransferFailure"), "the first failure is raised as it is"),
    "BatchTransferCallback": "subscribe to penstock.events",
    "NotModifiedError": "compare the etag that info gives",
}


class InvalidMode(ConfigError, ValueError):
    """Invalid mode of ``open``; a ``ValueError``, as in the original."""


class PatternType(Enum):
    """Effect of a pattern."""

    INCLUDE = "include"
    EXCLUDE = "exclude"


PatternList = list[tuple[PatternType, str]]


class SymlinkHandling(StrEnum):
    """Treatment of symbolic links of local files; Penstock follows them."""

    FOLLOW = "follow"
    FOLLOW_STRICT = "follow_strict"
    SKIP = "skip"
    PRESERVE = "preserve"
    PRESERVE_STRICT = "preserve_strict"


class SourceVersionCheckMode(Enum):
    """Comparison of a cached object with its source; ENABLE reads without the cache, else its configuration decides."""

    INHERIT = "inherit"
    ENABLE = "enable"
    DISABLE = "disable"


class ExecutionMode(Enum):
    """Location where ``sync`` runs; in Penstock, always this process."""

    LOCAL = "local"
    RAY = "ray"


class SignerType(StrEnum):
    """Signer of a presigned URL; Penstock uses the store's own method."""

    S3 = "s3"
    CLOUDFRONT = "cloudfront"
    AZURE = "azure"


@dataclass
class Range:
    """Byte range of an object: its first byte, and the number of bytes."""

    offset: int
    size: int


@dataclass
class ObjectMetadata:
    """Metadata of an object or a directory (``type``).

    Only ``info`` gives ``content_type`` and ``metadata``. An unknown ``last_modified`` is in the year 1.
    ``storage_class`` and ``symlink_target`` are None: Penstock does not request the one, and follows links.
    """

    key: str
    content_length: int
    last_modified: datetime
    type: str = "file"
    content_type: str | None = None
    etag: str | None = None
    storage_class: str | None = None
    metadata: dict[str, Any] | None = None
    symlink_target: str | None = None

    @staticmethod
    def from_dict(data: dict[str, Any]) -> ObjectMetadata:
        """Return the metadata that ``to_dict`` converted. Raise ``ValueError`` if a required field is missing."""
        if lacking := [name for name in ("key", "content_length", "last_modified") if data.get(name) is None]:
            raise ValueError(f"no {', '.join(lacking)}")
        fields = {name: value for name, value in data.items() if name in ObjectMetadata.__dataclass_fields__}
        return ObjectMetadata(**fields | {"last_modified": datetime.fromisoformat(data["last_modified"])})

    def replace(self, **changes: Any) -> ObjectMetadata:
        return replace(self, **changes)

    def to_dict(self) -> dict[str, Any]:
        modified = self.last_modified.astimezone(UTC) if self.last_modified != _UNKNOWN else _UNKNOWN
        text = modified.replace(tzinfo=None).isoformat(timespec="microseconds")
        data = asdict(self) | {"last_modified": f"{text}Z"}
        return {name: value for name, value in data.items() if value is not None}


def convert_metadata(meta: ObjectMeta, key: str) -> ObjectMetadata:
    modified = _UNKNOWN if meta.modified is None else datetime.fromtimestamp(meta.modified, UTC)
    return ObjectMetadata(
        key,
        meta.size,
        modified,
        content_type=meta.content_type or None,
        etag=meta.etag or None,
        metadata={name: value for name, value in meta.metadata.items() if name != MARK} or None,
    )


def directory(key: str) -> ObjectMetadata:
    return ObjectMetadata(key, 0, _UNKNOWN, type="directory")


@dataclass
class DryrunResult:
    """Paths of the JSON lines files that list the objects that a ``sync`` would copy and delete."""

    files_to_add: str
    files_to_delete: str


@dataclass
class SyncResult:
    """Result of a ``sync``; its work units are the objects copied, deleted and left unchanged."""

    total_work_units: int = 0
    total_files_added: int = 0
    total_files_deleted: int = 0
    total_bytes_added: int = 0
    total_bytes_deleted: int = 0
    total_time_seconds: float = 0.0
    dryrun: DryrunResult | None = None


def __getattr__(name: str) -> Any:
    refuse_name(__name__, name, _ABSENT)
