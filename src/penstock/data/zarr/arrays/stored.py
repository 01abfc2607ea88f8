"""Arrays of a dataset: layout, location of their objects, and decoding of values.

The objects of an array are in its own store, or, by references, within objects of other stores. Several stores are
behind one queue of reads, in which each key carries the number of its store.
"""

from __future__ import annotations

import os
from dataclasses import dataclass, field, fields, replace
from functools import partial, reduce
from math import prod
from threading import Lock
from typing import TYPE_CHECKING, Any, ClassVar, Literal, NamedTuple, TypeAlias

import numpy as np

from penstock.data.zarr.format.cf import ATTRIBUTES, cf_of
from penstock.data.zarr.format.metadata import open_arrays
from penstock.data.zarr.format.references import MOST_ROOTS
from penstock.engine.contracts.fetching import CachedFetching
from penstock.errors import Bug, Damaged, DatasetChanged, Forbidden, NotFound, Unsupported, Unusable
from penstock.stores.urls import parse
from penstock.values import Span, common_folder

if TYPE_CHECKING:
    from collections.abc import Callable, Hashable, Iterable, Mapping, Sequence

    from numpy.typing import DTypeLike, NDArray

    from penstock.data.zarr.format.cf import Decoding
    from penstock.data.zarr.format.layout import Layout
    from penstock.data.zarr.format.metadata import Arrays
    from penstock.data.zarr.format.references import Records, References
    from penstock.engine.buffer import Buffer
    from penstock.engine.contracts.fetching import Fetching, Owner, ReadOperation
    from penstock.options import StoreOptions
    from penstock.source import Source

_lock = Lock()  # for all instances of Stores: held only briefly
os.register_at_fork(before=_lock.acquire, after_in_parent=_lock.release, after_in_child=_lock.release)


class HomeKey(str):
    """Key of an object that is not in the first store, but in the one with the number ``home``, from 1."""

    __slots__ = ("home",)
    home: int


class Stores:
    """Stores that the arrays of a dataset are read from, by number. Thread-safe and picklable.

    With ``grow``, stores may be added while arrays are read.
    """

    def __init__(self) -> None:
        self.sources: list[Source] = []
        self.grow = False
        self._numbers: dict[tuple[str, StoreOptions], int] = {}

    def number(self, source: Source) -> int:
        """Return the number of a store; a new store receives the next number."""
        with _lock:
            number = self._numbers.setdefault((source.root, source.options), len(self.sources))
            if number == len(self.sources):
                self.sources.append(source)
            return number


def set_home(span: Span, home: int) -> Span:
    """Return a span of an object in store number ``home``."""
    if not home:
        return span
    key = HomeKey(span.key)
    key.home = home
    return span._replace(key=key)


def join_stores(stores: Stores) -> Source:
    """Return the first source, with reads of keys of other stores routed to their own source."""
    sources = stores.sources
    return sources[0] if len(sources) == 1 and not stores.grow else sources[0].through(partial(_Joined, sources))


class _Joined:
    """``Fetching`` over several stores: reads are started and cancelled in the store of their key."""

    def __init__(self, sources: Sequence[Source], _beneath: Fetching) -> None:
        # ``_beneath`` is not used for the first source either: that source may have a layer that ``_beneath`` lacks.
        self._sources = sources

    def prepare_reads(self, wanted: Iterable[tuple[Span, Buffer | None]], owner: Owner) -> list[ReadOperation]:
        homes: dict[int, list[tuple[int, tuple[Span, Buffer | None]]]] = {}
        for number, each in enumerate(wanted):
            homes.setdefault(_home(each[0]), []).append((number, each))
        found: dict[int, ReadOperation] = {}
        for home, some in homes.items():
            reads = self._sources[home].fetching().prepare_reads([each for _, each in some], owner)
            found.update(zip((number for number, _ in some), reads, strict=True))
        return [found[number] for number in range(len(found))]

    def send_reads(self, reads: Iterable[ReadOperation]) -> None:
        for home, some in _by_home(reads).items():
            self._sources[home].fetching().send_reads(some)

    def cancel_reads(self, reads: Iterable[ReadOperation]) -> None:
        for home, some in _by_home(reads).items():
            self._sources[home].fetching().cancel_reads(some)

    def stop_reads(self, reads: Iterable[ReadOperation]) -> None:
        """Cancel reads and wait until none of them writes to its buffer."""
        for home, some in _by_home(reads).items():
            self._sources[home].fetching().stop_reads(some)

    def concurrency(self) -> int:
        return self._sources[0].fetching().concurrency()

    def contains(self, span: Span) -> bool:
        """Return whether the span's store has a cache that holds the span."""
        fetching = self._sources[_home(span)].fetching()
        return isinstance(fetching, CachedFetching) and fetching.contains(span)

    def room_bytes(self) -> int:
        """Return the smallest free space, in bytes, of the stores' caches; 0 without caches."""
        caches = [each for each in (source.fetching() for source in self._sources) if isinstance(each, CachedFetching)]
        return min((each.room_bytes() for each in caches), default=0)


