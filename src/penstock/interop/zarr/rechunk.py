"""Copies of zarr arrays and groups with other chunks, shards and codecs; zarr decodes and encodes.

``regions`` divides an array into boxes that are read, written and verified as units; it only computes. ``CopyRun``
plans, copies region after region, and publishes the documents last. ``Journal`` records finished regions, so that an
interrupted copy can resume; a copy in parts (``parts``) keeps its records in a separate folder.
"""

from __future__ import annotations

import json
import uuid
from contextlib import closing
from dataclasses import dataclass
from hashlib import sha256
from itertools import accumulate, product
from math import ceil, inf, lcm, prod
from threading import Event
from time import monotonic
from typing import TYPE_CHECKING, Any, Literal, NamedTuple

import numpy as np
from zarr.storage import LocalStore

from penstock.engine.contracts.driver import Delete, List, Put
from penstock.errors import (
    AlreadyExists,
    Cancelled,
    ChecksumMismatch,
    Damaged,
    DatasetChanged,
    NotFound,
    PenstockError,
    StateMismatch,
    Unusable,
    public_url,
)
from penstock.interop.zarr.documents import DOCUMENTS, ArrayForm, form, open_node, plan_copy
from penstock.interop.zarr.store import Store
from penstock.jobs.tasks import run_blocking, run_jobs
from penstock.progress import bar
from penstock.schema import COUNT, read_json
from penstock.source import open_source
from penstock.stores.urls import check_deletable, parse
from penstock.values import Span, as_folder, switch, whole

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence

    import zarr
    from numpy.typing import NDArray

    from penstock.interop.zarr.documents import Node
    from penstock.options import StoreOptions
    from penstock.source import Source
    from penstock.values import ObjectMeta

    Sizes = int | Sequence[int] | Mapping[str, int | Sequence[int]]

MEMORY_BYTES = 1 << 30
# Least number of parallel regions, unless one object of the destination needs more memory than their equal share.
_SHARE = 4
# Time between two journal records: after a kill, so much work and the regions in progress are repeated.
_JOURNAL_S = 1.0


@dataclass(frozen=True, slots=True)
class CopyOptions:
    """Options of ``copy``, which describes them."""

    chunks: Sizes | None = None
    shards: Sizes | Literal["none"] | None = None
    codec: str | None = None
    zarr_format: Literal[2, 3] | None = None
    memory_bytes: int = MEMORY_BYTES
    dry_run: bool = False
    resume: bool = False
    overwrite: bool = False

    def __post_init__(self) -> None:
        """Refuse values that only look valid: a text such as "no" would count as True."""
        for name in ("dry_run", "resume", "overwrite"):
            object.__setattr__(self, name, switch(getattr(self, name), name))
        object.__setattr__(self, "memory_bytes", whole(self.memory_bytes, "memory_bytes", 1))
        if not isinstance(self.codec, str | None):
            raise Unusable(f"codec must be a text such as 'zstd:5', got {self.codec!r}")
        if isinstance(self.zarr_format, bool) or self.zarr_format not in (None, 2, 3):
            raise Unusable(f"zarr_format must be 2 or 3, got {self.zarr_format!r}")


@dataclass(frozen=True, slots=True)
class ArrayCopy:
    """The plan for one array.

    Attributes:
        path: Path below the root; empty for the root itself.
        before: Layout in the source's objects.
        after: Layout in the destination's objects.
        regions: The boxes, each of which is copied as a unit.
        reads: Average number of reads of a source object: 1.0 is once.
        region_bytes: The most memory that one region takes.
    """

    path: str
    shape: tuple[int, ...]
    dtype: str
    before: ArrayForm
    after: ArrayForm
    regions: Regions
    reads: float
    region_bytes: int

    @property
    def size_bytes(self) -> int:
        return prod(self.shape) * np.dtype(self.dtype).itemsize


@dataclass(slots=True)
class Copied:
    """The result of a copy, or the plan of a dry run.

    Attributes:
        arrays: The plan for each array.
        regions: Number of all regions.
        resumed: Number of regions that earlier runs had done.
        size_bytes: Decoded bytes that this run copied.
        complete: Whether the destination is complete; False after a dry run.
    """

    arrays: tuple[ArrayCopy, ...]
    regions: int
    resumed: int = 0
    size_bytes: int = 0
    complete: bool = False


