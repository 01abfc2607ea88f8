"""``ZarrContents``: the arrays of a dataset, its samples, and the state that one process keeps of them.

A chunk is located and decoded by its number. The index of a shard is read once, ahead of the chunks that it locates,
and kept. Small arrays are read as a whole.
"""

from __future__ import annotations

import hashlib
import json
import os
from bisect import bisect_right
from contextlib import closing
from copy import copy
from functools import cached_property, lru_cache, partial
from itertools import accumulate
from math import prod
from operator import attrgetter
from threading import Lock
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from penstock.data.reading.pool import MemoryPool
from penstock.data.zarr.arrays.stored import OwnObjects, StoredArray, check_absent, join_stores, numbered
from penstock.data.zarr.format.codecs import decoder_of
from penstock.data.zarr.format.layout import ABSENT, bounds, chunk_span, index_span, read_index
from penstock.data.zarr.format.references import RecentValues
from penstock.data.zarr.samples.arrangement import MOST_AT_ONCE
from penstock.display import panel, table
from penstock.engine.contracts.fetching import ReadCounts
from penstock.engine.waiting import Inbox
from penstock.errors import Cancelled, Changed, Forbidden, NotFound, PenstockError, Truncated, Unusable
from penstock.values import Span

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence

    from numpy.typing import NDArray

    from penstock.data.zarr.arrays.stored import Missing, StoredArray
    from penstock.data.zarr.format.layout import Layout, Runs
    from penstock.data.zarr.format.references import Records
    from penstock.data.zarr.samples.arrangement import Arrangement
    from penstock.data.zarr.samples.extraction import ChunkPart
    from penstock.engine.contracts.fetching import ReadOperation
    from penstock.source import Source

    Located = tuple[list[int], list[tuple[int | slice, ...]]]  # chunks by sample, and the elements in each
    Shard = tuple[int, str]  # number of the array, key of the shard

_MOST_BYTES = 64 << 20  # of the indexes of shards that are kept
_MOST_FILES = 100_000  # whose versions are kept: 20 MiB or so
_TRIES = 4  # readings of what belongs together in a shard that is written anew meanwhile
_lock = Lock()  # for all kept values: held only briefly
os.register_at_fork(before=_lock.acquire, after_in_parent=_lock.release, after_in_child=_lock.release)


class ShardIndex(NamedTuple):
    """Index of a shard: offset and length of each inner chunk, as ``read_index`` returns them, and its version.

    ``reading`` is the one that had it from the store, or compared its version there; an empty ``etag`` is unknown. All
    chunks of a missing shard are absent.
    """

    entries: NDArray[np.uint64]
    etag: str = ""
    reading: object = None

    @property
    def size_bytes(self) -> int:
        # Entries of a missing shard are one, repeated.
        return self.entries.nbytes if self.entries.strides[0] else 256


