"""A checkpoint of the simulated cluster: saved and restored rank by rank, with plans and results that are made up."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import torch
from torch.distributed.checkpoint import metadata as kinds
from torch.distributed.checkpoint import planner as plans
from torch.distributed.checkpoint.storage import WriteResult

from penstock.checkpoint.dcp import StorageReader, StorageWriter
from penstock.checkpoint.dcp.reader import fetch_manifest

if TYPE_CHECKING:
    from collections.abc import Iterator

    from benchmarks.cluster import Cluster


class _Sharded:
    """Tensors of zeros, sharded over all ranks: plans of them, results, and a planner with room for a part."""

    def __init__(self, count: int, tensors: int, size: int) -> None:
        self.names = [f"layers.{number}.weight" for number in range(tensors)]
        self._properties, self._shape = kinds.TensorProperties(torch.uint8), torch.Size([count * size])
        self._chunks = [kinds.ChunkStorageMetadata(torch.Size([at * size]), torch.Size([size])) for at in range(count)]
        self._part = torch.zeros(size, dtype=torch.uint8)

    def metadata(self) -> kinds.Metadata:
        stored = kinds.TensorStorageMetadata(self._properties, self._shape, self._chunks)
        return kinds.Metadata(dict.fromkeys(self.names, stored), {name: (name,) for name in self.names})

    def places(self, rank: int) -> list[kinds.MetadataIndex]:
        return [kinds.MetadataIndex(name, self._chunks[rank].offsets) for name in self.names]

    def to_save(self, rank: int) -> plans.SavePlan:
        data, kind = plans.TensorWriteData(self._chunks[rank], self._properties, self._shape), plans.WriteItemType.SHARD
        return plans.SavePlan([plans.WriteItem(each, kind, None, data) for each in self.places(rank)])

    def to_load(self, rank: int) -> plans.LoadPlan:
        kind, none, size = plans.LoadItemType.TENSOR, torch.Size([0]), self._chunks[rank].sizes
        return plans.LoadPlan([plans.ReadItem(kind, each, none, each, none, size) for each in self.places(rank)])

    def results(self, rank: int, first: list[WriteResult]) -> list[WriteResult]:
        """Return the results of a rank, made of the first rank's."""
        places = [(each.size_in_bytes, each.storage_data) for each in first]
        moved = [(size, at, at.location.name.replace("/0.data", f"/{rank}.data")) for size, at in places]
        return [
            WriteResult(index, size, at._replace(location=at.location._replace(name=name)))
            for index, (size, at, name) in zip(self.places(rank), moved, strict=True)
        ]

    def resolve_data(self, _item: Any) -> torch.Tensor:
        return self._part

    resolve_tensor = resolve_data

    def commit_tensor(self, _item: Any, _value: torch.Tensor) -> None:
        """Do nothing: tensors are read in place."""


def checkpoint(cluster: Cluster, tensors: int = 4, size: int = 8 << 20) -> None:
    """Save and restore tensors that are sharded over all ranks, ``size`` bytes of each on every rank.

    The calls are those of torch's ``save`` and ``load``, without their exchange of plans. The first rank derives the
    results of all other ranks from its own, and commits them. Results of ranks that run are compared with these.
    """
    url, options, state = f"{cluster.world.url}step/", cluster.world.options, _Sharded(cluster.count, tensors, size)
    orders, expected, manifests = list[plans.SavePlan](), list[list[WriteResult]](), list[Any]()

    def save(rank: int, count: int) -> Iterator[str]:
        writer = StorageWriter(url, store=options)
        writer.set_up_storage_writer(rank == 0)
        mine = writer.prepare_local_plan(state.to_save(rank))
        orders[:] = orders or writer.prepare_global_plan([mine, *map(state.to_save, range(1, count))])
        results = writer.write_data(orders[rank], state).value()
        yield "save"
        expected[:] = expected or [state.results(each, results) for each in range(count)]
        if rank == 0:
            writer.finish(state.metadata(), expected)
            yield "commit"
            for each in expected:
                cluster.put(f"step/{each[0].storage_data.location.name}", tensors * size)
        elif [each.size_in_bytes for each in results] != [each.size_in_bytes for each in expected[rank]]:
            raise AssertionError(f"rank {rank} wrote {results}, and the first rank expected {expected[rank]}")

    def restore(rank: int, _count: int) -> Iterator[str]:
        reader = StorageReader(url, store=options)
        # As in ``CheckpointManager.restore``, the first rank reads the manifest for all.
        manifests[:] = manifests or [fetch_manifest(reader)]
        reader.current = manifests[0]
        reader.read_metadata()
        yield "restore: metadata"
        reader.read_data(reader.prepare_local_plan(state.to_load(rank)), state).wait()
        yield "restore: data"

    cluster.run(save)
    cluster.run(restore)
    for name in ("save", "restore: metadata", "restore: data"):
        cluster.check_roles(name)
