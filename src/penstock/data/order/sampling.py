"""The sampling plan of a training run: which samples are in which batch, and where to resume after a stop.

``Partition`` cuts positions into global batches, these into slices over ranks, and deals them in turn to workers.
``batch_indices`` and ``sample_indices`` look up the samples of a worker, as indices into the catalog.
"""

from __future__ import annotations

import operator
from collections.abc import Mapping
from dataclasses import dataclass, field
from itertools import islice, pairwise
from typing import TYPE_CHECKING, Any, Literal, NamedTuple, SupportsIndex, get_args

import numpy as np

from penstock.data.order.lanes import MOST_LANES, by_lane
from penstock.data.order.orders import CatalogOrder, FullShuffle, check_lookup
from penstock.data.order.protocol import has_lanes
from penstock.errors import StateMismatch, Unusable, kind_of
from penstock.values import Place, check_choice, whole

if TYPE_CHECKING:
    from collections.abc import Iterator

    from numpy.typing import NDArray

    from penstock.data.order.protocol import Lookup, Order

Tail = Literal["drop", "short", "pad"]

_VERSION = 1
_AT_ONCE = 4096  # positions looked up together: the permutation is vectorised
_FIRST = 512  # the same of the first look-up, which the first request waits for
_LARGEST = 1 << 62
_SEED_BITS = 512  # so that a state stays below 1 KB
_IDENTITY = 200  # characters, for the same reason
_ARGUMENTS = {"samples": "the number of samples", "batch": "batch_size", "seed": "seed"}
_OPTIONAL = {"order", "lanes", "trainer_epoch"}
# A state does not name these orders: its seed tells them apart.
_UNNAMED = {CatalogOrder.identity: CatalogOrder, FullShuffle.identity: FullShuffle}


class Repeat(int):
    """The index of a repeated sample of this epoch, which fills a batch so that all ranks have equally many samples.

    A ``Repeat`` behaves like any int; code that counts or measures may check ``isinstance(index,
    penstock.order.Repeat)``.

    Example:
        >>> index = ps.order.Repeat(3)
        >>> index + 1, isinstance(index, ps.order.Repeat)
        (4, True)
    """

    __slots__ = ()


def sample_number(index: SupportsIndex, samples: int) -> int:
    """Return the number, from 0, of the sample at ``index``: from the end if that is negative; keep a ``Repeat``."""
    try:
        number = index if isinstance(index, Repeat) else operator.index(index)
    except TypeError:
        wrong = f"an index must be an integer or a slice, got {kind_of(index)}; samples are numbered from 0"
        raise TypeError(wrong) from None
    if not -samples <= number < samples:
        raise IndexError(f"sample {number} does not exist: the dataset has {samples}, numbered from 0")
    return number if number >= 0 else number + samples


