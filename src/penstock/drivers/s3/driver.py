"""The S3 dialect, spoken by AWS, MinIO, Ceph, R2 and most others: verbs to signed requests, responses to results."""

from __future__ import annotations

import re
from base64 import b64encode
from contextlib import contextmanager
from dataclasses import dataclass, replace
from functools import partial
from hashlib import sha256
from html import escape as html_escape
from typing import TYPE_CHECKING
from urllib.parse import quote, urlsplit
from zlib import crc32

from penstock.drivers.direct import beyond
from penstock.drivers.http.codes import CODES, refused, region_of
from penstock.drivers.http.metadata import described, metadata
from penstock.drivers.http.xml import bare, document, name_of, page, seconds, size_of, texts, uploads
from penstock.drivers.s3.signing import EMPTY_SHA256, UNSIGNED, Signer, escape, query_string, trimmed
from penstock.errors import (
    AlreadyExists,
    Changed,
    ChecksumMismatch,
    Damaged,
    InvalidURL,
    PreconditionFailed,
    Transient,
    Truncated,
    Unusable,
)
from penstock.protocols.driver import RANGE_IGNORED, UNKNOWN_BYTES, Abilities, Payload
from penstock.protocols.exchange import Exchange, Request
from penstock.values import ObjectMeta

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping, Sequence
    from xml.etree.ElementTree import Element

    from penstock.buffer import Buffer
    from penstock.errors import Conflict, PenstockError
    from penstock.protocols.credentials import Identity
    from penstock.protocols.driver import Attributes, Part
    from penstock.protocols.exchange import Response
    from penstock.values import Page, Span, Uploads

__all__ = ["S3", "Bucket"]

_CHECKED = {"x-amz-checksum-mode": "ENABLED"}
# What AWS's tools send by default; each further one would cost every read a look. Digests of multipart objects
# ("…-3") are not over the bytes.
_DIGESTS: dict[str, Callable[[memoryview | bytes], bytes]] = {
    "x-amz-checksum-crc32": lambda body: crc32(body).to_bytes(4, "big"),
}
_READ_WANTS = ("etag", "content-range")
_WHOLE_WANTS = ("etag", *_DIGESTS)
_LISTING_BYTES = 16 << 20  # a page: 1,000 keys of 1,024 bytes, each escaped, with all that is said of them
_EXPIRED = ("ExpiredToken", "InvalidToken", "RequestExpired", "TokenRefreshRequired")
_QUOTED = 40  # characters of a foreign name
_MENDED = 3  # attempts that what was changed is given to work: new credentials may take a moment to come
_OTHER = "the object is no longer the one that was listed or opened"
_TAKEN = "there is an object already, and only a new one was to be written"
_UNMET: dict[str, tuple[type[Conflict], str]] = {
    "read": (Changed, _OTHER),
    "copy": (Changed, _OTHER),
    "replace": (PreconditionFailed, "the object is no longer the one that was to be replaced"),
}
_RANGE = re.compile(r"bytes ([0-9]{1,19})-[0-9]{1,19}/([0-9]{1,19}|\*)").fullmatch
# A weak tag never matches If-Match; anything but printable ASCII could smuggle a header. Both are compared afterwards.
_STRONG = re.compile(r"(?!W/)[!#-~]+").fullmatch
_PLAIN = re.compile(r"[A-Za-z0-9/_.~-]+").fullmatch  # keys that need no escaping: nearly all


@dataclass(frozen=True, slots=True)
class Bucket:
    """Where a bucket is.

    Attributes:
        name: The bucket.
        endpoint: ``scheme://host[:port][/path]`` of the service; None for AWS's own, which depends on the region.
        virtual: Address it as ``name.host/path`` and not as ``host/path/name``.
        scheme: Of its objects' URLs, in messages.

    """

    name: str
    endpoint: str | None
    virtual: bool
    scheme: str = "s3"


