"""The contract over both kinds of access, and what is Google's own: generations, moves, and objects that wait."""

from __future__ import annotations

import gzip
import uuid
from base64 import b64encode
from contextlib import closing
from dataclasses import replace
from hashlib import md5, sha256
from http.client import HTTPConnection
from urllib.parse import parse_qsl, urlsplit

import pytest
from google.auth.exceptions import TransportError

from penstock.engine.buffer import Buffer
from penstock.engine.contracts.credentials import BearerToken, Credentials
from penstock.engine.contracts.driver import STAGED, Attributes, Delete, Multipart, PartCopy, Payload, UploadPart
from penstock.engine.contracts.exchange import Response
from penstock.engine.transport.loop import connect
from penstock.errors import (
    AlreadyExists,
    Changed,
    ChecksumMismatch,
    ConfigError,
    Forbidden,
    NotFound,
    PenstockError,
    PreconditionFailed,
    Throttled,
    Unauthenticated,
    Unsupported,
)
from penstock.options import ReadOptions, RetryOptions, TransportOptions, WriteOptions
from penstock.source import open_source
from penstock.stores.gcs.driver import GOOGLE_CODES, Crc32c, GCSDriver, Google, ServiceToken, stored_sum
from penstock.stores.gcs.options import GCSOptions
from penstock.stores.gcs.store import requests
from penstock.stores.s3.dialect import BucketAddress
from penstock.stores.s3.signing import Address
from penstock.testing.drivers import Trial
from penstock.testing.faults import FAULTS, FaultServer, Match, Settings
from penstock.testing.faults.amazon import Scheme, check_signature
from penstock.testing.faults.message import Refused, Request
from penstock.testing.servers import Scripted, reply
from penstock.values import VERSION, Checksum, Span, version_id
from tests.refusals import refused
from tests.servers.google import TokenServer
from tests.stores.gcs.keys import EMAIL, new_key

SETTINGS = Settings(dialect="gcs", tokens=("good",))
KINDS = ["token", "keys"]
PART = 5 << 20


class Static:
    """An identity that never changes."""

    def __init__(self, credentials):
        self._credentials = credentials

    def current(self):
        return self._credentials

    def refresh_if_due(self):
        pass

    def renew(self):
        pass


@pytest.fixture(scope="module")
def server():
    with FaultServer.start(SETTINGS) as server:
        yield server


def _driver(server, kind, name, **words):
    keys = Credentials(SETTINGS.access_key, SETTINGS.secret_key)
    identity = Static(keys if kind == "keys" else BearerToken("good"))
    bucket = BucketAddress(name, server.endpoint, virtual=False, scheme="gs")
    return GCSDriver(bucket, identity, Google(keys=kind == "keys", **words))


def _fresh(server, kind):
    name = uuid.uuid4().hex
    server.make(name)
    return _driver(server, kind, name), connect(TransportOptions())


def _options(server, kind, **options):
    if kind == "keys":
        return GCSOptions(
            endpoint=server.endpoint, access_key=SETTINGS.access_key, secret_key=SETTINGS.secret_key, **options
        )
    return GCSOptions(endpoint=server.endpoint, token="good", **options)


@pytest.fixture(params=KINDS)
def kind(request):
    return request.param


@pytest.fixture
def trial(server, kind):
    return Trial(*_fresh(server, kind))


@pytest.fixture
def bucket(server):
    name = uuid.uuid4().hex
    server.make(name)
    yield name
    server.heal()


