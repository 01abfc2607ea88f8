"""The state that is saved and loaded: seeded tensors like a transformer's, and how a rank holds its quarter of them."""

import math
from datetime import timedelta

import torch

RANKS = 4
FILE, RUN, STEP = "000000.bin", "run", 1  # the names that the layouts have in a folder
SAFETENSORS, OURS, TORCHS = "model.safetensors", "dcp-ours", "dcp-torch"
_LONGEST_S = 120
_WIDTH = 2048
_LAYERS = 5
_SMALL = (1, 2, 4) * 8  # bias, scale, … of a layer, in halves of the width: 4, 8, 16 KiB


def shapes(size):
    """Return name and shape of each tensor (float32): 16 and 64 MiB ones of ``size`` bytes together, and small ones."""
    layers = max(_LAYERS, (size // (4 * _WIDTH**2) - 4) // 12)
    width = min(_WIDTH, math.isqrt(size // 4 // (12 * layers + 4)) // 8 * 8)
    found = {"embedding": (4 * width, width)}
    for layer in range(layers):
        found |= {f"layers.{layer}.{name}": (width, width) for name in "qkvo"}
        found |= {f"layers.{layer}.up": (4 * width, width), f"layers.{layer}.down": (width, 4 * width)}
        found |= {f"layers.{layer}.small.{number}": (width // 2 * of,) for number, of in enumerate(_SMALL)}
    return found


def made(size):
    """Make the state: every bit pattern that there is, so it is compared as bytes."""
    generator, state = torch.Generator().manual_seed(0), {}
    for name, shape in shapes(size).items():
        raw = torch.empty(math.prod(shape) // 2, dtype=torch.int64).random_(-(2**63), None, generator=generator)
        state[name] = raw.view(torch.float32).view(shape)
    return state


def mesh(rank, rendezvous):
    """Join the ranks that meet in a file; returns their mesh."""
    from torch.distributed.device_mesh import init_device_mesh

    place = {"rank": rank, "world_size": RANKS, "timeout": timedelta(seconds=_LONGEST_S)}
    torch.distributed.init_process_group("gloo", init_method=f"file://{rendezvous}", **place)
    return init_device_mesh("cpu", (RANKS,))


def sharded(tensors, mesh):
    """Return DTensors of which this rank holds ``tensors``: each is cut along its first axis, as FSDP2 does."""
    from torch.distributed.tensor import DTensor, Shard

    return {name: DTensor.from_local(each, mesh, [Shard(0)], run_check=False) for name, each in tensors.items()}


def shard(tensor, rank):
    """Return a rank's part of a tensor."""
    return tensor.chunk(RANKS)[rank]
