"""Arrays at a URL: fetches metadata documents, consolidated or one by one, and makes layouts of them."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import replace
from difflib import get_close_matches
from typing import TYPE_CHECKING, Any, NamedTuple

from penstock.data.zarr.format.layout import layout_of
from penstock.errors import Damaged, Denied, Forbidden, NotFound, PenstockError, Unsupported, Unusable
from penstock.values import Span, as_folder

if TYPE_CHECKING:
    from collections.abc import Sequence

    from penstock.data.zarr.format.layout import Layout
    from penstock.source import Source

_MOST_DEPTH = 16  # groups within groups
_MOST_NODES = 10_000  # arrays and groups that are looked up individually
_V3 = "zarr.json"
_V2 = (".zarray", ".zattrs", ".zgroup")
_CONSOLIDATED = ".zmetadata"
_ALL = (_V3, _CONSOLIDATED, *_V2)
_MOST_PARSED_BYTES = 512 << 20  # of a parsed document in Python's memory
_ITEM_BYTES, _LIST_BYTES, _OBJECT_BYTES = 40, 90, 240  # rough memory of each, besides its text
_MOST_NAMED = 20  # arrays, in an error
# Attribute "encoding-type" of groups that hold one matrix in three arrays.
_SPARSE = ("csr_matrix", "csc_matrix")
_HOW = "name the arrays instead, each by its URL"


class Arrays(dict[str, "Layout"]):
    """Layouts by name. An array that cannot be read has no layout: a lookup of its name raises the reason.

    Attributes:
        refused: Errors of these arrays, by name.
        documents: URL of the document of each layout.
        images: For each OME-Zarr image, by its group: the array of its level with the most pixels, which represents it.
        url: URL of the group or array.
        coordinates: Names of arrays that attributes of groups call coordinates.
        record_size: The field of that name in the metadata of references in Parquet (``references_of_records``); else
            None.
        files: Names of the documents that sufficed; empty if there were many. For ``open_arrays`` of a similar store.
    """

    def __init__(self, url: str = "") -> None:
        super().__init__()
        self.url = url
        self.refused: dict[str, PenstockError] = {}
        self.documents: dict[str, str] = {}
        self.images: dict[str, str] = {}
        self.coordinates: set[str] = set()
        self.record_size: object = None
        self.files: tuple[str, ...] = ()

    def __missing__(self, name: str) -> Layout:
        """Raise the reason why the layout is missing."""
        if name in self.refused:
            raise self.refused[name]
        raise NotFound(f"no array {name!r}; arrays are {self.named(name)}", url=self.url)

    def named(self, wanted: str) -> str:
        """Return at most twenty names of arrays for an error, those similar to ``wanted`` first."""
        # Names that differ only in case are different arrays.
        folded: dict[str, list[str]] = {}
        for name in sorted({*self, *self.refused}):
            folded.setdefault(name.casefold(), []).append(name)
        near = get_close_matches(wanted.casefold(), folded, _MOST_NAMED, 0.5)
        found = [name for each in dict.fromkeys([*near, *folded]) for name in folded[each]]
        return ", ".join([*found[:_MOST_NAMED], *(["…"] if len(found) > _MOST_NAMED else [])]) or "none"

    def put(self, name: str, key: str, document: object, attributes: Mapping[str, Any] | None, url: str) -> None:
        """Add the layout of an array, or its error; raise ``Damaged`` for a name that would lead out of the group."""
        check_name(name, url)
        try:
            self[name] = layout_of(document, attributes, key=key, name=name, url=url)
            self.documents[name] = url
        except PenstockError as error:
            self.refused[name] = error

    def describe(self, group: str, attributes: Mapping[str, Any]) -> None:
        """Apply the attributes of a group to its arrays.

        They name the dimensions of an OME-Zarr image, and the coordinates that xarray kept. Arrays of a sparse matrix
        of AnnData are refused: their elements do not belong together by number.
        """
        folder = as_folder(group)
        words = attributes.get("coordinates")
        self.coordinates |= {folder + word for word in words.split()} if isinstance(words, str) else set()
        if (kind := attributes.get("encoding-type")) in _SPARSE:
            error = Unsupported(
                f"a sparse matrix of AnnData ({kind}) has no samples of one shape: store it dense, in chunks of cells "
                "(adata.X = adata.X.toarray())",
                url=self.url.rstrip("/") + "/" * bool(group) + group,
            )
            for name in [each for each in self if each.startswith(folder)]:
                del self[name]
                self.refused[name] = error
        image = image_of(attributes)
        if image is None:
            return
        names = [folder + path for path in image.paths]
        for name in names:
            if name in self:
                self[name] = _set_dims(self[name], image.axes)
        if names[0] in self or names[0] in self.refused:  # other pyramids have groups there
            self.images[group] = names[0]


def _set_dims(layout: Layout, axes: tuple[str, ...]) -> Layout:
    """Return the layout with these dimension names, if their number fits and no dimension has a name."""
    fits = len(layout.shape) == len(axes) and not any(layout.dims)
    return replace(layout, dims=axes) if fits else layout


def open_arrays(source: Source, key: str, *, forbidden_is_missing: bool = False, files: tuple[str, ...] = ()) -> Arrays:
    """Return the layouts of the array at ``key``, with the name "", or of all arrays of the group there, by path.

    Five requests in parallel suffice for an array, or for a group with consolidated metadata. Otherwise one listing for
    each group and up to four requests for each child; those of one level of the hierarchy run in parallel. Two more
    requests for an array with unnamed dimensions: if it is a level of an OME-Zarr image, the group above names them.

    With ``files`` (``Arrays.files`` of a similar store), these documents are requested first, and the others only if
    the first of these does not exist. The error of an array in a group is raised when the array is looked up.
    """
    prefix = as_folder(key.rstrip("/"))
    documents = _Documents(source, forbidden_is_missing=forbidden_is_missing)
    found = documents.of(prefix, files) if files else {}
    if not found or found[files[0]] is None:
        found = documents.of(prefix, _ALL)
    v3, consolidated, array, group = (found.get(each) for each in (_V3, _CONSOLIDATED, ".zarray", ".zgroup"))
    arrays = Arrays(source.url(prefix))
    if all(each is None for each in (v3, consolidated, array, group)):
        message = "no Zarr array or group: found no zarr.json, .zarray, .zgroup or .zmetadata"
        raise NotFound(message, url=source.url(prefix))
    node = _node(documents, prefix, [found.get(each) for each in (_V3, *_V2)])
    arrays.files = (_V3,) if v3 is not None else _V2[:2] if node.is_array else (_CONSOLIDATED,) * bool(consolidated)
    if node.is_array:
        node.put(arrays, "", prefix)
        # Raises the reason if Penstock cannot read the array.
        arrays[""] = with_names(source, arrays[""])
        return arrays
    if v3 is None and consolidated is not None:
        # Keys of references are relative to their document.
        below = "" if "record_size" in consolidated else prefix
        add_consolidated(consolidated, below, arrays, source.url(prefix + _CONSOLIDATED))
    elif v3 is not None and (inline := _inline(v3)) is not None:
        add_consolidated(inline, prefix, arrays, source.url(prefix + _V3))
    else:
        try:
            _walk(documents, prefix, arrays)
        except Unsupported:
            image = image_of(node.attributes)
            if image is None:
                raise
            _add(documents, prefix, arrays, image.paths)  # the image lists its levels
    arrays.describe("", node.attributes)
    return arrays


def add_consolidated(found: object, prefix: str, arrays: Arrays, url: str) -> Arrays:
    """Add the arrays of consolidated metadata, from ``.zmetadata`` or a group's ``zarr.json``."""
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
        arrays.describe(name, attributes)
    return arrays


