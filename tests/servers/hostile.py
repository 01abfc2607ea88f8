"""An S3 server that lies on demand: true answers from a dict, and a test bends whichever it likes.

    with hostile({"run/a": b"1", "other": b"2"}, list=lambda answer, _: answer.replace(...)) as server:
        ps.list("s3://bucket/run/", store=server.store)
    assert server.gone == []

Every verb (``list``, ``uploads``, ``head``, ``get``, ``put``, ``copy``, ``delete``, ``create``, ``part``, ``complete``,
``abort``) takes a lie: a function of (the true answer, the request) that returns the bytes to send instead.
``penstock.testing.faults`` breaks connections and answers; this one is well-mannered and believes nothing of S3.
"""

from __future__ import annotations

import threading
from contextlib import contextmanager
from html import escape
from typing import TYPE_CHECKING
from urllib.parse import parse_qs, quote, unquote, urlsplit

from penstock.options import RetryOptions, StoreOptions
from penstock.stores.s3.options import S3Options
from penstock.testing.servers import Scripted, reply

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Mapping

    from penstock.testing.servers import Received

    Lie = Callable[[bytes, Received], bytes]

__all__ = ["Hostile", "document", "hostile", "listing", "page"]

STAMP = "2026-01-01T00:00:00.000Z"
MOMENT = "Thu, 01 Jan 2026 00:00:00 GMT"


def document(root: str, *, attributes: str = "", **texts: str) -> bytes:
    """Return an XML document: ``document("Error", Code="X")``."""
    inner = "".join(f"<{name}>{escape(text)}</{name}>" for name, text in texts.items())
    return f'<?xml version="1.0" encoding="UTF-8"?><{root}{attributes}>{inner}</{root}>'.encode()


def listing(entries: Iterable[tuple[str, int]] = (), prefixes: Iterable[str] = (), token: str = "") -> bytes:
    """Return a ListObjectsV2 answer's body; ``entries`` are (key, size)."""
    contents = "".join(
        f"<Contents><Key>{quote(key)}</Key><Size>{size}</Size><ETag>&quot;e&quot;</ETag>"
        f"<LastModified>{STAMP}</LastModified></Contents>"
        for key, size in entries
    )
    common = "".join(f"<CommonPrefixes><Prefix>{quote(each)}</Prefix></CommonPrefixes>" for each in prefixes)
    more = f"<IsTruncated>true</IsTruncated><NextContinuationToken>{token}</NextContinuationToken>"
    return (
        f"<ListBucketResult><EncodingType>url</EncodingType>{contents}{common}"
        f"{more if token else '<IsTruncated>false</IsTruncated>'}</ListBucketResult>"
    ).encode()


def page(entries: Iterable[tuple[str, int]] = (), prefixes: Iterable[str] = (), token: str = "") -> Lie:
    """Return a lie: this page, whatever was asked for."""
    body = listing(entries, prefixes, token)
    return lambda _answer, _received: reply(200, body)