def _home(span: Span) -> int:
    return span.key.home if isinstance(span.key, HomeKey) else 0


def _by_home(reads: Iterable[ReadOperation]) -> dict[int, list[ReadOperation]]:
    homes: dict[int, list[ReadOperation]] = {}
    for read in reads:
        homes.setdefault(_home(read.span), []).append(read)
    return homes


_MOST_GROWTH, _MARGIN = 16, 1 << 20  # as for chunks of shards: data/zarr/format/layout.py
_INDEX_BYTES = 16  # of a shard's index, per chunk


class _Absences:
    """Absent objects of an array: count in all, count since the last check, and whether the array is gone."""

    __slots__ = ("count", "gone", "new")

    def __init__(self) -> None:
        self.count = self.new = 0
        self.gone = False

    def __reduce__(self) -> tuple[object, ...]:
        return _Absences, ()


@dataclass(frozen=True, slots=True)
class OwnObjects:
    """Objects of an array in its own store; objects that were never written are absent.

    Objects of an array that is being deleted are absent, too. So the metadata document of the array's layout is checked
    again after the first absent object, the second, the fourth, and so on, and at the end of an epoch: one HEAD each.

    Attributes:
        home: Number of the store among those of a dataset.
        document: Key of that document; empty if unknown.
        forbidden_is_missing: A refusal (403) means a missing object, too.
        opened: The array, or all arrays of the group, by the documents that were read; None if others described it.
    """

    # References that are read on demand: the locations of these objects are known.
    records: ClassVar[None] = None

    source: Source
    home: int = 0
    document: str = ""
    forbidden_is_missing: bool = False
    opened: Arrays | None = field(default=None, compare=False, repr=False)
    _absences: _Absences = field(default_factory=_Absences, compare=False, repr=False)

    def __getstate__(self) -> list[object]:
        """Pickle without the arrays of the group: worker processes need none of them."""
        return [None if each.name == "opened" else getattr(self, each.name) for each in fields(self)]

    def numbered(self, number: Callable[[Source], int]) -> OwnObjects:
        return replace(self, home=number(self.source), opened=None)

    def absent(self, error: NotFound | Forbidden) -> None:
        """Record that an object does not exist, which means the fill value.

        Raises ``DatasetChanged`` if the array does not exist any more, and a refusal that does not mean absence.
        """
        if isinstance(error, Forbidden) and not self.forbidden_is_missing:
            raise error
        absences = self._absences
        # Without a lock: a lost count of another thread matters little.
        absences.count += 1
        absences.new += 1
        if absences.gone or not absences.count & (absences.count - 1):
            self.verify()

    def verify(self) -> None:
        """Check that the array still exists, if objects were absent since the last check."""
        if not self.document or not self._absences.new:
            return
        self._absences.new = 0
        try:
            self.source.head(self.document)
        except NotFound as error:
            # From here on, every absent object is an error.
            self._absences.gone = True
            message = "the array was deleted while it was read: without its metadata, absent chunks cannot be filled"
            raise DatasetChanged(message, url=error.url) from error

    def find(self, span: Span) -> Span:
        """Return the span, with the number of the store."""
        return set_home(span, self.home)

    def beside(self, key: str) -> tuple[Layout, OwnObjects] | None:
        """Return another array of the store: known from its group, or opened by five requests in parallel.

        If the array itself was opened, documents of the same names are requested first.
        """
        own = replace(self, document="", opened=None, _absences=_Absences())
        known = self.opened
        if known is not None and "" not in known:
            name = self.source.url(key).removeprefix(known.url)
            return (known[name], own) if name in {*known, *known.refused} else None
        try:
            found = open_arrays(self.source, key, forbidden_is_missing=self.forbidden_is_missing, files=self.files)
        except NotFound as error:
            if error.missing in ("bucket", "target"):
                raise
            return None
        if "" not in {*found, *found.refused}:  # a group
            return None
        return found[""], own

    @property
    def files(self) -> tuple[str, ...]:
        """Names of the documents that the array was opened by; empty if others described it."""
        return self.opened.files if self.opened is not None else ()

    def url(self, key: str) -> str:
        return self.source.url(key)


