"""Layouts of arrays that a program has already opened with zarr or xarray, and the store to read them from."""

from __future__ import annotations

from dataclasses import replace
from operator import itemgetter
from typing import TYPE_CHECKING, Any, NamedTuple, TypeAlias, cast

from penstock.data.zarr.format.cf import ATTRIBUTES
from penstock.data.zarr.format.opening import Arrays
from penstock.errors import PenstockError, Unusable
from penstock.values import as_folder

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping

    from penstock.source import Source

    Manifest: TypeAlias = tuple[Mapping[str, Any], Mapping[str, Mapping[str, Any]]]

__all__ = ["Opened", "arrays_of", "is_opened", "manifests_of", "reader_of"]

# Layers of xarray's lazy arrays that keep all elements and their order, if their `key` takes everything.
_LAYERS = {
    *("MemoryCachedArray", "CopyOnWriteArray", "LazilyIndexedArray", "ZarrArrayWrapper", "NativeEndiannessArray"),
    *("_ElementwiseFunctionArray", "BoolTypeArray"),
}
_ADVICE = (
    "pass the URL of its Zarr store instead, or a newly opened object of xarray.open_zarr(…, chunks=None), without a "
    "selection and before .values, .load() or an assignment"
)


class Opened(NamedTuple):
    """Arrays of one zarr store.

    Attributes:
        arrays: Layouts by path or variable name, "" for an array that was passed directly; ``key`` is relative to the
            root of the store.
        store: A ``zarr.abc.store.Store``; None if no array could be traced to a store.
        url: URL of the root of the store, if Penstock can read it too: a folder, or Penstock's own store; else "".
        own: Source of Penstock's own store, with the options of that store; None for other stores.
        given: These options, or the name of a profile; None if the store was created without.
        forbidden_is_missing: The option of that name of Penstock's own store.

    """

    arrays: Arrays
    store: Any
    url: str
    own: Source | None = None
    given: object = None
    forbidden_is_missing: bool = False


def reader_of(store: Any) -> Callable[[str, int, int | None], bytes | None]:  # noqa: ANN401  a store of zarr's
    """Return a function that reads bytes of a store's objects: ``read(key, start, stop)``, as in ``Span``; it blocks.

    The function returns None for a missing object. Any thread may call it; zarr's event loop does the read.
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
    """Return the layouts of an open array or group of zarr, or of an object that xarray opened from one.

    No request for an array; for a group, zarr's requests to list its members. Coordinates of an xarray dataset are left
    out. Variables that cannot be traced to an array (loaded, computed, selected, or of Dask) have no layout: their
    lookup raises an error that says what to pass instead.

    Raises:
        Unusable: ``value`` is another object, or an array of xarray that cannot be traced; or variables lie in several
            stores.
        PenstockError: An array that was passed directly is invalid.

    """
    kind = _kind(value)
    if not kind:
        raise Unusable(f"neither an array or group of zarr nor a dataset or array of xarray: {type(value).__name__}")
    arrays, stores, described = Arrays(), list[Any](), dict[str, Any]()
    # In order of names: zarr lists a group in the order of responses, which differs between processes.
    for name, array, dims in sorted(_named(value, kind), key=itemgetter(0)):
        if isinstance(array, PenstockError):
            arrays.refused[name] = array
            continue
        if _kind(array) == "group":
            described[name] = array.attrs
            continue
        document = {**array.metadata.to_dict()}
        where = array.store_path
        arrays.put(name, as_folder(where.path), document, document.get("attributes") or {}, str(where))
        if dims is not None and name in arrays:
            arrays[name] = replace(arrays[name], dims=dims)  # xarray may have renamed them
        if not any(where.store == each for each in stores):
            stores.append(where.store)
    for name, attributes in described.items():
        arrays.name_axes(name, dict(attributes))
    if len(stores) > 1:
        raise Unusable(f"these variables lie in {len(stores)} stores of zarr: pass a mapping from names to their URLs")
    if kind == "array" and "" in arrays.refused:
        raise arrays.refused[""]
    return _in_store(arrays, stores[0] if stores else None)


def manifests_of(value: object) -> dict[str, Manifest]:
    """Return metadata and manifest, by name, of the virtual variables of an xarray object that VirtualiZarr made.

    Empty without virtual variables. ``references_of_manifests`` takes the result.

    Raises:
        Unusable: There are virtual variables, and a data variable that is not virtual.

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
    """Return metadata and manifest of a variable, with the names and attributes that xarray took out of the array."""
    layer = variable._data  # noqa: SLF001  as in _traced
    encoded = {name: value for name, value in variable.encoding.items() if name in ATTRIBUTES}
    moved = {"dimension_names": list(variable.dims), "attributes": encoded | dict(variable.attrs)}
    return layer.metadata.to_dict() | moved, layer.manifest.dict()


def _kind(value: object) -> str:
    """Return ``group`` or ``array``; empty for other objects. Does not import zarr or xarray."""
    kinds = {"Dataset": "group", "Group": "group", "Array": "array", "DataArray": "array", "Variable": "array"}
    for each in type(value).__mro__:
        if each.__module__.partition(".")[0] in {"zarr", "xarray"} and each.__name__ in kinds:
            return kinds[each.__name__]
    return ""


def _named(value: Any, kind: str) -> Iterator[tuple[str, Any, tuple[str, ...] | None]]:  # noqa: ANN401  of either library
    """Yield names, arrays of zarr (or errors), and the dimension names of xarray (or None).

    For a group of zarr, yield the group itself and all members below it, too.
    """
    if hasattr(value, "store_path"):
        yield "", value, None
        for name, member in value.members(max_depth=None) if kind == "group" else ():
            yield name, member, None
        return
    variables = {"": getattr(value, "variable", value)} if kind == "array" else value.data_vars
    for name, variable in variables.items():
        yield str(name), _traced(getattr(variable, "variable", variable)), tuple(map(str, variable.dims))


def _traced(variable: Any) -> Any:  # noqa: ANN401  a variable of xarray
    """Return the zarr array that a lazy variable reads as a whole, or an error that says what to pass instead."""
    layer = variable._data  # noqa: SLF001  xarray keeps unloaded data here
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


def _in_store(arrays: Arrays, store: Any) -> Opened:  # noqa: ANN401  a store of zarr's, or None
    """Return arrays with the root URL of their store, if Penstock can read the same objects; else without URL."""
    module = type(store).__module__
    arrays.url = str(store or "")
    if module.startswith("penstock."):
        return Opened(arrays, store, store.url, store.source, store.given, store.forbidden_is_missing)
    is_local = module.startswith("zarr.") and type(store).__name__ == "LocalStore"
    return Opened(arrays, store, str(store.root) if is_local else "")