class Hostile:
    """One bucket, ``bucket``, path-style; requests are not checked.

    Attributes:
        objects: Bytes by key.
        metadata: ``x-amz-meta-*`` and ``content-type`` headers by key.
        uploads: Keys by upload id.
        lies: By verb; a test may change them at any time.
        gone: Keys that were deleted and uploads that were aborted, in order.
        seen: (verb, key) of each request, in order.
        store: Options that reach it; unsigned, and of little patience.
    """

    def __init__(self, objects: Mapping[str, bytes], lies: dict[str, Lie]) -> None:
        self.objects = dict(objects)
        self.metadata: dict[str, dict[str, str]] = {}
        self.uploads: dict[str, str] = {}
        self.parts: dict[str, tuple[dict[int, bytes], Received]] = {}
        self.lies = lies
        self.gone: list[str] = []
        self.seen: list[tuple[str, str]] = []
        self.received: list[Received] = []
        self.store = StoreOptions()
        self._lock = threading.Lock()

    def __call__(self, received: Received, send: Callable[[bytes], None]) -> bool:
        path = urlsplit(received.path)
        key = unquote(path.path.removeprefix("/bucket").removeprefix("/"))
        query = {name: values[0] for name, values in parse_qs(path.query, keep_blank_values=True).items()}
        verb = _verb(received, key, query)
        with self._lock:
            self.seen.append((verb, key))
            answer: bytes = getattr(self, f"_{verb}")(received, key, query)
        send(self.lies[verb](answer, received) if verb in self.lies else answer)
        return True

    def _list(self, _received: Received, _key: str, query: dict[str, str]) -> bytes:
        prefix, mark = query.get("prefix", ""), query.get("delimiter", "")
        entries, groups = [], dict[str, None]()
        for key in sorted(self.objects, key=str.encode):
            if key.startswith(prefix) and key.encode() > query.get("start-after", "").encode():
                head, found, _ = key[len(prefix) :].partition(mark) if mark else (key, "", "")
                if found:
                    groups[prefix + head + found] = None
                else:
                    entries.append((key, len(self.objects[key])))
        return reply(200, listing(entries, groups))

    def _uploads(self, _received: Received, _key: str, query: dict[str, str]) -> bytes:
        found = [(key, name) for name, key in self.uploads.items() if key.startswith(query["prefix"])]
        inner = "".join(
            f"<Upload><Key>{escape(key)}</Key><UploadId>{name}</UploadId><Initiated>{STAMP}</Initiated></Upload>"
            for key, name in sorted(found)
        )
        root = "ListMultipartUploadsResult"
        return reply(200, f"<{root}><IsTruncated>false</IsTruncated>{inner}</{root}>".encode())

    def _head(self, _received: Received, key: str, _query: dict[str, str]) -> bytes:
        if key not in self.objects:
            return reply(404)
        said = {"etag": '"e"', "last_modified": MOMENT, **self.metadata.get(key, {})}
        return reply(200, b"", **said, content_length=str(len(self.objects[key])))

    def _get(self, received: Received, key: str, _query: dict[str, str]) -> bytes:
        if key not in self.objects:
            return reply(404, document("Error", Code="NoSuchKey"))
        data = self.objects[key]
        if received.range is None:
            return reply(200, data, etag='"e"')
        start, stop = received.within(len(data))
        part = data[start:stop]
        return reply(206, part, etag='"e"', content_range=f"bytes {start}-{start + len(part) - 1}/{len(data)}")

    def _put(self, received: Received, key: str, _query: dict[str, str]) -> bytes:
        self._store(key, received.body, received)
        return reply(200, etag='"e"')

    def _store(self, key: str, data: bytes, received: Received) -> None:
        self.objects[key] = data
        kept = {name: value for name, value in received.headers.items() if name.startswith("x-amz-meta-")}
        self.metadata[key] = {name.replace("-", "_"): value for name, value in kept.items()}

    def _copy(self, received: Received, key: str, _query: dict[str, str]) -> bytes:
        source = unquote(received.headers["x-amz-copy-source"]).removeprefix("bucket/")
        self.objects[key] = self.objects[source]
        return reply(200, document("CopyObjectResult", ETag='"e"'))

    def _delete(self, _received: Received, key: str, _query: dict[str, str]) -> bytes:
        self.objects.pop(key, None)
        self.gone.append(key)
        return reply(204)

    def _create(self, received: Received, key: str, _query: dict[str, str]) -> bytes:
        name = f"u{len(self.parts) + 1}"
        self.uploads[name], self.parts[name] = key, ({}, received)
        return reply(200, document("InitiateMultipartUploadResult", UploadId=name))

    def _part(self, received: Received, _key: str, query: dict[str, str]) -> bytes:
        self.parts[query["uploadId"]][0][int(query["partNumber"])] = received.body
        return reply(200, etag=f'"p{query["partNumber"]}"')

    def _complete(self, _received: Received, key: str, query: dict[str, str]) -> bytes:
        parts, began = self.parts[query["uploadId"]]
        self._store(key, b"".join(parts[number] for number in sorted(parts)), began)
        self.uploads.pop(query["uploadId"])
        return reply(200, document("CompleteMultipartUploadResult", ETag='"e"'))

    def _abort(self, _received: Received, _key: str, query: dict[str, str]) -> bytes:
        self.gone.append(self.uploads.pop(query["uploadId"], ""))
        return reply(204)


def _verb(received: Received, key: str, query: dict[str, str]) -> str:
    if not key:
        return "uploads" if "uploads" in query else "list"
    if received.method == "POST":
        return "create" if "uploads" in query else "complete"
    if "uploadId" in query:
        return "abort" if received.method == "DELETE" else "part"
    return "copy" if "x-amz-copy-source" in received.headers else received.method.lower()


@contextmanager
def hostile(objects: Mapping[str, bytes] | None = None, **lies: Lie) -> Iterator[Hostile]:
    """Yield a ``Hostile`` that serves ``objects``, with these lies."""
    server = Hostile(objects or {}, lies)
    with Scripted(server) as listener:
        server.store = S3Options(
            endpoint=listener.url, anonymous=True, retry=RetryOptions(base_s=0.001, cap_s=0.01, attempts=3)
        )
        server.received = listener.received
        yield server
