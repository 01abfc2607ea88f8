"""A conditional write takes place where its condition holds, once, and says so where it does not, on every store."""

from __future__ import annotations

import re
import uuid
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from dataclasses import replace
from hashlib import sha512

import pytest

from penstock.engine.contracts.driver import Attributes, Payload
from penstock.errors import AlreadyExists, Changed, Damaged, NotFound, PreconditionFailed, Transient, Unusable
from penstock.events import Committed
from penstock.options import RetryOptions, StoreOptions, WriteOptions
from penstock.source import open_source
from penstock.stores.s3.options import S3Options
from penstock.testing.faults import FAULTS, FaultServer, Match, Settings
from penstock.testing.servers import Scripted, reply
from tests.children import forked
from tests.engine.fetch.store import fetcher, hearing
from tests.servers.hostile import hostile

PARTS = WriteOptions(part_bytes=5 << 20, buffer_bytes=10 << 20)
SIZES = [0, 10, 6 << 20]
KINDS = ["heeded", "bare", "ignored", "refused"]


@pytest.fixture(params=["moto", pytest.param("ceph", marks=pytest.mark.ceph), "local", "memory", *KINDS])
def source(request, tmp_path):
    """Return a source of each kind of store, empty below its prefix."""
    if request.param in ("moto", "ceph"):
        server, name = request.getfixturevalue(f"{request.param}_server"), f"test-{uuid.uuid4().hex}"
        server.client().create_bucket(Bucket=name)
        yield open_source(f"s3://{name}/", replace(server.store, write=PARTS))
    elif request.param in KINDS:
        with FaultServer.within(Settings(conditions=request.param)) as server:
            server.make("bucket")
            yield open_source("s3://bucket/", replace(server.store, write=PARTS))
    else:
        url = f"{tmp_path}/" if request.param == "local" else f"memory://{tmp_path.name}/"
        yield open_source(url, StoreOptions(write=PARTS))


def _writes(source, key, data, **condition):
    with source.open_write(key, **condition) as file:
        file.write(data)


@pytest.mark.parametrize("size", SIZES)
def test_the_version_that_is_named_is_replaced_and_no_other(source, size):
    source, prefix = source
    key = f"{prefix}key"
    first = source.publish(key, b"1" * size)
    with pytest.raises(AlreadyExists):
        source.publish(key, b"2")
    _writes(source, key, b"3" * size + b"3", replaces=first.etag)
    with pytest.raises(PreconditionFailed, match="key"):
        _writes(source, key, b"4" * size, replaces=first.etag)
    with pytest.raises(PreconditionFailed, match="key"):
        source.publish(key, b"4" * size, replaces=first.etag)
    found = source.head(key)
    assert source.open_read(key, found).read() == b"3" * size + b"3"
    last = source.publish(key, b"5" * size, replaces=found.etag)
    assert (last.etag, last.size) == (source.head(key).etag, size)
    with pytest.raises(PreconditionFailed):
        _writes(source, f"{prefix}none", b"6" * size, replaces=last.etag)
    assert [entry.key for page in source.pages(prefix) for entry in page.entries] == [key]
    assert list(source.unfinished(prefix)) == []


@pytest.mark.parametrize("size", SIZES)
def test_second_exclusive_create_raises_already_exists_and_leaves_nothing(source, size, tmp_path):
    source, prefix = source
    key = f"{prefix}key"
    _writes(source, key, b"1" * size, create_only=True)
    with pytest.raises(AlreadyExists):
        _writes(source, key, b"2" * size, create_only=True)
    assert source.open_read(key).read() == b"1" * size
    assert [entry.key for page in source.pages(prefix) for entry in page.entries] == [key]
    assert list(source.unfinished(prefix)) == []
    assert [path.name for path in tmp_path.iterdir()] in ([], ["key"])
    _writes(source, key, b"3")
    assert source.open_read(key).read() == b"3"


def test_metadata_goes_with_the_object(bucket):
    source, _ = open_source(bucket.url, replace(bucket.store, write=PARTS))
    for size in SIZES:
        _writes(source, "key", b"x" * size, metadata={"Run": "7 a"})
        assert source.head("key").metadata["run"] == "7 a"
        assert bucket.client.head_object(Bucket=bucket.name, Key="key")["Metadata"]["run"] == "7 a"


