"""Made-up distributed checkpoints: an index and its manifest, without the data."""

from __future__ import annotations

import json

import numpy as np

from penstock.checkpoint.columns import INDEX, LAYOUT, ROW, describe_columns, iterate_columns
from penstock.checkpoint.commit import CommittedCheckpoint
from penstock.checkpoint.integrity import MANIFEST, BlockChecksums, Checksummer, Manifest

SAVE = "ab" * 16


def publish_columns(source, folder, columns, objects, **lengths):
    """Write an index and a manifest that describes it, with other ``lengths`` of columns, and open the checkpoint."""
    name, checksummer = f"{SAVE}/{INDEX}", Checksummer()
    pieces = list(iterate_columns(columns))
    for piece in pieces:
        checksummer.update(piece)
    source.put(folder + name, b"".join(pieces))
    index = describe_columns(name, columns)
    index["columns"].update(lengths)
    sizes = {name: checksums.size for name, checksums in sorted(objects.items())}
    manifest = Manifest(SAVE, "dcp", {name: checksummer.checksums()}, {"index": index}, sizes)
    source.put(folder + MANIFEST, manifest.encode())
    return CommittedCheckpoint(source, folder)


def mesh_checkpoint(ranks, tensors, chunk_bytes=8):
    """Return the columns and the objects of ``tensors`` matrices of bytes, sharded by rows over ``ranks``."""
    objects = {f"{SAVE}/{rank}.data": BlockChecksums(tensors * chunk_bytes, bytes(8)) for rank in range(ranks)}
    names = [f"layers.{number}.weight" for number in range(tensors)]
    paths = {name: name.split(".") for name in names}
    rows = np.empty((ranks, tensors), ROW)
    order = {name: number for number, name in enumerate(sorted(objects))}
    rows["object"] = np.array([order[f"{SAVE}/{rank}.data"] for rank in range(ranks)])[:, None]
    rows["start"] = np.arange(tensors) * chunk_bytes
    text = json.dumps({"dtypes": ["uint8"], "names": names, "paths": paths}, separators=(",", ":"))
    columns = {
        "text": np.frombuffer(text.encode(), np.uint8),
        "kinds": np.zeros(tensors),
        "dimensions": np.full(tensors, 2),
        "boxed": np.zeros(tensors),
        "sizes": np.tile([ranks, chunk_bytes], tensors),
        "steps": np.tile([1, chunk_bytes], tensors),
        "boxes": np.empty(0),
        "rows": rows.reshape(-1),
        "digests": np.zeros(ranks, LAYOUT["digests"]),
    }
    return {name: each.astype(LAYOUT[name]) for name, each in columns.items()}, objects
