"""Statistics of the arrays of a dataset: exact moments, ``ZarrStatistics`` with its file, and normalisation by them."""

from __future__ import annotations

import hashlib
import json
import os
from dataclasses import dataclass, fields, replace
from math import isnan, prod
from threading import local
from typing import TYPE_CHECKING, Any

import numpy as np

from penstock.data.zarr.arrays.stored import Normal
from penstock.data.zarr.samples.arrangement import dims_of, lengths_of
from penstock.display import panel, table
from penstock.errors import Damaged, Unusable
from penstock.schema import COUNT, read_json
from penstock.verbs import open as open_object

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from numpy.typing import NDArray

    from penstock.data.zarr.arrays.stored import StoredArray
    from penstock.data.zarr.format.layout import Layout
    from penstock.data.zarr.values import Values
    from penstock.options import StoreOptions


# Values that are converted to float64 together, 2 MiB: with a quarter of it, the calls take a tenth of the time.
_AT_ONCE = 1 << 18
# Most values in one call of BLAS: for more, it would start threads.
_ROW = 1 << 12
# Values of which the mean is near that of all.
_GUESSED = 64
# Rows of fewer values are taken together, one column of all after the other.
_SHORT = 1024


@dataclass
class Moments:
    """Moments of values; NaN counts as missing. Arrays of one shape: an element for each set of values.

    ``squares`` are summed distances from the mean; without values, ``least`` is infinity, ``most`` minus infinity.
    """

    count: NDArray[np.int64]
    missing: NDArray[np.int64]
    mean: NDArray[np.float64]
    squares: NDArray[np.float64]
    least: NDArray[np.float64]
    most: NDArray[np.float64]

    @classmethod
    def empty(cls, shape: Sequence[int] = ()) -> Moments:
        count, missing = np.zeros(shape, np.int64), np.zeros(shape, np.int64)
        mean, squares = np.zeros(shape), np.zeros(shape)
        return cls(count, missing, mean, squares, np.full(shape, np.inf), np.full(shape, -np.inf))

    def add(self, other: Moments, at: tuple[Any, ...] = ()) -> None:
        """Add moments of other values to the elements ``at`` (Chan, Golub and LeVeque 1979)."""
        if not self.count.ndim:
            self._set((), _together(self._single(), other._single()))
            return
        one = Moments(*(getattr(self, each.name)[at] for each in fields(self)))
        count = one.count + other.count
        share = other.count / np.maximum(count, 1)
        distance = np.where(one.count > 0, other.mean - one.mean, other.mean)
        between = np.where(one.count > 0, np.square(distance) * one.count * share, 0)
        self.squares[at] = one.squares + other.squares + between
        # Without values so far, the share is 1 and the distance the mean itself.
        self.mean[at] = one.mean + distance * share
        self.least[at], self.most[at] = np.minimum(one.least, other.least), np.maximum(one.most, other.most)
        self.missing[at] = one.missing + other.missing
        self.count[at] = count

    def _single(self) -> _One:
        return tuple(getattr(self, each.name).item() for each in fields(self))

    def _set(self, at: tuple[int, ...], one: _One) -> None:
        for each, value in zip(fields(self), one, strict=True):
            getattr(self, each.name)[at] = value


def moments_of(values: NDArray[Any], kept: Sequence[int] = ()) -> Moments:
    """Return the moments of values for each index along the dimensions ``kept``."""
    if not kept:
        return Moments(*map(np.array, _of_values(values.reshape(-1))))
    moved = np.moveaxis(values, kept, range(len(kept)))
    shape = moved.shape[: len(kept)]
    if values.size // max(1, prod(shape)) < _SHORT and prod(shape) > 1:
        return _of_rows(moved.reshape(*shape, -1))
    found = Moments.empty(shape)
    for at in np.ndindex(shape):
        found._set(at, _of_values(moved[at].reshape(-1)))  # noqa: SLF001  of this module
    return found


_One = tuple[int, int, float, float, float, float]
_NONE: _One = (0, 0, 0.0, 0.0, np.inf, -np.inf)


