"""The whole benchmark, step by step; objects that it wrote are always deleted."""

from __future__ import annotations

import os
import sys
from collections import deque
from contextlib import closing, suppress
from dataclasses import dataclass, field, replace
from importlib import import_module
from itertools import chain, cycle, islice, repeat
from random import Random
from threading import Event, Thread
from time import sleep
from typing import TYPE_CHECKING, Any
from uuid import uuid4

from penstock.cli.bench.limits import binding, examined, step
from penstock.data.datasets.sample import Sample
from penstock.display import counted
from penstock.engine.contracts.driver import Delete, List, Multipart, Put
from penstock.errors import PenstockError, Unsupported, Unusable
from penstock.events import measured
from penstock.jobs import steps
from penstock.jobs.pool import run_jobs
from penstock.options import RetryOptions
from penstock.source import Source
from penstock.stores.urls import parse
from penstock.values import ObjectMeta, Span, as_folder

if TYPE_CHECKING:
    from collections.abc import Callable, Generator, Iterable, Iterator, Sequence

    from penstock.cli.bench.limits import Machine, Result
    from penstock.events import HostTimings
    from penstock.options import StoreOptions

    Transform = Callable[[Sample], Any]

__all__ = ["BenchOptions", "Written", "decoding", "listing", "measure", "named", "read_large", "read_small"]

# Long enough for a store that answers but fails at times.
_PATIENCE_S = 20.0
_MOST_SECONDS = 3600.0
# As many threads as a loader has at most.
_MOST_THREADS = 16
# Maximum size of a small object, minimum size of a large one.
SMALL_BYTES, LARGE_BYTES = 1 << 20, 16 << 20
_RANGE_BYTES = 8 << 20
# Maximum number of remembered objects: enough that a store's caches do not hold all responses.
_MOST = 10_000
# Warm-up as a share of the time: connections open, and the number of requests in flight becomes stable.
_WARM_SHARE = 0.2
# Objects that are kept for decoding.
_KEPT, _KEPT_BYTES = 64, 32 << 20
_SMALL_BYTES = 100 << 10
# Objects of _SMALL_BYTES: at most 200 MB in the bucket.
_MOST_SMALL = 2000
_PIECE_BYTES = 16 << 20
_MOST_PIECES = 16
_LOOKS, _SETTLE_S = 4, 0.5


@dataclass(frozen=True, slots=True, kw_only=True)
class BenchOptions:
    """Options of a benchmark.

    Attributes:
        seconds: Duration of each step, after a warm-up of a fifth of it. 5 s are enough for a stable rate.
        read_only: Write nothing; read only existing objects.
        transform: Function that decodes a sample, as ``module:name``; empty: nothing is decoded.

    """

    seconds: float = 5.0
    read_only: bool = False
    transform: str = ""

    def __post_init__(self) -> None:
        """Refuse options that would measure nothing or never end."""
        seconds: object = self.seconds
        if not (isinstance(seconds, int | float) and 0 < seconds <= _MOST_SECONDS):
            raise Unusable(f"seconds is more than 0, and at most {_MOST_SECONDS:.0f}, not {self.seconds!r}")
        if not isinstance(self.transform, str):
            raise Unusable(f"transform must be the name of a function, 'module:name', got {self.transform!r}")


def measure(
    url: str | os.PathLike[str], store: StoreOptions | str | None = None, options: BenchOptions | None = None
) -> Generator[Machine | Result]:
    """Measure the store of ``url`` below its key; yield each result when it is available, and then the machine.

    The steps in order: list; write small objects and a large one; read small objects and ranges of large ones, of
    existing objects or else of the written ones; decode small objects; delete the written objects. Each step takes
    ``options.seconds``. At most 2,000 objects of 100 KiB and one of 256 MiB are written, to keys that begin with
    ``penstock-bench-``. They are deleted on any exit, also after Ctrl-C; a killed process leaves them.

    The store charges for the requests: about ten thousand at 2,000 objects per second and 5 s.

    Raises:
        InvalidURL, UnknownScheme, ConfigError: The URL or the options are invalid.
        Unusable: The transform does not exist. All other errors are results.

    """
    options = options or BenchOptions()
    transform = named(options.transform) if options.transform else None
    location = parse(url)
    given = Source(location, store).options
    own = replace(given, retry=RetryOptions(patience_s=_PATIENCE_S, first_contact_s=_PATIENCE_S / 2))
    with Source(location, own) as source:
        before = measured()
        listed, metas = listing(source, location.key, options.seconds)
        if not metas:
            # A store that cannot list may have one object at this key.
            with suppress(PenstockError):
                metas = [source.head(location.key)]
        machine = examined(_host(before))

        def judged(result: Result) -> Result:
            result.binds = binding(result, machine, own)
            return result

        yield judged(listed)
        if listed.outcome != "failed":
            run = _Run(source, as_folder(location.key), metas, options)
            try:
                for result in run.stored():
                    yield judged(result)
                if transform is not None:
                    for result in decoding(transform, source.root, run.small, options.seconds / 2, machine.cores):
                        yield judged(result)
                if run.written is not None:
                    yield judged(run.written.deleting())
            finally:
                if run.written is not None:
                    # The store has already refused, and that was reported.
                    with suppress(PenstockError):
                        run.written.clear()
        yield machine


