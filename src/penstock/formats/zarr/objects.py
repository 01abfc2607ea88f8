"""Layouts of arrays that a program has opened already, with zarr or xarray, and the store that they are read from."""

from __future__ import annotations

from operator import itemgetter
from typing import TYPE_CHECKING, Any, NamedTuple, TypeAlias, cast

from penstock.errors import PenstockError, Unusable
from penstock.formats.zarr.opening import Arrays
from penstock.values import as_folder

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping

    Manifest: TypeAlias = tuple[Mapping[str, Any], Mapping[str, Mapping[str, Any]]]

__all__ = ["Opened", "arrays_of", "is_opened", "manifests_of", "reader_of"]

# Layers of xarray's lazy arrays that leave nothing out and change no order, if their `key` takes everything.
_LAYERS = {
    *("MemoryCachedArray", "CopyOnWriteArray", "LazilyIndexedArray", "ZarrArrayWrapper", "NativeEndiannessArray"),
    *("_ElementwiseFunctionArray", "BoolTypeArray"),
}
_CF = ("scale_factor", "add_offset", "_FillValue", "missing_value", "_Unsigned")  # attributes that xarray may move
_ADVICE = "pass the URL of its Zarr store instead, or an object of xarray.open_zarr(…, chunks=None) without a selection"


class Opened(NamedTuple):
    """Arrays of one store of zarr's.

    Attributes:
        arrays: By the paths or variables' names, "" for an array that was passed itself; ``key`` is relative to the
            store's root.
        store: A ``zarr.abc.store.Store``; None where no array could be traced to one.
        url: Of the store's root, where Penstock can read it as well: a folder, or Penstock's own store; "" otherwise.

    """

    arrays: Arrays
    store: Any
    url: str


def reader_of(store: Any) -> Callable[[str, int, int | None], bytes | None]:  # noqa: ANN401  a store of zarr's
    """Return what reads bytes of a store's objects: ``read(key, start, stop)``, as ``Span`` has them; it blocks.

    None: there is no such object. Any thread may call it; zarr's event loop carries it out.
    """
    from zarr.abc.store import OffsetByteRequest, RangeByteRequest, SuffixByteRequest
    from zarr.core.buffer import default_buffer_prototype
    from zarr.core.sync import sync

    prototype = default_buffer_prototype()

    def read(key: str, start: int, stop: int | None) -> bytes | None:
        part: SuffixByteRequest | RangeByteRequest | OffsetByteRequest | None = None
        if start < 0:
            part = SuffixByteRequest(-start)
        elif stop is not None:
            part = RangeByteRequest(start, stop)
        elif start:
            part = OffsetByteRequest(start)
        found = sync(store.get(key, prototype, byte_range=part))
        return None if found is None else found.to_bytes()

    return read


def is_opened(value: object) -> bool:
    """Return whether a value is an array or group of zarr, or a dataset, array or variable of xarray."""
    return _kind(value) != ""


def arrays_of(value: object) -> Opened:
    """Return the layouts of an open array or group of zarr's, or of what xarray opened from one.

    No request for an array; of a group, those that zarr makes to list its members. Variables that cannot be traced to
    an array (loaded, computed or selected ones, or Dask's) have no layout: looking them up says what to pass instead.

    Raises:
        Unusable: Another object; an array of xarray that cannot be traced; variables of several stores.
        PenstockError: What is wrong with an array that was passed itself.

    """
    kind = _kind(value)
    if not kind:
        raise Unusable(f"neither an array or group of zarr nor a dataset or array of xarray: {type(value).__name__}")
    arrays, stores, described = Arrays(), list[Any](), dict[str, Any]()
    # In order of names: zarr lists a group in the order of its answers, which differs between processes.
    for name, array in sorted(_named(value, kind), key=itemgetter(0)):
        if isinstance(array, PenstockError):
            arrays.refused[name] = array
            continue
        if _kind(array) == "group":
            described[name] = array.attrs
            continue
        document = {**array.metadata.to_dict()}
        where = array.store_path
        arrays.put(name, as_folder(where.path), document, document.get("attributes") or {}, str(where))
        if not any(where.store == each for each in stores):
            stores.append(where.store)
    for name, attributes in described.items():
        arrays.name_axes(name, dict(attributes))
    if len(stores) > 1:
        raise Unusable(f"these variables lie in {len(stores)} stores of zarr: pass a mapping from names to their URLs")
    if kind == "array" and "" in arrays.refused:
        raise arrays.refused[""]
    store = stores[0] if stores else None
    return Opened(arrays, store, _url(store))


