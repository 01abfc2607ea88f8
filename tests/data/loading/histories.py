"""Histories of a training that stops, crashes and goes on elsewhere: how to draw them, play them and audit them."""

from __future__ import annotations

import json
import warnings
from collections import Counter
from dataclasses import dataclass, field, replace
from itertools import chain, pairwise
from typing import TYPE_CHECKING, Any, NamedTuple

from hypothesis import strategies as st

import penstock as ps

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from penstock.data.datasets.batched import Batched

__all__ = ["History", "Ledger", "Run", "audit", "histories", "play", "tagged"]

NEVER = 10**6  # events: more than any history has
_WAIT_S = 60


@dataclass(frozen=True, slots=True, kw_only=True)
class Run:
    """From a start to a stop. Events are batches received by all ranks, and ends of epochs.

    Attributes:
        every: Global batch; another one than the run's before is asked for with ``allow_new_global_batch``.
        ranks: Divides ``every``.
        workers: Processes per rank, started by ``method``; 0: ``threads`` threads.
        ahead: Batches prefetched at most.
        stop: After how many events it ends, by a crash.
        saved: After how many of these its last state was saved.
        torchdata: Its loader is torchdata's, over batches of ours; and its states are made elastic.
    """

    every: int
    ranks: int = 1
    workers: int = 0
    method: str = "fork"
    persistent: bool = False
    threads: int = 1
    ahead: int = 2
    stop: int = NEVER
    saved: int = NEVER
    torchdata: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class History:
    """A training of ``epochs`` epochs in several runs, of which the last one ends by itself."""

    samples: int
    runs: tuple[Run, ...]
    epochs: int = 2
    tail: str = "short"
    shuffle: bool = True
    seed: int = 0
    mapped: bool = True


class Event(NamedTuple):
    """What a run's ranks received together, None at the end of an epoch, and the state after it, equal on all ranks."""

    epoch: int
    batches: list[list[Tagged]] | None
    state: dict[str, Any]


Tagged = tuple[int, bool]


@dataclass(slots=True)
class Ledger:
    """What counts of a history: each epoch's global batches, and where and with which global batch it was gone on."""

    delivered: dict[int, list[list[list[Tagged]]]] = field(default_factory=dict)
    began: dict[int, list[tuple[int, int]]] = field(default_factory=dict)
    over: set[int] = field(default_factory=set)


def tagged(sample: ps.Sample) -> Tagged:
    """Return a sample's number, and whether it is a repeat."""
    return int(sample.read()), sample.repeat


# -- drawing ---------------------------------------------------------------------------------------------------------


