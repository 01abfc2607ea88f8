"""Weighted shuffles of one dataset: with a share for each class, or a weight for each sample."""

from __future__ import annotations

import hashlib
import math
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from functools import partial
from typing import TYPE_CHECKING, Any, TypeAlias, TypeGuard

import numpy as np

from penstock.data.order.draws import Draws
from penstock.data.order.mixture import MixedSource, MixtureSpec, WeightCurve, by_temperature, steps_of
from penstock.data.order.orders import FullShuffle
from penstock.data.order.shuffle import Permutation, mix
from penstock.errors import Bug, Unusable
from penstock.values import switch, whole

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from numpy.typing import ArrayLike, NDArray

    from penstock.data.order.lanes import Lanes
    from penstock.data.order.protocol import Lookup

    _Arrivals: TypeAlias = tuple[NDArray[np.int64], NDArray[np.float64]]

_GAMMA = np.uint64(0x9E3779B97F4A7C15)
_FRACTION_BITS = 53
_RANGE = 1e200  # the greatest weight, and its reciprocal
# Weights that share a running total, and weights of a pass that are in hand at a time.
_BLOCK, _AT_ONCE = 64, 1 << 16
# Stretches of an epoch that are sorted one after the other, and the least of them.
_STRETCHES, _LEAST_STRETCH = 16, 1 << 16
# Intervals of time: the exponent of a number, and five bits more.
_TIME_BITS = 16
_INTERVAL = np.uint64(64 - 1 - _TIME_BITS)
_LAST_TIME = np.finfo(np.float64).max
_LAST_INTERVAL = int(_LAST_TIME.view(np.uint64) >> _INTERVAL)


