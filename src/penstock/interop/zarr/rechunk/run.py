"""``copy``: a zarr array or group into another URL, with other chunks, shards and codecs."""

from __future__ import annotations

import json
import os
from contextlib import closing
from dataclasses import dataclass
from hashlib import sha256
from itertools import accumulate
from math import ceil, prod
from threading import Event
from time import monotonic
from typing import TYPE_CHECKING, Any, Literal, NamedTuple, TypedDict, Unpack

import numpy as np

from penstock.bulk.tasks.pool import run_jobs
from penstock.bulk.tasks.steps import blocking
from penstock.errors import Cancelled, ChecksumMismatch, Damaged, PenstockError, Unusable, public_url
from penstock.interop.zarr.rechunk.documents import Form, form
from penstock.interop.zarr.rechunk.hierarchy import copying, opened
from penstock.interop.zarr.rechunk.journal import Journal
from penstock.interop.zarr.rechunk.plan import Grids, Regions, memory_bytes, object_reads, regions
from penstock.interop.zarr.store import Store
from penstock.progress import bar
from penstock.protocols.driver import Delete, List, Put
from penstock.providers.protected import check_deletable
from penstock.providers.urls import parse
from penstock.source import open_source
from penstock.values import as_folder

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping, Sequence

    import zarr
    from numpy.typing import NDArray

    from penstock.interop.zarr.rechunk.hierarchy import Node
    from penstock.options import StoreOptions

__all__ = ["ArrayCopy", "Copied", "CopyKeywords", "CopyOptions", "Run", "copy"]

_SHARE = 4  # regions at once, at least, where one object of the destination does not need more memory than that leaves
_JOURNAL_S = 1.0  # between two records of what is done: so much work is repeated after a kill, and what was under way


@dataclass(frozen=True, slots=True)
class CopyOptions:
    """How an array or group is copied.

    Attributes:
        chunks: Sizes of a chunk: for every array of so many dimensions, by dimension (``{"time": 1}``) or by array
            (``{"tas": (1, 180, 360)}``); -1 is the whole dimension. Default: as they are.
        shards: Sizes of a shard, likewise; "none" for no shards.
        codec: ``zstd``, ``zstd:5``, ``gzip:6``, ``blosc-lz4``, ``blosc-zstd:3``, ``none``; default: as it is.
        zarr_format: 3 makes format 3 of format 2.
        memory_bytes: The most memory for data, of all regions at once.
        dry_run: Only say what would be done.
        resume: Go on with an unfinished copy, where there is one.
        overwrite: Delete first what is at the destination.

    """

    chunks: int | Sequence[int] | Mapping[str, int | Sequence[int]] | None = None
    shards: int | Sequence[int] | Mapping[str, int | Sequence[int]] | Literal["none"] | None = None
    codec: str | None = None
    zarr_format: Literal[2, 3] | None = None
    memory_bytes: int = 1 << 30
    dry_run: bool = False
    resume: bool = False
    overwrite: bool = False


class CopyKeywords(TypedDict, total=False):
    """``CopyOptions``, as ``copy`` takes them."""

    chunks: int | Sequence[int] | Mapping[str, int | Sequence[int]] | None
    shards: int | Sequence[int] | Mapping[str, int | Sequence[int]] | Literal["none"] | None
    codec: str | None
    zarr_format: Literal[2, 3] | None
    memory_bytes: int
    dry_run: bool
    resume: bool
    overwrite: bool


@dataclass(frozen=True, slots=True)
class ArrayCopy:
    """How one array is copied.

    Attributes:
        path: Below the root; empty for the root itself.
        shape: In elements.
        dtype: Of decoded values.
        before: How it lies in the source's objects.
        after: How it will lie in the destination's.
        regions: The boxes that are copied at once.
        reads: How often an object of the source is read, on average: 1.0 is once.
        region_bytes: The most memory that one region takes.

    """

    path: str
    shape: tuple[int, ...]
    dtype: str
    before: Form
    after: Form
    regions: Regions
    reads: float
    region_bytes: int

    @property
    def size_bytes(self) -> int:
        """Bytes of the decoded array."""
        return prod(self.shape) * np.dtype(self.dtype).itemsize


@dataclass(slots=True)
class Copied:
    """What a copy did, or would do.

    Attributes:
        arrays: How each array is copied.
        regions: All regions.
        resumed: Those of them that an earlier run had done.
        size_bytes: Decoded bytes that this run copied.
        complete: Whether the destination is complete: not after a dry run.

    """

    arrays: tuple[ArrayCopy, ...]
    regions: int
    resumed: int = 0
    size_bytes: int = 0
    complete: bool = False


