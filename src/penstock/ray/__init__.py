"""Ray Train and Ray Data over Penstock.

- ``train``: ``report`` saves a step of a ``CheckpointManager`` and reports it to Ray Train.
- ``data``: ``read`` makes a dataset of Ray Data from a catalog; ``write`` makes shards of one. The module is imported
  at its first use, with Ray Data.

The datasets, ``ps.DataLoader`` and checkpoints need nothing of this room: in a train function of Ray, the loader takes
its rank from ``torch.distributed``, as everywhere. Jobs on Ray are in ``jobs/parts/carriers``.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from penstock.ray.train import Reported, report, reported

if TYPE_CHECKING:
    from penstock.ray.data import CatalogSource, ShardSink, read, write

__all__ = ["CatalogSource", "Reported", "ShardSink", "read", "report", "reported", "write"]

_LATE = ("CatalogSource", "ShardSink", "read", "write")


def __getattr__(name: str) -> Any:  # noqa: ANN401  of ``data``
    if name not in _LATE:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    from penstock.ray import data

    return getattr(data, name)
