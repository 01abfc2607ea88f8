"""Metadata documents of a copy with other chunks, shards and codecs, made before anything is written.

``open_node`` opens the array or group at the source, ``Shapes`` resolves the user's sizes, ``plan_copy`` rewrites the
documents. All but ``open_node`` is pure.
"""

from __future__ import annotations

import json
import warnings
from base64 import standard_b64encode
from collections.abc import Mapping
from dataclasses import dataclass, replace
from math import ceil
from struct import pack
from typing import TYPE_CHECKING, Any, Literal, NamedTuple, SupportsFloat

import numpy as np
import zarr
from zarr.core.buffer import default_buffer_prototype
from zarr.storage import MemoryStore, StorePath

from penstock.errors import Damaged, InvalidURL, NotFound, PenstockError, Unusable
from penstock.interop.zarr.store import Store
from penstock.options.typed import suggest_word

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence

    from zarr.core.buffer import Buffer

    from penstock.options import StoreOptions

    Format = Literal[2, 3]
    Node = zarr.Array[Any] | zarr.Group

_WHOLE = -1  # the whole dimension


class Shapes:
    """The option ``chunks`` or ``shards`` of a copy, resolved for each array in turn.

    A sequence applies to every array of that many dimensions. In a mapping, the name of a dimension gives the size
    along it in every array that has it, except coordinates (arrays of one dimension with the array's own name); the
    path of an array gives all of its sizes. -1 is the whole dimension.
    """

    def __init__(self, given: object, what: str) -> None:
        """Take ``given``, the value of the option ``what`` (chunks or shards); raise ``Unusable`` for other types."""
        self.what = what
        self.none = given == "none"
        self._by_rank: tuple[int, ...] | None = None
        self._by_name: dict[str, int | tuple[int, ...]] = {}
        self._used: set[object] = set()
        self._known: set[str] = set()
        if isinstance(given, Mapping):
            self._by_name = {str(name): self._sizes(each) for name, each in given.items()}
        elif given is not None and not self.none:
            sizes = self._sizes(given)
            self._by_rank = (sizes,) if isinstance(sizes, int) else sizes

    def of(self, path: str, shape: Sequence[int], dims: Sequence[str | None]) -> tuple[int, ...] | None:
        """Return the sizes requested for an array, -1 for a whole dimension, 0 for no change; None without any."""
        name = path.rpartition("/")[2]
        self._known |= {path, *filter(None, dims)}
        if path in self._by_name and not (isinstance(self._by_name[path], int) and path in dims):
            self._used.add(path)
            sizes = self._by_name[path]
            return self._checked((sizes,) if isinstance(sizes, int) else sizes, path, shape)
        if self._by_rank is not None and (len(self._by_rank) == len(shape) or not path):
            self._used.add(None)
            return self._checked(self._by_rank, path, shape)
        along = {dim: size for dim in dims if dim and isinstance(size := self._by_name.get(dim), int)}
        if not along or (len(dims) == 1 and dims[0] == name):
            return None
        self._used |= along.keys()
        return tuple(along.get(dim or "", 0) for dim in dims)  # 0: no change

    def check_used(self) -> None:
        """Raise ``Unusable`` for a name or shape that fits no array; the message suggests a similar name."""
        for name in self._by_name.keys() - self._used:
            known = sorted(self._known - {""})
            near = suggest_word(name, known, f"; names are {', '.join(known)}" if known else "")
            raise Unusable(f"{self.what}: unknown array or dimension {name!r}{near}")
        if self._by_rank is not None and not self._used:
            raise Unusable(f"{self.what} {self._by_rank} are {len(self._by_rank)}, but no array has so many dimensions")

    def _checked(self, sizes: tuple[int, ...], path: str, shape: Sequence[int]) -> tuple[int, ...]:
        if len(sizes) != len(shape):
            where = f"array {path!r}" if path else "the array"
            raise Unusable(
                f"{self.what} {sizes} are {len(sizes)}, but {where} of shape {tuple(shape)} has {len(shape)} dimensions"
            )
        return sizes

    def _sizes(self, given: object) -> int | tuple[int, ...]:
        single = isinstance(given, int | np.integer)
        sizes = (given,) if single else given
        if not isinstance(sizes, list | tuple) or not all(
            isinstance(each, int | np.integer) and not isinstance(each, bool) and (each > 0 or each == _WHOLE)
            for each in sizes
        ):
            raise Unusable(f"{self.what} must be whole numbers above 0, or -1 for the whole dimension, got {given!r}")
        found = tuple(map(int, sizes))
        return found[0] if single else found