def copy(
    source: str | os.PathLike[str] | Node,
    dest: str | os.PathLike[str],
    *,
    progress: bool | None = None,
    store: StoreOptions | str | None = None,
    **how: Unpack[CopyKeywords],
) -> Copied:
    """Copy a zarr array or group, with attributes, names of dimensions and fill values, into other chunks and shards.

    zarr decodes and encodes. The array is cut into regions of whole objects of the destination, which are read, written
    and read back in parallel; what is read back must be equal, bit for bit. Each region is as large as reading every
    object of the source once needs, as far as ``memory_bytes`` allows: that is for data, and the C library's allocator
    may keep some tens of MiB beside it.

    The metadata is written last, so no reader sees a part of the copy as an array. Until then the destination has a
    folder ``.zarr-copy`` with the numbers of the regions that are done: ``resume=True`` goes on after a kill.

    Requests: one for each object of the source (``ArrayCopy.reads``), two for each one of the destination, and one a
    second for the journal.

    Args:
        source: A URL, or an open array or group of zarr's, of any store.
        dest: A URL where nothing is, of a store that lists, takes and deletes objects.
        progress: Show a bar on standard error; by default where that is a terminal and rich is installed.
        store: Options of both sides, or the name of a profile.
        how: See ``CopyOptions``.

    Raises:
        NotFound: No array or group is at the source.
        AlreadyExists: Something is at the destination, and neither ``resume`` nor ``overwrite`` was given.
        StateMismatch: ``resume``, and the unfinished copy there is another one.
        Unusable: Chunks, shards or a codec that cannot be; one place lies in the other; too little memory.
        ChecksumMismatch: What was read back differs.
        PenstockError: The first failure; what is done stays, and ``resume`` goes on.

    """
    given = os.fspath(source) if isinstance(source, str | os.PathLike) else source
    run = Run(given, os.fspath(dest), CopyOptions(**how), store)
    run.execute(progress=progress)
    return run.result


class _Job(NamedTuple):
    """One region: its number among all of the copy, its array, and the slices."""

    number: int
    array: ArrayCopy
    box: tuple[slice, ...]


