"""Orders of samples, for ``shuffle=`` of a dataset or a loader, and the weights of a mixture."""

from penstock.data.order.block_permutation import BlockShuffle
from penstock.data.order.lanes import Lanes
from penstock.data.order.mixture import Schedule
from penstock.data.order.sampling import Repeat
from penstock.data.order.weighted import WeightedShuffle

__all__ = ["BlockShuffle", "Lanes", "Repeat", "Schedule", "WeightedShuffle"]