class TestMoves:
    """A large object on a condition: parts elsewhere, and a move that the service holds to the condition."""

    @pytest.fixture
    def source(self, server, kind, bucket):
        source, _ = open_source(
            f"gs://{bucket}/",
            _options(server, kind, retry=RetryOptions(base_s=0.01), write=WriteOptions(part_bytes=PART)),
        )
        with source:
            yield source

    def _write(self, source, key, data, **condition):
        with source.open_write(key, metadata={"note": "x"}, content_type="text/plain", **condition) as file:
            file.write(data)

    def test_a_large_object_is_created_and_replaced_on_its_condition(self, server, source, bucket, kind):
        first, second = b"1" * (PART + 1), b"2" * (PART + 2)
        self._write(source, "a/key", first, create_only=True)
        with pytest.raises(AlreadyExists):
            self._write(source, "a/key", second, create_only=True)
        old = source.head("a/key")
        assert (old.metadata["note"], old.content_type, old.size) == ("x", "text/plain", PART + 1)
        with pytest.raises(PreconditionFailed):
            self._write(source, "a/key", second, replaces="17")
        self._write(source, "a/key", second, replaces=old.etag)
        assert server.objects(bucket) == {"a/key": second}
        assert server.uploads(bucket) == []
        assert bool(server.seen("move", bucket)) == (kind == "token")
        assert bool(server.seen("copy", bucket)) == (kind == "keys")

    @pytest.mark.parametrize("fault", ["lost", "503", "reset"])
    def test_a_lost_answer_to_the_move_leaves_one_object(self, server, source, bucket, kind, fault):
        verb = "move" if kind == "token" else "copy"
        server.fail(replace(FAULTS[fault], verbs=frozenset({verb})), when=Match(verb=verb, bucket=bucket))
        self._write(source, "key", b"n" * (PART + 1), create_only=True)
        assert set(server.objects(bucket)) == {"key"}

    def test_a_writer_between_look_and_move_wins(self, server, source, bucket, kind):
        verb = "move" if kind == "token" else "copy"
        driver, move = source._fetcher().driver, source._fetcher().driver.move

        def late(*arguments, **conditions):
            server.put(bucket, "key", b"theirs")
            return move(*arguments, **conditions)

        driver.move = late
        with pytest.raises(AlreadyExists):
            self._write(source, "key", b"n" * (PART + 1), create_only=True)
        assert server.objects(bucket) == {"key": b"theirs"}
        assert server.seen(verb, bucket)[-1].status == 412

    @pytest.mark.parametrize("kind", ["token"], indirect=True)  # with keys a copy is asked for from the first
    def test_a_bucket_that_offers_no_move_is_asked_for_a_copy(self, server, source, bucket):
        refused = replace(FAULTS["denied"], verbs=frozenset({"move"}), code="")
        server.fail(refused, when=Match(verb="move", bucket=bucket, times=None))
        for number in range(2):
            self._write(source, f"key-{number}", b"n" * (PART + 1), create_only=True)
        assert set(server.objects(bucket)) == {"key-0", "key-1"}
        assert len(server.seen("move", bucket)) == 1


def test_staged_objects_of_killed_writer_are_hidden_unfinished_uploads(server, trial):
    driver = trial.verb(Multipart)
    staged = f"{STAGED}a%2Fkey.{uuid.uuid4().hex}"
    trial.put("a/other", b"x")
    trial.put(staged, b"whole")
    in_parts = trial.do(driver.create(f"{STAGED}a%2Fparts.0", Attributes()))
    trial.do(driver.create("a/plain", Attributes()))
    trial.do(driver.create("b/elsewhere", Attributes()))
    assert trial.keys() == ["a/other"]
    assert trial.keys(STAGED) == []
    assert [page.prefixes for page in trial.pages(delimiter="/")] == [("a/",)]

    def unfinished(prefix):
        token, found = "", []
        while True:
            page = trial.do(driver.uploads(prefix, token=token))
            found += page.entries
            if not (token := page.token):
                return found

    assert [each.key for each in unfinished("a/")] == ["a/plain", "a/parts", "a/key"]
    assert len(unfinished("")) == 4
    assert in_parts in unfinished("a/")[1].id
    for each in unfinished("a/"):
        trial.do(driver.abort(each.key, each.id))
    assert [each.key for each in unfinished("")] == ["b/elsewhere"]
    assert set(server.objects(driver._bucket)) == {"a/other"}


