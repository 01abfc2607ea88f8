"""References in Parquet as fsspec's ``LazyReferenceMapper`` writes them, which needs kerchunk to write: by pyarrow."""

from __future__ import annotations

import base64
import io
import json
import math

import pyarrow as pa
from pyarrow import parquet


def record(rows, size, *, categories=False):
    """Return the file of some references by row, as JSON has them; all other rows of ``size`` are empty."""
    paths, raws = [None] * size, [None] * size
    spans = [[0] * size, [0] * size]
    for row, entry in rows.items():
        if isinstance(entry, str):
            raws[row] = base64.b64decode(entry[7:]) if entry.startswith("base64:") else entry.encode()
            continue
        paths[row] = entry[0]
        if len(entry) > 1:
            spans[0][row], spans[1][row] = entry[1:]
    path = pa.array(paths, pa.string())
    columns = {
        "path": path.dictionary_encode() if categories else path,
        **dict(zip(("offset", "size"), spans, strict=True)),
        "raw": pa.nulls(size) if not any(raws) else pa.array(raws, pa.binary()),
    }
    sink = io.BytesIO()
    parquet.write_table(pa.table(columns), sink, compression="zstd")
    return sink.getvalue()


def put_references(source, folder, entries, size, *, categories=False):
    """Write references of a JSON document, of arrays of Zarr v2, as files of ``size`` each below a folder."""
    documents = {key: json.loads(entry) for key, entry in entries.items() if key.rpartition("/")[2].startswith(".z")}
    source.put(f"{folder}/.zmetadata", json.dumps({"metadata": documents, "record_size": size}).encode())
    files: dict[str, dict[int, object]] = {}
    for key, entry in entries.items():
        if key in documents:
            continue
        name, _, chunk = key.rpartition("/")
        array, number = documents[f"{name}/.zarray"], 0
        grid = [math.ceil(length / count) for length, count in zip(array["shape"], array["chunks"], strict=True)]
        for at, count in zip(chunk.split("."), grid or [1], strict=True):
            number = number * count + int(at)
        files.setdefault(f"{name}/refs.{number // size}.parq", {})[number % size] = entry
    for file, rows in files.items():
        source.put(f"{folder}/{file}", record(rows, size, categories=categories))