@dataclass(frozen=True, slots=True)
class ReferencedObjects:
    """Objects of an array that are parts of other objects, by references; an absent target is an error.

    ``sources`` are the stores of targets, and ``homes`` their numbers in a dataset, by root; ``open`` opens others. A
    reference to more than ``most_bytes`` is damaged.
    """

    references: References
    sources: Mapping[str, Source]
    most_bytes: int
    open: Callable[[str], Source]
    homes: dict[str, int] = field(default_factory=dict)
    _number: Callable[[Source], int] | None = None

    @classmethod
    def of(
        cls, references: References, sources: Mapping[str, Source], layout: Layout, opener: Callable[[str], Source]
    ) -> ReferencedObjects:
        """Return the locations of the objects of an array."""
        most_bytes = _MOST_GROWTH * layout.chunk_bytes + _INDEX_BYTES * prod(layout.ratios) + _MARGIN
        return cls(references, sources, most_bytes, opener)

    @property
    def records(self) -> Records | None:
        """The references, if they are read on demand; else None."""
        return self.references.records

    def numbered(self, number: Callable[[Source], int]) -> ReferencedObjects:
        return replace(self, homes={root: number(source) for root, source in self.sources.items()}, _number=number)

    def absent(self, error: NotFound | Forbidden) -> None:
        """Raise: a reference must lead to an existing object."""
        if isinstance(error, Forbidden):
            raise error
        message = f"a reference leads to a missing object: {error.message}"
        raise Damaged(message, url=error.url) from error

    def verify(self) -> None:
        """Do nothing: each absent object is an error at once."""

    def find(self, span: Span) -> Span | bytes | None:
        """Return the location of a span of one of the array's objects, or its bytes; None without a reference."""
        found = self.references.at(span.key)
        if found is None:
            return None
        if isinstance(found, bytes):
            return found[span.start : span.stop]
        location = found.location
        part = _within(span, found.start, found.stop)
        if part.stop is not None and part.stop - part.start > self.most_bytes:
            size = part.stop - part.start
            raise Damaged(
                f"the reference {span.key!r} is damaged: {size} bytes are more than a chunk can have", url=found.url
            )
        home = self.homes.get(location.root)
        return set_home(part._replace(key=location.key), self._new_home(found.url) if home is None else home)

    def _new_home(self, url: str) -> int:
        """Return the number of a store that is new among the targets of references."""
        if self._number is None:
            raise Bug("the stores of references were not numbered")
        if len(self.homes) >= MOST_ROOTS:
            raise Unsupported(f"these references lead to more than {MOST_ROOTS:,} buckets", url=self.references.url)
        return self.homes.setdefault(parse(url).root, self._number(self.open(url)))

    def beside(self, key: str) -> tuple[Layout, ReferencedObjects] | None:
        """Return another array of the document."""
        arrays = self.references.arrays
        if key not in {*arrays, *arrays.refused}:
            return None
        layout = arrays[key]
        return layout, ReferencedObjects.of(self.references, self.sources, layout, self.open)

    def url(self, key: str) -> str:
        """Return the URL of the target of an object of the array; without a target, of the document and the key."""
        found = self.references.known(key)
        document = f"{self.references.url or 'references'}#{key.rstrip('/')}"
        return document if found is None or isinstance(found, bytes) else found.url