def test_a_gzip_object_is_read_as_it_is_stored(server, trial):
    """Without Accept-Encoding the service would decompress it, ignore ranges, and say no length."""
    stored = gzip.compress(b"0123456789" * 100)
    with closing(HTTPConnection(urlsplit(server.endpoint).netloc, timeout=30)) as line:
        headers = {"authorization": "Bearer good", "content-encoding": "gzip", "content-type": "text/plain"}
        line.request("PUT", f"/{trial.driver._bucket}/z", stored, headers)
        assert line.getresponse().status == 200
    found = trial.head("z")
    assert found.size == len(stored)
    assert trial.read("z", 0, len(stored), found.etag, whole=True) == stored
    assert trial.read("z", 3, 9, found.etag) == stored[3:9]
    assert trial.get("z") == stored


def test_a_whole_object_is_compared_with_its_checksum(trial):
    trial.put("k", b"body")
    answer = {"x-goog-generation": "1", "x-goog-stored-content-length": "4", "x-goog-hash": "crc32c=AAAAAA=="}
    with pytest.raises(ChecksumMismatch, match="x-goog-hash"):
        trial.driver.get("k", "").parse(Response(200, answer, b"body"))


def test_a_read_is_held_to_a_generation(trial):
    old = trial.put("k", b"one")
    trial.put("k", b"two")
    with pytest.raises(Changed):
        trial.read("k", 0, 3, old)


def test_signature_excludes_headers_rewritten_by_the_front_end(server):
    driver = _driver(server, "keys", "b", user_project="payer")
    for exchange in (driver.get("k", ""), driver.put("k", Payload(b"x", "00000000"), Attributes())):
        lines = {line.partition(":")[0].lower(): line for line in exchange.request.headers}
        proof = lines["authorization"]
        assert "accept-encoding" not in proof
        assert "x-goog-user-project" in proof
        assert lines["x-goog-user-project"].endswith("payer")
        assert "amz" not in " ".join(exchange.request.headers)
    assert any(line == "accept-encoding: gzip" for line in driver.get("k", "").request.headers)


def test_rejected_token_error_suggests_gcloud_auth(server, trial):
    refused = Trial(_driver(server, "token", trial.driver._bucket), connect(TransportOptions()))
    refused.driver.identity._credentials = BearerToken("other")
    with pytest.raises(Unauthenticated, match="gcloud auth"):
        refused.get("k")
    with pytest.raises(Unauthenticated, match="gcloud auth"):
        refused.head("k")


def test_parts_are_not_copied(trial):
    assert not trial.has(PartCopy)


def test_delete_of_missing_key_succeeds_and_missing_bucket_raises(server, trial):
    driver = trial.verb(Delete)
    trial.do(driver.delete("no/such"))
    with pytest.raises(Exception, match="NoSuchBucket"):
        trial.do(_driver(server, "keys", "no-such-bucket").delete("k"))


def test_a_part_of_another_checksum_is_refused(trial):
    driver = trial.verb(Multipart)
    upload = trial.do(driver.create("k", Attributes()))
    with pytest.raises(ChecksumMismatch):
        trial.do(driver.part("k", upload, UploadPart(1, 0), Payload(b"damaged", "01020304")))


# -- Google's codes as errors that say what to change; a refused token is renewed --


def _refusal(status, code=""):
    body = f"<Error><Code>{code}</Code></Error>".encode() if code else b""
    return GOOGLE_CODES.refusal(Response(status, {}, body), "read", "gs://b/k")


@pytest.mark.parametrize(
    ("status", "code", "kind", "advice"),
    [
        (400, "UserProjectMissing", ConfigError, "user_project="),
        (401, "AuthenticationRequired", Unauthenticated, "anonymous=True"),
        (403, "SignatureDoesNotMatch", Unauthenticated, "GCS_SECRET"),
        (403, "AccessDenied", Forbidden, "may not do this"),
        (403, "RetentionPolicyNotMet", Forbidden, "held or retained"),
        (404, "NoSuchBucket", NotFound, "bucket's name"),
        (429, "", Throttled, ""),
    ],
)
def test_gcs_error_code_selects_exception_and_advice(status, code, kind, advice):
    error = _refusal(status, code).error
    assert type(error) is kind
    assert advice in str(error)
    assert error.code == code


