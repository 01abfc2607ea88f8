"""Extension types of Arrow in Parquet files: tensors with their shapes, UUIDs, bools of 8 bits, and refusals of others.

A type is known by the name in the file, whether or not a library that is imported has registered it with pyarrow: the
same file gives the same values in every process. Formats: Arrow's canonical extension types; ``ArrayXD`` of Hugging
Face datasets; tensors of Ray Data.
"""

from __future__ import annotations

import json
import re
from math import prod
from typing import TYPE_CHECKING, Any, NamedTuple
from uuid import UUID

from penstock.data.parquet import libraries
from penstock.errors import Damaged, Unsupported
from penstock.schema import COUNT, read_json

if TYPE_CHECKING:
    from collections.abc import Callable

_NAME, _ABOUT = b"ARROW:extension:name", b"ARROW:extension:metadata"
_FIXED, _VARIABLE = "arrow.fixed_shape_tensor", "arrow.variable_shape_tensor"
_RAY = ("ray.data.arrow_tensor", "ray.data.arrow_tensor_v2")
_RAY_VARIABLE = "ray.data.arrow_variable_shaped_tensor"
_ARRAYS = tuple(f"datasets.features.features.Array{axes}DExtensionType" for axes in range(2, 6))
_PERMUTED = re.compile(r"permutation=\[([\d,]+)\]")
_AXES = ([COUNT], None)
_FORMS: dict[str, object] = {_FIXED: {"shape": [COUNT], "permutation?": _AXES}, _VARIABLE: {"permutation?": _AXES}}
_FORMS |= {name: [COUNT] for name in _RAY}
# The shape and the type of the elements, which are those of the lists.
_FORMS |= {name: [[(COUNT, None)], object] for name in _ARRAYS}
# Types whose values are those of their storage.
_AS_STORED = ("arrow.json",)


class Extension(NamedTuple):
    """An extension type of a column.

    Attributes:
        name: Its name in the file.
        shape: Length of each axis, None where values differ; None as a whole for types that have none.
        axes: Order of the axes of a value, as numbers of those that are stored; empty: as they are stored.
        known: Whether its values can be made.
    """

    name: str
    shape: tuple[int | None, ...] | None = None
    axes: tuple[int, ...] = ()
    known: bool = True

    def __str__(self) -> str:
        shape = "" if self.shape is None else f" of shape {list(self.shape)}"
        return f"{self.name}{shape}{f' with axes {list(self.axes)}' if self.axes else ''}"


def extension_of(field: Any) -> Extension | None:  # noqa: ANN401  pyarrow's
    """Return the extension type of a column; None if it has a plain one."""
    pa, _ = libraries("the file")
    kind, about = field.type, field.metadata or {}
    if isinstance(kind, pa.BaseExtensionType):
        name, text = kind.extension_name, _serialize_type(kind)
    elif _NAME in about:
        name, text = about[_NAME].decode("utf-8", "replace"), about.get(_ABOUT, b"")
    else:
        # Types within lists and structs: their meaning would be lost.
        return None if plain_type(kind).equals(kind) else Extension(str(kind), known=False)
    return _extension(name, text, f"the type {name} of the column {field.name!r}")


def _serialize_type(kind: Any) -> bytes:  # noqa: ANN401  pyarrow's
    """Return the description of a registered type, as a file has it."""
    if kind.extension_name == _FIXED:
        return json.dumps({"shape": kind.shape, "permutation": kind.permutation}).encode()
    if kind.extension_name == _VARIABLE:
        # pyarrow knows the type, and has no class for it.
        axes = _PERMUTED.search(str(kind))
        return f'{{"permutation": [{axes[1]}]}}'.encode() if axes else b""
    text: bytes = kind.__arrow_ext_serialize__() if hasattr(kind, "__arrow_ext_serialize__") else b""
    return text


def _extension(name: str, text: bytes, what: str) -> Extension:
    if name not in _FORMS:
        return Extension(name, known=name in ("arrow.uuid", "arrow.bool8", _RAY_VARIABLE, *_AS_STORED))
    about = read_json(text or b"{}", _FORMS[name], what)
    if name == _FIXED:
        return Extension(name, tuple(about["shape"]), _axes(about.get("permutation"), len(about["shape"]), what))
    if name == _VARIABLE:
        axes = about.get("permutation") or []
        return Extension(name, None, _axes(axes, len(axes), what))
    return Extension(name, tuple(about if name in _RAY else about[0]))


