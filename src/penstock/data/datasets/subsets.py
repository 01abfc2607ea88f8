"""Conversion of a torch Subset of a map-style dataset (``random_split``) to a dataset over a part of the catalog."""

from __future__ import annotations

from typing import Any, TypeVar, cast

import numpy as np
from torch.utils.data import Subset

from penstock.data.datasets.map import MapDataset, part_of

__all__ = ["without_subsets"]

T = TypeVar("T")


def without_subsets(dataset: T) -> T | MapDataset:
    """Return the part of a ``MapDataset`` that a torch ``Subset`` selects; makes no request.

    Anything else is returned unchanged, also a subclass of ``Subset``, which may read in a different way.

    Raises:
        Unusable: A subclass of ``MapDataset`` overrides ``__len__`` or ``__iter__``.

    """
    if type(dataset) is not Subset:
        return dataset
    subset = cast("Subset[Any]", dataset)
    whole = without_subsets(subset.dataset)
    return part_of(whole, np.asarray(subset.indices)) if isinstance(whole, MapDataset) else dataset
