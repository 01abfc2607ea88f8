"""torch's Subset of a map-style dataset, as ``random_split`` makes them: a dataset over a part of the catalog."""

from __future__ import annotations

from copy import copy
from typing import Any, TypeVar, cast

import numpy as np
from torch.utils.data import Subset

from penstock.datasets.map import MapDataset
from penstock.errors import Unusable

__all__ = ["without_subsets"]

T = TypeVar("T")


def without_subsets(dataset: T) -> T | MapDataset:
    """Return the dataset that a ``Subset`` of a ``MapDataset`` stands for, over a part of its catalog; no request.

    Anything else is returned as it is; so is a subclass of ``Subset``, which may have a way of its own to read.

    Raises:
        Unusable: A subclass of ``MapDataset`` reads by index in its own way.

    """
    if type(dataset) is not Subset:
        return dataset
    subset = cast("Subset[Any]", dataset)
    whole = without_subsets(subset.dataset)
    if not isinstance(whole, MapDataset):
        return dataset
    kind = type(whole)
    if whole.overrides or kind.__len__ is not MapDataset.__len__:
        raise Unusable(
            f"{kind.__name__} overrides {whole.overrides or '__len__'}, so its indices are not the catalog's: pass "
            f"{kind.__name__}.from_catalog(dataset.catalog[indices], …) in place of a Subset, or the Subset to torch's "
            "DataLoader with batch_sampler=ps.BatchSampler(subset, …)"
        )
    part = copy(whole)
    part.catalog = whole.catalog[np.asarray(subset.indices)]
    return part
