"""Gathering of statistics: each chunk that samples touch is read and decoded once, and its moments are added up."""

from __future__ import annotations

import hashlib
import json
from collections import deque
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from functools import partial
from itertools import islice
from time import monotonic
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from penstock.data.zarr.chunks.contents import ShardIndexes, box_of
from penstock.data.zarr.samples.arrangement import dims_of
from penstock.data.zarr.statistics.moments import Moments, moments_of
from penstock.data.zarr.statistics.record import ArrayStatistics, ZarrStatistics
from penstock.data.zarr.statistics.versions import check_cached, check_versions, versions_of
from penstock.engine.contracts.fetching import ReadCounts
from penstock.errors import NotFound, Unusable
from penstock.progress import bar
from penstock.values import whole

if TYPE_CHECKING:
    import os
    from collections.abc import Callable, Generator, Hashable, Iterable, Iterator, Sequence
    from concurrent.futures import Future

    from numpy.typing import NDArray

    from penstock.data.zarr.arrays.stored import StoredArray
    from penstock.data.zarr.chunks.contents import ZarrContents
    from penstock.data.zarr.chunks.pool import Limits, MemoryPool
    from penstock.data.zarr.format.layout import Layout
    from penstock.data.zarr.samples.arrangement import Arrangement
    from penstock.engine.contracts.fetching import ReadOperation
    from penstock.values import Span

    # Numbers of chunks and, if they are known, digests of their versions.
    _Chunks = tuple[NDArray[np.int64], NDArray[np.int64] | None]

_KINDS = "biuf"  # kinds of dtypes that have a mean and an order
# Chunks whose shard indexes and references are read together.
_LEAD = 64
_SAVED_S = 30.0  # between two states of progress


class Sides(NamedTuple):
    """Names of the arrays of samples, and of those of targets."""

    samples: Sequence[str]
    targets: Sequence[str]


class _ArrayJob(NamedTuple):
    """Array whose statistics are gathered, by its number in the dataset, and the dimensions that are kept.

    ``used`` has a mask for each dimension: whether each element is used.
    """

    number: int
    used: list[NDArray[np.bool_]]
    kept: tuple[int, ...]


def elements_used(arrangement: Arrangement, numbers: Sequence[int], shape: Sequence[int]) -> list[NDArray[np.bool_]]:
    """Return, for each dimension of an array, whether samples use each element; of several arrays: of one of them.

    Raises ``Unusable`` if the elements of samples are not all combinations of elements along the dimensions.
    """
    found = [np.zeros(length, np.bool_) for length in shape]
    for number in numbers:
        cuts = arrangement.extractions[number].cuts
        axes = [cut.axis for cut in cuts if cut.axis is not None]
        positions = arrangement.space.along(axes)
        if positions is None:
            raise Unusable(
                "statistics are of all combinations of elements along the dimensions, and valid= (or a Subset) leaves "
                "out some of them: gather them before, or take parts by split and split_at"
            )
        at = dict(zip(axes, positions, strict=True))
        for mask, cut in zip(found, cuts, strict=True):
            chosen = np.asarray(cut.chosen, dtype=np.int64)
            start = np.zeros(1, np.int64) if cut.axis is None else at[cut.axis]
            for offset in (cut.window,) if isinstance(cut.window, int) else cut.window:
                mask[chosen[cut.scale * start + offset]] = True
    return found


def check_normals(contents: ZarrContents) -> None:
    """Raise for arrays that are normalised by statistics without values for some of their elements."""
    for number, array in enumerate(contents.arrays):
        if array.normal is not None and not np.isfinite(array.normal.std).all():
            shape = array.layout.shape
            used = [*map(np.flatnonzero, elements_used(contents.arrangement, [number], shape))]
            there = [
                some if size > 1 else np.zeros(1, int) for some, size in zip(used, array.normal.std.shape, strict=True)
            ]
            if not np.isfinite(array.normal.std[np.ix_(*there)]).all():
                raise Unusable(
                    "normalize has no values for some elements that samples take, or infinite ones: gather statistics "
                    "of these, too, and of finite values",
                    url=array.url,
                )


