"""Each cause is named when it is planted in the counts, and the seconds of all causes are those of the waiting."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock.data.loading.stats import LoaderStats, ReaderStats
from penstock.data.loading.summary import CAUSES, Parallelism, causes, main_cause
from penstock.events import HostTimings

THREADS, WORKERS = Parallelism(0, 4, 2), Parallelism(4, 1, 1)
SECONDS = st.floats(0, 1e4)


def host(first_s=0.0, body_s=0.0, throttled_s=0.0, retried_s=0.0, paced_s=0.0):
    """Return timings whose requests took these seconds in sum."""
    timings = HostTimings()
    if first_s:
        timings.first_byte.add(first_s)
    timings.words[8], timings.words[5], timings.words[7], timings.words[12] = (
        int(each * 1e9) for each in (body_s, throttled_s, retried_s, paced_s)
    )
    return timings


def named(counted, hosts=(), at_once=THREADS):
    return main_cause(counted, causes(counted, dict(enumerate(hosts)), at_once))


SLOW = {"waiting_s": 90.0, "working_s": 4.0, "elapsed_s": 100.0}


@pytest.mark.parametrize(
    ("cause", "hosts", "counts"),
    [
        ("first byte", [host(first_s=900.0, body_s=50.0)], SLOW),
        ("first byte", [], SLOW),
        ("bandwidth", [host(first_s=50.0, body_s=900.0)], SLOW),
        ("throttled", [host(first_s=9.0, throttled_s=100.0)], SLOW),
        ("throttled", [host(first_s=9.0), host(throttled_s=100.0)], SLOW),
        ("paced", [host(first_s=9.0, throttled_s=10.0, paced_s=100.0)], SLOW),
        ("retries", [host(first_s=9.0, retried_s=100.0)], SLOW),
        ("memory budget", [host(first_s=9.0)], {**SLOW, "starved_s": 80.0}),
        ("bandwidth", [host(first_s=1.0, body_s=90.0)], {**SLOW, "starved_s": 80.0}),
    ],
)
@pytest.mark.parametrize("at_once", [THREADS, WORKERS])
def test_a_wait_for_bytes_has_the_cause_that_its_requests_had(cause, hosts, counts, at_once):
    made = LoaderStats(9, 90, 90.0, 10.0, (ReaderStats(**counts),) * max(1, at_once.processes))
    assert named(made, hosts, at_once) == cause


@pytest.mark.parametrize(
    ("cause", "counts"),
    [
        ("decode", {"working_s": 350.0, "demanded_s": 350.0}),
        ("decode", {"working_s": 350.0, "demanded_s": 10.0}),  # transforms that wait for something else
        ("python", {"working_s": 380.0, "demanded_s": 100.0}),
        ("decode", {"working_s": 380.0, "demanded_s": 280.0}),
        ("collate", {"working_s": 180.0, "collating_s": 170.0, "demanded_s": 180.0}),
        ("opening", {"working_s": 180.0, "opening_s": 60.0}),
        ("device", {"working_s": 180.0, "pinning_s": 170.0, "demanded_s": 180.0}),
    ],
)
def test_busy_threads_are_attributed_to_their_main_activity(cause, counts):
    assert named(LoaderStats(9, 90, 90.0, 10.0, (made(**counts),))) == cause


def made(**counts):
    return ReaderStats(waiting_s=3.0, elapsed_s=100.0, **counts)


@pytest.mark.parametrize(
    ("cause", "counts"),
    [
        ("decode", {"working_s": 80.0}),
        ("collate", {"working_s": 80.0, "collating_s": 70.0}),
        ("python", {"working_s": 5.0}),
        ("opening", {"working_s": 5.0, "opening_s": 80.0}),
    ],
)
def test_busy_workers_are_attributed_to_their_main_activity(cause, counts):
    assert named(LoaderStats(9, 90, 90.0, 10.0, (made(**counts),) * 4), [], WORKERS) == cause


def test_local_files_are_a_disk_s_and_a_budget_does_not_hide_that():
    counted = LoaderStats(9, 90, 90.0, 10.0, (ReaderStats(**SLOW, starved_s=80.0),))
    found = causes(counted, {"file": host(first_s=100.0), "store": host(first_s=1.0)}, THREADS)
    assert main_cause(counted, found) == "disk"


@pytest.mark.parametrize("at_once", [THREADS, WORKERS])
def test_a_cache_that_has_everything_is_a_disk(at_once):
    cached = LoaderStats(9, 90, 90.0, 10.0, (ReaderStats(**SLOW, cached=90),))
    assert named(cached, [], at_once) == "disk"
    assert named(cached, [host()], at_once) == "first byte", "versions were looked up"


def test_busy_worker_among_idle_workers_is_attributed_to_decode():
    busy = LoaderStats(1, 9, 90.0, 1.0, (made(working_s=80.0), ReaderStats(), ReaderStats(), ReaderStats()))
    assert named(busy, [], WORKERS) == "decode"


def test_the_loop_s_own_thread_in_moving_batches_is_the_device_s():
    assert named(LoaderStats(9, 90, 90.0, 10.0, (made(working_s=20.0),), moving_s=80.0)) == "device"


@pytest.mark.parametrize("waiting_s", [0.0, 4.0])
def test_a_loop_that_seldom_waits_is_not_input_bound(waiting_s):
    assert named(LoaderStats(9, 90, waiting_s, 96.0, (made(working_s=20.0),))) is None
    assert named(LoaderStats(0, 0, 0.0, 0.0, (ReaderStats(),))) is None


@given(
    st.tuples(SECONDS, SECONDS, SECONDS),
    st.lists(st.tuples(*[SECONDS] * 8), min_size=1, max_size=4),
    st.lists(st.tuples(*[SECONDS] * 4), max_size=3),
    st.sampled_from([THREADS, WORKERS, Parallelism(0, 1, 1)]),
)
def test_the_causes_have_all_seconds_and_none_is_negative(loop, rows, hosts, at_once):
    counted = LoaderStats(
        1, 1, loop[0], loop[1], tuple(ReaderStats(0, 0, 0, 0, 0, 0, 0, 0, *row) for row in rows), loop[2]
    )
    found = causes(counted, {str(at): host(*each) for at, each in enumerate(hosts)} | {"file": host(1.0)}, at_once)
    assert tuple(found) == CAUSES
    assert min(found.values()) >= -1e-6
    assert sum(found.values()) == pytest.approx(counted.waiting_s, rel=1e-6, abs=1e-6)