# Where the objects of an array are.
Located: TypeAlias = OwnObjects | ReferencedObjects


def check_absent(objects: Located, error: NotFound | Forbidden) -> None:
    """Accept an absent object (404, or 403 if ``objects`` allow it) as a missing chunk, or raise."""
    if isinstance(error, NotFound) and error.missing == "bucket":
        raise Unusable(error.message, url=error.url) from error
    if isinstance(error, NotFound) and error.missing == "target":
        raise error
    objects.absent(error)


def _within(span: Span, start: int, stop: int | None) -> Span:
    """Convert a span relative to bytes ``[start, stop)`` of an object to a span of the whole object."""
    # The whole object, or all from some byte on; only references that begin at 0 have no end.
    if stop is None:
        return span
    if span.start < 0:
        return Span("", max(start, stop + span.start), stop, span.etag)
    end = stop if span.stop is None else min(stop, start + span.stop)
    return Span("", min(start + span.start, end), end, span.etag)


Missing = Literal["fill", "error"]


class Normal(NamedTuple):
    """Normalisation of an array: ``(values - mean) / std``, as floats of the array's own precision, or float32.

    Mean and standard deviation (1 where values do not vary) have the shape of the array, with 1 for dimensions that
    were not kept. ``words`` describe it in plans.
    """

    mean: NDArray[np.float64]
    std: NDArray[np.float64]
    words: str

    @staticmethod
    def dtype(dtype: DTypeLike) -> np.dtype[Any]:
        """Return the type of normalised values."""
        found = np.dtype(dtype)
        return found if found.kind == "f" else np.dtype("f4")

    def apply(self, values: NDArray[Any], box: tuple[slice, ...], *, own: bool) -> NDArray[Any]:
        """Return the normalised values of a chunk, which holds the elements ``box``; in place with ``own``.

        Beyond the end of the array the values of a chunk are undefined.
        """
        dtype = self.dtype(values.dtype)
        # Float32 cannot tell integers above 2^24 from one another, and differences overflow float16.
        wide = np.result_type(values.dtype, np.float32)
        in_place = own and values.dtype == dtype and values.flags.writeable
        found = values if in_place else np.empty(values.shape, dtype)
        inside = tuple(slice(each.stop - each.start) for each in box)
        at = tuple(each if size > 1 else slice(None) for each, size in zip(box, self.mean.shape, strict=True))
        mean, std = self.mean[at].astype(wide), self.std[at].astype(wide)
        distances = np.subtract(values[inside], mean, out=found[inside] if dtype == wide else None, dtype=wide)
        np.divide(distances, std, out=found[inside], casting="same_kind")
        return found


# In arrays that xarray wrote, Zarr v2's fill_value is CF's _FillValue; xarray names their dimensions in this attribute.
_CF = ATTRIBUTES | {"_ARRAY_DIMENSIONS"}
# Attributes that tell one variable from another. A copy has them, too, also one in Zarr v3 of a store in v2;
# programs rewrite others in place, such as ``history``.
_TELLING = ("standard_name", "long_name", "units", "scale_factor", "add_offset")


