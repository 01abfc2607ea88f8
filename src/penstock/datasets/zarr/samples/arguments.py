"""What users write of a sample's shape, checked and made uniform. Pure."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from penstock.datasets.zarr.samples.arrangement import Shape
from penstock.errors import Unusable
from penstock.values import whole

__all__ = ["shape_of"]


def shape_of(
    dims: object,
    offsets: tuple[object, object],
    stride: object,
    patches: tuple[object, object],
    select: object,
    *,
    targets: bool = True,
) -> Shape:
    """Return what makes a sample, of the arguments of ``ZarrDataset``.

    Args:
        dims: A name, or several.
        offsets: Of samples, and of targets.
        stride: A number, for the first of ``dims``, or a mapping from dimensions to numbers.
        patches: Their sizes by dimension, and their halo: a number, or one by dimension.
        select: A mapping from dimensions to an element, a slice or a list.
        targets: Whether there are any.

    Raises:
        Unusable: One of them cannot be meant; the text names it.

    """
    patch = _numbers("patch", patches[0], 1)
    halo = (
        dict.fromkeys(patch, whole(patches[1], "halo", 0))
        if _is_number(patches[1])
        else _numbers("halo", patches[1], 0)
    )
    if patches[1] and not patch and _is_number(patches[1]):
        raise Unusable(f'halo={patches[1]!r} widens patches, and there are none: patch={{"lat": 64}} gives their sizes')
    target_offsets = _offsets("target_offsets", offsets[1])
    if not targets and target_offsets != 0:
        raise Unusable(f"target_offsets={offsets[1]!r} are of targets, and there are none: pass targets=…")
    steps = {"": whole(stride, "stride", 1)} if _is_number(stride) else _numbers("stride", stride, 1)
    return Shape(
        dims=_names(dims),
        offsets=_offsets("offsets", offsets[0]),
        target_offsets=target_offsets,
        stride=steps,
        patch=patch,
        halo=halo,
        select=_selected(select),
    )


def _is_number(value: object) -> bool:
    return hasattr(value, "__index__") and not isinstance(value, np.ndarray)


def _names(dims: object) -> tuple[str, ...]:
    given = () if dims is None else (dims,) if isinstance(dims, str) else dims
    if not isinstance(given, Sequence) or not all(isinstance(name, str) for name in given):
        raise Unusable(f"dims is the name of a dimension, or a sequence of names, not {dims!r}")
    if len(set(given)) < len(given):
        raise Unusable(f"dims names a dimension twice: {dims!r}")
    return tuple(given)


def _offsets(name: str, value: Any) -> int | tuple[int, ...]:  # noqa: ANN401  what the user wrote
    if _is_number(value):
        return whole(value, name)
    if isinstance(value, str | bytes | Mapping) or not hasattr(value, "__iter__"):
        raise Unusable(f"{name} is a number of elements, or a sequence of numbers such as range(4), not {value!r}")
    found = tuple(whole(each, name) for each in value)
    if not found:
        raise Unusable(f"{name} is empty: a sample would have nothing")
    return found


def _numbers(name: str, value: object, least: int) -> dict[str, int]:
    if value is None:
        return {}
    if not isinstance(value, Mapping):
        raise Unusable(f'{name} is a mapping from dimensions to numbers of elements, as {{"lat": 64}}, not {value!r}')
    return {str(each): whole(number, f"{name} of {each!r}", least) for each, number in value.items()}


def _listed(name: str, value: Sequence[object] | np.ndarray[Any, Any]) -> list[int]:
    if len(value) and all(isinstance(each, bool | np.bool_) for each in value):
        raise Unusable(f"select of {name!r} is a mask, and takes numbers of elements: np.flatnonzero(mask)")
    return [whole(each, f"select of {name!r}") for each in value]


def _counts_no_elements(value: object) -> bool:
    """Say whether what selects is a time, a coordinate or a range of such."""
    bounds = (value.start, value.stop, value.step) if isinstance(value, slice) else (value,)
    if isinstance(value, slice):
        return any(each is not None and not hasattr(each, "__index__") for each in bounds)
    return isinstance(value, str | float | np.datetime64) or hasattr(value, "isoformat")


def _selected(select: object) -> dict[str, int | slice | Sequence[int]]:
    if select is None:
        return {}
    if not isinstance(select, Mapping):
        example = 'select is a mapping, as {"time": slice(0, 1000), "variable": [0, 3]}'
        raise Unusable(f"{example}, not {select!r}")
    found: dict[str, int | slice | Sequence[int]] = {}
    for name, value in select.items():
        if _counts_no_elements(value):
            raise Unusable(
                f"select of {name!r} counts elements, and {value!r} has other values: of times or coordinates, xarray "
                f'gives the numbers, as in select={{{name!r}: ds.indexes[{name!r}].slice_indexer("2000", "2010")}}'
            )
        if _is_number(value):
            found[str(name)] = whole(value, f"select of {name!r}")
        elif isinstance(value, slice) or (
            isinstance(value, Sequence | np.ndarray) and not isinstance(value, str | bytes)
        ):
            found[str(name)] = value if isinstance(value, slice) else _listed(str(name), value)
        else:
            raise Unusable(f"select of {name!r} is an element's number, a slice or a list of numbers, not {value!r}")
    return found