def fill_sizes(asked: Sequence[int], shape: Sequence[int], usual: Sequence[int]) -> tuple[int, ...]:
    """Return the sizes ``asked``, with -1 replaced by the whole dimension and 0 by the size in ``usual``."""
    whole = (max(size, 1) if each == _WHOLE else each for each, size in zip(asked, shape, strict=True))
    return tuple(each or other for each, other in zip(whole, usual, strict=True))


def shape_shard(
    asked: Sequence[int], shape: Sequence[int], chunks: Sequence[int], usual: Sequence[int]
) -> tuple[int, ...]:
    """Return the shape of a shard; whole dimensions are rounded up to whole chunks."""
    rounded = tuple(max(ceil(size / chunk), 1) * chunk for size, chunk in zip(shape, chunks, strict=True))
    sizes = fill_sizes(asked, rounded, usual)
    if any(size % chunk for size, chunk in zip(sizes, chunks, strict=True)):
        near = tuple(max(round(size / chunk), 1) * chunk for size, chunk in zip(sizes, chunks, strict=True))
        raise Unusable(f"shards {sizes} are not a multiple of chunks {tuple(chunks)}: {near} would be")
    return sizes


def parse_sizes(words: Iterable[str], flag: str) -> object:
    """Parse the sizes of a command line: ``1,180,360``, ``time=1,lat=all``, ``tas:1,180,360``, ``none``."""
    given = [word.strip() for word in words]
    if not given:
        return None
    if given == ["none"]:
        return "none"
    named: dict[str, int | tuple[int, ...]] = {}
    for word in given:
        path, colon, rest = word.rpartition(":")
        if colon:
            named[path] = tuple(_size(each, flag, word) for each in rest.split(","))
        elif "=" in word:
            for each in word.split(","):
                dim, equals, size = each.partition("=")
                named[dim.strip()] = _size(size if equals else "", flag, word)
        elif len(given) == 1:
            return tuple(_size(each, flag, word) for each in word.split(","))
        else:
            raise Unusable(f"{flag} {word}: name the dimensions or the array where there are several of it")
    return named


def _size(text: str, flag: str, word: str) -> int:
    text = text.strip()
    if text in ("all", "-1"):
        return _WHOLE
    if not (text.isascii() and text.isdigit() and int(text)):
        raise Unusable(
            f"{flag} {word}: write 1,180,360, or time=1,lat=all by dimension, or tas:1,180,360 for one array"
        )
    return int(text)


_SHARDING = "sharding_indexed"
# Codecs from array to bytes; the codecs after them compress.
_TO_BYTES = {"bytes", "vlen-utf8", "vlen-bytes"}
# Codecs from array to bytes that also compress.
_TO_BYTES_THEMSELVES = {"numcodecs.pcodec", "numcodecs.zfpy"}
_INDEX = [{"name": "bytes", "configuration": {"endian": "little"}}, {"name": "crc32c"}]


class ArrayForm(NamedTuple):
    """The shapes of an array's chunks (with shards, the inner ones) and shards, and its codecs as readable text."""

    chunks: tuple[int, ...]
    shards: tuple[int, ...] | None
    codecs: str

    @property
    def object(self) -> tuple[int, ...]:
        """Shape of the part in one object: a shard, or a chunk of an array without shards."""
        return self.shards or self.chunks


def form(document: Mapping[str, Any]) -> ArrayForm:
    """Return the layout of a document's array in objects; raise ``Unusable`` for a grid that is not regular."""
    if document["zarr_format"] == 2:  # noqa: PLR2004  zarr's
        filters = [*(document.get("filters") or ()), document.get("compressor")]
        return ArrayForm(tuple(document["chunks"]), None, spell_codecs([each for each in filters if each]))
    grid = document["chunk_grid"]
    if grid["name"] != "regular":
        raise Unusable(f"a chunk grid of the kind {grid['name']!r} cannot be copied, only a regular one")
    shape = tuple(grid["configuration"]["chunk_shape"])
    _, sharding, _ = _split_codecs(document["codecs"])
    if sharding is None:
        return ArrayForm(shape, None, spell_codecs(document["codecs"]))
    return ArrayForm(tuple(sharding["chunk_shape"]), shape, spell_codecs(sharding["codecs"]))


