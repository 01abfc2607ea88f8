"""S3's dialect keeps every promise on servers that are real, and believes none that is odd."""

from __future__ import annotations

import uuid
from base64 import b64decode, b64encode
from bisect import bisect_left
from datetime import UTC, datetime
from urllib.parse import parse_qs, urlsplit

import botocore.auth
import botocore.awsrequest
import botocore.credentials
import pytest

from penstock.engine.contracts.credentials import BearerToken, Credentials
from penstock.engine.contracts.driver import Attributes, Payload, UploadPart
from penstock.engine.contracts.exchange import Response
from penstock.engine.transport.loop import connect
from penstock.errors import (
    Changed,
    ConfigError,
    Damaged,
    Forbidden,
    InvalidURL,
    NotFound,
    PenstockError,
    Throttled,
    Transient,
    Truncated,
    Unauthenticated,
    Unreachable,
    Unsupported,
    Unusable,
)
from penstock.options import TransportOptions
from penstock.stores.credentials import RefreshingCredentials
from penstock.stores.s3.credentials import AmazonCredentials
from penstock.stores.s3.dialect import BucketAddress
from penstock.stores.s3.driver import S3Driver
from penstock.stores.s3.options import S3Options
from penstock.stores.s3.signing import Address, amazon_query
from penstock.testing.drivers import KEYS, DriverContract, Trial
from penstock.testing.servers import Scripted, reply
from penstock.values import Span
from tests.servers.hostile import document

VERBS = {
    "list": lambda driver: driver.list(""),
    "uploads": lambda driver: driver.uploads(""),
    "create": lambda driver: driver.create("key", Attributes()),
    "part": lambda driver: driver.part("key", "id", UploadPart(1, 0), Payload(b"x")),
    "complete": lambda driver: driver.complete("key", "id", ["e"]),
    "abort": lambda driver: driver.abort("key", "id"),
    "put": lambda driver: driver.put("key", Payload(b"x"), Attributes()),
    "copy": lambda driver: driver.copy("key", "to"),
    "copy_part": lambda driver: driver.copy_part("to", "id", UploadPart(1, 0), Span("key", 0, 1)),
    "delete": lambda driver: driver.delete("key"),
}


def _driver(endpoint, bucket, keys=("id", "secret")):
    options = S3Options(access_key=keys[0], secret_key=keys[1]) if keys else S3Options(anonymous=True)
    identity = RefreshingCredentials(AmazonCredentials(options, {}))
    return S3Driver(BucketAddress(bucket, endpoint, virtual=False), "us-east-1", identity)


def _trial(endpoint, bucket="bucket", keys=("id", "secret")):
    return Trial(_driver(endpoint, bucket, keys), connect(TransportOptions()))


def _of(bucket):
    return _trial(bucket.server.endpoint, bucket.name, (bucket.server.access_key, bucket.server.secret_key))


def _fresh(server):
    name = f"test-{uuid.uuid4().hex}"
    server.client().create_bucket(Bucket=name)
    return _driver(server.endpoint, name, (server.access_key, server.secret_key)), connect(TransportOptions())