@dataclass(frozen=True, slots=True, kw_only=True)
class Partition:
    """The batches of one worker of one rank: iteration yields positions ``(start, stop)``, half-open, never empty.

    With G = ``batch`` * world, global batch k is the positions [start + kG, start + (k + 1)G) below ``total``. Rank r
    takes the r-th of its equal slices; worker w takes the batches with k = w (mod workers). So the batches of a rank,
    merged in turn over its workers, do not depend on the number of workers. The global batches do not depend on the
    number of ranks as long as G stays the same. Every rank has the same number of batches. After m global batches, the
    state is one integer, ``start + m * G``; any place may continue from there.

    The last global batch may have fewer than G positions; ``tail`` controls it:

    - ``"drop"``: it is left out.
    - ``"short"``: it is cut as evenly as possible; slices differ by one position at most. If there are fewer positions
      than ranks, each rank still has one position: those past the end are repeats.
    - ``"pad"``: it is filled up to G with repeats.

    Positions from ``total`` on are repeats of the first samples of the epoch; of a mixture whose weights have changed
    within the epoch, of the first samples since then.

    Takes O(1) memory, and can be iterated any number of times.
    """

    total: int  # positions of the epoch
    batch: int  # samples per batch and rank
    place: Place  # the rank and the worker
    start: int = 0  # first position not yet taken, in [0, total]
    tail: Tail = "short"  # controls an incomplete last global batch

    def __post_init__(self) -> None:
        """Raise for values that would lose samples silently."""
        if not 0 <= self.start <= self.total:
            raise Unusable(f"position {self.start} is outside an epoch of {self.total} samples")
        if self.batch < 1:
            raise Unusable(f"a batch must have at least one sample, got {self.batch}")
        check_choice(self.tail, get_args(Tail), "tail")

    def __iter__(self) -> Iterator[tuple[int, int]]:
        """Yield this worker's batches in order."""
        return map(self._slice, self._numbers())

    def __len__(self) -> int:
        return len(self._numbers())

    def _numbers(self) -> range:
        every = self.batch * self.place.world
        complete, rest = divmod(self.total - self.start, every)
        return range(self.place.worker, complete + (rest > 0 and self.tail != "drop"), self.place.workers)

    def size(self, first: int) -> int:
        """Return the number of positions, over all ranks, of the global batch that begins at ``first``."""
        every = self.batch * self.place.world
        return every if self.tail == "pad" else min(every, max(self.total - first, self.place.world))

    def _slice(self, number: int) -> tuple[int, int]:
        rank, world = self.place.rank, self.place.world
        first = self.start + number * self.batch * world
        size = self.size(first)
        return first + size * rank // world, first + size * (rank + 1) // world