@dataclass(frozen=True, slots=True, eq=False)
class WeightedShuffle:
    """Samples in random order with shares by class, or with a weight for each sample; for ``shuffle=``.

    Without arguments, all classes come equally often: ``ps.DataLoader(dataset, 256,
    shuffle=ps.order.WeightedShuffle())`` of a dataset with labels. Small classes repeat within an epoch, and large
    classes continue in the next: each class goes through all its samples, permuted each time, before one of them comes
    again. Shares are exact over 4,096 samples.

    With ``replacement=True``, each draw is independent of the ones before, as in torch's ``WeightedRandomSampler``.

    Samples come one by one from the whole dataset, each in a separate request: it is not for rows of Parquet files
    and compressed shards. To weigh several datasets, use ``ps.Mix``.

    An array of weights takes 8 bytes a sample, copied unless it is a read-only array of float64, such as
    ``np.load(path, mmap_mode="r")``, which the processes of a machine share. With replacement, a sample takes some
    microseconds and an epoch begins at once. Without, an epoch begins after some 25 ns for each weight, and again
    that long each time a sixteenth of it has passed.

    Attributes:
        weights: Weight of each class by name, of which only the proportion counts; or a sequence or array with the
            weight of each sample. Default: by ``temperature``.
        by: "label", or the name of a column of the catalog, whose values are the classes.
        temperature: Weights n ** temperature for classes of n samples, without ``weights``: 0 makes all classes alike,
            1 is in proportion.
        replacement: Whether a sample may come again before others of its class have come. With a weight for each
            sample and False, no sample comes twice in an epoch.
        epoch_samples: Samples of an epoch, over all ranks; default: as many as the dataset has. With a weight for each
            sample and without replacement: as many as have a weight above 0.

    Raises:
        Unusable: An argument is invalid; or, when a dataset is given the order, it has no such classes, or another
            number of samples.

    Example:
        >>> dataset = ps.MapDataset.from_prefix("s3://bucket/train/", labels="folder", transform=lambda s: s.label)
        >>> rare = ps.order.WeightedShuffle({name: 5 if name == "7" else 1 for name in dataset.classes})
        >>> batch = next(iter(ps.DataLoader(dataset, 280, shuffle=rare)))
        >>> int((batch == 7).sum()) > 70
        True
    """

    weights: Mapping[str, float] | Sequence[float] | NDArray[np.float64] | None = None
    by: str = "label"
    temperature: float | None = None
    replacement: bool = False
    epoch_samples: int | None = None
    # The samples sorted by class, and the number of them in each class; None: not fitted, or weights by sample.
    _members: NDArray[np.int64] | NDArray[np.uint32] | None = field(default=None, init=False, repr=False)
    _sizes: tuple[int, ...] = field(default=(), init=False, repr=False)
    # With replacement, the running totals of the samples' weights.
    _running: NDArray[np.float64] = field(default_factory=lambda: np.zeros(0), init=False, repr=False)
    identity: str = field(init=False, repr=False)

    def __post_init__(self) -> None:
        switch(self.replacement, "replacement")
        if not isinstance(self.by, str):
            raise Unusable(f'by must be "label" or the name of a column, got {self.by!r}')
        if self.epoch_samples is not None:
            whole(self.epoch_samples, "epoch_samples", 1)
        if self.weights is not None and self.temperature is not None:
            raise Unusable("weights and temperature exclude one another")
        if isinstance(self.weights, Mapping):
            object.__setattr__(self, "weights", dict(self.weights))
        elif self.weights is not None:
            weights = by_sample(self.weights)
            object.__setattr__(self, "weights", weights)
            if self.replacement:
                object.__setattr__(self, "_running", _running_sums(weights))
        if self.temperature is not None:
            by_temperature(self.temperature, {})
        object.__setattr__(self, "identity", f"weighted 1: {self._digest()}")

    def _digest(self) -> str:
        """Return sixteen hexadecimal digits that identify the arguments, and classes once they are known."""
        weights = self.weights
        shown = weights.data if isinstance(weights, np.ndarray) else repr(weights).encode("utf-8", "surrogatepass")
        rest = f"{self.by} {self.temperature} {self.replacement} {self.epoch_samples} {self._sizes}"
        found = hashlib.sha256(shown)
        found.update(f"\n{rest}\n".encode("utf-8", "surrogatepass"))
        found.update(b"" if self._members is None else self._members.data)
        return found.hexdigest()[:16]

    @property
    def needs_classes(self) -> bool:
        """Whether a dataset has to give the classes of its samples."""
        return not isinstance(self.weights, np.ndarray) and self._members is None

    def fitted(self, classes: NDArray[np.int64], names: Sequence[str]) -> WeightedShuffle:
        """Return the same order for samples of known classes.

        Args:
            classes: Number of the class of each sample; int64, shape (samples,).
            names: Names of the classes.

        Raises:
            Unusable: ``weights`` lacks a class that has samples, or names another.
        """
        counts = np.bincount(classes, minlength=len(names)).tolist()
        there = [number for number, count in enumerate(counts) if count]
        if not there:
            raise Unusable("a weighted shuffle needs at least one sample")
        sizes = {names[number]: counts[number] for number in there}
        given = self.weights
        if isinstance(given, Mapping):
            if unknown := [name for name in given if name not in names]:
                raise Unusable(f"weights: unknown class {unknown[0]!r}; classes are {', '.join(names[:20])}")
            weights = {name: given[name] for name in sizes if name in given}
        else:
            weights = by_temperature(self.temperature or 0, sizes)
        # Refuses weights that lack a class, or are no numbers.
        [step] = steps_of(weights, [*sizes], "class")
        order = replace(self, weights=weights, temperature=None)
        # Quotients, of which the identity is the same however numbers are written: 1, 1.0, NumPy's.
        object.__setattr__(order, "weights", dict(zip(sizes, WeightCurve([step]).table[0].tolist(), strict=True)))
        members = np.argsort(classes, kind="stable")
        small = len(classes) < 1 << 32
        object.__setattr__(order, "_members", members.astype(np.uint32) if small else members)
        object.__setattr__(order, "_sizes", tuple(sizes.values()))
        object.__setattr__(order, "identity", f"weighted 1: {order._digest()}")  # noqa: SLF001  itself
        return order

    def positions(self, samples: int) -> int:
        """Return the number of samples of an epoch."""
        known = len(self.weights) if isinstance(self.weights, np.ndarray) else sum(self._sizes)
        if self.needs_classes:
            raise Unusable(
                "a WeightedShuffle by classes needs a dataset with a catalog: MapDataset, IterableDataset, ps.concat "
                "of them; give other datasets a weight for each sample"
            )
        if known != samples:
            raise Unusable(f"weights must be {samples}, one for each sample of the dataset, got {known}")
        if isinstance(self.weights, np.ndarray) and not self.replacement:
            able = int(np.count_nonzero(self.weights))
            if (self.epoch_samples or 0) > able:
                raise Unusable(f"epoch_samples={self.epoch_samples}: only {able} samples have a weight above 0")
            return self.epoch_samples or able
        return self.epoch_samples or samples

    def epoch(self, samples: int, seed: int, epoch: int) -> Lookup:
        """Return the function from positions of an epoch to samples."""
        total = self.positions(samples)
        if isinstance(self.weights, np.ndarray):
            key = key_of(seed, f"epoch {epoch}")
            if self.replacement:
                return partial(independent, self.weights, self._running, key)
            return Race(self.weights, key, total).samples
        inner = _Independent() if self.replacement else FullShuffle()
        names = [*self.weights] if isinstance(self.weights, Mapping) else []
        sources = tuple(
            MixedSource(name, size, size, inner, int(key_of(seed, name)), "")
            for name, size in zip(names, self._sizes, strict=True)
        )
        steps = steps_of(self.weights, names)
        spec = MixtureSpec(sources=sources, steps=steps, batches="random", epoch_samples=total)
        return partial(_of_members, self._members, Draws(spec, 1, 1, seed).lookup(epoch))


