"""Permutations of [0, n), computed at the requested positions; only small ones are stored."""

from __future__ import annotations

import hashlib
import math
from abc import ABC, abstractmethod
from functools import cached_property
from typing import TYPE_CHECKING

import numpy as np

from penstock.errors import Unusable

if TYPE_CHECKING:
    from numpy.typing import NDArray

MOST = 1 << 62  # samples of an order
_SMALL = 1 << 16
_ROUNDS = 6
# splitmix64 (Steele, Lea, Flood 2014): its increment, and the multipliers and shifts of its finaliser ("variant 13").
_GAMMA = np.uint64(0x9E3779B97F4A7C15)
_MIX = ((30, 0xBF58476D1CE4E5B9), (27, 0x94D049BB133111EB))
_ONE = np.uint64(1)
_LAST_SHIFT = np.uint64(31)


class EpochOrder(ABC):
    """The order of samples in an epoch: a bijection of [0, n), the same wherever it is computed.

    An order is cheap to create and can be pickled, and threads may share it.
    """

    n: int  # number of samples, and of positions

    def at(self, position: int) -> int:
        """Return the sample at one position; raises IndexError outside [0, n). ``block`` is far faster for many."""
        return int(self.block(position, position + 1)[0])

    def block(self, start: int, stop: int) -> NDArray[np.int64]:
        """Return the samples at positions [start, stop), as int64; raises IndexError if these are not within [0, n)."""
        if not 0 <= start <= stop <= self.n:
            raise IndexError(f"positions [{start}, {stop}) of an order of {self.n}")
        return self._samples(np.arange(start, stop, dtype=np.int64))

    def of(self, positions: NDArray[np.int64]) -> NDArray[np.int64]:
        """Return the samples at these positions, as a new int64 array; raises IndexError for any outside [0, n).

        Fastest in blocks of some thousand: 50 to 110 ns per position, plus at most 0.1 ms for the call.
        """
        if positions.size and not 0 <= positions.min() <= positions.max() < self.n:
            raise IndexError(f"positions {positions.min()} to {positions.max()} of an order of {self.n}")
        return self._samples(positions)

    @abstractmethod
    def _samples(self, positions: NDArray[np.int64]) -> NDArray[np.int64]:
        """Return the same as ``of``, for positions that are in [0, n)."""


class Permutation(EpochOrder):
    """The order of epoch ``epoch``: a bijection of [0, n) that depends only on (n, seed, epoch, scope).

    The order is the same on every platform and with every version of numpy: 64-bit integer arithmetic keyed by SHA-256.
    Below 65,536 samples, it is a sort by 64-bit hashes, computed on first use and kept (8 bytes each): every order is
    as likely as 128 bits of key allow. From there on, it is a six-round Feistel network, in O(1) memory. The network
    works on a rectangle of ceil(sqrt(n)) rows that holds n values or slightly more (a square of a power of two would
    hold up to four times as many), and is applied again until the result is below n. In chi-square tests of a million
    samples, its positions, neighbours, epochs and seeds cannot be told from independent ones. The network is not a
    cipher.

    ``n`` is at most 2^62; ``scope`` names one of several orders of an epoch.
    """

    def __init__(self, n: int, seed: int, epoch: int, scope: str = "") -> None:
        if not 0 <= n <= MOST:
            raise Unusable(f"an order must have 0 to 2^62 samples, got {n}")
        self.n = n
        names = (f"penstock order 1: {n} {seed} {epoch} {scope}{part}" for part in range(2))
        digests = (hashlib.sha256(name.encode()).digest() for name in names)
        self._keys = np.frombuffer(b"".join(digests), "<u8").astype(np.uint64)
        height = math.isqrt(max(n - 1, 0)) + 1
        self._height, self._width = np.uint64(height), np.uint64(-(-n // height))

    def _samples(self, positions: NDArray[np.int64]) -> NDArray[np.int64]:
        if self.n < _SMALL:
            return self._sorted[positions]
        samples = self._feistel(positions.astype(np.uint64))
        outside = np.flatnonzero(samples >= np.uint64(self.n))
        while outside.size:
            samples[outside] = self._feistel(samples[outside])
            outside = outside[samples[outside] >= np.uint64(self.n)]
        return samples.astype(np.int64)

    def position(self, sample: int) -> int:
        """Return the position of one sample; raises IndexError outside [0, n). The inverse of ``at``, at equal cost."""
        if not 0 <= sample < self.n:
            raise IndexError(f"sample {sample} of an order of {self.n}")
        if self.n < _SMALL:
            return int(np.flatnonzero(self._sorted == sample)[0])
        value = self._inverse(sample)
        while value >= self.n:
            value = self._inverse(value)
        return value

    @cached_property
    def _sorted(self) -> NDArray[np.int64]:
        hashes = mixed(np.arange(1, self.n + 1, dtype=np.uint64) * _GAMMA + self._keys[0])
        # Ties are impossible (mixing is a bijection), but "stable" also fixes the sort algorithm on every platform.
        return np.argsort(mixed(hashes ^ self._keys[1]), kind="stable").astype(np.int64)

    def _feistel(self, values: NDArray[np.uint64]) -> NDArray[np.uint64]:
        left, right = np.divmod(values, self._width)
        size, other = self._height, self._width
        for key in self._keys[:_ROUNDS]:
            # Halve the hash so that the sum does not wrap around 2^64: otherwise two values could collide.
            left, right = right, (left + (mixed(right ^ key) >> _ONE)) % size
            size, other = other, size
        return left * self._width + right

    def _inverse(self, value: int) -> int:
        """Return the number that ``_feistel`` maps to ``value``."""
        left, right = divmod(value, int(self._width))
        for turn in reversed(range(_ROUNDS)):
            size = int(self._width if turn % 2 else self._height)
            hashed = int(mixed(np.array([left], dtype=np.uint64) ^ self._keys[turn])[0]) >> 1
            left, right = (right - hashed) % size, left
        return left * int(self._width) + right


def mixed(values: NDArray[np.uint64]) -> NDArray[np.uint64]:
    """Return splitmix64's finaliser of each value: a bijection of 64 bits; each input bit flips half of the output."""
    mixed = values.copy()
    for shift, factor in _MIX:
        mixed ^= mixed >> np.uint64(shift)
        mixed *= np.uint64(factor)
    mixed ^= mixed >> _LAST_SHIFT
    return mixed
