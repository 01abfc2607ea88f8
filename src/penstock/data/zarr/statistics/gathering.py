"""Gathering of statistics: each chunk that samples touch is read and decoded once, and its moments are added up."""

from __future__ import annotations

import hashlib
import json
from collections import deque
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from functools import partial
from hashlib import blake2b
from itertools import islice
from time import monotonic
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from penstock.data.zarr.arrays.foreign import ForeignObjects
from penstock.data.zarr.chunks.contents import ShardIndexes, box_of, within_box
from penstock.data.zarr.samples.arrangement import dims_of
from penstock.data.zarr.samples.extraction import integers_of
from penstock.data.zarr.statistics.record import ArrayStatistics, Moments, ZarrStatistics, moments_of
from penstock.engine.contracts.driver import List
from penstock.errors import DatasetChanged, Denied, NotFound, Unsupported, Unusable
from penstock.progress import bar
from penstock.values import common_folder, whole

if TYPE_CHECKING:
    import os
    from collections.abc import Callable, Generator, Hashable, Iterator, Sequence
    from concurrent.futures import Future

    from numpy.typing import NDArray

    from penstock.data.reading.pool import MemoryPool
    from penstock.data.zarr.arrays.stored import StoredArray
    from penstock.data.zarr.chunks.contents import ZarrContents
    from penstock.data.zarr.chunks.limits import Limits
    from penstock.data.zarr.format.layout import Layout
    from penstock.data.zarr.samples.arrangement import Arrangement
    from penstock.data.zarr.values import Values
    from penstock.engine.contracts.fetching import ReadOperation
    from penstock.source import Source
    from penstock.values import ObjectMeta, Span

    # Numbers of chunks and, if they are known, digests of their versions.
    _Chunks = tuple[NDArray[np.int64], NDArray[np.int64] | None]

_KINDS = "biuf"  # kinds of dtypes that have a mean and an order
# Chunks whose shard indexes and references are read together.
_LEAD = 64
_SAVED_S = 30.0  # between two states of progress


class _ArrayJob(NamedTuple):
    """Array whose statistics are gathered for all arrays (``numbers``) of the same stored values.

    ``first`` is the number of its first chunk; ``used`` has a mask for each dimension: whether each element is used;
    ``kept`` are the numbers of the dimensions that are kept.
    """

    numbers: list[int]
    array: StoredArray
    first: int
    used: list[NDArray[np.bool_]]
    kept: tuple[int, ...]
    statistics: ArrayStatistics