def manifests_of(value: object) -> dict[str, Manifest]:
    """Return metadata and manifest of the virtual variables of an object of xarray's, which VirtualiZarr has made.

    By name; empty where it has none. ``references_of_manifests`` takes it.

    Raises:
        Unusable: Another variable of it, no coordinate, is not virtual.

    """
    kind = _kind(value)
    if not kind or hasattr(value, "store_path"):
        return {}
    xarrays = cast("Any", value)
    variables = {"": getattr(xarrays, "variable", xarrays)} if kind == "array" else dict(xarrays.variables)
    virtual = {str(name): variable for name, variable in variables.items() if _is_virtual(variable)}
    loaded = [name for name in getattr(xarrays, "data_vars", ()) if name not in virtual] if virtual else []
    if loaded:
        some = ", ".join(map(str, loaded))
        raise Unusable(f"these variables are not virtual: {some}; pass the dataset without them (drop_vars)")
    return {name: _manifest(variable) for name, variable in virtual.items()}


def _is_virtual(variable: Any) -> bool:  # noqa: ANN401  a variable of xarray
    layer = type(variable._data)  # noqa: SLF001  as in _traced
    return layer.__name__ == "ManifestArray" and layer.__module__.partition(".")[0] == "virtualizarr"


def _manifest(variable: Any) -> Manifest:  # noqa: ANN401  a variable of xarray
    """Return what ``references_of_manifests`` takes: xarray has moved names and attributes out of the array."""
    layer = variable._data  # noqa: SLF001  as in _traced
    encoded = {name: value for name, value in variable.encoding.items() if name in _CF}
    moved = {"dimension_names": list(variable.dims), "attributes": encoded | dict(variable.attrs)}
    return layer.metadata.to_dict() | moved, layer.manifest.dict()


def _kind(value: object) -> str:
    """Return ``group`` or ``array``; empty for any other object. Imports neither library."""
    kinds = {"Dataset": "group", "Group": "group", "Array": "array", "DataArray": "array", "Variable": "array"}
    for each in type(value).__mro__:
        if each.__module__.partition(".")[0] in {"zarr", "xarray"} and each.__name__ in kinds:
            return kinds[each.__name__]
    return ""


def _named(value: Any, kind: str) -> Iterator[tuple[str, Any]]:  # noqa: ANN401  an object of either library
    """Yield arrays of zarr by name, or why there is none; of a group of zarr's, it and those below, too."""
    ours = hasattr(value, "store_path")
    if kind == "array":
        yield "", value if ours else _traced(getattr(value, "variable", value))
    elif ours:
        yield "", value
        yield from value.members(max_depth=None)
    else:
        for name, variable in value.variables.items():
            yield str(name), _traced(variable)


def _traced(variable: Any) -> Any:  # noqa: ANN401  a variable of xarray
    """Return the array of zarr that a lazy variable reads as a whole, or an error that says what to pass instead."""
    layer = variable._data  # noqa: SLF001  where xarray keeps what it has not loaded yet
    while type(layer).__name__ in _LAYERS:
        key = getattr(layer, "key", None)
        if key is not None and not _takes_all(key.tuple, layer.array.shape):
            return Unusable(f"this variable of xarray is a selection of a Zarr array: {_ADVICE}")
        layer = getattr(layer, "array", None) if hasattr(layer, "array") else layer.get_array()
    if _kind(layer) == "array" and hasattr(layer, "store_path"):
        return layer
    source = variable.encoding.get("source")
    found = f"it was opened from {source}; " if source else ""
    return Unusable(f"this variable of xarray is {type(layer).__name__}, and no Zarr array: {found}{_ADVICE}")


def _takes_all(key: tuple[Any, ...], shape: tuple[int, ...]) -> bool:
    return len(key) == len(shape) and all(
        isinstance(part, slice) and part.indices(size) == (0, size, 1) for part, size in zip(key, shape, strict=True)
    )


def _url(store: Any) -> str:  # noqa: ANN401  a store of zarr's
    """Return the URL of a store's root where Penstock reads the same objects, with no other credentials."""
    module = type(store).__module__
    if module.startswith("penstock."):
        return str(store.url)
    if module.startswith("zarr.") and type(store).__name__ == "LocalStore":
        return str(store.root)
    return ""
