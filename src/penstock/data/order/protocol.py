"""The contract of an order: which sample comes at which position of an epoch."""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol, TypeAlias, TypeGuard, runtime_checkable

if TYPE_CHECKING:
    from collections.abc import Callable

    import numpy as np
    from numpy.typing import NDArray

__all__ = ["LaneOrder", "Lookup", "Order"]

Lookup: TypeAlias = "Callable[[NDArray[np.int64]], NDArray[np.int64]]"


@runtime_checkable
class Order(Protocol):
    """The order of samples in an epoch: a sample of the catalog for each position; ``shuffle=`` takes an order.

    An order is pure: in every process, its results depend only on its own arguments and those of the call. It is small
    and can be pickled, since each worker process has a copy. Threads may share it.

    Example:
        >>> class Reversed:
        ...     identity = "reversed, version 1"
        ...     def positions(self, samples):
        ...         return samples
        ...     def epoch(self, samples, seed, epoch):
        ...         return lambda positions: samples - 1 - positions
        >>> dataset = ps.IterableDataset.from_prefix("s3://bucket/train/3/", shuffle=Reversed())
        >>> next(iter(dataset)).key
        'train/3/0059.png'
    """

    @property
    def identity(self) -> str:
        """Text that identifies this order, 1 to 200 characters; a resume state holds it, and any other is refused.

        Orders that differ in any argument, or in the version of their arithmetic, have different identities.
        """

    def positions(self, samples: int) -> int:
        """Return how many positions an epoch over ``samples`` samples has, in [0, 2^62].

        A permutation has as many as there are samples. An order that draws samples repeatedly, or leaves some out, may
        have any other number.

        Raises:
            Unusable: The order does not fit this number of samples.
        """

    def epoch(self, samples: int, seed: int, epoch: int) -> Lookup:
        """Return the function from positions of one epoch to samples.

        The function takes an int64 array of positions in [0, ``positions(samples)``), in any order, and returns the
        same number of samples in [0, ``samples``), as integers. Memory does not grow with the number of samples; the
        function is called with thousands of positions at once, in the order of the batches.
        """


@runtime_checkable
class LaneOrder(Order, Protocol):
    """An order in which position p belongs to lane p % lanes, and ranks share the lanes: see ``penstock.order.Lanes``.

    The identity does not include the number of lanes, which a resume state holds separately.

    Example:
        >>> from penstock.data.order.protocol import LaneOrder
        >>> isinstance(ps.order.Lanes(64), LaneOrder), isinstance(ps.order.BlockShuffle(64), LaneOrder)
        (True, False)
        >>> ps.order.Lanes(64).with_lanes(8).lanes
        8
    """

    @property
    def lanes(self) -> int | None:
        """Number of lanes; None: one for each rank, set by ``with_lanes`` before an epoch is requested."""

    def with_lanes(self, lanes: int) -> Order:
        """Return the same order with ``lanes`` lanes, at least 1."""


def has_lanes(order: Order) -> TypeGuard[LaneOrder]:
    """Return whether an order has lanes; ``isinstance`` takes 0.1 ms, which adds up over the sources of a mixture."""
    return hasattr(order, "with_lanes")