class ShardIndexes:
    """Reader of shard indexes for one reading: all requested indexes are read concurrently.

    A missing shard is requested once. An index that could not be read is requested again for chunks that are asked for
    afterwards; those that were asked for before share the error, as each wait may take all of a store's patience. For
    one thread, except ``close``.

    The store compares the version of an index with each chunk that is read by it. A chunk that is absent is not read,
    so an index that an earlier reading left is first read again, and one that came from a cache is compared with the
    store: once per reading.
    """

    def __init__(self, chunks: Chunks, source: Source, counts: ReadCounts | None = None) -> None:
        self._arrays, self._cache = chunks.parts, chunks.indexes
        self._source, self._counts = source, counts or ReadCounts()
        self._inbox, self._reading = Inbox(), object()
        self._reads: dict[Shard, ReadOperation] = {}
        # Those that take no request.
        self._found: dict[Shard, bytes | PenstockError | None] = {}
        # Of chunks that wait for the index of a shard, their numbers in it; and the errors of those that waited for it.
        self._waiting: dict[Shard, set[int]] = {}
        self._failed: dict[tuple[Shard, int], PenstockError] = {}
        self._closed = False

    def ask(self, chunks: Iterable[tuple[Shard, int]]) -> None:
        """Begin to read the indexes of chunks, given by shard and number in it, unless they are known or under way."""
        wanted: dict[Shard, None] = {}
        for shard, inner in chunks:
            if not self._waits(shard):
                if self._knows(shard, inner):
                    continue
                wanted[shard] = None
            self._waiting.setdefault(shard, set()).add(inner)
        if wanted:
            self._send([*wanted])

    def _send(self, wanted: list[Shard], etag: str = "") -> None:
        if self._closed:
            return
        fetching = self._source.fetching()
        spans: dict[Shard, Span] = {}
        for number, key in wanted:
            array = self._arrays[number]
            try:
                found = array.objects.find(index_span(array.layout, key))
            except PenstockError as error:
                self._found[number, key] = error
                continue
            if isinstance(found, tuple):
                spans[number, key] = found._replace(etag=etag) if etag else found
            else:
                self._found[number, key] = found
        reads = fetching.prepare_reads(((span, None) for span in spans.values()), self._inbox)
        self._reads.update(zip(spans, reads, strict=True))
        fetching.send_reads(reads)

    def _waits(self, shard: Shard) -> bool:
        return shard in self._reads or shard in self._found

    def _knows(self, shard: Shard, inner: int) -> bool:
        """Return whether the index that is kept tells where a chunk is, or that it is absent."""
        index = self._cache.get(shard)
        return index is not None and (index.reading is self._reading or index.entries[inner, 0] != ABSENT)

    def get(self, shard: Shard, inner: int) -> ShardIndex:
        """Wait for the index of a shard, to locate the chunk ``inner``, and return it."""
        failed = self._failed.pop((shard, inner), None)
        if failed is not None and not self._knows(shard, inner):
            # A raised error keeps alive the objects of its callers.
            raise copy(failed) from failed.__cause__
        etag = ""
        for left in reversed(range(_TRIES)):
            if not self._waits(shard):
                known = self._cache.get(shard)
                if known is not None and self._knows(shard, inner):
                    index = known
                    break
                self._send([shard], etag)
            if self._closed:
                raise Cancelled("the reading was closed")
            try:
                index = self._wait(shard)
            except Changed as error:
                etag = ""
                if not left:
                    self._share(shard, inner, error)
                    raise
                continue
            except PenstockError as error:
                self._share(shard, inner, error)
                raise
            if self._knows(shard, inner):
                break
            etag = index.etag
        self._waiting.pop(shard, None)
        return index

    def _share(self, shard: Shard, inner: int, error: PenstockError) -> None:
        """Keep the error of an index for the other chunks that have waited for it."""
        others = self._waiting.pop(shard, set()) - {inner}
        self._failed.update(((shard, each), error) for each in others)

    def _wait(self, shard: Shard) -> ShardIndex:
        number, key = shard
        array = self._arrays[number]
        read = None if shard in self._found else self._reads.pop(shard)
        data = self._found.pop(shard) if read is None else self._taken(read, array)
        if isinstance(data, PenstockError):
            raise data
        if data is None:
            none = np.broadcast_to(np.uint64(ABSENT), (prod(array.layout.ratios), 2))
            index = ShardIndex(none, reading=self._reading)
        else:
            etag = "" if read is None else read.version
            stored = read is None or read.span.etag or read.attempts
            entries = read_index(array.layout, data, array.objects.url(key))
            index = ShardIndex(entries, etag, self._reading if stored else None)
        self._cache.put(shard, index)
        return index

    def _taken(self, read: ReadOperation, array: StoredArray) -> bytes | None:
        self._inbox.wait(read)
        self._counts.requests += read.attempts
        self._counts.retries += read.retries
        try:
            return read.take()
        except (NotFound, Forbidden) as error:
            check_absent(array.objects, error)
            return None

    def close(self) -> None:
        """Cancel the reads under way; this wakes all waiting threads."""
        self._closed = True
        if self._reads:
            self._source.fetching().cancel_reads([*self._reads.values()])


_KEPT = 4096  # chunks whose positions are cached


