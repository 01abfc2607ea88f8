"""The S3 dialect, spoken by AWS, MinIO, Ceph, R2 and most others: verbs to signed requests, responses to results."""

from __future__ import annotations

import re
from base64 import b64encode
from contextlib import suppress
from dataclasses import dataclass
from email.errors import HeaderParseError
from email.header import decode_header, make_header
from functools import partial
from hashlib import sha256
from html import escape as html_escape
from typing import TYPE_CHECKING
from urllib.parse import quote, urlsplit
from zlib import crc32

from penstock.drivers.answers import bare, page, seconds, text_of, uploads
from penstock.drivers.faults import CODES, refused, region_of
from penstock.drivers.signing import EMPTY_SHA256, UNSIGNED, Signer, escape, query_string, trimmed
from penstock.errors import (
    AlreadyExists,
    Changed,
    ChecksumMismatch,
    Damaged,
    PreconditionFailed,
    Transient,
    Truncated,
    Unusable,
)
from penstock.protocols.driver import RANGE_IGNORED, Abilities, Payload
from penstock.protocols.exchange import Exchange, Request
from penstock.values import ObjectMeta

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from penstock.errors import Conflict, PenstockError
    from penstock.protocols.credentials import Identity
    from penstock.protocols.driver import Attributes, Part
    from penstock.protocols.exchange import Response
    from penstock.target import Target
    from penstock.values import Page, Span, Uploads

__all__ = ["S3", "Bucket"]

_META = "x-amz-meta-"
_CHECKED = {"x-amz-checksum-mode": "ENABLED"}
# What AWS's tools send by default; each further one would cost every read a look. Digests of multipart objects
# ("…-3") are not over the bytes.
_DIGESTS: dict[str, Callable[[memoryview | bytes], bytes]] = {
    "x-amz-checksum-crc32": lambda body: crc32(body).to_bytes(4, "big"),
}
_READ_WANTS = ("etag", "content-range")
_WHOLE_WANTS = ("etag", *_DIGESTS)
_EXPIRED = ("ExpiredToken", "InvalidToken", "RequestExpired", "TokenRefreshRequired")
_MENDED = 3  # attempts that what was changed is given to work: new credentials may take a moment to come
_OTHER = "the object is no longer the one that was listed or opened"
_TAKEN = "there is an object already, and only a new one was to be written"
_UNMET: dict[str, tuple[type[Conflict], str]] = {
    "read": (Changed, _OTHER),
    "copy": (Changed, _OTHER),
    "replace": (PreconditionFailed, "the object is no longer the one that was to be replaced"),
}
_RANGE = re.compile(r"bytes (\d+)-\d+/(\d+|\*)").fullmatch
# A weak tag never matches If-Match; anything but printable ASCII could smuggle a header. Both are compared afterwards.
_STRONG = re.compile(r"(?!W/)[!#-~]+").fullmatch
_PLAIN = re.compile(r"[A-Za-z0-9/_.~-]+").fullmatch  # keys that need no escaping: nearly all


@dataclass(frozen=True, slots=True)
class Bucket:
    """Where a bucket is.

    Attributes:
        name: The bucket.
        endpoint: ``scheme://host[:port]`` of the service; None for AWS's own, which depends on the region.
        virtual: Address it as ``name.host`` and not as ``host/name``.

    """

    name: str
    endpoint: str | None
    virtual: bool


