"""Opening of an array or group to copy, and the documents of its copy, made before anything is written."""

from __future__ import annotations

import json
import warnings
from base64 import standard_b64encode
from dataclasses import dataclass, replace
from struct import pack
from typing import TYPE_CHECKING, Any, Literal

import zarr
from zarr.core.buffer import default_buffer_prototype
from zarr.storage import MemoryStore, StorePath

from penstock.errors import Damaged, InvalidURL, NotFound, PenstockError, Unusable
from penstock.interop.zarr.rechunk.documents import rewritten
from penstock.interop.zarr.rechunk.shapes import Shapes
from penstock.interop.zarr.store import Store

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from zarr.core.buffer import Buffer

    from penstock.options import StoreOptions

    Format = Literal[2, 3]
    Node = zarr.Array[Any] | zarr.Group

__all__ = ["DOCUMENTS", "Copying", "copying", "opened"]

Document = dict[str, Any]

DOCUMENTS = ("zarr.json", ".zarray", ".zgroup", ".zattrs", ".zmetadata")
_DIMENSIONS = "_ARRAY_DIMENSIONS"  # xarray's, in format 2


def opened(source: str, store: StoreOptions | str | None) -> Node:
    """Open the array or group at a URL, read-only; consolidated metadata is used if it exists.

    Raises:
        NotFound: No array or group exists at the URL.
        Damaged: Its metadata cannot be read.

    """
    url = source
    try:
        return zarr.open(Store(source, store=store, read_only=True), mode="r")
    except PenstockError:
        raise
    except FileNotFoundError as error:
        raise NotFound("no zarr array or group is there", url=url) from error
    except (ValueError, KeyError, TypeError) as error:
        raise Damaged(f"zarr cannot read the metadata: {error}", url=url) from error


@dataclass(frozen=True, slots=True)
class Copying:
    """Arrays to copy, and the documents of their copies.

    Attributes:
        arrays: Path below the root -> the source's array.
        forms: Path -> the document of the source's array.
        documents: Path -> the document of the destination's array.
        objects: Key -> content of each metadata object of the destination, the deepest first and the root's last.

    """

    arrays: dict[str, zarr.Array[Any]]
    forms: dict[str, Document]
    documents: dict[str, Document]
    objects: dict[str, bytes]

    def dest(self, path: str, store: Store) -> zarr.Array[Any]:
        """Return an array of the destination; its document need not exist there yet."""
        return zarr.Array.from_dict(StorePath(store, path), self.documents[path])


def copying(
    root: Node, chunks: object, shards: object, codec: str | None, zarr_format: Format | None = None
) -> Copying:
    """Return the arrays to copy and their new documents; requests only to list a group that is not consolidated.

    Raises:
        Unusable: The requested chunks, shards, codec or format do not fit the arrays, or are unknown.

    """
    nodes = {"": root} if isinstance(root, zarr.Array) else {"": root, **dict(_members(root))}
    asked = Shapes(chunks, "chunks"), Shapes(shards, "shards")
    arrays = {path: node for path, node in sorted(nodes.items()) if isinstance(node, zarr.Array)}
    documents: dict[str, Document] = {}
    for path, array in arrays.items():
        document = _document(array, zarr_format)
        try:
            documents[path] = rewritten(document, path, asked, codec, array.dtype.itemsize)
            zarr.Array.from_dict(StorePath(MemoryStore(), path), documents[path])
        except PenstockError:
            raise
        except (ValueError, TypeError, KeyError) as error:
            raise Unusable(f"zarr cannot make array {path!r} of that: {error}") from error
    for each in asked:
        each.check_used()
    forms = {path: _plain(array) for path, array in arrays.items()}
    return Copying(arrays, forms, documents, _objects(nodes, documents, zarr_format))


def _members(group: zarr.Group) -> Iterator[tuple[str, Node]]:
    for path, node in group.members(max_depth=None):
        if ".." in path.split("/"):
            raise InvalidURL("a name with '..' in it is no array's", url=path)
        yield path, node


def _document(array: zarr.Array[Any], zarr_format: Format | None) -> Document:
    """Return an array's document as plain JSON, in the requested format."""
    document = _plain(array)
    if zarr_format in (None, document["zarr_format"]):
        return document
    if zarr_format != 3:  # noqa: PLR2004  zarr's
        raise Unusable("format 3 becomes no format 2: shards, names of dimensions and data types would be lost")
    attributes = dict(document["attributes"])
    dims = attributes.pop(_DIMENSIONS, None)
    if dims is not None and array.metadata.fill_value is not None:
        attributes.setdefault("_FillValue", _fill_attribute(array))
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
    return _plain(made)


def _fill_attribute(array: zarr.Array[Any]) -> object:
    """Return ``_FillValue`` as xarray writes it in format 3; in format 2 xarray uses zarr's fill value instead."""
    value = array.metadata.fill_value
    if array.dtype.kind == "f":
        return standard_b64encode(pack("<d", float(value))).decode()  # type: ignore[arg-type]  # a float array's
    return getattr(value, "item", lambda: value)()


def _plain(array: zarr.Array[Any]) -> Document:
    """Return the document as zarr writes it; in format 2 with the content of ``.zattrs`` as ``attributes``."""
    parts = _buffers(array)
    document: Document = {}
    for name, data in parts.items():
        document |= {"attributes": json.loads(data)} if name == ".zattrs" else json.loads(data)
    document.setdefault("attributes", {})
    return document


def _buffers(node: zarr.Array[Any]) -> dict[str, bytes]:
    found = node.metadata.to_buffer_dict(default_buffer_prototype())
    return {name: each.to_bytes() for name, each in found.items()}


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
            content = _buffers(zarr.Array.from_dict(StorePath(memory, path), documents[path]))
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
    return {name: each.to_bytes() for name, each in plain.to_buffer_dict(default_buffer_prototype()).items()}