class Chunks:
    """Chunks of several arrays, numbered consecutively: those of the first array row by row, then of the next.

    ``parts`` are the stored arrays: those of an array of several stores come one after the other. ``bases`` has the
    number of the first chunk of each array, and the number of all chunks.
    """

    def __init__(self, arrays: Sequence[StoredArray], missing: Missing) -> None:
        """Number the chunks; nothing is read."""
        self.indexes: RecentValues[ShardIndex] = RecentValues(_MOST_BYTES, attrgetter("size_bytes"))
        self.arrays, self._missing = tuple(arrays), missing
        self.parts = tuple(part for array in arrays for part in array.parts)
        self.bases = [0, *accumulate(prod(array.layout.grid) for array in arrays)]
        # Called before and after each read.
        self._at = lru_cache(_KEPT)(partial(_locate_chunk, self.bases, _grids(arrays)))
        self._records = [part.objects.records for part in self.parts]
        self._sharded = any(part.layout.shards is not None for part in self.parts)
        self._decoders = [decoder_of(part.layout, part.url) for part in self.parts]
        each = [[prod(part.layout.chunks) * array.decoded.dtype.itemsize for part in array.parts] for array in arrays]
        self._sizes = [size for sizes in each for size in sizes]
        # The one size of all chunks of an array; 0 if stored arrays differ.
        self._size = [sizes[0] if min(sizes) == max(sizes) else 0 for sizes in each]
        self._normals = [array.normal for array in arrays]
        self._stacked = [array.stacked for array in arrays for _ in array.parts]
        self._filled: dict[int, NDArray[Any]] = {}
        # Versions of files that references lead to.
        self._versions: dict[tuple[int, str], str] = {}

    @cached_property
    def dtypes(self) -> list[np.dtype[Any]]:
        return [array.decoded.dtype for array in self.arrays]

    def of(self, number: int) -> range:
        """Return the numbers of the chunks of an array."""
        return range(*self.bases[number : number + 2])

    def part_of(self, chunk: int) -> StoredArray:
        return self.parts[self._at(chunk)[0]]

    def size_of(self, chunk: int) -> int:
        """Return the decoded size of a chunk in bytes."""
        # Called for each chunk ahead.
        return self._size[bisect_right(self.bases, chunk) - 1] or self._sizes[self._at(chunk)[0]]

    def shards(self, chunks: Iterable[int]) -> Iterator[tuple[Shard, int]]:
        """Yield the shard of each of some chunks, and the chunk's number in it."""
        for chunk in chunks if self._sharded else ():
            number, layout, place = self._at(chunk)
            if layout.shards is not None:
                yield (number, layout.object_key(place)), layout.inner(place)

    def prepare(self, chunks: Iterable[int]) -> None:
        """Read the references of some chunks, all at once, for arrays whose references are read on demand."""
        if not any(self._records):
            return
        keys: dict[int, tuple[Records, list[str]]] = {}  # for all arrays of one document together
        for chunk in chunks:
            number, layout, place = self._at(chunk)
            if (records := self._records[number]) is not None:
                keys.setdefault(id(records), (records, []))[1].append(layout.object_key(place))
        for records, some in keys.values():
            records.prepare(some)

    def expect(self, chunks: Sequence[int], indexes: ShardIndexes) -> None:
        """Begin to read the locations of some chunks: see ``prepare`` and ``ShardIndexes.ask``."""
        self.prepare(chunks)
        indexes.ask(self.shards(chunks))

    def span(self, chunk: int, indexes: ShardIndexes) -> Span | bytes | None:
        """Return the location of a chunk, or its bytes if references contain them; None if it is known to be missing.

        May wait for the index of the shard.
        """
        number, layout, place = self._at(chunk)
        key = layout.object_key(place)
        span: Span | None = Span(key, most=layout.most_bytes)
        if layout.shards is not None:
            index = indexes.get((number, key), layout.inner(place))
            span = chunk_span(layout, place, index.entries, index.etag)
        return None if span is None else self.parts[number].objects.find(span)

    def object_of(self, chunk: int) -> tuple[str, Span | bytes | None]:
        """Return the URL and the location of the object of a chunk, or of the whole shard; see ``span``."""
        number, layout, place = self._at(chunk)
        key, objects = layout.object_key(place), self.parts[number].objects
        return objects.url(key), objects.find(Span(key))

    def decode(self, chunk: int, read: ReadOperation | bytes | None, pool: MemoryPool | None = None) -> NDArray[Any]:
        """Return the values of a chunk from a read, or from its bytes; ``read`` is None for a missing chunk.

        The values are in memory of ``pool`` if it is given and the codecs can decode into a given array.
        """
        number, layout, place = self._at(chunk)
        url = self.parts[number].objects.url(layout.object_key(place))
        try:
            data = read if isinstance(read, bytes) else self._taken(read, number, place)
        except (NotFound, Forbidden) as error:
            self.absent(chunk, error)
            data = None
        if data is None:
            return self._normalized(chunk, self._fill(number, url), own=False)
        decoder = self._decoders[number]
        out = pool.empty(layout.chunks, layout.dtype) if pool is not None and decoder.direct else None
        return self._normalized(chunk, self._meant(number, decoder.decode(data, out, url=url)), own=True)

    def _taken(self, read: ReadOperation | None, number: int, place: tuple[int, ...]) -> bytes | None:
        """Return the bytes of a chunk; None if it is absent.

        A chunk of a shard is read in the version of the index that located it. If the shard was rewritten since
        then, such as by an append, its chunks are elsewhere, so the index is read again. A store that names no versions
        would not notice, so there the index is read again after each chunk: it must still locate the chunk there.
        """
        part, key = self.parts[number], self.parts[number].layout.object_key(place)
        if part.layout.shards is None or not isinstance(part.objects, OwnObjects):
            return None if read is None else self._of_one_version(read, part, key)
        if read is None:
            # Another chunk may have shown meanwhile that the shard was written anew.
            index = self.indexes.get((number, key))
            span = None if index is None else chunk_span(part.layout, place, index.entries, index.etag)
        else:
            span = read.span
        error: PenstockError | None = None
        for _ in range(_TRIES):
            if span is None:
                return None
            take = partial(part.source.read, span) if read is None else read.take
            data, error = _try_take(take, unpinned=not span.etag)
            if data is not None and span.etag:
                return data
            index = self._read_index(number, key, span.etag)
            now = chunk_span(part.layout, place, index.entries, index.etag)
            if data is not None and now is not None and now[1:3] == span[1:3]:
                return data
            span, read = now, None
        message = "this shard is rewritten repeatedly while it is read"
        raise error or Changed(message, url=part.source.url(key))

    def _of_one_version(self, read: ReadOperation, part: StoredArray, key: str) -> bytes:
        """Return the bytes of a chunk; for a referenced part of a file, after a check of its version."""
        data, version, (file, start, stop, *_) = read.take(), read.version, read.span
        if version and (start or stop is not None) and len(self._versions) < _MOST_FILES:
            known = self._versions.setdefault((getattr(file, "home", 0), file), version)
            if known != version:
                message = "the file was rewritten after its first read: create its references again, and open them"
                raise Changed(message, url=part.objects.url(key))
        return data

    def _read_index(self, number: int, key: str, outdated: str) -> ShardIndex:
        """Return the index of a shard in a version other than ``outdated``, read again unless another thread did so."""
        index, part = self.indexes.get((number, key)), self.parts[number]
        if index is None or index.etag in ("", outdated):
            data, etag = part.source.read_version(index_span(part.layout, key))
            index = ShardIndex(read_index(part.layout, data, part.source.url(key)), etag)
            self.indexes.put((number, key), index)
        return index

    def _normalized(self, chunk: int, values: NDArray[Any], *, own: bool) -> NDArray[Any]:
        array = bisect_right(self.bases, chunk) - 1
        normal = self._normals[array]
        if normal is None:
            return values
        return normal.apply(values, box_of(self.arrays[array].layout, chunk - self.bases[array]), own=own)

    def absent(self, chunk: int, error: NotFound | Forbidden) -> None:
        """Accept a chunk as missing, or raise if ``error`` has another meaning: see ``check_absent``."""
        check_absent(self.part_of(chunk).objects, error)

    def _meant(self, number: int, values: NDArray[Any]) -> NDArray[Any]:
        meaning = self.parts[number].meaning
        decoded = values if meaning is None else meaning.apply(values)
        return decoded[np.newaxis] if self._stacked[number] else decoded

    def _fill(self, number: int, url: str) -> NDArray[Any]:
        if self._missing == "error":
            raise NotFound('this chunk of the array was never written; missing="fill" reads its fill value', url=url)
        filled = self._filled.get(number)
        if filled is None:
            filled = self._filled[number] = self._meant(number, self._decoders[number].filled())
        return filled


