"""Each response is counted once, under its host, whether or not anybody listens; slow reads are kept with their URL."""

from __future__ import annotations

import sys
import threading
from functools import partial
from time import monotonic

import pytest

from penstock import events
from penstock.engine.contracts.exchange import Response
from penstock.engine.read.reader import read_many
from penstock.errors import Forbidden, NotFound
from penstock.events import (
    HOST_WORDS,
    CacheCounts,
    HostTimings,
    Slowest,
    SlowRequest,
    Timings,
    count_cache,
    counted,
    measured,
    measured_caches,
    slow,
)
from penstock.events.timings import host_of
from penstock.testing.servers import reply
from penstock.values import Span
from tests.children import forked
from tests.engine.fetch.store import serving

SIZE = 100_000
DATA = bytes(SIZE)


def since(before, host):
    """Return what came of a host since ``before``."""
    return measured()[host] - before.get(host, HostTimings())


class TestHosts:
    def test_reads_and_other_requests_are_counted_with_their_bytes_and_times(self):
        before = measured()
        with serving({"key": DATA}) as (server, engine):
            read_many(engine, [Span("key", 0, SIZE, whole=True)] * 30)
            engine.run(lambda: engine.driver.head("key"))
        found = since(before, server.url.partition("//")[2])
        assert (found.responses, found.received_bytes, found.failed, found.retried) == (31, 30 * SIZE, 0, 0)
        assert 1 <= found.first_byte.count <= 30
        assert 0 < found.first_byte.quantile(0.5) < 60
        assert found.body_rate.quantile(0.5) > 1e3
        assert found.body_s > 0
        assert found.first_byte_s == pytest.approx(found.first_byte.total)

    def test_a_head_that_finds_no_object_is_an_answer_and_a_read_of_none_a_failure(self):
        before = measured()
        with serving({"key": DATA}) as (server, engine):
            with pytest.raises(NotFound):
                engine.run(partial(engine.driver.head, "none"))
            found = since(before, host := server.url.partition("//")[2])
            assert (found.responses, found.failed, found.retried) == (1, 0, 0)
            with pytest.raises(NotFound):
                read_many(engine, [Span("none", 0, 1)])
        found = since(before, host)
        assert (found.responses, found.failed, found.retried) == (2, 1, 0)

    def test_an_object_of_unknown_size_and_its_end_are_counted(self):
        before = measured()
        with serving({"key": DATA}) as (server, engine):
            assert read_many(engine, [Span("key"), Span("key", -10)]) == [DATA, DATA[-10:]]
        assert since(before, server.url.partition("//")[2]).received_bytes == SIZE + 10

    def test_throttled_responses_are_counted_separately_from_other_failures(self):
        def fault(received, _answer, send):
            refused = {1: 503, 2: 503, 3: 500}.get(received.number)
            if refused:
                send(reply(refused, b"<Error><Code>SlowDown</Code></Error>" if refused == 503 else b""))
            return refused is not None

        before = measured()
        with serving({"key": DATA}, fault) as (server, engine):
            read_many(engine, [Span("key", 0, SIZE, whole=True)])
        found = since(before, server.url.partition("//")[2])
        assert (found.responses, found.failed, found.throttled, found.retried) == (4, 3, 2, 3)
        assert found.throttled_s >= 0
        assert found.received_bytes == SIZE

    def test_a_refusal_is_a_failure_without_a_retry(self):
        before = measured()
        refuse = serving({}, lambda _received, _answer, send: send(reply(403)) or True)
        with refuse as (server, engine), pytest.raises(Forbidden):
            engine.run(lambda: engine.driver.head("key"))
        found = since(before, server.url.partition("//")[2])
        assert (found.responses, found.failed, found.retried) == (1, 1, 0)

    def test_stores_of_one_host_are_counted_together_and_each_host_for_itself(self):
        before = measured()
        one, other = Timings("s3"), Timings("s3")
        for timings, url in (
            (one, "http://a:1/x"),
            (other, "http://a:1/y"),
            (one, "https://b/z?list"),
            (one, "http://a:1/x"),
        ):
            timings.answered(Response(200, first_byte_s=0.5, body_s=0.25), url, SIZE, monotonic())
        assert since(before, "a:1").responses == 3
        assert since(before, "a:1").body_s == 0.75
        assert since(before, "b").first_byte.count == 1
        assert "s3" not in measured().keys() - before.keys()  # other tests may have had requests that never left

    def test_earlier_counts_are_excluded_even_if_their_host_was_merged_into_others(self):
        idle = Timings("idle-host")
        idle.carried("http://idle/", 5)
        before = counted()
        del idle
        held = [Timings(f"held-{number}") for number in range(70)]  # room is made for them
        assert "idle" not in measured()
        assert measured(before) == {}
        held[-1].carried("http://new/", 3)
        assert [(each.responses, each.sent_bytes) for each in measured(before).values()] == [(1, 3)]

    def test_a_response_between_measurements_is_counted_at_once(self):
        before, timings = measured(), Timings("s3")
        timings.answered(Response(200, first_byte_s=0.5), "http://between/x", 7, monotonic())
        for number in range(1, 8):
            timings.answered(Response(200), "http://between/x", 7, monotonic())
            found = since(before, "between")
            assert (found.responses, found.received_bytes) == (1 + number, 7 + 7 * number)
        assert found.first_byte.count == 1

    @pytest.mark.parametrize("every", [10, 100])
    def test_a_measured_response_stands_for_those_before_it(self, every):
        before, timings = measured(), Timings("s3")
        for number in range(1, 2 * every + 1):
            first_byte_s = 0.0 if number % every else 0.5
            timings.answered(Response(200, first_byte_s=first_byte_s), "http://weight/x", 1, monotonic())
            if number == 5:
                measured()
        assert since(before, "weight").first_byte.count == 2 * every

    def test_stores_without_a_wire_are_counted_by_scheme(self):
        before, timings = measured(), Timings("nowhere")
        for _ in range(64):
            timings.answered(Response(), "", 10, monotonic() - 0.25)
        found = since(before, "nowhere")
        assert (found.responses, found.received_bytes) == (64, 640)
        assert found.first_byte.quantile(0.5) == pytest.approx(0.25, rel=0.1)

    def test_hosts_without_end_are_counted_together(self):
        def many():
            timings = Timings("s3")
            for number in range(100):
                timings.answered(Response(200, first_byte_s=0.1), f"http://host{number}/x", 1, monotonic())
            found = measured()
            assert len(found) <= 65
            assert sum(each.responses for each in found.values()) == 100
            assert "host99" in found

        with forked(many) as status:
            assert status() == 0

    def test_threads_that_count_at_once_lose_nothing(self):
        before, timings = measured(), Timings("crowd")

        def work():
            for _ in range(5_000):
                timings.answered(Response(), "", 3, monotonic())

        threads = [threading.Thread(target=work) for _ in range(4)]
        for thread in threads:
            thread.start()
        while any(thread.is_alive() for thread in threads):
            measured()
        found = since(before, "crowd")
        assert (found.responses, found.received_bytes) == (20_000, 60_000)

    def test_stores_and_watchers_that_come_meanwhile_disturb_no_reader(self):
        interval_s, ended = sys.getswitchinterval(), threading.Event()

        def come_and_go():
            while not ended.is_set():
                assert len([(Timings("crowd"), Slowest(1)) for _ in range(50)]) == 50

        coming = threading.Thread(target=come_and_go)
        sys.setswitchinterval(1e-6)
        coming.start()
        try:
            for _ in range(1000):
                measured()
                slow(SlowRequest(1.0, "u", 0, 1, 200, 0.0))
        finally:
            ended.set()
            coming.join()
            sys.setswitchinterval(interval_s)

    def test_a_forked_child_begins_at_zero(self):
        timings = Timings("s3")
        timings.answered(Response(200, first_byte_s=0.5), "http://parent/x", 1, monotonic())
        held = Slowest()

        def child():
            assert measured() == {}
            Timings("s3").answered(Response(200, first_byte_s=0.5), "http://child/x", 1, monotonic())
            assert [*measured()] == ["child"]

        with forked(child) as status:
            assert status() == 0
        assert "child" not in measured()
        assert held.found() == []

    def test_words_in_shared_memory_hold_everything(self):
        shared = memoryview(bytearray(8 * HOST_WORDS)).cast("q")
        timings = Timings("s3")
        timings.answered(Response(200, first_byte_s=0.5, body_s=1.0), "http://words/x", SIZE, monotonic())
        shared[:] = memoryview(measured()["words"].words)
        seen = HostTimings(shared)
        assert (seen.responses, seen.first_byte.count, seen.body_rate.count, seen.body_s) == (1, 1, 1, 1.0)
        assert (seen + seen).responses == 2


