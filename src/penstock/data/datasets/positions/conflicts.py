"""Checks against wrappers that would shard or batch the samples of a dataset a second time."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING

from penstock.errors import Unusable

if TYPE_CHECKING:
    from collections.abc import Iterator
    from types import FrameType

    from penstock.values import Place

__all__ = ["check_batching", "check_sharding"]

# Module -> its classes that keep one part of the samples they iterate over -> attribute with the number of parts.
_SHARDING = {
    "torch.utils.data.datapipes.iter.sharding": {"ShardingFilterIterDataPipe": "num_of_instances"},
    "accelerate.data_loader": {
        "BatchSamplerShard": "num_processes",
        "DataLoaderDispatcher": "state.num_processes",
        "IterableDatasetShard": "num_processes",
    },
    "lightning.fabric.utilities.distributed": {"DistributedSamplerWrapper": "num_replicas"},
    "lightning_fabric.utilities.distributed": {"DistributedSamplerWrapper": "num_replicas"},
    "transformers.trainer_pt_utils": {"IterableDatasetShard": "num_processes"},
}
_FETCHERS = "torch.utils.data._utils.fetch"


def check_sharding(place: Place) -> None:
    """Refuse to shard samples for ``place`` if the caller that iterates would shard them again.

    A wrapper is found on the call stack: it iterates over the dataset, or starts a process that will. The dataset has
    no other way to detect it. Costs some microseconds, once per iteration.

    Raises:
        Unusable: Both would shard, and samples would be lost silently.

    """
    if place.world * place.workers == 1:
        return
    for frame in _callers():
        names = _SHARDING.get(frame.f_globals.get("__name__", ""))
        wrapper = frame.f_locals.get("self") if names else None
        name = type(wrapper).__name__
        if names and name in names:
            _refuse(name, _parts(wrapper, names[name]), place)


def _refuse(name: str, parts: int, place: Place) -> None:
    if parts > 1 and place.world > 1:
        raise Unusable(
            f"{name} keeps one of {parts} parts of what this dataset has shared out over {place.world} ranks already, "
            f"and the others would be lost: leave {name} out, or switch the dataset's own sharding off with "
            'place="unsharded"'
        )
    if parts > 1 and name == "ShardingFilterIterDataPipe" and place.workers > 1:
        raise Unusable(
            f"sharding_filter keeps one of {parts} parts of what this dataset has shared out over {place.workers} "
            "workers already, and the others would be lost: leave sharding_filter out"
        )


def check_batching(dataset: object) -> None:
    """Refuse to pass the batches of ``dataset`` to a torch DataLoader that would batch them again.

    A wrapper between the two is accepted, because it may flatten the batches.

    Raises:
        Unusable: The loader's ``batch_size`` is not None.

    """
    for frame in _callers():
        if frame.f_globals.get("__name__") == _FETCHERS and frame.f_code.co_name == "__init__":
            if frame.f_locals.get("auto_collation") and frame.f_locals.get("dataset") is dataset:
                raise Unusable("the DataLoader would make batches of batches: pass it batch_size=None")
            return


def _callers() -> Iterator[FrameType]:
    frame: FrameType | None = sys._getframe(1)  # noqa: SLF001  no public function is as cheap
    while frame is not None:
        yield frame
        frame = frame.f_back


def _parts(wrapper: object, path: str) -> int:
    for name in path.split("."):
        wrapper = getattr(wrapper, name, 1)
    return wrapper if isinstance(wrapper, int) else 1
