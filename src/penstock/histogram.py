"""Counts of positive numbers in buckets of equal ratio: quantiles of any size in two kilobytes."""

from __future__ import annotations

from array import array
from bisect import bisect_left
from typing import TYPE_CHECKING, Final, NamedTuple, Protocol, Self

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

__all__ = ["WORDS", "Bucket", "Histogram"]

_PER_OCTAVE: Final = 8  # a bucket's bounds are 9 % apart, so a quantile is right to 4.5 %
_OCTAVES: Final = 30  # of seconds from 1 µs: up to 18 minutes
_RATIOS: Final = tuple(2.0 ** (step / _PER_OCTAVE) for step in range(_OCTAVES * _PER_OCTAVE + 1))
_BUCKETS: Final = len(_RATIOS) + 1  # the first has all up to the least, the last all beyond the greatest
WORDS: Final = 1 + _BUCKETS  # the sum, in units of the least, and the buckets


class Words(Protocol):
    """Integers in a row: an ``array``, or a ``memoryview`` of shared memory cast to ``"q"``."""

    def __len__(self) -> int:
        """Return how many there are."""

    def __getitem__(self, at: int, /) -> int:
        """Return one."""

    def __setitem__(self, at: int, value: int, /) -> None:
        """Replace one."""

    def __iter__(self) -> Iterator[int]:
        """Yield them."""


class Bucket(NamedTuple):
    """Numbers above ``low``, up to ``high``: ``size`` of them."""

    low: float
    high: float
    size: int


class Histogram:
    """Counts of numbers from ``least`` to 2³⁰ times that; smaller and larger ones count as the nearest of these.

    One thread may add while others read: they see counts of a moment ago. Histograms of the same ``least`` are added
    and subtracted bucket by bucket, so those of several processes make one, and a later one less an earlier one has
    what came in between.

    Attributes:
        least: Bound of the first bucket, in the unit of the numbers.
        words: ``WORDS`` integers that hold everything, for shared memory.

    """

    __slots__ = ("_bounds", "least", "words")

    def __init__(self, least: float = 1e-6, words: Words | None = None) -> None:
        """Begin empty, or with what ``words`` hold, which are written to in place."""
        self.least = least
        self.words: Words = array("q", bytes(8 * WORDS)) if words is None else words
        self._bounds = _bounds(least)

    def add(self, value: float, weight: int = 1) -> None:
        """Count a number ``weight`` times; one that is negative, or no number, counts as 0."""
        value = value if value > 0 else 0.0
        words = self.words
        at = bisect_left(self._bounds, value)
        words[1 + at] += weight
        words[0] += int(min(value, self._bounds[-1]) / self.least) * weight

    @property
    def count(self) -> int:
        """How many numbers were counted."""
        return sum(self.words) - self.words[0]

    @property
    def total(self) -> float:
        """The sum of all numbers; those beyond the greatest bucket as its bound."""
        return self.words[0] * self.least

    @property
    def mean(self) -> float:
        """The mean; 0.0 of none."""
        count = self.count
        return self.total / count if count else 0.0

    def quantile(self, share: float) -> float:
        """Return the number that ``share`` (0 to 1) of all do not exceed, to 4.5 %; 0.0 of none."""
        counts = [*self.words][1:]
        wanted = min(max(share, 0.0), 1.0) * sum(counts)
        seen = 0
        for at, count in enumerate(counts):
            seen += count
            if count and seen >= wanted:
                return self._middle(at)
        return 0.0

    def buckets(self) -> list[Bucket]:
        """Return the buckets that have a count, from the smallest numbers to the greatest."""
        bounds = (0.0, *self._bounds, float("inf"))
        counts = [*self.words][1:]
        return [Bucket(bounds[at], bounds[at + 1], count) for at, count in enumerate(counts) if count]

    def copy(self) -> Self:
        """Return another one with the same counts, in memory of its own."""
        return type(self)(self.least, array("q", self.words))

    def __add__(self, other: Histogram) -> Self:
        """Return the counts of both, which have the same ``least``."""
        return self._of(mine + its for mine, its in zip(self.words, other.words, strict=True))

    def __sub__(self, other: Histogram) -> Self:
        """Return what came since ``other``, an earlier copy."""
        return self._of(max(0, mine - its) for mine, its in zip(self.words, other.words, strict=True))

    def __eq__(self, other: object) -> bool:
        """Compare counts."""
        return isinstance(other, Histogram) and (self.least, [*self.words]) == (other.least, [*other.words])

    def __hash__(self) -> int:
        """Refuse: counts change."""
        raise TypeError("a histogram changes, so it cannot be a key")

    def __repr__(self) -> str:
        """Name what matters."""
        median, high = self.quantile(0.5), self.quantile(0.99)
        return f"Histogram(count={self.count}, mean={self.mean:.3g}, p50={median:.3g}, p99={high:.3g})"

    def _of(self, words: Iterable[int]) -> Self:
        return type(self)(self.least, array("q", words))

    def _middle(self, at: int) -> float:
        """Return what stands for a bucket: the geometric middle of its bounds."""
        bounds = self._bounds
        if at == 0 or at == len(bounds):
            return bounds[min(at, len(bounds) - 1)]
        return float((bounds[at - 1] * bounds[at]) ** 0.5)


_known: dict[float, tuple[float, ...]] = {}


def _bounds(least: float) -> tuple[float, ...]:
    if least not in _known:
        _known[least] = tuple(least * ratio for ratio in _RATIOS)
    return _known[least]
