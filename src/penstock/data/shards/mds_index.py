"""The index.json of MDS shards, which names them and states their columns, sizes and hashes. Pure.

Format: ``streaming/base/format/base/writer.py`` of mosaicml-streaming 0.13, version 2. Each shard has the same
description of its columns in its own header. Nothing in the file is trusted: names cannot leave its folder.
"""

from __future__ import annotations

import hashlib
from typing import Any, NamedTuple

import xxhash

from penstock.data.shards.mds_columns import MDSColumn, fixed_size, refusal
from penstock.errors import ChecksumMismatch, Damaged, Unsupported
from penstock.schema import COUNT, check_json, read_json

_VERSION = 2
_INFLATED = ("zstd", "gz")
_MOST_NAME = 1 << 12
_WHAT = "the index.json of MDS shards"
_FILE = {"basename": str, "bytes": COUNT, "hashes": ({str: str}, None)}
_SHARD = {"raw_data": _FILE, "zip_data": (_FILE, None), "compression": (str, None), "samples": COUNT}
_COLUMNS = {"column_names": [str], "column_encodings": [str], "column_sizes": [(COUNT, None)]}


class StatedFile(NamedTuple):
    """A file that index.json names: its key below the folder, its bytes, and its hashes by their algorithm."""

    name: str
    size: int
    hashes: dict[str, str]


class Stated(NamedTuple):
    """A shard as index.json describes it.

    Attributes:
        raw: The file that is not compressed, which may not be there.
        packed: The compressed file; None if shards are not compressed.
        samples: Number of samples.
        columns: Columns of the samples.

    """

    raw: StatedFile
    packed: StatedFile | None
    samples: int
    columns: tuple[MDSColumn, ...]


def stated_shards(data: bytes) -> list[Stated]:
    """Return the shards that an index.json describes, in order."""
    index = read_json(data, dict, _WHAT)
    if "chunks" in index:
        raise Unsupported('this index.json describes chunks of LitData: pass format="litdata"')
    check_json(index, {"version": int}, _WHAT)
    if index["version"] != _VERSION:
        raise Unsupported(f"index.json has the version {index['version']!r}, not {_VERSION}")
    check_json(index, {"shards": [dict]}, _WHAT)
    found = [_shard(each) for each in index["shards"]]
    names = [file.name for each in found for file in (each.raw, each.packed) if file is not None]
    if len(set(names)) < len(names):
        twice = next(name for at, name in enumerate(names) if name in names[:at])
        raise Damaged(f"index.json names {twice!r} twice")
    return found


def _shard(given: dict[str, Any]) -> Stated:
    columns = columns_of(given, _WHAT)
    check_json(given, _SHARD, _WHAT)
    compression = (given["compression"] or "").partition(":")[0]
    packed = given["zip_data"]
    if packed and compression not in _INFLATED:
        raise Unsupported(
            f"the shards are compressed with {compression or 'nothing known'}, which is not read: write them with "
            'compression="zstd", or without'
        )
    return Stated(_file(given["raw_data"]), packed and _file(packed), given["samples"], columns)


def _file(given: dict[str, Any]) -> StatedFile:
    name = given["basename"]
    if len(name) >= _MOST_NAME or "\0" in name or any(part in ("", ".", "..") for part in name.split("/")):
        raise Damaged(f"index.json names {name!r:.200}, which cannot be a file below its folder")
    return StatedFile(name, given["bytes"], given["hashes"] or {})


def columns_of(given: dict[str, Any], what: str) -> tuple[MDSColumn, ...]:
    """Return the columns that ``what`` describes: a shard's header, or its entry in index.json."""
    check_json(given, {"format": str, "version": int}, what)
    if given["format"] != "mds" or given["version"] != _VERSION:
        raise Unsupported(
            f"the shards have the format {given['format']!r} in version {given['version']!r}, not 'mds' in {_VERSION}: "
            "write them again with MDSWriter"
        )
    check_json(given, _COLUMNS, what)
    every = [given[name] for name in _COLUMNS]
    if len({*map(len, every)}) > 1:
        raise Damaged(f"cannot read {what}: {', '.join(_COLUMNS)} have different lengths")
    # A size of 0 stands for none.
    columns = tuple(MDSColumn(name, encoding, size or None) for name, encoding, size in zip(*every, strict=True))
    for name, encoding, size in columns:
        if not refusal(encoding) and size != fixed_size(encoding):
            raise Damaged(
                f"the column {name!r} ({encoding}) is stated to have {size} bytes, not {fixed_size(encoding)}"
            )
    if len({each.name for each in columns}) < len(columns) or not columns:
        raise Damaged(f"the columns have no names of their own: {[each.name for each in columns]!r:.200}")
    return columns


def check_hashes(data: memoryview, file: StatedFile) -> None:
    """Compare a file with all hashes that index.json states of it."""
    for name, stated in file.hashes.items():
        if name in xxhash.algorithms_available:
            found = getattr(xxhash, name)(data).hexdigest()
        elif name in hashlib.algorithms_available and not name.startswith("shake_"):
            found = hashlib.new(name, data, usedforsecurity=False).hexdigest()
        else:
            raise Unsupported(f"index.json states the hash {name!r} of {file.name!r}, which is unknown")
        if found != stated.lower():
            raise ChecksumMismatch(
                f"index.json states the {name} {stated} of {file.name!r}, which has {found}: the file was damaged or "
                "replaced"
            )
