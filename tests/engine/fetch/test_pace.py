"""Where a store refuses requests for their rate, they are sent at the rate that it takes, by all processes together."""

from __future__ import annotations

import threading
from functools import partial
from math import inf
from time import monotonic

import pytest

from penstock.engine.fetch.fetcher import Pace
from penstock.engine.listing.listing import Listing
from penstock.engine.node.member import member
from penstock.engine.node.table import merge_counts
from penstock.engine.operations.operation import VerbOperation
from penstock.engine.operations.policy import RetryPolicy
from penstock.engine.read.spanread import SpanRead
from penstock.engine.waiting import Inbox
from penstock.errors import Throttled, Unreachable
from penstock.events import Timings
from penstock.options import NodeOptions, ReadOptions, RetryOptions
from penstock.source import open_source
from penstock.stores.s3.options import S3Options
from penstock.testing.clock import no_waiting
from penstock.testing.servers import Scripted
from penstock.values import Span
from tests.engine.fetch.store import SLOW_DOWN, Objects
from tests.engine.node.process import running


class Driver:
    """Makes URLs, and no requests."""

    def url(self, key):
        return f"s3://bucket/{key}"

    def head(self, key):
        raise NotImplementedError(key)

    def put(self, key):
        raise NotImplementedError(key)

    def list(self, listing):
        raise NotImplementedError(listing)


POLICY = RetryPolicy(Driver(), RetryOptions())


def read(key, error=None):
    call = SpanRead(POLICY, Span(key, 0, 1), Inbox())
    call.error = error
    return call


def verb(name, first, error=None):
    call = VerbOperation(POLICY, partial(getattr(POLICY.driver, name), first), Inbox())
    call.error = error
    return call


def refused(pace, key):
    """Have a read refused; returns the group that it is of."""
    pace.failed(read(key, Throttled("slow down")), 0.1)
    [group] = pace.counted()
    return group


@pytest.fixture
def now(monkeypatch):
    """The time, which a test moves on: on a busy machine some passes between two lines."""
    found = [1000.0]
    monkeypatch.setattr("penstock.engine.fetch.fetcher.monotonic", lambda: found[0])
    return found


@pytest.fixture
def pace(now):
    assert now
    return Pace("store", Driver().url, Timings())


def test_pace_stays_idle_until_the_store_throttles_a_request(pace):
    assert not pace.closed
    assert pace.failed(read("a/b", Unreachable("gone")), 5.0) == 5.0
    assert pace.failed(object(), 5.0) == 5.0
    assert not pace.closed
    assert pace.counted() == {}
    pace.failed(read("a/b", Throttled("slow down")), 5.0)
    assert pace.closed


def test_throttled_and_paced_waits_are_counted_in_host_timings(now):
    timings = Timings("waits")
    pace, host = Pace("store", Driver().url, timings), timings.host.copy()
    call = read("a/b", Throttled("slow down"))
    timings.failed(8.0, throttled=True)
    assert pace.failed(call, 8.0) == 0.8
    assert (timings.host - host).throttled_s == pytest.approx(0.8)
    pace.bound({pace._group(call): 1.0})
    for other in (read("a/c"), read("a/d")):
        pace.wait(other)
    now[0] += 0.001
    waited_s = pace.wait(call)
    assert waited_s > 0
    assert (timings.host - host).paced_s >= waited_s


def test_refusals_are_counted_per_prefix_and_per_request_kind(pace):
    slow = Throttled("slow down")
    for call in (
        read("train/1", slow),
        read("train/x/2", slow),
        verb("head", "train/3", slow),
        verb("list", Listing("train/"), slow),
        verb("put", "train/4", slow),
        read("val/1", slow),
        read("top", slow),
    ):
        pace.failed(call, 0.1)
    refused = {each.label: each.refused for each in pace.counted().values()}
    assert refused == {
        "reads of s3://bucket/train/": 4,
        "writes of s3://bucket/train/": 1,
        "reads of s3://bucket/val/": 1,
        "reads of s3://bucket/": 1,
    }


