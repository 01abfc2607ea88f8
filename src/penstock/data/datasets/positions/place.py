"""The rank for which this process reads data, and the number of such ranks."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

import torch.distributed

from penstock.errors import Unusable
from penstock.values import Place

if TYPE_CHECKING:
    from typing import Literal

    from torch.distributed.device_mesh import DeviceMesh

    PlaceLike = Place | DeviceMesh | Literal["unsharded"] | None

__all__ = ["PlaceLike", "check", "resolve"]

# Names of mesh dimensions in PyTorch, Lightning, torchtitan, Megatron and DeepSpeed.
_DATA = re.compile(r"(dp|ddp|data|fsdp|hsdp)|.*(replicate|shard)")
_OTHER = {"tp", "tensor", "pp", "pipe", "pipeline", "cp", "context", "sp", "sequence", "model"}


def check(place: PlaceLike) -> None:
    """Refuse an argument ``place`` that ``resolve`` does not take.

    Raises:
        Unusable: ``place`` is not a ``Place``, a ``DeviceMesh``, ``"unsharded"`` or None.

    """
    if place is None or isinstance(place, Place) or (isinstance(place, str) and place == "unsharded"):
        return
    from torch.distributed.device_mesh import DeviceMesh

    if not isinstance(place, DeviceMesh):
        raise Unusable(f'place is a ps.Place(rank, world), a DeviceMesh or "unsharded", not {place!r}')


def resolve(place: PlaceLike) -> Place:
    """Return the rank whose data this process reads, and the number of ranks.

    A ``Place`` is returned unchanged. ``"unsharded"`` gives rank 0 of 1: each process reads everything, for a wrapper
    that shards the samples itself. A mesh gives the position among its data-parallel dimensions, numbered row by row.
    These are the only dimension of a mesh, else the dimensions whose names begin with ``dp``, ``ddp``, ``data``,
    ``fsdp`` or ``hsdp``, or contain ``replicate`` or ``shard``. So ranks that differ only in another dimension (tensor,
    pipeline, context) read the same data. None uses the process group if it is initialised; else ``RANK`` and
    ``WORLD_SIZE``; else a single rank.

    Raises:
        Unusable: The names of a mesh do not determine its data-parallel dimensions, this rank is not part of the mesh,
            or only one of ``RANK`` and ``WORLD_SIZE`` is set.

    """
    if isinstance(place, Place):
        return place
    if isinstance(place, str):
        return Place()
    if place is not None:
        return _in_mesh(place)
    if torch.distributed.is_available() and torch.distributed.is_initialized():
        return Place(rank=torch.distributed.get_rank(), world=torch.distributed.get_world_size())
    return Place.from_environment()


def _in_mesh(mesh: DeviceMesh) -> Place:
    coordinate = mesh.get_coordinate()
    if coordinate is None:
        raise Unusable(f"this rank is not part of the mesh of shape {mesh.shape}: it has no place to read data for")
    rank, world = 0, 1
    for dimension in _data_dimensions(mesh.mesh_dim_names or (), mesh.ndim):
        size = mesh.size(dimension)
        rank, world = rank * size + coordinate[dimension], world * size
    return Place(rank=rank, world=world)


def _data_dimensions(names: tuple[str, ...], count: int) -> list[int]:
    """Return the dimensions along which data differ.

    A single dimension counts, because the caller has selected it, unless its name is that of another parallelism.

    Raises:
        Unusable: No name is that of a data-parallel dimension, or one name is of both kinds.

    """
    kinds = [_kind(name) for name in names]
    if count == 1 and kinds != ["other"]:
        return [0]
    if "data" not in kinds or "both" in kinds:
        raise Unusable(
            f"cannot tell the data-parallel dimensions of a mesh with the names {names}: "
            'pass those alone, as in place=mesh["dp"], or place=ps.Place(rank=…, world=…)'
        )
    return [number for number, kind in enumerate(kinds) if kind == "data"]


def _kind(name: str) -> str:
    data = _DATA.match(name.lower()) is not None
    other = not _OTHER.isdisjoint(re.split(r"[^a-z]+", name.lower()))
    return "both" if data and other else "data" if data else "other" if other else ""