@pytest.mark.parametrize(("status", "code"), [(401, ""), (401, "AuthenticationRequired"), (400, "ExpiredToken")])
def test_a_refused_token_is_renewed(status, code):
    assert _refusal(status, code).meaning.renews


def test_every_row_makes_an_error():
    for code, meaning in GOOGLE_CODES.codes.items():
        assert isinstance(_refusal(400, code).error, PenstockError)
        assert not meaning.region


# -- CRC-32C as Google writes it, whichever of its lines the transport kept --


CHECK = b"123456789"  # of which the CRC catalogue says e3069283
GOOD = "4waSgw=="
MD5 = b64encode(md5(CHECK, usedforsecurity=False).digest()).decode()


def test_a_digest_under_way_is_that_of_the_whole():
    digest = Crc32c()
    for piece in (b"1234", bytearray(b"56"), memoryview(b"789")):
        digest.update(piece)
    assert digest.hexdigest() == "e3069283"
    assert Google(keys=True).body_headers(digest.hexdigest()) == {"x-goog-hash": f"crc32c={GOOD}"}


@pytest.mark.parametrize(
    ("stored", "expected"),
    [
        (f"crc32c={GOOD}", True),
        (f"crc32c={GOOD},md5={MD5}", True),
        (f"md5={MD5}, crc32c={GOOD}", True),
        (f"md5={MD5}", True),
        (f"crc32c=AAAAAA==,md5={MD5}", False),
        ("md5=AAAA", False),
        ("", True),
        ("sha256=AAAA", True),
    ],
)
@pytest.mark.parametrize("kind", [bytes, bytearray, memoryview])
def test_a_checksum_is_compared(stored, expected, kind):
    assert Checksum("x-goog-hash", stored, stored_sum).holds(kind(CHECK)) is expected


# -- Google's words for S3's verbs, by what requests say --


class Nobody:
    def current(self):
        return None


def _headers(exchange):
    lines = [line.partition(":")[::2] for line in exchange.request.headers]
    return {name.lower(): value.strip() for name, value in lines if value}


@pytest.fixture
def driver():
    return GCSDriver(BucketAddress("b", None, virtual=False, scheme="gs"), Nobody(), Google(keys=False))


def test_objects_are_addressed_by_path_on_googles_own_host(driver):
    assert driver.head("a b").request.url == "https://storage.googleapis.com/b/a%20b"


def test_a_read_takes_gzip_and_is_held_to_a_generation(driver):
    asked = _headers(driver.read(Span("k", 2, 4, "17"), Buffer.allocate(2)))
    assert asked == {"accept-encoding": "gzip", "x-goog-if-generation-match": "17", "range": "bytes=2-3"}
    assert "accept-encoding" not in _headers(driver.list("")), "XML comes as it is"


def test_a_put_has_its_checksum_and_its_condition(driver):
    body = Payload(b"123456789", "e3069283")
    new = _headers(driver.put("k", body, Attributes("text/plain", {"note": "x"}, create_only=True)))
    common = {"content-type": "text/plain", "x-goog-hash": "crc32c=4waSgw=="}
    assert new == {**common, "x-goog-meta-note": "x", "x-goog-if-generation-match": "0"}
    old = _headers(driver.put("k", body, Attributes("text/plain", replaces="17")))
    assert old == {**common, "x-goog-if-generation-match": "17"}


# -- google-auth's requests: over real HTTP, bounded, never redirected, and a failure is its own TransportError --


def test_an_answer_comes_back_whole():
    with TokenServer.start() as server:
        answer = requests(None, "")(f"{server.url}/token", method="POST", body="a=b", headers={"x-a": "b"}, timeout=5)
        assert (answer.status, answer.headers["metadata-flavor"]) == (200, "Google")
        assert b"token-1" in answer.data
        assert server.forms == [{"a": "b"}]


def test_a_refusal_is_an_answer():
    with TokenServer.start() as server:
        server.refusal = 403, {"error": "denied"}
        answer = requests(None, "")(f"{server.url}/token")
        assert (answer.status, answer.data) == (403, b'{"error": "denied"}')


