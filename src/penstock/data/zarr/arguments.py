"""Checks of ``ZarrDataset`` arguments before the first request; the errors suggest replacements."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from difflib import get_close_matches
from typing import TYPE_CHECKING, Any

import numpy as np

from penstock.data.zarr.samples.arrangement import Shape, dims_of
from penstock.errors import Unusable
from penstock.values import check_choice, switch, whole

if TYPE_CHECKING:
    from collections.abc import Iterable

    from penstock.data.zarr.arrays.stored import StoredArray

_OF_LOADER = {
    *("batch_size", "num_workers", "collate_fn", "tail", "drop_last", "pin_memory", "device", "decode_threads"),
    *("prefetch", "prefetch_factor", "persistent_workers", "on_error"),
}
_CHOOSE = 'some arrays of a group are chosen by a mapping as samples, {"t2m": "s3://bucket/era5.zarr/t2m"}'
_INSTEAD = {
    **dict.fromkeys(("variables", "arrays", "names", "fields"), _CHOOSE),
    "chunks": "the samples of whole chunks are dims= and patch=; penstock zarr copy --chunks writes others",
    "shuffle_buffer": "the samples of window_bytes= of chunks are mixed",
    "transforms": "pass one function as transform=",
}
_IN_TENSORS = "biufc"  # kinds of dtypes that torch has
_KINDS = {"M": "times", "m": "durations", "U": "texts", "S": "texts"}


def refuse_unknown(unknown: Iterable[str], known: Iterable[str]) -> None:
    """Raise for unknown arguments; the message says where they belong."""
    for name in unknown:
        if name in _OF_LOADER:
            raise Unusable(f"pass {name}= to the loader: ps.DataLoader(dataset, batch_size, …)")
        near = get_close_matches(name, [*known], 1)
        other = f"did you mean {near[0]}=?" if near else "help(ps.ZarrDataset) lists those it has"
        raise Unusable(f"ZarrDataset has no argument {name}=: {_INSTEAD.get(name, other)}")


def check_switches(*, decode_cf: object, forbidden_is_missing: object, along: object = None) -> None:
    """Raise for values that are not a bool; ``decode_cf`` may also be None. ``along`` is a name, or None."""
    if decode_cf is not None:
        switch(decode_cf, "decode_cf")
    switch(forbidden_is_missing, "forbidden_is_missing")
    if along is not None and (not isinstance(along, str) or not along):
        raise Unusable(f"along must be the name of a dimension, got {along!r}")


def check_along(along: object, arrays: Iterable[StoredArray]) -> None:
    """Raise for ``along`` without stores to join."""
    if along is not None and not any(array.stored for array in arrays):
        raise Unusable(
            f"along={along!r} joins several stores, and samples and targets are one each: pass a list of URLs, or one "
            'with wildcards ("s3://bucket/era5/*.zarr")'
        )


def check_words(*, align: object, missing: object, output: object, transform: object) -> None:
    """Raise for unknown choices, and for a transform that is not callable."""
    if align is not None:
        check_choice(align, ("index", "coordinates"), "align")
    check_choice(missing, ("fill", "error"), "missing")
    check_choice(output, ("torch", "numpy"), "output")
    if transform is not None and not callable(transform):
        raise Unusable(f"transform must be a function of a sample, got {transform!r}")


def check_values(given: Mapping[str, Mapping[str, StoredArray]], *, numpy: bool) -> None:
    """Raise for arrays that a tensor cannot hold: times and texts; ``given`` has arrays by argument and by name."""
    for argument, arrays in ({} if numpy else given).items():
        fit = [name for name, array in arrays.items() if array.decoded.dtype.kind in _IN_TENSORS]
        for name, array in arrays.items():
            if name not in fit:
                dtype = array.decoded.dtype
                rest = f"name the arrays that a sample has ({', '.join(fit)}), or " if fit else ""
                raise Unusable(
                    f"{argument}{f'[{name!r}]' if name else ''} has values of {dtype} ({_KINDS.get(dtype.kind)}), "
                    f'which tensors cannot hold: {rest}pass output="numpy" and a transform= that makes numbers of them',
                    url=array.url,
                )


def with_chosen(shape: Shape, arrays: Sequence[StoredArray], *, align: object) -> Shape:
    """Return a shape whose ``select`` counts all elements, for arrays with a selection of xarray."""
    select = dict(shape.select)
    for name in dict.fromkeys(each for array in arrays for each in array.chosen):
        found = [array.chosen.get(name) for array in arrays if name in dims_of(array.layout)]
        if None in found or any(not np.array_equal(each, found[0]) for each in found):  # type: ignore[arg-type]
            raise Unusable(
                f"samples and targets have different selections along {name!r}: pass the whole objects, and select= or "
                "target_offsets="
            )
        if align == "coordinates" or shape.valid is not None:
            argument = 'align="coordinates"' if align == "coordinates" else "valid="
            raise Unusable(f"{argument} counts all elements of {name!r}, a selection only some: pass the whole object")
        elements, own = found[0], select.get(name)
        if own is not None and isinstance(elements, int):
            raise Unusable(f"select names {name!r}, which has only one element in the selection of xarray")
        select[name] = elements if own is None else _of_selection(name, elements, own)  # type: ignore[assignment]
    return replace(shape, select=select)


def _of_selection(name: str, elements: Any, own: Any) -> int | Sequence[int]:  # noqa: ANN401  several types
    if isinstance(own, slice):
        return elements[own] if isinstance(elements, range) else tuple(elements)[own]
    numbers = [own] if isinstance(own, int) else [*own]
    if any(not -len(elements) <= each < len(elements) for each in numbers):
        raise Unusable(f"select goes beyond {name!r}, of which the selection has {len(elements)} elements: {own!r}")
    taken = [int(elements[each]) for each in numbers]
    return taken[0] if isinstance(own, int) else taken


def shape_of(
    dims: object,
    offsets: tuple[object, object],
    stride: object,
    patches: tuple[object, object, object],
    select: object,
    *,
    targets: bool = True,
) -> Shape:
    """Return the shape of samples from the arguments of ``ZarrDataset``; the messages of errors name them.

    ``offsets`` are those of samples and of targets; ``patches`` are the sizes by dimension, their halo and their scale.
    """
    patch = _numbers("patch", patches[0], 1)
    halo = _by_patch("halo", patches[1], patch, 0)
    for name, value, neutral in (("halo", patches[1], 0), ("scale", patches[2], 1)):
        if not patch and _is_number(value) and value != neutral:
            raise Unusable(f'{name}={value!r} needs patches: pass their sizes, as patch={{"lat": 64}}')
    target_offsets = _offsets("target_offsets", offsets[1])
    if not targets and target_offsets != 0:
        raise Unusable(f"target_offsets={offsets[1]!r} needs targets: pass targets=…")
    steps = {"": whole(stride, "stride", 1)} if _is_number(stride) else _numbers("stride", stride, 1)
    return Shape(
        dims=names_of("dims", dims),
        offsets=_offsets("offsets", offsets[0]),
        target_offsets=target_offsets,
        stride=steps,
        patch=patch,
        halo=halo,
        scale=_by_patch("scale", patches[2], patch, 1),
        select=_parse_select(select),
    )


def _is_number(value: object) -> bool:
    return hasattr(value, "__index__") and not (isinstance(value, np.ndarray) and value.ndim)


def names_of(argument: str, value: object) -> tuple[str, ...]:
    """Return the dimensions that an argument names; None names none."""
    given = () if value is None else (value,) if isinstance(value, str) else value
    if not isinstance(given, Sequence) or not all(isinstance(name, str) for name in given):
        raise Unusable(f"{argument} must be the name of a dimension, or a sequence of names, got {value!r}")
    if len(set(given)) < len(given):
        raise Unusable(f"{argument} names a dimension twice: {value!r}")
    return tuple(given)


def _offsets(name: str, value: Any) -> int | tuple[int, ...]:  # noqa: ANN401  user input
    if _is_number(value):
        return whole(value, name)
    if isinstance(value, str | bytes | Mapping) or not hasattr(value, "__iter__"):
        raise Unusable(f"{name} must be a number of elements, or a sequence of numbers such as range(4), got {value!r}")
    found = tuple(whole(each, name) for each in value)
    if not found:
        raise Unusable(f"{name} is empty, so samples would be empty")
    return found


def _numbers(name: str, value: object, least: int) -> dict[str, int]:
    if value is None:
        return {}
    if not isinstance(value, Mapping):
        raise Unusable(
            f'{name} must be a mapping of dimensions to numbers of elements, as {{"lat": 64}}, got {value!r}'
        )
    return {str(each): whole(number, f"{name} of {each!r}", least) for each, number in value.items()}


def _by_patch(name: str, value: object, patch: Mapping[str, int], least: int) -> dict[str, int]:
    """Return numbers by dimension; a single number applies to all dimensions of patches."""
    return dict.fromkeys(patch, whole(value, name, least)) if _is_number(value) else _numbers(name, value, least)


def _parse_selection(name: str, value: Sequence[object] | np.ndarray[Any, Any]) -> list[int]:
    if len(value) and all(isinstance(each, bool | np.bool_) for each in value):
        raise Unusable(f"select of {name!r} is a mask, and takes numbers of elements: np.flatnonzero(mask)")
    return [whole(each, f"select of {name!r}") for each in value]


def _parse_slice(name: str, value: slice) -> slice:
    bounds = [None if each is None else whole(each, f"select of {name!r}") for each in _unpack_slice(value)]
    if bounds[2] == 0:
        raise Unusable(f"select of {name!r} must have a step other than 0, got {value!r}")
    return slice(*bounds)


def _unpack_slice(value: slice) -> tuple[Any, Any, Any]:
    return value.start, value.stop, value.step


def _counts_no_elements(value: object) -> bool:
    """Return whether a selection is by time or coordinate, or by a range of these, not by element number."""
    if isinstance(value, slice):
        return any(each is not None and not hasattr(each, "__index__") for each in _unpack_slice(value))
    return isinstance(value, str | float | np.datetime64) or hasattr(value, "isoformat")


def _parse_select(select: object) -> dict[str, int | slice | Sequence[int]]:
    if select is None:
        return {}
    if not isinstance(select, Mapping):
        example = 'select must be a mapping, as {"time": slice(0, 1000), "variable": [0, 3]}'
        raise Unusable(f"{example}, got {select!r}")
    found: dict[str, int | slice | Sequence[int]] = {}
    for name, value in select.items():
        if _counts_no_elements(value):
            raise Unusable(
                f"select of {name!r} counts elements, and {value!r} has other values: of times or coordinates, xarray "
                f'gives the numbers, as in select={{{name!r}: ds.indexes[{name!r}].slice_indexer("2000", "2010")}}'
            )
        if _is_number(value):
            found[str(name)] = whole(value, f"select of {name!r}")
        elif isinstance(value, slice):
            found[str(name)] = _parse_slice(str(name), value)
        elif isinstance(value, Sequence | np.ndarray) and not isinstance(value, str | bytes):
            found[str(name)] = _parse_selection(str(name), value)
        else:
            raise Unusable(f"select of {name!r} must be a number of an element, a slice or a list, got {value!r}")
    return found
