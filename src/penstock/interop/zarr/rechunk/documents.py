"""Metadata documents of arrays, rewritten for other chunks, shards and codecs; pure."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple

from penstock.errors import Unusable
from penstock.interop.zarr.rechunk.shapes import filled, sharded
from penstock.options.table import meant

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from penstock.interop.zarr.rechunk.shapes import Shapes

__all__ = ["CODECS", "Form", "codec_v2", "codecs_v3", "dimensions", "form", "rewritten", "spelled"]

_SHARDING = "sharding_indexed"
# Codecs from array to bytes; the codecs after them compress.
_TO_BYTES = {"bytes", "vlen-utf8", "vlen-bytes"}
# Codecs from array to bytes that also compress.
_TO_BYTES_THEMSELVES = {"numcodecs.pcodec", "numcodecs.zfpy"}
_INDEX = [{"name": "bytes", "configuration": {"endian": "little"}}, {"name": "crc32c"}]


class Form(NamedTuple):
    """The layout of an array in objects.

    Attributes:
        chunks: Shape of a chunk, which is encoded as a unit: the inner chunk if the array has shards.
        shards: Shape of a shard; None for an array without shards.
        codecs: The codecs as readable text.

    """

    chunks: tuple[int, ...]
    shards: tuple[int, ...] | None
    codecs: str

    @property
    def object(self) -> tuple[int, ...]:
        """Shape of the part in one object: a shard, or a chunk of an array without shards."""
        return self.shards or self.chunks


def form(document: Mapping[str, Any]) -> Form:
    """Return the layout of a document's array in objects; raise ``Unusable`` for a grid that is not regular."""
    if document["zarr_format"] == 2:  # noqa: PLR2004  zarr's
        filters = [*(document.get("filters") or ()), document.get("compressor")]
        return Form(tuple(document["chunks"]), None, spelled([each for each in filters if each]))
    grid = document["chunk_grid"]
    if grid["name"] != "regular":
        raise Unusable(f"a chunk grid of the kind {grid['name']!r} cannot be copied, only a regular one")
    shape = tuple(grid["configuration"]["chunk_shape"])
    _, sharding, _ = _parts(document["codecs"])
    if sharding is None:
        return Form(shape, None, spelled(document["codecs"]))
    return Form(tuple(sharding["chunk_shape"]), shape, spelled(sharding["codecs"]))


def dimensions(document: Mapping[str, Any]) -> tuple[str | None, ...]:
    """Return the names of an array's dimensions, from ``dimension_names`` or xarray's ``_ARRAY_DIMENSIONS``."""
    names = document.get("dimension_names") or document.get("attributes", {}).get("_ARRAY_DIMENSIONS")
    if isinstance(names, list | tuple) and len(names) == len(document["shape"]):
        return tuple(each if isinstance(each, str) else None for each in names)
    return (None,) * len(document["shape"])


def rewritten(
    document: Mapping[str, Any], path: str, asked: tuple[Shapes, Shapes], codec: str | None, item_bytes: int
) -> dict[str, Any]:
    """Return a document with the requested chunks and shards (``asked``) and ``codec``; the rest is unchanged.

    Raises:
        Unusable: Shards in format 2, shards that are not a multiple of the chunks, a wrong number of sizes, or an
            unknown codec.

    """
    now, shape, dims = form(document), tuple(document["shape"]), dimensions(document)
    sizes = [each.of(path, shape, dims) for each in asked]
    chunks = now.chunks if sizes[0] is None else filled(sizes[0], shape, now.chunks)
    if document["zarr_format"] == 2:  # noqa: PLR2004  zarr's
        if sizes[1] is not None:
            raise Unusable(
                "arrays of zarr's format 2 have no shards: --zarr-format 3 (zarr_format=3) makes one that has"
            )
        return {**document, "chunks": chunks} | ({} if codec is None else {"compressor": codec_v2(codec)})
    shards = None if asked[1].none else now.shards
    if sizes[1] is not None:
        shards = sharded(sizes[1], shape, chunks, now.shards or chunks)
    elif shards and any(size % chunk for size, chunk in zip(shards, chunks, strict=True)):
        raise Unusable(
            f"the source's shards {shards} are no multiple of chunks {chunks}: give --shards, or --shards none"
        )
    grid = {"name": "regular", "configuration": {"chunk_shape": shards or chunks}}
    return {**document, "chunk_grid": grid, "codecs": _codecs(document["codecs"], chunks, shards, codec, item_bytes)}


