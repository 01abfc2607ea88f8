"""The sampling plan of a training run: which samples make which batch, and where to resume after a stop."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from penstock.errors import StateMismatch, Unusable
from penstock.order.lanes import MOST_LANES
from penstock.order.orders import CatalogOrder, FullShuffle
from penstock.order.partition import Partition, Tail
from penstock.protocols.order import LaneOrder
from penstock.values import Place, whole

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from penstock.protocols.order import Lookup, Order

__all__ = ["Cursor", "SamplingPlan"]

_VERSION = 1
_LARGEST = 1 << 62
_SEED_BITS = 512  # so that a state stays below 1 KB
_IDENTITY = 200  # characters, for the same reason
_ARGUMENTS = {"samples": "the number of samples", "batch": "batch_size", "seed": "seed"}
_UNNAMED = {CatalogOrder.identity: CatalogOrder, FullShuffle.identity: FullShuffle}  # a state tells them by its seed


class Cursor(NamedTuple):
    """Where an epoch begins or goes on.

    Attributes:
        epoch: Which one, from 0.
        position: First position of it not yet delivered, in [0, samples]; the latter: it is over.
        lanes: How many lanes the state had that the run resumed from, where its order has lanes; 0: it is not known.

    """

    epoch: int = 0
    position: int = 0
    lanes: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class SamplingPlan:
    """What decides, together with a place and a cursor, which sample is delivered where and when. Pure.

    Attributes:
        samples: Samples of the dataset.
        batch: Samples per batch and rank.
        order: Which sample comes at which position of an epoch.
        seed: Of the order.
        tail: Controls the incomplete last global batch: see ``Partition``.
        total: Positions of an epoch, by the order: as many as samples, for a permutation.

    """

    samples: int
    batch: int
    order: Order = CatalogOrder()  # noqa: RUF009  frozen
    seed: int = 0
    tail: Tail = "short"
    total: int = field(init=False)

    def __post_init__(self) -> None:
        """Refuse here what ``Partition`` would refuse at the first batch, and a seed that is one by its looks only."""
        if self.batch is None:  # what torch's loader takes for no batches at all
            raise Unusable("batch_size=None forms no batches: iterate over the dataset itself for single samples")
        for name, least in (("samples", 0), ("batch", 1), ("seed", None)):
            number = whole(getattr(self, name), _ARGUMENTS[name], least)
            object.__setattr__(self, name, number)  # an order is derived from the seed's digits
        object.__setattr__(self, "total", whole(self.order.positions(self.samples), "the positions of an epoch", 0))
        self._check_identity()
        if abs(self.seed) >> _SEED_BITS:
            raise Unusable(f"a seed has at most {_SEED_BITS} bits")
        self.batches(Cursor(), Place())

    def batches(self, cursor: Cursor, place: Place) -> Partition:
        """Return the place's batches from the cursor on, as positions."""
        return Partition(total=self.total, batch=self.batch, place=place, start=cursor.position, tail=self.tail)

    def lanes(self, cursor: Cursor, world: int) -> int:
        """Return how many lanes the epoch at ``cursor`` has for ``world`` ranks; 0: the order has none.

        An epoch under way keeps its lanes. A new one has those that the run had before, else those that the order asks
        for, else one for each rank: the first that the ranks can share evenly.
        """
        if not isinstance(self.order, LaneOrder):
            return 0
        known = [lanes for lanes in (cursor.lanes, self.order.lanes) if lanes]
        if cursor.position and known:
            return known[0]
        return next((lanes for lanes in known if self._shared(lanes, world)), world)

    def check_lanes(self, cursor: Cursor, world: int) -> None:
        """Raise ``Unusable`` where a run begins with lanes that the order asks for and ``world`` ranks cannot share."""
        asked = self.order.lanes if isinstance(self.order, LaneOrder) else None
        if asked and not cursor.lanes and not self._shared(asked, world):
            raise Unusable(
                f"{world} ranks with batches of {self.batch} cannot share lanes={asked}: several would read the same "
                f"blocks; the ranks have to divide the lanes, and the lanes the global batch of {self.batch * world} "
                f"(lanes={world} would do, or lanes=None)"
            )

    def rereads(self, cursor: Cursor, world: int) -> str:
        """Return why ranks read blocks again that others read, in the epoch at ``cursor``; "" where they do not."""
        lanes = self.lanes(cursor, world)
        if not lanes or cursor.position in (0, self.total) or self._shared(lanes, world):
            return ""
        return (
            f"{world} ranks with batches of {self.batch} cannot share the {lanes} lanes of this epoch: until it ends, "
            f"several read the same blocks (the ranks would have to divide {lanes}, and {lanes} the global batch of "
            f"{self.batch * world})"
        )

    def _shared(self, lanes: int, world: int) -> bool:
        return world == 1 or (lanes % world == 0 and self.batch * world % lanes == 0)

    def indices(self, epoch: int, lanes: int = 0) -> Lookup:
        """Return the function from positions of the epoch to samples; with so many lanes, where the order has any.

        The function raises ``Unusable`` where the order returns something else: an index below 0 would read another
        sample in silence.
        """
        order = self.order.with_lanes(lanes) if lanes and isinstance(self.order, LaneOrder) else self.order
        lookup = order.epoch(self.samples, self.seed, epoch)
        if self.order.identity in _UNNAMED:
            return lookup  # of ours, and as cheap as a look at the result

        def checked(positions: NDArray[np.int64]) -> NDArray[np.int64]:
            found = np.asarray(lookup(positions))
            if found.shape != positions.shape or found.dtype.kind not in "iu":
                raise Unusable(f"the order {self.order.identity!r} returned no integer for each position")
            if found.size and not 0 <= found.min() <= found.max() < self.samples:
                raise Unusable(f"the order {self.order.identity!r} returned indices outside [0, {self.samples})")
            return found

        return checked

    def after(self, cursor: Cursor, batches: int, world: int) -> Cursor:
        """Return the cursor after each of ``world`` ranks has received ``batches`` batches from ``cursor`` on."""
        if batches < 0:
            raise Unusable(f"{batches} batches received")
        position = min(self.total, cursor.position + batches * self.batch * world)
        return Cursor(cursor.epoch, position, self.lanes(cursor, world))

    def state(self, cursor: Cursor, world: int, catalog: str) -> dict[str, Any]:
        """Return what any other layout needs to resume at ``cursor``: a few numbers that JSON can hold, below 1 KB."""
        state = {
            "penstock": _VERSION,
            "epoch": int(cursor.epoch),  # numpy's integers become Python's: JSON has no others
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
        """Return what the plans of all ranks of an epoch have in common, as the user writes it; JSON can hold it."""
        identity = self.order.identity
        lanes = {"lanes": self.order.lanes} if isinstance(self.order, LaneOrder) else {}
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
        """Return the cursor a state holds, once sure that it belongs to this plan.

        Raises:
            StateMismatch: It is of another version, catalog, order or seed, of another global batch without
                ``allow_new_global_batch``, or of lanes that this number of ranks cannot share without
                ``allow_rereads``; or it is no state at all.

        """
        ours = self.state(Cursor(), world, catalog)
        if not isinstance(state, Mapping) or "penstock" not in state:
            raise StateMismatch(f"this is no state of a dataset: {_shown(state)}")
        if _same(state["penstock"], _VERSION) and (set(state) ^ set(ours)) - {"order", "lanes"}:
            raise StateMismatch(f"this state has lost something, or gained it: {_shown(list(state))}")
        for name, meaning in _MEANINGS.items():
            if not _same(state.get(name), ours.get(name)) and not (name == "global_batch" and allow_new_global_batch):
                found = _shown(state.get(name))
                raise StateMismatch(f"{meaning}: the state has {found}, here it is {_shown(ours.get(name))}")
        epoch, position = state["epoch"], state["position"]
        whole = all(type(number) is int for number in (epoch, position, state["global_batch"]))
        if not (whole and abs(epoch) < _LARGEST and 0 <= position <= self.total):
            raise StateMismatch(f"no such position: {_shown(position)} of epoch {_shown(epoch)}")
        cursor = Cursor(epoch, position, self._lanes_of(state))
        if not allow_rereads and (why := self.rereads(cursor, world)):
            raise StateMismatch(f"{why}; pass allow_rereads=True if that is meant: each sample comes once either way")
        return cursor

    def _lanes_of(self, state: Mapping[str, Any]) -> int:
        if not isinstance(self.order, LaneOrder):
            if "lanes" in state:
                raise StateMismatch("this state has lanes, and the order has none")
            return 0
        lanes = state.get("lanes")
        if type(lanes) is not int or not 1 <= lanes <= MOST_LANES:
            raise StateMismatch(f"no such number of lanes: {_shown(lanes)}")
        return lanes

    def _check_identity(self) -> None:
        identity: object = self.order.identity  # of any class
        if not (isinstance(identity, str) and 0 < len(identity) <= _IDENTITY):
            raise Unusable(f"an order's identity is text of 1 to {_IDENTITY} characters, not {_shown(identity)}")
        if not isinstance(self.order, _UNNAMED.get(identity, object)):
            raise Unusable(f"the identity {identity!r} is another order's: states could not be told apart")


_MEANINGS = {
    "penstock": "the state is of another version",
    "catalog": "the catalog is another one (its digest)",
    "order": "the order is another one (shuffle=; None: a state of shuffle=True or shuffle=False)",
    "samples": "the catalog is another one (its length)",
    "seed": "the order is another one (its seed; None: not shuffled)",
    "global_batch": (
        "the global batch (batch size times ranks) is another one, so other samples would share a batch; "
        "pass allow_new_global_batch=True if that is meant"
    ),
}


def _same(found: object, ours: object) -> bool:
    return type(found) is type(ours) and found == ours  # True is no 1 here, and an array no truth value


def _shown(value: object) -> str:
    try:
        text = repr(value)
    except Exception:  # noqa: BLE001  a number of more than 4,300 digits has none, and what else may come from a file
        text = f"a {type(value).__name__}"
    return text if len(text) <= 80 else f"{text[:77]}…"  # noqa: PLR2004  a line of a terminal