def _try_take(take: Callable[[], bytes], *, unpinned: bool) -> tuple[bytes | None, PenstockError | None]:
    """Return the bytes of a chunk, or the error which shows that it may have moved."""
    try:
        return take(), None
    except Changed as error:
        return None, error
    except Truncated as error:
        if not unpinned:
            raise
        return None, error


class _Grid(NamedTuple):
    """Grid of the chunks of an array, ``first`` is the number of its first stored array among all.

    ``along`` is the dimension along which stored arrays follow one another, and their chunks along it; None for one.
    With ``stacked``, they lack this dimension.
    """

    first: int
    counts: tuple[int, ...]
    layouts: tuple[Layout, ...]
    along: tuple[int, Runs] | None
    stacked: bool


def _grids(arrays: Sequence[StoredArray]) -> list[_Grid]:
    found, first = list[_Grid](), 0
    for array in arrays:
        along = (array.along, array.layout.runs[array.along]) if array.stored else None
        layouts = tuple(part.layout for part in array.parts)
        found.append(_Grid(first, array.layout.grid, layouts, along, array.stacked))
        first += len(layouts)
    return found


def _locate_chunk(bases: Sequence[int], grids: Sequence[_Grid], chunk: int) -> tuple[int, Layout, tuple[int, ...]]:
    """Return the number and layout of the stored array of a chunk, and the chunk's coordinates in its grid."""
    number = bisect_right(bases, chunk) - 1
    grid, left, reverse = grids[number], chunk - bases[number], []
    for count in reversed(grid.counts):
        left, at = divmod(left, count)
        reverse.append(at)
    place = reverse[::-1]
    if grid.along is None:
        return grid.first, grid.layouts[0], tuple(place)
    axis, runs = grid.along
    part, place[axis] = runs.place(place[axis])
    if grid.stacked:
        del place[axis]
    return grid.first + part, grid.layouts[part], tuple(place)


