"""The same operations on a fault server over libcurl and in the simulation: their results must be equal."""

from __future__ import annotations

import io
import logging
import sys
from dataclasses import replace
from random import Random
from typing import TYPE_CHECKING, Any, NamedTuple

import penstock as ps
from penstock import source
from penstock.engine.transport import loop
from penstock.errors import PenstockError
from penstock.testing.faults import FAULTS, FaultServer, Match
from penstock.testing.faults.script import Settings
from penstock.values import Span
from tests.simulation.store import BUCKET, Weather
from tests.simulation.world import World, small_parts

if TYPE_CHECKING:
    from collections.abc import Callable

    from penstock.options import StoreOptions
    from penstock.testing.faults import Fault

KEYS = ("a", "b/c", "b/d é")
# All but those that take real time, and headers that libcurl refuses before Penstock has them.
_FAULTS = [each for each in FAULTS if each not in {"stall", "stall-body", "drip", "headers-many", "headers-long"}]


class Server(NamedTuple):
    """The functions by which a scenario changes a store, simulated or real."""

    put: Callable[[str, bytes], object]
    fail: Callable[[Fault, Match], None]
    heal: Callable[[], None]


def in_simulation(seed: int, dialect: str) -> list[Any]:
    """Return the results of a seed's operations in the simulation."""
    world = World(seed, settings=Settings(dialect=dialect, least_part_bytes=1), weather=Weather(halves=True))
    store = world.store
    with small_parts(), world.running(_small):

        def fail(fault: Fault, when: Match) -> None:
            store.script.add([store.words.faults.get(fault.name, fault)], when)

        return _results(seed, world.url, world.options, Server(store.put, fail, store.script.clear))


def over_libcurl(seed: int, server: FaultServer) -> list[Any]:
    """Return the results of a seed's operations on a server."""
    for key in server.objects(BUCKET):
        ps.delete(f"{server.scheme}://{BUCKET}/{key}", store=server.store)
    with small_parts():
        url = f"{server.scheme}://{BUCKET}/"
        does = Server(
            lambda key, data: server.put(BUCKET, key, data),
            lambda fault, when: server.fail(fault, when=when),
            server.heal,
        )
        found = _results(seed, url, _small(server.store), does)
    # Its thread would wait in the simulation's time.
    if loop._loop is not None:
        loop._loop.close()
        loop._loop = None
    source._engines.forget()
    return found


def main() -> int:
    """Compare some seeds in a dialect; print the first that differs."""
    dialect, seeds = sys.argv[1], int(sys.argv[2])
    logging.disable(logging.ERROR)
    with FaultServer.start(Settings(dialect=dialect, least_part_bytes=1)) as server:
        server.make(BUCKET)
        for seed in range(seeds):
            for number, pair in enumerate(zip(in_simulation(seed, dialect), over_libcurl(seed, server), strict=True)):
                if pair[0] != pair[1]:
                    print(f"seed {seed}, operation {number}: {pair[0]!r:.300} in the simulation")
                    print(f"and over libcurl: {pair[1]!r:.300}")
                    return 1
    print(f"{seeds} seeds agree in {dialect}")
    return 0


def _small(options: StoreOptions) -> StoreOptions:
    parts = ps.WriteOptions(part_bytes=16 << 10, buffer_bytes=64 << 10)
    node = ps.NodeOptions(share=False)
    read = ps.ReadOptions(split_bytes=8 << 10, hedge=False)
    return replace(options, write=parts, read=read, node=node, retry=ps.RetryOptions(patience_s=20.0))


def _results(seed: int, url: str, options: StoreOptions, server: Server) -> list[Any]:
    dice, versions = Random(f"{seed}/agreement"), dict[str, int]()
    found: list[Any] = []
    for key in KEYS:
        if dice.random() < 0.7:
            server.put(key, dice.randbytes(dice.choice((0, 1, 5000, 40_000))))
    for _ in range(12):
        name, fault = dice.choice(tuple(_VERBS)), dice.choice(("", *_FAULTS))
        if fault:
            server.fail(FAULTS[fault], Match(nth=dice.choice((1, 1, 2)), times=dice.choice((1, 1, 2))))
        try:
            result = _VERBS[name](url, options, Random(dice.getrandbits(32)))
        except PenstockError as error:
            result = type(error).__name__
        server.heal()
        found.append((name, fault, _named(result, versions)))
    return found


def _named(result: Any, versions: dict[str, int]) -> Any:
    """Return a result with versions by their order: a generation is another number on each server."""
    if isinstance(result, ps.ObjectMeta):
        return result.key, result.size, versions.setdefault(result.etag, len(versions)), result.content_type
    return [_named(each, versions) for each in result] if isinstance(result, list) else result


def _span(url: str, options: StoreOptions, dice: Random) -> bytes:
    key, start = dice.choice(KEYS), dice.choice((0, 1, 4000, -1, -6000))
    span = Span(key, start) if start < 0 else Span(key, start, start + dice.choice((1, 900, 20_000)))
    return source.open_source(url, options)[0].read(span)


def _file(url: str, options: StoreOptions, dice: Random) -> list[Any]:
    with ps.open(url + dice.choice(KEYS), store=options) as file:
        size = file.seek(0, io.SEEK_END)
        file.seek(dice.randrange(size + 1))
        return [size, file.read(dice.choice((1, 100, -1)))]


def _write(url: str, options: StoreOptions, dice: Random) -> None:
    data = dice.randbytes(dice.choice((0, 10, 20_000, 90_000)))
    bucket = source.open_source(url, options)[0]
    with bucket.open_write(dice.choice(KEYS), create_only=dice.random() < 0.3) as file:
        file.write(data)


def _copy(url: str, options: StoreOptions, dice: Random) -> None:
    here, there = dice.sample(KEYS, 2)
    ps.copy(url + here, url + there, store=options)


_VERBS: dict[str, Callable[[str, StoreOptions, Random], Any]] = {
    "span": _span,
    "file": _file,
    "write": _write,
    "copy": _copy,
    "stat": lambda url, options, dice: ps.stat(url + dice.choice(KEYS), store=options),
    "list": lambda url, options, dice: list(ps.list(url + dice.choice(("", "b/", "x")), store=options)),
    "delete": lambda url, options, dice: ps.delete(url + dice.choice(KEYS), store=options),
}

if __name__ == "__main__":
    sys.exit(main())
