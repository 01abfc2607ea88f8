"""Every verb on a store that falls silent ends within 1.25 times its patience, whatever cleans up after it."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from time import monotonic

import pytest

import penstock as ps
from penstock.errors import PenstockError, TimedOut
from penstock.source import open_source
from penstock.testing.faults import FAULTS, FaultServer, Match
from tests.emulators import settings

PATIENCE_S = 6.0
# What a busy machine adds: 36 verbs wait side by side. A verb that began its patience anew would take 6 s more.
BUSY_S = 3.0
DIALECTS = ("s3", "gcs-keys", "oss", "azure-key")
VERBS = ("head", "list", "read", "put", "file", "publish", "complete", "delete", "copy")


def _timed(do):
    began = monotonic()
    try:
        do()
    except PenstockError as error:
        return type(error), monotonic() - began
    return None, monotonic() - began


def _write(source, key, **options):
    with source.open_write(key, **options) as file:
        file.write(b"x" * 100)


def _silent(name):
    """Return the error of each verb, and its seconds, on a store that falls silent."""
    retry = ps.RetryOptions(patience_s=PATIENCE_S, first_contact_s=PATIENCE_S)
    quick = ps.TransportOptions(stall_timeout_s=1.0)
    with FaultServer.start(settings(name)) as server:
        server.put("bucket", "key", b"x" * 1000)
        least = settings(name).least_part_bytes
        write = ps.WriteOptions(part_bytes=max(least, 64 << 10))
        source, _ = open_source(
            f"{server.scheme}://bucket/", replace(server.store, retry=retry, transport=quick, write=write)
        )
        source.head("key")
        upload = source.open_write("parts")
        upload.write(b"x" * 2 * write.part_bytes)
        upload.settle()
        server.fail(FAULTS["stall"], when=Match(times=None))
        verbs = {
            "head": lambda: source.head("key"),
            "list": lambda: source.page(""),
            "read": lambda: source.open_read("key").read(),
            "put": lambda: source.put("new", b"x"),
            "file": lambda: _write(source, "file"),
            "publish": lambda: source.publish("published", b"x"),
            "complete": upload.close,
            "delete": lambda: source.delete(["key"]),
            "copy": lambda: source.copy("key", "copy", ps.ObjectMeta("key", 1000, "")),
        }
        with ThreadPoolExecutor(len(verbs)) as pool:
            return dict(zip(verbs, pool.map(_timed, verbs.values()), strict=True))


@pytest.fixture(scope="module")
def silenced():
    """Return what came of each dialect; they wait for their patience side by side."""
    with ThreadPoolExecutor(len(DIALECTS)) as pool:
        return {name: pool.submit(_silent, name) for name in DIALECTS}


@pytest.mark.parametrize("name", DIALECTS)
def test_silent_store_ends_each_verb_within_its_patience(name, silenced):
    took = silenced[name].result()
    assert {verb: kind for verb, (kind, _) in took.items()} == dict.fromkeys(VERBS, TimedOut)
    assert {verb: s for verb, (_, s) in took.items() if s > 1.25 * PATIENCE_S + BUSY_S} == {}


def test_write_whose_answer_is_lost_is_recognised_within_the_same_bound():
    with FaultServer.start(settings("s3")) as server:
        server.make("bucket")
        retry = ps.RetryOptions(patience_s=PATIENCE_S, attempts=1)
        source, _ = open_source("s3://bucket/", replace(server.store, retry=retry))
        server.fail(FAULTS["lost"], when=Match(verb="put"))
        _write(source, "key")
        assert server.objects("bucket") == {"key": b"x" * 100}
