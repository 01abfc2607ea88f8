"""Headers of any kind are read, or are an error that says so; none is a bug of ours, and none ends the I/O thread."""

from __future__ import annotations

import random
from contextlib import suppress

import pytest

import penstock as ps
from penstock.errors import Bug, Damaged, PenstockError, Unreachable
from penstock.source import open_source
from penstock.testing.servers import Scripted, reply
from penstock.values import ObjectMeta, Span
from tests.servers.hostile import document, listing

STORE = {"anonymous": True, "retry": ps.RetryOptions(base_s=0.001, cap_s=0.01, attempts=2)}
VALUES = [
    "",
    "0",
    "-1",
    "+5",
    "5, 5",
    "5;",
    "²",
    "\xb3",
    *("9" * count for count in (19, 30, 5000)),
    "1e3",
    "0x5",
    "nan",
]
VALUES += ["é", "\x85", "\xa0", "\x01", "\x7f", '"e"', 'W/"e"', "AAAA", "0" * 70_000]
VALUES += ["bytes 0-4/5", "bytes 5-4/5", "bytes */*", f"bytes 0-4/{'9' * 5000}", f"bytes {'9' * 5000}-1/2"]
VALUES += ["=?", "=?utf-8?b?!?=", f"=?utf-8?q?{'=FF' * 20}?=", "=?rot13?q?x?=", "=?idna?q?x?="]
VALUES += ["Thu, 01 Jan 1970 00:00:00 GMT", "Thu, 99 Foo 99999999999 99:99:99 +9999999"]
NAMES = ["content-length", "content-range", "etag", "last-modified", "retry-after", "x-amz-checksum-crc32", "location"]
NAMES += ["x-amz-meta-note", "x-amz-meta-penstockwrite", "x-amz-bucket-region", "content-type", "transfer-encoding"]
NAMES += ["content-encoding", "connection"]
BODIES = [
    b"",
    b"hello",
    document("CopyObjectResult", ETag='"e"'),
    document("CompleteMultipartUploadResult", ETag='"e"'),
]
BODIES += [document("InitiateMultipartUploadResult", UploadId="u"), listing([("key", 5)])]
BODIES += [document("Error", Code="SlowDown")]


def _answer(chance):
    headers = {"etag": '"e"', "content_range": "bytes 0-4/5"}
    for _ in range(chance.randrange(1, 4)):
        headers[chance.choice(NAMES).replace("-", "_")] = chance.choice(VALUES)
    status = chance.choice([200, 200, 200, 206, 206, 204, 301, 400, 404, 412, 416, 429, 500, 503, 999, 100])
    return reply(status, chance.choice(BODIES), **headers)


def _verbs(source):
    return [
        lambda: source.head("key"),
        lambda: list(source.pages("")),
        lambda: source.read(Span("key", 0, 5, "e")),
        lambda: source.read(Span("key", 0, 5, "e", whole=True)),
        lambda: source.read(Span("key")),
        lambda: source.put("key", b"hello"),
        lambda: source.publish("key", b"hello"),
        lambda: source.delete(["key"]),
        lambda: source.copy("key", "to", ObjectMeta("key", 5)),
        lambda: list(source.unfinished("")),
    ]


@pytest.mark.parametrize("verb", range(10))
def test_headers_of_any_kind_are_read_or_refused(verb, seed):
    chance = random.Random(seed * 10 + verb)

    def script(_received, send):
        send(_answer(chance))
        return False

    with Scripted(script) as server:
        source, _ = open_source("s3://bucket/", ps.S3Options(endpoint=server.url, **STORE))
        run = _verbs(source)[verb]
        for _ in range(60):
            with suppress(PenstockError):
                try:
                    run()
                except Bug as error:
                    pytest.fail(f"{error!r} from {error.__cause__!r}")


@pytest.mark.parametrize("length", ["²", "-1", "9" * 19, "9" * 30, "9" * 5000, "5, 5", "", "0x5"])
def test_invalid_content_length_raises_an_error(length):
    with Scripted(lambda _received, send: send(reply(200, content_length=length, etag='"e"'))) as server:
        source, _ = open_source("s3://bucket/", ps.S3Options(endpoint=server.url, **STORE))
        with pytest.raises(PenstockError) as caught:
            source.head("key")
        assert isinstance(caught.value, (Damaged, Unreachable)), caught.value