class TestSlowest:
    def test_the_slowest_are_kept_and_no_others(self):
        held = Slowest(3)
        for elapsed_s in (5, 1, 4, 2, 3, 6):
            slow(SlowRequest(float(elapsed_s), "u", 0, 1, 200, 0.0))
        assert [each.elapsed_s for each in held.found()] == [6, 5, 4]
        assert held.above_s == 4

    def test_reads_are_kept_with_their_url(self):
        held = Slowest(3)
        with serving({"one": DATA, "two": DATA}) as (_, engine):
            read_many(engine, [Span("one", 0, SIZE, whole=True), Span("two", 0, 10)])
        found = {each.url: each for each in held.found()}
        assert {url: (each.size_bytes, each.attempts, each.status) for url, each in found.items()} == {
            "s3://bucket/one": (SIZE, 1, 200),
            "s3://bucket/two": (10, 1, 206),
        }
        assert all(each.elapsed_s > 0 for each in found.values())

    def test_later_recorder_receives_only_later_slow_reads(self):
        first = Slowest(1)
        slow(SlowRequest(9.0, "early", 0, 1, 200, 0.0))
        second = Slowest(1)
        timings = Timings("s3")
        assert timings.answered(Response(200), "http://h/x", 1, monotonic() - 1) > 0.9
        slow(SlowRequest(1.0, "late", 0, 1, 200, 0.0))
        assert [first.found()[0].url, second.found()[0].url] == ["early", "late"]

    def test_deleting_the_last_recorder_ends_measurement_of_slow_reads(self):
        def child():
            held, timings = Slowest(1), Timings("s3")
            assert timings.answered(Response(200), "http://h/x", 1, monotonic() - 100) >= 100
            del held
            slow(SlowRequest(100.0, "u", 0, 1, 200, 0.0))
            assert timings.answered(Response(200), "http://h/x", 1, monotonic() - 100) == 0.0

        with forked(child) as status:
            assert status() == 0