@dataclass(frozen=True, slots=True)
class _Independent:
    """Independent draws."""

    identity: str = "independent"

    def positions(self, samples: int) -> int:
        return samples

    def epoch(self, samples: int, seed: int, epoch: int) -> Lookup:
        key = key_of(seed, f"epoch {epoch}")
        return lambda positions: (fractions(positions, key) * samples).astype(np.int64)


def _of_members(members: NDArray[Any] | None, lookup: Lookup, positions: NDArray[np.int64]) -> NDArray[np.int64]:
    if members is None:
        raise Bug("a weighted shuffle that was not fitted")
    found: NDArray[np.int64] = members[lookup(positions)].astype(np.int64)
    return found


def by_sample(weights: ArrayLike) -> NDArray[np.float64]:
    try:
        found = weights if _is_fixed(weights) else np.array(weights, dtype=np.float64)
    except (TypeError, ValueError):
        found = np.zeros((0, 0))
    if found.ndim != 1 or isinstance(weights, (str, bytes)):
        raise Unusable("weights must be a mapping from classes to weights, or one weight for each sample")
    if not np.isfinite(found).all() or (found < 0).any() or not found.any():
        raise Unusable("weights of samples must be finite, 0 or more, and not all 0")
    # Sums and quotients of larger or smaller ones leave the range of float64.
    if not 1 / _RANGE < found.max() < _RANGE:
        raise Unusable(f"the greatest weight must be between {1 / _RANGE:.0e} and {_RANGE:.0e}, got {found.max():.3g}")
    found.setflags(write=False)
    return found


def _is_fixed(weights: object) -> TypeGuard[NDArray[np.float64]]:
    """Return whether an array of float64 cannot be changed through NumPy, so that it needs no copy."""
    each: object = weights
    while isinstance(each, np.ndarray):
        if each.flags.writeable or each.dtype != np.float64:
            return False
        each = each.base
    return isinstance(weights, np.ndarray) and weights.flags.c_contiguous


def key_of(seed: int, scope: str) -> np.uint64:
    text = f"penstock weighted 1: {seed} {scope}".encode("utf-8", "surrogatepass")
    return np.uint64(int.from_bytes(hashlib.sha256(text).digest()[:8], "little"))


def fractions(positions: NDArray[np.int64], key: np.uint64) -> NDArray[np.float64]:
    """Return a number in [0, 1) for each position, as independent of one another as a hash makes them."""
    hashes = positions.astype(np.uint64)
    hashes += np.uint64(1)
    hashes *= _GAMMA
    hashes += key
    mix(hashes)
    hashes ^= key
    mix(hashes)
    hashes >>= np.uint64(64 - _FRACTION_BITS)
    found = hashes.astype(np.float64)
    found *= 2.0**-_FRACTION_BITS
    return found