class S3:
    """One bucket in the S3 dialect; see ``protocols.driver`` for the verbs' contract. Each verb is one request."""

    abilities = Abilities()

    def __init__(self, bucket: Bucket, region: str, identity: Identity) -> None:
        """Speak to ``bucket`` as ``identity``; another region than ``region`` is followed when a server names it."""
        self._bucket = bucket
        self._base = "/" if bucket.virtual else f"/{bucket.name}/"
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
        return f"s3://{self._bucket.name}/{key}"

    def head(self, key: str) -> Exchange[ObjectMeta]:
        """Describe one object."""

        def parse(response: Response) -> ObjectMeta:
            headers = self._answer(response, "look up", key)
            return ObjectMeta(
                key=key,
                size=self._length(headers, key),
                etag=bare(headers.get("etag", "")),
                modified=seconds(headers.get("last-modified", "")),
                metadata=_metadata(headers),
                content_type=headers.get("content-type", ""),
            )

        return Exchange(self._request("HEAD", key), parse)

    def list(self, prefix: str, *, token: str = "", start_after: str = "", delimiter: str = "") -> Exchange[Page]:
        """List one page of at most 1,000 keys; escaped by the server, since XML cannot hold every key."""
        query = {"list-type": "2", "prefix": prefix, "encoding-type": "url"}
        optional = {"continuation-token": token, "start-after": start_after, "delimiter": delimiter}
        query |= {name: value for name, value in optional.items() if value}

        def parse(response: Response) -> Page:
            self._answer(response, "list", prefix)
            return page(response.body, self.url(prefix))

        return Exchange(self._request("GET", "", query=query), parse)

    def read(self, span: Span, target: Target) -> Exchange[int]:
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

    def _arrived(self, span: Span, target: Target, response: Response) -> int:
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
        return response.received

    def get(self, key: str, etag: str) -> Exchange[bytes]:
        """Read a whole object whose size is not known."""

        def parse(response: Response) -> bytes:
            headers = self._answer(response, "read", key)
            self._same_version(response, etag, key)
            body = response.body if isinstance(response.body, bytes) else b""
            if "chunked" not in headers.get("transfer-encoding", "") and len(body) != self._length(headers, key):
                raise Transient("the body ended early", url=self.url(key))
            self._same_digest(response, body, key)
            return body

        headers = {**_CHECKED, "if-match": f'"{etag}"'} if _STRONG(etag) else _CHECKED
        return Exchange(self._request("GET", key, headers=headers), parse)

    def put(self, key: str, body: Payload, attributes: Attributes) -> Exchange[str]:
        """Write one object in one request."""
        new, old = attributes.create_only, attributes.replaces
        headers = _described(attributes) | self._condition(create_only=new, replaces=old)
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
            return self._tagged("copy", source if response.status in (404, 412) else key)(response)

        return Exchange(self._request("PUT", key, query=query, headers=headers), parse)

    def create(self, key: str, attributes: Attributes) -> Exchange[str]:
        """Open an upload; returns its id."""

        def parse(response: Response) -> str:
            self._answer(response, "begin an upload to", key)
            upload = text_of(response.body, "UploadId", self.url(key))
            if not upload:
                raise Damaged("the server opened an upload without an id", url=self.url(key))
            return upload

        return Exchange(self._request("POST", key, query={"uploads": ""}, headers=_described(attributes)), parse)

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
        document = f"<CompleteMultipartUpload>{parts}</CompleteMultipartUpload>".encode()
        body, headers = _payload(document), self._condition(create_only=create_only, replaces=replaces)
        request = self._request("POST", key, query={"uploadId": upload}, headers=headers, body=body)
        return Exchange(request, self._tagged("replace" if replaces else "write", key))

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
            query["key-marker"], query["upload-id-marker"] = token.split("\0")

        def parse(response: Response) -> Uploads:
            self._answer(response, "list the uploads to", prefix)
            return uploads(response.body, self.url(prefix))

        return Exchange(self._request("GET", "", query=query), parse)

    def _request(
        self,
        method: str,
        key: str,
        *,
        query: Mapping[str, str] | None = None,
        headers: Mapping[str, str] | None = None,
        body: Payload | None = None,
    ) -> Request:
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

    def _tagged(self, what: str, key: str) -> Callable[[Response], str]:
        """Return a reader of answers that name the written object's ETag, in a header or in XML."""

        def parse(response: Response) -> str:
            headers = self._answer(response, what, key)
            if isinstance(response.body, bytes) and response.body.strip():
                return bare(text_of(response.body, "ETag", self.url(key)) or headers.get("etag", ""))
            return bare(headers.get("etag", ""))

        return parse

    def _gone(self, what: str, key: str) -> Callable[[Response], None]:
        def parse(response: Response) -> None:
            error = None if response.fault is None and response.status < 300 else self._fault(response, what, key)  # noqa: PLR2004  success
            if error is not None and (response.status != 404 or error.code == "NoSuchBucket"):  # noqa: PLR2004  it is gone: fine
                raise error

        return parse

    def _answer(self, response: Response, what: str, key: str) -> dict[str, str]:
        """Return the headers of a success; a 200 whose body is an ``<Error>`` is none."""
        body = response.body
        if response.fault is not None or not 200 <= response.status < 300:  # noqa: PLR2004  success
            raise self._fault(response, what, key)
        if isinstance(body, bytes) and b"<Error>" in body and what not in ("read", "list"):
            error = self._fault(response, what, key)
            raise error if error.code in CODES else Transient(error.message, url=error.url)
        return response.headers

    def _fault(self, response: Response, what: str, key: str) -> PenstockError:
        if response.status >= 300 or response.fault is None:  # noqa: PLR2004  a refusal counts even if it was cut short
            error = refused(response, what, self.url(key))
            if response.status == 412 or (what == "replace" and error.code == "NoSuchKey"):  # noqa: PLR2004  a condition
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
        length = headers.get("content-length", "")
        if not length.isdigit():  # libcurl takes whatever comes until the connection closes for the whole body then
            raise Damaged("the server does not say how long the object is", url=self.url(key))
        return int(length)

    def _same_size(self, response: Response, size: int, key: str) -> None:
        length = response.headers.get("content-length", "")
        if response.overflow or (length.isdigit() and int(length) != size):
            raise Changed(f"the object has {length or 'more'} bytes and was listed with {size}", url=self.url(key))

    def _same_range(self, response: Response, start: int, stop: int, key: str) -> None:
        found = response.headers.get("content-range", "")
        if not found and response.status == 200:  # noqa: PLR2004  the whole object instead of the range
            ignored = Unusable("this server ignores Range: objects can only be read whole", url=self.url(key))
            ignored.code = RANGE_IGNORED
            raise ignored
        match = _RANGE(found)
        if match is None or int(match[1]) != start:
            raise Damaged(f"asked for bytes {start}-{stop - 1}, the server sent {found!r}", url=self.url(key))
        if match[2] != "*" and int(match[2]) < stop:
            raise Truncated(f"the object has {match[2]} bytes, {stop} were asked for", url=self.url(key))