def _together(one: _One, other: _One) -> _One:
    """Return the moments of two sets of values, as ``Moments.add`` does: a tenth of the time for single numbers."""
    count = one[0] + other[0]
    if not one[0] or not other[0]:
        found = other if other[0] else one
        return (found[0], one[1] + other[1], *found[2:])
    share, distance = other[0] / count, other[2] - one[2]
    mean, squares = one[2] + distance * share, one[3] + other[3] + distance * distance * one[0] * share
    return count, one[1] + other[1], mean, squares, min(one[4], other[4]), max(one[5], other[5])


def _of_values(values: NDArray[Any]) -> _One:
    found = _NONE
    for start in range(0, len(values), _AT_ONCE):
        found = _together(found, _of_block(values[start : start + _AT_ONCE]))
    return found


_local = local()


def _memory() -> NDArray[np.float64]:
    """Return memory of this thread for a block: new memory for each would be zeroed page by page."""
    found: NDArray[np.float64] | None = getattr(_local, "memory", None)
    if found is None:
        found = _local.memory = np.empty(_AT_ONCE)
    return found


def _of_block(values: NDArray[Any]) -> _One:
    """Return the moments of at least one value."""
    missing = 0
    least = float(values.min())
    # The least of values with NaN is NaN.
    if isnan(least):
        there = values[~np.isnan(values)]
        missing, values = len(values) - len(there), there
        if not len(values):
            return (0, missing, *_NONE[2:])
        least = float(values.min())
    count = len(values)
    # Distances from a value near the mean lose no digits.
    near = float(values[:: max(1, count // _GUESSED)].mean(dtype=np.float64))
    distances = _memory()[:count]
    np.copyto(distances, values)
    distances -= near
    total = float(distances.sum())
    squares = _squares(distances) - total * total / count
    return count, missing, near + total / count, max(squares, 0.0), least, float(values.max())


def _squares(values: NDArray[np.float64]) -> float:
    """Return the sum of the squares, in less than half the time of ``numpy.square`` and ``sum``."""
    whole = len(values) - len(values) % _ROW
    rows, rest = values[:whole].reshape(-1, 1, _ROW), values[whole:]
    return float(np.matmul(rows, rows.transpose(0, 2, 1)).sum()) + float(rest @ rest)


def _of_rows(values: NDArray[Any]) -> Moments:
    """Return the moments along the last dimension, which is short."""
    rows = values.astype(np.float64)
    absent = np.isnan(rows)
    missing = absent.sum(axis=-1)
    count = rows.shape[-1] - missing
    least = np.where(absent, np.inf, rows).min(axis=-1, initial=np.inf)
    most = np.where(absent, -np.inf, rows).max(axis=-1, initial=-np.inf)
    mean = np.where(absent, 0, rows).sum(axis=-1) / np.maximum(count, 1)
    distances = np.where(absent, 0, rows - mean[..., None])
    # A mean of few values is rounded: what the distances sum to is taken off, as above.
    mean += distances.sum(axis=-1) / np.maximum(count, 1)
    squares = np.square(np.where(absent, 0, rows - mean[..., None])).sum(axis=-1)
    return Moments(count, missing, mean, squares, least, most)


_KIND, _VERSION = "penstock-zarr-statistics", 1
_SIDES = ("samples", "targets")
_COUNTS = ("count", "missing")
_NUMBERS = [(float, "nan", "inf", "-inf")]
_ARRAY = {"dims": [str], "shape": [COUNT]} | {
    each.name: [COUNT] if each.name in _COUNTS else _NUMBERS for each in fields(Moments)
}
_FORM = {
    "kind": _KIND,
    "version": _VERSION,
    "read": str,
    "versions": str,
    "part": [COUNT, COUNT],
    "chunks": [COUNT, COUNT],
    "digest": str,
    **{side: {str: (_ARRAY, None)} for side in _SIDES},
}


@dataclass(frozen=True, eq=False, repr=False)
class ArrayStatistics:
    """Statistics of one array; each is an array with an element for each index along ``dims``.

    Attributes:
        dims: The dimensions that were kept, in the order of the array; () if all values were taken together.
        moments: Count, mean and sum of squares, least and greatest value.
    """

    dims: tuple[str, ...]
    moments: Moments

    @property
    def count(self) -> NDArray[np.int64]:
        """Number of values that are not missing."""
        return self.moments.count

    @property
    def missing(self) -> NDArray[np.int64]:
        """Number of missing values (NaN)."""
        return self.moments.missing

    @property
    def mean(self) -> NDArray[np.float64]:
        """Mean, float64; NaN without values."""
        return np.where(self.count > 0, self.moments.mean, np.nan)

    @property
    def std(self) -> NDArray[np.float64]:
        """Standard deviation of all values (``ddof=0``, as in xarray), float64; NaN without values."""
        with np.errstate(invalid="ignore", divide="ignore"):
            return np.sqrt(self.moments.squares / self.count)

    @property
    def min(self) -> NDArray[np.float64]:
        """Least value; NaN without values."""
        return np.where(self.count > 0, self.moments.least, np.nan)

    @property
    def max(self) -> NDArray[np.float64]:
        """Greatest value; NaN without values."""
        return np.where(self.count > 0, self.moments.most, np.nan)

    def __repr__(self) -> str:
        """Return the statistics in a line, or their shape."""
        if not self.dims:
            return (
                f"mean {self.mean:.6g}, std {self.std:.6g}, {self.min:.6g} to {self.max:.6g}, {self.count:,} values, "
                f"{self.missing:,} missing"
            )
        return (
            f"by {', '.join(self.dims)} {self.mean.shape}: {self.count.sum():,} values, {self.missing.sum():,} missing"
        )


@dataclass(frozen=True, eq=False, repr=False)
class ZarrStatistics:
    """Statistics of the arrays of a ``ZarrDataset``, by name, as ``dataset.statistics()`` returns them.

    ``statistics["t2m"].mean`` is a float64 array: of one number, or of one for each index along the dimensions that
    were kept. An array without a name has the name "".

    Attributes:
        samples: Statistics of the arrays of samples, by name; None for those that ``only`` leaves as they are.
        targets: Statistics of the arrays of targets.
        read: Digest of the data to read: arrays, their elements, and the dimensions that were kept.
        part: Share of the chunks: ``(0, 1)`` is all.
        chunks: Number of chunks of this share that were read, and of all that it has.
        versions: Digest of the versions of these chunks' objects; empty if the statistics were gathered without
            ``save``, or a store reports no versions.

    Example:
        >>> dataset = ps.ZarrDataset("s3://bucket/t2m.zarr", shuffle=True)
        >>> found = dataset.statistics()
        >>> found[""].mean.item(), found[""].max.item()
        (5.5, 11.0)
        >>> found.save("s3://bucket/t2m.json")
        >>> ps.ZarrDataset("s3://bucket/t2m.zarr", normalize="s3://bucket/t2m.json").statistics() == found
        True
    """

    samples: Mapping[str, ArrayStatistics | None]
    targets: Mapping[str, ArrayStatistics | None]
    read: str
    part: tuple[int, int] = (0, 1)
    chunks: tuple[int, int] = (0, 0)
    versions: str = ""

    def __getitem__(self, name: str) -> ArrayStatistics:
        """Return the statistics of an array of samples; if there is none of that name, of targets."""
        found = self.samples.get(name) or self.targets.get(name)
        if found is None:
            raise KeyError(f"no statistics of {name!r}; known: {_list_names(self)}")
        return found

    def __eq__(self, other: object) -> bool:
        return (
            isinstance(other, ZarrStatistics) and self.as_record() == replace(other, versions=self.versions).as_record()
        )

    @property
    def complete(self) -> bool:
        """Whether all chunks were read."""
        return self.part == (0, 1) and self.chunks[0] == self.chunks[1]

    def __hash__(self) -> int:
        """Return the hash of the data that was read."""
        return hash(self.read)

    def only(self, *names: str) -> ZarrStatistics:
        """Return these statistics for ``normalize=`` of some arrays; the others stay as they are.

        Args:
            names: Names of arrays.

        Raises:
            Unusable: There is no such array.
        """
        if wrong := [name for name in names if name not in {*self.samples, *self.targets}]:
            raise Unusable(f"no statistics of {wrong[0]!r}; known: {_list_names(self)}")
        sides = [
            {name: each if name in names else None for name, each in side.items()}
            for side in (self.samples, self.targets)
        ]
        return replace(self, samples=sides[0], targets=sides[1])

    def merge(self, *others: ZarrStatistics) -> ZarrStatistics:
        """Return the joined statistics of all shares, including these.

        Args:
            others: The other shares, in any order.

        Raises:
            Unusable: A share is missing, not complete, there twice, or of other data.
        """
        shares = sorted((self, *others), key=lambda each: each.part)
        count = self.part[1]
        for each in shares:
            if each.read != self.read:
                raise Unusable("cannot merge statistics: they are of other arrays, elements or dimensions")
            if _left_out(each) != _left_out(self):
                raise Unusable("cannot merge statistics after only(): merge first")
            if each.chunks[0] != each.chunks[1]:
                raise Unusable(f"cannot merge statistics: {_describe_progress(each)} were read of part {each.part}")
        if [each.part for each in shares] != [(number, count) for number in range(count)]:
            raise Unusable(f"merge takes parts 0 to {count - 1} of {count}, got {[each.part[0] for each in shares]}")
        first, *rest = shares
        total = sum(each.chunks[1] for each in shares)
        found = replace(self._of(first.as_record()), part=(0, 1), chunks=(total, total), versions="")
        for each in rest:
            for side, other in ((found.samples, each.samples), (found.targets, each.targets)):
                for name, array in side.items():
                    if array is not None:
                        array.moments.add(other[name].moments)  # type: ignore[union-attr]
        return found

    def save(self, url: str | os.PathLike[str], *, store: StoreOptions | str | None = None) -> None:
        """Write the statistics to a file of JSON, atomically.

        Args:
            url: The file.
            store: Options, or the name of a profile; default: environment and profile.
        """
        record = self.as_record()
        text = json.dumps({**record, "digest": _digest_record(record)}, indent=1)
        with open_object(url, "wb", store=store) as writer:
            writer.write(text.encode())

    @classmethod
    def load(cls, url: str | os.PathLike[str], *, store: StoreOptions | str | None = None) -> ZarrStatistics:
        """Return the statistics in a file that ``save`` wrote.

        Args:
            url: The file.
            store: Options, or the name of a profile; default: environment and profile.

        Raises:
            Damaged: The file is not a file of statistics, or was changed.
            NotFound: The file does not exist.

        Example:
            >>> ps.ZarrDataset("s3://bucket/t2m.zarr").statistics().save("s3://bucket/t2m.json")
            >>> ps.ZarrStatistics.load("s3://bucket/t2m.json")
            array: mean 5.5, std 3.45205, 0 to 11, 12 values, 0 missing
        """
        with open_object(url, "rb", store=store) as reader:
            data = reader.read()
        shown = os.fspath(url)
        record = read_json(data, _FORM, "a file of statistics of arrays", shown)
        if record.pop("digest") != _digest_record(record):
            raise Damaged("the file of statistics is damaged: its digest does not match", url=shown)
        try:
            return cls._of(record)
        except ValueError as error:
            raise Damaged(f"cannot read a file of statistics of arrays: {error}", url=shown) from None

    @classmethod
    def _of(cls, record: Mapping[str, Any]) -> ZarrStatistics:
        samples, targets = ({name: _parse_statistics(each) for name, each in record[side].items()} for side in _SIDES)
        (number, count), (done, total) = record["part"], record["chunks"]
        return cls(samples, targets, record["read"], (number, count), (done, total), record["versions"])

    def as_record(self) -> dict[str, Any]:
        """Return the statistics as JSON-compatible values."""
        sides = {
            side: {name: _serialize_array(each) for name, each in arrays.items()}
            for side, arrays in zip(_SIDES, (self.samples, self.targets), strict=True)
        }
        what = {"kind": _KIND, "version": _VERSION, "read": self.read}
        return {**what, "versions": self.versions, "part": [*self.part], "chunks": [*self.chunks], **sides}

    def __repr__(self) -> str:
        lines = [] if self.complete else [f"part {self.part[0]} of {self.part[1]}, {_describe_progress(self)}"]
        for title, side in (("", self.samples), ("target ", self.targets)):
            lines += [f"{title}{name or 'array'}: {each}" for name, each in side.items() if each is not None]
        return "\n".join(lines)

    def _repr_html_(self) -> str:
        sides = (("", self.samples), ("target ", self.targets))
        named = ((f"{title}{name or 'array'}", each) for title, side in sides for name, each in side.items())
        title = "Statistics" if self.complete else f"Statistics of part {self.part[0]} of {self.part[1]}"
        rows = ((name, repr(each)) for name, each in named if each is not None)
        return panel(f"{title}, {_describe_progress(self)}", table(rows))


def normalize_arrays(statistics: ZarrStatistics, arrays: Sequence[StoredArray], form: Values) -> list[StoredArray]:
    """Return the arrays of samples, and those of targets, normalised by statistics.

    Targets without statistics of their own have those of the array of samples with the same name.
    """
    if not statistics.complete:
        raise Unusable(
            f"normalize takes statistics of all chunks, got {_describe_progress(statistics)} of part {statistics.part}"
        )
    sides = [*(("samples", name) for name in form.inputs), *(("targets", name) for name in form.targets or ())]
    found = []
    for array, (side, name) in zip(arrays, sides, strict=True):
        known = statistics.targets if side == "targets" and name in statistics.targets else statistics.samples
        if name not in known:
            raise Unusable(f"normalize has no statistics of {side} {name!r}; known: {_list_names(statistics)}")
        of, what = known[name], f"{side}[{name!r}]" if name else side
        found.append(array._replace(normal=None if of is None else _normal(of, what, array.layout)))
    return found


def _list_names(statistics: ZarrStatistics) -> str:
    return ", ".join(map(repr, dict.fromkeys([*statistics.samples, *statistics.targets])))


def _describe_progress(statistics: ZarrStatistics) -> str:
    return f"{statistics.chunks[0]:,} of {statistics.chunks[1]:,} chunks"


def _digest_record(record: Mapping[str, Any]) -> str:
    return hashlib.sha256(json.dumps(record, sort_keys=True).encode()).hexdigest()[:32]


def _left_out(statistics: ZarrStatistics) -> list[tuple[str, str]]:
    """Return the arrays that ``only`` left out, as (side, name)."""
    sides = zip(_SIDES, (statistics.samples, statistics.targets), strict=True)
    return [(title, name) for title, side in sides for name, each in side.items() if each is None]


def _serialize_array(array: ArrayStatistics | None) -> dict[str, Any] | None:
    """Return the statistics as JSON; ``std`` is for other readers."""
    if array is None:
        return None
    moments = {each.name: _encode_numbers(getattr(array.moments, each.name)) for each in fields(Moments)}
    return {"dims": [*array.dims], "shape": [*array.count.shape], **moments, "std": _encode_numbers(array.std)}


def _encode_numbers(values: NDArray[Any]) -> list[int | float | str]:
    """Return values as JSON, which has neither NaN nor infinity."""
    return [each if np.isfinite(each) else str(each) for each in values.reshape(-1).tolist()]


def _parse_statistics(record: Mapping[str, Any] | None) -> ArrayStatistics | None:
    if record is None:
        return None
    dims, shape = tuple(record["dims"]), tuple(record["shape"])
    values = {
        each.name: np.array(record[each.name], np.int64 if each.name in _COUNTS else np.float64)
        for each in fields(Moments)
    }
    return ArrayStatistics(dims, Moments(**{name: each.reshape(shape) for name, each in values.items()}))


def _normal(array: ArrayStatistics, what: str, layout: Layout) -> Normal:
    """Return the normalisation of an array of a layout; raise if its lengths differ."""
    lengths = lengths_of(layout)
    if tuple(lengths.get(name) for name in array.dims) != array.count.shape:
        raise Unusable(
            f"normalize has statistics of {what} by {', '.join(array.dims)} of the lengths {array.count.shape}, "
            f"and the array has the shape {layout.shape} of {dims_of(layout)}"
        )
    kept = [length if name in array.dims else 1 for name, length in zip(dims_of(layout), layout.shape, strict=True)]
    if not array.dims and not array.count:
        raise Unusable(f"the statistics of {what} for normalize contain no values")
    # Values that do not vary are only shifted.
    std = np.where(array.std == 0, 1, array.std)
    return Normal(array.mean.reshape(kept), std.reshape(kept), f"{what}: {array!r}")
