"""Random nested states, others to restore them into, and a comparison by value and type."""

from __future__ import annotations

import math
from collections import Counter, OrderedDict, defaultdict, deque
from datetime import date
from typing import TYPE_CHECKING, Any

import numpy as np
import torch

from penstock.tree import tree_map

if TYPE_CHECKING:
    import random
    from collections.abc import Callable

LEAVES: list[Callable[[], Any]] = [
    lambda: None,
    lambda: True,
    lambda: 7,
    lambda: math.nan,
    lambda: "ü",
    lambda: b"",
    lambda: b"ab\0",
    lambda: np.bytes_(b"ab\0"),
    lambda: np.float32(0.5),
    lambda: np.arange(6.0).reshape(2, 3),
    lambda: (),
    lambda: (1, [2, {}], {"a": {3}}),
    dict,
    list,
    lambda: [1, {}],
    lambda: [1, {"a": [{}]}],
    OrderedDict,
    lambda: OrderedDict(a=1),
    lambda: Counter({30: 1, 80: 2}),
    lambda: defaultdict(list, {(1, "a"): [1]}),
    lambda: deque([1], 3),
    lambda: {0: "zero", None: {1.5: True}},
    lambda: date(2026, 1, 2),
    lambda: torch.Size([1, 2]),
]
TENSORS: list[Callable[[], torch.Tensor]] = [
    lambda: torch.rand(2, 3),
    lambda: torch.rand(4, 3).T,
    lambda: torch.rand(1).expand(3),
    lambda: torch.tensor(5),
    lambda: torch.empty(0, 3),
    lambda: torch.rand(2, dtype=torch.complex64).conj(),
    lambda: torch.rand(3)._neg_view(),
    lambda: torch.rand(3).to(torch.bfloat16),
    lambda: torch.rand(8)[::2],
    lambda: torch.nn.Parameter(torch.rand(2)),
]
KEYS = ["a", "b.c", "", "é", 0, 1, 2.5, None, True, (1, "x"), np.int64(9), "0"]


def nested(draw: random.Random, depth: int = 3) -> Any:
    """Return a random value."""
    kind = draw.randrange(7 if depth else 3)
    if kind < 2:
        return draw.choice(LEAVES)()
    if kind == 2:
        return draw.choice(TENSORS)()
    if kind == 3:
        return [nested(draw, depth - 1) for _ in range(draw.randrange(3))]
    if kind == 4 and depth < 3:
        return tuple(nested(draw, depth - 1) for _ in range(draw.randrange(3)))
    keys = draw.sample(KEYS if kind == 5 else KEYS[:4], draw.randrange(4))
    return {key: nested(draw, depth - 1) for key in keys}


def state(draw: random.Random) -> dict[str, Any]:
    """Return a random state."""
    return {key: nested(draw) for key in draw.sample(["model", "optimizer", "0", "x.y"], draw.randrange(1, 4))}


def blank(value: Any, draw: random.Random) -> Any:
    """Return another value with places for all tensors: without some of the values, or with others."""
    if isinstance(value, torch.Tensor):
        return torch.zeros(value.shape, dtype=value.dtype)
    if not holds_tensors(value):
        return draw.choice([value, value, None, 3, type(value)() if isinstance(value, (dict, list)) else "other"])
    if isinstance(value, dict):
        kept = {key: each for key, each in value.items() if holds_tensors(each) or draw.random() < 0.7}
        return {key: blank(each, draw) for key, each in kept.items()}
    return type(value)(blank(each, draw) for each in value)


def holds_tensors(value: object) -> bool:
    """Return whether nested containers hold a tensor."""
    found: list[Any] = []
    tree_map(found.append, value, torch.Tensor)
    return bool(found)


def difference(one: Any, other: Any, at: str = "", *, filled: bool = False) -> str:
    """Return where two values differ in type or value; ``filled`` compares with a state that was filled in place."""
    # A tensor or a dict that was there keeps its class.
    kept = filled and any(isinstance(one, kind) and isinstance(other, kind) for kind in (dict, torch.Tensor))
    same, inner = kept or type(one) is type(other), []
    if isinstance(one, torch.Tensor):
        same = same and one.dtype == other.dtype and torch.equal(one.resolve_conj(), other.resolve_conj())
    elif isinstance(one, dict):
        same = same and {(type(key), key) for key in one} == {(type(key), key) for key in other}
        inner = [(key, one[key], other[key]) for key in one] if same else []
    elif isinstance(one, (list, tuple, deque)):
        same = same and len(one) == len(other)
        inner = [(number, *pair) for number, pair in enumerate(zip(one, other, strict=True))] if same else []
    elif isinstance(one, np.ndarray):
        same = same and one.dtype == other.dtype and np.array_equal(one, other)
    elif isinstance(one, bytes):
        same = same and [*one] == [*other]
    else:
        same = same and (one == other or (one != one and other != other))  # noqa: PLR0124  NaN
    found = (difference(a, b, f"{at}[{key!r}]", filled=filled) for key, a, b in inner)
    return next(filter(None, found), "") if same else f"{at}: {one!r}, {other!r}"
