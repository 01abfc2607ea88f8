"""``written.py FOLDER DIGESTS``: reads the only state in a folder back, in whatever layout it is, and compares it."""

import json
import sys
from pathlib import Path

import torch
import torch.distributed.checkpoint as dcp
from meter import crc
from model import FILE, OURS, RUN, SAFETENSORS, TORCHS

import penstock as ps


def _distributed(reader, shapes):
    state = {name: torch.empty(shape) for name, shape in shapes.items()}
    dcp.load(state, storage_reader=reader, no_dist=True)
    return state


def _ours(path, shapes):
    from penstock.checkpoint.dcp import StorageReader

    return _distributed(StorageReader(path), shapes)


READERS = {
    FILE: lambda path, _: torch.load(path, mmap=True),
    RUN: lambda path, _: ps.CheckpointManager(path).restore(),
    SAFETENSORS: lambda path, _: ps.load_safetensors(path),
    OURS: _ours,
    TORCHS: lambda path, shapes: _distributed(dcp.FileSystemReader(path), shapes),
}

(path,) = Path(sys.argv[1]).iterdir()
digests = json.loads(Path(sys.argv[2]).read_text())
state = READERS[path.name](path, digests["shapes"])
wanted = {name: first for name, (first, *_) in digests["tensors"].items()}
if {name: crc(tensor) for name, tensor in state.items()} != wanted:
    raise SystemExit(f"{path.name} is not what was saved")
print(json.dumps(len(state)))
