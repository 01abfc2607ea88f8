"""Filling of a state from the values of a checkpoint; all are compared before any is changed."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, Any

from penstock.checkpoint.staging import memory_bounds, torch_module
from penstock.errors import Unusable, kind_of
from penstock.tree import tree_map

if TYPE_CHECKING:
    from collections.abc import Callable


def fill_state(into: dict[Any, Any], state: object) -> dict[Any, Any]:
    """Fill ``into`` from the state that one process saved, below the keys that it has, and return it.

    Tensors are filled in place, objects with ``load_state_dict`` load their part, and other values are replaced. Values
    that ``into`` lacks below its keys are added. Raises ``Unusable`` before anything is changed, except for tensors
    that share memory and have different values in the checkpoint.
    """
    if not isinstance(state, dict):
        raise Unusable(f"into= needs a state that is a dict, got {kind_of(state)}: call restore() without into=")
    if missing := into.keys() - state.keys():
        raise Unusable(f"the checkpoint has no {min(map(repr, missing))}: it has {', '.join(map(repr, state))}")
    filling = Filling()
    for key, own in into.items():
        filling.set(into, key, filling.merge(own, state[key], f"into[{key!r:.80}]"))
    filling.apply()
    return into


class Filling:
    """Values to fill a state with: each ``merge`` compares, and ``apply`` changes the state."""

    def __init__(self) -> None:
        self._acts: list[Callable[[], object]] = []
        self._tensors: list[tuple[Any, Any, str]] = []

    def apply(self) -> None:
        """Change the state; raise ``Unusable`` if tensors share memory, and were given different values."""
        torch = torch_module()
        with torch.no_grad():
            for own, value, _ in self._tensors:
                own.copy_(value)
        for act in self._acts:
            act()
        for own, value, name in _find_overlaps(self._tensors):
            filled = value.to(own)
            if not bool(((own == filled) | ((own != own) & (filled != filled))).all()):  # noqa: PLR0124  NaN
                raise Unusable(f"{name} shares memory with another tensor, but their values differ in the checkpoint")

    def set(self, container: Any, key: Any, value: object) -> None:  # noqa: ANN401  a dict or a list
        """Put a result of ``merge`` into its container, if it is a new object."""
        if not (isinstance(container, list) or key in container) or container[key] is not value:
            self._acts.append(partial(container.__setitem__, key, value))

    def merge(self, own: Any, value: Any, name: str) -> Any:  # noqa: ANN401  parts of any state
        """Return the object that takes the place of ``own``: itself, to be filled, or the checkpoint's value."""
        if own is value:
            return own
        if hasattr(own, "load_state_dict"):
            self._acts.append(partial(own.load_state_dict, value))
        elif isinstance(own, torch_module().Tensor):
            _check_tensor(own, value, name)
            self._tensors.append((own, value, name))
        elif isinstance(own, dict) and isinstance(value, dict):
            if missing := [key for key in own if key not in value]:
                raise Unusable(f"{name} has the key {missing[0]!r}, which the checkpoint lacks")
            for key, each in value.items():
                self.set(own, key, self.merge(own.get(key), each, f"{name}[{key!r:.80}]"))
        elif isinstance(own, list) and isinstance(value, list) and len(own) == len(value):
            for number, each in enumerate(value):
                self.set(own, number, self.merge(own[number], each, f"{name}[{number}]"))
        else:
            return self._tuple(own, value, name) if _holds_tensors(own) else value
        return own

    def _tuple(self, own: Any, value: Any, name: str) -> Any:  # noqa: ANN401  parts of any state
        """Return a tuple that holds tensors, or a new one with the same tensors and other values."""
        if not isinstance(own, tuple) or type(own) is not type(value) or len(own) != len(value):
            shown = f"{kind_of(value)} of {len(value)}" if isinstance(value, list | tuple) else kind_of(value)
            raise Unusable(f"{name} holds tensors, which cannot be filled in place: the checkpoint has {shown} instead")
        parts = [self.merge(one, each, f"{name}[{n}]") for n, (one, each) in enumerate(zip(own, value, strict=True))]
        if all(part is one for part, one in zip(parts, own, strict=True)):
            return own
        return type(own)(*parts) if hasattr(own, "_fields") else type(own)(parts)


def _holds_tensors(tree: object) -> bool:
    found: list[Any] = []
    tree_map(found.append, tree, torch_module().Tensor)
    return bool(found)


