"""The verbs of S3-like dialects on in-memory buckets: each returns an answer to a request, or raises ``Refused``."""

from __future__ import annotations

import base64
import re
import threading
import time
from dataclasses import replace
from email.utils import formatdate
from typing import TYPE_CHECKING
from urllib.parse import quote, unquote
from xml.etree import ElementTree as ET

from penstock.testing.faults.dialects.words import Access
from penstock.testing.faults.message import Answer, Refused, Request, document
from penstock.testing.faults.shelf import Bucket, Stored

if TYPE_CHECKING:
    from collections.abc import Mapping

    from penstock.testing.faults.dialects.words import Shelves, Verb, Words
    from penstock.testing.faults.script import Settings

__all__ = ["Dialect", "get", "iso", "listing"]

_RANGE = re.compile(r"bytes=(\d*)-(\d*)")
_KEPT = ("content-type", "content-encoding", "cache-control")
_MOST_KEYS = 1000
_MOST_KEY_BYTES = 1024
_NO_HEADERS: Mapping[str, str] = {}


class Dialect:
    """Buckets by name and the verbs on them. Thread-safe; each verb is atomic."""

    def __init__(self, settings: Settings, words: Words) -> None:
        """Serve clients that ``settings`` admit, in the dialect of ``words``."""
        self.words = words
        keys = {settings.access_key: settings.secret_key}
        self.access = Access(keys, frozenset({settings.region}), frozenset(settings.tokens))
        self.buckets: dict[str, Bucket] = {}
        self.lock = threading.Lock()
        self._settings = settings
        self._verbs: Mapping[str, Verb] = {**_VERBS, **words.verbs}

    def make(self, name: str) -> None:
        """Create a bucket, unless it exists."""
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
        """Return a bucket; ``NoSuchBucket`` if it does not exist."""
        if name not in self.buckets:
            raise Refused(404, "NoSuchBucket")
        return self.buckets[name]

    def kept(self, request: Request) -> dict[str, str]:
        """Return the headers of a request that its object keeps."""
        prefix = f"{self.words.prefix}meta-"
        return {name: value for name, value in request.headers.items() if name in _KEPT or name.startswith(prefix)}

    def origin(self, request: Request) -> Stored:
        """Return the source of a copy, if it has the requested version."""
        source = request.headers[f"{self.words.prefix}copy-source"]
        name, _, key = unquote(source).removeprefix("/").partition("/")
        found = self.bucket(name).find(key)
        self.words.pin_source(found, request)
        return found


def _copy(shelves: Shelves, bucket: Bucket, request: Request) -> Answer:
    source = shelves.origin(request)
    new = request.headers.get(f"{shelves.words.prefix}metadata-directive", "COPY") == "REPLACE"
    copied = Stored.of(source.data, shelves.kept(request) if new else source.headers)
    bucket.objects[request.key] = copied
    texts = {"LastModified": iso(copied.modified), "ETag": f'"{copied.etag}"'}
    return _xml(document("CopyObjectResult", texts), _versions(shelves, copied))


def _copy_part(shelves: Shelves, bucket: Bucket, request: Request) -> Answer:
    upload = bucket.upload(request.parameters["uploadId"], request.key)
    data = shelves.origin(request).data
    span = _span(request.headers.get(f"{shelves.words.prefix}copy-source-range", ""), len(data)) or (0, len(data))
    part = bucket.part(upload, _number(request), data[slice(*span)])
    texts = {"LastModified": iso(part.modified), "ETag": f'"{part.etag}"'}
    return _xml(document("CopyPartResult", texts))


def _versions(shelves: Shelves, stored: Stored) -> dict[str, str]:
    """Return the headers that name a version, without the ETag, which the XML names already."""
    return {name: value for name, value in shelves.words.written(stored).items() if name != "ETag"}


def get(shelves: Shelves, bucket: Bucket, request: Request) -> Answer:
    """Answer GET and HEAD of an object."""
    words, found = shelves.words, bucket.find(request.key)
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


def _put(shelves: Shelves, bucket: Bucket, request: Request) -> Answer:
    stored = bucket.objects[request.key] = Stored.of(bytes(request.body), shelves.kept(request))
    return Answer(headers=shelves.words.written(stored))


