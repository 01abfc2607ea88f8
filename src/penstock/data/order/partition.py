"""Partition of positions: global batches are cut into slices over ranks, and dealt in turn to workers."""

from __future__ import annotations

import operator
from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal, SupportsIndex, get_args

from penstock.errors import Unusable
from penstock.values import check_choice

if TYPE_CHECKING:
    from collections.abc import Iterator

    from penstock.values import Place

Tail = Literal["drop", "short", "pad"]


class Repeat(int):
    """The index of a repeated sample of this epoch, which fills a batch so that all ranks have equally many samples.

    A ``Repeat`` behaves like any int; code that counts or measures may check ``isinstance(index,
    penstock.order.Repeat)``.

    Example:
        >>> index = ps.order.Repeat(3)
        >>> index + 1, isinstance(index, ps.order.Repeat)
        (4, True)
    """

    __slots__ = ()


def sample_number(index: SupportsIndex, samples: int) -> int:
    """Return the number, from 0, of the sample at ``index``: from the end if that is negative; keep a ``Repeat``."""
    number = index if isinstance(index, Repeat) else operator.index(index)
    if not -samples <= number < samples:
        raise IndexError(f"sample {number} does not exist: there are {samples}, from 0")
    return number if number >= 0 else number + samples


@dataclass(frozen=True, slots=True, kw_only=True)
class Partition:
    """The batches of one worker of one rank: iteration yields positions ``(start, stop)``, half-open, never empty.

    With G = ``batch`` * world, global batch k is the positions [start + kG, start + (k + 1)G) below ``total``. Rank r
    takes the r-th of its equal slices; worker w takes the batches with k = w (mod workers). So the batches of a rank,
    merged in turn over its workers, do not depend on the number of workers. The global batches do not depend on the
    number of ranks as long as G stays the same. Every rank has the same number of batches. After m global batches, the
    state is one integer, ``start + m * G``; any place may continue from there.

    The last global batch may have fewer than G positions; ``tail`` controls it:

    - ``"drop"``: it is left out.
    - ``"short"``: it is cut as evenly as possible; slices differ by one position at most. If there are fewer positions
      than ranks, each rank still has one position: those past the end are repeats.
    - ``"pad"``: it is filled up to G with repeats.

    Positions from ``total`` on are repeats of the first samples of the epoch; of a mixture whose weights have changed
    within the epoch, of the first samples since then.

    Takes O(1) memory, and can be iterated any number of times.
    """

    total: int  # positions of the epoch
    batch: int  # samples per batch and rank
    place: Place  # the rank and the worker
    start: int = 0  # first position not yet taken, in [0, total]
    tail: Tail = "short"  # controls an incomplete last global batch

    def __post_init__(self) -> None:
        """Raise for values that would lose samples silently."""
        if not 0 <= self.start <= self.total:
            raise Unusable(f"position {self.start} of an epoch of {self.total} samples")
        if self.batch < 1:
            raise Unusable(f"a batch must have at least one sample, got {self.batch}")
        check_choice(self.tail, get_args(Tail), "tail")

    def __iter__(self) -> Iterator[tuple[int, int]]:
        """Yield this worker's batches in order."""
        return map(self._slice, self._numbers())

    def __len__(self) -> int:
        return len(self._numbers())

    def _numbers(self) -> range:
        every = self.batch * self.place.world
        complete, rest = divmod(self.total - self.start, every)
        return range(self.place.worker, complete + (rest > 0 and self.tail != "drop"), self.place.workers)

    def size(self, first: int) -> int:
        """Return the number of positions, over all ranks, of the global batch that begins at ``first``."""
        every = self.batch * self.place.world
        return every if self.tail == "pad" else min(every, max(self.total - first, self.place.world))

    def _slice(self, number: int) -> tuple[int, int]:
        rank, world = self.place.rank, self.place.world
        first = self.start + number * self.batch * world
        size = self.size(first)
        return first + size * rank // world, first + size * (rank + 1) // world