def gather_moments(
    contents: ZarrContents,
    sides: Sides,
    by: Sequence[str],
    limits: Limits,
    part: tuple[int, int],
    how: tuple[int, bool | None, str | os.PathLike[str] | None],
) -> ZarrStatistics:
    """Return the statistics of the arrays of a dataset; ``part`` is the number of a share of the chunks, and of shares.

    ``how``: threads that decode, whether to show progress, and a file of the state, which is continued if it exists.
    """
    threads, shown, save = how
    part = _share(part)
    groups = _groups(contents.arrays)
    jobs = [_job(contents, numbers, by) for numbers in groups]
    chunks = np.concatenate([_chunks(contents, job) for job in jobs])
    chunks = chunks[len(chunks) * part[0] // part[1] : len(chunks) * (part[0] + 1) // part[1]]
    read, versions = _digest_inputs(contents, jobs, by), None if save is None else versions_of(contents, chunks)
    moments = [Moments.empty([len(job.used[axis]) for axis in job.kept]) for job in jobs]
    arrays = {
        number: ArrayStatistics(tuple(dims_of(contents.arrays[job.number].layout)[axis] for axis in job.kept), each)
        for numbers, job, each in zip(groups, jobs, moments, strict=True)
        for number in numbers
    }
    names = [*sides.samples, *sides.targets]
    count = len(sides.samples)

    def state(done: int) -> ZarrStatistics:
        some = [(name, arrays[number]) for number, name in enumerate(names)]
        of = "" if versions is None else hashlib.sha256(versions[:done].tobytes()).hexdigest()[:32]
        return ZarrStatistics(dict(some[:count]), dict(some[count:]), read, part, (done, len(chunks)), of)

    done = begun = _resume_statistics(
        state, save, [(arrays[number], name, number < count) for number, name in enumerate(names)]
    )
    saved, counted = monotonic(), True
    try:
        known = None if versions is None else versions[done:]
        reading = _read_chunks(contents, jobs, (chunks[done:], known), limits, whole(threads, "threads", 1))
        with closing(reading), bar("statistics", len(chunks) - done, None, shown=shown) as progress:
            for job, at, found in reading:
                counted = False
                moments[job].add(found, at)
                done += 1
                counted = True
                progress(1, 0)
                if save is not None and monotonic() > saved + _SAVED_S:
                    state(done).save(save)
                    saved = monotonic()
    finally:
        # After Ctrl-C between the two, the chunk would be added again later: the state of up to 30 s before is kept.
        if save is not None and counted:
            state(done).save(save)
    contents.verify()
    if versions is not None and done > begun:
        check_versions(contents, chunks, versions)
    return state(done)


def _share(part: object) -> tuple[int, int]:
    if not isinstance(part, tuple) or len(part) != 2:  # noqa: PLR2004  number and count
        raise Unusable(f"part must be a number and a count, as (rank, ranks), got {part!r}")
    count = whole(part[1], "the count of part", 1)
    number = whole(part[0], "the number of part", 0)
    if number >= count:
        raise Unusable(f"part must be one of 0 to {count - 1} of {count}, got {part!r}")
    return number, count


def _resume_statistics(
    state: Callable[[int], ZarrStatistics],
    save: str | os.PathLike[str] | None,
    arrays: Iterable[tuple[ArrayStatistics, str, bool]],
) -> int:
    """Add the moments of a saved state; return the number of chunks that it has: 0 if one was written anew since."""
    if save is None:
        return 0
    try:
        found = ZarrStatistics.load(save)
    except NotFound:
        return 0
    now = state(found.chunks[0])
    if (found.read, found.part, found.chunks[1]) != (now.read, now.part, now.chunks[1]):
        raise Unusable(
            "the file has statistics of other arrays, elements, dimensions or parts: delete it, or save to another",
            url=str(save),
        )
    if not now.versions or found.versions != now.versions:
        return 0
    added = set()
    for array, name, is_sample in arrays:
        if id(array.moments) not in added:
            added.add(id(array.moments))
            array.moments.add((found.samples if is_sample else found.targets)[name].moments)  # type: ignore[union-attr]
    return found.chunks[0]


def _groups(arrays: Sequence[StoredArray]) -> list[list[int]]:
    """Return the numbers of the arrays, those of the same stored values together."""
    found: dict[Hashable, list[int]] = {}
    for number, array in enumerate(arrays):
        found.setdefault(array.values, []).append(number)
    return [*found.values()]


def _job(contents: ZarrContents, numbers: Sequence[int], by: Sequence[str]) -> _ArrayJob:
    array = contents.arrays[numbers[0]]
    dims = dims_of(array.layout)
    if array.decoded.dtype.kind not in _KINDS:
        raise Unusable(f"values of {array.decoded.dtype} have no statistics: select other arrays", url=array.url)
    kept = tuple(axis for axis, name in enumerate(dims) if name in by)
    return _ArrayJob(numbers[0], elements_used(contents.arrangement, numbers, array.layout.shape), kept)


def _chunks(contents: ZarrContents, job: _ArrayJob) -> NDArray[np.int64]:
    """Return the numbers of the chunks that have used elements."""
    layout = contents.arrays[job.number].layout
    places = [
        np.unique(np.asarray(np.flatnonzero(mask) // length))
        for mask, length in zip(job.used, layout.lengths, strict=True)
    ]
    if not places:
        return np.array([contents.chunks.bases[job.number]], dtype=np.int64)
    grid = np.meshgrid(*places, indexing="ij")
    numbers = np.ravel_multi_index([each.reshape(-1) for each in grid], layout.grid)
    return contents.chunks.bases[job.number] + np.asarray(numbers, dtype=np.int64)


def _digest_inputs(contents: ZarrContents, jobs: Sequence[_ArrayJob], by: Sequence[str]) -> str:
    """Return the digest of what is read: arrays by URL, their documents, elements and decoding, and kept dimensions."""
    found: list[Any] = [[*by]]
    for job in jobs:
        array = contents.arrays[job.number]
        used = hashlib.sha256(b"".join(np.packbits(mask).tobytes() for mask in job.used)).hexdigest()
        parts = [[*part.where, repr(part.meaning), _serialize_document(part.layout)] for part in array.parts]
        found.append([parts, array.layout.shape, str(array.decoded.dtype), used])
    return hashlib.sha256(json.dumps(found).encode()).hexdigest()[:32]


def _serialize_document(layout: Layout) -> str:
    """Return the document of an array, without attributes: its chunks, codecs, and the value of missing chunks."""
    document = {name: value for name, value in layout.document.items() if name != "attributes"}
    return json.dumps(document, sort_keys=True, default=str)


def _read_chunks(
    contents: ZarrContents, jobs: Sequence[_ArrayJob], of: _Chunks, limits: Limits, threads: int
) -> Generator[tuple[int, tuple[Any, ...], Moments]]:
    """Yield, for each chunk in order: the number of its job, its elements along kept dimensions, and its moments."""
    (wanted, known), chunks, source = of, contents.chunks, contents.source
    owners = np.searchsorted([chunks.bases[job.number] for job in jobs], wanted, side="right") - 1
    indexes = ShardIndexes(chunks.parts, source, contents.chunks.indexes, ReadCounts())
    located: deque[tuple[int, int, Span | bytes | None]] = deque()

    def spans() -> Iterator[Span]:
        numbered = zip(owners.tolist(), wanted.tolist(), strict=True)
        while some := [*islice(numbered, _LEAD)]:
            chunks.prepare([chunk for _, chunk in some])
            indexes.ask(chunks.shards(chunk for _, chunk in some))
            for job, chunk in some:
                span = chunks.span(chunk, indexes)
                located.append((job, chunk, span))
                if isinstance(span, tuple):
                    yield span

    decode = partial(_decoded, contents, contents.pool(limits.chunk_bytes))
    # Chunks that are decoded or wait for their turn.
    largest = max(array.decoded.chunk_bytes for array in contents.arrays)
    held = max(1, min(2 * threads, limits.chunk_bytes // max(1, largest)))
    pending: deque[Future[tuple[int, tuple[Any, ...], Moments]]] = deque()
    pool = ThreadPoolExecutor(threads, "penstock-statistics")
    try:
        with source.lookahead(spans(), limits.parts) as ahead:
            for number in range(len(wanted)):
                if not located:
                    ahead.refill()
                job, chunk, span = located.popleft()
                read = ahead.advance() if isinstance(span, tuple) else span
                if known is not None and not (read is None or isinstance(read, bytes)):
                    check_cached(contents, chunk, read, int(known[number]))
                pending.append(pool.submit(decode, job, jobs[job], chunk, read))
                while len(pending) >= held:
                    yield pending.popleft().result()
            while pending:
                yield pending.popleft().result()
    finally:
        pool.shutdown(cancel_futures=True)
        indexes.close()


def _decoded(
    contents: ZarrContents,
    pool: MemoryPool,
    number: int,
    job: _ArrayJob,
    chunk: int,
    read: ReadOperation | bytes | None,
) -> tuple[int, tuple[Any, ...], Moments]:
    """Decode a chunk; return the moments of its used elements, and where they are along kept dimensions."""
    layout = contents.arrays[job.number].layout
    box = box_of(layout, chunk - contents.chunks.bases[job.number])
    values = contents.chunks.decode(chunk, read, pool)[tuple(slice(each.stop - each.start) for each in box)]
    at: list[Any] = []
    for axis, (each, mask) in enumerate(zip(box, job.used, strict=True)):
        inside = mask[each]
        if inside.all():
            at.append(each)
            continue
        chosen = np.flatnonzero(inside)
        values = values.take(chosen, axis)
        at.append(chosen + each.start)
    kept = [at[axis] for axis in job.kept]
    if not all(isinstance(each, slice) for each in kept):
        kept = [*np.ix_(*(np.r_[each] for each in kept))]
    return number, tuple(kept), moments_of(values, job.kept)