class _Kept:
    """Values of kept arrays: read once per process, by the first thread that needs them."""

    def __init__(self) -> None:
        self.process, self.lock = os.getpid(), Lock()
        self.values: dict[int, NDArray[Any]] | None = None

    def __reduce__(self) -> tuple[object, ...]:
        return _Kept, ()


class ZarrContents:
    """Arrays and the samples cut from them. Picklable; each process decodes and keeps arrays separately.

    Read-ahead takes at most 1 / ``ahead_parts`` of the store's own limit.
    """

    def __init__(
        self, arrays: Sequence[StoredArray], names: Sequence[str], arrangement: Arrangement, missing: Missing
    ) -> None:
        """Number the arrays; nothing is read yet."""
        self.arrays, self._stores = numbered(arrays)
        self.names = tuple(names)
        self.arrangement = arrangement
        self._missing = missing
        self._chunks: Chunks | None = None
        self._pool: MemoryPool | None = None
        self._kept = _Kept()
        self.ahead_parts = 1

    @property
    def source(self) -> Source:
        """Store of all arrays, or a source that reads from several stores."""
        return join_stores(self._stores)

    @property
    def sources(self) -> Sequence[Source]:
        """Stores of the arrays, by number."""
        return self._stores.sources

    @property
    def root(self) -> str:
        """Root URL of the store of the first array."""
        return self.arrays[0].source.root

    @property
    def base(self) -> str:
        return self.arrays[0].layout.key

    # Cached: every state contains the digest, and a dimension may have millions of elements.
    @cached_property
    def digest(self) -> str:
        """Digest that identifies the samples and their order; excludes values and locations."""
        space, aligned = self.arrangement.space, self.arrangement.aligned
        shown, cuts, text = list[Any](), tuple[object, ...](), "()"
        for name, array, extraction in zip(self.names, self.arrays, self.arrangement.extractions, strict=True):
            # A thousand variables have few different cuts.
            if extraction.cuts != cuts:
                cuts, text = extraction.cuts, repr(extraction.cuts)
            shown.append([name, array.identity, array.layout.dtype.str, array.layout.dims, text])
        axes = [[axis.name, repr(axis.positions)] for axis in space.axes]
        common = {} if aligned is None else aligned.values
        coordinates = [[name, hashlib.sha256(values.tobytes()).hexdigest()] for name, values in common.items()]
        text = json.dumps([2, shown, axes, coordinates, space.samples, space.digest], default=str)
        return hashlib.sha256(text.encode()).hexdigest()[:32]

    def __len__(self) -> int:
        return self.arrangement.space.samples

    def _repr_html_(self) -> str:
        rows = []
        for name, array in zip(self.names, self.arrays, strict=True):
            layout = array.decoded
            dims = ", ".join(f"{dim or '?'} {length:,}" for dim, length in zip(layout.dims, layout.shape, strict=True))
            chunks = ", ".join(map(str, layout.chunks))
            rows.append((name or "array", dims, chunks, layout.dtype, array.objects.url(layout.key)))
        head = ("array", "dimensions", "chunk", "type", "URL")
        return panel(f"{len(self):,} samples of {len(rows)} arrays", table(rows, head))

    @property
    def chunks(self) -> Chunks:
        if self._chunks is None:
            self._chunks = Chunks(self.arrays, self._missing)
        return self._chunks

    def pool(self, most_bytes: int) -> MemoryPool:
        """Return the memory pool of decoded chunks, ``most_bytes`` at most; the next epoch reuses the memory."""
        if self._pool is None or self._pool.most_bytes != most_bytes:
            self._pool = MemoryPool(most_bytes)
        return self._pool

    def verify(self) -> None:
        """Check that arrays with absent objects still exist; see ``OwnObjects``."""
        for part in self.chunks.parts:
            part.objects.verify()

    def name_of(self, position: Sequence[int]) -> str:
        """Return the URL of the first array with the position of a sample, for reports.

        Of an array of several stores it is that of the store in which the sample begins.
        """
        axes = self.arrangement.space.axes
        place = ", ".join(f"{axis.name}={at}" for axis, at in zip(axes, position, strict=True))
        parts = self.arrangement.extractions[0].parts(position) if self.arrays[0].stored else []
        array = self.chunks.part_of(parts[0].chunk) if parts and parts[0].chunk >= 0 else self.arrays[0]
        return f"{array.url} at {place}"

    def uses(self, positions: NDArray[np.int64]) -> NDArray[np.int64]:
        """Return the chunks that samples at these positions need, each once, without those of kept arrays."""
        pairs = zip(self.arrangement.extractions, self.arrangement.kept, strict=True)
        moving = [extraction for extraction, keeps in pairs if not keeps]
        if not moving:
            return np.empty((len(positions), 0), dtype=np.int64)
        found = np.concatenate([extraction.chunks(positions) for extraction in moving], axis=1)
        if len({extraction.first for extraction in moving}) < len(moving):
            # Of arrays of the same values, a sample may take a chunk twice.
            found.sort(axis=1)
            found[:, 1:][found[:, 1:] == found[:, :-1]] = -1
        return found

    def parts(self, position: Sequence[int]) -> list[list[ChunkPart]]:
        """Return the parts of each array that the sample at a position takes."""
        return [extraction.parts(position) for extraction in self.arrangement.extractions]

    def located(self, positions: NDArray[np.int64]) -> list[Located] | None:
        """Return the one chunk that each sample takes of each array; None if a sample may need several."""
        found = [extraction.located(positions) for extraction in self.arrangement.extractions]
        return None if None in found else found  # type: ignore[return-value]  # without None

    def views(self, found: Sequence[Located], values: Mapping[int, NDArray[Any]]) -> list[list[NDArray[Any]]]:
        """Return, for each array, the view of a chunk that each sample takes."""
        kept, columns = self.kept, []
        for number, (chunks, insides) in enumerate(found):
            held = {chunk: kept[number] if chunk < 0 else values[chunk] for chunk in {*chunks}}
            views = [held[chunk][inside] for chunk, inside in zip(chunks, insides, strict=True)]
            scalars = not self.arrangement.extractions[number].shape
            columns.append([np.asarray(view, self.chunks.dtypes[number]) for view in views] if scalars else views)
        return columns

    def assembled(
        self, parts: Sequence[Sequence[ChunkPart]], values: Mapping[int, NDArray[Any]], *, own: bool
    ) -> list[NDArray[Any]]:
        """Return the arrays of a sample: views of chunks where possible, copies with ``own``."""
        kept, dtypes, found = self.kept, self.chunks.dtypes, []
        for number, (some, extraction) in enumerate(zip(parts, self.arrangement.extractions, strict=True)):
            if len(some) == 1:
                chunk, inside, _ = some[0]
                view = np.asarray((kept[number] if chunk < 0 else values[chunk])[inside], dtypes[number])
                found.append(view.copy() if own else view)
                continue
            out = np.empty(extraction.shape, dtypes[number])
            for chunk, inside, place in some:
                out[place] = (kept[number] if chunk < 0 else values[chunk])[inside]
            found.append(out)
        return found

    @property
    def _kept_numbers(self) -> list[int]:
        return [number for number, keeps in enumerate(self.arrangement.kept) if keeps]

    @property
    def kept_chunks(self) -> list[int]:
        return [chunk for number in self._kept_numbers for chunk in self.chunks.of(number)]

    @property
    def kept(self) -> dict[int, NDArray[Any]]:
        """Values of kept arrays, by number: read at the first access, once per process."""
        values = self._kept.values
        if values is not None:
            return values
        with _lock:
            # After a fork: another thread of the parent may have held the lock.
            if self._kept.process != os.getpid():
                self._kept = _Kept()
            kept = self._kept
        with kept.lock:
            if kept.values is None:
                found = whole_arrays(self.chunks, self._kept_numbers, self.source, self.ahead_parts)
                kept.values = dict(zip(self._kept_numbers, found, strict=True))
            return kept.values

    def __getstate__(self) -> dict[str, Any]:
        """Pickle without the data that this process has read and decoded."""
        return self.__dict__ | {"_chunks": None, "_pool": None}


