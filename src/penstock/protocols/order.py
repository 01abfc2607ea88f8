"""The contract of an order: which sample comes at which position of an epoch."""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol, TypeAlias, runtime_checkable

if TYPE_CHECKING:
    from collections.abc import Callable

    import numpy as np
    from numpy.typing import NDArray

__all__ = ["LaneOrder", "Lookup", "Order"]

Lookup: TypeAlias = "Callable[[NDArray[np.int64]], NDArray[np.int64]]"


@runtime_checkable
class Order(Protocol):
    """Says which sample of a catalog comes at which position of an epoch; ``shuffle=`` takes one.

    An order is pure: what it says depends on its own arguments and those of the call, in every process. It is small
    and can be pickled, since each worker process has a copy. Threads may share it.
    """

    @property
    def identity(self) -> str:
        """What tells this order from others, 1 to 200 characters: a resume state holds it, and another is refused.

        Orders that differ in any argument, or in the version of their arithmetic, have different identities.
        """

    def positions(self, samples: int) -> int:
        """Return how many positions an epoch over ``samples`` samples has, in [0, 2^62].

        A permutation has as many as there are samples. An order that draws samples repeatedly, or leaves some out, may
        have any other number.

        Raises:
            Unusable: The order does not fit so many samples.

        """

    def epoch(self, samples: int, seed: int, epoch: int) -> Lookup:
        """Return the function from positions of one epoch to samples.

        The function takes an int64 array of positions in [0, ``positions(samples)``), in any order, and returns as many
        samples in [0, ``samples``), as integers. Memory does not grow with the number of samples; the function is
        called with thousands of positions at once, in batches' order.
        """


@runtime_checkable
class LaneOrder(Order, Protocol):
    """An order in which position p belongs to lane p % lanes, and ranks share the lanes: see ``penstock.Lanes``.

    The identity leaves the number of lanes out, which a resume state has apart.
    """

    @property
    def lanes(self) -> int | None:
        """How many; None: as many as ranks, which ``with_lanes`` says before an epoch is asked for."""

    def with_lanes(self, lanes: int) -> Order:
        """Return the same order with so many lanes, at least 1."""
