"""Dialects of the family: the requests and answers of S3, OSS and GCS's XML."""

from base64 import b64encode
from hashlib import md5, sha256
from typing import ClassVar

import pytest

from penstock.engine.buffer import Buffer
from penstock.engine.contracts.driver import MOVED, Attributes, Payload, UploadPart
from penstock.engine.contracts.exchange import Response
from penstock.errors import Changed, Unusable
from penstock.stores.http.verify import Verification
from penstock.stores.s3.dialect import Amazon, BucketAddress, Dialect
from penstock.stores.s3.driver import S3Driver
from penstock.values import Span
from tests.servers.hostile import document


class Nobody:
    def current(self):
        return None

    def refresh_if_due(self):
        pass

    def renew(self):
        pass


class OSS(Dialect):
    prefix = "x-oss-"
    copy_pin = "x-oss-copy-source-if-match"
    create = ("x-oss-forbid-overwrite", "true")
    replace = ""
    conditions_begin = True
    read_headers: ClassVar = {"x-oss-range-behavior": "standard"}


class GCS(Dialect):
    prefix = "x-goog-"
    verification = Verification(version="x-goog-generation", size="x-goog-stored-content-length")
    version_element = "Generation"
    pin = "x-goog-if-generation-match"
    copy_pin = "x-goog-copy-source-if-generation-match"
    create = ("x-goog-if-generation-match", "0")
    replace = "x-goog-if-generation-match"
    quotes = False


NEW, OLD = Attributes("text/plain", {"note": "x"}, create_only=True), Attributes("text/plain", replaces="17")


def _driver(kind):
    return S3Driver(BucketAddress("b", "https://h", virtual=True, scheme="gs"), "r", Nobody(), kind())


def _headers(exchange):
    lines = [line.partition(":")[::2] for line in exchange.request.headers]
    return {name.lower(): value.strip() for name, value in lines if value}


@pytest.mark.parametrize(
    ("kind", "expected"),
    [
        (Amazon, {"x-amz-meta-note": "x", "if-none-match": "*"}),
        (OSS, {"x-oss-meta-note": "x", "x-oss-forbid-overwrite": "true"}),
        (GCS, {"x-goog-meta-note": "x", "x-goog-if-generation-match": "0"}),
    ],
)
def test_a_create_only_put_has_the_dialects_condition_and_metadata(kind, expected):
    assert _headers(_driver(kind).put("k", Payload(b"x"), NEW)) == {"content-type": "text/plain", **expected}


@pytest.mark.parametrize(
    ("kind", "expected"),
    [(Amazon, {"if-match": '"17"'}), (OSS, {}), (GCS, {"x-goog-if-generation-match": "17"})],
)
def test_a_replacement_is_held_to_a_version_as_the_dialect_has_it(kind, expected):
    assert _headers(_driver(kind).put("k", Payload(b"x"), OLD)) == {"content-type": "text/plain", **expected}
    assert _headers(_driver(kind).complete("k", "u", ["e"], replaces="17")) == expected


def test_an_uploads_condition_is_sent_where_the_dialect_wants_it():
    assert "x-oss-forbid-overwrite" in _headers(_driver(OSS).create("k", NEW))
    assert "x-oss-forbid-overwrite" in _headers(_driver(OSS).complete("k", "u", ["e"], create_only=True))
    assert "if-none-match" not in _headers(_driver(Amazon).create("k", NEW))


@pytest.mark.parametrize(
    ("kind", "expected"),
    [
        (Amazon, {"if-match": '"17"', "range": "bytes=2-3"}),
        (OSS, {"if-match": '"17"', "range": "bytes=2-3", "x-oss-range-behavior": "standard"}),
        (GCS, {"x-goog-if-generation-match": "17", "range": "bytes=2-3"}),
    ],
)
def test_a_read_is_held_to_a_version_as_the_dialect_has_it(kind, expected):
    assert _headers(_driver(kind).read(Span("k", 2, 4, "17"), Buffer.allocate(2))) == expected