class _Run:
    """Steps that read and write objects.

    Attributes:
        written: Objects that the benchmark wrote; None if it writes nothing.
        small: Some of the small objects that were read.

    """

    def __init__(self, source: Source, folder: str, metas: list[ObjectMeta], options: BenchOptions) -> None:
        self._source, self._metas, self._options = source, metas, options
        self.written: Written | None = None
        self.small: list[tuple[Span, bytes]] = []
        # Not a folder: a file system would keep it.
        self._stem = f"{folder}penstock-bench-{uuid4().hex}-"

    def stored(self) -> Iterator[Result]:
        """Yield the results of writes and reads."""
        seconds = self._options.seconds
        why = self._why_not()
        if why:
            with step("write") as watch:
                watch.result.skip(why)
            yield watch.result
        else:
            self.written = Written(self._source, self._stem)
            yield self.written.small(seconds)
            yield self.written.large(seconds)
        result, self.small = read_small(self._source, self._those(small=True), seconds)
        yield result
        yield read_large(self._source, self._those(small=False), seconds)

    def _why_not(self) -> str:
        if self._options.read_only:
            return "read only"
        if not self._source.supports(Put):
            return "this store is read only"
        return "" if self._source.supports(Delete) else "this store deletes nothing: what is written would stay"

    def _those(self, *, small: bool) -> list[ObjectMeta]:
        """Return the user's small or large objects, else those of the benchmark."""

        def fits(meta: ObjectMeta) -> bool:
            return meta.size <= SMALL_BYTES if small else meta.size >= LARGE_BYTES

        own = [meta for meta in self._metas if fits(meta)]
        return own or [meta for meta in (self.written.metas if self.written else ()) if fits(meta)]


def _host(before: dict[str, HostTimings]) -> str:
    """Return the host with the most responses since ``before``; empty for a store without a network."""
    spent = {name: host - before[name] if name in before else host for name, host in measured().items()}
    return max(spent, key=lambda name: spent[name].responses, default="")


def named(name: str) -> Transform:
    """Import the function ``module:name``; modules of the working directory are found, too.

    Raises:
        Unusable: The module does not exist, or has no callable of this name.

    """
    module, colon, path = name.partition(":")
    if not (module and colon and path):
        raise Unusable(f"a transform is written module:name, as in train:decode, not {name!r}")
    sys.path.insert(0, os.getcwd())  # noqa: PTH109  a string
    try:
        found: Any = import_module(module)
        for each in path.split("."):
            found = getattr(found, each)
    except Exception as error:
        raise Unusable(f"cannot import the transform {name!r}: {type(error).__name__}: {error}") from error
    finally:
        sys.path.pop(0)
    if not callable(found):
        raise Unusable(f"the transform {name!r} must be a function of a sample")
    return found  # type: ignore[no-any-return]  # a function of the user's


def decoding(
    transform: Transform, root: str, objects: Sequence[tuple[Span, bytes]], seconds: float, cores: float
) -> Iterator[Result]:
    """Yield the results of transforming for ``seconds``: in one thread, then in one per processor (at most 16)."""
    for name, threads in (("decode", 1), ("decode in threads", min(int(cores), _MOST_THREADS))):
        if threads == 1 and name != "decode":
            return
        with step(name, Exception) as watch:
            if not objects:
                watch.result.skip("no small object was read")
                yield watch.result
                return
            for sample in _samples(root, objects, 1):
                # Warm-up: fills the imports and caches of the transform.
                transform(sample)
            watch.start()
            made = _transformed(transform, root, objects, watch, (seconds, threads))
            watch.stop()
            result = watch.result
            result.objects, result.size_bytes = made
            result.threads = threads
            result.detail = f"{len(objects)} objects again and again, in {counted(threads, 'thread')}"
        yield watch.result
        if watch.result.outcome == "failed":
            return