def _delete(shelves: Shelves, bucket: Bucket, request: Request) -> Answer:
    if not shelves.words.missing_deleted:
        bucket.find(request.key)
    bucket.objects.pop(request.key, None)
    return Answer(204)


def listing(shelves: Shelves, bucket: Bucket, request: Request) -> Answer:
    """Return one page of a listing."""
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
    rows = [_element("Contents", _entry(shelves, show(key), stored)) for key, stored in page.entries]
    rows += [_element("CommonPrefixes", {"Prefix": show(each)}) for each in page.prefixes]
    return _xml(document("ListBucketResult", texts, "".join(rows)))


def _entry(shelves: Shelves, key: str, stored: Stored) -> dict[str, str]:
    shown = {"Key": key, "LastModified": iso(stored.modified), **shelves.words.listed(stored)}
    return {**shown, "Size": str(len(stored.data)), "StorageClass": "STANDARD"}


def _uploads(_shelves: Shelves, bucket: Bucket, request: Request) -> Answer:
    prefix = request.parameters.get("prefix", "")
    url = request.parameters.get("encoding-type") == "url"
    show = (lambda key: quote(key, safe="/-_.~")) if url else str
    rows = [
        _element("Upload", {"Key": show(upload.key), "UploadId": name, "Initiated": iso(upload.began)})
        for name, upload in sorted(bucket.uploads.items(), key=lambda item: (item[1].key.encode(), item[1].began))
        if upload.key.startswith(prefix)
    ]
    texts = {"Bucket": request.bucket, "Prefix": show(prefix), "IsTruncated": "false"}
    return _xml(document("ListMultipartUploadsResult", texts | ({"EncodingType": "url"} if url else {}), "".join(rows)))


def _create(shelves: Shelves, bucket: Bucket, request: Request) -> Answer:
    name = bucket.create(request.key, shelves.kept(request))
    texts = {"Bucket": request.bucket, "Key": request.key, "UploadId": name}
    return _xml(document("InitiateMultipartUploadResult", texts))


def _part(_shelves: Shelves, bucket: Bucket, request: Request) -> Answer:
    upload = bucket.upload(request.parameters["uploadId"], request.key)
    part = bucket.part(upload, _number(request), bytes(request.body))
    return Answer(headers={"ETag": f'"{part.etag}"'})


def _number(request: Request) -> int:
    number = request.parameters.get("partNumber", "")
    return int(number) if number.isdigit() else 0


def _complete(shelves: Shelves, bucket: Bucket, request: Request) -> Answer:
    stored = bucket.complete(request.parameters["uploadId"], request.key, _listed(request.body))
    texts = {"Bucket": request.bucket, "Key": request.key, "ETag": f'"{stored.etag}"'}
    return _xml(document("CompleteMultipartUploadResult", texts), _versions(shelves, stored))


def _listed(body: bytearray) -> list[tuple[int, str]]:
    try:
        parts = [{child.tag.rpartition("}")[2]: child.text or "" for child in part} for part in ET.fromstring(body)]  # noqa: S314  a test server on loopback
        return [(int(part["PartNumber"]), part["ETag"].strip('"')) for part in parts]
    except (ET.ParseError, KeyError, ValueError):
        raise Refused(400, "MalformedXML") from None


def _abort(_shelves: Shelves, bucket: Bucket, request: Request) -> Answer:
    name = request.parameters["uploadId"]
    bucket.upload(name, request.key)
    del bucket.uploads[name]
    return Answer(204)


def _xml(body: bytes, headers: Mapping[str, str] = _NO_HEADERS) -> Answer:
    return Answer(headers={"Content-Type": "application/xml", **headers}, body=body)


def _element(name: str, texts: dict[str, str]) -> str:
    return document(name, texts).decode().partition("\n")[2]


def iso(seconds: float) -> str:
    """Return a time as S3 writes it."""
    return time.strftime("%Y-%m-%dT%H:%M:%S.000Z", time.gmtime(seconds))


_VERBS: Mapping[str, Verb] = {
    "head-bucket": lambda _dialect, _bucket, _request: Answer(),
    "list": listing,
    "uploads": _uploads,
    "head": get,
    "get": get,
    "put": _put,
    "copy": _copy,
    "delete": _delete,
    "create": _create,
    "part": _part,
    "copy-part": _copy_part,
    "complete": _complete,
    "abort": _abort,
}