class TestAnswers:
    """What a server may say, and what we make of it."""

    def _ask(self, answer, verb):
        def script(_received, send):
            send(answer)
            return False

        with Scripted(script) as server:
            return verb(_trial(server.url))

    def test_an_object_of_unsaid_length_is_refused(self):
        # libcurl takes whatever came until the connection closed for the whole body (trap 15).
        body = b'HTTP/1.1 200 OK\r\netag: "e"\r\n\r\nperhaps not all'
        with pytest.raises(Damaged, match="size"):
            self._ask(body, lambda trial: trial.get("key"))
        with pytest.raises(Damaged, match="size"):
            self._ask(b"HTTP/1.1 200 OK\r\n\r\n", lambda trial: trial.head("key"))

    @pytest.mark.parametrize("status", [200, 503])
    def test_an_endless_answer_is_an_error(self, status):
        def script(_received, send):
            send(f"HTTP/1.1 {status} .\r\ntransfer-encoding: chunked\r\n\r\n".encode())
            while True:
                send(b"10000\r\n" + b"x" * 0x10000 + b"\r\n")

        with Scripted(script) as server:
            trial = _trial(server.url)
            endless, too_large = (Damaged, Unusable) if status == 200 else (Throttled, Throttled)
            for exchange in (trial.driver.list(""), trial.driver.uploads(""), trial.driver.copy("a", "b")):
                with pytest.raises(endless, match="too long" if status == 200 else "503"):
                    trial.do(exchange)
            with pytest.raises(too_large, match="ps.open" if status == 200 else "503"):
                trial.get("key", most_bytes=1 << 20)

    def test_a_chunked_body_is_whole_when_its_last_chunk_came(self):
        head = b"HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n5\r\nhello\r\n"
        assert self._ask(head + b"0\r\n\r\n", lambda trial: trial.get("key")) == b"hello"
        with pytest.raises(Transient):
            self._ask(head, lambda trial: trial.get("key"))

    def test_trap_03_a_short_body_is_never_the_object(self):
        cut = reply(200, b"half", content_length="8")
        with pytest.raises(Unreachable):
            self._ask(cut, lambda trial: trial.get("key"))
        assert self._ask(cut, lambda trial: trial.read("key", 0, 8, whole=True)) == b"half", "4 of 8 bytes are right"
        with pytest.raises(Changed, match="4 bytes"):
            self._ask(reply(200, b"half"), lambda trial: trial.read("key", 0, 8, whole=True))

    def test_trap_04_an_answer_of_another_version_is_refused(self):
        other = reply(200, b"12345678", etag='"new"')
        with pytest.raises(Changed):
            self._ask(other, lambda trial: trial.read("key", 0, 8, "old", whole=True))
        with pytest.raises(Changed):
            self._ask(other, lambda trial: trial.get("key", "old"))

    def test_a_server_that_ignores_range(self):
        whole = reply(200, b"0123456789")
        assert self._ask(whole, lambda trial: trial.read("key", 0, 4)) == b"0123", "the beginning is the range"
        with pytest.raises(Unusable, match="ignores Range"):
            self._ask(whole, lambda trial: trial.read("key", 2, 4))

    def test_mismatched_content_range_raises_damaged(self):
        for content_range in ("bytes 3-5/10", "bytes */10", "nonsense", "bytes 20-22/30"):
            with pytest.raises(Damaged, match="bytes 2-4 were requested"):
                self._ask(reply(206, b"345", content_range=content_range), lambda trial: trial.read("key", 2, 5))
        assert self._ask(reply(206, b"234", content_range="bytes 2-4/*"), lambda t: t.read("key", 2, 5)) == b"234"
        assert self._ask(reply(200, b"234", content_range="bytes 2-4/9"), lambda t: t.read("key", 2, 5)) == b"234"
        with pytest.raises(Truncated, match="4 bytes"):
            self._ask(reply(206, b"23", content_range="bytes 2-3/4"), lambda trial: trial.read("key", 2, 5))

    @pytest.mark.parametrize(
        ("body", "error"),
        [
            (b"<Error><Code>InternalError</Code></Error>", Transient),
            (b'<?xml version="1.0"?>' + b" " * 600 + b"<Error><Code>InternalError</Code></Error>", Transient),
            (b"<Error><Code>WhoKnows</Code></Error>", Transient),
            (b'<Error xmlns="http://s3"><Code>SlowDown</Code></Error>', Throttled),
            (b"<Error><Code>AccessDenied</Code></Error>", Forbidden),
        ],
    )
    def test_a_200_may_be_an_error(self, body, error):
        for verb in VERBS.values():
            with pytest.raises(error):
                self._ask(reply(200, body), lambda trial, verb=verb: trial.do(verb(trial.driver)))

    @pytest.mark.parametrize("body", [b"<html><body>log in</body></html>", b"<R/>", b"{}", b"welcome <here>", b"\0"])
    def test_an_answer_that_is_not_s3s_is_damaged(self, body):
        for verb in VERBS.values():
            with pytest.raises(Damaged, match=r"check endpoint=.*s3://bucket/"):
                self._ask(reply(200, body), lambda trial, verb=verb: trial.do(verb(trial.driver)))
        for verb in ("list", "uploads", "create", "complete", "copy", "copy_part"):
            with pytest.raises(Damaged, match="empty"):
                self._ask(reply(200), lambda trial, verb=verb: trial.do(VERBS[verb](trial.driver)))
        with pytest.raises(NotFound):
            self._ask(reply(404, body), lambda trial: trial.do(trial.driver.delete("key")))

    def test_white_space_may_come_before_the_answer(self):
        body = b"\n  " + document("CompleteMultipartUploadResult", ETag='"tag-2"')
        assert self._ask(reply(200, body), lambda t: t.do(t.driver.complete("key", "id", ["e"]))) == "tag-2"

    def test_a_root_of_another_name_is_fine_where_the_answer_is_in_it(self):
        """Gofakes3 (rclone) opens uploads with an ``<InitiateMultipartUpload>``; copies have two names, or three."""
        opened = reply(200, document("InitiateMultipartUpload", Bucket="b", Key="k", UploadId="u"))
        assert self._ask(opened, lambda t: t.do(t.driver.create("k", Attributes()))) == "u"
        for root in ("CopyPartResult", "CopyObjectResult", "CopyObjectResponse"):
            copied = reply(200, document(root, ETag='"e"'))
            for verb in ("copy", "copy_part"):
                assert self._ask(copied, lambda t, verb=verb: t.do(VERBS[verb](t.driver))) == "e"
        whole = reply(200, document("ListMultipartUploadsResult", Bucket="b"))
        assert self._ask(whole, lambda t: t.do(VERBS["uploads"](t.driver))).entries == ()

    def test_a_request_without_a_key_is_never_one_for_the_bucket(self):
        """A DELETE of no key would delete the bucket, and a PUT make one."""
        driver = _driver("http://127.0.0.1:1", "bucket")
        verbs = [driver.head, driver.delete, lambda key: driver.get(key, ""), lambda key: driver.abort(key, "u")]
        verbs += [lambda key: driver.put(key, Payload(b""), Attributes()), lambda key: driver.copy("from", key)]
        for verb in verbs:
            with pytest.raises(InvalidURL, match="names a bucket"):
                verb("")
        assert driver.list("").request.method == driver.uploads("").request.method == "GET"

    def test_invalid_or_incomplete_xml_response_raises_damaged(self):
        with pytest.raises(Damaged, match="not XML"):
            self._ask(reply(200, b"<html>welcome"), lambda trial: trial.keys())
        for said in ({"IsTruncated": "true"}, {"IsTruncated": "perhaps"}, {}):
            with pytest.raises(Damaged, match="how to continue it"):
                self._ask(reply(200, document("ListBucketResult", **said)), lambda trial: trial.keys())
        with pytest.raises(Damaged, match="id"):
            answer = reply(200, document("InitiateMultipartUploadResult"))
            self._ask(answer, lambda t: t.do(t.driver.create("k", Attributes())))

    def test_a_weak_tag_is_compared_but_not_sent(self):
        seen = []

        def script(received, send):
            seen.append(received.headers.get("if-match"))
            send(reply(200, b"1234", etag='W/"e"'))
            return True

        with Scripted(script) as server:
            trial = _trial(server.url)
            assert trial.read("key", 0, 4, "W/e", whole=True) == b"1234"
            with pytest.raises(Changed):
                trial.read("key", 0, 4, "e", whole=True)
        assert seen == [None, '"e"']

    @pytest.mark.parametrize(
        ("sent", "read"),
        [
            ("=?UTF-8?Q?gr=C3=B6=C3=9Fer?=", "größer"),
            ("größer".encode().decode("latin-1"), "größer"),
            ("\xe9", "\xe9"),
            ("=?no-such-charset?Q?x?=", "=?no-such-charset?Q?x?="),
            ("=?", "=?"),
        ],
    )
    def test_metadata_is_read_as_stores_spell_it(self, sent, read):
        found = self._ask(reply(200, b"", x_amz_meta_note=sent, content_length="0"), lambda trial: trial.head("key"))
        assert found.metadata == {"note": read}

    def test_a_tag_with_a_line_break_cannot_smuggle_a_header(self):
        with Scripted(lambda _received, send: send(reply(200, b"1234")) or True) as server:
            for keys in (None, ("id", "secret")):
                _trial(server.url, keys=keys).read("key", 0, 4, 'e"\r\nx-evil: 1', whole=True)
        assert [{"x-evil", "if-match"} & {*received.headers} for received in server.received] == [set(), set()]

    def test_retry_after_is_passed_on(self):
        with pytest.raises(Throttled) as caught:
            self._ask(reply(503, b"<Error><Code>SlowDown</Code></Error>", retry_after="7"), lambda t: t.get("key"))
        assert (caught.value.retry_after_s, caught.value.code) == (7.0, "SlowDown")

    def test_another_region_is_named(self):
        body = b"<Error><Code>AuthorizationHeaderMalformed</Code><Region>eu-west-1</Region></Error>"
        with pytest.raises(ConfigError, match="region='eu-west-1'"):
            self._ask(reply(400, body), lambda trial: trial.get("key"))
        with pytest.raises(ConfigError, match="region='eu-north-1'"):
            self._ask(reply(301, x_amz_bucket_region="eu-north-1"), lambda trial: trial.head("key"))

    def test_a_redirect_is_not_followed(self):
        # It would carry the signature to wherever the answer points.
        with pytest.raises(ConfigError, match="points elsewhere"):
            self._ask(reply(302, location="http://127.0.0.1:9/"), lambda trial: trial.get("key"))

    def test_requests_carry_only_the_expected_path_headers_and_body(self):
        opened = reply(200, document("InitiateMultipartUploadResult", UploadId="u"))
        script = lambda received, send: send(opened if "uploads" in received.path else reply(200)) or True  # noqa: E731
        with Scripted(script) as server:
            trial = _trial(server.url)
            trial.put("a key+", b"body")
            trial.do(trial.driver.create("key", Attributes("text/plain", {"Note": "x"})))
            trial.do(trial.driver.part("key", "u", UploadPart(2, 5), trial.payload(b"part")))
            trial.do(trial.driver.delete("key"))
        put, create, part, delete = server.received
        assert (put.method, put.path, put.body) == ("PUT", "/bucket/a%20key%2B", b"body")
        assert (create.path, create.headers["x-amz-meta-note"]) == ("/bucket/key?uploads=", "x")
        assert (part.path, part.body) == ("/bucket/key?partNumber=2&uploadId=u", b"part")
        assert [each.headers.get("content-type") for each in server.received] == [
            "text/plain",
            "text/plain",
            None,
            None,
        ]
        assert not any("expect" in each.headers for each in server.received), "trap 15: it stalls a second per part"
        assert delete.method == "DELETE"