def test_many_prefixes_share_one_rate(pace):
    for number in range(100):
        pace.failed(read(f"{number:04}/x", Throttled("slow down")), 0.1)
    counted = pace.counted()
    assert len(counted) == 9
    assert counted[pace._id("read", "")].refused == 92
    pace.wait(read("0099/y"))
    assert pace.counted()[pace._id("read", "")].sent == 1


def test_rate_limit_learned_by_another_process_paces_this_process(pace):
    other = Pace("store", Driver().url, Timings())
    assert other.store == pace.store != Pace("another", Driver().url, Timings()).store
    group = refused(other, "train/1")
    pace.bound({group: 10.0})
    assert pace.closed
    calls = [read("train/2") for _ in range(5)]
    waits = [pace.wait(each) for each in calls]
    assert waits[0] == 0.0
    assert waits[1:] == sorted(waits[1:])
    assert waits[-1] == pytest.approx(0.4)
    assert pace.wait(read("val/2")) == 0.0  # it was not refused
    counted = pace.counted()[group]
    assert (counted.sent, counted.refused, counted.waits) == (1, 0, True)
    pace.bound({})
    assert not pace.closed
    assert pace.wait(calls[-1]) == 0.0


def test_calls_do_not_wait_behind_calls_that_were_called_off(pace):
    pace.bound({refused(pace, "a/1"): 1.0})
    calls = [read("a/2") for _ in range(100)]
    for each in calls:
        pace.wait(each)
        each.complete = True
    pace.counted()
    assert pace.wait(read("a/3")) <= 1.0


def test_delays_are_short_while_the_rate_is_learned_or_known_and_not_in_an_outage(pace, now):
    slow = read("a/1", Throttled("slow down"))
    assert pace.failed(slow, 8.0) == pytest.approx(0.8)
    assert pace.failed(slow, 0.3) == 0.3
    patient = Throttled("slow down")
    patient.retry_after_s = 7.0
    assert pace.failed(read("a/1", patient), 8.0) == 7.0
    [group] = pace.counted()
    now[0] += 10.0
    assert pace.failed(slow, 8.0) == 8.0  # nothing was learned
    pace.bound({group: 1e9})
    now[0] += 0.01
    assert [pace.wait(read("a/2")) for _ in range(9)] == [0.0] * 9
    pace.counted()
    assert pace.failed(slow, 8.0) == pytest.approx(0.8)
    pace.counted()  # all that was sent was refused
    assert pace.failed(slow, 8.0) == 8.0


def test_tests_that_do_not_wait_for_retries_do_not_wait_for_turns(pace):
    pace.bound({refused(pace, "a/1"): 0.1})
    with no_waiting():
        assert [pace.wait(read("a/2")) for _ in range(9)] == [0.0] * 9


class Limited(Objects):
    """A bucket that takes so many requests a second, and refuses the others: it notes when it ``taken`` or did not."""

    def __init__(self, data, per_s):
        super().__init__(data)
        self.taken, self.refused = [], []
        self._per_s, self._tokens, self._at, self._lock = per_s, 0.0, monotonic(), threading.Lock()

    def answer(self, received):
        with self._lock:
            now = monotonic()
            self._tokens = min(self._per_s / 10, self._tokens + (now - self._at) * self._per_s)
            self._at = now
            if self._tokens < 1:
                self.refused.append(now)
                return SLOW_DOWN
            self._tokens -= 1
            self.taken.append(now)
        return super().answer(received)


def spans(count):
    for _ in range(count):
        yield Span("train/x", 0, 100)


def store(server, **options):
    options = {"read": ReadOptions(ahead_items=48), **options}
    return S3Options(endpoint=server.url, region="us-east-1", access_key="a", secret_key="b", **options)


def rates():
    return [each.per_s for each in member.status.rates if each.per_s < inf]


@pytest.fixture
def alone(tmp_path, monkeypatch):
    """A node of this test's own."""
    monkeypatch.setenv("PENSTOCK_NODE", str(tmp_path))
    tmp_path.chmod(0o700)
    member._leave("", 0.0)
    member._open_at = 0.0
    yield
    member._leave("", 0.0)
    member._open_at = 0.0


