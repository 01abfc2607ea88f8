"""S3-like dialects on the server's side: in-memory buckets, the verbs on them, and the differences of each dialect.

``Words`` holds names, headers and checks of one dialect, independent of Penstock's own drivers; ``find_words`` finds
them by name. ``Dialect`` answers a request, or raises ``Refused``.
"""

from __future__ import annotations

import base64
import re
import threading
import time
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from email.utils import formatdate
from hashlib import md5
from importlib import import_module
from itertools import count
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, Self
from urllib.parse import quote, unquote
from xml.etree import ElementTree as ET

from penstock.testing.faults.message import Answer, Refused, Request, document

if TYPE_CHECKING:
    from collections.abc import Mapping

    from penstock.options import StoreOptions
    from penstock.testing.faults.script import Fault, Settings

# Name -> module of this folder that defines WORDS; imported when a server first speaks the dialect.
DIALECTS = {"s3": "amazon", "gcs": "google", "oss": "alibaba", "azure": "azure", "azure-hns": "hierarchical"}


def find_words(dialect: str) -> Words:
    """Return the ``WORDS`` of a dialect, by its name in ``DIALECTS`` or by a module's full name, with dots."""
    found: Words = import_module(dialect if "." in dialect else f"{__package__}.{DIALECTS[dialect]}").WORDS
    return found


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
        return cls(data, _md5(data).hex(), headers)


@dataclass(slots=True)
class Upload:
    """An unfinished upload: its parts by number."""

    key: str
    headers: dict[str, str]
    parts: dict[int | str, Stored] = field(default_factory=dict)  # by number, or by block name
    began: float = field(default_factory=time.time)


@dataclass(slots=True)
class ListingPage:
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

    def page(self, prefix: str, delimiter: str, after: str, most: int) -> ListingPage:
        """List ``most`` keys and common prefixes from ``after`` (exclusive), in the order of UTF-8 bytes.

        ``after`` is a key or a page's token: a key, or a common prefix with NUL before it, whose keys are all skipped.
        """
        page, last = ListingPage(), ""
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


Verb = Callable[["Dialect", Bucket, Request], Answer]


@dataclass(slots=True)
class Access:
    """Secrets by key id, regions that requests may be signed for, and tokens of bearers and of temporary keys."""

    keys: Mapping[str, str]
    regions: frozenset[str]
    tokens: frozenset[str] = frozenset()


_NOTHING: Mapping[str, Any] = MappingProxyType({})


class Words(ABC):
    """The definition of a dialect. Methods that refuse raise ``Refused``.

    Attributes:
        scheme: Scheme of its URLs in Penstock.
        prefix: Prefix of the headers that the dialect adds to HTTP's.
        version: The header that names an object's version.
        missing_deleted: Deleting a missing object is a success.
        verbs: Verbs that S3 lacks, or that differ from S3's.
        faults: Faults of ``script.FAULTS`` that differ here, by name; a fault without verbs cannot happen.
    """

    scheme: str
    prefix: str
    version: str = "ETag"
    missing_deleted: bool = True

    def __init__(self, verbs: Mapping[str, Verb] = _NOTHING, faults: Mapping[str, Fault] = _NOTHING) -> None:
        self.verbs, self.faults = verbs, faults

    def with_verbs(self, verbs: Mapping[str, Verb]) -> Self:
        return type(self)({**self.verbs, **verbs}, self.faults)

    def locate(self, request: Request) -> None:  # noqa: B027  most dialects have nothing to do here
        """Set bucket, key and verb of a request if its path, ``/bucket/key``, lacks them."""

    @abstractmethod
    def check(self, request: Request, access: Access, now: float) -> None:
        """Refuse a request without valid credentials at ``now``, or with a body that does not match its digests."""

    @abstractmethod
    def hold(self, bucket: Bucket, request: Request, how: str) -> None:
        """Refuse a write (any verb that has a condition) unless its conditions hold; ``Settings.conditions``."""

    @abstractmethod
    def pin(self, found: Stored, request: Request) -> None:
        """Refuse to read a version of an object different from the requested one."""

    @abstractmethod
    def pin_source(self, found: Stored, request: Request) -> None:
        """Refuse to copy a version of an object different from the requested one."""

    @abstractmethod
    def described(self, found: Stored) -> dict[str, str]:
        """Return the headers of an answer with an object, or a part of it: version, digests."""

    def digests(self, found: Stored, request: Request) -> dict[str, str]:  # noqa: ARG002  for other dialects
        """Return further headers of an answer with a whole object."""
        return {}

    @abstractmethod
    def written(self, found: Stored) -> dict[str, str]:
        """Return the headers of an answer to a write."""

    @abstractmethod
    def listed(self, found: Stored) -> dict[str, str]:
        """Return the elements of an entry of a listing, after its key and date."""

    def refused(self, error: Refused, request: Request) -> Answer:  # noqa: ARG002  for other dialects
        """Return the answer for a refusal."""
        return error.answer()

    def named(self, found: Stored) -> str:
        """Return an object's version as Penstock names it."""
        return found.etag

    @abstractmethod
    def store(self, settings: Settings, endpoint: str) -> StoreOptions: ...

    @abstractmethod
    def environment(self, settings: Settings, endpoint: str) -> dict[str, str]: ...