def test_no_redirect_is_followed():
    with TokenServer.start() as other:

        def script(_received, send):
            send(reply(302, location=f"{other.url}/stolen"))
            return True

        with Scripted(script) as server:
            answer = requests(None, "")(f"{server.url}/token", headers={"authorization": "Bearer secret"})
            assert answer.status == 302
        assert other.asked == []


@pytest.mark.parametrize("url", ["http://127.0.0.1:9/", "file:///etc/passwd", "ftp://127.0.0.1/x"])
def test_unreachable_or_non_http_token_url_raises_transport_error(url):
    with pytest.raises(TransportError):
        requests(None, "")(url)


def test_a_proxy_is_used():
    def script(received, send):
        assert received.path == "http://token.invalid/x"
        send(reply(200, b"proxied"))
        return True

    with Scripted(script) as proxy:
        assert requests(None, proxy.url)("http://token.invalid/x").data == b"proxied"


# -- Google's signature against the fault server's own reading of it, and tokens as they change --


BUCKET = BucketAddress("b", None, virtual=False)
KEYS = Credentials("GOOG1ID", "secret")
NOW = 1_770_000_000


def _headers_signing(lines):
    return {name.lower(): value.strip() for name, _, value in (line.partition(":") for line in lines)}


@pytest.mark.parametrize("payer", ["", "my-project"])
@pytest.mark.parametrize("method", ["GET", "PUT"])
def test_an_hmac_signature_is_googles(method, payer, monkeypatch):
    monkeypatch.setattr("time.time", lambda: NOW)
    sign = Google(keys=True, user_project=payer).signer(BUCKET, "storage.googleapis.com", "auto", lambda: KEYS)
    given = {"accept-encoding": "gzip", "x-goog-meta-a": "1", "range": "bytes=0-1"}
    sent = {"host": "storage.googleapis.com", **_headers_signing(sign(method, "/b/a%20b", "x=1", given, "ab" * 32))}
    assert sent["x-goog-content-sha256"] == "UNSIGNED-PAYLOAD"
    assert sent.get("x-goog-user-project", "") == payer
    assert sent["authorization"].startswith("GOOG4-HMAC-SHA256 Credential=GOOG1ID/20260202/auto/storage/goog4_request,")
    rewritten = {**sent, "accept-encoding": "gzip(gfe)"}
    scheme = Scheme("GOOG4", "storage", "x-goog-")
    request = Request(method, "/b/a%20b", "x=1", rewritten, bytearray())
    check_signature(request, {"GOOG1ID": "secret"}, frozenset({"auto"}), NOW, scheme)
    with pytest.raises(Refused, match="SignatureDoesNotMatch"):
        changed = Request(method, "/b/other", "x=1", rewritten, bytearray())
        check_signature(changed, {"GOOG1ID": "secret"}, frozenset({"auto"}), NOW, scheme)


def test_each_request_has_the_present_token():
    tokens = [BearerToken("one")]
    sign = Google(keys=False, user_project="payer").signer(BUCKET, "h", "auto", lambda: tokens[-1])
    first = sign("GET", "/b/k", "", {"range": "bytes=0-1"})
    assert first == ("Authorization: Bearer one", "x-goog-user-project: payer", "range: bytes=0-1")
    tokens.append(BearerToken("two"))
    assert sign("GET", "/b/k", "", {})[0] == "Authorization: Bearer two"
    tokens.append(None)
    assert sign("GET", "/b/k", "", {"a": "b"}) == ("a: b",), "without credentials nobody pays either"


ADDRESS = Address("b", "a%20b", "storage.googleapis.com", "auto", "GET", "/b/a%20b", 600, NOW)


