"""The sampling plan of a training run: which samples make which batch, and where to resume after a stop."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from penstock.errors import StateMismatch, Unusable
from penstock.order.orders import CatalogOrder, FullShuffle
from penstock.order.partition import Partition, Tail
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

    """

    epoch: int = 0
    position: int = 0


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

    def indices(self, epoch: int) -> Lookup:
        """Return the function from positions of the epoch to samples.

        The function raises ``Unusable`` where the order returns something else: an index below 0 would read another
        sample in silence.
        """
        lookup = self.order.epoch(self.samples, self.seed, epoch)
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
        return Cursor(cursor.epoch, min(self.total, cursor.position + batches * self.batch * world))

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
        return state if self.order.identity in _UNNAMED else state | {"order": self.order.identity}

    def arguments(self) -> dict[str, object]:
        """Return what the plans of all ranks of an epoch have in common, as the user writes it; JSON can hold it."""
        identity = self.order.identity
        return {
            "shuffle": isinstance(self.order, FullShuffle) if identity in _UNNAMED else identity,
            "seed": self._seed,
            "batch_size": self.batch,
            "tail": self.tail,
            "samples": self.total,
        }

    @property
    def _seed(self) -> int | None:
        return None if self.order.identity == CatalogOrder.identity else int(self.seed)

    def resume(self, state: object, world: int, catalog: str, *, allow_new_global_batch: bool = False) -> Cursor:
        """Return the cursor a state holds, once sure that it belongs to this plan.

        Raises:
            StateMismatch: It is of another version, catalog, order or seed, or of another global batch without
                ``allow_new_global_batch``; or it is no state at all.

        """
        ours = self.state(Cursor(), world, catalog)
        if not isinstance(state, Mapping) or "penstock" not in state:
            raise StateMismatch(f"this is no state of a dataset: {_shown(state)}")
        if _same(state["penstock"], _VERSION) and (set(state) ^ set(ours)) - {"order"}:
            raise StateMismatch(f"this state has lost something, or gained it: {_shown(list(state))}")
        for name, meaning in _MEANINGS.items():
            if not _same(state.get(name), ours.get(name)) and not (name == "global_batch" and allow_new_global_batch):
                found = _shown(state.get(name))
                raise StateMismatch(f"{meaning}: the state has {found}, here it is {_shown(ours.get(name))}")
        epoch, position = state["epoch"], state["position"]
        whole = all(type(number) is int for number in (epoch, position, state["global_batch"]))
        if not (whole and abs(epoch) < _LARGEST and 0 <= position <= self.total):
            raise StateMismatch(f"no such position: {_shown(position)} of epoch {_shown(epoch)}")
        return Cursor(epoch, position)

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