_RANGE = re.compile(r"bytes=(\d*)-(\d*)")
_KEPT = ("content-type", "content-encoding", "cache-control")
_MOST_KEYS = 1000
_MOST_KEY_BYTES = 1024
_NO_HEADERS: Mapping[str, str] = {}


class Dialect:
    """Buckets by name and the verbs on them. Thread-safe; each verb is atomic.

    A verb uses its bucket, ``words``, ``access``, ``bucket``, ``kept`` and ``origin``.
    """

    def __init__(self, settings: Settings, words: Words) -> None:
        self.words = words
        keys = {settings.access_key: settings.secret_key}
        self.access = Access(keys, frozenset({settings.region}), frozenset(settings.tokens))
        self.buckets: dict[str, Bucket] = {}
        self.lock = threading.Lock()
        self._settings = settings
        self._verbs: Mapping[str, Verb] = {**_VERBS, **words.verbs}

    def make(self, name: str) -> None:
        with self.lock:
            self.buckets.setdefault(name, Bucket(self._settings.least_part_bytes))

    def check(self, request: Request, regions: frozenset[str]) -> None:
        """Raise ``Refused`` for a request that must not be carried out, whatever its verb."""
        access = self.access if not regions else replace(self.access, regions=regions)
        self.words.check(request, access, time.time())
        if len(request.key.encode()) > _MOST_KEY_BYTES:
            raise Refused(400, "KeyTooLongError")

    def answer(self, request: Request) -> Answer:
        """Carry out a checked request and return its answer."""
        verb = request.verb
        if verb == "make-bucket":
            self.make(request.bucket)
            return Answer(headers={"Location": f"/{request.bucket}"})
        if verb not in self._verbs:
            raise Refused(405, "MethodNotAllowed", f"{request.method} {request.path}?{request.query}")
        with self.lock:
            bucket = self.bucket(request.bucket)
            self.words.hold(bucket, request, self._settings.conditions)
            return self._verbs[verb](self, bucket, request)

    def bucket(self, name: str) -> Bucket:
        if name not in self.buckets:
            raise Refused(404, "NoSuchBucket")
        return self.buckets[name]

    def kept(self, request: Request) -> dict[str, str]:
        prefix = f"{self.words.prefix}meta-"
        return {name: value for name, value in request.headers.items() if name in _KEPT or name.startswith(prefix)}

    def origin(self, request: Request) -> Stored:
        """Return the source of a copy, if it has the requested version."""
        source = request.headers[f"{self.words.prefix}copy-source"]
        name, _, key = unquote(source).removeprefix("/").partition("/")
        found = self.bucket(name).find(key)
        self.words.pin_source(found, request)
        return found


def _copy_stored(dialect: Dialect, bucket: Bucket, request: Request) -> Answer:
    source = dialect.origin(request)
    new = request.headers.get(f"{dialect.words.prefix}metadata-directive", "COPY") == "REPLACE"
    copied = Stored.of(source.data, dialect.kept(request) if new else source.headers)
    bucket.objects[request.key] = copied
    texts = {"LastModified": iso(copied.modified), "ETag": f'"{copied.etag}"'}
    return _xml(document("CopyObjectResult", texts), _versions(dialect, copied))