def test_a_service_account_signs_addresses_with_its_private_key():
    from cryptography.hazmat.primitives import hashes, serialization
    from cryptography.hazmat.primitives.asymmetric import padding
    from google.auth.crypt import RSASigner

    private = new_key()
    token = ServiceToken("t", None, "a file", EMAIL, RSASigner.from_string(private).sign)
    query = Google(keys=False, user_project="payer").signed_query(ADDRESS, token)
    fields, _, signature = query.rpartition("&X-Goog-Signature=")
    given = dict(parse_qsl(fields))
    assert given["X-Goog-Algorithm"] == "GOOG4-RSA-SHA256"
    assert given["X-Goog-Credential"] == f"{EMAIL}/20260202/auto/storage/goog4_request"
    assert (given["X-Goog-Expires"], given["userProject"]) == ("600", "payer")
    canonical = f"GET\n/b/a%20b\n{fields}\nhost:storage.googleapis.com\n\nhost\nUNSIGNED-PAYLOAD"
    digest = sha256(canonical.encode()).hexdigest()
    text = f"GOOG4-RSA-SHA256\n{given['X-Goog-Date']}\n20260202/auto/storage/goog4_request\n{digest}"
    public = serialization.load_pem_private_key(private.encode(), None).public_key()
    public.verify(bytes.fromhex(signature), text.encode(), padding.PKCS1v15(), hashes.SHA256())
    assert private not in repr(token)


def test_an_access_token_signs_no_address():
    for token in (BearerToken("t"), ServiceToken("t")):
        with pytest.raises(Unsupported, match="HMAC key"):
            Google(keys=False).signed_query(ADDRESS, token)


class TestGenerations:
    """Reads by generation; the emulator keeps none, so requests and answers are compared with the reference."""

    def test_listed_generations_are_the_ids_that_reads_ask_for(self, server, kind):
        driver = _driver(server, kind, "bucket")
        entry = b"<Contents><Key>a</Key><Generation>1700</Generation><Size>3</Size></Contents>"
        body = b"<ListBucketResult><IsTruncated>false</IsTruncated>%s</ListBucketResult>" % entry
        [found] = driver.list_versions("").parse(Response(200, {}, body)).entries
        assert (found.key, found.etag) == ("a", f"1700{VERSION}1700")
        target = Buffer.allocate(2)
        for exchange in (
            driver.read(Span("a", 0, 2, found.etag), target),
            driver.read(Span("a", 0, 0, found.etag), Buffer.allocate(0)),
            driver.get("a", found.etag),
            driver.suffix("a", found.etag, target),
            driver.head_version("a", found.etag),
        ):
            assert exchange.request.url.endswith("/bucket/a?generation=1700")
        answer = Response(206, {"x-goog-generation": "1701", "content-range": "bytes 0-1/3"}, b"", 2)
        refused(Changed, "has changed", driver.read(Span("a", 0, 2, found.etag), target).parse, answer)

    @pytest.mark.parametrize(("status", "kept"), [("Enabled", True), ("Suspended", False), ("", False)])
    def test_versioning_is_looked_up(self, server, kind, status, kept):
        exchange = _driver(server, kind, "bucket").versioning("")
        assert exchange.request.url.endswith("/bucket?versioning=")
        body = f"<VersioningConfiguration>{status and f'<Status>{status}</Status>'}</VersioningConfiguration>"
        assert exchange.parse(Response(200, {}, body.encode())) is kept

    def test_signed_reads_in_parts_are_compared_with_the_checksum_of_their_generation(self, server, kind, bucket):
        data = bytes(range(250)) * 1000
        options = _options(server, kind, read=ReadOptions(split_bytes=100_000))
        with open_source(f"gs://{bucket}/", options)[0] as source:
            source.put("a b", data)
            [page] = _pages(source)
            [found] = page.entries
            assert version_id(found.etag) == source.head("a b").etag
            span = Span("a b", 0, len(data), found.etag, whole=True)
            assert source.read(span) == data
            assert source.read(Span("a b", -200_000, None, found.etag)) == data[-200_000:]
            server.put(bucket, "a b", data[::-1])
            refused(Changed, "has changed", source.read, span)


def _pages(source):
    with source.pager(versions=True) as pages:
        pages.start("")
        return [page for _, page in pages.take()]