class Cursor(NamedTuple):
    """Position at which an epoch begins or resumes."""

    epoch: int = 0  # number of the epoch, from 0
    position: int = 0  # first position not yet delivered, in [0, samples]; at ``samples`` the epoch is over
    lanes: int = 0  # number of lanes in the state that the run resumed from, if its order has lanes; 0: unknown
    # Number that identifies the weights of a mixture, if they have changed during the run: see
    # ``SamplingPlan.stage``.
    stage: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class SamplingPlan:
    """Plan that determines, for a place and a cursor, which sample is delivered where and when. Pure."""

    samples: int
    batch: int  # samples per batch and rank
    # Which sample comes at which position of an epoch.
    order: Order = CatalogOrder()  # noqa: RUF009  frozen
    seed: int = 0
    tail: Tail = "short"  # controls the incomplete last global batch: see ``Partition``
    total: int = field(init=False)  # positions of an epoch, from the order; for a permutation, the number of samples

    def __post_init__(self) -> None:
        """Raise for values that ``Partition`` would refuse at the first batch, and for disguised invalid seeds."""
        if self.batch is None:
            # For torch's loader, None means that batches are not formed.
            raise Unusable("batch_size=None forms no batches: iterate over the dataset itself for single samples")
        for name, least in (("samples", 0), ("batch", 1), ("seed", None)):
            number = whole(getattr(self, name), _ARGUMENTS[name], least)
            # The plain integer: an order is derived from the seed's digits.
            object.__setattr__(self, name, number)
        object.__setattr__(self, "total", whole(self.order.positions(self.samples), "the positions of an epoch", 0))
        self._check_identity()
        if abs(self.seed) >> _SEED_BITS:
            raise Unusable(f"a seed must have at most {_SEED_BITS} bits")
        self.batches(Cursor(), Place())

    def batches(self, cursor: Cursor, place: Place) -> Partition:
        return Partition(total=self.total, batch=self.batch, place=place, start=cursor.position, tail=self.tail)

    def lanes(self, cursor: Cursor, world: int) -> int:
        """Return the number of lanes of the epoch at ``cursor`` for ``world`` ranks; 0 if the order has no lanes.

        An epoch that has begun keeps its lanes. A new epoch takes the first number that the ranks can share evenly:
        that of the run so far, that of the order, or one lane for each rank.
        """
        if not has_lanes(self.order):
            return 0
        known = [lanes for lanes in (cursor.lanes, self.order.lanes) if lanes]
        if cursor.position and known:
            return known[0]
        return next((lanes for lanes in known if self.shared(lanes, world)), world)

    @property
    def at_once(self) -> int:
        """Positions that are looked up together."""
        return _AT_ONCE

    def first(self, epoch: int) -> int:  # noqa: ARG002  for mixtures
        """Return the first position of an epoch that this plan knows: repeats begin there."""
        return 0

    @property
    def begins(self) -> tuple[int, int]:
        """Epoch and position from which on this plan knows the order of a run."""
        return 0, 0

    def check_lanes(self, cursor: Cursor, world: int) -> None:
        """Raise ``Unusable`` if a run begins with lanes that the order requires and ``world`` ranks cannot share."""
        asked = self.order.lanes if has_lanes(self.order) else None
        if asked and not cursor.lanes and not self.shared(asked, world):
            raise Unusable(
                f"{world} ranks with batches of {self.batch} cannot share lanes={asked}: lanes must be "
                f"a multiple of the ranks, and a divisor of the global batch of {self.batch * world} "
                f"(lanes={world} would do, or lanes=None)"
            )

    def rereads(self, cursor: Cursor, world: int) -> str:
        """Return why several ranks read the same blocks in the epoch at ``cursor``; "" if they do not."""
        lanes = self.lanes(cursor, world)
        if not lanes or cursor.position in (0, self.total) or self.shared(lanes, world):
            return ""
        return (
            f"{world} ranks with batches of {self.batch} cannot share the {lanes} lanes of this epoch: until it ends, "
            f"several read the same blocks (the ranks would have to divide {lanes}, and {lanes} the global batch of "
            f"{self.batch * world})"
        )

    def shared(self, lanes: int, world: int) -> bool:
        return world == 1 or (lanes % world == 0 and self.batch * world % lanes == 0)

    @property
    def stage(self) -> int:
        """A number that identifies the changes of ``adopted``; 0: none. Processes compare it."""
        return 0

    def adopted(
        self,
        state: object,
        world: int,  # noqa: ARG002  for mixtures
        new_weights: object = None,
    ) -> tuple[SamplingPlan, object]:
        """Return the plan that resumes from ``state``, and the state for its ``resume``; see ``MixturePlan``."""
        if new_weights is not None:
            raise Unusable("new_weights= changes the weights of a ps.Mix, and this dataset is not one")
        return self, state

    def indices(self, cursor: Cursor, world: int) -> Lookup:
        """Return the function from positions of the cursor's epoch to samples: see ``check_lookup``."""
        lanes = self.lanes(cursor, world)
        order = self.order.with_lanes(lanes) if lanes and has_lanes(self.order) else self.order
        lookup = order.epoch(self.samples, self.seed, cursor.epoch)
        if self.order.identity in _UNNAMED:
            # A built-in order needs no check, and takes no longer than one.
            return lookup
        return check_lookup(lookup, self.order.identity, self.samples)

    def after(self, cursor: Cursor, batches: int, world: int) -> Cursor:
        """Return the cursor after each of ``world`` ranks has received ``batches`` batches from ``cursor`` on."""
        received = whole(batches, "the number of received batches", 0)
        position = min(self.total, cursor.position + received * self.batch * world)
        return Cursor(cursor.epoch, position, self.lanes(cursor, world), cursor.stage)

    def state(self, cursor: Cursor, world: int, catalog: str) -> dict[str, Any]:
        """Return the state from which any other layout can resume at ``cursor``: a few JSON values, below 1 KB."""
        state = {
            "penstock": _VERSION,
            # Convert numpy's integers to Python's: JSON cannot hold others.
            "epoch": int(cursor.epoch),
            "position": int(cursor.position),
            "samples": int(self.total),
            "global_batch": int(self.batch * world),
            "seed": self._seed,
            "catalog": catalog,
        }
        if lanes := self.lanes(cursor, world):
            state["lanes"] = int(lanes)
        return state if self.order.identity in _UNNAMED else state | {"order": self.order.identity}

    def arguments(self) -> dict[str, object]:
        """Return the arguments that the plans of all ranks have in common, as the user writes them; JSON values."""
        identity = self.order.identity
        lanes = {"lanes": self.order.lanes} if has_lanes(self.order) else {}
        return lanes | {
            "shuffle": isinstance(self.order, FullShuffle) if identity in _UNNAMED else identity,
            "seed": self._seed,
            "batch_size": self.batch,
            "tail": self.tail,
            "samples": self.total,
        }

    @property
    def _seed(self) -> int | None:
        return None if self.order.identity == CatalogOrder.identity else int(self.seed)

    def resume(
        self,
        state: object,
        world: int,
        catalog: str,
        *,
        allow_new_global_batch: bool = False,
        allow_rereads: bool = False,
    ) -> Cursor:
        """Return the cursor of a state, after checking that the state belongs to this plan.

        Raises ``StateMismatch`` for another version, catalog, order or seed; for another global batch without
        ``allow_new_global_batch``; and for lanes that this number of ranks cannot share without ``allow_rereads``.
        """
        ours = SamplingPlan.state(self, Cursor(), world, catalog)
        if not isinstance(state, Mapping) or "penstock" not in state:
            raise StateMismatch(f"not a state of a dataset: {_shorten_repr(state)}; pass what state_dict() returned")
        if _same(state["penstock"], _VERSION) and (set(state) ^ set(ours)) - _OPTIONAL:
            raise StateMismatch(f"this state lacks fields, or has unknown ones: {_shorten_repr(list(state))}")
        for name, meaning in _MEANINGS.items():
            if not _same(state.get(name), ours.get(name)) and not (name == "global_batch" and allow_new_global_batch):
                found = _shorten_repr(state.get(name))
                raise StateMismatch(f"{meaning}: the state has {found}, here it is {_shorten_repr(ours.get(name))}")
        epoch, position, trainer = state["epoch"], state["position"], state.get("trainer_epoch", 0)
        whole = all(type(number) is int for number in (epoch, position, trainer, state["global_batch"]))
        if not (whole and max(abs(epoch), abs(trainer)) < _LARGEST and 0 <= position <= self.total):
            raise StateMismatch(f"invalid position: {_shorten_repr(position)} of epoch {_shorten_repr(epoch)}")
        cursor = Cursor(epoch, position, self._lanes_of(state), self.stage)
        if not allow_rereads and (why := self.rereads(cursor, world)):
            raise StateMismatch(f"{why}; pass allow_rereads=True to accept this: each sample still comes once")
        return cursor

    def _lanes_of(self, state: Mapping[str, Any]) -> int:
        if not has_lanes(self.order):
            if "lanes" in state:
                raise StateMismatch("this state has lanes, but the order has none")
            return 0
        lanes = state.get("lanes")
        if type(lanes) is not int or not 1 <= lanes <= MOST_LANES:
            raise StateMismatch(f"invalid number of lanes: {_shorten_repr(lanes)}")
        return lanes

    def _check_identity(self) -> None:
        identity: object = self.order.identity  # may have any type
        if not (isinstance(identity, str) and 0 < len(identity) <= _IDENTITY):
            raise Unusable(
                f"an order's identity must be a str of 1 to {_IDENTITY} characters, got {_shorten_repr(identity)}"
            )
        if not isinstance(self.order, _UNNAMED.get(identity, object)):
            raise Unusable(f"the identity {identity!r} belongs to another order: choose a different one")


