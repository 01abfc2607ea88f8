"""The arrays at a URL: metadata documents fetched, consolidated or one by one, and made layouts."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import replace
from difflib import get_close_matches
from typing import TYPE_CHECKING, Any

from penstock.errors import Damaged, Denied, Forbidden, NotFound, PenstockError, Unsupported, Unusable
from penstock.formats.zarr.documents import layout_of
from penstock.formats.zarr.multiscales import image_of
from penstock.values import Span, as_folder

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from penstock.formats.zarr.layout import Layout
    from penstock.source import Source

__all__ = ["Arrays", "check_name", "collected", "open_arrays", "parsed", "with_names"]

_MOST_DEPTH = 16  # groups within groups
_MOST_NODES = 10_000  # arrays and groups that are looked up one by one
_V3 = "zarr.json"
_V2 = (".zarray", ".zattrs", ".zgroup")
_MOST_NAMED = 20  # arrays, in an error
_HOW = "name the arrays instead, each by its URL"


class Arrays(dict[str, "Layout"]):
    """Layouts by name. An array that cannot be read has none: looking its name up raises why.

    Attributes:
        refused: What is wrong with each of those arrays.
        documents: The URL of the document that each layout was made of.
        images: The array that an image of OME-Zarr is meant by, its level of the most pixels, by the image's group.
        url: Of the group, or the array.
        record_size: Of references in Parquet (``references_of_records``), as the document has it; else None.

    """

    def __init__(self, url: str = "") -> None:
        super().__init__()
        self.url = url
        self.refused: dict[str, PenstockError] = {}
        self.documents: dict[str, str] = {}
        self.images: dict[str, str] = {}
        self.record_size: object = None

    @property
    def whole(self) -> str:
        """The array that is meant where the group is an image itself; else empty."""
        return self.images.get("", "")

    def __missing__(self, name: str) -> Layout:
        """Raise why there is no such layout."""
        if name in self.refused:
            raise self.refused[name]
        raise NotFound(f"there is no array {name!r}; there are {self.named(name)}", url=self.url)

    def named(self, wanted: str) -> str:
        """Return the names of arrays for an error, those like ``wanted`` first: twenty at most."""
        folded: dict[str, list[str]] = {}  # names that differ in case alone are arrays of their own
        for name in sorted({*self, *self.refused}):
            folded.setdefault(name.casefold(), []).append(name)
        near = get_close_matches(wanted.casefold(), folded, _MOST_NAMED, 0.5)
        found = [name for each in dict.fromkeys([*near, *folded]) for name in folded[each]]
        return ", ".join([*found[:_MOST_NAMED], *(["…"] if len(found) > _MOST_NAMED else [])]) or "none"

    def put(self, name: str, key: str, document: object, attributes: Mapping[str, Any] | None, url: str) -> None:
        """Add an array's layout, or what is wrong with it. ``Damaged`` for a name that would leave the group."""
        check_name(name, url)
        try:
            self[name] = layout_of(document, attributes, key=key, name=name, url=url)
            self.documents[name] = url
        except PenstockError as error:
            self.refused[name] = error

    def name_axes(self, group: str, attributes: Mapping[str, Any]) -> None:
        """Take names for dimensions that have none from the attributes of a group, where it is an image of OME-Zarr."""
        image = image_of(attributes)
        if image is None:
            return
        names = [as_folder(group) + path for path in image.paths]
        for name in names:
            if name in self:
                self[name] = _named(self[name], image.axes)
        if names[0] in self or names[0] in self.refused:  # other pyramids have groups there
            self.images[group] = names[0]


def _named(layout: Layout, axes: tuple[str, ...]) -> Layout:
    """Give an array's dimensions these names, where it has so many and none of them has a name."""
    fits = len(layout.shape) == len(axes) and not any(layout.dims)
    return replace(layout, dims=axes) if fits else layout


