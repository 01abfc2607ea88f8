"""Variables of xarray traced to the Zarr array that they read: as a whole, or the elements that a selection takes.

Dask is not imported: a graph that only takes elements says which, block by block.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple, TypeAlias

import numpy as np

from penstock.data.zarr.samples.alignment import elements_of
from penstock.errors import Unusable

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from numpy.typing import NDArray

    Elements: TypeAlias = "int | Sequence[int]"

# Layers of xarray's lazy arrays that keep all elements and their order, if their `key` is a selection along dimensions.
_LAYERS = {
    *("MemoryCachedArray", "CopyOnWriteArray", "LazilyIndexedArray", "ZarrArrayWrapper", "NativeEndiannessArray"),
    *("_ElementwiseFunctionArray", "BoolTypeArray", "ImplicitToExplicitIndexingAdapter"),
}
# Those that decode values by CF.
_DECODING = {"_ElementwiseFunctionArray", "BoolTypeArray"}
_KEYS = {"BasicIndexer", "OuterIndexer"}
# Functions of Dask's graphs that take elements and change none.
_GETTERS = {"getter", "getter_nofancy", "getter_inline", "getitem", "_getitem"}
_ADVICE = (
    "pass the URL of its Zarr store instead, or an object of xarray.open_zarr(…) with isel or sel at most (of lists, "
    "with chunks=None), before .values, .load(), an assignment or arithmetic"
)


class Traced(NamedTuple):
    """Zarr array that a variable reads, and whether it decodes values by CF: not with ``mask_and_scale=False``.

    ``chosen`` has the elements of the variable along each dimension of the array; a number for a dropped dimension.
    """

    array: Any
    chosen: tuple[Elements, ...]
    decodes: bool


def trace_variable(variable: Any) -> Traced | Unusable:  # noqa: ANN401  a variable of xarray
    """Return the array that a variable reads, or an error that says what to pass instead."""
    layer: Any = variable._data  # noqa: SLF001  xarray keeps unloaded data here
    later: list[Elements] | None = None
    if _is_dask(layer):
        graph = dict(layer.__dask_graph__())
        root, other = _root(graph)
        if root is None:
            return Unusable(f"this variable of xarray is computed by Dask ({', '.join(other)}): {_ADVICE}")
        lazy: Any = getattr(graph[root], "value", graph[root])
        later = _trace_elements(layer, graph, root, lazy.shape)
        layer = lazy
    chosen: list[Elements] | None = None
    decodes = False
    while type(layer).__name__ in _LAYERS:
        key, decodes = getattr(layer, "key", None), decodes or type(layer).__name__ in _DECODING
        if key is not None:
            if type(key).__name__ not in _KEYS:
                return Unusable(f"this variable of xarray is a selection of points of a Zarr array: {_ADVICE}")
            own = [_elements(each, size) for each, size in zip(key.tuple, layer.array.shape, strict=True)]
            chosen = own if chosen is None else _compose_selections(own, chosen)
        layer = getattr(layer, "array", None) if hasattr(layer, "array") else layer.get_array()
    if hasattr(layer, "store_path") and hasattr(layer, "metadata"):
        whole: list[Elements] = [range(size) for size in layer.shape]
        found = whole if chosen is None else chosen
        return Traced(layer, tuple(found if later is None else _compose_selections(found, later)), decodes)
    source = variable.encoding.get("source")
    words = f"it was opened from {source}; " if source else ""
    return Unusable(f"this variable of xarray is {type(layer).__name__}, and no Zarr array: {words}{_ADVICE}")


def _elements(key: Any, size: int) -> Elements:  # noqa: ANN401  a part of an indexer of xarray
    if isinstance(key, slice):
        return range(*key.indices(size))
    if np.ndim(key) == 0:
        return int(key) % size
    return _run(np.where(np.asarray(key) < 0, np.asarray(key) + size, key))


def _run(numbers: NDArray[np.int64]) -> Sequence[int]:
    return elements_of(numbers, range(len(numbers))) if len(numbers) else ()


def _compose_selections(first: Sequence[Elements], then: Sequence[Elements]) -> list[Elements]:
    """Return the elements that a second selection takes of those of a first, along the dimensions that this leaves."""
    left = iter(then)
    found: list[Elements] = []
    for each in first:
        if isinstance(each, int):
            found.append(each)
            continue
        later = next(left)
        found.append(each[later] if isinstance(later, int) else elements_of(each, later) if len(later) else ())
    return found


def _is_dask(layer: Any) -> bool:  # noqa: ANN401
    return type(layer).__module__.partition(".")[0] == "dask" and hasattr(layer, "__dask_graph__")


def _root(graph: Mapping[Any, Any]) -> tuple[Any, list[str]]:
    """Return the key of the lazy array of xarray that a graph takes elements of; or None, and what else it does."""
    roots, other = list[Any](), set[str]()
    for key, task in graph.items():
        function = _function(task)
        value = getattr(task, "value", task)
        if function is not None:
            name = getattr(function, "__name__", type(function).__name__)
            other |= {name} - _GETTERS
            # Of a list of elements, the index may be another task.
            if name in _GETTERS and isinstance(index := _arguments(task)[1], tuple):
                other |= {"expand_dims" for each in index if each is None}
        elif type(value).__name__ in _LAYERS:
            roots.append(key)
        elif type(task).__name__ != "Alias":
            # Dask takes lists across its blocks by tasks of several kinds.
            other.add("a list of elements" if isinstance(value, tuple) else type(value).__name__)
    if other or len(roots) != 1:
        return None, sorted(other) or [f"{len(roots)} arrays"]
    return roots[0], []


def _function(task: Any) -> Any:  # noqa: ANN401  a task of Dask, or a tuple in versions before 2024.12
    return getattr(task, "func", task[0] if isinstance(task, tuple) and task and callable(task[0]) else None)


def _arguments(task: Any) -> tuple[Any, Any]:  # noqa: ANN401  as above
    """Return what a task takes elements of, and which."""
    source, index = (task[1:] if isinstance(task, tuple) else task.args)[:2]
    return source, index


def _trace_elements(array: Any, graph: Mapping[Any, Any], root: Any, shape: Sequence[int]) -> list[Elements]:  # noqa: ANN401
    """Return the elements along each dimension of the root that an array of Dask takes, from its blocks."""
    first = _block(graph, (array.name, *[0] * array.ndim), root, shape)
    found: list[Elements] = []
    axis = 0
    for dimension, elements in enumerate(first):
        if isinstance(elements, int):
            found.append(elements)
            continue
        places = [[0] * array.ndim for _ in range(array.numblocks[axis])]
        for number, place in enumerate(places):
            place[axis] = number
        blocks = [_block(graph, (array.name, *place), root, shape)[dimension] for place in places]
        found.append(_run(np.concatenate([np.atleast_1d(np.asarray(each, dtype=np.int64)) for each in blocks])))
        axis += 1
    return found


def _block(graph: Mapping[Any, Any], key: Any, root: Any, shape: Sequence[int]) -> list[Elements]:  # noqa: ANN401
    """Return the elements along each dimension of the root that a block has."""
    if key == root:
        return [range(size) for size in shape]
    task = graph[key]
    if _function(task) is None:
        return _block(graph, task.target, root, shape)
    source, index = _arguments(task)
    inner = _block(graph, getattr(source, "key", source), root, shape)
    sizes = [len(each) for each in inner if not isinstance(each, int)]
    return _compose_selections(inner, [_elements(part, size) for part, size in zip(index, sizes, strict=True)])
