"""Copies on the store's side: of one version, whole or not at all, and long ones in parts, many at a time."""

from __future__ import annotations

import os
import random
import signal
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace

import pytest

from penstock.errors import Changed, Forbidden
from penstock.events import PartSent, subscribe
from penstock.options import TransportOptions
from penstock.source import open_source
from penstock.testing.clock import no_waiting
from penstock.testing.faults import FAULTS, FaultServer, Match, Settings
from tests.limits import limited
from tests.threads import until

PART = 64 << 10  # of the fault server's; S3's least part is 5 MiB
MIB = 1 << 20


@pytest.fixture
def server():
    with limited(copy_bytes=PART), FaultServer.start(Settings(least_part_bytes=PART)) as running:
        running.put("bucket", "to", b"old")
        yield running


@pytest.fixture
def source(server):
    return open_source("s3://bucket/", replace(server.store, transport=TransportOptions(stall_timeout_s=2)))[0]


def is_untouched(server):
    return (server.objects("bucket")["to"], server.uploads("bucket")) == (b"old", [])


@pytest.mark.parametrize("key", ["a b/ü+", "per%2Bcent"])  # Ceph 16 takes the second for per+cent
def test_large_object_copied_in_parts_keeps_its_content_type_and_metadata(bucket, seed, key):
    data = random.Random(seed).randbytes(12 * MIB)
    client, where = bucket.client, {"Bucket": bucket.name}
    client.put_object(**where, Key="per+cent", Body=bytes(12 * MIB))
    client.put_object(**where, Key=key, Body=data, ContentType="x/y", Metadata={"made-by": "hand"})
    with limited(copy_bytes=5 * MIB):
        source, _ = open_source(bucket.url, bucket.store)
        (listed,) = source.page(key).entries
        source.copy(key, "to", listed)
    found = client.get_object(**where, Key="to")
    assert found["Body"].read() == data
    assert found["ContentType"] == "x/y"
    assert found["Metadata"]["made-by"] == "hand"
    assert found["ETag"].endswith('-3"' if key == "a b/ü+" else '"')
    assert "Uploads" not in client.list_multipart_uploads(**where)


@pytest.mark.parametrize(("size", "requests"), [(0, 0), (PART, 0), (PART + 1, 2), (3 * PART, 3), (20 * PART, 20)])
def test_each_part_is_asked_for_once(server, source, seed, size, requests):
    data = random.Random(seed).randbytes(size)
    server.put("bucket", "from", data)
    source.copy("from", "to")
    assert server.objects("bucket")["to"] == data
    assert len(server.seen("copy-part")) == requests
    assert len(server.seen("copy")) == (requests == 0)
    assert all(seen.headers["x-amz-copy-source-if-match"] for seen in (*server.seen("copy"), *server.seen("copy-part")))
    assert len(server.seen("part")) == len(server.seen("get")) == 0


def test_eight_parts_are_on_their_way_at_a_time(server, source):
    def asked():
        return {seen.headers["x-amz-copy-source-range"] for seen in server.seen("copy-part")}

    server.put("bucket", "from", bytes(20 * PART))
    server.fail(FAULTS["stall"], when=Match(verb="copy-part", times=None))
    with ThreadPoolExecutor(1) as pool, no_waiting():
        copying = pool.submit(source.copy, "from", "to")
        until(lambda: len(asked()) >= 8)
        source.head("to")  # it goes through, and no ninth part was begun before it
        assert len(asked()) == 8
        assert server.objects("bucket")["to"] == b"old"
        server.heal()
        copying.result(120)
    assert server.objects("bucket")["to"] == bytes(20 * PART)


@pytest.mark.parametrize("size", [PART, 5 * PART], ids=["one", "parts"])
def test_another_version_than_the_one_that_was_listed_is_not_copied(server, source, size):
    server.put("bucket", "from", bytes(size))
    listed = source.head("from")
    server.put("bucket", "from", b"n" * size)
    with pytest.raises(Changed) as caught:
        source.copy("from", "to", listed)
    assert caught.value.url == "s3://bucket/from"
    assert is_untouched(server)


def _raises_changed(source, change):
    unsubscribe = subscribe(lambda event: isinstance(event, PartSent) and change())
    with pytest.raises(Changed):
        source.copy("from", "to")
    unsubscribe()


def test_a_version_that_comes_while_parts_are_copied_is_not_mixed_in(server, source):
    server.put("bucket", "from", bytes(30 * PART))
    _raises_changed(source, lambda: server.put("bucket", "from", b"n" * 30 * PART))
    assert is_untouched(server)


def test_source_changed_during_copy_raises_on_a_store_that_ignores_conditions(moto_server):
    client = moto_server.client()
    client.create_bucket(Bucket="heedless")
    client.put_object(Bucket="heedless", Key="from", Body=bytes(11 * MIB))
    with limited(copy_bytes=5 * MIB):
        source, _ = open_source("s3://heedless/", moto_server.store)
    _raises_changed(source, lambda: source.put("from", b"n" * 11 * MIB))
    assert [entry.key for entry in source.page("").entries] == ["from"]
    assert list(source.unfinished("")) == []


@pytest.mark.parametrize(("verb", "size"), [("copy", 100), ("copy-part", 3 * PART)])
def test_where_the_store_does_not_copy_the_bytes_are_read_and_written(server, source, verb, size):
    data = os.urandom(size)
    source.put("from", data, metadata={"made": "by hand"}, content_type="x/y")
    server.fail(replace(FAULTS["denied"], status=501, code="NotImplemented"), when=Match(verb=verb, times=None))
    source.copy("from", "to")
    assert server.objects("bucket")["to"] == data
    assert server.uploads("bucket") == []
    copied = source.head("to")
    assert (copied.metadata["made"], copied.content_type) == ("by hand", "x/y")
    assert server.seen(verb)


def test_a_part_that_is_refused_aborts_it_all(server, source):
    server.put("bucket", "from", bytes(30 * PART))
    server.fail(FAULTS["denied"], when=Match(verb="copy-part", part=11, times=None))
    with pytest.raises(Forbidden):
        source.copy("from", "to")
    assert is_untouched(server)
    assert len(server.seen("copy-part")) < 30


def test_ctrl_c_aborts_it(server):
    server.put("bucket", "from", bytes(30 * PART))
    server.fail(FAULTS["stall"], when=Match(verb="copy-part", nth=5, times=None))
    code = f"""
import penstock as ps
from tests.limits import limited
with limited(copy_bytes={PART}):
    ps.copy("s3://bucket/from", "s3://bucket/to")
"""
    command, environment = [sys.executable, "-c", code], os.environ | server.environment
    with subprocess.Popen(command, env=environment, stderr=subprocess.PIPE) as process:
        until(lambda: len(server.seen("copy-part")) >= 5)
        assert server.uploads("bucket") == ["to"]
        process.send_signal(signal.SIGINT)
        assert b"KeyboardInterrupt" in process.communicate(timeout=60)[1]
    assert is_untouched(server)