def _check_size(data: bytes, url: str) -> None:
    """Raise for a document that needs too much memory when parsed: ``[[],[],…`` takes twenty times its text."""
    needed = (
        len(data) + data.count(b",") * _ITEM_BYTES + data.count(b"[") * _LIST_BYTES + data.count(b"{") * _OBJECT_BYTES
    )
    if needed > _MOST_PARSED_BYTES:
        message = f"a metadata document of {len(data):,} bytes would take about {needed:,} bytes of memory"
        raise Unsupported(
            f"{message}, of at most {_MOST_PARSED_BYTES:,}: {_HOW}, or take data out of attributes", url=url
        )


def parse_document(data: bytes, url: str) -> dict[str, Any]:
    """Parse a document that must be a JSON object; raise ``Damaged`` otherwise."""
    try:
        document = json.loads(data)
    except (ValueError, RecursionError) as error:
        raise Damaged(f"the Zarr metadata is damaged: not JSON ({error})", url=url) from None
    if not isinstance(document, dict):
        raise Damaged("the Zarr metadata is damaged: the document should be a JSON object", url=url)
    return document


def check_name(name: str, url: str) -> None:
    """Raise ``Damaged`` for a path of a node that would lead out of its group, or contains an invalid name."""
    parts = name.split("/") if name else []
    if any(not part.strip(".") or not part.isprintable() or "\\" in part for part in parts):
        raise Damaged(f"the Zarr metadata is damaged: {name[:80]!r} is not the path of an array", url=url)