def _copy_part(dialect: Dialect, bucket: Bucket, request: Request) -> Answer:
    upload = bucket.upload(request.parameters["uploadId"], request.key)
    data = dialect.origin(request).data
    span = _span(request.headers.get(f"{dialect.words.prefix}copy-source-range", ""), len(data)) or (0, len(data))
    part = bucket.part(upload, _parse_part_number(request), data[slice(*span)])
    texts = {"LastModified": iso(part.modified), "ETag": f'"{part.etag}"'}
    return _xml(document("CopyPartResult", texts))


def _versions(dialect: Dialect, stored: Stored) -> dict[str, str]:
    """Return the headers that name a version, without the ETag, which the XML names already."""
    return {name: value for name, value in dialect.words.written(stored).items() if name != "ETag"}


def get(dialect: Dialect, bucket: Bucket, request: Request) -> Answer:
    words, found = dialect.words, bucket.find(request.key)
    words.pin(found, request)
    headers = {
        **found.headers,
        **words.described(found),
        "Last-Modified": formatdate(found.modified, usegmt=True),
        "Accept-Ranges": "bytes",
    }
    size = len(found.data)
    span = _span(request.headers.get("range", ""), size)
    if span is None:
        return Answer(200, headers | words.digests(found, request), found.data)
    start, stop = span
    headers["Content-Range"] = f"bytes {start}-{stop - 1}/{size}"
    return Answer(206, headers, found.data[start:stop])


def _span(header: str, size: int) -> tuple[int, int] | None:
    """Return a Range header as half-open bounds; None for the whole, also if it is not understood (RFC 9110)."""
    form = _RANGE.fullmatch(header)
    if form is None or form.groups() == ("", ""):
        return None
    first, last = form.groups()
    start, stop = (int(first), int(last or size) + bool(last)) if first else (max(0, size - int(last)), size)
    if start >= size or start >= stop:
        raise Refused(416, "InvalidRange")
    return start, min(stop, size)


def _put_object(dialect: Dialect, bucket: Bucket, request: Request) -> Answer:
    stored = bucket.objects[request.key] = Stored.of(bytes(request.body), dialect.kept(request))
    return Answer(headers=dialect.words.written(stored))


def _delete_object(dialect: Dialect, bucket: Bucket, request: Request) -> Answer:
    if not dialect.words.missing_deleted:
        bucket.find(request.key)
    bucket.objects.pop(request.key, None)
    return Answer(204)


def listing(dialect: Dialect, bucket: Bucket, request: Request) -> Answer:
    asked = request.parameters
    if asked.get("list-type") != "2":
        raise Refused(501, "NotImplemented", f"GET of a bucket with {request.query or 'no query'}")
    prefix, delimiter = asked.get("prefix", ""), asked.get("delimiter", "")
    after = asked.get("start-after", "")
    if "continuation-token" in asked:
        try:
            after = base64.b64decode(asked["continuation-token"], validate=True).decode()
        except ValueError:
            raise Refused(400, "InvalidArgument", "the continuation token is not ours") from None
    most = min(_MOST_KEYS, int(asked.get("max-keys", _MOST_KEYS)))
    page = bucket.page(prefix, delimiter, after, most)
    url = asked.get("encoding-type") == "url"
    show = (lambda key: quote(key, safe="/-_.~")) if url else str
    texts = {
        "Name": request.bucket,
        "Prefix": show(prefix),
        **({"Delimiter": show(delimiter)} if delimiter else {}),
        **({"EncodingType": "url"} if url else {}),
        "MaxKeys": str(most),
        "KeyCount": str(len(page.entries) + len(page.prefixes)),
        "IsTruncated": str(bool(page.token)).lower(),
        **({"NextContinuationToken": base64.b64encode(page.token.encode()).decode()} if page.token else {}),
    }
    rows = [element("Contents", _entry(dialect, show(key), stored)) for key, stored in page.entries]
    rows += [element("CommonPrefixes", {"Prefix": show(each)}) for each in page.prefixes]
    return _xml(document("ListBucketResult", texts, "".join(rows)))


