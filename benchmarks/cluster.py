"""``python -m benchmarks.cluster``: requests of up to 4,096 ranks at a simulated store, by phase; counts, not speed.

Each rank is a process of the simulation (``tests/simulation``): our real code over a store in the same process, in
virtual time. Ranks run one after the other, each from the same moment on, and their requests are laid over one another.
The store answers by arithmetic: objects of zeros, of any size. Of more than ``MOST_RUN`` ranks, only those of 8 nodes
run: ranks of one role (first of all, first of a node, other) must make equal numbers of requests at a start, and stand
for the rest of their role.
"""

from __future__ import annotations

import argparse
import gc
import json
import os
import tempfile
from collections import Counter, defaultdict
from contextlib import ExitStack, contextmanager
from dataclasses import replace
from functools import cache
from pathlib import Path
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any, NamedTuple
from weakref import WeakKeyDictionary

from torch import distributed

import penstock as ps
from benchmarks.cluster_checkpoint import checkpoint
from penstock.data import node_copy, ranks
from penstock.data.catalog.catalog import make_catalog
from penstock.data.catalog.columns.table import TableBuilder
from penstock.testing.faults.dialect import Stored
from penstock.testing.faults.script import Settings
from tests.simulation.clock import START_S
from tests.simulation.inline import without_pools
from tests.simulation.processes import _started
from tests.simulation.store import Weather
from tests.simulation.wire import _NoThread
from tests.simulation.world import World, _replace

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    Program = Callable[[int, int], Iterator[str]]

RANKS = (1, 8, 64, 512, 4096)
NODE = 8
MOST_RUN = 64
BATCH, BATCHES = 32, 8
# 30 ms to the first byte, and 80 MB/s a connection.
WEATHER = Weather(usual_s=0.015, bytes_per_s=80e6)
_PID, _WHOLE_BYTES = os.getpid(), 1 << 20


class Zeros:
    """The content of an object: zeros, which no memory holds."""

    def __init__(self, size: int) -> None:
        self.size = size

    def __len__(self) -> int:
        return self.size

    def __getitem__(self, at: slice) -> bytes:
        return bytes(len(range(*at.indices(self.size))))


_zeros = cache(bytes)


class Call(NamedTuple):
    """A request that reached the store, some seconds after its rank began the phase, with the bytes of its body."""

    at_s: float
    verb: str
    key: str
    size: int


def role(rank: int) -> str:
    return "job" if rank == 0 else "node" if rank % NODE == 0 else "rank"