def whole_arrays(chunks: Chunks, numbers: Sequence[int], source: Source, parts: int = 1) -> list[NDArray[Any]]:
    """Return the values of some of the arrays of ``chunks``, by their numbers; all requests are in flight at once.

    Read-ahead takes at most 1 / ``parts`` of the store's own limit.
    """
    arrays = chunks.arrays
    for number in numbers:
        if (count := prod(arrays[number].layout.grid)) > MOST_AT_ONCE:
            raise Unusable(
                f"the array is read as a whole, but has {count:,} chunks, more than {MOST_AT_ONCE:,}: store it in "
                "larger ones (penstock zarr copy --chunks)",
                url=arrays[number].url,
            )
    owners = [(number, chunk) for number in numbers for chunk in chunks.of(number)]
    found = {number: np.empty(arrays[number].layout.shape, chunks.dtypes[number]) for number in numbers}
    values = decode_chunks(chunks, [chunk for _, chunk in owners], source, parts)
    for (number, chunk), each in zip(owners, values, strict=True):
        box = box_of(arrays[number].layout, chunk - chunks.bases[number])
        found[number][box] = each[within_box(box)]
    return [*found.values()]


def decode_chunks(
    chunks: Chunks, some: Sequence[int], source: Source, parts: int, pool: MemoryPool | None = None
) -> Iterator[NDArray[Any]]:
    """Yield the values of some chunks, in order, in memory of ``pool``; all requests are in flight at once.

    Read-ahead takes at most 1 / ``parts`` of the store's own limit.
    """
    with closing(ShardIndexes(chunks, source)) as indexes:
        chunks.expect(some, indexes)
        spans = [chunks.span(chunk, indexes) for chunk in some]
    with source.lookahead((span for span in spans if isinstance(span, tuple)), parts) as ahead:
        for chunk, span in zip(some, spans, strict=True):
            yield chunks.decode(chunk, ahead.advance() if isinstance(span, tuple) else span, pool)


def box_of(layout: Layout, chunk: int) -> tuple[slice, ...]:
    """Return the elements of an array that a chunk holds, by the number of the chunk in its grid."""
    place = map(int, np.unravel_index(chunk, layout.grid))
    return tuple(slice(*bounds(*each)) for each in zip(layout.lengths, place, layout.shape, strict=True))


def within_box(box: tuple[slice, ...]) -> tuple[slice, ...]:
    """Return the elements of a chunk within the array, which may end within the chunk."""
    return tuple(slice(each.stop - each.start) for each in box)
