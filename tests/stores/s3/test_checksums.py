"""Whole reads are compared with whatever checksum the store names; what cannot be compared is let pass."""

from __future__ import annotations

import base64
import hashlib
import os
import zlib
from base64 import b64encode
from hashlib import md5, sha256

import pytest

from penstock.engine.contracts.driver import Payload
from penstock.errors import ChecksumMismatch
from penstock.options import RetryOptions
from penstock.source import open_source
from penstock.stores.s3 import checksums
from penstock.stores.s3.checksums import WithMD5, md5_of, sha256_of
from penstock.stores.s3.options import S3Options
from penstock.testing.servers import Scripted, reply
from penstock.values import Checksum, Span
from tests.children import python

DATA = b"123456789"
# Of DATA: the catalogue of parametrised CRC algorithms, and RFC 6234's function.
KNOWN = {
    "crc32": (0xCBF43926).to_bytes(4, "big"),
    "crc32c": (0xE3069283).to_bytes(4, "big"),
    "crc64nvme": (0xAE8B14860A799888).to_bytes(8, "big"),
    "sha1": hashlib.sha1(DATA, usedforsecurity=False).digest(),
    "sha256": hashlib.sha256(DATA).digest(),
}


def _holds(name, stored, data):
    return Checksum(name, stored, checksums.digests()[f"x-amz-checksum-{name}"]).holds(data)


def _read(name, stored, body=DATA):
    def script(received, send):
        assert received.headers["x-amz-checksum-mode"] == "ENABLED"
        send(reply(200, body, etag='"e"', **{f"x_amz_checksum_{name}": stored}))
        return True

    with Scripted(script) as server:
        options = S3Options(endpoint=server.url, anonymous=True, retry=RetryOptions(attempts=1))
        source, _ = open_source("s3://bucket/", options)
        known = source.read(Span("k", 0, len(DATA), "e", whole=True))
        assert source.read(Span("k")) == known, "of unknown size"
        return known


@pytest.mark.parametrize("name", KNOWN)
def test_the_stores_checksum_is_compared(name):
    stored = base64.b64encode(KNOWN[name]).decode()
    assert _read(name, stored) == DATA
    with pytest.raises(ChecksumMismatch, match=f"x-amz-checksum-{name}"):
        _read(name, stored, b"123456780")


@pytest.mark.parametrize("name", KNOWN)
def test_a_checksum_of_parts_checksums_is_let_pass(name):
    assert _read(name, f"{base64.b64encode(KNOWN[name]).decode()}-3", b"987654321") == b"987654321"


def test_an_unknown_checksum_is_let_pass():
    assert _read("xxhash64", "AAAA") == DATA


def test_only_standard_library_digests_are_compared_without_checksum_library(monkeypatch):
    monkeypatch.setattr(checksums, "find_spec", lambda _name: None)
    checksums.digests.cache_clear()
    try:
        assert {*checksums.digests()} == {f"x-amz-checksum-{each}" for each in ("crc32", "sha1", "sha256")}
    finally:
        monkeypatch.undo()
        checksums.digests.cache_clear()
    assert len(checksums.digests()) == 5


def test_a_forked_child_computes_as_its_parent_does():
    data = os.urandom(1 << 20)
    assert _holds("crc32", base64.b64encode(zlib.crc32(data).to_bytes(4, "big")).decode(), data)
    stored = base64.b64encode(KNOWN["crc64nvme"]).decode()
    assert _holds("crc64nvme", stored, DATA)
    child = os.fork()
    if child == 0:
        holds = _holds("crc64nvme", stored, memoryview(DATA)) and not _holds("crc64nvme", stored, data)
        os._exit(0 if holds else 1)
    assert os.waitpid(child, 0)[1] == 0


FORKED_MEANWHILE = """
import base64, os, sys, threading
from penstock.stores.s3 import checksums

importing, forking = threading.Event(), threading.Event()

class Slow:
    def find_spec(self, name, path=None, target=None):
        if name == "awscrt":
            importing.set()
            forking.wait()  # the import has its lock, and the fork begins

sys.meta_path.insert(0, Slow())
os.register_at_fork(before=forking.set)  # runs before the hooks that were registered earlier
from penstock.values import Checksum

def compare(stored, data):
    return Checksum("crc32c", stored, checksums.digests()["x-amz-checksum-crc32c"]).holds(data)

stored = base64.b64encode((0xE3069283).to_bytes(4, "big")).decode()
thread = threading.Thread(target=compare, args=(stored, b"123456789"))
assert "awscrt" not in sys.modules
thread.start()
importing.wait()
if (child := os.fork()) == 0:
    os._exit(0 if compare(stored, b"123456789") else 1)
thread.join()
assert os.waitpid(child, 0)[1] == 0
"""


def test_a_fork_waits_while_another_thread_imports_the_library():
    ended = python(FORKED_MEANWHILE, limit_s=60)
    assert ended.returncode == 0, ended.stderr


READING = """
import sys
import penstock as ps
from penstock.testing.servers import Scripted, reply

def script(received, send):
    send(reply(200, b"data", etag='"e"'))
    return True

with Scripted(script) as server:
    store = ps.S3Options(endpoint=server.url, anonymous=True)
    dataset = ps.MapDataset.from_objects(["s3://bucket/k"], store=store)
    assert bytes(dataset[0].data) == b"data"
    assert not {name for name in sys.modules if name.partition(".")[0] in ("awscrt", "_awscrt")}
"""


def test_a_store_that_names_no_such_checksum_costs_no_import():
    ended = python(READING, limit_s=60)
    assert ended.returncode == 0, ended.stderr


def test_a_body_has_its_md5_once_whether_it_was_made_with_it_or_before(monkeypatch):
    digest, made = WithMD5(), []
    digest.update(b"da")
    digest.update(b"ta")
    body = Payload(b"data", digest.hexdigest())
    before = Payload(b"data", sha256(b"data").hexdigest())
    monkeypatch.setattr(checksums, "md5", lambda data, **_: made.append(data) or md5(data, usedforsecurity=False))
    expected = b64encode(md5(b"data", usedforsecurity=False).digest()).decode()
    for each in (body, before, before, before):
        assert sha256_of(each) == sha256(b"data").hexdigest()
        assert md5_of(each) == expected
    assert made == [b"data"]
    assert sha256_of(Payload(b"data")) == ""