def chosen(count: int, most: int = MOST_RUN) -> list[int]:
    """Return the ranks of ``count`` that run: all, or those of nodes at equal distances."""
    nodes = -(-count // NODE)
    taken = range(nodes) if count <= most else range(0, nodes, nodes * NODE // most)
    return [rank for node in taken for rank in range(node * NODE, min(count, (node + 1) * NODE))]


class Cluster:
    """Ranks that run our code against one store.

    Args:
        count: Number of ranks.
        group: Whether they have a process group.
        most: Number of ranks that run.
        tail: Share of the ways to the store and back that take 3 to 300 times as long.
    """

    def __init__(self, count: int, *, group: bool = True, most: int = MOST_RUN, tail: float = 0.0) -> None:
        self.count, self.group, self.ranks = count, group, chosen(count, most)
        self.world = World("cluster", settings=Settings(), weather=replace(WEATHER, tail=tail))
        # Requests and virtual seconds of each rank that ran, by phase.
        self.phases: dict[str, dict[int, tuple[list[Call], float]]] = defaultdict(dict)
        # What the ranks of a node hold while others of it start.
        self.kept: list[object] = []
        self._calls: list[Call] = []
        self._began_s, self._rank, self._folder = START_S, 0, ""
        self._store = distributed.HashStore()

    @contextmanager
    def running(self) -> Iterator[None]:
        """Be the cluster of this process until the block ends."""
        carry_out, cluster = self.world.store.carry_out, self

        def counted(request: Any, **how: Any) -> Any:
            outcome = carry_out(request, **how)
            key = request.key or request.parameters.get("prefix", "")
            verb = request.verb.upper() + " data" * (request.verb == "get" and key.startswith("data/"))
            size = len(request.body) or (0 if request.method == "HEAD" else len(outcome.body))
            self._calls.append(Call(self.world.clock.now - self._began_s, verb, key, size))
            return outcome

        class Direct(ranks.GroupStore):
            """The store of the group, which answers at once."""

            def __init__(self, store: Any) -> None:
                self._ours, self.rank, self.world = store, cluster._rank, cluster.count

            def ask(self, method: str, *given: Any) -> Any:
                return getattr(self._ours, method)(*given)

        self.world.store.carry_out = counted
        true_pid = SimpleNamespace(**{**vars(os), "getpid": lambda: _PID})
        with ExitStack() as stack:
            self._folder = stack.enter_context(tempfile.TemporaryDirectory())
            stack.callback(os.environ.pop, "PENSTOCK_NODE", None)
            for place, name, value in (
                (ranks, "torch_store", lambda: self._store if self.group and self.count > 1 else None),
                (ranks, "GroupStore", Direct),
                (ranks, "threading", SimpleNamespace(Thread=_NoThread)),
                (node_copy, "os", true_pid),
            ):
                stack.enter_context(_replace(place, name, value))
            stack.enter_context(without_pools())
            stack.enter_context(self.world.running())
            yield

    def run(self, program: Program) -> None:
        """Run ``program(rank, count)`` on the chosen ranks; it yields the name of each phase that has ended."""
        for at, rank in enumerate(self.ranks):
            if not at or rank % NODE == 0:
                self.kept.clear()
                os.environ["PENSTOCK_NODE"] = f"{self._folder}/{program.__name__}-{rank // NODE}"
            self._begin(rank)
            for name in program(rank, self.count):
                now = self.world.clock.now
                self.phases[name][rank] = [*self._calls], now - self._began_s
                self._calls.clear()
                self._began_s = now
        self.kept.clear()

    def _begin(self, rank: int) -> None:
        """Be a new process, at the moment at which all begin."""
        world, before = self.world, self.world.process
        # Blocks that the rank before has read.
        gc.collect()
        world.settle()
        world.lines.clear()
        world._steps = 0
        before.put_away()
        world.restart()
        before.close()
        _started.remove(before)
        world.process.install()
        world.clock.now = self._began_s = START_S
        ranks._calls = WeakKeyDictionary()
        self._rank = rank
        self._calls.clear()

    def row(self, name: str) -> dict[str, Any]:
        """Return what the store saw in a phase, of all ranks."""
        phase = self.phases[name]
        total, run = Counter(map(role, range(self.count))), Counter(map(role, phase))
        verbs, keys, seconds = Counter[str](), Counter[str](), Counter[int]()
        size = 0.0
        for rank, (calls, _) in phase.items():
            # How many ranks it stands for.
            weight = total[role(rank)] / run[role(rank)]
            for call in calls:
                verbs[call.verb] += weight
                size += call.size * weight
                seconds[int(call.at_s)] += weight
                # Ranks that did not run use other objects, and other places of the data.
                keys[call.key] += 1 if call.verb.endswith("data") or call.key.endswith(".data") else weight
        each = [len(calls) for calls, _ in phase.values()]
        return {
            "ranks": self.count,
            "requests": {verb: round(verbs[verb]) for verb in sorted(verbs)},
            "bytes": round(size),
            "a rank": [min(each), max(each)],
            "hottest key": round(max(keys.values(), default=0)),
            "most a second": round(max(seconds.values(), default=0)),
            "slowest, s": round(max(took_s for _, took_s in phase.values()), 2),
            "ran": len(each),
        }

    def check_roles(self, name: str) -> None:
        """Require that ranks of one role made equal requests, so that those that ran stand for the others.

        Parallel listings may differ by a page in twenty, as answers come earlier or later.
        """
        found: dict[str, Counter[str]] = {}
        for rank, (calls, _) in self.phases[name].items() if not self.world.store.weather.tail else ():
            counts = Counter(each.verb for each in calls)
            first = found.setdefault(role(rank), counts)
            if any(abs(counts[verb] - first[verb]) > first[verb] // 20 for verb in counts | first):
                raise AssertionError(f"{name}: rank {rank} made {counts}, and the first {first}")

    def put(self, key: str, size: int) -> str:
        """Store an object of zeros without a request; return its ETag."""
        # A whole object has a checksum.
        content = _zeros(size) if size < _WHOLE_BYTES else Zeros(size)
        self.world.store.objects[key] = stored = Stored(content, f"{size:032x}", {})
        return stored.etag


# -- sets ------------------------------------------------------------------------------------------------------------


def tokens(cluster: Cluster, files: int = 1000, windows: int = 1_000_000) -> None:
    """Read windows of 2,049 tokens: by default 10⁹ of them, in 1,000 files of 4.1 GB."""
    for number in range(files):
        cluster.put(f"data/{number:05d}.bin", 2 * 2049 * windows)
    url, how = f"{cluster.world.url}data/", {"length": 2049, "dtype": "uint16", "format": "raw"}
    _read(cluster, lambda: ps.TokenDataset.from_shards(url, store=cluster.world.options, **how))


def catalog(cluster: Cluster, shards: int = 200, samples: int = 10_000) -> None:
    """Open a saved catalog of samples of 100 kB in shards, and read blocks of 1 MiB."""
    rows, size = TableBuilder(), 100_000
    for number in range(shards):
        etag = cluster.put(f"data/{number:06d}.bin", samples * size)
        for at in range(samples):
            rows.add(f"data/{number:06d}.bin".encode(), size, etag, offset=at * size)
    saved, store = f"{cluster.world.url}catalog.pen", cluster.world.options
    make_catalog(cluster.world.url, "", rows.freeze()).save(saved, store=store)
    _read(cluster, lambda: ps.MapDataset.from_catalog(saved, store=store))


def listing(cluster: Cluster, objects: int = 20_000) -> None:
    """List objects of 100 kB."""
    for number in range(objects):
        cluster.put(f"data/{number:06d}.jpg", 100_000)
    url, store = f"{cluster.world.url}data/", cluster.world.options

    def start(_rank: int, _count: int) -> Iterator[str]:
        ps.MapDataset.from_prefix(url, store=store)
        yield "start"

    cluster.run(start)
    cluster.check_roles("start")


def _read(cluster: Cluster, opened: Callable[[], Any]) -> None:
    """Start, read some batches, and resume after them, on all ranks."""
    states: list[Any] = []

    def batched(rank: int, count: int) -> Any:
        cluster.kept.append(opened())
        return cluster.kept[-1].batched(BATCH, list, shuffle=ps.order.Lanes(), place=ps.Place(rank, count))

    def start(rank: int, count: int) -> Iterator[str]:
        dataset = batched(rank, count)
        yield "start"
        batches = iter(dataset)
        next(batches)
        yield "first batch"
        for _ in range(BATCHES):
            next(batches)
        states.append(dataset.state_dict())
        yield f"{BATCHES} batches"

    def resume(rank: int, count: int) -> Iterator[str]:
        dataset = batched(rank, count)
        dataset.load_state_dict(states[0])
        yield "resume"
        next(iter(dataset))
        yield "first batch after it"

    cluster.run(start)
    cluster.run(resume)
    cluster.check_roles("start")
    cluster.check_roles("resume")


SETS: dict[str, Callable[[Cluster], None]] = {each.__name__: each for each in (tokens, catalog, listing, checkpoint)}


def main(arguments: list[str] | None = None) -> None:
    """Print what the store sees: a row for each set, number of ranks and phase."""
    parser = argparse.ArgumentParser("python -m benchmarks.cluster", description="Requests of simulated ranks.")
    parser.add_argument("--only", nargs="+", choices=[*SETS], default=[*SETS])
    parser.add_argument("--ranks", nargs="+", type=int, default=RANKS)
    parser.add_argument("--tail", type=float, default=0.0, help="share of ways that take 3 to 300 times as long")
    parser.add_argument("--without-group", action="store_true", help="no process group: each rank lists for itself")
    parser.add_argument("--output", type=Path, help="a file for the results, as JSON")
    options = parser.parse_args(arguments)
    results = []
    for name in options.only:
        for count in options.ranks:
            cluster = Cluster(count, group=not options.without_group, tail=options.tail)
            with cluster.running():
                SETS[name](cluster)
            for phase in cluster.phases:
                results.append({"set": name, "phase": phase, **cluster.row(phase)})
                print(json.dumps(results[-1]), flush=True)
    if options.output:
        options.output.write_text(json.dumps(results, indent=1) + "\n")


if __name__ == "__main__":
    main()
