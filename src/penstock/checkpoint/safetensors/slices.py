"""Which elements an index needs of a tensor: one run of them, and what is left to do once it is there. Pure."""

from __future__ import annotations

from math import prod
from typing import Any, NamedTuple

__all__ = ["Cut", "cut"]


class Cut(NamedTuple):
    """Elements ``[start, stop)`` of a tensor, in its order.

    Attributes:
        start: First element, inclusive.
        stop: Last element, exclusive.
        shape: The run's own shape.
        rest: The index that is still to be applied to it.

    """

    start: int
    stop: int
    shape: tuple[int, ...]
    rest: tuple[Any, ...]


def cut(shape: tuple[int, ...], index: Any) -> Cut:  # noqa: ANN401  whatever a tensor may be indexed by
    """Return the shortest run that holds what ``index`` asks of a tensor of ``shape``.

    Whole numbers choose from the leading dimensions, then a slice from the next: just those elements. What comes after
    is left to ``rest``. The index must be one that the tensor takes.
    """
    rest = index if isinstance(index, tuple) else (index,)
    start, count = 0, prod(shape)
    while rest and type(rest[0]) is int and count:
        count //= shape[0]
        start += (rest[0] % shape[0]) * count
        shape, rest = shape[1:], rest[1:]
    if rest and isinstance(rest[0], slice) and count:
        chosen = range(shape[0])[rest[0]]
        count //= shape[0]
        first, last = (chosen[0], chosen[-1] + 1) if chosen else (0, 0)
        start += first * count
        return Cut(
            start,
            start + (last - first) * count,
            (last - first, *shape[1:]),
            (slice(None, None, chosen.step), *rest[1:]),
        )
    return Cut(start, start + count, shape, rest)
