"""The contract over both kinds of access, and what is Google's own: generations, moves, and objects that wait."""

from __future__ import annotations

import gzip
import uuid
from contextlib import closing
from dataclasses import replace
from http.client import HTTPConnection
from urllib.parse import urlsplit

import pytest

from penstock.engine.contracts.credentials import BearerToken, Credentials
from penstock.engine.contracts.driver import STAGED, Attributes, Delete, Multipart, PartCopy, Payload, UploadPart
from penstock.engine.contracts.exchange import Response
from penstock.engine.transport.loop import connect
from penstock.errors import AlreadyExists, Changed, ChecksumMismatch, PreconditionFailed, Unauthenticated
from penstock.options import RetryOptions, TransportOptions, WriteOptions
from penstock.source import open_source
from penstock.stores.gcs.driver import GCSDriver, Google
from penstock.stores.gcs.options import GCSOptions
from penstock.stores.s3.dialect import BucketAddress
from penstock.testing.drivers import Trial
from penstock.testing.faults import FAULTS, FaultServer, Match, Settings

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
