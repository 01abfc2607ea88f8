"""The S3 dialect, spoken by AWS, MinIO, Ceph, R2 and most others: verbs to signed requests, responses to results."""

from __future__ import annotations

import re
from dataclasses import dataclass
from datetime import datetime
from email.utils import parsedate_to_datetime
from hashlib import sha256
from typing import TYPE_CHECKING
from urllib.parse import quote, unquote_plus, urlsplit
from xml.etree import ElementTree as ET
from xml.sax.saxutils import escape as xml_escape

from penstock.drivers.faults import CODES, refused
from penstock.drivers.signing import EMPTY_SHA256, UNSIGNED, Signer, escape, query_string
from penstock.errors import Changed, Damaged, Transient, Truncated, Unusable
from penstock.protocols.driver import Abilities, Payload
from penstock.protocols.exchange import Exchange, Request
from penstock.values import ObjectMeta, Page

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from penstock.errors import PenstockError
    from penstock.protocols.credentials import Credentials
    from penstock.protocols.driver import Part
    from penstock.protocols.exchange import Response
    from penstock.target import Target
    from penstock.values import Span

__all__ = ["S3", "Bucket"]

_META = "x-amz-meta-"
_READ_WANTS = ("etag", "content-range")
_WHOLE_WANTS = ("etag", "content-length")
_RANGE = re.compile(r"bytes (\d+)-\d+/(\d+|\*)").fullmatch
_PLAIN = re.compile(r"[A-Za-z0-9/_.~-]+").fullmatch  # keys that need no escaping: nearly all


@dataclass(frozen=True, slots=True)
class Bucket:
    """Where a bucket is.

    Attributes:
        name: The bucket.
        endpoint: ``scheme://host[:port]`` of the service.
        virtual: Address it as ``name.host`` and not as ``host/name``.

    """

    name: str
    endpoint: str
    virtual: bool