def _codecs(
    codecs: list[dict[str, Any]], chunks: tuple[int, ...], shards: tuple[int, ...] | None, codec: str | None, size: int
) -> list[dict[str, Any]]:
    before, sharding, after = _parts(codecs)
    inner = list(codecs if sharding is None else sharding["codecs"])
    if codec is not None:
        inner = _compressed(inner, codec, size)
    if sharding is None and shards is None:
        return inner
    if shards is None:
        return [*before, *inner, *after]
    kept = sharding or {"index_codecs": _INDEX, "index_location": "end"}
    return [*before, {"name": _SHARDING, "configuration": {**kept, "chunk_shape": chunks, "codecs": inner}}, *after]


def _compressed(codecs: list[dict[str, Any]], codec: str, item_bytes: int) -> list[dict[str, Any]]:
    """Return a chain of codecs with another compressor; array filters and the byte order stay."""
    new = codecs_v3(codec, item_bytes)
    for number, each in enumerate(codecs):
        if each["name"] in _TO_BYTES:
            return [*codecs[: number + 1], *new]
        if each["name"] in _TO_BYTES_THEMSELVES:
            return [*codecs[:number], {"name": "bytes", "configuration": {"endian": "little"}}, *new]
    raise Unusable(f"--codec cannot replace {spelled(codecs)}: leave it out, and the codecs stay as they are")


def _parts(codecs: list[dict[str, Any]]) -> tuple[list[dict[str, Any]], dict[str, Any] | None, list[dict[str, Any]]]:
    """Return the codecs before sharding, the configuration of sharding, and the codecs after it."""
    for number, each in enumerate(codecs):
        if each["name"] == _SHARDING:
            return codecs[:number], each["configuration"], codecs[number + 1 :]
    return [], None, []


_BLOSC = ("lz4", "lz4hc", "zstd", "zlib", "blosclz")
_LEVELS = {"zstd": (-131072, 22, 0), "gzip": (0, 9, 5)} | {f"blosc-{each}": (0, 9, 5) for each in _BLOSC}
CODECS = ("none", *_LEVELS)


def codec_v2(text: str) -> dict[str, Any] | None:
    """Return the ``compressor`` of a ``.zarray``; raise ``Unusable`` as ``codecs_v3`` does."""
    name, level = _parsed(text)
    if name == "none":
        return None
    if name.startswith("blosc-"):
        return {"id": "blosc", "cname": name.removeprefix("blosc-"), "clevel": level, "shuffle": 1, "blocksize": 0}
    return {"id": name, "level": level}


def codecs_v3(text: str, item_bytes: int) -> list[dict[str, Any]]:
    """Return the compressing codecs of a ``zarr.json``: a list of one, or an empty list.

    Raises:
        Unusable: The codec is unknown (the message suggests a similar name), or does not have the level.

    """
    name, level = _parsed(text)
    if name == "none":
        return []
    if name.startswith("blosc-"):
        shuffle = "shuffle" if item_bytes > 1 else "noshuffle"
        configuration = {"typesize": item_bytes, "cname": name.removeprefix("blosc-"), "clevel": level}
        return [{"name": "blosc", "configuration": {**configuration, "shuffle": shuffle, "blocksize": 0}}]
    more = {"checksum": False} if name == "zstd" else {}
    return [{"name": name, "configuration": {"level": level, **more}}]


def _parsed(text: str) -> tuple[str, int]:
    name, colon, level = text.strip().lower().partition(":")
    if name not in CODECS:
        others = f"; there are {', '.join(CODECS)}"
        raise Unusable(f"no codec is called {name!r}{meant(name, CODECS, others)}")
    if name == "none":
        if colon:
            raise Unusable(f"codec {text!r}: 'none' has no level")
        return name, 0
    least, most, usual = _LEVELS[name]
    if not colon:
        return name, usual
    try:
        number = int(level)
    except ValueError:
        raise Unusable(f"codec {text!r}: a level is a whole number, as in {name}:{usual}") from None
    if not least <= number <= most:
        raise Unusable(f"codec {text!r}: {name} has levels from {least} to {most}")
    return name, number


def spelled(codecs: Sequence[object]) -> str:
    """Return a document's codecs as readable text: ``bytes+zstd:0``."""
    return "+".join(_spelled(each) for each in codecs) or "none"


def _spelled(codec: object) -> str:
    if not isinstance(codec, dict):
        return str(codec)
    settings = codec.get("configuration", codec)
    name = str(codec.get("name", codec.get("id", "?")))
    if name == "blosc":
        return f"blosc-{settings.get('cname', '?')}:{settings.get('clevel', '?')}"
    return f"{name}:{settings['level']}" if isinstance(settings, dict) and "level" in settings else name
