"""What binds is told by the numbers: each limit in turn, and the most telling one where several hold."""

from __future__ import annotations

import pytest

from penstock.cli.bench.limits import Machine, Result, binding, epoch
from penstock.options import StoreOptions

MACHINE = Machine(8.0, 1 << 34, 1e10, 2e9, "eth0", 1.25e9)
FACTS = {"objects": 1000, "size_bytes": 10**8, "elapsed_s": 1.0, "cpu_s": 0.4, "requests": 1000, "in_flight": 30.0}


def result(name="read small", **changed):
    return Result(name, **(FACTS | changed))


@pytest.mark.parametrize(
    ("changed", "words"),
    [
        ({}, "the store, or the way to it"),
        ({"first_byte_p50_s": 0.03}, "half of the requests wait 30 ms"),
        ({"throttled": 20, "cpu_s": 9.0}, "it throttled 2% of the requests"),
        ({"size_bytes": 1_100_000_000, "cpu_s": 0.9}, "eth0 carries 10 Gb/s"),
        ({"cpu_s": 7.5}, "the processors: 7.5 of 8 are busy"),
        ({"cpu_s": 0.95}, "one processor"),
        ({"in_flight": 250.0}, "TransportOptions.connections"),
        ({"in_flight": 40.0, "size_bytes": 8 * 10**9, "objects": 1000, "elapsed_s": 100.0}, "ReadOptions.ahead_bytes"),
    ],
)
def test_the_limit_that_a_rate_stands_at_is_named(changed, words):
    assert words in binding(result(**changed), MACHINE, StoreOptions())


def test_other_programs_are_named_where_they_keep_the_machine_busy():
    told = "other programs: the machine's processors are 97% busy, and this one has 0.4 of them"
    assert binding(result(machine_busy=0.97), MACHINE, StoreOptions()) == told
    for decode in (result("decode", machine_busy=0.97), result("decode in threads", machine_busy=0.97, threads=4)):
        assert binding(decode, MACHINE, StoreOptions()) == told
    assert "one processor" in binding(result(machine_busy=0.97, cpu_s=0.95), MACHINE, StoreOptions())


def test_connections_are_never_the_reported_limit_of_writes():
    assert "connections" not in binding(result("write small", in_flight=250.0), MACHINE, StoreOptions())


def test_decoding_is_bound_by_processors_or_by_pythons_lock():
    assert binding(result("decode", cpu_s=0.99), MACHINE, StoreOptions()) == "one processor"
    waits = binding(result("decode"), MACHINE, StoreOptions())
    assert waits == "the transform waits for something else than a processor: it keeps 0.4 busy"
    free = binding(result("decode in threads", threads=8, cpu_s=7.6), MACHINE, StoreOptions())
    assert free.startswith("the processors: 8 threads keep 7.6 of 8 busy")
    held = binding(result("decode in threads", threads=8, cpu_s=1.1), MACHINE, StoreOptions())
    assert "GIL" in held
    assert "num_workers" in held


@pytest.mark.parametrize(
    "found",
    [
        Result("read small", "failed"),
        Result("read small", "skipped"),
        result("delete"),
        result("list", objects=1000),
    ],
)
def test_uninformative_result_gives_an_empty_verdict(found):
    assert binding(found, MACHINE, StoreOptions()) == ""


def test_a_listing_of_several_pages_waits_for_each():
    assert "a page is asked for" in binding(result("list", objects=5000), MACHINE, StoreOptions())


def test_an_epoch_is_bound_by_the_slower_of_reading_and_decoding():
    read = result("read small")
    slow = [read, result("decode", objects=100), result("decode in threads", objects=300)]
    assert epoch(slow) == (
        "An epoch of such objects is bound by their processors: 300 a second, where the other side can do 1,000."
    )
    assert "bound by their reads: 1,000" in epoch([read, result("decode", objects=5000)])
    assert epoch([read]) == ""
    assert epoch([read, Result("decode", "failed", objects=5, elapsed_s=1.0)]) == ""
