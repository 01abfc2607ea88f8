"""Metadata documents of arrays (``.zarray``, ``zarr.json``) to layouts. Documents are untrusted: fields are checked."""

from __future__ import annotations

from collections.abc import Mapping
from math import prod
from typing import Any, TypeGuard

from penstock.errors import Damaged
from penstock.formats.zarr.dtypes import fill_value, v2_dtype, v3_dtype
from penstock.formats.zarr.fields import Fields
from penstock.formats.zarr.index import form_of
from penstock.formats.zarr.layout import Layout

__all__ = ["layout_of"]

_MOST_CHUNK_BYTES = 64 << 30  # decoded: a chunk lies in memory as a whole
_MOST_INNER = 1 << 24  # inner chunks of a shard: an index of 256 MiB
_MOST_ITEMS = (1 << 63) - 1
_V3_FIELDS = {
    *("zarr_format", "node_type", "shape", "data_type", "chunk_grid", "chunk_key_encoding", "fill_value", "codecs"),
    *("attributes", "dimension_names", "storage_transformers"),
}


def layout_of(
    document: object, attributes: Mapping[str, Any] | None = None, *, key: str = "", name: str = "", url: str = ""
) -> Layout:
    """Return the layout of an array, of its ``.zarray`` or ``zarr.json`` as JSON was parsed.

    Args:
        document: The document.
        attributes: What ``.zattrs`` says, for Zarr v2; v3 has them in the document.
        key: Where the array's objects lie: a prefix, empty or ending in ``/``.
        name: The array's path below what was opened.
        url: Of the document, for errors.

    Raises:
        Damaged: The document is not what the specification says, or describes what cannot be.
        Unsupported: It uses an extension that Penstock has not; the text names the field.

    """
    if not isinstance(document, Mapping):
        raise Damaged("the Zarr metadata is damaged: the document should be a JSON object", url=url)
    fields = Fields(document, url)
    version = document.get("zarr_format")
    if isinstance(version, bool) or not isinstance(version, int) or version not in {2, 3}:
        raise fields.damaged("zarr_format", "2 or 3")
    return _v2(fields, attributes or {}, key, name) if version == 2 else _v3(fields, key, name)  # noqa: PLR2004


def _v2(fields: Fields, attributes: Mapping[str, Any], key: str, name: str) -> Layout:
    shape, chunks, dtype = fields.sizes("shape", 0), fields.sizes("chunks", 1), v2_dtype(fields)
    _check_sizes(fields, "chunks", shape, chunks, dtype.itemsize)
    fields.chosen("order", ("C", "F"), "C")
    named = attributes.get("_ARRAY_DIMENSIONS")
    return Layout(
        key=key,
        name=name,
        shape=shape,
        dtype=dtype.newbyteorder("="),
        chunks=chunks,
        shards=None,
        fill=fill_value(fields, dtype, 2),
        dims=tuple(named) if _are_names(named, len(shape)) else (None,) * len(shape),
        attributes=attributes,
        document=fields.values,
        lead="",
        separator=fields.chosen("dimension_separator", (".", "/"), "."),
    )


def _v3(fields: Fields, key: str, name: str) -> Layout:
    _check_v3(fields)
    shape, dtype = fields.sizes("shape", 0), v3_dtype(fields)
    grid, configuration = fields.extension("chunk_grid")
    if grid != "regular":
        raise fields.unsupported("chunk_grid", "chunks of one size (regular) are")
    chunks = configuration.sizes("chunk_shape", 1)
    inner = _inner(fields, configuration, chunks)
    _check_sizes(configuration, "chunk_shape", shape, inner or chunks, dtype.itemsize)
    dims = fields.values.get("dimension_names") or (None,) * len(shape)
    if not _are_names(dims, len(shape)):
        raise fields.damaged("dimension_names", "a name, or null, for each dimension")
    encoding, how = fields.extension("chunk_key_encoding")
    if encoding not in {"default", "v2"}:
        raise fields.unsupported("chunk_key_encoding", "default and v2 are")
    return Layout(
        key=key,
        name=name,
        shape=shape,
        dtype=dtype,
        chunks=inner or chunks,
        shards=chunks if inner else None,
        fill=fill_value(fields, dtype, 3),
        dims=tuple(dims),
        attributes=fields.mapping("attributes").values,
        document=fields.values,
        lead="c" if encoding == "default" else "",
        separator=how.chosen("separator", (".", "/"), "/" if encoding == "default" else "."),
    )


def _check_v3(fields: Fields) -> None:
    """Refuse what changes the meaning of chunks and is not known here."""
    if fields.values.get("node_type") != "array":
        raise fields.damaged("node_type", "'array'")
    if fields.values.get("storage_transformers"):
        raise fields.unsupported("storage_transformers", "none is")
    if not fields.extensions("codecs"):
        raise fields.damaged("codecs", "a list of codecs, one of them to bytes")
    for each, value in fields.values.items():
        if each not in _V3_FIELDS and not (isinstance(value, Mapping) and value.get("must_understand") is False):
            raise fields.unsupported(each, "no such field is known, and it must be understood")


def _inner(fields: Fields, grid: Fields, shards: tuple[int, ...]) -> tuple[int, ...] | None:
    """Return the shape of inner chunks that can be read one by one; None where chunks are decoded as a whole.

    A shard that another codec changes, before or after, has no inner chunks at known places; nor has one whose index is
    encoded in another way than the specification proposes.
    """
    codecs = fields.extensions("codecs")
    name, configuration = codecs[0]
    if len(codecs) != 1 or name != "sharding_indexed":
        return None
    inner = configuration.sizes("chunk_shape", 1)
    if len(inner) != len(shards) or any(shard % chunk for shard, chunk in zip(shards, inner, strict=False)):
        raise configuration.damaged("chunk_shape", f"divisors of the shard's shape {list(shards)}")
    if prod(shards) // prod(inner) > _MOST_INNER:
        raise grid.unsupported("chunk_shape", f"a shard has at most {_MOST_INNER} inner chunks")
    return inner if form_of(configuration) else None


def _check_sizes(fields: Fields, name: str, shape: tuple[int, ...], chunks: tuple[int, ...], item_bytes: int) -> None:
    if len(chunks) != len(shape):
        raise fields.damaged(name, f"{len(shape)} numbers, one for each dimension")
    if prod(shape) * item_bytes > _MOST_ITEMS:
        raise fields.unsupported(name, f"the array has more than {_MOST_ITEMS} bytes")
    if prod(chunks) * item_bytes > _MOST_CHUNK_BYTES:
        raise fields.unsupported(
            name, f"a decoded chunk has at most {_MOST_CHUNK_BYTES >> 30} GiB, since it lies in memory"
        )


def _are_names(found: object, count: int) -> TypeGuard[list[str | None] | tuple[str | None, ...]]:
    return (
        isinstance(found, list | tuple)
        and len(found) == count
        and all(each is None or isinstance(each, str) for each in found)
    )