def _entry(dialect: Dialect, key: str, stored: Stored) -> dict[str, str]:
    shown = {"Key": key, "LastModified": iso(stored.modified), **dialect.words.listed(stored)}
    return {**shown, "Size": str(len(stored.data)), "StorageClass": "STANDARD"}


def _uploads(_dialect: Dialect, bucket: Bucket, request: Request) -> Answer:
    prefix = request.parameters.get("prefix", "")
    url = request.parameters.get("encoding-type") == "url"
    show = (lambda key: quote(key, safe="/-_.~")) if url else str
    rows = [
        element("Upload", {"Key": show(upload.key), "UploadId": name, "Initiated": iso(upload.began)})
        for name, upload in sorted(bucket.uploads.items(), key=lambda item: (item[1].key.encode(), item[1].began))
        if upload.key.startswith(prefix)
    ]
    texts = {"Bucket": request.bucket, "Prefix": show(prefix), "IsTruncated": "false"}
    return _xml(document("ListMultipartUploadsResult", texts | ({"EncodingType": "url"} if url else {}), "".join(rows)))


def _create(dialect: Dialect, bucket: Bucket, request: Request) -> Answer:
    name = bucket.create(request.key, dialect.kept(request))
    texts = {"Bucket": request.bucket, "Key": request.key, "UploadId": name}
    return _xml(document("InitiateMultipartUploadResult", texts))


def _part(_dialect: Dialect, bucket: Bucket, request: Request) -> Answer:
    upload = bucket.upload(request.parameters["uploadId"], request.key)
    part = bucket.part(upload, _parse_part_number(request), bytes(request.body))
    return Answer(headers={"ETag": f'"{part.etag}"'})


def _parse_part_number(request: Request) -> int:
    number = request.parameters.get("partNumber", "")
    return int(number) if number.isdigit() else 0


def _complete(dialect: Dialect, bucket: Bucket, request: Request) -> Answer:
    stored = bucket.complete(request.parameters["uploadId"], request.key, _parse_upload_parts(request.body))
    texts = {"Bucket": request.bucket, "Key": request.key, "ETag": f'"{stored.etag}"'}
    return _xml(document("CompleteMultipartUploadResult", texts), _versions(dialect, stored))


def _parse_upload_parts(body: bytearray) -> list[tuple[int, str]]:
    try:
        parts = [{child.tag.rpartition("}")[2]: child.text or "" for child in part} for part in ET.fromstring(body)]  # noqa: S314  a test server on loopback
        return [(int(part["PartNumber"]), part["ETag"].strip('"')) for part in parts]
    except (ET.ParseError, KeyError, ValueError):
        raise Refused(400, "MalformedXML") from None


def _abort(_dialect: Dialect, bucket: Bucket, request: Request) -> Answer:
    name = request.parameters["uploadId"]
    bucket.upload(name, request.key)
    del bucket.uploads[name]
    return Answer(204)


def _remove_bucket(dialect: Dialect, bucket: Bucket, request: Request) -> Answer:
    if bucket.objects:
        raise Refused(409, "BucketNotEmpty")
    del dialect.buckets[request.bucket]
    return Answer(204)


def _xml(body: bytes, headers: Mapping[str, str] = _NO_HEADERS) -> Answer:
    return Answer(headers={"Content-Type": "application/xml", **headers}, body=body)


def element(name: str, texts: dict[str, str], inner: str = "") -> str:
    return document(name, texts, inner).decode().partition("\n")[2]


def iso(seconds: float) -> str:
    return time.strftime("%Y-%m-%dT%H:%M:%S.000Z", time.gmtime(seconds))


_VERBS: Mapping[str, Verb] = {
    "remove-bucket": _remove_bucket,
    "head-bucket": lambda _dialect, _bucket, _request: Answer(),
    "list": listing,
    "uploads": _uploads,
    "head": get,
    "get": get,
    "put": _put_object,
    "copy": _copy_stored,
    "delete": _delete_object,
    "create": _create,
    "part": _part,
    "copy-part": _copy_part,
    "complete": _complete,
    "abort": _abort,
}
