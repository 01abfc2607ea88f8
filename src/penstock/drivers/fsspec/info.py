"""What a filesystem's ``info`` says of a file: size, version, time; their names differ from library to library."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import TYPE_CHECKING

from penstock.drivers.http.headers import parse_date
from penstock.values import UNKNOWN_SIZE, ObjectMeta

if TYPE_CHECKING:
    from collections.abc import Mapping

__all__ = ["described", "is_file"]

# In the order of how much they say; the names are those of s3fs, gcsfs, adlfs, ossfs, huggingface_hub, dropbox, gdrive.
_VERSIONS = ("etag", "ETag", "e_tag", "generation", "version_id", "versionId", "blob_id", "rev", "sha", "content_md5")
_TIMES = ("mtime", "LastModified", "last_modified", "modified", "updated", "timeModified", "modify", "mTime", "created")
_TYPES = ("ContentType", "content_type", "contentType", "mimetype")


def is_file(info: Mapping[str, object]) -> bool:
    """Say whether this is a file."""
    return info.get("type", "file") == "file"


def described(key: str, info: Mapping[str, object]) -> ObjectMeta:
    """Return what is said of a file; a size that is not said is ``UNKNOWN_SIZE``, a version that is not is empty."""
    size = info.get("size")
    size = size if isinstance(size, int) and not isinstance(size, bool) and size >= 0 else UNKNOWN_SIZE
    modified = _moment(_first(info, _TIMES))
    version = _text(_first(info, _VERSIONS)) or (f"{modified!r}-{size:x}" if modified is not None else "")
    if not version and isinstance(info.get("ino"), int):
        version = f"{info['ino']}-{size:x}"
    return ObjectMeta(key, size, version, modified, content_type=_text(_first(info, _TYPES)))


def _first(info: Mapping[str, object], names: tuple[str, ...]) -> object:
    return next((info[name] for name in names if info.get(name) not in (None, "")), None)


def _text(value: object) -> str:
    return str(value).strip().replace('"', "") if isinstance(value, str | int) and not isinstance(value, bool) else ""


def _moment(value: object) -> float | None:
    """Return a time in seconds since the epoch; None where it is none."""
    if isinstance(value, int | float) and not isinstance(value, bool):
        return float(value)
    if isinstance(value, datetime):
        return (value if value.tzinfo else value.replace(tzinfo=UTC)).timestamp()
    if isinstance(value, str):
        try:
            found = datetime.fromisoformat(value)
        except ValueError:
            return parse_date(value)
        return (found if found.tzinfo else found.replace(tzinfo=UTC)).timestamp()
    return None
