"""The arguments of a mixture: its sources, their weights, and where in the run the present ones began to hold."""

from __future__ import annotations

import hashlib
import json
from dataclasses import dataclass, field
from math import ceil, floor
from typing import TYPE_CHECKING, Literal, NamedTuple

if TYPE_CHECKING:
    from penstock.data.order.protocol import Order
    from penstock.data.order.weights import WeightStep

Batches = Literal["stratified", "random", "one-source"]
Ends = Literal["longest", "shortest", "once"]


class MixedSource(NamedTuple):
    """A source of a mixture."""

    name: str
    samples: int  # number of its samples
    positions: int  # number of positions of its epoch; for a permutation, the number of samples
    order: Order
    seed: int
    digest: str  # eight hexadecimal digits that identify its samples and their order


class MixtureStage(NamedTuple):
    """A point of the run from which blocks are counted."""

    epoch: int = 0  # epoch in which it begins
    position: int = 0  # position in that epoch
    delivered: int = 0  # samples of the run before it, over all epochs
    # Draws that each source had given before it; () for none. With ``ends="once"``, of this epoch.
    draws: tuple[int, ...] = ()
    # Digest and draws of sources that are no longer part of the mixture, by name.
    parked: tuple[tuple[str, str, int], ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class MixtureSpec:
    """Arguments of a mixture, with which ``Draws`` computes. A sample's number counts through all sources in order."""

    sources: tuple[MixedSource, ...]
    steps: tuple[WeightStep, ...]  # their weights during the run
    # The length of an epoch: until each source has come once ("longest") or the first one has ("shortest"), both by
    # the weights, or with each source once and the others going on without it ("once").
    ends: Ends = "longest"
    batches: Batches = "stratified"  # how the batches are composed
    epoch_samples: int | None = None  # positions of an epoch; None: by ``ends``
    # Where the blocks begin.
    stage: MixtureStage = MixtureStage()  # noqa: RUF009  a tuple
    total: int = field(init=False)  # positions of an epoch

    def __post_init__(self) -> None:
        object.__setattr__(self, "total", self.epoch_samples or self._length())

    def _length(self) -> int:
        pairs = zip(self.sources, self.steps[0].weights, strict=True)
        sizes = [(source.positions, weight) for source, weight in pairs if weight]
        if self.ends == "once":
            return sum(size for size, _ in sizes)
        lengths = [size / weight for size, weight in sizes]
        return max(1, floor(min(lengths))) if self.ends == "shortest" else ceil(max(lengths))

    @property
    def once(self) -> bool:
        return self.ends == "once"

    @property
    def identity(self) -> str:
        """The text that a state holds: sources and weights may differ, and are compared by the plan."""
        return f"mixture 1: {self.batches}{', once' if self.once else ''}"

    @property
    def samples(self) -> int:
        return sum(source.samples for source in self.sources)

    @property
    def digest(self) -> str:
        """Sixteen hexadecimal digits that identify sources, weights and the length of an epoch."""
        steps = [[step.start, *map(str, step.weights)] for step in self.steps]
        text = json.dumps([[[each.name, each.digest] for each in self.sources], steps, self.total])
        return hashlib.sha256(text.encode("utf-8", "surrogatepass")).hexdigest()[:16]

    def positions(self, samples: int) -> int:  # noqa: ARG002  part of the contract of orders
        return self.total
