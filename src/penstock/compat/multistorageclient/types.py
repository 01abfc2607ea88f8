"""Values of Multi-Storage Client that its functions take and give."""

from __future__ import annotations

from dataclasses import asdict, dataclass, replace
from datetime import UTC, datetime
from enum import Enum, StrEnum
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from penstock.values import ObjectMeta

__all__ = [
    "MSC_PROTOCOL",
    "DryrunResult",
    "ExecutionMode",
    "ObjectMetadata",
    "PatternList",
    "PatternType",
    "Range",
    "SignerType",
    "SourceVersionCheckMode",
    "SymlinkHandling",
    "SyncResult",
    "described",
    "directory",
]

MSC_PROTOCOL = "msc://"
_MARK = "penstockwrite"  # metadata of Penstock's own
_UNKNOWN = datetime.min.replace(tzinfo=UTC)


class PatternType(Enum):
    """What a pattern does."""

    INCLUDE = "include"
    EXCLUDE = "exclude"


PatternList = list[tuple[PatternType, str]]


class SymlinkHandling(StrEnum):
    """What is done with symbolic links of local files: Penstock follows them."""

    FOLLOW = "follow"
    FOLLOW_STRICT = "follow_strict"
    SKIP = "skip"
    PRESERVE = "preserve"
    PRESERVE_STRICT = "preserve_strict"


class SourceVersionCheckMode(Enum):
    """Whether a cached object is compared with its source: here the configuration of the cache says it."""

    INHERIT = "inherit"
    ENABLE = "enable"
    DISABLE = "disable"


class ExecutionMode(Enum):
    """Where ``sync`` works: in this process."""

    LOCAL = "local"
    RAY = "ray"


class SignerType(StrEnum):
    """What signs an address: the store's own way, whichever it is."""

    S3 = "s3"
    CLOUDFRONT = "cloudfront"
    AZURE = "azure"


@dataclass
class Range:
    """A part of an object.

    Attributes:
        offset: First byte.
        size: Bytes.

    """

    offset: int
    size: int


@dataclass
class ObjectMetadata:
    """What is known of an object, or of a directory.

    Attributes:
        key: Path within the profile; with ``msc://profile/`` before it where that is asked for.
        content_length: Bytes.
        last_modified: By the server's clock; year 1 where unknown.
        type: "file" or "directory".
        content_type: MIME type; only ``info`` knows it.
        etag: Version tag without quotes.
        storage_class: None: Penstock does not ask.
        metadata: User metadata; only ``info`` knows it.
        symlink_target: None: Penstock follows links.

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
        """Return what ``to_dict`` was called on. ``ValueError`` where a field lacks that has no default."""
        if lacking := [name for name in ("key", "content_length", "last_modified") if data.get(name) is None]:
            raise ValueError(f"no {', '.join(lacking)}")
        fields = {name: value for name, value in data.items() if name in ObjectMetadata.__dataclass_fields__}
        return ObjectMetadata(**fields | {"last_modified": datetime.fromisoformat(data["last_modified"])})

    def replace(self, **changes: Any) -> ObjectMetadata:
        """Return a copy with other values."""
        return replace(self, **changes)

    def to_dict(self) -> dict[str, Any]:
        """Return what is known as JSON has it."""
        modified = self.last_modified.astimezone(UTC) if self.last_modified != _UNKNOWN else _UNKNOWN
        text = modified.replace(tzinfo=None).isoformat(timespec="microseconds")
        data = asdict(self) | {"last_modified": f"{text}Z"}
        return {name: value for name, value in data.items() if value is not None}


def described(meta: ObjectMeta, key: str) -> ObjectMetadata:
    """Return what Penstock knows of an object."""
    modified = _UNKNOWN if meta.modified is None else datetime.fromtimestamp(meta.modified, UTC)
    return ObjectMetadata(
        key,
        meta.size,
        modified,
        content_type=meta.content_type or None,
        etag=meta.etag or None,
        metadata={name: value for name, value in meta.metadata.items() if name != _MARK} or None,
    )


def directory(key: str) -> ObjectMetadata:
    """Return a directory."""
    return ObjectMetadata(key, 0, _UNKNOWN, type="directory")


@dataclass
class DryrunResult:
    """Files of lines of JSON: what a ``sync`` would do.

    Attributes:
        files_to_add: Path of the file that lists objects to copy.
        files_to_delete: Path of the file that lists objects to delete.

    """

    files_to_add: str
    files_to_delete: str


@dataclass
class SyncResult:
    """What a ``sync`` did.

    Attributes:
        total_work_units: Objects copied and deleted.
        total_files_added: Objects copied.
        total_files_deleted: Objects deleted.
        total_bytes_added: Bytes copied.
        total_bytes_deleted: Bytes deleted.
        total_time_seconds: Seconds.
        dryrun: What would be done; None where it was done.

    """

    total_work_units: int = 0
    total_files_added: int = 0
    total_files_deleted: int = 0
    total_bytes_added: int = 0
    total_bytes_deleted: int = 0
    total_time_seconds: float = 0.0
    dryrun: DryrunResult | None = None
