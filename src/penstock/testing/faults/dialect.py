"""The verbs of S3, carried out on the shelf: a request in, an answer out; what is refused is raised."""

from __future__ import annotations

import base64
import re
import threading
import time
import zlib
from email.utils import formatdate
from typing import TYPE_CHECKING
from urllib.parse import quote, unquote
from xml.etree import ElementTree as ET

from penstock.testing.faults.message import Answer, Refused, Request, document
from penstock.testing.faults.shelf import Bucket, Stored
from penstock.testing.faults.signature import check_body, check_signature

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

__all__ = ["Dialect"]

_RANGE = re.compile(r"bytes=(\d*)-(\d*)")
_KEPT = ("content-type", "content-encoding", "cache-control")
_MOST_KEYS = 1000
_MOST_KEY_BYTES = 1024


class Dialect:
    """Buckets by name and the verbs on them; thread-safe, each verb is one step for everybody else."""

    def __init__(self, keys: Mapping[str, str], region: str, least_part_bytes: int, conditions: str = "heeded") -> None:
        """Serve whoever signs with one of ``keys`` (id to secret) for ``region``; ``conditions`` as in ``Settings``."""
        self.keys = keys
        self.region = region
        self.buckets: dict[str, Bucket] = {}
        self.lock = threading.Lock()
        self._least_part_bytes = least_part_bytes
        self._conditions = conditions
        self._verbs: dict[str, Callable[[Bucket, Request], Answer]] = {
            "head-bucket": lambda _bucket, _request: Answer(),
            "list": _list,
            "uploads": _uploads,
            "head": _get,
            "get": _get,
            "put": _put,
            "copy": self._copy,
            "delete": _delete,
            "create": _create,
            "part": _part,
            "copy-part": self._copy_part,
            "complete": _complete,
            "abort": _abort,
        }

    def make(self, name: str) -> None:
        """Make a bucket, unless it is there."""
        with self.lock:
            self.buckets.setdefault(name, Bucket(self._least_part_bytes))

    def check(self, request: Request, regions: frozenset[str]) -> None:
        """Raise ``Refused`` for a request that is not to be carried out, whatever it asks for."""
        check_signature(request, self.keys, regions or frozenset({self.region}), time.time())
        check_body(request)
        if len(request.key.encode()) > _MOST_KEY_BYTES:
            raise Refused(400, "KeyTooLongError")

    def answer(self, request: Request) -> Answer:
        """Carry a checked request out."""
        verb = request.verb
        if verb == "make-bucket":
            self.make(request.bucket)
            return Answer(headers={"Location": f"/{request.bucket}"})
        if verb not in self._verbs:
            raise Refused(405, "MethodNotAllowed", f"{request.method} {request.path}?{request.query}")
        with self.lock:
            bucket = self._bucket(request.bucket)
            if verb in ("put", "complete"):
                _check_conditions(bucket, request, self._conditions)
            return self._verbs[verb](bucket, request)

    def _bucket(self, name: str) -> Bucket:
        if name not in self.buckets:
            raise Refused(404, "NoSuchBucket")
        return self.buckets[name]

    def _copy(self, bucket: Bucket, request: Request) -> Answer:
        source = self._origin(request)
        replace = request.headers.get("x-amz-metadata-directive", "COPY") == "REPLACE"
        copied = Stored.of(source.data, _kept(request) if replace else source.headers)
        bucket.objects[request.key] = copied
        texts = {"LastModified": _iso(copied.modified), "ETag": f'"{copied.etag}"'}
        return _xml(document("CopyObjectResult", texts))

    def _copy_part(self, bucket: Bucket, request: Request) -> Answer:
        upload = bucket.upload(request.parameters["uploadId"], request.key)
        data = self._origin(request).data
        span = _span(request.headers.get("x-amz-copy-source-range", ""), len(data)) or (0, len(data))
        part = bucket.part(upload, _number(request), data[slice(*span)])
        texts = {"LastModified": _iso(part.modified), "ETag": f'"{part.etag}"'}
        return _xml(document("CopyPartResult", texts))

    def _origin(self, request: Request) -> Stored:
        """Return what is copied, if it is the version that is asked for."""
        name, _, key = unquote(request.headers["x-amz-copy-source"]).removeprefix("/").partition("/")
        source = self._bucket(name).find(key)
        _check_version(source, request.headers.get("x-amz-copy-source-if-match", "*"))
        return source


def _get(bucket: Bucket, request: Request) -> Answer:
    found = bucket.find(request.key)
    _check_version(found, request.headers.get("if-match", "*"))
    headers = {
        **found.headers,
        "ETag": f'"{found.etag}"',
        "Last-Modified": formatdate(found.modified, usegmt=True),
        "Accept-Ranges": "bytes",
    }
    size = len(found.data)
    span = _span(request.headers.get("range", ""), size)
    if span is None:
        if request.headers.get("x-amz-checksum-mode", "").upper() == "ENABLED":
            headers["x-amz-checksum-crc32"] = base64.b64encode(zlib.crc32(found.data).to_bytes(4, "big")).decode()
        return Answer(200, headers, found.data)
    start, stop = span
    headers["Content-Range"] = f"bytes {start}-{stop - 1}/{size}"
    return Answer(206, headers, found.data[start:stop])