class TestServers:
    def test_no_such_bucket(self, bucket):
        trial = _trial(bucket.server.endpoint, "no-such-bucket", (bucket.server.access_key, bucket.server.secret_key))
        for verb in (
            trial.get,
            lambda _key: trial.keys(),
            lambda key: trial.put(key, b""),
            lambda key: trial.do(trial.driver.delete(key)),
        ):
            with pytest.raises(NotFound, match="NoSuchBucket") as caught:
                verb("key")
            assert "bucket's name, and endpoint= or AWS_ENDPOINT_URL" in str(caught.value)

    def test_no_such_key(self, bucket):
        with pytest.raises(NotFound, match=f"NoSuchKey.*s3://{bucket.name}/some/key"):
            _of(bucket).get("some/key")

    @pytest.mark.ceph
    @pytest.mark.parametrize("keys", [("testaccesskey", "wrong-secret-xyzzy"), ("unknown-id-xyzzy", "secret")])
    def test_a_wrong_secret_is_unauthenticated(self, ceph_server, keys):
        trial = _trial(ceph_server.endpoint, "any-bucket", keys)
        with pytest.raises(Unauthenticated, match="AWS_ACCESS_KEY_ID") as caught:
            trial.get("key")
        _shows_no_secret(caught.value, "xyzzy")
        with pytest.raises(PermissionError):
            trial.head("key")

    @pytest.mark.ceph
    def test_unsigned_requests_are_forbidden(self, ceph_server, shared):
        shared.put("private", b"")
        with pytest.raises(Forbidden):
            _trial(ceph_server.endpoint, shared.driver.url("").split("/")[2], None).get("private")

    @pytest.mark.ceph
    def test_trap_16_a_damaged_body_is_refused_by_a_server_that_looks(self, ceph_server):
        DriverContract().test_a_damaged_body_is_refused(Trial(*_fresh(ceph_server)))

    @pytest.mark.ceph
    @pytest.mark.parametrize("key", KEYS)
    def test_trap_07_every_key_is_signed_as_it_is_sent(self, shared, key):
        shared.put(key, key.encode())
        assert shared.get(key) == key.encode()
        assert key in shared.keys(key[:1])
        shared.do(shared.driver.delete(key))

    def test_an_unreachable_endpoint(self):
        with pytest.raises(Unreachable, match="check endpoint="):
            _trial("http://127.0.0.1:1").get("key")
        with pytest.raises(PenstockError, match=r"check endpoint=|timed out"):
            _trial("http://no-such-host.invalid").get("key")