LOST = [(kind, fault, False) for kind in KINDS for fault in ("lost", "reset", "headers-long", "503")]


@pytest.mark.parametrize(("kind", "fault", "creates"), [*LOST, ("heeded", "lost", True)])
@pytest.mark.parametrize(("verb", "size"), [("put", 0), ("put", 10), ("complete", 6 << 20)])
def test_lost_write_response_does_not_raise_a_failed_condition(kind, fault, creates, verb, size):
    """The write took effect, and a second attempt meets our own object: 412, or no such upload."""
    with FaultServer.within(Settings(conditions=kind)) as server:
        etag = server.make("bucket") if creates else server.put("bucket", "key", b"old")
        server.fail(FAULTS[fault], when=Match(verb=verb, key="key"))
        source, _ = open_source("s3://bucket/", replace(server.store, write=PARTS))
        _writes(source, "key", b"n" * size, **({"create_only": True} if creates else {"replaces": etag}))
        assert server.objects("bucket") == {"key": b"n" * size}
        assert server.uploads("bucket") == []


def test_publish_sends_one_put_even_for_a_large_object():
    with FaultServer.within() as server, hearing(Committed) as told:
        server.make("bucket")
        source, _ = open_source("s3://bucket/", replace(server.store, write=PARTS))
        source.publish("key", bytes(11 << 20))
        assert [seen.verb for seen in server.seen()] == ["head", "put", "head"]
        assert [each.size_bytes for each in told] == [11 << 20]


def _count(source, key, times):
    """Add one to a number in an object, again and again."""
    for _ in range(times):
        while True:
            meta = source.head(key)
            try:
                number = int(source.open_read(key, meta).read())
            except Changed:
                continue
            with suppress(Changed):  # it was written, and the next number came before it was looked at
                try:
                    source.publish(key, b"%d" % (number + 1), replaces=meta.etag)
                except PreconditionFailed:
                    continue
            break


@pytest.mark.parametrize("kind", ["heeded", "memory", "local", pytest.param("ceph", marks=pytest.mark.ceph)])
def test_concurrent_conditional_replacements_lose_no_update(kind, tmp_path, request):
    """Numbers are lost where both think they replaced it."""
    retry = RetryOptions(base_s=0.001, cap_s=0.01)
    with FaultServer.start() as server:
        url, store = f"memory://{tmp_path.name}/", StoreOptions(retry=retry)
        if kind == "heeded":
            server.make("bucket")
            url, store = "s3://bucket/", replace(server.store, retry=retry)
        elif kind == "ceph":
            ceph = request.getfixturevalue("ceph_server")
            ceph.client().create_bucket(Bucket="counts")
            url, store = "s3://counts/", replace(ceph.store, retry=retry)
        elif kind == "local":
            url = f"{tmp_path}/"
        source, prefix = open_source(url, store)
        key = f"{prefix}key"
        source.publish(key, b"0")
        if kind == "local":
            with forked(lambda: _count(source, key, 25)) as one, forked(lambda: _count(source, key, 25)) as other:
                assert (one(), other()) == (0, 0)
        else:
            with ThreadPoolExecutor(5) as pool:
                for counting in [pool.submit(_count, source, key, 10) for _ in range(5)]:
                    counting.result(60)
        assert int(source.open_read(key).read()) == 50


def test_form_of_write_conditions_is_learned_once_per_store():
    for kind, learned in (("heeded", "usual"), ("bare", "bare"), ("ignored", "usual"), ("refused", "none")):
        with FaultServer.within(Settings(conditions=kind)) as server:
            etag = server.put("bucket", "key", b"0")
            source, _ = open_source("s3://bucket/", server.store)
            for number in range(3):
                etag = source.publish("key", b"%d" % number, replaces=etag).etag
            assert source._fetcher().driver.abilities.form == learned
            assert len(server.seen("put")) == (3 if learned == "usual" else 4)
            with pytest.raises(PreconditionFailed):
                source.publish("key", b"3", replaces="f" * 32)