def _payload(document: bytes) -> Payload:
    return Payload(document, sha256(document).hexdigest())


def _described(attributes: Attributes) -> dict[str, str]:
    headers = {"content-type": attributes.content_type}
    for name, value in attributes.metadata.items():
        if not name.isascii():
            raise Unusable(f"names of metadata are ASCII, not {name!r}")
        # Headers hold bytes: UTF-8, as stores read them, spelled as the transport sends headers.
        headers[f"{_META}{name.lower()}"] = value.encode().decode("latin-1")
    return headers


def _metadata(headers: Mapping[str, str]) -> dict[str, str]:
    """Return metadata as it was given: AWS answers what is not ASCII in MIME's encoded words, others in plain UTF-8."""
    said = {name[len(_META) :]: value for name, value in headers.items() if name.startswith(_META)}
    for name, value in said.items():
        with suppress(HeaderParseError, LookupError, ValueError):  # whatever else it is, it stays as it came
            if value.startswith("=?"):
                said[name] = str(make_header(decode_header(value)))
            elif not value.isascii():
                said[name] = value.encode("latin-1").decode()
    return said


def _aws(region: str) -> str:
    suffix = "amazonaws.com.cn" if region.startswith("cn-") else "amazonaws.com"
    return f"https://s3.{region}.{suffix}"