@pytest.fixture(scope="module")
def shared(ceph_server):
    return Trial(*_fresh(ceph_server))


def _shows_no_secret(error, secret):
    while error is not None:
        assert secret not in f"{error!r} {error} {vars(error)}"
        error = error.__cause__ or error.__context__


def test_nothing_shows_a_secret():
    driver = _driver("http://127.0.0.1:1", "bucket", ("id-xyzzy", "secret-xyzzy"))
    trial = Trial(driver, connect(TransportOptions()))
    with pytest.raises(PenstockError) as caught:
        trial.get("key")
    _shows_no_secret(caught.value, "xyzzy")
    assert "xyzzy" not in repr(driver)
    assert "xyzzy" not in repr(Credentials("id-xyzzy", "secret-xyzzy", "token-xyzzy"))


# -- Listings are complete on servers whose tokens leave keys out, as those of MinIO of March 2024 to July 2025 do --


_PAGE = 10
_TAG = "[minio_cache:v2,return:]"
_FOLDERS = [f"p/{at:03}/{name}" for at in range(90) for name in ("a", "b", "c")[: 2 + (at % 3 == 0)]]


@pytest.fixture
def driver():
    identity = RefreshingCredentials(AmazonCredentials(S3Options(access_key="id", secret_key="secret"), {}))
    return S3Driver(BucketAddress("b", "http://host", virtual=False), "us-east-1", identity)