def _axes(given: list[int] | None, count: int, what: str) -> tuple[int, ...]:
    """Return the order of axes; empty for the stored order."""
    if given is None or given == [*range(count)]:
        return ()
    if sorted(given) != [*range(count)]:
        raise Damaged(f"cannot read {what}: {given!r:.80} is not an order of {count} axes")
    if any(given[given[axis]] != axis for axis in range(count)):
        raise Unsupported(
            f"tensors whose axes are in the order {given} cannot be read, since programs interpret them differently: "
            "write them in the order of their axes"
        )
    return tuple(given)


def plain_type(kind: Any) -> Any:  # noqa: ANN401  pyarrow's
    """Return a type with the storage type for each extension type, in lists, maps and structs, too."""
    pa, _ = libraries("the file")
    if isinstance(kind, pa.BaseExtensionType):
        return plain_type(kind.storage_type)
    if not any(isinstance(each, pa.BaseExtensionType) for each in _inner(kind)):
        return kind
    if pa.types.is_struct(kind):
        return pa.struct([_plain_field(each) for each in kind])
    if pa.types.is_map(kind):
        return pa.map_(_plain_field(kind.key_field), _plain_field(kind.item_field), keys_sorted=kind.keys_sorted)
    if pa.types.is_fixed_size_list(kind):
        return pa.list_(_plain_field(kind.value_field), kind.list_size)
    return (pa.large_list if pa.types.is_large_list(kind) else pa.list_)(_plain_field(kind.value_field))


def _plain_field(field: Any) -> Any:  # noqa: ANN401  pyarrow's
    return field.with_type(plain_type(field.type))


def _inner(kind: Any) -> list[Any]:  # noqa: ANN401  pyarrow's
    """Return a type and all its nested types."""
    found = [kind]
    for each in found:
        if each.num_fields:
            found += [each.field(number).type for number in range(each.num_fields)]
    return found


def plain_array(array: Any) -> Any:  # noqa: ANN401  pyarrow's
    """Return a column with the storage instead of extension types, registered or not."""
    pa, _ = libraries("the file")
    while isinstance(array.type, pa.BaseExtensionType):
        array = array.storage
    kind = plain_type(array.type)
    return array if kind.equals(array.type) else array.cast(kind)


def extension_value(extension: Extension, array: Any, named: str) -> Callable[[int], Any] | None:  # noqa: ANN401  pyarrow's
    """Return a function from the number of a row to its value, given the storage; None: values are as stored."""
    make: dict[str, Callable[[Any], Any]] = {
        "arrow.uuid": lambda scalar: UUID(bytes=bytes(scalar.as_py())),
        "arrow.bool8": lambda scalar: bool(scalar.as_py()),
        **dict.fromkeys(
            (_VARIABLE, _RAY_VARIABLE),
            lambda scalar: _shape_tensor(scalar["data"].values, scalar["shape"].as_py(), extension, named),
        ),
        **dict.fromkeys(
            (_FIXED, *_RAY), lambda scalar: _shape_tensor(scalar.values, extension.shape, extension, named)
        ),
        **dict.fromkeys(_ARRAYS, lambda scalar: _nest_tensor(scalar.values, extension, named)),
    }
    found = make.get(extension.name) if extension.known else None
    if found is None:
        return None

    def value(row: int) -> Any:  # noqa: ANN401  as the type has it
        scalar = array[row]
        return found(scalar) if scalar.is_valid else None

    return value


def _shape_tensor(values: Any, shape: Any, extension: Extension, named: str) -> Any:  # noqa: ANN401  pyarrow's, and an array
    """Return a tensor of elements in the order in which they are stored."""
    sizes = [*shape] if shape is not None and all(isinstance(each, int) and each >= 0 for each in shape) else None
    if values is None or sizes is None or values.null_count or len(values) != prod(sizes):
        held = "no" if values is None else f"{len(values) - values.null_count}"
        raise Damaged(f"{named} has {held} elements in a tensor of the shape {shape}")
    found = values.to_numpy(zero_copy_only=False).reshape(sizes)
    return found.transpose(extension.axes) if extension.axes else found


def _nest_tensor(values: Any, extension: Extension, named: str) -> Any:  # noqa: ANN401  pyarrow's, and an array
    """Return a tensor of lists in lists."""
    stated, found = extension.shape or (), [len(values)]
    while values.type.num_fields:
        lengths = {*values.value_lengths().to_pylist()} or {(*stated, 0)[min(len(found), len(stated))] or 0}
        if len(lengths) > 1 or None in lengths:
            raise Damaged(f"{named} has lists of different lengths, not of shape {[*stated]}")
        found += lengths
        values = values.flatten()
    if len(found) != len(stated) or any(want not in (None, size) for want, size in zip(stated, found, strict=True)):
        raise Damaged(f"{named} has the shape {found}, but its type declares {[*stated]}")
    return _shape_tensor(values, found, extension, named)