@pytest.mark.parametrize("learned", [None, False], ids=["none-learned", "learned"])
def test_unrelated_refusal_keeps_the_condition_form_and_what_concurrent_reads_have_learned(learned):
    def script(received, send):
        driver = source._fetcher().driver
        if received.method == "PUT":
            driver.abilities = replace(driver.abilities, ranges=learned)
        send(reply(404) if received.method == "HEAD" else reply(501, b"<Error><Code>NotImplemented</Code></Error>"))
        return True

    with Scripted(script) as server:
        source, _ = open_source("s3://bucket/", S3Options(endpoint=server.url, anonymous=True))
        with pytest.raises(Unusable, match="NotImplemented"):
            source.publish("key", b"x")
        abilities = source._fetcher().driver.abilities
        assert (abilities.form, abilities.ranges) == ("usual", learned)


@pytest.mark.parametrize("others", [{"x_amz_meta_penstockwrite": "theirs"}, {}])
@pytest.mark.parametrize("condition", [{"create_only": True}, {"replaces": "e"}])
def test_losing_writer_on_a_store_without_conditions_raises_changed(others, condition):
    """Both looked, both wrote, and what is shown afterwards is the other's, of the same size; Ceph names no ETag."""
    written = []

    def script(received, send):
        if received.method == "PUT":
            written.append(received)
            send(reply(200))
        elif received.method == "GET":
            send(reply(206, b"y", content_range="bytes 0-0/1", etag='"theirs"'))
        elif written:
            send(reply(200, content_length="1", etag='"theirs"', **others))
        else:
            send(reply(404) if "create_only" in condition else reply(200, content_length="1", etag='"e"'))
        return True

    with Scripted(script) as server:
        source, _ = open_source("s3://bucket/", S3Options(endpoint=server.url, anonymous=True))
        with pytest.raises(Changed, match="another writer"):
            _writes(source, "key", b"x", **condition)
        assert len(written) == 1
        assert [each.method for each in server.received].count("GET") == (0 if others else 1)


def test_write_whose_answer_was_lost_is_unknown_while_the_store_is_down():
    """The upload is gone because it was completed: NotFound would say that nothing was written."""
    with FaultServer.within(Settings()) as server:
        server.make("bucket")
        retry = RetryOptions(base_s=0.001, attempts=2)
        source, _ = open_source("s3://bucket/", replace(server.store, write=PARTS, retry=retry))
        server.fail(FAULTS["lost"], when=Match(verb="complete", key="key"))
        server.fail(*[FAULTS["503"]] * 9, when=Match(verb="head", key="key"))
        with pytest.raises(Transient) as caught:
            _writes(source, "key", b"n" * (6 << 20))
        assert isinstance(caught.value.__cause__, NotFound)
        assert server.objects("bucket") == {"key": b"n" * (6 << 20)}


def test_failed_head_request_does_not_count_as_a_missing_object():
    with Scripted(lambda _received, send: send(reply(503)) or True) as server:
        store = S3Options(endpoint=server.url, anonymous=True, retry=RetryOptions(base_s=0.001, attempts=2))
        source, _ = open_source("s3://bucket/", store)
        for replaces in ("", "etag"):
            with pytest.raises(Transient):
                source.publish("key", b"x", replaces=replaces)
        assert {received.method for received in server.received} == {"HEAD"}


@pytest.mark.parametrize("etag", ['W/"weak"', "a\r\nx-evil: 1"])
def test_an_etag_that_cannot_be_sent_is_looked_for_only(etag):
    driver = fetcher("http://127.0.0.1:9").driver
    request = driver.put("key", Payload(b"x"), Attributes(replaces=etag)).request
    assert not any(line.lower().startswith(("if-match", "x-evil")) for line in request.headers)


def _renamed(*, drops):
    """Return a lie of HEAD and GET: another ETag than the write was answered with, and no metadata if it ``drops``."""

    def lie(answer, _received):
        answer = re.sub(rb'(?im)^etag: "e"', b'etag: "later"', answer)
        return re.sub(rb"(?im)^x-amz-meta-[^\r]*\r\n", b"", answer) if drops else answer

    return lie