@pytest.mark.parametrize(
    ("url", "host"),
    [
        ("https://b.s3.amazonaws.com/k?x=/", "b.s3.amazonaws.com"),
        ("http://[::1]:90/a", "[::1]:90"),
        ("http://h?a", "h"),
        ("", ""),
    ],
)
def test_a_host_is_named_with_its_port(url, host):
    assert host_of(url) == host


def test_the_end_of_a_request_names_its_host():
    heard = []
    stop = events.subscribe(heard.append)
    with serving({"key": DATA}) as (server, engine):
        read_many(engine, [Span("key", 0, SIZE, whole=True)])
    stop()
    assert [each.host for each in heard if isinstance(each, events.RequestEnded)] == [server.url.partition("//")[2]]


# -- Counts of caches add up by directory, stay when a cache is gone, and begin anew in a forked child --


def test_counts_of_one_directory_add_up_and_stay(tmp_path):
    directory = str(tmp_path)
    first, second = count_cache(directory), count_cache(directory)
    first.hits, second.hits, second.stored_bytes = 2, 3, 7
    del first
    found = measured_caches()[directory]
    assert found == CacheCounts(hits=5, stored_bytes=7)
    found.hits = 0  # a copy
    assert measured_caches()[directory].hits == 5


def test_a_forked_child_counts_for_itself(tmp_path):
    directory = str(tmp_path)
    count_cache(directory).misses = 4

    def work():
        assert directory not in measured_caches()
        count_cache(directory).misses = 1
        assert measured_caches()[directory].misses == 1

    with forked(work) as status:
        assert status() == 0
    assert measured_caches()[directory].misses == 4
