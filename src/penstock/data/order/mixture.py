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
    """A source of a mixture.

    Attributes:
        name: Its name.
        samples: Number of its samples.
        positions: Number of positions of its epoch; for a permutation, the number of samples.
        order: The order of its samples.
        seed: Seed of that order.
        digest: Eight hexadecimal digits that identify its samples and their order.

    """

    name: str
    samples: int
    positions: int
    order: Order
    seed: int
    digest: str


class MixtureStage(NamedTuple):
    """A point of the run from which blocks are counted.

    Attributes:
        epoch: Epoch in which it begins.
        position: Position in that epoch.
        delivered: Samples of the run before it, over all epochs.
        draws: Draws that each source had given before it; () for none. With ``ends="once"``, of this epoch.
        parked: Digest and draws of sources that are no longer part of the mixture, by name.

    """

    epoch: int = 0
    position: int = 0
    delivered: int = 0
    draws: tuple[int, ...] = ()
    parked: tuple[tuple[str, str, int], ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class MixtureSpec:
    """The arguments of a mixture, with which ``Draws`` computes. A sample's number counts through all sources in order.

    Attributes:
        sources: The sources.
        steps: Their weights during the run.
        ends: The length of an epoch: until each source has come once ("longest") or the first one has ("shortest"),
            both by the weights, or with each source once and the others going on without it ("once").
        batches: How the batches are composed.
        epoch_samples: Positions of an epoch; None: by ``ends``.
        stage: Where the blocks begin.
        total: Positions of an epoch.

    """

    sources: tuple[MixedSource, ...]
    steps: tuple[WeightStep, ...]
    ends: Ends = "longest"
    batches: Batches = "stratified"
    epoch_samples: int | None = None
    stage: MixtureStage = MixtureStage()  # noqa: RUF009  a tuple
    total: int = field(init=False)

    def __post_init__(self) -> None:
        """Compute the length of an epoch."""
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
        """Whether each source comes once in each epoch."""
        return self.ends == "once"

    @property
    def identity(self) -> str:
        """The text that a state holds: sources and weights may differ, and are compared by the plan."""
        return f"mixture 1: {self.batches}{', once' if self.once else ''}"

    @property
    def samples(self) -> int:
        """The number of samples of all sources."""
        return sum(source.samples for source in self.sources)

    @property
    def digest(self) -> str:
        """Sixteen hexadecimal digits that identify sources, weights and the length of an epoch."""
        steps = [[step.start, *map(str, step.weights)] for step in self.steps]
        text = json.dumps([[[each.name, each.digest] for each in self.sources], steps, self.total])
        return hashlib.sha256(text.encode("utf-8", "surrogatepass")).hexdigest()[:16]

    def positions(self, samples: int) -> int:  # noqa: ARG002  part of the contract of orders
        """Return the positions of an epoch."""
        return self.total