class Region(NamedTuple):
    """A region: its number among all regions of the copy, its array, and its slices."""

    number: int
    array: ArrayCopy
    box: tuple[slice, ...]

    @property
    def size_bytes(self) -> int:
        elements: int = prod(each.stop - each.start for each in self.box)
        return elements * np.dtype(self.array.dtype).itemsize


class CopyRun:
    """A copy in progress; ``result`` has the progress so far."""

    def __init__(self, source: str | Node, dest: str, options: CopyOptions, store: StoreOptions | str | None) -> None:
        """Open the source and plan the copy; write nothing. Raises the errors of ``copy``."""
        if options.resume and options.overwrite:
            raise Unusable("resume= continues an existing copy, and overwrite= deletes it: pass one of them")
        self.options = options
        self.journal_s = _JOURNAL_S
        self._dest = Store(dest, store=store)
        self._target, key = open_source(dest, store)
        self._base = as_folder(key.rstrip("/"))
        self._where = source if isinstance(source, str) else str(source.store_path)
        self._origin = _origin(source, store)
        self._versions = ""
        if isinstance(source, str) and self._origin is not None:
            self._check_apart(source, *self._origin)
        root = open_node(source, store) if isinstance(source, str) else source
        self._copying = plan_copy(root, options.chunks, options.shards, options.codec, options.zarr_format)
        self.journal = Journal(self._target, self._base)
        for verb in (List, Put, Delete):
            self._target.require(verb, self._base)
        planned, self._pinned = self._planned()
        self.result = Copied(planned, sum(len(each.regions) for each in planned))

    def execute(self, *, progress: bool | None = None) -> None:
        """Copy the arrays; do nothing for a dry run. Raises the errors of ``copy``."""
        if self.options.dry_run or self._is_complete():
            return
        done = self._begin()
        self.result.resumed = len(done)
        new: set[int] = set()
        recorded, written = 0, monotonic()
        sizes = sum(each.size_bytes for each in self.result.arrays)
        stop = Event()
        try:
            with bar("copying", self.result.regions, sizes, shown=progress) as count:
                for region in self.copied(self._left(done, count), stop):
                    new.add(region.number)
                    self.result.size_bytes += region.size_bytes
                    count(1, region.size_bytes)
                    if monotonic() - written >= self.journal_s:
                        self.journal.add(new)
                        recorded, written = len(new), monotonic()
        finally:
            if len(new) > recorded:
                self.journal.add(new)
        if self.versions() != self._versions:
            raise DatasetChanged(
                "the source was written while it was copied: start over with --overwrite (overwrite=True)",
                url=public_url(self._where),
            )
        self.publish()
        self.journal.end()
        self.result.complete = True

    def publish(self) -> None:
        self.journal.write(self._copying.objects)

    def versions(self) -> str:
        """Return a digest of the versions of the source's chunks: a listing; empty if the store lists none."""
        found = sha256()
        for each in self._chunks():
            found.update(f"{each.key}\n{each.etag or (each.size, each.modified)}\n".encode())
        return found.hexdigest()

    def _chunks(self) -> Iterator[ObjectMeta]:
        if self._origin is not None and self._origin[0].supports(List):
            for page in self._origin[0].pages(self._origin[1]):
                yield from (each for each in page.entries if each.key.rpartition("/")[2] not in DOCUMENTS)

    # -- planning ----------------------------------------------------------------------------------------------------

    def _planned(self) -> tuple[tuple[ArrayCopy, ...], dict[str, object] | None]:
        """Return the plan for each array, and the journal's plan of a resumed copy, whose regions are kept."""
        plan = self.journal.plan() if self.options.resume else None
        if plan is not None:
            self._versions = self.versions()
            self.journal.check(plan, self.digest(), self._versions)
        boxes = {} if plan is None else plan["boxes"]
        return tuple(self._array(path, boxes.get(path)) for path in self._copying.arrays), plan

    def _array(self, path: str, box: Sequence[int] | None) -> ArrayCopy:
        array, most_bytes = self._copying.arrays[path], self.options.memory_bytes
        before, after = form(self._copying.forms[path]), form(self._copying.documents[path])
        grids = Grids(array.shape, before.object, after.object, array.dtype.itemsize)
        chosen = regions(grids, most_bytes // _SHARE, most_bytes) if box is None else Regions(grids.shape, tuple(box))
        objects = prod(ceil(size / each) for size, each in zip(grids.shape, grids.source, strict=True))
        reads = object_reads(grids, chosen.box) / max(objects, 1)
        cost_bytes = memory_bytes(grids, chosen.box)
        return ArrayCopy(path, array.shape, array.dtype.str, before, after, chosen, reads, cost_bytes)

    def digest(self) -> str:
        """Return a digest that identifies this copy, from the source's location and the documents of both sides."""
        forms = json.dumps(self._copying.forms, sort_keys=True, default=str)
        whole = [public_url(self._where), forms, *(f"{key} {text!r}" for key, text in self._copying.objects.items())]
        return sha256("\n".join(whole).encode()).hexdigest()

    def _check_apart(self, source: str, origin: Source, folder: str) -> None:
        *where, here = origin.address(folder)
        *other, there = self._target.address(self._base)
        if where == other and (str(here).startswith(str(there)) or str(there).startswith(str(here))):
            raise Unusable(f"{source} and the destination overlap: choose another destination", url=self._dest.url)

    def _is_complete(self) -> bool:
        """Return whether an earlier run has completed this copy; if so, delete the rest of its journal.

        Raise ``StateMismatch`` if a chunk of the source is newer than the copy.
        """
        if not self.options.resume or self._pinned is not None or not self.journal.holds(self._copying.objects):
            return False
        if max((each.modified or 0 for each in self._chunks()), default=0) > self.journal.completed(
            self._copying.objects
        ):
            message = "the source was written after its copy was complete: start over with --overwrite"
            raise StateMismatch(message, url=self.journal.url)
        self.journal.end()
        self.result.resumed, self.result.complete = self.result.regions, True
        return True

    def _begin(self) -> set[int]:
        if self._pinned is not None:
            return self.journal.done(self.result.regions)
        if self.options.overwrite:
            check_deletable(parse(self._dest.url).at(self._base))
            self.journal.clear()
        else:
            self.journal.check_empty()
        self._versions = self.versions()
        boxes = {each.path: each.regions.box for each in self.result.arrays}
        self.journal.begin(self.digest(), self._versions, boxes)
        return set()

    # -- regions -----------------------------------------------------------------------------------------------------

    def regions(self, start: int = 0, stop: int | None = None) -> Iterator[Region]:
        """Yield the regions of all arrays, in order, whose numbers are from ``start`` to before ``stop``."""
        end = self.result.regions if stop is None else stop
        firsts = accumulate((len(each.regions) for each in self.result.arrays), initial=0)
        for first, array in zip(firsts, self.result.arrays, strict=False):
            for number in range(max(start, first), min(end, first + len(array.regions))):
                yield Region(number, array, array.regions[number - first])

    def _left(self, done: set[int], count: Callable[[int, int], None]) -> Iterator[Region]:
        for region in self.regions():
            if region.number in done:
                count(1, region.size_bytes)
            else:
                yield region

    def copied(self, regions: Iterator[Region], stop: Event) -> Iterator[Region]:
        """Copy regions, in parallel, and yield each once it is verified; raise the first failure."""

        async def work(region: Region) -> None:
            path = region.array.path
            await run_blocking(_copy, self._copying.arrays[path], self._copying.dest(path, self._dest), region, stop)

        costs = run_jobs(regions, work, lambda each: each.array.region_bytes, stop, self.options.memory_bytes)
        with closing(costs) as results:
            for region, result in results:
                if isinstance(result, PenstockError):
                    raise result
                yield region


def _origin(source: str | Node, store: StoreOptions | str | None) -> tuple[Source, str] | None:
    """Return the store and folder of the source; None for an open array of a store that Penstock cannot list."""
    if isinstance(source, str):
        origin, key = open_source(source, store)
        return origin, as_folder(key.rstrip("/"))
    place, path = source.store_path.store, source.store_path.path
    if isinstance(place, Store):
        return place.source, as_folder(f"{as_folder(parse(place.url).key)}{path}".rstrip("/"))
    if isinstance(place, LocalStore):
        origin, key = open_source(place.root)
        return origin, as_folder(f"{as_folder(key)}{path}".rstrip("/"))
    return None


def _copy(source: zarr.Array[Any], dest: zarr.Array[Any], region: Region, stop: Event) -> None:
    values = np.asarray(_read(source, region), dtype=dest.dtype)
    if stop.is_set():
        raise Cancelled("cancelled")
    dest[region.box] = values
    if _equal(values, _read(dest, region)):
        return
    # zarr omits chunks that equal the fill value, and treats every NaN as equal, whatever its bits.
    dest.with_config({"write_empty_chunks": True})[region.box] = values
    if not _equal(values, _read(dest, region)):
        raise ChecksumMismatch(f"{_describe_region(region)} does not match the written data", url=str(dest.store_path))


def _read(array: zarr.Array[Any], region: Region) -> object:
    try:
        return array[region.box]
    except PenstockError:
        raise
    except Exception as error:
        raise Damaged(f"{_describe_region(region)} cannot be decoded: {error}", url=str(array.store_path)) from error


def _equal(values: NDArray[Any], found: object) -> bool:
    """Compare bit for bit; strings and other objects by value."""
    back = np.asarray(found, dtype=values.dtype)
    if values.dtype.kind in "OT":
        return bool(np.array_equal(values, back))
    return values.shape == back.shape and bool(np.array_equal(_bits(values), _bits(back)))


def _bits(values: NDArray[Any]) -> NDArray[np.uint8]:
    return np.ascontiguousarray(values).reshape(-1).view(np.uint8)


def _describe_region(region: Region) -> str:
    return f"array {region.array.path or '/'!r}[{', '.join(f'{each.start}:{each.stop}' for each in region.box)}]"


# No zarr array or group has chunks under this name.
_FOLDER = ".zarr-copy/"
_VERSION = 1
_PLAN = {"version": int, "digest": str, "versions": str, "boxes": {str: [COUNT]}}


class Journal:
    """The journal of a copy: objects at the destination that record its progress.

    ``plan.json`` contains the digest of the copy and the shapes of its regions. Each run adds one object,
    ``done-….json``, and replaces it as the copy progresses. A region is identified by its number among all regions of
    the copy.
    """

    def __init__(self, source: Source, base: str) -> None:
        """Use the folder ``base`` (empty, or ending in ``/``) of ``source``; no request."""
        self._source = source
        self._base = base
        self._folder = base + _FOLDER
        self._own = f"{self._folder}done-{uuid.uuid4().hex}.json"

    @property
    def url(self) -> str:
        return self._source.url(self._base)

    def plan(self) -> dict[str, Any] | None:
        """Return the plan of an unfinished copy, or None: one request; raise ``Damaged`` if it cannot be read."""
        plan: dict[str, Any] | None = self._read(f"{self._folder}plan.json", _PLAN)
        return plan

    def begin(self, digest: str, versions: str, boxes: dict[str, tuple[int, ...]]) -> None:
        """Write the plan: one request; raise ``AlreadyExists`` if another copy was begun in the meantime."""
        text = json.dumps({"version": _VERSION, "digest": digest, "versions": versions, "boxes": boxes})
        with self._source.open_write(f"{self._folder}plan.json", create_only=True) as file:
            file.write(text.encode())

    def check(self, plan: dict[str, Any], digest: str, versions: str) -> None:
        if plan.get("version") != _VERSION or plan.get("digest") != digest:
            message = "the unfinished copy has a different source, or different chunks, shards or codecs"
            raise StateMismatch(f"{message}: repeat the same call, or start over with --overwrite", url=self.url)
        if plan.get("versions") != versions:
            message = "the source was written after the unfinished copy began: start over with --overwrite"
            raise StateMismatch(message, url=self.url)

    def done(self, regions: int) -> set[int]:
        """Return the numbers of the written and verified regions: one request for each run."""
        found: set[int] = set()
        for key in self._keys():
            for start, stop in self._read(key, [[COUNT, COUNT]]) or ():
                found.update(range(start, min(stop, regions)))
        return found

    def add(self, numbers: Iterable[int]) -> None:
        """Replace this run's record of finished regions, atomically: one request."""
        self._source.put(self._own, json.dumps([*ranges(numbers)]).encode())

    def end(self) -> None:
        """Delete the journal, the plan first: a copy without a plan is complete."""
        self._source.delete([f"{self._folder}plan.json"])
        if keys := [*self._keys()]:
            self._source.delete(keys)

    def check_empty(self) -> None:
        """Raise ``AlreadyExists`` if the destination contains objects: one request."""
        for page in self._source.pages(self._base):
            if not page.entries:
                continue
            if page.entries[0].key.startswith(self._folder):
                remedy = "--resume (resume=True) continues it, --overwrite starts over"
                raise AlreadyExists(f"an unfinished copy exists: {remedy}", url=self.url)
            remedy = "choose another, or --overwrite (overwrite=True) deletes what is there"
            raise AlreadyExists(f"the destination is not empty: {remedy}", url=self.url)

    def clear(self) -> None:
        """Delete all objects of the destination: first the metadata of arrays and groups, then the others."""
        for first in (True, False):
            for page in self._source.pages(self._base):
                keys = [each.key for each in page.entries]
                chosen = [each for each in keys if not first or each.rpartition("/")[2] in DOCUMENTS]
                if chosen:
                    self._source.delete(chosen)

    def holds(self, objects: dict[str, bytes]) -> bool:
        """Return whether all of these objects exist with this content: at most one request each."""
        return all(self._read_bytes(self._base + key) == data for key, data in objects.items())

    def completed(self, objects: dict[str, bytes]) -> float:
        """Return when the last of these objects was written: one request; infinity if the store does not report it."""
        written = self._source.head(self._base + [*objects][-1]).modified
        return inf if written is None else written

    def write(self, objects: dict[str, bytes]) -> None:
        for key, data in objects.items():
            self._source.put(self._base + key, data)

    def _keys(self) -> Iterator[str]:
        for page in self._source.pages(self._folder):
            yield from (each.key for each in page.entries if "/done-" in each.key)

    def _read(self, key: str, form: object) -> Any:
        data, what = self._read_bytes(key), "the journal of an unfinished copy (start over with --overwrite)"
        return None if data is None else read_json(data, form, what, self._source.url(key))

    def _read_bytes(self, key: str) -> bytes | None:
        try:
            return self._source.read(Span(key))
        except NotFound as error:
            if error.missing in ("bucket", "target"):
                raise
            return None


def ranges(numbers: Iterable[int]) -> Iterator[tuple[int, int]]:
    """Yield numbers as half-open ranges, in order."""
    start = stop = -1
    for number in sorted(numbers):
        if number != stop:
            if stop > start:
                yield start, stop
            start = number
        stop = number + 1
    if stop > start:
        yield start, stop


# Objects of one region that zarr reads or writes in parallel: its "async.concurrency".
_AT_ONCE = 10
# Regions are not enlarged beyond this size if that saves no read.
_WORTHWHILE_BYTES = 32 << 20
# Regions of more memory are chosen if all others need more than 1.1 times as many reads.
_DEAR = 1.1
# WriteOptions.buffer_bytes and part_bytes, for objects of several parts.
_WRITER_BYTES, _PART_BYTES = 64 << 20, 16 << 20


class Grids(NamedTuple):
    """Shapes of an array, and of one object (a shard, or a chunk of an array without shards) on either side."""

    shape: tuple[int, ...]
    source: tuple[int, ...]
    dest: tuple[int, ...]
    item_bytes: int


@dataclass(frozen=True, slots=True)
class Regions:
    """An array divided into boxes of one shape, each of whole objects of the destination; the last are clipped."""

    shape: tuple[int, ...]
    box: tuple[int, ...]

    @property
    def grid(self) -> tuple[int, ...]:
        return tuple(ceil(size / step) for size, step in zip(self.shape, self.box, strict=True))

    def __len__(self) -> int:
        """Return the number of regions: 0 for an array without elements, 1 for an array without dimensions."""
        return prod(self.grid)

    def __getitem__(self, number: int) -> tuple[slice, ...]:
        """Return a region by its number, row-major, as slices of the array."""
        slices: list[slice] = []
        for count, step, size in reversed([*zip(self.grid, self.box, self.shape, strict=True)]):
            number, at = divmod(number, count)
            slices.append(slice(at * step, min((at + 1) * step, size)))
        return tuple(reversed(slices))


def object_reads(grids: Grids, box: tuple[int, ...]) -> int:
    """Return the total number of reads of source objects: the product, over dimensions, of the sums over regions.

    An object in several regions is read once for each of them. The minimum is the number of objects.
    """
    return prod(map(_reads, grids.shape, grids.source, box))


def _reads(size: int, source: int, step: int) -> int:
    starts = np.arange(0, size, step, dtype=np.int64)
    stops = np.minimum(starts + step, size)
    return int((-(-stops // source) - starts // source).sum())


def memory_bytes(grids: Grids, box: tuple[int, ...]) -> int:
    """Return the most memory that one region takes, in bytes.

    The sum of twice the region (the values read, and the values read back) and the larger of two amounts: the source
    objects that zarr decodes in parallel (ten at most), encoded and decoded; or the destination objects that it encodes
    in parallel (ten at most), three times each (ordered, encoded, joined), with a writer's 64 MiB for each object
    that is uploaded in parts.
    """
    clipped = [min(step, size) for step, size in zip(box, grids.shape, strict=True)]
    # The most source objects that a region touches along each dimension.
    pairs = zip(clipped, grids.source, strict=True)
    read = prod(ceil(step / source) + bool(step % source and source % step) for step, source in pairs)
    written = prod(ceil(step / each) for step, each in zip(clipped, grids.dest, strict=True))
    one_read, one_written = (prod(each) * grids.item_bytes for each in (grids.source, grids.dest))
    writer = _WRITER_BYTES if one_written > _PART_BYTES else 0
    reading = 2 * min(read, _AT_ONCE) * one_read
    writing = min(written, _AT_ONCE) * (3 * one_written + writer)
    return 2 * prod(clipped) * grids.item_bytes + max(reading, writing)


def regions(grids: Grids, limit_bytes: int, most_bytes: int) -> Regions:
    """Return the regions with the fewest reads of source objects, each within ``limit_bytes`` of memory.

    Among regions with equal reads, the largest up to 32 MiB is chosen. Regions of up to ``most_bytes``, of which fewer
    run in parallel, are chosen if they save a tenth of the reads, or if no smaller region can be written.
    """
    least = tuple(grids.dest)
    needed = memory_bytes(grids, least)
    if needed > most_bytes:
        raise Unusable(
            f"an object of {'x'.join(map(str, least))} elements needs {_mib(needed)} of memory for its copy, but "
            f"only {_mib(most_bytes)} are allowed: choose smaller ones, or allow more (--memory, memory_bytes=)"
        )
    best, alone = (_best(grids, max(size_bytes, needed)) for size_bytes in (limit_bytes, most_bytes))
    if object_reads(grids, best) > _DEAR * object_reads(grids, alone):
        return Regions(grids.shape, alone)
    return Regions(grids.shape, _grow_box(grids, best, limit_bytes))


def _best(grids: Grids, limit_bytes: int) -> tuple[int, ...]:
    boxes = (each for each in _candidates(grids) if memory_bytes(grids, each) <= limit_bytes)
    return min(boxes, key=lambda box: (object_reads(grids, box), prod(box)))


def _candidates(grids: Grids) -> Iterator[tuple[int, ...]]:
    """Yield boxes of whole objects of the destination; along each dimension only sizes that save reads."""
    options = []
    for size, source, dest in zip(grids.shape, grids.source, grids.dest, strict=True):
        full = max(ceil(size / dest), 1) * dest
        steps = {dest, full, min(lcm(source, dest), full), min(ceil(source / dest) * dest, full)}
        steps |= {min(dest << power, full) for power in range(max(full // dest, 1).bit_length())}
        kept, fewest = [], None
        for step in sorted(steps):
            count = _reads(size, source, step)
            if fewest is None or count < fewest:
                kept.append(step)
                fewest = count
        options.append(kept)
    yield from product(*options)


def _grow_box(grids: Grids, box: tuple[int, ...], limit_bytes: int) -> tuple[int, ...]:
    """Return ``box``, doubled along its dimensions, last first, while it stays small and needs no more reads."""
    for axis in reversed(range(len(box))):
        while box[axis] < grids.shape[axis]:
            larger = (*box[:axis], 2 * box[axis], *box[axis + 1 :])
            small = prod(larger) * grids.item_bytes <= _WORTHWHILE_BYTES and memory_bytes(grids, larger) <= limit_bytes
            if not small or object_reads(grids, larger) > object_reads(grids, box):
                break
            box = larger
    return box


def _mib(size_bytes: int) -> str:
    return f"{ceil(size_bytes / (1 << 20)):,} MiB"