class S3:
    """One bucket in the S3 dialect; see ``protocols.driver`` for the verbs' contract. Each verb is one request."""

    abilities = Abilities(ranges=None)

    def __init__(self, bucket: Bucket, region: str, identity: Identity) -> None:
        """Speak to ``bucket`` as ``identity``; another region than ``region`` is followed when a server names it."""
        self._bucket = bucket
        path = urlsplit(bucket.endpoint or "").path
        self._base = f"{path}/" if bucket.virtual else f"{path}/{bucket.name}/"
        self._identity = identity
        self.prepare = identity.refresh_if_due
        self._settle(region)

    def _settle(self, region: str) -> None:
        scheme, host = urlsplit(self._bucket.endpoint or _aws(region))[:2]
        host = f"{self._bucket.name}.{host}" if self._bucket.virtual else host
        self._region = region
        self._origin = f"{scheme}://{host}"
        self._sign = Signer(host, region, self._identity.current).sign

    def url(self, key: str) -> str:
        """Return ``s3://bucket/key``."""
        return f"{self._bucket.scheme}://{self._bucket.name}/{key}"

    def head(self, key: str) -> Exchange[ObjectMeta]:
        """Describe one object."""

        def parse(response: Response) -> ObjectMeta:
            headers = self._answer(response, "look up", key)
            return ObjectMeta(
                key=key,
                size=self._length(headers, key),
                etag=bare(headers.get("etag", "")),
                modified=seconds(headers.get("last-modified", "")),
                metadata=metadata(headers),
                content_type=headers.get("content-type", ""),
            )

        return Exchange(self._request("HEAD", key), parse)

    def list(self, prefix: str, *, token: str = "", start_after: str = "", delimiter: str = "") -> Exchange[Page]:
        """List one page of at most 1,000 keys; escaped by the server, since XML cannot hold every key."""
        query = {"list-type": "2", "prefix": prefix, "encoding-type": "url"}
        optional = {"continuation-token": token, "start-after": start_after, "delimiter": delimiter}
        query |= {name: value for name, value in optional.items() if value}

        def parse(response: Response) -> Page:
            with self._named(prefix):
                return page(self._document(response, "list", prefix, "ListBucketResult"))

        return Exchange(self._listing(query), parse)

    def read(self, span: Span, target: Buffer) -> Exchange[int]:
        """Read one span; no ``Range`` is sent where it is the whole object, and a HEAD where it is empty."""
        key, start, _, etag, whole = span
        method, headers = "GET", {}
        if whole:
            headers.update(_CHECKED)
        elif target.size:
            headers["range"] = f"bytes={start}-{start + target.size - 1}"
        else:
            method = "HEAD"  # no Range says "nothing"
        if _STRONG(etag):
            headers["if-match"] = f'"{etag}"'
        path = self._base + (key if _PLAIN(key) else escape(key))
        lines, wants = self._sign(method, path, "", headers), _WHOLE_WANTS if whole else _READ_WANTS
        request = Request(method, self._origin + path, lines, wants, target)
        return Exchange(request, partial(self._arrived, span, target))

    def _arrived(self, span: Span, target: Buffer, response: Response) -> int:
        """Verify what came for ``read``; says how many bytes of it are right."""
        key, start, _, etag, whole = span
        status = response.status
        if status not in (200, 206):
            raise self._fault(response, "read", key)
        self._same_version(response, etag, key)
        if whole:
            self._same_size(response, target.size, key)
            if response.received == target.size and not response.headers.keys().isdisjoint(_DIGESTS):
                self._same_digest(response, target.view(), key)
        elif target.size:
            if response.fault is not None and "content-range" not in response.headers:
                raise self._fault(response, "read", key)  # it broke off before it said which range
            if status == 206 or start:  # noqa: PLR2004  Partial Content
                self._same_range(response, start, start + target.size, key)
            honoured = "content-range" in response.headers
            if honoured or response.overflow:
                self._learn_ranges(honoured=honoured)
        return response.received

    def _learn_ranges(self, *, honoured: bool) -> None:
        if self.abilities.ranges is not honoured:
            self.abilities = replace(self.abilities, ranges=honoured)

    def get(self, key: str, etag: str, most_bytes: int = UNKNOWN_BYTES) -> Exchange[bytes]:
        """Read a whole object whose size is not known."""

        def parse(response: Response) -> bytes:
            if response.overflow:
                raise beyond(most_bytes, self.url(key))
            headers = self._answer(response, "read", key)
            self._same_version(response, etag, key)
            body = response.body if isinstance(response.body, bytes) else b""
            if "chunked" not in headers.get("transfer-encoding", "") and len(body) != self._length(headers, key):
                raise Transient("the body ended early", url=self.url(key))
            self._same_digest(response, body, key)
            return body

        headers = {**_CHECKED, "if-match": f'"{etag}"'} if _STRONG(etag) else _CHECKED
        request = self._request("GET", key, headers=headers)
        request.most_bytes = most_bytes
        return Exchange(request, parse)

    def put(self, key: str, body: Payload, attributes: Attributes) -> Exchange[str]:
        """Write one object in one request."""
        new, old = attributes.create_only, attributes.replaces
        headers = described(attributes) | self._condition(create_only=new, replaces=old)
        what = "replace" if old else "write"
        return Exchange(self._request("PUT", key, headers=headers, body=body), self._tagged(what, key))

    def delete(self, key: str) -> Exchange[None]:
        """Delete one object; a missing one is no error."""
        return Exchange(self._request("DELETE", key), self._gone("delete", key))

    def copy(self, source: str, key: str, etag: str = "") -> Exchange[str]:
        """Copy within the bucket, server side; objects up to 5 GiB."""
        return self._copying(key, self._origin_of(source, etag), {}, source)

    def _origin_of(self, source: str, etag: str) -> dict[str, str]:
        held = {"x-amz-copy-source-if-match": f'"{etag}"'} if _STRONG(etag) else {}
        return {"x-amz-copy-source": quote(f"{self._bucket.name}/{source}", safe="/-_.~"), **held}

    def _copying(self, key: str, headers: dict[str, str], query: dict[str, str], source: str) -> Exchange[str]:
        def parse(response: Response) -> str:
            return self._tagged("copy", source if response.status in (404, 412) else key, "CopyObjectResult")(response)

        return Exchange(self._request("PUT", key, query=query, headers=headers), parse)

    def create(self, key: str, attributes: Attributes) -> Exchange[str]:
        """Open an upload; returns its id."""

        def parse(response: Response) -> str:
            root = self._document(response, "begin an upload to", key, "InitiateMultipartUploadResult", "UploadId")
            upload = texts(root).get("UploadId", "")
            if not upload:
                raise Damaged("the server opened an upload without an id", url=self.url(key))
            return upload

        return Exchange(self._request("POST", key, query={"uploads": ""}, headers=described(attributes)), parse)

    def part(self, key: str, upload: str, part: Part, body: Payload) -> Exchange[str]:
        """Send one part."""
        query = {"partNumber": str(part.number), "uploadId": upload}
        return Exchange(self._request("PUT", key, query=query, body=body), self._tagged("write a part of", key))

    def copy_part(self, key: str, upload: str, part: Part, span: Span) -> Exchange[str]:
        """Copy a span of another object as one part."""
        headers = self._origin_of(span.key, span.etag)
        headers["x-amz-copy-source-range"] = f"bytes={span.start}-{(span.stop or 0) - 1}"
        query = {"partNumber": str(part.number), "uploadId": upload}
        return self._copying(key, headers, query, span.key)

    def complete(
        self, key: str, upload: str, etags: Sequence[str], *, create_only: bool = False, replaces: str = ""
    ) -> Exchange[str]:
        """Make the parts an object. A 200 may still be an error: this request is answered before it is done."""
        parts = "".join(
            f"<Part><PartNumber>{number}</PartNumber><ETag>&quot;{html_escape(etag)}&quot;</ETag></Part>"
            for number, etag in enumerate(etags, 1)
        )
        body = _payload(f"<CompleteMultipartUpload>{parts}</CompleteMultipartUpload>".encode())
        headers = self._condition(create_only=create_only, replaces=replaces)
        request = self._request("POST", key, query={"uploadId": upload}, headers=headers, body=body)
        what = "replace" if replaces else "write"
        return Exchange(request, self._tagged(what, key, "CompleteMultipartUploadResult"))

    def _condition(self, *, create_only: bool, replaces: str) -> dict[str, str]:
        how = self.abilities.conditions
        if how == "none":
            return {}
        if create_only:
            return {"if-none-match": "*"}
        return {"if-match": f'"{replaces}"' if how == "quoted" else replaces} if _STRONG(replaces) else {}

    def abort(self, key: str, upload: str) -> Exchange[None]:
        """Forget the upload and its parts."""
        return Exchange(self._request("DELETE", key, query={"uploadId": upload}), self._gone("abort an upload to", key))

    def uploads(self, prefix: str, *, token: str = "") -> Exchange[Uploads]:
        """List one page of unfinished uploads."""
        # Without encoding-type: Ceph 16 escapes keys when asked to, and does not say that it did.
        query = {"uploads": "", "prefix": prefix}
        if token:
            query["key-marker"], _, query["upload-id-marker"] = token.rpartition("\0")

        def parse(response: Response) -> Uploads:
            with self._named(prefix):
                what = "list the uploads to"
                return uploads(self._document(response, what, prefix, "ListMultipartUploadsResult"))

        return Exchange(self._listing(query), parse)

    def _listing(self, query: Mapping[str, str]) -> Request:
        request = self._request("GET", "", query=query)
        request.most_bytes = _LISTING_BYTES
        return request

    def _request(
        self,
        method: str,
        key: str,
        *,
        query: Mapping[str, str] | None = None,
        headers: Mapping[str, str] | None = None,
        body: Payload | None = None,
    ) -> Request:
        if not key and "prefix" not in (query or {}):
            raise InvalidURL("this names a bucket, not an object in it", url=self.url(key))
        path = self._base + escape(key)
        if not key and not self._bucket.virtual:
            path = path.rstrip("/")
        search = query_string(query) if query else ""
        digest = EMPTY_SHA256 if body is None else body.sha256 or UNSIGNED
        lines = self._sign(method, path, search, trimmed(headers or {}), digest)
        if body is None or "content-type" not in (headers or {}):
            lines = (*lines, "Content-Type:")  # libcurl would call it a form
        url = f"{self._origin}{path}?{search}" if search else self._origin + path
        return Request(method, url, (*lines, "Expect:"), body=body.data if body is not None else None)

    def _tagged(self, what: str, key: str, root: str = "") -> Callable[[Response], str]:
        """Return a reader of answers that name the written object's ETag, in a header or (with ``root``) in XML."""

        def parse(response: Response) -> str:
            etag = self._answer(response, what, key).get("etag", "")
            if root:
                etag = texts(self._document(response, what, key, root, "ETag")).get("ETag", "") or etag
            elif not etag and _said(response):
                self._document(response, what, key)
            return bare(etag)

        return parse

    def _gone(self, what: str, key: str) -> Callable[[Response], None]:
        """Return a reader of answers to deletions. A 404 is one too, from an S3 server."""

        def parse(response: Response) -> None:
            if response.fault is not None or response.status != 404:  # noqa: PLR2004  it is gone: fine
                self._answer(response, what, key)
                if _said(response):
                    self._document(response, what, key)
                return
            error = self._fault(response, what, key)
            if error.code == "NoSuchBucket" or (_said(response) and not error.code):
                raise error

        return parse

    def _answer(self, response: Response, what: str, key: str) -> dict[str, str]:
        """Return the headers of a success."""
        if response.fault is not None or not 200 <= response.status < 300:  # noqa: PLR2004  success
            raise self._fault(response, what, key)
        if response.overflow:
            raise Damaged(f"cannot {what}: the answer is longer than any that S3 gives", url=self.url(key))
        return response.headers

    def _document(self, response: Response, what: str, key: str, root: str = "", telling: str = "") -> Element:
        """Return a success's XML: the root element is ``root``, or has a child ``telling`` (servers differ in names).

        A 200 whose body is an ``<Error>`` is that error, and another document no S3 server's answer.
        """
        self._answer(response, what, key)
        with self._named(key):
            found = document(response.body)
            name = name_of(found)
            if name == "Error":
                error = self._fault(response, what, key)
                raise error if error.code in CODES else Transient(error.message, url=error.url)
            if name != root and not (telling and texts(found).get(telling)):
                message = f"cannot {what}: the server answers <{name[:_QUOTED]}> where <{root}> was expected"
                message = message if root else f"cannot {what}: the server answers <{name[:_QUOTED]}>"
                raise Damaged(f"{message}: this is no S3 server's answer, check endpoint=")
        return found

    @contextmanager
    def _named(self, key: str) -> Iterator[None]:
        try:
            yield
        except Damaged as error:
            error.url = error.url or self.url(key)
            raise

    def _fault(self, response: Response, what: str, key: str) -> PenstockError:
        if response.status >= 300 or response.fault is None:  # noqa: PLR2004  a refusal counts even if it was cut short
            error = refused(response, what, self.url(key))
            unmet = response.status == 412 or isinstance(error, PreconditionFailed)  # noqa: PLR2004  a condition
            if unmet or (what == "replace" and error.code == "NoSuchKey"):
                kind, message = _UNMET.get(what, (AlreadyExists, _TAKEN))
                return kind(message, url=error.url)
            self._mend(error, response)
            return error
        response.fault.url = response.fault.url or self.url(key)
        return response.fault

    def _mend(self, error: PenstockError, response: Response) -> None:
        """Change what another attempt may succeed with: expired credentials, the wrong region."""
        credentials, region = self._identity.current(), region_of(response)
        # An answer to HEAD has no body, so what is the matter with temporary credentials stays open.
        bare_refusal = not error.code and response.status in (400, 403) and credentials and credentials.token
        if error.code in _EXPIRED or (bare_refusal and not region):
            self._identity.renew()
            error.retries = _MENDED
        elif region and response.status in (301, 307, 400):
            if region != self._region:  # the first of many in flight is told first; all of them try again
                self._settle(region)
            error.retries = _MENDED

    def _same_version(self, response: Response, etag: str, key: str) -> None:
        found = response.headers.get("etag", "")
        if etag and found and found != f'"{etag}"' and bare(found) not in ("", etag):
            raise Changed(_OTHER, url=self.url(key))

    def _same_digest(self, response: Response, body: memoryview | bytes, key: str) -> None:
        """Compare with the store's own digest of the object, where it gives one that the standard library knows."""
        for name, digest in _DIGESTS.items():
            stored = response.headers.get(name, "")
            if stored and "-" not in stored and b64encode(digest(body)).decode() != stored:
                raise ChecksumMismatch(f"the bytes do not match the store's {name}", url=self.url(key))

    def _length(self, headers: Mapping[str, str], key: str) -> int:
        length = size_of(headers.get("content-length", ""))
        if length is None:  # libcurl takes whatever comes until the connection closes for the whole body then
            raise Damaged("the server does not say how long the object is", url=self.url(key))
        return length

    def _same_size(self, response: Response, size: int, key: str) -> None:
        length = size_of(response.headers.get("content-length", ""))
        if response.overflow or length not in (None, size):
            raise Changed(
                f"the object has {'more' if length is None else length} bytes and was listed with {size}",
                url=self.url(key),
            )

    def _same_range(self, response: Response, start: int, stop: int, key: str) -> None:
        found = response.headers.get("content-range", "")
        if not found and response.status == 200:  # noqa: PLR2004  the whole object instead of the range
            self._learn_ranges(honoured=False)
            ignored = Unusable("this server ignores Range: objects can only be read whole", url=self.url(key))
            ignored.code = RANGE_IGNORED
            raise ignored
        match = _RANGE(found)
        if match is None or int(match[1]) != start:
            raise Damaged(f"asked for bytes {start}-{stop - 1}, the server sent {found[:_QUOTED]!r}", url=self.url(key))
        if match[2] != "*" and int(match[2]) < stop:
            raise Truncated(f"the object has {match[2]} bytes, {stop} were asked for", url=self.url(key))


def _said(response: Response) -> bool:
    """Say whether there is a body where there need not be one."""
    return isinstance(response.body, bytes) and bool(response.body.strip())


def _payload(body: bytes) -> Payload:
    return Payload(body, sha256(body).hexdigest())


def _aws(region: str) -> str:
    suffix = "amazonaws.com.cn" if region.startswith("cn-") else "amazonaws.com"
    return f"https://s3.{region}.{suffix}"