class _Documents:
    """Fetcher of metadata documents, many at once."""

    def __init__(self, source: Source, *, forbidden_is_missing: bool) -> None:
        self.source = source
        self._missing = (NotFound, Forbidden) if forbidden_is_missing else NotFound
        self._nodes = 0

    def fetch(self, keys: Sequence[str]) -> list[dict[str, Any] | None]:
        """Return the documents of these keys, in order; None for each missing document."""
        found: list[dict[str, Any] | None] = []
        with self.source.lookahead(iter([Span(key) for key in keys])) as reads:
            for key in keys:
                read = reads.advance()
                # A missing bucket, or the target of a link, is not a missing document.
                stated = getattr(read.error, "missing", "")
                if isinstance(read.error, self._missing) and stated not in ("bucket", "target"):
                    found.append(None)
                else:
                    data, url = read.take(), self.source.url(key)
                    _check_size(data, url)
                    found.append(parse_document(data, url))
        return found

    def of(self, prefix: str, files: Sequence[str]) -> dict[str, dict[str, Any] | None]:
        """Return the documents of one node, by their names."""
        return dict(zip(files, self.fetch([prefix + file for file in files]), strict=True))

    def nodes(self, prefixes: Sequence[str]) -> list[_Node]:
        """Return the node at each prefix; raise ``Unsupported`` if there are too many."""
        self._nodes += len(prefixes)
        if self._nodes > _MOST_NODES:
            message = f"more than {_MOST_NODES} arrays and groups without consolidated metadata: {_HOW}"
            raise Unsupported(message, url=self.source.url(prefixes[0]))
        files = (_V3, *_V2)
        found = self.fetch([prefix + file for prefix in prefixes for file in files])
        return [_node(self, prefix, found[4 * n : 4 * n + 4]) for n, prefix in enumerate(prefixes)]

    def children(self, prefix: str) -> list[str]:
        """Return the prefixes one level below a group's prefix: one request for each 1,000."""
        try:
            return [each for page in self.source.pages(prefix, delimiter="/") for each in page.prefixes]
        # NotFound: a web server may not have a page for the folder.
        except (Unsupported, Forbidden, NotFound) as error:
            message = f"the group's metadata is not consolidated, and listing it failed ({error.message}): {_HOW}"
            raise Unsupported(message, url=self.source.url(prefix)) from error


class _Node(NamedTuple):
    """Node of the hierarchy, by its documents: an array, a group, or nothing."""

    document: dict[str, Any] | None
    attributes: Mapping[str, Any]
    url: str
    kind: str

    @property
    def is_array(self) -> bool:
        return self.kind == "array"

    def put(self, arrays: Arrays, name: str, key: str) -> None:
        arrays.put(name, key, self.document, self.attributes, self.url)