def _span(header: str, size: int) -> tuple[int, int] | None:
    """Return what a Range asks for, half-open; None for the whole, also where it is not understood (RFC 9110)."""
    form = _RANGE.fullmatch(header)
    if form is None or form.groups() == ("", ""):
        return None
    first, last = form.groups()
    start, stop = (int(first), int(last or size) + bool(last)) if first else (max(0, size - int(last)), size)
    if start >= size or start >= stop:
        raise Refused(416, "InvalidRange")
    return start, min(stop, size)


def _check_conditions(bucket: Bucket, request: Request, how: str) -> None:
    """Raise ``Refused`` unless a write's conditions hold."""
    new, old = request.headers.get("if-none-match", ""), request.headers.get("if-match", "")
    if how == "refused" and (new or old):
        raise Refused(501, "NotImplemented", "a header you provided implies functionality that is not implemented")
    if how in ("ignored", "refused") or (how == "bare" and request.verb == "complete"):
        return
    if new == "*" and request.key in bucket.objects:
        raise Refused(412, "PreconditionFailed")
    if old:
        _check_version(bucket.find(request.key), old, bare=how == "bare")


def _put(bucket: Bucket, request: Request) -> Answer:
    stored = bucket.objects[request.key] = Stored.of(bytes(request.body), _kept(request))
    return Answer(headers={"ETag": f'"{stored.etag}"'})


def _delete(bucket: Bucket, request: Request) -> Answer:
    bucket.objects.pop(request.key, None)
    return Answer(204)


def _list(bucket: Bucket, request: Request) -> Answer:
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
    rows = [_element("Contents", _entry(show(key), stored)) for key, stored in page.entries]
    rows += [_element("CommonPrefixes", {"Prefix": show(each)}) for each in page.prefixes]
    return _xml(document("ListBucketResult", texts, "".join(rows)))


def _entry(key: str, stored: Stored) -> dict[str, str]:
    shown = {"Key": key, "LastModified": _iso(stored.modified), "ETag": f'"{stored.etag}"'}
    return {**shown, "Size": str(len(stored.data)), "StorageClass": "STANDARD"}


def _uploads(bucket: Bucket, request: Request) -> Answer:
    prefix = request.parameters.get("prefix", "")
    url = request.parameters.get("encoding-type") == "url"
    show = (lambda key: quote(key, safe="/-_.~")) if url else str
    rows = [
        _element("Upload", {"Key": show(upload.key), "UploadId": name, "Initiated": _iso(upload.began)})
        for name, upload in sorted(bucket.uploads.items(), key=lambda item: (item[1].key.encode(), item[1].began))
        if upload.key.startswith(prefix)
    ]
    texts = {"Bucket": request.bucket, "Prefix": show(prefix), "IsTruncated": "false"}
    return _xml(document("ListMultipartUploadsResult", texts | ({"EncodingType": "url"} if url else {}), "".join(rows)))


def _create(bucket: Bucket, request: Request) -> Answer:
    name = bucket.create(request.key, _kept(request))
    texts = {"Bucket": request.bucket, "Key": request.key, "UploadId": name}
    return _xml(document("InitiateMultipartUploadResult", texts))


def _part(bucket: Bucket, request: Request) -> Answer:
    upload = bucket.upload(request.parameters["uploadId"], request.key)
    part = bucket.part(upload, _number(request), bytes(request.body))
    return Answer(headers={"ETag": f'"{part.etag}"'})


def _number(request: Request) -> int:
    number = request.parameters.get("partNumber", "")
    return int(number) if number.isdigit() else 0


def _complete(bucket: Bucket, request: Request) -> Answer:
    stored = bucket.complete(request.parameters["uploadId"], request.key, _listed(request.body))
    texts = {"Bucket": request.bucket, "Key": request.key, "ETag": f'"{stored.etag}"'}
    return _xml(document("CompleteMultipartUploadResult", texts))


def _listed(body: bytearray) -> list[tuple[int, str]]:
    try:
        parts = [{child.tag.rpartition("}")[2]: child.text or "" for child in part} for part in ET.fromstring(body)]  # noqa: S314  a test server on loopback
        return [(int(part["PartNumber"]), part["ETag"].strip('"')) for part in parts]
    except (ET.ParseError, KeyError, ValueError):
        raise Refused(400, "MalformedXML") from None


def _abort(bucket: Bucket, request: Request) -> Answer:
    name = request.parameters["uploadId"]
    bucket.upload(name, request.key)
    del bucket.uploads[name]
    return Answer(204)


def _check_version(found: Stored, wanted: str, *, bare: bool = False) -> None:
    if wanted != "*" and (wanted if bare else wanted.strip('"')) != found.etag:
        raise Refused(412, "PreconditionFailed")


def _kept(request: Request) -> dict[str, str]:
    return {name: value for name, value in request.headers.items() if name in _KEPT or name.startswith("x-amz-meta-")}


def _xml(body: bytes) -> Answer:
    return Answer(headers={"Content-Type": "application/xml"}, body=body)


def _element(name: str, texts: dict[str, str]) -> str:
    return document(name, texts).decode().partition("\n")[2]


def _iso(seconds: float) -> str:
    return time.strftime("%Y-%m-%dT%H:%M:%S.000Z", time.gmtime(seconds))
