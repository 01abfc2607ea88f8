"""What was counted of a host becomes plain numbers: quantiles of times, and of rates what most bodies reach."""

from __future__ import annotations

import inspect
import re
from dataclasses import fields, replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

import penstock as ps
from penstock.data.loading.stats import LoaderStats, ReaderStats
from penstock.data.loading.summary import (
    CAUSES,
    Parallelism,
    Setup,
    advice,
    causes,
    common_prefix,
    host_report,
    main_cause,
    measure_sleep,
)
from penstock.errors import Unusable
from penstock.events import HostTimings, Timings


def test_a_host_s_rates_are_those_that_most_bodies_reach():
    timings = HostTimings()
    for number in range(100):
        timings.first_byte.add(0.01 if number < 90 else 1.0)
        timings.body_rate.add(1e8 if number < 90 else 1e5)
    found = host_report("h", timings)
    assert found.first_byte_s.p50 == pytest.approx(0.01, rel=0.05)
    assert found.first_byte_s.p99 == pytest.approx(1.0, rel=0.05)
    assert found.body_bytes_per_s.p50 == pytest.approx(1e8, rel=0.05)
    assert found.body_bytes_per_s.p95 == pytest.approx(1e5, rel=0.05)
    assert [count for _, _, count in found.first_bytes] == [90, 10]


def test_plots_have_bounds_also_of_numbers_beyond_the_buckets():
    timings = HostTimings()
    for value in (0.0, 1e9):
        timings.first_byte.add(value)
    assert all(0 < low < high < 1e9 for low, high, _ in host_report("h", timings).first_bytes)


def test_host_report_counts_hedged_requests_and_hedges_won():
    timings = HostTimings()
    assert (host_report("h", timings).hedged, host_report("h", timings).hedges_won) == (0, 0)
    source = Timings("hedged-in-a-test")
    source.hedged(won=True, wasted_bytes=9)
    source.hedged(won=False, wasted_bytes=9)
    assert (host_report("h", source.host).hedged, host_report("h", source.host).hedges_won) == (2, 1)


def test_a_host_without_a_read_has_zeros():
    found = host_report("h", HostTimings())
    assert (found.first_byte_s.p50, found.body_bytes_per_s.p99, found.first_bytes) == (0.0, 0.0, ())


@pytest.mark.parametrize("price", [-1, float("nan"), float("inf"), "0.4", None])
def test_a_price_is_a_number_and_not_negative(price):
    with pytest.raises(Unusable, match="per_gib must be 0 or more"):
        ps.observe.Prices(per_gib=price)


def test_prices_are_of_requests_and_bytes():
    with pytest.raises(Unusable, match="currency"):
        ps.observe.Prices(currency=None)
    assert ps.observe.Prices(per_1000_requests=0.4, per_gib=1).of(2000, 1 << 30) == pytest.approx(1.8)


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
        ("decode", {"working_s": 380.0, "demanded_s": 100.0}),  # transforms that wait for something else
        ("collate", {"working_s": 180.0, "collating_s": 170.0, "demanded_s": 180.0}),
        ("opening", {"working_s": 180.0, "opening_s": 60.0}),
        ("device", {"working_s": 180.0, "pinning_s": 170.0, "demanded_s": 180.0}),
    ],
)
def test_busy_threads_are_attributed_to_their_main_activity(cause, counts):
    assert named(LoaderStats(9, 90, 90.0, 10.0, (made(**counts),))) == cause


@pytest.mark.parametrize(("held", "cause"), [(0.0, "decode"), (0.3, "decode"), (0.4, "python"), (1.0, "python")])
def test_transforms_count_as_python_where_the_lock_is_held(held, cause):
    for threads in (1, 4):
        counted = LoaderStats(9, 90, 90.0, 10.0, (made(working_s=90.0 * threads),), gil_held=held)
        assert named(counted, [], Parallelism(0, threads, 1)) == cause
    assert named(replace(counted, workers=(made(working_s=80.0),) * 4), [], WORKERS) == "decode"


@pytest.mark.parametrize(
    ("asleep", "setup", "counts"),
    [
        (0.9, Setup(0, 2, 8, 2, 32), {"working_s": 200.0, "demanded_s": 20.0, "used_s": 30.0}),
        (0.0, Setup(0, 2, 8, 2, 32), {"working_s": 200.0, "demanded_s": 20.0, "used_s": 640.0}),  # a library's threads
        (0.0, Setup(0, 2, 8, 2, 32), {"working_s": 200.0, "demanded_s": 210.0}),
        (0.0, Setup(0, 2, 8, 2, 32), {}),
        (0.9, Setup(4, 1, 8, 2, 32), {"working_s": 100.0, "demanded_s": 10.0, "used_s": 100.0}),
        (0.0, Setup(8, 1, 8, 2, 32), {"working_s": 100.0, "demanded_s": 10.0, "used_s": 90.0}),
    ],
)
def test_transforms_sleep_only_where_processors_are_free(asleep, setup, counts):
    stats = LoaderStats(9, 90, 90.0, 10.0, (made(**counts),) * max(1, setup.num_workers))
    assert measure_sleep(stats, setup) == pytest.approx(asleep)


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
        1, 1, loop[0], loop[1], tuple(ReaderStats(0, 0, 0, 0, 0, 0, 0, 0, 0, *row) for row in rows), loop[2]
    )
    found = causes(counted, {str(at): host(*each) for at, each in enumerate(hosts)} | {"file": host(1.0)}, at_once)
    assert tuple(found) == CAUSES
    assert min(found.values()) >= -1e-6
    assert sum(found.values()) == pytest.approx(counted.waiting_s, rel=1e-6, abs=1e-6)