def _transformed(
    transform: Transform, root: str, objects: Sequence[tuple[Span, bytes]], watch: step, plan: tuple[float, int]
) -> tuple[int, int]:
    """Return the number of objects and of bytes that the threads transform; raise the first error."""
    seconds, threads = plan
    made: list[tuple[int, int]] = []
    errors: list[BaseException] = []

    def run() -> None:
        count = size_bytes = 0
        try:
            for sample in _samples(root, objects, None):
                transform(sample)
                count += 1
                size_bytes += sample.size
                if errors or watch.elapsed_s > seconds:
                    break
        except BaseException as error:  # noqa: BLE001  raised in the waiting thread
            errors.append(error)
        made.append((count, size_bytes))

    workers = [Thread(target=run, daemon=True) for _ in range(threads)]
    for each in workers:
        each.start()
    try:
        for each in workers:
            each.join()
    except BaseException as error:
        # Ctrl-C: the threads end after their current sample.
        errors.append(error)
        raise
    if errors:
        raise errors[0]
    return sum(count for count, _ in made), sum(size for _, size in made)


def _samples(root: str, objects: Sequence[tuple[Span, bytes]], count: int | None) -> Iterator[Sample]:
    for span, data in islice(cycle(objects), count):
        yield Sample(root, span, data)


def listing(source: Source, prefix: str, seconds: float) -> tuple[Result, list[ObjectMeta]]:
    """List for ``seconds``, page after page; return the result and up to 10,000 objects that are not empty."""
    found: list[ObjectMeta] = []
    with step("list") as watch:
        source.require(List, prefix)
        result, pages, more = watch.result, 0, False
        for page in source.pages(prefix):
            pages += 1
            result.objects += len(page.entries)
            found += [entry for entry in page.entries[: _MOST - len(found)] if entry.size > 0]
            more = bool(page.token)
            if watch.elapsed_s > seconds:
                break
        watch.stop()
        every = f"{result.elapsed_s / max(pages, 1) * 1000:,.0f} ms a page"
        ended = ", and more" if more else ""
        result.detail = f"{counted(result.objects, 'key')}{ended}, {every}"
    return watch.result, found


def read_small(source: Source, metas: Sequence[ObjectMeta], seconds: float) -> tuple[Result, list[tuple[Span, bytes]]]:
    """Read whole objects of up to 1 MiB in a random order; return the result and some of them, for decoding."""
    kept: list[tuple[Span, bytes]] = []
    small = [meta for meta in metas if meta.size <= SMALL_BYTES]
    if not small:
        return _skipped("read small", "no object of up to 1 MiB"), kept
    spans = [Span(meta.key, 0, meta.size, meta.etag, whole=True) for meta in small]
    mean = sum(meta.size for meta in small) / len(small)
    with step("read small") as watch:
        held = 0
        for span, data in _reads(source, _shuffled(spans), watch, seconds):
            if len(kept) < _KEPT and held < _KEPT_BYTES:
                kept.append((span, data))
                held += len(data)
        watch.result.detail = f"of {len(small):,} objects, {mean / 1024:,.3g} KiB on average"
    return watch.result, kept


def read_large(source: Source, metas: Sequence[ObjectMeta], seconds: float) -> Result:
    """Read objects of 16 MiB or more in parallel ranges of 8 MiB, from their beginnings to their ends."""
    large = [meta for meta in metas if meta.size >= LARGE_BYTES]
    if not large:
        return _skipped("read large", "no object of 16 MiB or more")
    with step("read large") as watch:
        for _ in _reads(source, chain.from_iterable(map(_ranges, chain.from_iterable(repeat(large)))), watch, seconds):
            pass
        watch.result.detail = f"of {counted(len(large), 'object')}, in ranges of 8 MiB"
    return watch.result


def _reads(source: Source, spans: Iterable[Span], watch: step, seconds: float) -> Iterator[tuple[Span, bytes]]:
    """Read for ``seconds`` after a warm-up; yield all data, and count it after the warm-up."""
    drawn: deque[Span] = deque()
    result, warm = watch.result, False

    def noted() -> Iterator[Span]:
        for span in spans:
            drawn.append(span)
            yield span

    with source.lookahead(noted()) as ahead:
        for data in ahead:
            yield drawn.popleft(), data
            if not warm:
                warm = watch.elapsed_s > _WARM_SHARE * seconds
                if warm:
                    watch.start()
                continue
            result.objects += 1
            result.size_bytes += len(data)
            if watch.elapsed_s > seconds:
                watch.stop()
                return