class StoredArray(NamedTuple):
    """Array and its location.

    Attributes:
        source: Store of the metadata.
        meaning: Decoding of stored values by the CF attributes; None: values are used as stored.
        stored: The arrays that this one consists of, in order, if there are several: ``layout`` has the shape of all,
            and the other attributes are those of the first. They follow one another along the dimension with the number
            ``along``; if ``stacked``, it is a new one, with an element for each array.
        chosen: Elements that a selection of xarray takes, by dimension.
    """

    source: Source
    layout: Layout
    objects: Located
    meaning: Decoding | None = None
    stored: tuple[StoredArray, ...] = ()
    along: int = 0
    stacked: bool = False
    normal: Normal | None = None
    chosen: Mapping[str, int | Sequence[int]] = {}

    @classmethod
    def of(
        cls, source: Source, layout: Layout, objects: Located | None = None, *, decode_cf: bool | None
    ) -> StoredArray:
        """Return an array; its objects are those of its store unless ``objects`` is given.

        With ``decode_cf`` True, values are decoded by the CF attributes. With None, only if the array has such
        attributes, or has floating-point numbers and was written by xarray.
        """
        decodes = not _CF.isdisjoint(layout.attributes) if decode_cf is None else decode_cf
        objects = OwnObjects(source) if objects is None else objects
        url = objects.url(layout.key)
        return cls(source, layout, objects, cf_of(layout, url, asked=bool(decode_cf)) if decodes else None)

    @property
    def decoded(self) -> Layout:
        """Layout with the type of the decoded values, normalised or not."""
        dtype = self.layout.dtype if self.meaning is None else self.meaning.dtype
        dtype = dtype if self.normal is None else self.normal.dtype(dtype)
        return self.layout if dtype == self.layout.dtype else replace(self.layout, dtype=dtype)

    @property
    def url(self) -> str:
        return self.objects.url(self.layout.key)

    @property
    def where(self) -> tuple[str, str]:
        """URL of the array; of virtual arrays without a document, also a digest of the locations of their chunks."""
        return self.url, self.objects.references.digest if isinstance(self.objects, ReferencedObjects) else ""

    @property
    def values(self) -> Hashable:
        """Identity of the values: equal if one array was opened twice and is decoded alike."""
        places = ((part.source.address(part.layout.key), *part.where, id(part.objects.records)) for part in self.parts)
        return *places, self.meaning is None

    @property
    def parts(self) -> tuple[StoredArray, ...]:
        """The arrays that this one consists of: itself, if it is in one store."""
        return self.stored or (self,)

    @property
    def identity(self) -> list[list[Any]]:
        """Place, shape and identifying attributes of each part; equal for a copy elsewhere, as for ``Catalog.digest``.

        The place is the key below the common folder of several parts in one store; otherwise empty.
        """
        places = [part.layout.key for part in self.parts]
        one_store = len({part.source.root for part in self.parts}) == 1
        common = reduce(common_folder, places)
        return [
            [
                place.removeprefix(common) if one_store else "",
                part.layout.shape,
                {name: part.layout.attributes.get(name) for name in _TELLING},
            ]
            for place, part in zip(places, self.parts, strict=True)
        ]

    def numbered(self, number: Callable[[Source], int]) -> StoredArray:
        parts = tuple(part.numbered(number) for part in self.stored)
        objects = parts[0].objects if parts else self.objects.numbered(number)
        return self._replace(objects=objects, stored=parts)


def alike(arrays: Sequence[StoredArray]) -> list[int]:
    """Return, for each array, the number of the first one with the same chunks, such as a field and its copy."""
    found: dict[Hashable, int] = {}
    numbers = []
    for number, array in enumerate(arrays):
        # The digest of a million locations takes seconds, and their program seldom passes them twice.
        if any(isinstance(part.objects, ReferencedObjects) and not part.objects.references.url for part in array.parts):
            numbers.append(number)
            continue
        normal = None if array.normal is None else (array.normal.mean.tobytes(), array.normal.std.tobytes())
        fills = isinstance(array.objects, OwnObjects) and array.objects.forbidden_is_missing
        layout = array.layout
        which = array.values, layout.dims, layout.shape, layout.lengths, normal, fills
        numbers.append(found.setdefault(which, number))
    return numbers


def numbered(arrays: Sequence[StoredArray]) -> tuple[tuple[StoredArray, ...], Stores]:
    """Return the arrays, with the numbers of their stores set, and these stores."""
    stores = Stores()
    found = tuple(array.numbered(stores.number) for array in arrays)
    if not stores.sources:
        stores.number(arrays[0].source)
    stores.grow = any(part.objects.records is not None for array in arrays for part in array.parts)
    return found, stores
