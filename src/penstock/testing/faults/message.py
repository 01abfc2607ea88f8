"""Requests and answers, and how a request is read from a connection."""

from __future__ import annotations

from dataclasses import dataclass, field
from http import HTTPStatus
from typing import TYPE_CHECKING
from urllib.parse import unquote
from xml.sax.saxutils import escape

if TYPE_CHECKING:
    import io
    import socket

_MOST_HEADER_BYTES = 64 << 10
_MOST_BODY_BYTES = 5 << 30  # S3's limit for one PUT
_BUCKET_VERBS = {"GET": "list", "HEAD": "head-bucket", "PUT": "make-bucket", "DELETE": "remove-bucket"}
_KEY_VERBS = {"GET": "get", "HEAD": "head", "PUT": "put", "DELETE": "delete"}
_UPLOAD_VERBS = {"PUT": "part", "POST": "complete", "DELETE": "abort"}


class Refused(Exception):
    """An error answer: HTTP status, S3 code, message, and region."""

    def __init__(self, status: int, code: str, message: str = "", *, region: str = "") -> None:
        super().__init__(code)
        self.status = status
        self.code = code
        self.message = message or code
        self.region = region

    def answer(self) -> Answer:
        """Return the answer in S3's form; a region is in the XML and in a header, because HEAD has no body."""
        texts = {"Code": self.code, "Message": self.message} | ({"Region": self.region} if self.region else {})
        headers = {"x-amz-bucket-region": self.region} if self.region else {}
        return Answer(self.status, {**headers, "Content-Type": "application/xml"}, document("Error", texts))


@dataclass(slots=True)
class Answer:
    """A response before it is sent."""

    status: int = 200
    headers: dict[str, str] = field(default_factory=dict)
    body: bytes = b""
    # Without Content-Length: the body ends where the connection does.
    unsized: bool = False

    @property
    def line(self) -> str:
        return f"HTTP/1.1 {self.status} {HTTPStatus(self.status).phrase}"


@dataclass(slots=True)
class Request:
    """A request as it came: raw ``path`` and ``query``, header names in lower case, and the values parsed from them."""

    method: str
    path: str
    query: str
    headers: dict[str, str]
    body: bytearray
    bucket: str = ""
    key: str = ""
    asked: str = ""
    parameters: dict[str, str] = field(default_factory=dict)

    def __post_init__(self) -> None:
        """Parse the parameters, and bucket and key (path style) unless a dialect has set them already."""
        if not self.bucket:
            bucket, _, key = self.path.removeprefix("/").partition("/")
            self.bucket, self.key = unquote(bucket), unquote(key)
        pairs = (pair.partition("=") for pair in self.query.split("&") if pair)
        self.parameters = {unquote(name): unquote(value) for name, _, value in pairs}

    @property
    def verb(self) -> str:
        """The verb, as ``penstock.engine.contracts.driver`` names it; empty for a request that S3 does not know.

        A dialect sets ``asked`` if the verb does not follow from method, path and query as on S3.
        """
        if self.asked:
            return self.asked
        if not self.key:
            return "uploads" if "uploads" in self.parameters else _BUCKET_VERBS.get(self.method, "")
        if "uploadId" in self.parameters:
            verb = _UPLOAD_VERBS.get(self.method, "")
            return "copy-part" if verb == "part" and self._copies else verb
        if self.method == "POST":
            return "create" if "uploads" in self.parameters else ""
        return "copy" if self.method == "PUT" and self._copies else _KEY_VERBS.get(self.method, "")

    @property
    def _copies(self) -> bool:
        return any(name.endswith("-copy-source") for name in self.headers)

    @property
    def region(self) -> str:
        """The region that the request is signed for."""
        scope = self.headers.get("authorization", "").partition("Credential=")[2].split("/")
        return scope[2] if len(scope) > 2 else ""  # noqa: PLR2004  key, day, region, service, terminator

    @property
    def last(self) -> bool:
        return self.headers.get("connection", "").lower() == "close"


def document(root: str, texts: dict[str, str], inner: str = "") -> bytes:
    """Return an XML document: a root, children with text, and ``inner`` unchanged."""
    children = "".join(f"<{name}>{escape(text, {chr(13): '&#13;'})}</{name}>" for name, text in texts.items())
    return f'<?xml version="1.0" encoding="UTF-8"?>\n<{root}>{children}{inner}</{root}>'.encode()


def receive(reader: io.BufferedReader, connection: socket.socket) -> Request | None:
    """Read one whole request; None if the client closed, or died half-way. ``Refused`` if it is not HTTP.

    ``Expect: 100-continue`` is honoured. The body is read to its end even if the request is refused later, so the
    connection can be used again.
    """
    lines = _head(reader)
    if not lines:
        return None
    try:
        method, target, _ = lines[0].split(" ")
        headers = {
            name.strip().lower(): value.strip() for name, _, value in (line.partition(":") for line in lines[1:])
        }
        size = int(headers.get("content-length", "0"))
    except ValueError:
        raise Refused(400, "InvalidRequest", "this is no HTTP") from None
    if "transfer-encoding" in headers or not 0 <= size <= _MOST_BODY_BYTES:
        raise Refused(411, "MissingContentLength", "send a Content-Length of at most 5 GiB, and no chunks")
    if headers.get("expect", "").lower() == "100-continue":
        connection.sendall(b"HTTP/1.1 100 Continue\r\n\r\n")
    body = bytearray(size)
    view, got = memoryview(body), 0
    while got < size:
        count = reader.readinto(view[got:])
        if not count:
            return None
        got += count
    path, _, query = target.partition("?")
    return Request(method, path, query, headers, body)


def _head(reader: io.BufferedReader) -> list[str]:
    lines: list[str] = []
    left = _MOST_HEADER_BYTES
    while (line := reader.readline(left)).endswith(b"\n"):
        if line in (b"\r\n", b"\n"):
            return lines
        lines.append(line.decode("latin-1").rstrip("\r\n"))
        left -= len(line)
    if left <= len(line):
        raise Refused(400, "RequestHeaderSectionTooLarge")
    return []
