"""Histogram with buckets of equal ratio: quantiles of any number of positive values in two kilobytes."""

from __future__ import annotations

from array import array
from bisect import bisect_left
from functools import cache
from typing import TYPE_CHECKING, Final, NamedTuple, Protocol, Self

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

# The bounds of a bucket are 9 % apart, so a quantile is accurate to 4.5 %.
_PER_OCTAVE: Final = 8
_OCTAVES: Final = 30  # for seconds: 1 µs to 18 minutes
_RATIOS: Final = tuple(2.0 ** (step / _PER_OCTAVE) for step in range(_OCTAVES * _PER_OCTAVE + 1))
# The first bucket holds all values up to the smallest bound, the last one all values above the largest bound.
_BUCKETS: Final = len(_RATIOS) + 1
WORDS: Final = 1 + _BUCKETS  # the sum in units of ``least``, then the buckets


class Words(Protocol):
    """Sequence of integers: an ``array``, or a ``memoryview`` of shared memory cast to ``"q"``."""

    def __len__(self) -> int: ...

    def __getitem__(self, at: int, /) -> int: ...

    def __setitem__(self, at: int, value: int, /) -> None: ...

    def __iter__(self) -> Iterator[int]: ...


class Bucket(NamedTuple):
    """Bucket of a histogram: ``size`` numbers above ``low`` and up to ``high``."""

    low: float
    high: float
    size: int


class Histogram:
    """Histogram of numbers from ``least`` to 2³⁰ times ``least``; numbers outside count as the nearest bound.

    One thread may add while others read; readers may see slightly older counts. Histograms with the same ``least`` can
    be added and subtracted bucket by bucket: add those of several processes to merge them, subtract an earlier copy to
    get the counts since then.

    Attributes:
        least: Upper bound of the first bucket, in the unit of the numbers.
        words: Whole state in ``WORDS`` integers, which may be in shared memory.
    """

    __slots__ = ("_bounds", "least", "words")

    def __init__(self, least: float = 1e-6, words: Words | None = None) -> None:
        """Create an empty histogram, or one that reads and updates ``words`` in place."""
        self.least = least
        self.words: Words = array("q", bytes(8 * WORDS)) if words is None else words
        self._bounds = _compute_bounds(least)

    def add(self, value: float, weight: int = 1) -> None:
        """Count a number ``weight`` times; a negative number or NaN counts as 0."""
        value = value if value > 0 else 0.0
        words = self.words
        at = bisect_left(self._bounds, value)
        words[1 + at] += weight
        words[0] += int(min(value, self._bounds[-1]) / self.least) * weight

    @property
    def count(self) -> int:
        return sum(self.words) - self.words[0]

    @property
    def total(self) -> float:
        """Sum of all numbers; numbers above the largest bound count as that bound."""
        return self.words[0] * self.least

    @property
    def mean(self) -> float:
        count = self.count
        return self.total / count if count else 0.0

    def quantile(self, share: float) -> float:
        """Return the quantile ``share`` (0 to 1), accurate to 4.5 %; 0.0 if the histogram is empty."""
        counts = [*self.words][1:]
        wanted = min(max(share, 0.0), 1.0) * sum(counts)
        seen = 0
        for at, count in enumerate(counts):
            seen += count
            if count and seen >= wanted:
                return self._middle(at)
        return 0.0

    def buckets(self) -> list[Bucket]:
        bounds = (0.0, *self._bounds, float("inf"))
        counts = [*self.words][1:]
        return [Bucket(bounds[at], bounds[at + 1], count) for at, count in enumerate(counts) if count]

    def copy(self) -> Self:
        return type(self)(self.least, array("q", self.words))

    def __add__(self, other: Histogram) -> Self:
        """Return the sum of both histograms, which must have the same ``least``."""
        return self._of(mine + its for mine, its in zip(self.words, other.words, strict=True))

    def __sub__(self, other: Histogram) -> Self:
        return self._of(max(0, mine - its) for mine, its in zip(self.words, other.words, strict=True))

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Histogram) and (self.least, [*self.words]) == (other.least, [*other.words])

    def __hash__(self) -> int:
        raise TypeError("a histogram is mutable, so it cannot be a key")

    def __repr__(self) -> str:
        median, high = self.quantile(0.5), self.quantile(0.99)
        return f"Histogram(count={self.count}, mean={self.mean:.3g}, p50={median:.3g}, p99={high:.3g})"

    def _of(self, words: Iterable[int]) -> Self:
        return type(self)(self.least, array("q", words))

    def _middle(self, at: int) -> float:
        """Return the representative value of a bucket: the geometric mean of its bounds."""
        bounds = self._bounds
        if at == 0 or at == len(bounds):
            return bounds[min(at, len(bounds) - 1)]
        return float((bounds[at - 1] * bounds[at]) ** 0.5)


@cache
def _compute_bounds(least: float) -> tuple[float, ...]:
    return tuple(least * ratio for ratio in _RATIOS)
