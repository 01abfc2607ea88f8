"""``layouts.py FOLDER SIZE LAYOUT…``: writes the state into a folder in each layout, the file first; prints what it is.

That is each tensor's shape, and the CRC-32 of it and of each rank's part of it.
"""

import json
import multiprocessing
import sys
from pathlib import Path

import torch
import torch.distributed.checkpoint as dcp
import torch.multiprocessing as processes
from meter import crc
from model import FILE, OURS, RANKS, RUN, SAFETENSORS, STEP, TORCHS, made, mesh, shard, sharded

import penstock as ps

WRITERS = {
    FILE: torch.save,
    RUN: lambda state, path: ps.CheckpointManager(path).save(STEP, state),
    SAFETENSORS: lambda state, path: ps.save_safetensors(state, path),  # noqa: PLW0108  named where it is wanted
}
RANKED = {OURS, TORCHS}


def _write_parts(rank, folder, layouts):
    """Write a rank's part in each layout; the state is read from the file."""
    whole = torch.load(folder / FILE, mmap=True)
    parts = sharded({name: shard(each, rank) for name, each in whole.items()}, mesh(rank, folder / "ranks"))
    for layout in layouts:
        dcp.save(parts, storage_writer=_writer(folder / layout))
    torch.distributed.destroy_process_group()


def _writer(path):
    if path.name == TORCHS:
        return dcp.FileSystemWriter(path)
    from penstock.checkpoint.dcp import StorageWriter

    return StorageWriter(path)


if __name__ == "__main__":
    folder, size = Path(sys.argv[1]), int(sys.argv[2])
    state = made(size)
    for layout in sys.argv[3:]:
        if layout not in RANKED:
            WRITERS[layout](state, folder / layout)
    if ranked := sorted(RANKED & {*sys.argv[3:]}):
        multiprocessing.set_forkserver_preload(["torch.distributed.checkpoint", "torch.distributed.tensor"])
        processes.start_processes(_write_parts, (folder, ranked), nprocs=RANKS, start_method="forkserver")
    shapes = {name: list(each.shape) for name, each in state.items()}
    digests = {name: [crc(each), *(crc(shard(each, rank)) for rank in range(RANKS))] for name, each in state.items()}
    print(json.dumps({"shapes": shapes, "tensors": digests}))