def _node(documents: _Documents, prefix: str, found: Sequence[dict[str, Any] | None]) -> _Node:
    v3, array, attributes, group = found
    url = documents.source.url(prefix)
    # If there are both, zarr also takes v3.
    if v3 is not None:
        kind = v3.get("node_type")
        if kind not in ("array", "group"):  # may be of any JSON type
            raise Damaged("the Zarr metadata is damaged: field 'node_type' is neither array nor group", url=url + _V3)
        return _Node(v3, _object(v3.get("attributes")), url + _V3, str(kind))
    kind = "array" if array is not None else "group" if group is not None else ""
    return _Node(array, attributes or {}, f"{url}.zarray", kind)


def with_names(source: Source, layout: Layout) -> Layout:
    """Return the layout with dimension names from the group above, if that is an image and the array its level.

    Two requests if the dimensions are unnamed; otherwise none.
    """
    if any(layout.dims):
        return layout
    above, _, level = layout.key.rstrip("/").rpartition("/")
    folder = as_folder(above)
    try:
        v3, attributes = _Documents(source, forbidden_is_missing=True).fetch([folder + _V3, folder + _V2[1]])
    except (Damaged, Denied, Unusable):  # does not concern the array
        return layout
    image = image_of(_object(v3.get("attributes")) if v3 is not None else _object(attributes))
    return _set_dims(layout, image.axes) if image is not None and level in image.paths else layout


def _add(documents: _Documents, prefix: str, arrays: Arrays, names: Sequence[str]) -> None:
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
                arrays.describe(name, attributes)
            return
    raise Unsupported(f"groups are nested deeper than {_MOST_DEPTH}", url=documents.source.url(groups[0]))


def _inline(document: Mapping[str, Any]) -> Mapping[str, Any] | None:
    """Return the consolidated metadata in a group's ``zarr.json``; None without it."""
    found = document.get("consolidated_metadata")
    return found if isinstance(found, Mapping) and found.get("kind", "inline") == "inline" else None


def _object(found: object) -> Mapping[str, Any]:
    return found if isinstance(found, Mapping) else {}


# https://ngff.openmicroscopy.org/0.2/#multiscale-md: before version 0.3 the order was fixed, without a field for it.
_AXES = ["t", "c", "z", "y", "x"]
_WITHOUT_AXES = ("", "0.1", "0.2")


class Image(NamedTuple):
    """Image at several resolutions: names of its dimensions, and paths of its levels' arrays below the group.

    The first level has the most pixels.
    """

    axes: tuple[str, ...]
    paths: tuple[str, ...]


def image_of(attributes: Mapping[str, Any]) -> Image | None:
    """Return the image that a group's attributes describe, by OME-Zarr 0.1 to 0.5; if there are several, the first.

    None if they do not describe an image, or not as specified: other programs may use the same attribute names.
    """
    within = attributes.get("ome")  # since 0.5
    several = (within if isinstance(within, Mapping) else attributes).get("multiscales")
    first = several[0] if isinstance(several, list) and several else None
    if not isinstance(first, Mapping):
        return None
    earliest = within is None and str(first.get("version", "")) in _WITHOUT_AXES
    axes, paths = _names(first.get("axes", _AXES if earliest else None)), _paths(first.get("datasets"))
    return Image(axes, paths) if axes and paths else None


def _names(axes: object) -> tuple[str, ...]:
    if not isinstance(axes, list):
        return ()
    named = [axis.get("name") if isinstance(axis, Mapping) else axis for axis in axes]  # 0.3 has plain names
    names = tuple(name for name in named if isinstance(name, str) and name)
    return names if len({*names}) == len(axes) else ()


def _paths(levels: object) -> tuple[str, ...]:
    if not isinstance(levels, list):
        return ()
    paths = [level.get("path") if isinstance(level, Mapping) else None for level in levels]
    found = tuple(path.strip("/") for path in paths if isinstance(path, str))
    within = all(part.strip(".") for path in found for part in path.split("/"))  # neither empty nor ".."
    return found if within and len(found) == len(levels) else ()
