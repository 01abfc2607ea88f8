"""Cache warm-up before a training: reads missing objects in parallel and keeps none of them in memory."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field
from itertools import islice
from operator import itemgetter
from typing import TYPE_CHECKING, Protocol, runtime_checkable

from penstock.data.catalog.catalog import Catalog
from penstock.engine.contracts.fetching import CachedFetching, ReadOperation
from penstock.errors import NotFound, PenstockError, Unusable, kind_of
from penstock.jobs.parts.operation import ignore_progress
from penstock.jobs.parts.records import Share
from penstock.jobs.trees.selection import select
from penstock.options import StoreOptions
from penstock.progress import bar
from penstock.source import Source, open_source
from penstock.values import Span, span_in

if TYPE_CHECKING:
    from penstock.jobs.parts.carriers import Ray

    Place = str | os.PathLike[str]

# Piece of a longer object: the read-ahead stays within its budget.
_PIECE_BYTES = 16 << 20
# Maximum disk space of an entry besides its bytes.
_ENTRY_BYTES = 16 << 10
_SHOWN = 100  # failures kept in a result


@runtime_checkable
class Readable(Protocol):
    """Object that lists its reads in advance: a dataset, its batches, a loader."""

    def reads(self) -> Iterator[tuple[Source, Iterator[Span]]]:
        """Yield each store with the spans to read from it, in order; nothing is read."""


@dataclass(frozen=True, slots=True)
class WarmFailure:
    """Failed read."""

    url: str
    error: PenstockError


@dataclass(slots=True)
class Warmed:
    """Result of ``ps.warm``, counted in reads: one for each object, each 16 MiB of a longer object, or each chunk.

    Attributes:
        fetched: Number of reads from the store.
        fetched_bytes: Bytes of these reads.
        present: Number of reads that the cache already had, without a request.
        missing: Number of reads of missing objects: deleted since the listing, or array chunks that were never written.
        left_out: Number of reads that do not fit into the cache after the previous ones; nothing was read.
        failed: Number of reads that failed.
        nodes: Number of machines; the other numbers are the sums of theirs.
        failures: The first 100 failures.
    """

    fetched: int = 0
    fetched_bytes: int = 0
    present: int = 0
    missing: int = 0
    left_out: int = 0
    failed: int = 0
    nodes: int = 1
    failures: list[WarmFailure] = field(default_factory=list)

    def add(self, other: Warmed) -> None:
        for name in ("fetched", "fetched_bytes", "present", "missing", "left_out", "failed", "nodes"):
            setattr(self, name, getattr(self, name) + getattr(other, name))
        self.failures += other.failures[: _SHOWN - len(self.failures)]


def warm(
    what: Place | Catalog | Readable | Iterable[Place],
    *,
    part: str | None = None,
    on: Ray | None = None,
    store: StoreOptions | str | None = None,
    progress: bool | None = None,
) -> Warmed:
    """Read missing objects into the cache before a training needs them.

    Reads are parallel, within the store's ``ReadOptions``. Ctrl-C stops them; the cache keeps the objects read so far,
    and the same call continues from there. Objects that do not fit into the cache, or on its disk, are left out. A
    failure does not stop the other reads. One request for each 1,000 objects of a URL, and one for each read that the
    cache does not have.

    A cache belongs to a machine. With ``on``, each machine of a Ray cluster that has processors warms its own one with
    all of ``what``. Processes that share a cache in a shared directory share the reads with ``part``. There is no
    ``job=``: the cache itself is the record.

    Args:
        what: A URL (an object, a prefix or a glob), a list of URLs, a ``Catalog``, or a dataset (all of its samples);
            or a loader or a dataset's ``batched(…)``: the objects of this rank's next epoch, in that order.
        part: This process's share of the reads, such as ``"3/16"``: the third of sixteen. Default: all.
        on: Ray cluster whose machines warm their caches; default: this machine.
        store: Options, or the name of a profile, for URLs and catalogs. A dataset has its own.
        progress: Show a bar on standard error; default: if that is a terminal and rich is installed.

    Returns:
        Numbers of reads: from the store, already in the cache, left out, and failed.

    Raises:
        Unusable: The store has no cache; ``store`` is given for a dataset or loader; ``what`` has another type; or
            ``on`` is given with ``part``, with a loader, or with options that hold a secret.
        NotFound: A URL matches no objects.
        Transient: A machine was lost; the others are done.

    Example:
        >>> options = ps.S3Options(cache=ps.CacheOptions(path="cache"))
        >>> ps.warm("s3://bucket/train/3/", store=options).fetched
        60
        >>> ps.warm(ps.MapDataset.from_prefix("s3://bucket/train/3/", store=options)).present
        60
    """
    if on is not None:
        if part is not None:
            raise Unusable("on= warms the caches of all machines, each with all data: leave out part=")
        return warm_nodes(what, store, on, progress=progress)
    done, share = Warmed(), Share.of(part)
    with bar("warming", None, None, shown=progress) as count:
        warm_into(done, what, store, count, share)
    return done


def warm_into(
    done: Warmed,
    what: object,
    store: StoreOptions | str | None,
    count: Callable[[int, int], None],
    share: Share | None = None,
) -> None:
    """Run ``warm`` and add to ``done`` as it proceeds; ``count`` receives 1 and the bytes of each read."""
    first, step = (0, 1) if share is None else (share.number - 1, share.count)
    for source, spans in _groups(what, store):
        _Warming(source, done, count).carry_out(islice(spans, first, None, step))


def warm_nodes(what: object, store: StoreOptions | str | None, on: Ray, *, progress: bool | None = None) -> Warmed:
    """Warm the cache of each machine of a cluster; return the sums. Raises the errors of ``warm``."""
    from penstock.jobs.parts.carriers import on_each_node

    if isinstance(what, Iterable) and not isinstance(what, str | Catalog | Readable):
        # Perhaps an iterator.
        what = [*what]
    elif not isinstance(what, Catalog) and isinstance(what, Readable) and not hasattr(what, "batched"):
        raise Unusable(f"{kind_of(what)} reads data of one rank, but on= warms other machines: pass its dataset")
    done, lost = Warmed(nodes=0), None
    with bar("warming machines", None, None, shown=progress) as count:
        for result in on_each_node(on, "warm", _warm_here, (what, store)):
            if isinstance(result, PenstockError):
                lost = lost or result
            else:
                done.add(result)
                count(1, result.fetched_bytes)
    if lost is not None:
        raise lost
    return done


def _warm_here(given: tuple[object, StoreOptions | str | None]) -> Warmed:
    done = Warmed()
    warm_into(done, *given, ignore_progress)
    return done


def _groups(what: object, store: StoreOptions | str | None) -> Iterator[tuple[Source, Iterable[Span]]]:
    if isinstance(what, str | os.PathLike):
        yield _select_spans(os.fspath(what), store)
    elif isinstance(what, Catalog):
        for number, part in enumerate(what.parts):
            members = map(itemgetter(number), what.members(range(len(what))))
            yield open_source(part.root + part.base, store)[0], filter(None, members)
        if not what.parts:
            yield open_source(what.root + what.base, store)[0], what.fetched()
    elif isinstance(what, Readable):
        if store is not None:
            raise Unusable(
                f"{type(what).__name__} has its own store, so warm accepts none: pass store=, with its cache, "
                "to the dataset when it is created"
            )
        yield from what.reads()
    elif isinstance(what, Iterable):
        for each in what:
            if not isinstance(each, str | os.PathLike):
                raise Unusable(f"warm takes URLs, a Catalog, a dataset or a loader, got {kind_of(each)} among the URLs")
            yield _select_spans(os.fspath(each), store)
    else:
        raise Unusable(f"warm takes a URL, a list of URLs, a Catalog, a dataset or a loader, got {kind_of(what)}")


def _select_spans(url: str, store: StoreOptions | str | None) -> tuple[Source, Iterable[Span]]:
    found = select(url, StoreOptions() if store is None else store, recursive=True)
    # The same spans as of a catalog: a dataset finds them by the same version.
    spans = (span_in(meta) for meta in found.entries())
    return found.source, spans


class _Warming:
    """Reader of one store's spans through its cache."""

    def __init__(self, source: Source, done: Warmed, count: Callable[[int, int], None]) -> None:
        options, cached = source.options.cache, source.fetching()
        if options is None or not isinstance(cached, CachedFetching):
            raise Unusable(
                "this store has no cache: pass store=ps.StoreOptions(cache=ps.CacheOptions(…)) (to a dataset when it "
                "is made), or set PENSTOCK_CACHE",
                url=source.root,
            )
        self._source, self._done, self._count = source, done, count
        self._cached, self._coming_bytes = cached, 0
        self._versions_only = options.mode == "immutable"

    def carry_out(self, spans: Iterable[Span]) -> None:
        with self._source.lookahead(self._missing(spans)) as ahead:
            while True:
                try:
                    read = ahead.advance()
                except StopIteration:
                    return
                self._note(read)

    def _missing(self, spans: Iterable[Span]) -> Iterator[Span]:
        """Yield the pieces to read, as long as the cache has room for them."""
        for piece in (piece for span in spans for piece in _split_long_span(span)):
            if self._versions_only and not piece.etag:
                raise Unusable(
                    "this has no version (ETag), so a cache in mode 'immutable' cannot store it: "
                    "pass CacheOptions(mode='ttl', ttl_s=…), or a catalog that was listed",
                    url=self._source.url(piece.key),
                )
            size_bytes = 0 if piece.stop is None else piece.stop - piece.start
            if self._cached.contains(piece):
                self._done.present += 1
                self._count(1, size_bytes)
            elif self._coming_bytes + _estimate_cache_bytes(piece) > self._cached.room_bytes():
                self._done.left_out += 1
            else:
                self._coming_bytes += _estimate_cache_bytes(piece)
                yield piece

    def _note(self, read: ReadOperation) -> None:
        done = self._done
        self._coming_bytes -= _estimate_cache_bytes(read.span)
        try:
            size_bytes = len(read.take())  # also writes to the cache
        except NotFound as error:
            if error.missing == "bucket":
                raise
            done.missing += 1
            self._count(1, 0)
        except PenstockError as error:
            done.failed += 1
            if len(done.failures) < _SHOWN:
                done.failures.append(WarmFailure(error.url or self._source.url(read.span.key), error))
            self._count(1, 0)
        else:
            done.fetched += 1
            done.fetched_bytes += size_bytes
            self._count(1, size_bytes)


def _estimate_cache_bytes(span: Span) -> int:
    """Return the known cache space, in bytes, that a read will take."""
    return _ENTRY_BYTES + (0 if span.stop is None else span.stop - span.start)


def _split_long_span(span: Span) -> Iterator[Span]:
    """Split a long span at multiples of the piece size; the cache keeps a span without a version only as a whole."""
    key, start, stop, etag, _, _, _ = span
    if stop is None or not etag or stop - start <= _PIECE_BYTES:
        yield span
        return
    while start < stop:
        end = min(stop, (start // _PIECE_BYTES + 1) * _PIECE_BYTES)
        yield Span(key, start, end, etag)
        start = end