def dimensions(document: Mapping[str, Any]) -> tuple[str | None, ...]:
    names = document.get("dimension_names") or document.get("attributes", {}).get("_ARRAY_DIMENSIONS")
    if isinstance(names, list | tuple) and len(names) == len(document["shape"]):
        return tuple(each if isinstance(each, str) else None for each in names)
    return (None,) * len(document["shape"])


def rewritten(
    document: Mapping[str, Any], path: str, asked: tuple[Shapes, Shapes], codec: str | None, item_bytes: int
) -> dict[str, Any]:
    """Return a document with the requested chunks and shards (``asked``) and ``codec``; the rest is unchanged."""
    now, shape, dims = form(document), tuple(document["shape"]), dimensions(document)
    sizes = [each.of(path, shape, dims) for each in asked]
    chunks = now.chunks if sizes[0] is None else fill_sizes(sizes[0], shape, now.chunks)
    if document["zarr_format"] == 2:  # noqa: PLR2004  zarr's
        if sizes[1] is not None:
            raise Unusable(
                "arrays of zarr's format 2 have no shards: --zarr-format 3 (zarr_format=3) makes one that has"
            )
        return {**document, "chunks": chunks} | ({} if codec is None else {"compressor": codec_v2(codec)})
    shards = None if asked[1].none else now.shards
    if sizes[1] is not None:
        shards = shape_shard(sizes[1], shape, chunks, now.shards or chunks)
    elif shards and any(size % chunk for size, chunk in zip(shards, chunks, strict=True)):
        raise Unusable(
            f"the source's shards {shards} are not a multiple of chunks {chunks}: give --shards, or --shards none"
        )
    grid = {"name": "regular", "configuration": {"chunk_shape": shards or chunks}}
    return {**document, "chunk_grid": grid, "codecs": _codecs(document["codecs"], chunks, shards, codec, item_bytes)}


def _codecs(
    codecs: list[dict[str, Any]], chunks: tuple[int, ...], shards: tuple[int, ...] | None, codec: str | None, size: int
) -> list[dict[str, Any]]:
    before, sharding, after = _split_codecs(codecs)
    inner = list(codecs if sharding is None else sharding["codecs"])
    if codec is not None:
        inner = _replace_compressor(inner, codec, size)
    if sharding is None and shards is None:
        return inner
    if shards is None:
        return [*before, *inner, *after]
    kept = sharding or {"index_codecs": _INDEX, "index_location": "end"}
    return [*before, {"name": _SHARDING, "configuration": {**kept, "chunk_shape": chunks, "codecs": inner}}, *after]


def _replace_compressor(codecs: list[dict[str, Any]], codec: str, item_bytes: int) -> list[dict[str, Any]]:
    """Return a chain of codecs with another compressor; array filters and the byte order stay."""
    new = codecs_v3(codec, item_bytes)
    for number, each in enumerate(codecs):
        if each["name"] in _TO_BYTES:
            return [*codecs[: number + 1], *new]
        if each["name"] in _TO_BYTES_THEMSELVES:
            return [*codecs[:number], {"name": "bytes", "configuration": {"endian": "little"}}, *new]
    raise Unusable(f"--codec cannot replace {spell_codecs(codecs)}: leave it out, and the codecs stay as they are")


def _split_codecs(
    codecs: list[dict[str, Any]],
) -> tuple[list[dict[str, Any]], dict[str, Any] | None, list[dict[str, Any]]]:
    for number, each in enumerate(codecs):
        if each["name"] == _SHARDING:
            return codecs[:number], each["configuration"], codecs[number + 1 :]
    return [], None, []


_BLOSC = ("lz4", "lz4hc", "zstd", "zlib", "blosclz")
_LEVELS = {"zstd": (-131072, 22, 0), "gzip": (0, 9, 5)} | {f"blosc-{each}": (0, 9, 5) for each in _BLOSC}
CODECS = ("none", *_LEVELS)


