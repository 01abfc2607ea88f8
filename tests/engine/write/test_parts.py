"""Parts are sent while others are written: within the memory allowed, told with their sizes, sent again on failure."""

from __future__ import annotations

import re
import threading
from _thread import start_new_thread
from dataclasses import replace
from hashlib import sha256

import numpy as np
import pytest

from penstock.engine.node.member import member
from penstock.engine.write import parts
from penstock.engine.write.parts import digested_ahead
from penstock.engine.write.publish import Publication
from penstock.errors import Forbidden, Unusable
from penstock.events import Committed, OperationEnded, PartSent
from penstock.testing.servers import reply
from tests.engine.fetch.store import hearing
from tests.engine.write.uploads import OPTIONS, PART, Uploads, any_bytes, say, small_parts, writing
from tests.servers.hostile import document


@pytest.fixture
def source(bucket):
    return small_parts(bucket)


def test_part_sent_events_report_number_and_size_of_each_part(source):
    with hearing(PartSent) as sent, hearing(Committed) as committed, source.open_write("key") as file:
        file.write(bytes(2 * PART + 3))
    assert sorted((each.number, each.size_bytes) for each in sent) == [(1, PART), (2, PART), (3, 3)]
    assert [each.size_bytes for each in committed] == [2 * PART + 3]


def test_memory_is_bounded(source):
    with source.open_write("key") as file:
        for _ in range(40):
            file.write(bytes(1 << 20))
            assert sum(len(sent.buffer) for sent in file._parts._sent) + len(file._part.buffer) <= OPTIONS.buffer_bytes
        file.abort()


def test_memory_is_bounded_while_views_of_blocks_are_sent(source):
    with source.open_write("key") as file:
        for _ in range(8):
            file.write(bytes(2 * PART))
            held = {id(sent.buffer): len(sent.buffer) for sent in file._parts._sent}
            assert sum(held.values()) <= OPTIONS.buffer_bytes, "two blocks of two parts would be too much"
        file.abort()


@pytest.mark.parametrize("share", [0.5, 0.0])
def test_memory_is_this_process_s_share_of_it_and_two_parts_at_least(source, monkeypatch, share):
    held = []

    def hold(budget, _options):
        budget.bytes_limit = int(budget.bytes_limit * share)
        held.append(budget)

    monkeypatch.setattr(member, "hold", hold)
    with source.open_write("key") as file:
        for _ in range(20):
            file.write(bytes(1 << 20))
            used = sum(len(sent.buffer) for sent in file._parts._sent) + len(file._part.buffer)
            assert used <= max(2 * PART, OPTIONS.buffer_bytes * share)
        file.abort()
    assert len(held) == 1


def test_a_share_that_shrinks_frees_the_memory_of_parts_that_were_sent(source):
    with source.open_write("key") as file:
        for part in [file.lend(PART) for _ in range(3)]:
            file.give(part)
        file.settle()
        assert len(file._parts.free) == 3
        file._parts._window.bytes_limit = 1
        file.give(file.lend(PART))
        assert len(file._parts.free) <= 1
        file.abort()


def test_no_memory_of_parts_is_kept_while_the_store_joins_them(source, monkeypatch):
    kept = []
    send = Publication.send

    def watched(self, call):
        kept.append(len(file._parts.free))
        return send(self, call)

    monkeypatch.setattr(Publication, "send", watched)
    with source.open_write("key") as file:
        file.give(file.lend(PART))
    assert kept == [0]


def test_a_part_that_fails_once_is_sent_again():
    answers = [reply(503)]
    script = Uploads(part=lambda _received, send, _answer: send(answers.pop()) or True if answers else None)
    with writing(script) as file:
        file.write(bytes(3 * PART))
        file.close()
    assert script.parts == {1: PART, 2: PART, 3: PART}


def test_views_and_copies_make_the_object_that_was_written(source, bucket):
    sizes = [2 * PART, PART, PART + 3, 2 * PART, 7]
    whole = any_bytes(sum(sizes))
    with source.open_write("key") as file:
        for stop, size in zip(np.cumsum(sizes), sizes, strict=True):
            assert file.write(whole[stop - size : stop]) == size
            assert file.tell() == stop
    assert bucket.client.get_object(Bucket=bucket.name, Key="key")["Body"].read() == whole


