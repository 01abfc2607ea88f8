"""Formats of shards by name, by the ends of keys, and from the JSON values of a catalog file."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import fields
from functools import cache
from importlib import import_module
from typing import TYPE_CHECKING, Any

from penstock.data.shards.format import ShardFormat
from penstock.errors import Unsupported, Unusable

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable

# Module and class of each format: a module is imported when its format is first used.
FORMATS = {
    "tar": "tar:TarFormat",
    "zip": "zip:ZipFormat",
    "jsonl": "jsonl:JsonlFormat",
    "tfrecord": "tfrecord:TFRecordFormat",
    "parquet": "parquet:ParquetFormat",
    "jsonl.gz": "compressed:CompressedJsonlFormat",
    "tar.gz": "compressed:CompressedTarFormat",
    "tfrecord.gz": "compressed:CompressedTFRecordFormat",
    "mds": "mds:MdsFormat",
    "mds.zst": "mds:CompressedMdsFormat",
    "litdata": "litdata:LitDataFormat",
    "litdata.zst": "litdata:CompressedLitDataFormat",
}
# Formats of which another is a compressed form, which the same name asks for.
_COMPRESSED = {"mds": "mds.zst"}

# What TensorFlow, Beam and others append to the name of each shard of a set: x.tfrecord-00000-of-00010.
_NUMBER = re.compile(r"-\d+-of-\d+(?=$|\.(gz|zst)$)")

# Ends of names that are no shards: of any format, and of the format that is named; and what to do about them.
_REFUSED = {
    "tar": (
        (".tar.bz2", ".tbz2", ".tar.xz", ".txz"),
        (
            "a tar file is read plain, or compressed with gzip or zstd: decompress it once, or write the samples into "
            "a tar or zip file with ps.pack"
        ),
    ),
    "mds": (
        (".mds.br", ".mds.bz2", ".mds.snappy"),
        'this compression is not supported: write the shards with compression="zstd", or without',
    ),
}
# Ends of the names of text tables, which are not shards, and what to do with one.
TABLES = (".csv", ".tsv")
TABLE_ADVICE = (
    "a table that lists objects is a manifest, ps.MapDataset.from_manifest(url, base=…); one whose rows are samples "
    "has to be written as Parquet or JSON lines"
)
# Ends of the names of files of frames and of sound, which other classes read.
MEDIA = (".mp4", ".mov", ".m4v", ".wav", ".m4a")
MEDIA_ADVICE = (
    "ps.VideoDataset.from_shards makes clips of videos, ps.index(…, format='mp4') an index of them, and "
    "ps.AudioDataset.from_shards windows of sound"
)
# Ends of names that are shards only where the format is named, since other files have them, too.
_NAMED = {"jsonl.gz": (".json.gz", ".json.zst")}
# Formats of plain files whose compressed ones are a format of their own.
_PLAIN = ("tar", "jsonl", "tfrecord")


def _class(name: object) -> type[ShardFormat]:
    if not isinstance(name, str) or name not in FORMATS:
        advice = f": {TABLE_ADVICE}" if f".{name}" in TABLES else f": {MEDIA_ADVICE}" if f".{name}" in MEDIA else ""
        raise Unusable(f"format must be one of {', '.join(map(repr, FORMATS))}, got {name!r}{advice}")
    module, _, kind = FORMATS[name].partition(":")
    found: type[ShardFormat] = getattr(import_module(f"penstock.data.shards.{module}"), kind)
    return found


@cache
def suffixes() -> dict[str, str]:
    """Return the ends of the names of shards, lower-case, each with the name of its format."""
    return {suffix: name for name in FORMATS for suffix in _class(name).suffixes}


def is_shard(key: str, form: ShardFormat | None) -> bool:
    """Return whether a key ends like a shard of ``form``, or of any format; ``-00000-of-00010`` may follow it."""
    lower = _strip_shard_number(key)
    for name, (ends, advice) in _REFUSED.items():
        if (form is None or form.name in (name, f"{name}.gz")) and lower.endswith(ends):
            raise Unsupported(f"cannot read the samples of {key!r}: {advice}")
    if form is not None and form.name in _PLAIN and lower.endswith(_class(f"{form.name}.gz").suffixes):
        raise Unsupported(
            f'cannot read the samples of {key!r}: format="{form.name}" is for plain files: pass '
            f'format="{form.name}.gz" for compressed ones'
        )
    if form is None:
        return lower.endswith(tuple(suffixes()))
    packed = _COMPRESSED.get(form.name)
    others = _NAMED.get(form.name, ()) if packed is None else _class(packed).suffixes
    return lower.endswith((*form.suffixes, *others))


def _strip_shard_number(key: str) -> str:
    """Return a key in lower case, without the number of a shard after its ending."""
    return _NUMBER.sub("", key.lower())


def format_by(given: str | ShardFormat | None, keys: Iterable[str], arguments: Mapping[str, Any]) -> ShardFormat:
    """Return the format that was given, or the one by the ends of ``keys``, with the arguments that are not None."""
    passed = {name: value for name, value in arguments.items() if value is not None}
    if isinstance(given, ShardFormat):
        if passed:
            name = next(iter(passed))
            raise Unusable(f"pass {name} to the format itself: {type(given).__name__}({name}=…)")
        return given
    kind = _class(_infer_format(keys) if given is None else given)
    takes = {each.name for each in fields(kind)}
    if strange := [name for name in passed if name not in takes]:
        raise Unusable(f"{kind.name} shards do not support {strange[0]}=")
    return kind(**passed)


def settle_format(form: ShardFormat, keys: Collection[str]) -> ShardFormat:
    """Return the format of the shards ``keys``: ``form``, or its compressed format if they are compressed."""
    if form.name not in _COMPRESSED:
        return form
    kind = _class(_COMPRESSED[form.name])
    packed = [key for key in keys if _strip_shard_number(key).endswith(kind.suffixes)]
    if not packed:
        return form
    if len(packed) < len(keys):
        raise Unusable(
            f"{packed[0]!r} is compressed, but other shards are not: make a dataset of each kind, by the URLs of its "
            "shards, and join them with ps.concat"
        )
    return kind(**{each.name: getattr(form, each.name) for each in fields(form)})


def _infer_format(keys: Iterable[str]) -> str:
    """Return the only format for the endings of ``keys``; for compressed shards see ``settle_format``."""
    plain = {packed: name for name, packed in _COMPRESSED.items()}
    known = {suffix: plain.get(name, name) for suffix, name in suffixes().items()}
    found = dict[str, str]()
    for key in keys:
        lower = _strip_shard_number(key)
        name = next((known[suffix] for suffix in known if lower.endswith(suffix)), "")
        found.setdefault(name, key)
        if len(found) > 1:
            first, second = found.values()
            raise Unusable(f"{first!r} and {second!r} are shards of different formats: pass those of one, or format=")
    if not found or "" in found:
        named = f": {found['']!r}" if found else ""
        if found and found[""].endswith(TABLES):
            raise Unusable(f"{found['']!r} is not a shard: {TABLE_ADVICE}")
        raise Unusable(
            f"cannot tell the format of shards by their names{named}; pass format={' or '.join(map(repr, FORMATS))}"
        )
    return next(iter(found))


def format_of(described: object) -> ShardFormat:
    """Return the format that ``ShardFormat.described`` describes; nothing in it is trusted."""
    if not isinstance(described, Mapping):
        raise ValueError(f"not a format of shards: {described!r}")  # noqa: TRY004  as for other parts of a file
    arguments = {name: value for name, value in described.items() if name != "name"}
    kind = _class(described.get("name"))
    if arguments.keys() != {each.name for each in fields(kind)}:
        raise ValueError(f"not the arguments of {kind.name} shards: {arguments!r}")
    return kind(**arguments)