@pytest.mark.parametrize("size", SIZES)
@pytest.mark.parametrize("drops", [False, True])
def test_etag_changed_by_the_store_after_a_write_raises_no_error(size, drops):
    """As rclone's and other gateways do: our mark tells, else the bytes, which are read back once."""
    lie = _renamed(drops=drops)
    with hostile(head=lie, get=lie) as server:
        source, _ = open_source("s3://bucket/", replace(server.store, write=PARTS))
        for name in ("first", "second"):
            _writes(source, name, b"n" * size)
            assert server.objects[name] == b"n" * size
        assert source.publish("third", b"n" * size).etag == "later" if not drops else True
        read = {key for verb, key in server.seen if verb == "get"}
        assert read == ({"first"} if drops and size else set())


@pytest.mark.parametrize("size", [10, 6 << 20])
def test_different_bytes_under_a_different_etag_raise_an_error(size):
    """No mark, another ETag: what stands there is another writer's of the same size, or damaged."""
    lie = _renamed(drops=True)

    def damaged(answer, received):
        return lie(answer[:-1] + b"?", received)

    with hostile(head=lie, get=damaged) as server:
        source, _ = open_source("s3://bucket/", replace(server.store, write=PARTS))
        for _ in range(2):
            with pytest.raises(Damaged, match="another writer, or damage"):
                _writes(source, "key", b"n" * size)
        with pytest.raises(Changed, match="another writer"):
            _writes(source, "new", b"n" * size, create_only=True)


@pytest.mark.parametrize("unanswered", [False, True], ids=["other-tag", "no-tag"])
@pytest.mark.parametrize("replaces", ["", "later"])
@pytest.mark.parametrize("size", SIZES)
def test_a_write_on_a_condition_is_read_back_where_no_mark_is_kept(size, replaces, unanswered):
    """It is ours where the bytes are, and another writer's where they are not; the same on such stores for ever."""
    lie = _renamed(drops=True)
    condition = {"replaces": replaces} if replaces else {"create_only": True}

    def untagged(answer, _received):
        return re.sub(rb"(?im)^etag: [^\r]*\r\n", b"", answer) if unanswered else answer

    with hostile(head=lie, get=lie, put=untagged) as server:
        source, _ = open_source("s3://bucket/", replace(server.store, write=PARTS))
        for name in ("first", "second", "published"):
            if replaces:
                server.objects[name] = b"old"
            if name == "published":
                assert source.publish(name, b"n" * size, replaces=replaces).size == size
            else:
                _writes(source, name, b"n" * size, **condition)
            assert server.objects[name] == b"n" * size
            assert ("get", name) in server.seen or not size
        with pytest.raises(AlreadyExists):
            source.publish("first", b"n" * size)
        server.lies["get"] = lambda answer, received: lie(answer[:-1] + b"?", received)
        if replaces:
            server.objects["other"] = b"old"
        if size:
            with pytest.raises(Changed, match="another writer"):
                source.publish("other", b"n" * size, replaces=replaces)


def test_size_mismatch_raises_despite_matching_write_id():
    with hostile() as server:
        source, _ = open_source("s3://bucket/", server.store)
        server.lies["head"] = lambda answer, _: re.sub(rb"(?im)^content-length: \d+", b"content-length: 9", answer)
        with pytest.raises(Damaged, match="wrote 10 bytes"):
            _writes(source, "key", b"n" * 10)


@pytest.mark.parametrize("digest", [sha512, None], ids=["SHA-512", "none"])
def test_a_body_carries_the_digest_that_its_store_wants(digest, monkeypatch):
    source, _ = open_source(f"memory://{uuid.uuid4().hex}/")
    driver, seen = source._fetcher().driver, []
    monkeypatch.setattr(driver, "abilities", replace(driver.abilities, digest=digest), raising=False)
    put = driver.put
    monkeypatch.setattr(driver, "put", lambda key, body, *more: seen.append(body.digest) or put(key, body, *more))
    source.put("put", b"bytes")
    source.publish("published", b"bytes")
    with source.open_write("written") as file:
        file.write(b"bytes")
    assert seen == [digest(b"bytes").hexdigest() if digest else ""] * 3