def _running_sums(weights: NDArray[np.float64]) -> NDArray[np.float64]:
    """Return the running total of the weights at the end of each block of 64."""
    found, total = [np.zeros(1)], 0.0
    for start in range(0, len(weights), _AT_ONCE):
        # As one sum over all weights would add them.
        sums = weights[start : start + _AT_ONCE].copy()
        sums[0] += total
        np.cumsum(sums, out=sums)
        found.append(sums[_BLOCK - 1 :: _BLOCK].copy())
        total = sums[-1]
    return np.concatenate([*found, [total]])


def independent(
    weights: NDArray[np.float64], running: NDArray[np.float64], key: np.uint64, positions: NDArray[np.int64]
) -> NDArray[np.int64]:
    """Return the sample in whose part of the running total each position's number falls."""
    total = running[-1]
    numbers = np.minimum(fractions(positions, key) * total, np.nextafter(total, 0))
    found = np.empty_like(positions)
    for start in range(0, len(positions), _AT_ONCE // _BLOCK):
        number = numbers[start : start + _AT_ONCE // _BLOCK, np.newaxis]
        block = np.searchsorted(running[1:], number[:, 0], side="right")
        cells = block[:, np.newaxis] * _BLOCK + np.arange(_BLOCK)
        held = np.where(cells < len(weights), weights[np.minimum(cells, len(weights) - 1)], 0)
        ends = np.cumsum(np.concatenate((running[block, np.newaxis], held), axis=1), axis=1)[:, 1:]
        found[start : start + len(number)] = block * _BLOCK + np.count_nonzero(ends <= number, axis=1)
    return found


class Race:
    """Samples in the order in which they arrive, each after an exponential time of the rate that is its weight.

    So each is drawn by its weight from the remaining samples: Efraimidis and Spirakis 2006. Times are recomputed from
    hashes rather than kept. The first pass over the weights counts arrivals in intervals of time, and keeps those of
    the wanted stretch of the epoch, a sixteenth of it, by a guess of its times; another stretch takes another pass.
    """

    def __init__(self, weights: NDArray[np.float64], key: np.uint64, count: int) -> None:
        self._weights, self._key, self._count = weights, key, count
        # Last interval of each stretch, and the position behind it; empty before the first pass.
        self._borders = self._ends = np.zeros(0, dtype=np.int64)
        self._known: tuple[int, NDArray[np.int64]] = -1, np.zeros(0, dtype=np.int64)

    def samples(self, positions: NDArray[np.int64]) -> NDArray[np.int64]:
        found = np.empty_like(positions)
        if not positions.size:
            return found
        if not self._ends.size:
            self._divide(int(positions[0]))
        stretches = np.searchsorted(self._ends, positions, side="right")
        for stretch in np.unique(stretches).tolist():
            inside = stretches == stretch
            first = int(self._ends[stretch - 1]) if stretch else 0
            found[inside] = self._sorted(stretch)[positions[inside] - first]
        return found

    def _divide(self, position: int) -> None:
        """Find where stretches end, and sort the one of a position if its times were guessed well."""
        size = max(_LEAST_STRETCH, -(-self._count // _STRETCHES))
        low, high = self._guess(position // size * size, size)
        counts, kept, room = np.zeros(_LAST_INTERVAL + 1, dtype=np.int64), [], 2 * size + _AT_ONCE
        for samples, times in self._arrivals():
            intervals = _intervals_of(times)
            first = int(intervals.min(initial=0))
            found = np.bincount(intervals - first)
            counts[first : first + len(found)] += found
            if room >= 0:
                kept.append(_within(samples, times, low, high))
                room -= len(kept[-1][0])
        ends = np.cumsum(counts)
        # A stretch ends with the interval in which its last position arrives.
        lasts = np.minimum(np.arange(size, self._count + size, size), ends[-1])
        self._borders = np.unique(np.searchsorted(ends, lasts))
        self._ends = ends[self._borders]
        stretch = int(np.searchsorted(self._ends, position, side="right"))
        begin, end = self._span(stretch)
        if room >= 0 and low <= begin and end <= high:
            self._known = stretch, _in_order([_within(*each, begin, end) for each in kept])

    def _guess(self, start: int, size: int) -> tuple[int, int]:
        """Return intervals of time around the arrivals at positions [start, start + size), from some of the weights."""
        step = -(-len(self._weights) // _AT_ONCE)
        intervals = np.sort(np.concatenate([_intervals_of(times) for _, times in self._arrivals(step)]))
        # Six standard deviations of a rank, at most.
        spread = 3 * math.isqrt(len(intervals)) + 1
        low, high = start // step - spread, (start + size) // step + spread
        first = int(intervals[low]) - 1 if 0 < low < len(intervals) else 0
        return first, int(intervals[high]) + 2 if high < len(intervals) else _LAST_INTERVAL + 1

    def _span(self, stretch: int) -> tuple[int, int]:
        """Return the intervals of a stretch, as a range."""
        return int(self._borders[stretch - 1]) + 1 if stretch else 0, int(self._borders[stretch]) + 1

    def _sorted(self, stretch: int) -> NDArray[np.int64]:
        known, samples = self._known
        if known != stretch:
            span = self._span(stretch)
            samples = _in_order([_within(*each, *span) for each in self._arrivals()])
            self._known = stretch, samples
        return samples

    def _arrivals(self, step: int = 1) -> Iterator[_Arrivals]:
        """Yield some samples with a weight above 0 at a time, of each ``step`` samples one, and when they arrive."""
        every = self._weights[::step]
        for start in range(0, len(every), _AT_ONCE):
            weights = every[start : start + _AT_ONCE]
            samples = np.arange(start, start + len(weights)) * step
            if not weights.all():
                there = np.flatnonzero(weights)
                samples, weights = samples[there], weights[there]
            times = fractions(samples, self._key)
            np.log(np.subtract(1, times, out=times), out=times)
            # The logarithm of 1 is a negative 0; a time that overflows is still one of the last.
            np.abs(times, out=times)
            with np.errstate(over="ignore"):
                np.divide(times, weights, out=times)
            yield samples, np.minimum(times, _LAST_TIME, out=times)


def _intervals_of(times: NDArray[np.float64]) -> NDArray[np.int64]:
    """Return numbers that are ordered as times of 0 or more are, since their bits are."""
    return (times.view(np.uint64) >> _INTERVAL).view(np.int64)


def _within(samples: NDArray[np.int64], times: NDArray[np.float64], begin: int, end: int) -> _Arrivals:
    """Return the arrivals in intervals [begin, end)."""
    low, high = (np.array([begin, end], dtype=np.uint64) << _INTERVAL).view(np.float64)
    inside = np.flatnonzero((times >= low) & (times < high))
    return samples[inside], times[inside]


def _in_order(arrivals: list[_Arrivals]) -> NDArray[np.int64]:
    """Return samples sorted by time, and of equal times by number."""
    samples, times = map(np.concatenate, zip(*arrivals, strict=True))
    if not samples.size:
        return samples
    # To sort numbers takes an eighth of the time of an argsort, so each place stands in the low bits of its time, which
    # lose their last ones.
    joint = times.view(np.uint64) - times.min().view(np.uint64)
    place_bits = len(samples).bit_length()
    joint >>= np.uint64(max(0, int(joint.max()).bit_length() + place_bits - 64))
    joint <<= np.uint64(place_bits)
    joint |= np.arange(len(samples), dtype=np.uint64)
    joint.sort()
    order = (joint & np.uint64((1 << place_bits) - 1)).view(np.int64)
    joint >>= np.uint64(place_bits)
    again = np.flatnonzero(joint[1:] == joint[:-1])
    if again.size:
        # Equal but for the lost bits: few. Whole times decide, then numbers.
        equal = np.union1d(again, again + 1)
        these = order[equal]
        order[equal] = these[np.lexsort((samples[these], times[these]))]
    found: NDArray[np.int64] = samples[order]
    return found


# Standard deviations above the expected number of draws of a block.
_SPREAD = 6


@dataclass(frozen=True, slots=True, eq=False)
class WeightedBlocks:
    """Order of ``Lanes`` over samples that come as often as their weights demand.

    Each epoch draws its samples first, and permutes the blocks that have some. All draws of a sample are in the window
    of its block, so a block is still read once. Memory is 8 bytes for each sample of an epoch.
    """

    blocks: Lanes  # the order of blocks, shuffled, with known sizes
    weights: NDArray[np.float64]  # weight of each sample, of which only the proportion counts
    # Whether each draw is independent of the others. If not, each sample comes as often as expected, rounded down or
    # up.
    replacement: bool = False
    epoch_samples: int | None = None  # samples of an epoch, over all ranks; None: as many as there are samples
    identity: str = field(init=False, repr=False)

    def __post_init__(self) -> None:
        switch(self.replacement, "replacement")
        if self.epoch_samples is not None:
            whole(self.epoch_samples, "epoch_samples", 1)
        object.__setattr__(self, "weights", by_sample(self.weights))
        rest = f"{self.blocks.identity} {self.replacement} {self.epoch_samples}".encode()
        digest = hashlib.sha256(self.weights.data)
        digest.update(b"\n" + rest)
        object.__setattr__(self, "identity", f"weighted blocks 1: {digest.hexdigest()[:16]}")

    @property
    def lanes(self) -> int | None:
        return self.blocks.lanes

    @property
    def most(self) -> int:
        """Upper limit of the draws of one block in practice."""
        ends = self._ends(len(self.weights))
        sums = np.diff(np.concatenate(([0.0], np.cumsum(self.weights)))[ends])
        expected = float(sums.max()) / float(self.weights.sum()) * self.positions(len(self.weights))
        return int(expected + _SPREAD * np.sqrt(expected)) + 1

    def with_lanes(self, lanes: int) -> WeightedBlocks:
        return replace(self, blocks=self.blocks.with_lanes(lanes))

    def positions(self, samples: int) -> int:
        if len(self.weights) != samples:
            raise Unusable(f"weights must be {samples}, one for each sample of the dataset, got {len(self.weights)}")
        return self.epoch_samples or samples

    def epoch(self, samples: int, seed: int, epoch: int) -> Lookup:
        total, key = self.positions(samples), key_of(seed, f"epoch {epoch}")
        if self.replacement:
            running = _running_sums(self.weights)
            drawn = np.sort(independent(self.weights, running, key, np.arange(total)))
        else:
            drawn = _systematic(self.weights, Permutation(samples, seed, epoch, "weighted "), key, total)
        sizes = np.diff(np.searchsorted(drawn, self._ends(samples)))
        order = replace(self.blocks, block_samples=sizes[sizes > 0])
        return partial(_take_drawn, drawn, order.epoch(total, seed, epoch))

    def _ends(self, samples: int) -> NDArray[np.int64]:
        """Return the first sample of each block, and the number of samples."""
        sizes = self.blocks.block_samples
        if isinstance(sizes, int):
            return np.append(np.arange(0, samples, sizes, dtype=np.int64), samples)
        return np.concatenate(([0], np.cumsum(np.asarray(sizes, dtype=np.int64))))


def _systematic(weights: NDArray[np.float64], order: Permutation, key: np.uint64, total: int) -> NDArray[np.int64]:
    """Return ``total`` draws, sorted; each sample comes as often as expected, rounded down or up.

    The running total of the weights, in a random order, is cut at equal distances from a random start.
    """
    permuted = order.of(np.arange(len(weights)))
    permuted = permuted[weights[permuted] > 0]
    ends = np.cumsum(weights[permuted])
    start = fractions(np.zeros(1, dtype=np.int64), key)[0]
    cuts = np.minimum(np.floor(ends * (total / ends[-1]) + start), total)
    cuts[-1] = total
    counts = np.zeros(len(weights), dtype=np.int64)
    counts[permuted] = np.diff(cuts, prepend=0)
    return np.repeat(np.arange(len(weights)), counts)


def _take_drawn(drawn: NDArray[np.int64], lookup: Lookup, positions: NDArray[np.int64]) -> NDArray[np.int64]:
    found: NDArray[np.int64] = drawn[lookup(positions)]
    return found
