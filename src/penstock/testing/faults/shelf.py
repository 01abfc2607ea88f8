"""In-memory buckets of objects and unfinished uploads, with S3's ETags and S3's order."""

from __future__ import annotations

import time
from dataclasses import dataclass, field
from hashlib import md5
from itertools import count

from penstock.testing.faults.message import Refused

__all__ = ["Bucket", "Listing", "Stored", "Upload"]

_MOST_PARTS = 10_000
# As Google counts: the number of an object is never used again.
_generations = count(time.time_ns() // 1000)


def _md5(data: bytes) -> bytes:
    return md5(data, usedforsecurity=False).digest()


@dataclass(frozen=True, slots=True)
class Stored:
    """A stored object."""

    data: bytes
    etag: str
    headers: dict[str, str]  # Content-Type and metadata, as received
    modified: float = field(default_factory=time.time)
    generation: int = field(default_factory=lambda: next(_generations))

    @classmethod
    def of(cls, data: bytes, headers: dict[str, str]) -> Stored:
        """Return the object that a PUT stores."""
        return cls(data, _md5(data).hex(), headers)


@dataclass(slots=True)
class Upload:
    """An unfinished upload: its parts by number."""

    key: str
    headers: dict[str, str]
    parts: dict[int | str, Stored] = field(default_factory=dict)  # by number, or by block name
    began: float = field(default_factory=time.time)


@dataclass(slots=True)
class Listing:
    """A page of a listing: objects by key, common prefixes, and the token of the next page."""

    entries: list[tuple[str, Stored]] = field(default_factory=list)
    prefixes: list[str] = field(default_factory=list)
    token: str = ""


class Bucket:
    """Objects and uploads; callers hold the server's lock."""

    def __init__(self, least_part_bytes: int) -> None:
        """Start empty; all parts but the last must have at least ``least_part_bytes``."""
        self.objects: dict[str, Stored] = {}
        self.uploads: dict[str, Upload] = {}
        # By key, the blocks that an object was made of (Azure).
        self.committed: dict[str, dict[int | str, Stored]] = {}
        # By path, when folders were made, in a hierarchical namespace (Azure).
        self.folders: dict[str, float] = {}
        self._least_part_bytes = least_part_bytes
        self._names = count(1)

    def find(self, key: str) -> Stored:
        """Return an object; ``NoSuchKey`` if it does not exist."""
        if key not in self.objects:
            raise Refused(404, "NoSuchKey")
        return self.objects[key]

    def create(self, key: str, headers: dict[str, str]) -> str:
        """Begin an upload and return its id, which needs escaping in a query and in XML."""
        name = f"upload+{next(self._names)}/&<é>"
        self.uploads[name] = Upload(key, headers)
        return name

    def upload(self, name: str, key: str) -> Upload:
        """Return an unfinished upload; ``NoSuchUpload`` if it does not exist or belongs to another key."""
        found = self.uploads.get(name)
        if found is None or found.key != key:
            raise Refused(404, "NoSuchUpload")
        return found

    def part(self, upload: Upload, number: int, data: bytes) -> Stored:
        """Keep a part; a part that is sent again replaces the earlier one."""
        if not 1 <= number <= _MOST_PARTS:
            raise Refused(400, "InvalidArgument", "part numbers are 1 to 10,000")
        part = upload.parts[number] = Stored.of(data, {})
        return part

    def complete(self, name: str, key: str, listed: list[tuple[int, str]]) -> Stored:
        """Publish the listed parts (number, ETag) together, in one step."""
        upload = self.upload(name, key)
        numbers = [number for number, _ in listed]
        if not numbers or numbers != sorted(set(numbers)):
            raise Refused(400, "InvalidPartOrder" if numbers else "MalformedXML")
        for number, etag in listed:
            if number not in upload.parts or upload.parts[number].etag != etag:
                raise Refused(400, "InvalidPart")
        parts = [upload.parts[number] for number in numbers]
        if any(len(part.data) < self._least_part_bytes for part in parts[:-1]):
            raise Refused(400, "EntityTooSmall")
        digest = _md5(b"".join(bytes.fromhex(part.etag) for part in parts)).hex()
        data = b"".join(part.data for part in parts)
        self.objects[key] = Stored(data, f"{digest}-{len(parts)}", upload.headers)
        del self.uploads[name]
        return self.objects[key]

    def page(self, prefix: str, delimiter: str, after: str, most: int) -> Listing:
        """List ``most`` keys and common prefixes from ``after`` (exclusive), in the order of UTF-8 bytes.

        ``after`` is a key or a page's token: a key, or a common prefix with NUL before it, whose keys are all skipped.
        """
        page, last = Listing(), ""
        passed = after[1:] if after.startswith("\0") else ""
        least = (passed or after).encode()
        for key in sorted(self.objects, key=str.encode):
            if not key.startswith(prefix) or key.encode() <= least or (passed and key.startswith(passed)):
                continue
            head, found, _ = key[len(prefix) :].partition(delimiter) if delimiter else (key, "", "")
            common = prefix + head + found if found else ""
            if common and "\0" + common == last:
                continue
            if len(page.entries) + len(page.prefixes) >= most:
                page.token = last
                break
            last = "\0" + common if common else key
            if common:
                page.prefixes.append(common)
            else:
                page.entries.append((key, self.objects[key]))
        return page