def codec_v2(text: str) -> dict[str, Any] | None:
    name, level = _parse_codec(text)
    if name == "none":
        return None
    if name.startswith("blosc-"):
        return {"id": "blosc", "cname": name.removeprefix("blosc-"), "clevel": level, "shuffle": 1, "blocksize": 0}
    return {"id": name, "level": level}


def codecs_v3(text: str, item_bytes: int) -> list[dict[str, Any]]:
    """Return the compressing codecs of a ``zarr.json``: a list of one, or an empty list."""
    name, level = _parse_codec(text)
    if name == "none":
        return []
    if name.startswith("blosc-"):
        shuffle = "shuffle" if item_bytes > 1 else "noshuffle"
        configuration = {"typesize": item_bytes, "cname": name.removeprefix("blosc-"), "clevel": level}
        return [{"name": "blosc", "configuration": {**configuration, "shuffle": shuffle, "blocksize": 0}}]
    more = {"checksum": False} if name == "zstd" else {}
    return [{"name": name, "configuration": {"level": level, **more}}]


def _parse_codec(text: str) -> tuple[str, int]:
    name, colon, level = text.strip().lower().partition(":")
    if name not in CODECS:
        others = f"; codecs are {', '.join(CODECS)}"
        raise Unusable(f"unknown codec {name!r}{suggest_word(name, CODECS, others)}")
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


def spell_codecs(codecs: Sequence[object]) -> str:
    """Return a document's codecs as readable text: ``bytes+zstd:0``."""
    return "+".join(_spell_codec(each) for each in codecs) or "none"


def _spell_codec(codec: object) -> str:
    if not isinstance(codec, dict):
        return str(codec)
    settings = codec.get("configuration", codec)
    name = str(codec.get("name", codec.get("id", "?")))
    if name == "blosc":
        return f"blosc-{settings.get('cname', '?')}:{settings.get('clevel', '?')}"
    return f"{name}:{settings['level']}" if isinstance(settings, dict) and "level" in settings else name


Document = dict[str, Any]

DOCUMENTS = ("zarr.json", ".zarray", ".zgroup", ".zattrs", ".zmetadata")
_DIMENSIONS = "_ARRAY_DIMENSIONS"  # xarray's, in format 2


def open_node(source: str, store: StoreOptions | str | None) -> Node:
    """Open the array or group at a URL, read-only; consolidated metadata is used if it exists."""
    url = source
    try:
        return zarr.open(Store(source, store=store, read_only=True), mode="r")
    except PenstockError:
        raise
    except FileNotFoundError as error:
        raise NotFound("no zarr array or group found", url=url) from error
    except (ValueError, KeyError, TypeError) as error:
        raise Damaged(f"zarr cannot read the metadata: {error}", url=url) from error


@dataclass(frozen=True, slots=True)
class Copying:
    """Arrays to copy and the documents of both sides, by path below the root.

    ``objects`` has the metadata objects of the destination by key, the deepest first and the root's last.
    """

    arrays: dict[str, zarr.Array[Any]]
    forms: dict[str, Document]
    documents: dict[str, Document]
    objects: dict[str, bytes]

    def dest(self, path: str, store: Store) -> zarr.Array[Any]:
        """Return an array of the destination; its document need not exist there yet."""
        return zarr.Array.from_dict(StorePath(store, path), self.documents[path])


def plan_copy(
    root: Node, chunks: object, shards: object, codec: str | None, zarr_format: Format | None = None
) -> Copying:
    """Return the arrays to copy and their new documents; requests only to list a group that is not consolidated."""
    nodes = {"": root} if isinstance(root, zarr.Array) else {"": root, **dict(_members(root))}
    asked = Shapes(chunks, "chunks"), Shapes(shards, "shards")
    arrays = {path: node for path, node in sorted(nodes.items()) if isinstance(node, zarr.Array)}
    documents: dict[str, Document] = {}
    for path, array in arrays.items():
        try:
            document = _document(array, zarr_format)
            documents[path] = rewritten(document, path, asked, codec, array.dtype.itemsize)
            zarr.Array.from_dict(StorePath(MemoryStore(), path), documents[path])
        except PenstockError:
            raise
        except (ValueError, TypeError, KeyError) as error:
            raise Unusable(f"zarr cannot create array {path!r}: {error}") from error
    for each in asked:
        each.check_used()
    forms = {path: _read_document(array) for path, array in arrays.items()}
    return Copying(arrays, forms, documents, _objects(nodes, documents, zarr_format))