_MEANINGS = {
    "penstock": "the state has a different version",
    "catalog": "the catalog differs (its digest; of arrays: names, shapes, units, or the elements of samples)",
    "order": "the order differs (shuffle=; None: a state of shuffle=True or shuffle=False)",
    "samples": "the catalog differs (its length)",
    "seed": "the order differs (its seed; None: not shuffled)",
    "global_batch": (
        "the global batch (batch size times ranks) differs, so other samples would share a batch; "
        "pass allow_new_global_batch=True to accept this"
    ),
}


def _same(found: object, ours: object) -> bool:
    # True must not equal 1, and an array has no truth value.
    return type(found) is type(ours) and found == ours


def _shorten_repr(value: object) -> str:
    try:
        text = repr(value)
    except Exception:  # noqa: BLE001  for example a number of more than 4,300 digits, from a file
        text = kind_of(value)
    return text if len(text) <= 80 else f"{text[:77]}…"  # noqa: PLR2004  a line of a terminal


class BatchLookup:
    """The samples of batches in the epoch at a cursor, looked up some thousand positions at a time."""

    def __init__(self, plan: SamplingPlan, cursor: Cursor, world: int, partition: Partition) -> None:
        """Look up batches of ``partition``, whose batch times ranks is that of ``plan`` times ``world``."""
        self._total, self._first, self._partition = plan.total, plan.first(cursor.epoch), partition
        self._lanes, self._indices = plan.lanes(cursor, world), plan.indices(cursor, world)

    def find(
        self, starts: NDArray[np.int64], sizes: NDArray[np.int64]
    ) -> tuple[NDArray[np.int64], NDArray[np.int64], NDArray[np.int64]]:
        """Return the samples of runs of positions, where each run ends among them, and which of them are repeats."""
        ends = np.cumsum(sizes)
        positions = np.arange(ends[-1]) + np.repeat(starts - (ends - sizes), sizes)
        positions = _dealt(self._partition, self._lanes, positions) if self._lanes > 1 else positions
        past = np.flatnonzero(positions >= self._total)
        positions[past] = self._first + (positions[past] - self._total) % (self._total - self._first)
        return self._indices(positions), ends, past