def _check_tensor(own: Any, value: Any, name: str) -> None:  # noqa: ANN401  torch is not imported here
    if not isinstance(value, torch_module().Tensor):
        raise Unusable(f"{name} is a tensor, but {kind_of(value)} in the checkpoint")
    if hasattr(own, "device_mesh"):
        raise Unusable(
            f"{name} is a DTensor, and one process saved whole tensors: restore() without into=, and pass the model's "
            "state to torch.distributed.checkpoint.state_dict.set_model_state_dict with full_state_dict=True"
        )
    if own.layout != value.layout or own.is_nested != value.is_nested or own.is_quantized != value.is_quantized:
        raise Unusable(
            f"{name} is {_describe_layout(own)}, and the checkpoint has {_describe_layout(value)}: pass one of the "
            "same form"
        )
    if not own.is_nested and own.shape != value.shape:
        raise Unusable(f"{name} has the shape {tuple(own.shape)}, and the checkpoint's {tuple(value.shape)}")
    if value.is_meta:
        raise Unusable(f"{name} cannot be filled: map_location='meta' loads no values")
    reason = _other_form(own, value) or cannot_fill(own, value.dtype)
    if reason:
        raise Unusable(f"{name} {reason}")


def _describe_layout(tensor: Any) -> str:  # noqa: ANN401  see _check_tensor
    kind = "nested" if tensor.is_nested else "quantized" if tensor.is_quantized else "a tensor"
    return f"{kind} ({tensor.layout}, {tensor.dtype})"


def _other_form(own: Any, value: Any) -> str:  # noqa: ANN401  see _check_tensor
    """Return why a sparse or quantized tensor cannot be filled in place with another of its layout."""
    torch = torch_module()
    advice = "cannot be filled in place: leave its key out of into=, or restore() without into="
    if own.is_nested:
        return f"is nested, and {advice}"
    if own.is_quantized and (own.dtype, own.qscheme()) != (value.dtype, value.qscheme()):
        return f"is quantized in another way than the checkpoint's, and {advice}"
    if own.layout in (torch.strided, torch.sparse_coo):
        same = own.layout is torch.strided or own.sparse_dim() == value.sparse_dim()
    elif own.layout in (torch.sparse_csr, torch.sparse_csc, torch.sparse_bsr, torch.sparse_bsc):
        same = own.values().shape == value.values().shape
    else:
        same = False
    return "" if same else f"({own.layout}) has other places for elements than the checkpoint's, and {advice}"


def cannot_fill(own: Any, dtype: Any) -> str:  # noqa: ANN401  see _check_tensor
    """Return why a tensor cannot be filled with elements of a dtype; empty if it can."""
    torch = torch_module()
    if own.is_meta:
        return "is on the device 'meta', which has no memory: make it with to_empty()"
    if own.is_inference() and not torch.is_inference_mode_enabled():
        return "was made in inference mode, and cannot be changed outside it: pass its clone()"
    if not _lossless(dtype, own.dtype):
        return f"has the dtype {own.dtype}, which cannot hold the checkpoint's {dtype}"
    if own.layout is torch.strided and not own.is_nested and _self_overlapping(own):
        return "has several elements in one place of memory: pass its contiguous()"
    return ""


def _lossless(dtype: Any, to: Any) -> bool:  # noqa: ANN401  dtypes
    """Return whether a conversion keeps values, but for the precision of floating-point numbers."""
    torch = torch_module()
    if dtype == to:
        return True
    if not torch.can_cast(dtype, to):
        return False
    if to.is_floating_point or to.is_complex or torch.bool in (dtype, to):
        return True
    old, new = torch.iinfo(dtype), torch.iinfo(to)
    return bool(new.min <= old.min and old.max <= new.max)


def _self_overlapping(tensor: Any) -> bool:  # noqa: ANN401  see _check_tensor
    """Return whether elements may share memory, as those of an expanded tensor do."""
    if not tensor.numel():
        return False
    reach = 0
    for stride, size in sorted(zip(tensor.stride(), tensor.shape, strict=True)):
        if size > 1:
            if stride <= reach:
                return True
            reach += (size - 1) * stride
    return False


def _find_overlaps(tensors: list[tuple[Any, Any, str]]) -> list[tuple[Any, Any, str]]:
    torch = torch_module()
    placed = []
    for number, (own, _, _) in enumerate(tensors):
        if own.layout is torch.strided and own.numel() and not own.is_quantized and type(own.detach()) is torch.Tensor:
            placed.append((str(own.device), *memory_bounds(own), number))
    found: set[int] = set()
    last = ("", 0, 0, 0)
    for each in sorted(placed):
        if each[0] == last[0] and each[1] < last[2]:
            found |= {each[3], last[3]}
        if each[0] != last[0] or each[2] > last[2]:
            last = each
    return [tensors[number] for number in sorted(found)]