def test_a_copy_names_its_source_and_version_as_the_dialect_has_it():
    source = {"x-goog-copy-source": "b/from%20here", "x-goog-copy-source-if-generation-match": "17"}
    assert _headers(_driver(GCS).copy("from here", "to", "17")) == source
    part = _headers(_driver(OSS).copy_part("to", "u", UploadPart(1, 0), Span("k", 0, 4, "e")))
    assert part == {
        "x-oss-copy-source": "b/k",
        "x-oss-copy-source-if-match": '"e"',
        "x-oss-copy-source-range": "bytes=0-3",
    }


def test_a_generation_is_the_version_in_listings_heads_reads_and_writes():
    driver = _driver(GCS)
    entry = "<Contents><Key>k</Key><Size>4</Size><ETag>&quot;e&quot;</ETag><Generation>17</Generation></Contents>"
    body = f"<ListBucketResult><IsTruncated>false</IsTruncated>{entry}</ListBucketResult>".encode()
    assert driver.list("").parse(Response(200, body=body)).entries[0].etag == "17"
    headers = {"etag": '"e"', "x-goog-generation": "17", "x-goog-stored-content-length": "4", "content-length": "9"}
    found = driver.head("k").parse(Response(200, headers | {"x-goog-meta-note": "x"}))
    assert (found.etag, found.size, found.metadata) == ("17", 4, {"note": "x"})
    assert driver.put("k", Payload(b""), NEW).parse(Response(200, headers)) == "17"
    assert driver.part("k", "u", UploadPart(1, 0), Payload(b"")).parse(Response(200, headers)) == "e"
    completed = document("CompleteMultipartUploadResult", ETag='"e-2"')
    assert driver.complete("k", "u", ["e"]).parse(Response(200, headers, completed)) == "17"
    buffer = Buffer.allocate(4)
    exchange = driver.read(Span("k", 0, 4, "17", whole=True), buffer)
    assert exchange.request.wants == ("x-goog-generation",)
    assert exchange.parse(Response(200, {"x-goog-generation": "17"}, received=4)) == 4
    with pytest.raises(Changed):
        exchange.parse(Response(200, {"x-goog-generation": "18"}, received=4))
    assert driver.url("k") == "gs://b/k"


class _Sum:
    def __init__(self, stored):
        self._wanted, self._sum = stored.split(","), 0

    def update(self, data):
        self._sum += sum(data)

    def matches(self):
        return f"sum={self._sum}" in self._wanted


def test_a_digest_of_another_kind_is_one_function():
    class Summed(GCS):
        verification = Verification(digests={"x-goog-hash": _Sum})

    driver = _driver(Summed)
    answer = {"content-length": "2", "x-goog-hash": "md5=x,sum=3"}
    assert driver.get("k", "").parse(Response(200, answer, b"\1\2")) == b"\1\2"
    with pytest.raises(Exception, match="x-goog-hash"):
        driver.get("k", "").parse(Response(200, answer, b"\1\3"))


LOCKED = "Content-MD5 OR x-amz-checksum- HTTP header is required for Put Object requests with Object Lock parameters"


@pytest.mark.parametrize("verb", ["put", "part"])
def test_a_bucket_whose_objects_are_locked_gets_the_md5_of_bodies_after_one_refusal(verb):
    driver, body = _driver(Amazon), Payload(b"data", sha256(b"data").hexdigest())
    made = {
        "put": lambda: driver.put("k", body, Attributes("text/plain")),
        "part": lambda: driver.part("k", "u", UploadPart(1, 0), body),
    }[verb]
    first, beside = made(), made()
    refused = Response(400, body=document("Error", Code="InvalidRequest", Message=LOCKED))
    for exchange in (first, beside):  # both were on their way
        assert "content-md5" not in _headers(exchange)
        with pytest.raises(Unusable) as caught:
            exchange.parse(refused)
        assert (caught.value.code, caught.value.retries) == (MOVED, 1)
    again = made()
    assert _headers(again)["content-md5"] == b64encode(md5(b"data", usedforsecurity=False).digest()).decode()
    digest = driver.abilities.digest()
    digest.update(b"data")
    body = Payload(b"data", digest.hexdigest())  # as it is made from now on, where the bytes come from
    assert _headers(made()) == _headers(again)
    assert body.later == {}, "nothing was digested for the request"
    with pytest.raises(Unusable) as caught:
        again.parse(refused)
    assert caught.value.retries == 0, "it had what it wants"
