"""Orders for ``shuffle=False`` and ``shuffle=True``; checks of other values, and of what other orders return."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar

import numpy as np

from penstock.data.order.protocol import Order
from penstock.data.order.shuffle import Permutation
from penstock.errors import Unusable

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from penstock.data.order.protocol import Lookup


@dataclass(frozen=True, slots=True)
class CatalogOrder:
    """The samples in catalog order, in every epoch; ``shuffle=False``."""

    identity: ClassVar[str] = "catalog"

    def positions(self, samples: int) -> int:
        return samples

    def epoch(self, samples: int, seed: int, epoch: int) -> Lookup:  # noqa: ARG002  part of the contract
        return _same


@dataclass(frozen=True, slots=True)
class FullShuffle:
    """All samples, permuted in each epoch: see ``Permutation``; ``shuffle=True``."""

    identity: ClassVar[str] = "permutation"

    def positions(self, samples: int) -> int:
        return samples

    def epoch(self, samples: int, seed: int, epoch: int) -> Lookup:
        return Permutation(samples, seed, epoch).of


def order_of(shuffle: object) -> Order:
    """Return the order for a ``shuffle=`` argument."""
    # An order of ours needs no look at its attributes, which takes 0.1 ms.
    if isinstance(shuffle, (CatalogOrder, FullShuffle)) or (
        isinstance(shuffle, Order) and not isinstance(shuffle, type)
    ):
        return shuffle
    try:
        known = shuffle in (True, False)
    except Exception:  # noqa: BLE001  an array has no truth value
        known = False
    if not known:
        name = f"the class {shuffle.__name__}: make an instance of it" if isinstance(shuffle, type) else f"{shuffle!r}"
        raise Unusable(
            f"shuffle must be True, False or an order such as ps.order.BlockShuffle(block_samples=…), got {name}"
        )
    return FullShuffle() if shuffle else CatalogOrder()


def check_lookup(lookup: Lookup, identity: str, samples: int) -> Lookup:
    """Return ``lookup``, which raises ``Unusable`` if the order returns anything but numbers of its samples.

    A number below 0 would read a wrong sample silently.
    """

    def checked(positions: NDArray[np.int64]) -> NDArray[np.int64]:
        found = np.asarray(lookup(positions))
        if found.shape != positions.shape or found.dtype.kind not in "iu":
            raise Unusable(f"the order {identity!r} must return an integer for each position")
        if found.size and not 0 <= found.min() <= found.max() < samples:
            raise Unusable(f"the order {identity!r} returned indices outside [0, {samples})")
        return found

    return checked


def _same(positions: NDArray[np.int64]) -> NDArray[np.int64]:
    return positions