SETUPS = [Setup(0, 2, 8, 2, 32), Setup(0, 8, 8, 2, 32), Setup(0, 1, 1, 2, 32), Setup(2, 1, 8, 2, 32)]
SETUPS += [Setup(8, 1, 8, 2, 32), Setup(0, 2, 8, 2, 32, asleep=0.9), Setup(4, 1, 8, 2, 32, asleep=0.5)]
SETUPS += [Setup(0, 2, 8, 2, 32, scattered=True)]
ARGUMENTS = {*inspect.signature(ps.DataLoader).parameters, "persistent_workers", "transform"}


@pytest.mark.parametrize("setup", SETUPS)
@pytest.mark.parametrize("cause", CAUSES)
def test_a_recommendation_names_an_option_that_exists(cause, setup):
    text = advice(cause, setup)
    named = re.findall(r"(?:(\w+Options)[(.])?(\w+)=", text)
    assert named, text
    for kind, option in named:
        known = {each.name for each in fields(getattr(ps, kind))} if kind else ARGUMENTS | {"ahead_items"}
        assert option in known, text


def test_without_a_cause_nothing_is_to_be_changed():
    assert "nothing is to be changed" in advice(None, SETUPS[0])


def test_more_threads_or_processes_are_recommended_only_where_there_are_processors():
    assert "decode_threads= (now 2) up to 8" in advice("decode", SETUPS[0])
    assert "num_workers" not in advice("decode", SETUPS[1])
    assert "num_workers" not in advice("decode", SETUPS[2])
    assert "num_workers= (now 2) up to 8" in advice("decode", SETUPS[3])
    assert "num_workers" not in advice("decode", SETUPS[4])


@pytest.mark.parametrize(
    ("setup", "words"),
    [
        (Setup(0, 2, 2, 2, 16, asleep=0.96), "pass decode_threads=32 (now 2) and prefetch=3 (now 2: 32 samples), so"),
        (Setup(0, 2, 2, 2, 64, asleep=0.5), "pass decode_threads=4 (now 2), so that"),
        (Setup(0, 16, 2, 2, 2, asleep=0.9), "pass decode_threads=32 (now 16) and prefetch=17 (now 2: 4 samples), so"),
        (Setup(0, 32, 2, 20, 2, asleep=0.9), "pass decode_threads=64 (now 32) and prefetch=33 (now 20: 40 samples)"),
        (
            Setup(2, 1, 2, 2, 64, asleep=0.9),
            "pass num_workers=0 and decode_threads=20 (now num_workers=2), so that more of them wait at once.",
        ),
        (Setup(4, 1, 4, 2, 64, asleep=0.5), "raise num_workers= (now 4) to 8, so"),
    ],
)
def test_transforms_that_wait_get_more_threads_and_the_samples_for_them(setup, words):
    assert words in advice("decode", setup)


def test_pure_python_gets_processes_only_where_there_are_processors():
    assert "num_workers=8" in advice("python", SETUPS[0])
    assert "num_workers=8" in advice("python", Setup(0, 16, 2, 2, 32)), "threads that share the lock also wait"
    assert "num_workers" not in advice("python", SETUPS[2])


def test_blocks_are_recommended_where_small_samples_of_shards_cost_requests():
    named = {cause for cause in CAUSES if "shuffle=ps.order.Lanes()" in advice(cause, SETUPS[-1])}
    assert named == {"first byte", "throttled", "paced", "retries", "memory budget", "python"}
    assert not any("Lanes" in advice(cause, SETUPS[0]) for cause in CAUSES)


def test_a_slow_prefix_is_named():
    urls = [f"s3://b/train/cold/{number}" for number in range(8)] + ["s3://b/train/warm/1", "s3://b/test/1"]
    assert "s3://b/train/cold/" in advice("first byte", SETUPS[0], urls)
    assert common_prefix(urls) == "s3://b/train/cold/"


@pytest.mark.parametrize(
    "urls",
    [
        [],
        ["s3://b/a/1", "s3://b/a/2"],
        ["s3://b/1", "s3://b/2", "s3://b/3"],
        ["s3://b/a/1", "s3://b/b/1", "s3://b/c/1", "s3://b/d/1"],
        ["nothing", "", "://"],
    ],
)
def test_common_prefix_is_empty_for_urls_without_shared_prefix(urls):
    assert common_prefix(urls) == ""