@pytest.mark.parametrize("sizes", [[PART], [PART, PART, 1], [PART + 3, PART], [3, 2 * PART], [3 * PART, 4 * PART]])
def test_views_are_sent_again_after_a_failure_with_the_same_bytes(sizes):
    whole, bodies = any_bytes(sum(sizes)), {}

    def part(received, send, _answer):
        attempts = bodies.setdefault(re.search(r"partNumber=(\d+)|$", received.path)[1], [])
        attempts.append(received.body)
        if len(attempts) == 1:
            send(reply(503))
            return True
        return None

    with writing(Uploads(part=part, put=part)) as file:
        for stop, size in zip(np.cumsum(sizes), sizes, strict=True):
            file.write(whole[stop - size : stop])
        file.close()
    assert (None in bodies) == (sizes == [PART]), "one PUT where it fits in one part"
    for attempt in (0, 1):
        assert b"".join(bodies[number][attempt] for number in sorted(bodies)) == whole


def test_bytes_are_sent_without_a_copy_and_other_buffers_are_copied():
    answered, whole = threading.Event(), any_bytes(2 * PART)
    with writing(Uploads(part=lambda *_: answered.wait(60) and None)) as file:
        file.write(whole)
        assert [sent.buffer is whole for sent in file._parts._sent] == [True, True]
        answered.set()
        for kind in (bytearray, memoryview):
            block = kind(whole)
            file.write(block)
            assert not any(sent.buffer is block for sent in file._parts._sent)
        file.abort()


@pytest.mark.parametrize("threads", [1, 2, 9, 0])
@pytest.mark.parametrize("views", [0, 1, 2, 7])
def test_views_come_in_order_with_their_digests(monkeypatch, threads, views):
    monkeypatch.setattr(parts, "processors", lambda: threads or 9)
    if not threads:
        monkeypatch.setattr(parts, "start_new_thread", _no_thread)
    pieces = [memoryview(any_bytes(100_000))[10_000 * number :] for number in range(views)]
    made = list(digested_ahead(pieces, sha256))
    assert [(body.data, body.digest) for body in made] == [(each, sha256(each).hexdigest()) for each in pieces]
    assert [(body.data, body.digest) for body in digested_ahead(pieces, None)] == [(each, "") for each in pieces]


def _no_thread(*_):
    raise RuntimeError("can't start new thread")


class _Digest:
    def hexdigest(self):
        return "right"


def test_two_views_are_digested_at_once(monkeypatch):
    monkeypatch.setattr(parts, "processors", lambda: 2)
    both = threading.Barrier(2)

    class Met(_Digest):
        def update(self, _data):
            both.wait(60)

    assert [body.digest for body in digested_ahead([memoryview(b"a")] * 2, Met)] == ["right", "right"]


@pytest.mark.parametrize("caller_fails", [True, False])
def test_error_of_a_digest_is_raised_to_the_caller_and_ends_the_threads(monkeypatch, caller_fails):
    monkeypatch.setattr(parts, "processors", lambda: 2)
    caller, begun = threading.get_ident(), []
    # One thread helps the caller; it goes on once an error was raised.
    raised, ended = threading.Event(), threading.Event()
    monkeypatch.setattr(parts, "start_new_thread", lambda run, _: start_new_thread(lambda: (run(), ended.set()), ()))

    class Failing(_Digest):
        def update(self, data):
            begun.append(data)
            if (threading.get_ident() == caller) != caller_fails:
                raised.wait(60)
                return
            if not caller_fails:
                raised.set()
            raise MemoryError

    views = [memoryview(b"a")] * 100
    if caller_fails:
        with pytest.raises(MemoryError):
            next(digested_ahead(views, Failing))
        raised.set()
        assert ended.wait(60)
        assert len(begun) <= 2
    else:
        assert [body.digest for body in digested_ahead(views, Failing)] == ["right"] * 100, "the caller tried again"
        assert ended.wait(60)


def test_no_bytes_can_be_written_after_the_last_part_of_a_store_and_a_byte_cannot():
    with writing(Uploads()) as file:
        file._fetcher.limits = replace(file._fetcher.limits, most_parts=2, equal_parts=True)
        assert [file.write(bytes(2 * PART)), file.write(b"")] == [2 * PART, 0]
        with pytest.raises(Unusable, match="at most 2 parts"):
            file.write(b"a")


def test_failed_part_error_is_raised_to_a_writer_waiting_for_memory():
    script = Uploads(part=say(reply(403, document("Error", Code="AccessDenied"))))
    with hearing(OperationEnded) as heard, writing(script) as file:
        for memory in [file.lend(PART) for _ in range(3)]:
            file.give(memory)
        with pytest.raises(Forbidden):
            file.lend(PART)
        assert file.closed
    (ended,) = heard
    assert (ended.kind, ended.outcome) == ("upload", "failed")
    assert "Forbidden" in ended.error