def _entries(keys):
    return "".join(f'<Contents><Key>{key}</Key><ETag>"e"</ETag><Size>1</Size></Contents>' for key in keys)


def _answer(keys, token, prefixes=()):
    more = {"IsTruncated": "true", "NextContinuationToken": token} if token else {"IsTruncated": "false"}
    rows = _entries(keys) + "".join(f"<CommonPrefixes><Prefix>{each}</Prefix></CommonPrefixes>" for each in prefixes)
    body = document("ListBucketResult", **more)
    return Response(200, body=body.replace(b"</ListBucketResult>", rows.encode() + b"</ListBucketResult>"))


def _minio(query, tag):
    """Answer as MinIO did: its walk yields folders, too, and the last one that it skipped becomes the token."""
    walk = sorted({*_FOLDERS, *(key[:6] for key in _FOLDERS)})
    token = b64decode(query.get("continuation-token", "")).decode()
    marker = token.removesuffix(tag) or query.get("start-after", "")
    found, skipped, more = [], "", False
    for name in walk[bisect_left(walk, marker) :]:
        if name.endswith("/"):
            skipped = name
        elif more := len(found) == _PAGE + bool(marker):
            break
        else:
            found.append(name)
    found = [key for key in found if key > marker]
    more = more or len(found) > _PAGE
    found = found[:_PAGE]
    return _answer(found, b64encode((max(skipped, found[-1]) + tag).encode()).decode() if more else "")


@pytest.mark.parametrize("tag", ["", _TAG])
@pytest.mark.parametrize("after", ["", "p/0", "p/017/x"])
def test_listing_of_a_server_whose_tokens_leave_keys_out_is_complete(driver, tag, after):
    keys, exchange = [], driver.list("p/", start_after=after)
    while True:
        query = {name: text for name, [text] in parse_qs(urlsplit(exchange.request.url).query).items()}
        page = exchange.parse(_minio(query, tag))
        keys += [each.key for each in page.entries]
        if not page.token:
            break
        exchange = driver.list("p/", token=page.token)
    assert keys == [key for key in _FOLDERS if key > after]


_OURS = "start-after=p%2Fb"