class S3:
    """One bucket in the S3 dialect; see ``protocols.driver`` for the verbs' contract. Each verb is one request."""

    abilities = Abilities()

    def __init__(
        self, bucket: Bucket, region: str, credentials: Callable[[], Credentials | None], prepare: Callable[[], None]
    ) -> None:
        """Speak to ``bucket``; ``credentials`` never blocks, ``prepare`` may (it refreshes them)."""
        scheme, host = urlsplit(bucket.endpoint)[:2]
        host = f"{bucket.name}.{host}" if bucket.virtual else host
        self._bucket = bucket
        self._origin = f"{scheme}://{host}"
        self._base = "/" if bucket.virtual else f"/{bucket.name}/"
        self._sign = Signer(host, region, credentials).sign
        self.prepare = prepare

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
                etag=_bare(headers.get("etag", "")),
                modified=_seconds(headers.get("last-modified", "")),
                metadata={name[len(_META) :]: value for name, value in headers.items() if name.startswith(_META)},
            )

        return Exchange(self._request("HEAD", key), parse)

    def list(self, prefix: str, *, token: str = "", start_after: str = "", delimiter: str = "") -> Exchange[Page]:
        """List one page of at most 1,000 keys; escaped by the server, since XML cannot hold every key."""
        query = {"list-type": "2", "prefix": prefix, "encoding-type": "url"}
        optional = {"continuation-token": token, "start-after": start_after, "delimiter": delimiter}
        query |= {name: value for name, value in optional.items() if value}

        def parse(response: Response) -> Page:
            self._answer(response, "list", prefix)
            return _page(response.body, self.url(prefix))

        return Exchange(self._request("GET", "", query=query), parse)

    def read(self, span: Span, target: Target) -> Exchange[int]:
        """Read one span; no ``Range`` is sent where it is the whole object, and a HEAD where it is empty."""
        key, start, _, etag, whole = span
        headers, method = {}, "GET"
        if not whole and target.size:
            headers["range"] = f"bytes={start}-{start + target.size - 1}"
        elif not whole:
            method = "HEAD"  # no Range says "nothing"
        if etag and etag[0] != "W":  # a weak tag never matches If-Match
            headers["if-match"] = f'"{etag}"'
        path = self._base + (key if _PLAIN(key) else escape(key))
        lines = self._sign(method, path, "", headers)
        ranged = "range" in headers
        request = Request(method, self._origin + path, lines, _READ_WANTS if ranged else _WHOLE_WANTS, target)

        def parse(response: Response) -> int:
            status = response.status
            if status not in (200, 206):
                raise self._fault(response, "read", key)
            self._same_version(response, etag, key)
            if ranged and (status == 206 or start):  # noqa: PLR2004  Partial Content
                self._same_range(response, start, start + target.size, key)
            elif whole:
                self._same_size(response, target.size, key)
            return response.received

        return Exchange(request, parse)

    def get(self, key: str, etag: str) -> Exchange[bytes]:
        """Read a whole object whose size is not known."""

        def parse(response: Response) -> bytes:
            headers = self._answer(response, "read", key)
            self._same_version(response, etag, key)
            body = response.body if isinstance(response.body, bytes) else b""
            if "chunked" not in headers.get("transfer-encoding", "") and len(body) != self._length(headers, key):
                raise Transient("the body ended early", url=self.url(key))
            return body

        headers = {"if-match": f'"{etag}"'} if etag and etag[0] != "W" else {}
        return Exchange(self._request("GET", key, headers=headers), parse)

    def put(self, key: str, body: Payload, *, content_type: str, metadata: Mapping[str, str]) -> Exchange[str]:
        """Write one object in one request."""
        headers = {"content-type": content_type, **_meta_headers(metadata)}
        return Exchange(self._request("PUT", key, headers=headers, body=body), self._tagged("write", key))

    def delete(self, key: str) -> Exchange[None]:
        """Delete one object; a missing one is no error."""
        return Exchange(self._request("DELETE", key), self._gone("delete", key))

    def copy(self, source: str, key: str) -> Exchange[str]:
        """Copy within the bucket, server side; objects up to 5 GiB."""
        headers = {"x-amz-copy-source": quote(f"/{self._bucket.name}/{source}", safe="/-_.~")}

        def parse(response: Response) -> str:
            return self._tagged("copy", source if response.status == 404 else key)(response)  # noqa: PLR2004  not found

        return Exchange(self._request("PUT", key, headers=headers), parse)

    def create(self, key: str, *, content_type: str, metadata: Mapping[str, str]) -> Exchange[str]:
        """Open an upload; returns its id."""
        headers = {"content-type": content_type, **_meta_headers(metadata)}

        def parse(response: Response) -> str:
            self._answer(response, "begin an upload to", key)
            upload = _texts(_xml(response.body, self.url(key))).get("UploadId", "")
            if not upload:
                raise Damaged("the server opened an upload without an id", url=self.url(key))
            return upload

        return Exchange(self._request("POST", key, query={"uploads": ""}, headers=headers), parse)

    def part(self, key: str, upload: str, part: Part, body: Payload) -> Exchange[str]:
        """Send one part."""
        query = {"partNumber": str(part.number), "uploadId": upload}
        return Exchange(self._request("PUT", key, query=query, body=body), self._tagged("write a part of", key))

    def complete(self, key: str, upload: str, etags: Sequence[str]) -> Exchange[str]:
        """Make the parts an object. A 200 may still be an error: this request is answered before it is done."""
        parts = "".join(
            f"<Part><PartNumber>{number}</PartNumber><ETag>&quot;{xml_escape(etag)}&quot;</ETag></Part>"
            for number, etag in enumerate(etags, 1)
        )
        document = f"<CompleteMultipartUpload>{parts}</CompleteMultipartUpload>".encode()
        return Exchange(
            self._request("POST", key, query={"uploadId": upload}, body=_payload(document)),
            self._tagged("complete", key),
        )

    def abort(self, key: str, upload: str) -> Exchange[None]:
        """Forget the upload and its parts."""
        return Exchange(self._request("DELETE", key, query={"uploadId": upload}), self._gone("abort an upload to", key))

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
        lines = self._sign(method, path, search, headers or {}, digest)
        if body is None or "content-type" not in (headers or {}):
            lines = (*lines, "Content-Type:")  # libcurl would call it a form
        url = f"{self._origin}{path}?{search}" if search else self._origin + path
        return Request(method, url, (*lines, "Expect:"), body=body.data if body is not None else None)

    def _tagged(self, what: str, key: str) -> Callable[[Response], str]:
        """Return a reader of answers that name the written object's ETag, in a header or in XML."""

        def parse(response: Response) -> str:
            headers = self._answer(response, what, key)
            if isinstance(response.body, bytes) and response.body.strip():
                texts = _texts(_xml(response.body, self.url(key)))
                if "ETag" in texts:
                    return _bare(texts["ETag"])
            return _bare(headers.get("etag", ""))

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
            if response.status == 412 and what == "read":  # noqa: PLR2004  the If-Match that pins the version
                return Changed("the object is no longer the one that was listed or opened", url=self.url(key))
            return error
        response.fault.url = response.fault.url or self.url(key)
        return response.fault

    def _same_version(self, response: Response, etag: str, key: str) -> None:
        found = _bare(response.headers.get("etag", ""))
        if etag and found and found != etag:
            raise Changed("the object is no longer the one that was listed or opened", url=self.url(key))

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
            raise Unusable("this server ignores Range: objects can only be read whole", url=self.url(key))
        match = _RANGE(found)
        if match is None or int(match[1]) != start:
            raise Damaged(f"asked for bytes {start}-{stop - 1}, the server sent {found!r}", url=self.url(key))
        if match[2] != "*" and int(match[2]) < stop:
            raise Truncated(f"the object has {match[2]} bytes, {stop} were asked for", url=self.url(key))