class Run:
    """One copy, as it goes on.

    Attributes:
        result: What was done so far.
        journal_s: Seconds between two records of what is done.

    """

    def __init__(self, source: str | Node, dest: str, options: CopyOptions, store: StoreOptions | str | None) -> None:
        """Open the source and plan; nothing is written. Raises as ``copy``."""
        if options.resume and options.overwrite:
            raise Unusable("resume goes on with what is there, and overwrite deletes it: choose one")
        self.options = options
        self.journal_s = _JOURNAL_S
        self._dest = Store(dest, store=store)
        self._target, key = open_source(dest, store)
        self._base = as_folder(key.rstrip("/"))
        self._where = source if isinstance(source, str) else str(source.store_path)
        if isinstance(source, str):
            self._check_apart(source, store)
        root = opened(source, store) if isinstance(source, str) else source
        self._copying = copying(root, options.chunks, options.shards, options.codec, options.zarr_format)
        self._journal = Journal(self._target, self._base)
        for verb in (List, Put, Delete):
            self._target.require(verb, self._base)
        planned, self._pinned = self._planned()
        self.result = Copied(planned, sum(len(each.regions) for each in planned))

    def execute(self, *, progress: bool | None = None) -> None:
        """Copy; nothing for a dry run. Raises as ``copy``."""
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
                for number, size_bytes in self._copied(self._jobs(done, count), stop):
                    new.add(number)
                    self.result.size_bytes += size_bytes
                    count(1, size_bytes)
                    if monotonic() - written >= self.journal_s:
                        self._journal.add(new)
                        recorded, written = len(new), monotonic()
        finally:
            if len(new) > recorded:
                self._journal.add(new)
        self._journal.write(self._copying.objects)
        self._journal.end()
        self.result.complete = True

    # -- before ------------------------------------------------------------------------------------------------------

    def _planned(self) -> tuple[tuple[ArrayCopy, ...], dict[str, object] | None]:
        """Return how each array is copied; the regions of an unfinished copy that is resumed stay what they are."""
        plan = self._journal.plan() if self.options.resume else None
        if plan is not None:
            self._journal.check(plan, self._digest())
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

    def _digest(self) -> str:
        """Return what tells this copy from others: where from, and the documents of both sides."""
        forms = json.dumps(self._copying.forms, sort_keys=True, default=str)
        whole = [public_url(self._where), forms, *(f"{key} {text!r}" for key, text in self._copying.objects.items())]
        return sha256("\n".join(whole).encode()).hexdigest()

    def _check_apart(self, source: str, store: StoreOptions | str | None) -> None:
        origin, key = open_source(source, store)
        *where, here = origin.address(as_folder(key.rstrip("/")))
        *other, there = self._target.address(self._base)
        if where == other and (str(here).startswith(str(there)) or str(there).startswith(str(here))):
            raise Unusable(
                f"{source} and the destination lie in one another: choose another destination", url=self._dest.url
            )

    def _is_complete(self) -> bool:
        """Say whether an earlier run has completed this copy; what is left of its journal is deleted."""
        if not self.options.resume or self._pinned is not None or not self._journal.holds(self._copying.objects):
            return False
        self._journal.end()
        self.result.resumed, self.result.complete = self.result.regions, True
        return True

    def _begin(self) -> set[int]:
        if self._pinned is not None:
            return self._journal.done()
        if self.options.overwrite:
            check_deletable(parse(self._dest.url).at(self._base))
            self._journal.clear()
        else:
            self._journal.check_empty()
        self._journal.begin(self._digest(), {each.path: each.regions.box for each in self.result.arrays})
        return set()

    # -- regions -----------------------------------------------------------------------------------------------------

    def _jobs(self, done: set[int], count: Callable[[int, int], None]) -> Iterator[_Job]:
        firsts = accumulate((len(each.regions) for each in self.result.arrays), initial=0)
        for first, array in zip(firsts, self.result.arrays, strict=False):
            for number in range(len(array.regions)):
                job = _Job(first + number, array, array.regions[number])
                if job.number in done:
                    count(1, _size_bytes(job))
                else:
                    yield job

    def _copied(self, jobs: Iterator[_Job], stop: Event) -> Iterator[tuple[int, int]]:
        """Yield the number and the bytes of each region that was copied; the first failure ends it."""

        async def work(job: _Job) -> None:
            path = job.array.path
            await blocking(_copy, self._copying.arrays[path], self._copying.dest(path, self._dest), job, stop)

        costs = run_jobs(jobs, work, lambda job: job.array.region_bytes, stop, self.options.memory_bytes)
        with closing(costs) as results:
            for job, result in results:
                if isinstance(result, PenstockError):
                    raise result
                yield job.number, _size_bytes(job)


def _copy(source: zarr.Array[Any], dest: zarr.Array[Any], job: _Job, stop: Event) -> None:
    """Read, write and verify one region."""
    values = np.asarray(_read(source, job), dtype=dest.dtype)
    if stop.is_set():
        raise Cancelled("cancelled")
    dest[job.box] = values
    if _equal(values, _read(dest, job)):
        return
    # zarr leaves out chunks that equal the fill value, and takes NaN for equal whatever its bits are.
    dest.with_config({"write_empty_chunks": True})[job.box] = values
    if not _equal(values, _read(dest, job)):
        raise ChecksumMismatch(f"{_named(job)} is not what was written", url=str(dest.store_path))


def _read(array: zarr.Array[Any], job: _Job) -> object:
    try:
        return array[job.box]
    except PenstockError:
        raise
    except Exception as error:
        raise Damaged(f"{_named(job)} cannot be decoded: {error}", url=str(array.store_path)) from error


def _equal(values: NDArray[Any], found: object) -> bool:
    """Compare bit for bit; strings and other objects by value."""
    back = np.asarray(found, dtype=values.dtype)
    if values.dtype.kind in "OT":
        return bool(np.array_equal(values, back))
    return values.shape == back.shape and bool(np.array_equal(_bits(values), _bits(back)))


def _bits(values: NDArray[Any]) -> NDArray[np.uint8]:
    return np.ascontiguousarray(values).reshape(-1).view(np.uint8)


def _named(job: _Job) -> str:
    return f"array {job.array.path or '/'!r}[{', '.join(f'{each.start}:{each.stop}' for each in job.box)}]"


def _size_bytes(job: _Job) -> int:
    elements: int = prod(each.stop - each.start for each in job.box)
    return elements * np.dtype(job.array.dtype).itemsize