def batch_indices(plan: SamplingPlan, cursor: Cursor, place: Place) -> Iterator[list[int]]:
    """Yield each batch's sample indices, with repeats as ``Repeat``; lazily, some batches ahead, in O(1) memory."""
    partition = plan.batches(cursor, place)
    source, lookup = iter(partition), BatchLookup(plan, cursor, place.world, partition)
    at_once = _FIRST
    while chunk := list(islice(source, max(1, at_once // plan.batch))):
        at_once = plan.at_once
        starts, stops = np.array(chunk, dtype=np.int64).T
        found, ends, past = lookup.find(starts, stops - starts)
        samples: list[int] = found.tolist()
        for at in past.tolist():
            samples[at] = Repeat(samples[at])
        for start, end in pairwise((0, *ends.tolist())):
            yield samples[start:end]


def sample_indices(plan: SamplingPlan, cursor: Cursor, place: Place) -> Iterator[int]:
    """Yield sample indices one by one, without repeats.

    The p-th position after the cursor belongs to rank p % world, and to its worker p // world % workers. So if the
    number of ranks divides the lanes of an order, each lane is read by one rank here, too.
    """
    indices = plan.indices(cursor, place.world)
    every = place.world * place.workers
    mine = range(cursor.position + place.worker * place.world + place.rank, plan.total, every)
    for at in range(0, len(mine), _AT_ONCE):
        some = mine[at : at + _AT_ONCE]
        yield from indices(np.arange(some.start, some.stop, some.step)).tolist()


def _dealt(partition: Partition, lanes: int, positions: NDArray[np.int64]) -> NDArray[np.int64]:
    """Return the positions to read in place of these, lane by lane in each global batch, so that slices are lanes."""
    every = partition.batch * partition.place.world
    at = (positions - partition.start) % every
    firsts = positions - at
    sizes = np.full_like(firsts, every)
    incomplete = firsts + every > partition.total  # one batch: the last
    if incomplete.any():
        sizes[incomplete] = partition.size(int(firsts[incomplete][0]))
    return by_lane(firsts, sizes, lanes, at)
