"""Walks nests: the tuples, lists and dicts that batches and states are made of."""

from __future__ import annotations

from collections.abc import Mapping
from copy import copy
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Callable

__all__ = ["mapped"]


def mapped(function: Callable[[Any], Any], nest: Any, kind: type) -> Any:  # noqa: ANN401  any nest
    """Apply ``function`` to each ``kind`` within tuples, named tuples, lists and mappings; anything else stays itself.

    A dict keeps its class and what it carries beside its items (a module's ``state_dict()`` does); any other mapping
    becomes a dict.
    """
    if isinstance(nest, kind):
        return function(nest)
    if isinstance(nest, Mapping):
        result = copy(nest) if isinstance(nest, dict) else dict(nest)
        for key in result:
            result[key] = mapped(function, result[key], kind)
        return result
    if isinstance(nest, (list, tuple)):
        each = [mapped(function, one, kind) for one in nest]
        return type(nest)(*each) if hasattr(nest, "_fields") else type(nest)(each)
    return nest