@pytest.mark.usefixtures("alone")
def test_a_throttled_store_is_read_at_the_rate_that_it_takes():
    bucket = Limited({"train/x": b"x" * 100}, 300)
    with Scripted(bucket) as server, open_source("s3://bucket/", store(server))[0] as source:
        reads = source.lookahead(spans(100_000))
        while not rates() or min(rates()) >= 400:  # it is learned, sooner or later
            next(reads)
        before = len(bucket.taken), len(bucket.refused)
        for _ in range(300):
            next(reads)
        taken, refused = len(bucket.taken) - before[0], len(bucket.refused) - before[1]
        reads.close()
    assert refused < taken  # without a rate there were four refusals for each that was taken


@pytest.mark.usefixtures("alone")
def test_a_store_whose_share_is_off_is_not_paced():
    bucket = Limited({"train/x": b"x" * 100}, 300)
    options = {"node": NodeOptions(share=False), "retry": RetryOptions(base_s=0.001, cap_s=0.01)}
    with Scripted(bucket) as server, open_source("s3://bucket/", store(server, **options))[0] as source:
        assert len(list(source.lookahead(spans(30)))) == 30
        assert source._fetcher()._transport.gate is None


PROGRAM = """
import json, sys
from penstock.engine.node.member import member
from penstock.source import open_source
from tests.engine.fetch.test_pace import spans, store, rates

class Server:
    url = sys.argv[1]

source = open_source("s3://bucket/", store(Server))[0]
reads = source.lookahead(spans(1_000_000))
for line in sys.stdin:
    verb, count = json.loads(line)
    if verb == "learn":
        while not rates() or len(member.status.processes) < count:
            next(reads)
    else:
        for _ in range(count):
            next(reads)
    shares = [each.share_per_s for each in member.status.rates]
    print(json.dumps([rates(), len(member.status.processes), shares]), flush=True)
"""


@pytest.mark.usefixtures("alone")
def test_the_processes_of_a_node_share_a_stores_rate_and_none_starves():
    bucket = Limited({"train/x": b"x" * 100}, 300)
    with Scripted(bucket) as server, running(3, "-c", PROGRAM, server.url) as readers:
        for each in readers:
            each.tell("learn", 2)
        for each in readers:
            found, others, _ = each.hear()
            assert found
            assert others >= 2  # this process may be a third
        before = len(bucket.taken), len(bucket.refused)
        for each in readers:
            each.tell("read", 60)
        shares = [share for each in readers for share in each.hear()[2]]
        taken, refused = len(bucket.taken) - before[0], len(bucket.refused) - before[1]
        assert refused < taken
        assert min(shares) >= 1.0  # and as much as any other as soon as it waits
        # The others go on, and have more, once one of them was killed.
        readers[0].kill()
        for each in readers[1:]:
            each.tell("read", 60)
        assert all(each.hear()[0] for each in readers[1:])


def test_a_rate_that_the_store_states_bounds_its_quota_in_all_processes():
    class Metered:
        def __init__(self):
            self.rates = {"resolvers": 40.0}

        def quota(self, verb, key):
            return "api" if verb == "list" else "cdn" if key == "known" else "resolvers"

    metered = Metered()
    pace = Pace("store", Driver().url, Timings(), metered)
    (group,) = (counted := pace.counted())
    assert not metered.rates
    (told,) = merge_counts({}, counted, 100.0).values()
    assert (told.id, told.store) == (group, pace.store)
    assert told.rate.present(100.0) == 40.0
    assert "quota 'resolvers'" in told.label
    pace.bound({group: 40.0})
    operations = [SpanRead.__new__(SpanRead) for _ in range(60)]
    for each, key in zip(operations, ["known"] * 30 + ["new"] * 30, strict=True):
        each.span = Span(key, 0, 1)
    assert not any(pace.wait(each) for each in operations[:30]), "the CDN has no quota"
    assert any(pace.wait(each) for each in operations[30:])
