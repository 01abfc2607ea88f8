"""An array's metadata document with other chunks, shards and codecs; pure."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple

from penstock.errors import Unusable
from penstock.interop.zarr.rechunk.codecs import codec_v2, codecs_v3, spelled
from penstock.interop.zarr.rechunk.shapes import filled, sharded

if TYPE_CHECKING:
    from collections.abc import Mapping

    from penstock.interop.zarr.rechunk.shapes import Shapes

__all__ = ["Form", "dimensions", "form", "rewritten"]

_SHARDING = "sharding_indexed"
_TO_BYTES = {"bytes", "vlen-utf8", "vlen-bytes"}  # array -> bytes: what stands after them compresses
_TO_BYTES_THEMSELVES = {"numcodecs.pcodec", "numcodecs.zfpy"}  # and these compress, too
_INDEX = [{"name": "bytes", "configuration": {"endian": "little"}}, {"name": "crc32c"}]


class Form(NamedTuple):
    """How an array lies in objects.

    Attributes:
        chunks: What is encoded at once: the inner chunk where the array has shards.
        shards: Shape of a shard; None for none.
        codecs: For people.

    """

    chunks: tuple[int, ...]
    shards: tuple[int, ...] | None
    codecs: str

    @property
    def object(self) -> tuple[int, ...]:
        """What lies in one object."""
        return self.shards or self.chunks


def form(document: Mapping[str, Any]) -> Form:
    """Return how the array of a document lies in objects. Raises ``Unusable`` for a grid that is not regular."""
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
    """Return the names of an array's dimensions, of ``dimension_names`` or of xarray's ``_ARRAY_DIMENSIONS``."""
    names = document.get("dimension_names") or document.get("attributes", {}).get("_ARRAY_DIMENSIONS")
    if isinstance(names, list | tuple) and len(names) == len(document["shape"]):
        return tuple(each if isinstance(each, str) else None for each in names)
    return (None,) * len(document["shape"])


def rewritten(
    document: Mapping[str, Any], path: str, asked: tuple[Shapes, Shapes], codec: str | None, item_bytes: int
) -> dict[str, Any]:
    """Return a document with the chunks and shards that were ``asked`` for and with ``codec``; the rest stays.

    Raises:
        Unusable: Shards in format 2, shards that are no multiple of the chunks, sizes of another number of dimensions,
            an unknown codec.

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
    """Return a chain with another compressor; filters of arrays and the order of bytes stay."""
    new = codecs_v3(codec, item_bytes)
    for number, each in enumerate(codecs):
        if each["name"] in _TO_BYTES:
            return [*codecs[: number + 1], *new]
        if each["name"] in _TO_BYTES_THEMSELVES:
            return [*codecs[:number], {"name": "bytes", "configuration": {"endian": "little"}}, *new]
    raise Unusable(f"--codec cannot replace {spelled(codecs)}: leave it out, and the codecs stay as they are")


def _parts(codecs: list[dict[str, Any]]) -> tuple[list[dict[str, Any]], dict[str, Any] | None, list[dict[str, Any]]]:
    """Return the codecs before sharding, its configuration, and those after it."""
    for number, each in enumerate(codecs):
        if each["name"] == _SHARDING:
            return codecs[:number], each["configuration"], codecs[number + 1 :]
    return [], None, []