@pytest.mark.parametrize(
    ("named", "prefixes", "delimiter", "sent"),
    [
        (f"p/c{_TAG}", (), "", _OURS),
        ("p/c[rustfs_cache:v2,id:1]", (), "", _OURS),
        ("p/c", (), "", _OURS),
        (f"p/b{_TAG}", (), "", ""),
        ("p/b", (), "", ""),
        ("p/a", (), "", ""),
        ("q", (), "", ""),
        (f"p/d/{_TAG}", ("p/c/",), "/", "start-after=p%2Fc%2F"),
        (f"p/c/{_TAG}", ("p/c/",), "/", ""),
        ("p/d/", ("p/c/",), "/", ""),
    ],
)
def test_token_that_names_a_text_behind_the_page_is_replaced(driver, named, prefixes, delimiter, sent):
    token = b64encode(named.encode()).decode()
    page = driver.list("p/", delimiter=delimiter).parse(_answer(["p/a", "p/b"], token, prefixes))
    url = driver.list("p/", token=page.token, delimiter=delimiter).request.url
    assert (page.token == token) is not bool(sent)
    assert ("continuation-token" in url, sent in url) == (not sent, True)


@pytest.mark.parametrize("prefix", ["p/", ""])
@pytest.mark.parametrize("text", [b"p/a\xff\xfe", b"", b'{"key": "p/a"}'])
def test_token_of_any_other_form_is_kept(driver, prefix, text):
    for token in (b64encode(text).decode(), "not base64!"):
        assert driver.list(prefix).parse(_answer(["p/a"], token)).token == token


def test_token_after_a_page_without_keys_is_kept(driver):
    token = b64encode(f"p/c{_TAG}".encode()).decode()
    assert driver.list("p/").parse(_answer([], token)).token == token


# -- Signed queries are the ones that Amazon's and botocore's texts give, byte for byte --


MAY_2013 = datetime(2013, 5, 24, tzinfo=UTC).timestamp()


def test_the_example_of_amazons_reference():
    # Amazon S3 API reference, Authenticating Requests: Using Query Parameters.
    host, path = "examplebucket.s3.amazonaws.com", "/test.txt"
    address = Address("examplebucket", "test.txt", host, "us-east-1", "GET", path, 86_400, MAY_2013)
    keys = Credentials("AKIAIOSFODNN7EXAMPLE", "wJalrXUtnFEMI/K7MDENG/bPxRfiCYEXAMPLEKEY")
    assert amazon_query(address, keys) == (
        "X-Amz-Algorithm=AWS4-HMAC-SHA256"
        "&X-Amz-Credential=AKIAIOSFODNN7EXAMPLE%2F20130524%2Fus-east-1%2Fs3%2Faws4_request"
        "&X-Amz-Date=20130524T000000Z&X-Amz-Expires=86400&X-Amz-SignedHeaders=host"
        "&X-Amz-Signature=aeeed9bbccd4d02ee5c0109b86d86835f995330da4c265957d157751f604d404"
    )


@pytest.mark.parametrize("method", ["GET", "PUT"])
@pytest.mark.parametrize("token", ["", "a/token+="])
def test_botocore_signs_alike(method, token, monkeypatch):
    url = "https://h:9/bkt/a%20b%2B%C3%A9"
    request = botocore.awsrequest.AWSRequest(method, url)
    keys = botocore.credentials.Credentials("AK", "SK", token or None)
    monkeypatch.setattr(botocore.auth, "get_current_datetime", lambda: datetime.fromtimestamp(MAY_2013, UTC))
    botocore.auth.S3SigV4QueryAuth(keys, "s3", "eu-1", expires=600).add_auth(request)
    theirs = parse_qs(urlsplit(request.url).query)
    address = Address("bkt", "a%20b%2B%C3%A9", "h:9", "eu-1", method, "/bkt/a%20b%2B%C3%A9", 600, MAY_2013)
    assert parse_qs(amazon_query(address, Credentials("AK", "SK", token))) == theirs


def test_a_bearer_token_signs_nothing():
    address = Address("b", "k", "h", "r", "GET", "/k", 60, 0)
    with pytest.raises(Unsupported, match="cannot presign"):
        amazon_query(address, BearerToken("t"))