def elements_used(arrangement: Arrangement, numbers: Sequence[int], shape: Sequence[int]) -> list[NDArray[np.bool_]]:
    """Return, for each dimension of an array, whether samples use each element; for several arrays, whether any does.

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
            chosen = integers_of(cut.chosen)
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
                    "normalize has missing or infinite values for elements that samples take: gather statistics "
                    "of these, from finite values",
                    url=array.url,
                )


def gather_moments(
    contents: ZarrContents,
    form: Values,
    by: Sequence[str],
    limits: Limits,
    part: tuple[int, int],
    how: tuple[int, bool | None, str | os.PathLike[str] | None],
) -> ZarrStatistics:
    """Return the statistics of the arrays of a dataset; ``part`` is (number, count) of a share of the chunks.

    ``how``: threads that decode, whether to show progress, and a file of the state, which is continued if it exists.
    """
    threads, shown, save = how
    part = _share(part)
    jobs = [_job(contents, numbers, by) for numbers in _groups(contents.arrays)]
    chunks = np.concatenate([_chunks(job) for job in jobs])
    chunks = chunks[len(chunks) * part[0] // part[1] : len(chunks) * (part[0] + 1) // part[1]]
    read, versions = _digest_inputs(jobs, by), None if save is None else versions_of(contents, chunks)
    arrays = {number: job.statistics for job in jobs for number in job.numbers}
    names, count = [*form.inputs, *(form.targets or ())], len(form.inputs)

    def state(done: int) -> ZarrStatistics:
        some = [(name, arrays[number]) for number, name in enumerate(names)]
        of = "" if versions is None else hashlib.sha256(versions[:done].tobytes()).hexdigest()[:32]
        return ZarrStatistics(dict(some[:count]), dict(some[count:]), read, part, (done, len(chunks)), of)

    done = begun = 0 if save is None else _resume_statistics(state, save, jobs, names)
    saved, counted = monotonic(), True
    try:
        known = None if versions is None else versions[done:]
        reading = _read_chunks(contents, jobs, (chunks[done:], known), limits, whole(threads, "threads", 1))
        with closing(reading), bar("statistics", len(chunks) - done, None, shown=shown) as progress:
            for job, at, found in reading:
                counted = False
                job.statistics.moments.add(found, at)
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
        raise Unusable(f"part must be (number, count), such as (rank, ranks), got {part!r}")
    count = whole(part[1], "the count of part", 1)
    number = whole(part[0], "the number of part", 0)
    if number >= count:
        raise Unusable(f"part must be 0 to {count - 1} of {count}, got {part!r}")
    return number, count


def _resume_statistics(
    state: Callable[[int], ZarrStatistics], save: str | os.PathLike[str], jobs: Sequence[_ArrayJob], names: list[str]
) -> int:
    """Add the moments of a saved state; return the number of its chunks: 0 if one was rewritten since."""
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
    for job in jobs:
        # Arrays of samples come first.
        number = job.numbers[0]
        saved = (found.samples if number < len(found.samples) else found.targets)[names[number]]
        job.statistics.moments.add(saved.moments)  # type: ignore[union-attr]
    return found.chunks[0]


def _groups(arrays: Sequence[StoredArray]) -> list[list[int]]:
    """Return the numbers of the arrays, grouped by equal stored values."""
    found: dict[Hashable, list[int]] = {}
    for number, array in enumerate(arrays):
        found.setdefault(array.values, []).append(number)
    return [*found.values()]


def _job(contents: ZarrContents, numbers: list[int], by: Sequence[str]) -> _ArrayJob:
    array = contents.arrays[numbers[0]]
    dims = dims_of(array.layout)
    if array.decoded.dtype.kind not in _KINDS:
        raise Unusable(f"values of {array.decoded.dtype} have no statistics: select other arrays", url=array.url)
    used = elements_used(contents.arrangement, numbers, array.layout.shape)
    kept = tuple(axis for axis, name in enumerate(dims) if name in by)
    moments = Moments.empty([len(used[axis]) for axis in kept])
    found = ArrayStatistics(tuple(dims[axis] for axis in kept), moments)
    return _ArrayJob(numbers, array, contents.chunks.bases[numbers[0]], used, kept, found)


def _chunks(job: _ArrayJob) -> NDArray[np.int64]:
    layout = job.array.layout
    if not job.used:
        return np.array([job.first], dtype=np.int64)
    places = [np.unique(np.flatnonzero(mask) // length) for mask, length in zip(job.used, layout.lengths, strict=True)]
    grid = np.meshgrid(*places, indexing="ij")
    numbers = np.ravel_multi_index([each.reshape(-1) for each in grid], layout.grid)
    return job.first + np.asarray(numbers, dtype=np.int64)


def _digest_inputs(jobs: Sequence[_ArrayJob], by: Sequence[str]) -> str:
    """Return the digest of the input: arrays by URL, their documents, elements and decoding, and kept dimensions."""
    found: list[Any] = [[*by]]
    for job in jobs:
        array = job.array
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
) -> Generator[tuple[_ArrayJob, tuple[Any, ...], Moments]]:
    """Yield, for each chunk in order: its job, its elements along kept dimensions, and its moments."""
    (wanted, known), chunks, source = of, contents.chunks, contents.source
    owners = np.searchsorted([job.first for job in jobs], wanted, side="right") - 1
    indexes = ShardIndexes(chunks, source)
    located: deque[tuple[_ArrayJob, int, Span | bytes | None]] = deque()

    def spans() -> Iterator[Span]:
        numbered = zip((jobs[number] for number in owners.tolist()), wanted.tolist(), strict=True)
        while some := [*islice(numbered, _LEAD)]:
            chunks.expect([chunk for _, chunk in some], indexes)
            for job, chunk in some:
                span = chunks.span(chunk, indexes)
                located.append((job, chunk, span))
                if isinstance(span, tuple):
                    yield span

    decode = partial(_decoded, contents, contents.pool(limits.chunk_bytes))
    # Chunks that are decoded or wait for their turn.
    largest = max(array.decoded.chunk_bytes for array in contents.arrays)
    held = max(1, min(2 * threads, limits.chunk_bytes // max(1, largest)))
    pending: deque[Future[tuple[_ArrayJob, tuple[Any, ...], Moments]]] = deque()
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
                pending.append(pool.submit(decode, job, chunk, read))
                while len(pending) >= held:
                    yield pending.popleft().result()
            while pending:
                yield pending.popleft().result()
    finally:
        pool.shutdown(cancel_futures=True)
        indexes.close()


def _decoded(
    contents: ZarrContents, pool: MemoryPool, job: _ArrayJob, chunk: int, read: ReadOperation | bytes | None
) -> tuple[_ArrayJob, tuple[Any, ...], Moments]:
    """Decode a chunk; return its job, the positions of its used elements along kept dimensions, and their moments."""
    box = box_of(job.array.layout, chunk - job.first)
    values = contents.chunks.decode(chunk, read, pool)[within_box(box)]
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
    return job, tuple(kept), moments_of(values, job.kept)


_AT_ONCE = 4096  # chunks whose references, or whose objects, are looked up together
# Up to so many objects are looked up one by one, as are more of which a listing has one among so many keys.
_FEW, _MOST_LISTED = 16, 64


class _UnversionedError(Exception):
    """Error for a store that reports no version of an object."""


def versions_of(contents: ZarrContents, chunks: NDArray[np.int64]) -> NDArray[np.int64] | None:
    """Return a digest for each chunk, of the place and version of its object; None if a store reports no versions.

    The objects' folder is listed; they are looked up by a HEAD each where a store does not list, and where the folder
    has few of them or few others. Memory of 40 bytes for each chunk.
    """
    foreign = [part.objects for part in contents.chunks.parts if isinstance(part.objects, ForeignObjects)]
    if not all(objects.snapshot for objects in foreign):
        return None
    found, names = np.zeros(len(chunks), np.int64), np.zeros(len(chunks), np.int64)
    homes = np.full(len(chunks), -1)
    prefixes: dict[int, str] = {}
    for at, (home, place, span) in enumerate(_places(contents, chunks)):
        found[at] = _hash_version(place)
        if span is not None and not foreign:
            homes[at], names[at] = home, hash(str(span.key))
            prefixes[home] = common_folder(prefixes.get(home, span.key), span.key)
    try:
        for home, prefix in prefixes.items():
            here = np.flatnonzero(homes == home)
            wanted, which = np.unique(names[here], return_inverse=True)
            keys = (span.key for _, _, span in _places(contents, chunks[here]) if span is not None)
            found[here] ^= _looked_up(contents.sources[home], prefix, wanted, keys)[which]
    except (_UnversionedError, Denied):
        return None
    return found


def check_versions(contents: ZarrContents, chunks: NDArray[np.int64], versions: NDArray[np.int64]) -> None:
    """Raise ``DatasetChanged`` if versions of chunks have changed."""
    now = versions_of(contents, chunks)
    if now is None or not np.array_equal(versions, now):
        message = "values were rewritten while their statistics were gathered: gather them again"
        raise DatasetChanged(message, url=contents.arrays[0].url)


def check_cached(contents: ZarrContents, chunk: int, read: ReadOperation, known: int) -> None:
    """Raise ``DatasetChanged`` if a cache (mode ``ttl``) has served a chunk in another version than ``known``."""
    if read.attempts or not read.version:
        return
    [(home, place, _)] = _places(contents, np.array([chunk]))
    # A listing may name other versions than an answer does.
    if _hash_version(place) ^ _hash_version(read.version.encode()) != known:
        source = contents.sources[home]
        if source.head(read.span.key).etag != read.version:
            message = "the cache holds outdated values: pass CacheOptions(mode='revalidate'), or clear it"
            raise DatasetChanged(message, url=source.url(read.span.key))


def _places(contents: ZarrContents, chunks: NDArray[np.int64]) -> Iterator[tuple[int, bytes, Span | None]]:
    """Yield, for each chunk, the number of the store of its object, its place there or value, and its span."""
    for start in range(0, len(chunks), _AT_ONCE):
        some = chunks[start : start + _AT_ONCE].tolist()
        contents.chunks.prepare(some)
        for chunk in some:
            url, span = contents.chunks.object_of(chunk)
            if span is None or isinstance(span, bytes):
                yield 0, span or b"", None
            else:
                yield getattr(span.key, "home", 0), f"{url} {span.start} {span.stop}".encode(), span


def _looked_up(source: Source, prefix: str, wanted: NDArray[np.int64], keys: Iterator[str]) -> NDArray[np.int64]:
    """Return the version of each object as a number, in the order of ``wanted``, the hashes of their keys.

    0 for missing objects.
    """
    if len(wanted) > _FEW and source.supports(List):
        listed = _listed(source, prefix, wanted)
        if listed is not None:
            return listed
    versions = np.zeros(len(wanted), np.int64)
    while some := [*dict.fromkeys(islice(keys, _AT_ONCE))]:
        for key, meta in zip(some, source.stat_existing(some), strict=True):
            if meta is not None:
                versions[np.searchsorted(wanted, hash(str(key)))] = _version(meta)
    return versions


def _listed(source: Source, prefix: str, wanted: NDArray[np.int64]) -> NDArray[np.int64] | None:
    """Return the versions that a listing reports; None if it reports none, is refused or has too many others."""
    versions, count = np.zeros(len(wanted), np.int64), 0
    try:
        for page in source.pages(prefix):
            count += len(page.entries)
            if count > _MOST_LISTED * len(wanted):
                return None
            for meta in page.entries:
                name = hash(meta.key)
                at = int(np.searchsorted(wanted, name))
                if at < len(wanted) and wanted[at] == name:
                    versions[at] = _version(meta)
    except (_UnversionedError, Denied, Unsupported):
        return None
    return versions


def _version(meta: ObjectMeta) -> int:
    if not meta.etag and meta.modified is None:
        raise _UnversionedError
    return _hash_version((meta.etag or f"{meta.size} {meta.modified}").encode())


def _hash_version(data: bytes) -> int:
    return int.from_bytes(blake2b(data, digest_size=8).digest(), "little", signed=True)