def open_arrays(
    source: Source, key: str, names: Sequence[str] | None = None, *, forbidden_is_missing: bool = False
) -> Arrays:
    """Return the layouts of the array at ``key``, by the name "", or of all arrays of the group there, by their paths.

    Five requests in parallel, and no more where it is an array or the group's metadata is consolidated. Otherwise one
    listing for each group and up to four requests for each child, of one level of the hierarchy in parallel. Two more
    for an array whose dimensions have no names: where it is a level of an image of OME-Zarr, the group above has them.

    Args:
        source: The store.
        key: Of the array or group within it.
        names: Only these arrays of the group, by their paths: then nothing is listed. All by default.
        forbidden_is_missing: Take a refusal (403) for a missing document, too.

    Raises:
        NotFound: There is no array and no group, or not one of ``names``.
        Damaged: A document is not what the specification says. In a group: only once that array is looked up.
        Unsupported: An array that Penstock does not read (as above), or a store that cannot be listed.

    """
    prefix = as_folder(key.rstrip("/"))
    documents = _Documents(source, forbidden_is_missing=forbidden_is_missing)
    found = documents.fetch([prefix + file for file in (_V3, ".zmetadata", *_V2)])
    v3, consolidated, array, _, _ = found
    arrays = Arrays(source.url(prefix))
    if all(each is None for each in (v3, consolidated, array, found[4])):
        message = "no Zarr array or group: there is no zarr.json, .zarray, .zgroup or .zmetadata"
        raise NotFound(message, url=source.url(prefix))
    node = _node(documents, prefix, found[:1] + found[2:])
    if node.is_array:
        node.put(arrays, "", prefix)
        if "" in arrays:
            arrays[""] = with_names(source, arrays[""])
        return _only(arrays, [""] if names is None else names)
    if v3 is None and consolidated is not None:
        below = "" if "record_size" in consolidated else prefix  # references have keys within their document
        collected(consolidated, below, arrays, source.url(prefix + ".zmetadata"))
    elif v3 is not None and (inline := _inline(v3)) is not None:
        collected(inline, prefix, arrays, source.url(prefix + _V3))
    elif names is not None:
        _add(documents, prefix, arrays, names)
    else:
        try:
            _walk(documents, prefix, arrays)
        except Unsupported:
            image = image_of(node.attributes)
            if image is None:
                raise
            _add(documents, prefix, arrays, image.paths)  # it lists its levels itself
    arrays.name_axes("", node.attributes)
    return _only(arrays, names)


def collected(found: object, prefix: str, arrays: Arrays, url: str) -> Arrays:
    """Add the arrays of consolidated metadata: of ``.zmetadata``, or of a group's ``zarr.json``."""
    nodes = found.get("metadata") if isinstance(found, Mapping) else None
    if not isinstance(found, Mapping) or not isinstance(nodes, Mapping):
        raise Damaged("the consolidated Zarr metadata is damaged: its field 'metadata' should be an object", url=url)
    arrays.record_size = found.get("record_size")
    described: dict[str, Mapping[str, Any]] = {}
    for path, document in nodes.items():
        name, _, file = path.rpartition("/")
        kind = _object(document).get("node_type")
        if file == ".zarray":
            attributes = nodes.get(f"{name}/.zattrs" if name else ".zattrs")
            arrays.put(name, prefix + as_folder(name), document, _object(attributes), url)
        elif file == ".zattrs":
            described[name] = _object(document)
        elif kind == "array":
            arrays.put(path, prefix + as_folder(path), document, None, url)
        elif kind == "group":
            described[path] = _object(_object(document).get("attributes"))
    for name, attributes in described.items():
        arrays.name_axes(name, attributes)
    return arrays


def parsed(data: bytes, url: str) -> dict[str, Any]:
    """Return a document that is a JSON object; ``Damaged`` otherwise."""
    try:
        document = json.loads(data)
    except (ValueError, RecursionError) as error:
        raise Damaged(f"the Zarr metadata is damaged: it is no JSON ({error})", url=url) from None
    if not isinstance(document, dict):
        raise Damaged("the Zarr metadata is damaged: the document should be a JSON object", url=url)
    return document


def check_name(name: str, url: str) -> None:
    """Raise ``Damaged`` for a path of a node that would lead out of its group, or is no name."""
    parts = name.split("/") if name else []
    if any(not part.strip(".") or not part.isprintable() or "\\" in part for part in parts):
        raise Damaged(f"the Zarr metadata is damaged: {name[:80]!r} is no path of an array", url=url)


class _Documents:
    """Fetches documents, many at once."""

    def __init__(self, source: Source, *, forbidden_is_missing: bool) -> None:
        self.source = source
        self._missing = (NotFound, Forbidden) if forbidden_is_missing else NotFound
        self._nodes = 0

    def fetch(self, keys: Sequence[str]) -> list[dict[str, Any] | None]:
        """Return the documents that are there, in order; None stands for each other one."""
        found: list[dict[str, Any] | None] = []
        with self.source.lookahead(iter([Span(key) for key in keys])) as reads:
            for key in keys:
                read = reads.advance()
                if isinstance(read.error, self._missing) and getattr(read.error, "missing", "") != "bucket":
                    found.append(None)
                else:
                    found.append(parsed(read.take(), self.source.url(key)))
        return found

    def nodes(self, prefixes: Sequence[str]) -> list[_Node]:
        """Return what lies at each of several prefixes; ``Unsupported`` where there are too many."""
        self._nodes += len(prefixes)
        if self._nodes > _MOST_NODES:
            message = f"more than {_MOST_NODES} arrays and groups without consolidated metadata: {_HOW}"
            raise Unsupported(message, url=self.source.url(prefixes[0]))
        files = (_V3, *_V2)
        found = self.fetch([prefix + file for prefix in prefixes for file in files])
        return [_node(self, prefix, found[4 * n : 4 * n + 4]) for n, prefix in enumerate(prefixes)]

    def children(self, prefix: str) -> list[str]:
        """Return the prefixes one level below a group's: one request for each 1,000."""
        try:
            return [each for page in self.source.pages(prefix, delimiter="/") for each in page.prefixes]
        except (Unsupported, Denied, NotFound) as error:  # a web server may have no page of the folder
            message = f"the group's metadata is not consolidated, and it cannot be listed ({error.message}): {_HOW}"
            raise Unsupported(message, url=self.source.url(prefix)) from error


