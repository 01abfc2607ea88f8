"""Bottleneck of a measured rate: the limit that it has reached, from the numbers alone, without I/O."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from penstock.cli.bench.machine import Machine
    from penstock.cli.bench.result import Result
    from penstock.options import StoreOptions

__all__ = ["binding", "epoch"]

# Share of a limit that counts as reached; headers and other users take the rest.
_NEAR = 0.8
_BUSY = 0.85  # of a processor, or of all
_THROTTLED = 0.01  # of the requests
_PAGE = 1000  # keys


def binding(result: Result, machine: Machine, options: StoreOptions) -> str:
    """Return the bottleneck of a measured step, and what to do about it; empty if it is unknown."""
    few = result.name == "delete" or (result.name == "list" and result.objects <= _PAGE)
    if result.outcome != "measured" or not result.elapsed_s or few:
        return ""
    if result.name.startswith("decode"):
        return _decoding(result, machine)
    return next(text for holds, text in _limits(result, machine, options) if holds)


def _limits(result: Result, machine: Machine, options: StoreOptions) -> Iterator[tuple[bool, str]]:
    """Yield for each limit whether the rate reached it, and its text; most specific first, the last always holds."""
    reads, cores = result.name.startswith("read"), machine.cores
    share = result.throttled / max(result.requests, 1)
    yield (
        share > _THROTTLED,
        f"the store: it throttled {share:.0%} of the requests; spread the keys over more prefixes, or ask less",
    )
    speed = machine.network_bytes_per_s
    yield (
        bool(speed) and result.bytes_per_s >= _NEAR * speed,
        f"the network: {machine.network} carries {speed / 125_000_000:.3g} Gb/s",
    )
    yield result.cores >= _BUSY * cores, f"the processors: {result.cores:.3g} of {cores:.3g} are busy"
    yield (
        result.cores >= _BUSY,
        "one processor: Python and the I/O thread of this process take turns; worker processes read more",
    )
    yield result.machine_busy >= _BUSY, _others(result)
    connections = options.transport.connections
    yield (
        reads and result.in_flight >= _NEAR * connections,
        f"connections: all {connections} are in use; raise TransportOptions.connections",
    )
    held = result.in_flight * result.size_bytes / max(result.objects, 1)
    yield (
        reads and held >= _NEAR * options.read.ahead_bytes,
        "the memory for reads ahead: raise ReadOptions.ahead_bytes",
    )
    yield result.name == "list", "the store: a page is asked for when the one before it has come"
    wait = f"half of the requests wait {result.first_byte_p50_s * 1000:.3g} ms or more for the first byte"
    yield bool(result.first_byte_p50_s), f"the store, or the way to it: {wait}"
    yield True, "the store, or the way to it"


def _decoding(result: Result, machine: Machine) -> str:
    if result.cores >= _BUSY * min(result.threads, machine.cores):
        if result.threads == 1:
            return "one processor"
        return f"the processors: {result.threads} threads keep {result.cores:.3g} of {machine.cores:.3g} busy"
    if result.machine_busy >= _BUSY:
        return _others(result)
    if result.cores < _BUSY:
        return f"the transform waits for something else than a processor: it keeps {result.cores:.3g} busy"
    return (
        f"Python's lock (the GIL): {result.threads} threads keep only {result.cores:.3g} of {machine.cores:.3g} "
        "processors busy; use worker processes (num_workers=)"
    )


def _others(result: Result) -> str:
    return (
        f"other programs: the machine's processors are {result.machine_busy:.0%} busy, and this one has "
        f"{result.cores:.3g} of them"
    )


def epoch(results: Sequence[Result]) -> str:
    """Return whether reading or decoding limits an epoch of small objects; empty if one was not measured."""
    rates = {each.name: each.objects_per_s for each in results if each.outcome == "measured"}
    read, decoded = rates.get("read small", 0.0), max(rates.get("decode", 0.0), rates.get("decode in threads", 0.0))
    if not (read and decoded):
        return ""
    slower, other = ("decode", read) if decoded < read else ("read", decoded)
    where = "their processors" if slower == "decode" else "their reads"
    return (
        f"An epoch of such objects is bound by {where}: {min(read, decoded):,.0f} a second, "
        f"where the other side can do {other:,.0f}."
    )