def _shuffled(spans: Sequence[Span]) -> Iterator[Span]:
    draw = Random(0)  # noqa: S311  an order, no secret
    order = [*spans]
    while True:
        draw.shuffle(order)
        yield from order


def _ranges(meta: ObjectMeta) -> Iterator[Span]:
    for start in range(0, meta.size, _RANGE_BYTES):
        yield Span(meta.key, start, min(start + _RANGE_BYTES, meta.size), meta.etag)


def _skipped(name: str, why: str) -> Result:
    with step(name) as watch:
        watch.result.skip(why)
    return watch.result


@dataclass(slots=True)
class Written:
    """Objects that the benchmark writes, under names that no other program uses.

    Attributes:
        source: Store of the objects.
        stem: Common prefix of their keys.
        metas: Objects that were written and not deleted.

    """

    source: Source
    stem: str
    metas: list[ObjectMeta] = field(default_factory=list)
    # Keys that may exist, including those of interrupted writes.
    _begun: list[str] = field(default_factory=list)
    # A write was started, and its end is unknown.
    _under_way: bool = False

    def small(self, seconds: float) -> Result:
        """Write objects of 100 KiB, many at once, for ``seconds`` or until there are 2,000."""
        body = os.urandom(_SMALL_BYTES)
        with step("write small") as watch:
            self.source.require(Put, self.stem)
            result, stop = watch.result, Event()

            def keys() -> Iterator[str]:
                for number in range(_MOST_SMALL):
                    if number and watch.elapsed_s > seconds:
                        return
                    self._begun.append(f"{self.stem}small-{number:06}")
                    yield self._begun[-1]

            async def write(key: str) -> str:
                return await steps.put(self.source, key, body, metadata={}, content_type="")

            self._under_way = True
            with closing(run_jobs(keys(), write, lambda _: _SMALL_BYTES, stop)) as ended:
                for key, etag in ended:
                    if isinstance(etag, PenstockError):
                        raise etag
                    self.metas.append(ObjectMeta(key, _SMALL_BYTES, etag))
                    result.objects += 1
                    result.size_bytes += _SMALL_BYTES
            watch.stop()
            self._under_way = False
            result.detail = f"100 KiB each [{self.source.url(self.stem)}…]"
        return watch.result

    def large(self, seconds: float) -> Result:
        """Write one object in parts, for ``seconds`` or until it has 256 MiB; at least two pieces of 16 MiB."""
        piece, key = os.urandom(_PIECE_BYTES), f"{self.stem}large"
        with step("write large") as watch:
            self.source.require(Multipart, key)
            self._begun.append(key)
            size, self._under_way = 0, True
            with self.source.open_write(key) as file:
                while size < 2 * _PIECE_BYTES or (watch.elapsed_s < seconds and size < _MOST_PIECES * _PIECE_BYTES):
                    size += file.write(piece)
            watch.stop()
            self._under_way = False
            self.metas.append(self.source.head(key))
            watch.result.objects, watch.result.size_bytes = 1, size
            watch.result.detail = f"one object of {size >> 20} MiB in parts, until it was visible"
        return watch.result

    def deleting(self) -> Result:
        """Delete all written objects and return the result."""
        with step("delete") as watch:
            count = len(self._begun)
            self.clear()
            watch.stop()
            watch.result.objects = count
            watch.result.detail = "nothing is left behind"
        result = watch.result
        if result.outcome == "failed":
            result.detail += f"; what is left begins with {self.source.url(self.stem)}"
        return result

    def clear(self) -> None:
        """Delete all objects that were written or started, and search for more; missing ones are ignored.

        Raises:
            PenstockError: The store refuses a request.

        """
        source = self.source
        if not self._begun or not source.supports(Delete):
            return
        if source.supports(Multipart):
            # Some stores do not list uploads.
            with suppress(Unsupported):
                for upload in source.unfinished(self.stem):
                    source.abort(upload)
        source.delete(self._begun)
        for look in range(_LOOKS if self._under_way else 1):
            # The store may execute a cancelled request after the deletion, if it was already sent.
            if look:
                sleep(_SETTLE_S)
            source.delete([entry.key for page in source.pages(self.stem) for entry in page.entries])
        self._begun, self.metas, self._under_way = [], [], False
