"""Mapping of a function over nested containers: tuples, lists and dicts, as in batches and states."""

from __future__ import annotations

from collections.abc import Mapping
from copy import copy
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Callable


def tree_map(function: Callable[[Any], Any], tree: Any, kind: type) -> Any:  # noqa: ANN401  any tree
    """Apply ``function`` to each ``kind`` in nested tuples, named tuples, lists and mappings; keep all other values.

    A dict keeps its class and its attributes (a module's ``state_dict()`` has some); any other mapping becomes a dict.
    """
    if isinstance(tree, kind):
        return function(tree)
    if isinstance(tree, Mapping):
        result = copy(tree) if isinstance(tree, dict) else dict(tree)
        for key in result:
            result[key] = tree_map(function, result[key], kind)
        return result
    if isinstance(tree, (list, tuple)):
        each = [tree_map(function, one, kind) for one in tree]
        return type(tree)(*each) if hasattr(tree, "_fields") else type(tree)(each)
    return tree
