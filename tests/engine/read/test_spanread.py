"""A read that broke off goes on from the byte it reached, of the same version, and holds no memory once taken."""

import gc
import random
import sys

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from penstock.engine.buffer import Buffer
from penstock.engine.read.reader import read_into, read_many, start_reads
from penstock.engine.waiting import Inbox
from penstock.errors import Changed, Truncated, Unreachable
from penstock.options import ReadOptions, RetryOptions
from penstock.values import Span
from tests.amounts import examples
from tests.engine.fetch.store import DATA, SIZE, Gate, body_at, first, ranges, serving


def _cut(rng, most):
    """A fault that sends a random piece of the first ``most`` answers and hangs up."""
    return first(most, lambda answer: answer[: rng.randrange(body_at(answer), len(answer))])


class TestResume:
    @settings(max_examples=examples(15))
    @given(st.integers(0, 1 << 30), st.booleans(), st.sampled_from([SIZE, 5_000, 300]))
    def test_truncated_body_resumes_from_the_reached_byte(self, seed, whole, size):
        data = DATA[:size]
        with serving({"key": data}, _cut(random.Random(seed), 5)) as (server, engine):
            assert read_many(engine, [Span("key", 0, size, "e1", whole)]) == [data]
            asked = ranges(server)
        assert len(asked) == 6
        assert asked[0] is None if whole else (0, size)
        starts = [each[0] for each in asked[1:] if each is not None]
        assert starts == sorted(starts), "what arrived is not asked for again"
        assert all(each is None or each[1] == size for each in asked)
        assert starts == [] or starts[-1] > 0 or size < 300

    def test_the_next_range_begins_exactly_there(self):
        fault = first(1, lambda answer: answer[: body_at(answer) + 12_345])
        with serving({"key": DATA}, fault) as (server, engine):
            assert read_many(engine, [Span("key", 1_000, SIZE, "e1")]) == [DATA[1_000:]]
            assert ranges(server) == [(1_000, SIZE), (13_345, SIZE)]
            assert [received.headers["if-match"] for received in server.received] == ['"e1"', '"e1"']

    def test_without_a_version_it_starts_again(self):
        with serving({"key": DATA}, _cut(random.Random(0), 3)) as (server, engine):
            assert read_many(engine, [Span("key", 0, SIZE)]) == [DATA]
            assert ranges(server) == [(0, SIZE)] * 4

    def test_trap_04_a_new_version_is_not_joined_to_the_old(self):
        with serving({"key": DATA}) as (server, engine):
            script = server._answer

            def changed(answer):
                script.data["key"], script.etags["key"] = DATA[::-1], '"e2"'
                return answer[:20_000]

            script.fault = first(1, changed)
            with pytest.raises(Changed):
                read_many(engine, [Span("key", 0, SIZE, "e1")])

    def test_an_object_that_ends_early_is_truncated_at_once(self):
        with serving({"key": b"short"}) as (server, engine):
            for span in (Span("key", 0, 10), Span("key", 0, 10, "e1"), Span("key", 7, 10)):
                with pytest.raises(Truncated):
                    read_many(engine, [span])
            assert len(server.received) == 3

    def test_bodies_that_always_break_give_up(self):
        retry = RetryOptions(base_s=0.001, attempts=4)
        with serving({"key": DATA}, _cut(random.Random(0), 1000), retry=retry) as (server, engine):
            with pytest.raises(Unreachable) as caught:
                read_many(engine, [Span("key", 0, SIZE)])
            assert (caught.value.attempts, len(server.received)) == (4, 4)
            assert "after 4 attempts" in str(caught.value)


def test_memory_of_a_cancelled_read_lives_until_libcurl_lets_go():
    gate = Gate(lambda received: received.path.endswith("held"))
    with serving({"held": DATA, "key": DATA}, gate) as (_, engine):
        for _ in range(20):
            reads = start_reads(engine, [Span("held", 0, SIZE, "e1", whole=True)], Inbox())
            gate.wait_for(1)
            engine.cancel_reads(reads)
            del reads
        gate.opened.set()
        assert read_many(engine, [Span("key", 0, SIZE, "e1", whole=True)]) == [DATA]


def test_target_buffer_is_referenced_only_by_caller_after_the_read():
    with serving({"key": DATA}, read=ReadOptions(split_bytes=10_000)) as (_, engine):
        gc.disable()  # memory must not wait for the collector
        try:
            target = Buffer.allocate(SIZE)
            read_into(engine, Span("key", 0, SIZE, "e1"), target)
            read_many(engine, [Span("key", 0, 10, "e1")])  # the I/O thread has let go of what went before
            assert sys.getrefcount(target) == 2
        finally:
            gc.enable()


@pytest.mark.parametrize(
    "span",
    [Span("key", 1, 5), Span("key", 1, 5, "e1"), Span("key", 0, 10, whole=True), Span("key"), Span("key", -3)],
    ids=["range", "range of a version", "whole", "of unknown size", "suffix"],
)
def test_a_connection_that_ends_within_the_headers_costs_an_attempt(span):
    cuts = [7, 2]  # a piece of the next header, and the line of the status alone
    fault = first(2, lambda answer: answer[: answer.index(b"\r\n") + cuts.pop()])
    with serving({"key": b"0123456789"}, fault) as (server, engine):
        (data,) = read_many(engine, [span])
    assert data == b"0123456789"[span.start if span.start >= 0 else -3 : span.stop]
    assert len(server.received) == 3