class _Node:
    """An array, a group, or nothing, as its documents say."""

    def __init__(self, document: dict[str, Any] | None, attributes: Mapping[str, Any], url: str, kind: str) -> None:
        self.document, self.attributes, self.url, self.kind = document, attributes, url, kind

    @property
    def is_array(self) -> bool:
        return self.kind == "array"

    def put(self, arrays: Arrays, name: str, key: str) -> None:
        arrays.put(name, key, self.document, self.attributes, self.url)


def _node(documents: _Documents, prefix: str, found: Sequence[dict[str, Any] | None]) -> _Node:
    v3, array, attributes, group = found
    url = documents.source.url(prefix)
    if v3 is not None:  # zarr takes it where there are both
        kind = v3.get("node_type")
        if kind not in {"array", "group"}:
            raise Damaged("the Zarr metadata is damaged: field 'node_type' is neither array nor group", url=url + _V3)
        return _Node(v3, _object(v3.get("attributes")), url + _V3, str(kind))
    kind = "array" if array is not None else "group" if group is not None else ""
    return _Node(array, attributes or {}, f"{url}.zarray", kind)


def with_names(source: Source, layout: Layout) -> Layout:
    """Name an array's dimensions as the group above does, where that is an image and the array its level.

    Two requests where the dimensions have no names; else none.
    """
    if any(layout.dims):
        return layout
    above, _, level = layout.key.rstrip("/").rpartition("/")
    folder = as_folder(above)
    try:
        v3, attributes = _Documents(source, forbidden_is_missing=True).fetch([folder + _V3, folder + _V2[1]])
    except (Damaged, Denied, Unusable):  # none of the array's business
        return layout
    image = image_of(_object(v3.get("attributes")) if v3 is not None else _object(attributes))
    return _named(layout, image.axes) if image is not None and level in image.paths else layout


def _add(documents: _Documents, prefix: str, arrays: Arrays, names: Sequence[str]) -> None:
    """Add the arrays of these names below a group."""
    for name, child in zip(names, documents.nodes([prefix + as_folder(name) for name in names]), strict=True):
        if child.is_array:
            child.put(arrays, name, prefix + as_folder(name))


def _walk(documents: _Documents, prefix: str, arrays: Arrays) -> None:
    """Add the arrays below a group, level by level."""
    groups = [prefix]
    described: dict[str, Mapping[str, Any]] = {}
    for _ in range(_MOST_DEPTH):
        below = [child for group in groups for child in documents.children(group)]
        groups = []
        for child, node in zip(below, documents.nodes(below) if below else [], strict=True):
            if node.is_array:
                node.put(arrays, child[len(prefix) :].rstrip("/"), child)
            elif node.kind == "group":
                groups.append(child)
                described[child[len(prefix) :].rstrip("/")] = node.attributes
        if not groups:
            for name, attributes in described.items():
                arrays.name_axes(name, attributes)
            return
    raise Unsupported(f"groups within more than {_MOST_DEPTH} groups", url=documents.source.url(groups[0]))


def _inline(document: Mapping[str, Any]) -> Mapping[str, Any] | None:
    """Return the consolidated metadata in a group's ``zarr.json``; None where there is none."""
    found = document.get("consolidated_metadata")
    return found if isinstance(found, Mapping) and found.get("kind", "inline") == "inline" else None


def _object(found: object) -> Mapping[str, Any]:
    return found if isinstance(found, Mapping) else {}


def _only(arrays: Arrays, names: Iterable[str] | None) -> Arrays:
    """Return the arrays of these names; raises why there is none of one of them."""
    if names is None:
        return arrays
    chosen = Arrays(arrays.url)
    chosen.record_size = arrays.record_size
    chosen.update((name, arrays[name]) for name in names)
    chosen.documents.update(arrays.documents)
    return chosen