def _members(group: zarr.Group) -> Iterator[tuple[str, Node]]:
    for path, node in group.members(max_depth=None):
        if ".." in path.split("/"):
            raise InvalidURL("the path of an array must not contain '..'", url=path)
        yield path, node


def _document(array: zarr.Array[Any], zarr_format: Format | None) -> Document:
    """Return an array's document as plain JSON, in the requested format."""
    document = _read_document(array)
    if zarr_format in (None, document["zarr_format"]):
        return document
    if zarr_format != 3:  # noqa: PLR2004  zarr's
        raise Unusable("cannot convert format 3 to format 2: shards, names of dimensions and data types would be lost")
    attributes = dict(document["attributes"])
    dims = attributes.pop(_DIMENSIONS, None)
    if dims is not None and (missing := _fill_attribute(array)) is not None:
        attributes.setdefault("_FillValue", missing)
    made = zarr.create_array(
        MemoryStore(),
        shape=array.shape,
        chunks=array.chunks,
        dtype=array.metadata.dtype,
        fill_value=array.metadata.fill_value,
        attributes=attributes,
        dimension_names=dims,
        zarr_format=3,
    )
    return _read_document(made)


def _fill_attribute(array: zarr.Array[Any]) -> object:
    """Return ``_FillValue`` as xarray writes it in format 3; in format 2 xarray uses zarr's fill value instead.

    None without a fill value, and for types of which xarray reads no attribute: texts, bytes, times and records.
    """
    value: Any = array.metadata.fill_value
    if value is None or array.dtype.kind not in "biufc":
        return None
    if array.dtype.kind == "c":
        return [_float_attribute(value.real), _float_attribute(value.imag)]
    return _float_attribute(value) if array.dtype.kind == "f" else np.asarray(value).item()


def _float_attribute(value: SupportsFloat) -> str:
    return standard_b64encode(pack("<d", float(value))).decode()


def _read_document(array: zarr.Array[Any]) -> Document:
    """Return the document as zarr writes it; in format 2 with the content of ``.zattrs`` as ``attributes``."""
    document: Document = {}
    for name, data in _buffers(array.metadata).items():
        document |= {"attributes": json.loads(data)} if name == ".zattrs" else json.loads(data)
    document.setdefault("attributes", {})
    return document


def _buffers(metadata: Any) -> dict[str, bytes]:
    return {name: each.to_bytes() for name, each in metadata.to_buffer_dict(default_buffer_prototype()).items()}


def _objects(
    nodes: Mapping[str, Node], documents: Mapping[str, Document], zarr_format: Format | None
) -> dict[str, bytes]:
    """Return all metadata objects; zarr makes them in memory, and consolidates them if the source is consolidated."""
    held: dict[str, Buffer] = {}
    memory = MemoryStore(held)
    for path, node in nodes.items():
        if isinstance(node, zarr.Group):
            content = _group(node, zarr_format)
        else:
            content = _buffers(zarr.Array.from_dict(StorePath(memory, path), documents[path]).metadata)
        prefix = f"{path}/" if path else ""
        held |= {prefix + name: default_buffer_prototype().buffer.from_bytes(data) for name, data in content.items()}
    root = nodes[""]
    if isinstance(root, zarr.Group) and root.metadata.consolidated_metadata is not None:
        with warnings.catch_warnings():
            # zarr warns that format 3 does not specify consolidated metadata yet; the source has it nevertheless.
            warnings.simplefilter("ignore")
            zarr.consolidate_metadata(memory, zarr_format=zarr_format or root.metadata.zarr_format)
    deep_first = sorted(held, key=lambda key: (-key.count("/"), key not in DOCUMENTS, key))
    return {key: held[key].to_bytes() for key in deep_first}


def _group(group: zarr.Group, zarr_format: Format | None) -> dict[str, bytes]:
    plain = replace(group.metadata, consolidated_metadata=None, zarr_format=zarr_format or group.metadata.zarr_format)
    return _buffers(plain)