@st.composite
def histories(
    draw: st.DrawFn, *, most: int = 200, workers: st.SearchStrategy[int] | None = None, method: str = "fork"
) -> History:
    """Draw a history of up to four runs, with threads alone unless ``workers`` says otherwise."""
    samples = draw(st.one_of(st.integers(0, 12), st.integers(0, most)))
    every = draw(st.sampled_from([1, 2, 3, 4, 6, 7, 8, 12, 16, 24, 60]))
    epochs = draw(st.integers(1, 3))
    most_events = epochs * (samples // every + 2)
    runs = []
    for _ in range(draw(st.integers(0, 3))):
        stop = draw(st.integers(0, most_events))
        saved = draw(st.one_of(st.just(stop), st.integers(0, stop)))
        runs.append(draw(_runs(every, workers, method=method, stop=stop, saved=saved)))
        if draw(st.integers(0, 4)) == 0:
            every = draw(st.sampled_from([1, 2, 5, 8, 12]))
    return History(
        samples=samples,
        runs=(*runs, draw(_runs(every, workers, method=method))),
        epochs=epochs,
        tail=draw(st.sampled_from(["short", "pad", "drop"])),
        shuffle=draw(st.booleans()),
        seed=draw(st.sampled_from([0, 1, -1, 2**80])),
        mapped=draw(st.booleans()),
    )


@st.composite
def _runs(draw: st.DrawFn, every: int, workers: st.SearchStrategy[int] | None, **given: Any) -> Run:
    return Run(
        every=every,
        ranks=draw(st.sampled_from([ranks for ranks in range(1, 5) if every % ranks == 0])),
        workers=draw(workers) if workers is not None else 0,
        persistent=draw(st.booleans()) if workers is not None else False,
        threads=draw(st.integers(1, 4)),
        ahead=draw(st.sampled_from([1, 2, 5])),
        torchdata=draw(st.integers(0, 3)) == 0,
        **given,
    )


# -- playing ---------------------------------------------------------------------------------------------------------


def play(history: History, catalog: Any, store: ps.StoreOptions | None = None) -> Ledger:
    """Play all runs, each from the last saved state of the one before; ``catalog`` has ``history.samples`` objects."""
    assert len(catalog) == history.samples
    ledger, state = Ledger(), None
    for run in history.runs:
        events = []
        for event in _events(history, run, catalog, state, store):
            events.append(event)
            if len(events) > run.stop:
                break
        state = _book(ledger, run, events[: run.saved + 1])
    return ledger


def _events(history: History, run: Run, catalog: Any, state: Any, store: Any) -> Iterator[Event]:
    """Yield what happens from the start on, the start itself first."""
    loaders = [_loader(history, run, catalog, rank, store) for rank in range(run.ranks)]
    for loader in loaders:
        if state is not None:
            loader.load_state_dict(json.loads(json.dumps(state)), allow_new_global_batch=True)
    at = _state(loaders)
    yield Event(at["epoch"], None, at)
    while at["epoch"] < history.epochs:
        epoch, begun = at["epoch"], at
        iterators = [iter(loader) for loader in loaders]
        number = 0
        while (batches := _together(iterators)) is not None:
            number, at = number + 1, _state(loaders)
            assert at["epoch"] == epoch
            yield Event(epoch, batches, at)
        assert begun["position"] > 0 or number == len(loaders[0]), "len() is another number of batches"
        at = _state(loaders)
        assert at["epoch"] == epoch + 1
        yield Event(epoch, None, at)


class Torchdata:
    """A StatefulDataLoader over batches, whose states any layout loads, and which goes on from any."""

    def __init__(self, batches: Batched, run: Run) -> None:
        self.batches = batches
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            from torchdata.stateful_dataloader import StatefulDataLoader

            more: dict[str, Any] = {"prefetch_factor": run.ahead, **_processes(run)} if run.workers else {}
            self.loader = StatefulDataLoader(
                batches, batch_size=None, collate_fn=_itself, snapshot_every_n_steps=run.ahead, **more
            )

    def __len__(self) -> int:
        return len(self.batches)

    def __iter__(self) -> Iterator[list[Tagged]]:
        return iter(self.loader)

    def state_dict(self) -> dict[str, Any]:
        return ps.elastic_state(self.loader.state_dict())

    def load_state_dict(self, state: dict[str, Any], *, allow_new_global_batch: bool) -> None:
        self.batches.load_state_dict(state, allow_new_global_batch=allow_new_global_batch)


def _itself(batch: Any) -> Any:
    return batch


def _processes(run: Run) -> dict[str, Any]:
    return {
        "num_workers": run.workers,
        "multiprocessing_context": run.method,
        "persistent_workers": run.persistent,
        "timeout": _WAIT_S,
    }


def _loader(history: History, run: Run, catalog: Any, rank: int, store: Any) -> ps.DataLoader | Torchdata:
    order = {"shuffle": history.shuffle, "seed": history.seed, "place": ps.Place(rank=rank, world=run.ranks)}
    kind = ps.MapDataset if history.mapped else ps.IterableDataset
    dataset = kind.from_catalog(catalog, transform=tagged, store=store, **({} if history.mapped else order))
    batch = run.every // run.ranks
    if run.torchdata:
        return Torchdata(dataset.batched(batch, list, tail=history.tail, **(order if history.mapped else {})), run)
    more = _processes(run) if run.workers else {"decode_threads": run.threads}
    return ps.DataLoader(
        dataset,
        batch,
        tail=history.tail,
        collate_fn=list,
        prefetch=run.ahead,
        **(order if history.mapped else {}),
        **more,
    )


def _state(loaders: list[Any]) -> dict[str, Any]:
    """Return the state that all ranks have."""
    states = [loader.state_dict() for loader in loaders]
    assert all(state == states[0] for state in states), "ranks have different states at the same batch"
    assert len(json.dumps(states[0])) < 1024
    return states[0]


def _together(iterators: list[Iterator[list[Tagged]]]) -> list[list[Tagged]] | None:
    """Take a batch on every rank, as a training in step does; None when all have ended."""
    taken = [next(iterator, None) for iterator in iterators]
    ended = sum(batch is None for batch in taken)
    assert ended in (0, len(taken)), f"{ended} of {len(taken)} ranks have no batch: the others would wait for ever"
    if ended:
        return None
    assert all(taken), "an empty batch"
    sizes = [len(batch) for batch in taken]
    assert max(sizes) - min(sizes) <= 1
    return taken


def _book(ledger: Ledger, run: Run, events: list[Event]) -> dict[str, Any]:
    """Enter what was received until the last saved state, and return that."""
    start = events[0].state
    ledger.began.setdefault(start["epoch"], []).append((start["position"], run.every))
    for before, event in pairwise(events):
        if event.batches is not None:
            ledger.delivered.setdefault(event.epoch, []).append(event.batches)
            assert all(len(batch) <= run.every // run.ranks for batch in event.batches)
            assert event.state["position"] > before.state["position"] or before.state["epoch"] < event.epoch
        else:
            ledger.over.add(event.epoch)
            ledger.began.setdefault(event.epoch + 1, []).append((0, run.every))
    return events[-1].state


# -- auditing --------------------------------------------------------------------------------------------------------


def audit(history: History, ledger: Ledger, catalog: Any, store: ps.StoreOptions | None = None) -> None:
    """Compare the ledger with the plain run: one rank, one thread, no stop."""
    plain = replace(history, runs=(Run(every=history.runs[0].every),), tail="short", mapped=True)
    truth = play(plain, catalog, store)
    assert ledger.over >= set(range(history.epochs))
    for epoch in range(history.epochs):
        order = [number for number, _ in _flat(truth.delivered.get(epoch, []))]
        assert sorted(order) == list(range(history.samples))
        assert history.shuffle or order == sorted(order)
        _audit_epoch(history, ledger, epoch, order)


def _audit_epoch(history: History, ledger: Ledger, epoch: int, order: list[int]) -> None:
    delivered = ledger.delivered.get(epoch, [])
    position, every = ledger.began[epoch][-1]
    dropped = (history.samples - position) % every if history.tail == "drop" else 0
    expected = order[: history.samples - dropped]
    fresh = [number for number, repeat in _flat(delivered) if not repeat]
    assert Counter(fresh) == Counter(expected), "not each sample exactly once"
    assert fresh == expected, "in another order"
    repeats = [number for number, repeat in _flat(delivered) if repeat]
    assert history.tail != "drop" or not repeats
    assert set(repeats) <= set(order)
    if len({run.every for run in history.runs}) == 1:
        together = [[number for number, repeat in chain(*batches) if not repeat] for batches in delivered]
        assert together == [expected[at : at + every] for at in range(0, len(expected), every)], "other global batches"
        if history.tail == "pad":
            assert all(sum(map(len, batches)) == every for batches in delivered)
        if history.tail == "short":
            assert len(repeats) < max(run.ranks for run in history.runs)


def _flat(delivered: list[list[list[Tagged]]]) -> Iterator[Tagged]:
    return chain.from_iterable(chain.from_iterable(delivered))


def catalogs(folder: str, most: int) -> Callable[[int], Any]:
    """Return a function from a number of samples to a catalog of as many, over one listing."""
    whole = ps.MapDataset.from_prefix(folder).catalog
    assert len(whole) == most
    found: dict[int, Any] = {}
    return lambda samples: found.setdefault(samples, whole[:samples])