def _payload(document: bytes) -> Payload:
    return Payload(document, sha256(document).hexdigest())


def _bare(etag: str) -> str:
    """Strip the quotes of a strong tag; a weak one keeps its mark."""
    etag = etag.strip()
    return etag.replace('"', "")


def _meta_headers(metadata: Mapping[str, str]) -> dict[str, str]:
    return {f"{_META}{name.lower()}": value for name, value in metadata.items()}


def _seconds(date: str) -> float | None:
    try:
        return parsedate_to_datetime(date).timestamp() if date else None
    except ValueError:
        return None


def _xml(body: object, url: str) -> ET.Element:
    try:
        return ET.fromstring(body.strip() if isinstance(body, bytes) else b"")  # noqa: S314  expat >= 2.4.1 bounds entity expansion
    except ET.ParseError as error:
        raise Damaged(f"the server's answer is no XML ({error})", url=url) from None


def _texts(element: ET.Element) -> dict[str, str]:
    """Return the text of an element's children by local name: namespaces differ from server to server."""
    return {child.tag.rpartition("}")[2]: child.text or "" for child in element}


def _page(body: object, url: str) -> Page:
    root = _xml(body, url)
    texts = _texts(root)
    decode = unquote_plus if texts.get("EncodingType") == "url" else str
    entries, prefixes = [], []
    for child in root:
        name = child.tag.rpartition("}")[2]
        if name == "Contents":
            entry = _texts(child)
            size, etag = int(entry.get("Size", "0")), _bare(entry.get("ETag", ""))
            entries.append(ObjectMeta(decode(entry["Key"]), size, etag, _iso_seconds(entry.get("LastModified", ""))))
        elif name == "CommonPrefixes":
            prefixes.append(decode(_texts(child)["Prefix"]))
    token = texts.get("NextContinuationToken", "") if texts.get("IsTruncated") == "true" else ""
    if texts.get("IsTruncated") == "true" and not token:
        raise Damaged("a truncated listing names no continuation token", url=url)
    return Page(tuple(entries), tuple(prefixes), token)


def _iso_seconds(date: str) -> float | None:
    try:
        return datetime.fromisoformat(date).timestamp() if date else None
    except ValueError:
        return None
