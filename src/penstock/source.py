"""The waist: a bucket and the engines behind it. The only file that joins providers and fetch."""

from __future__ import annotations

import os
from dataclasses import dataclass, replace
from functools import partial
from sys import maxsize
from time import monotonic
from typing import TYPE_CHECKING, Self, TypeVar

from penstock.budget import Budget
from penstock.buffer import Buffer
from penstock.cache.layer import cached
from penstock.cache.tiers import Cache, open_cache
from penstock.config.caching import with_cache
from penstock.errors import InvalidURL, Unusable
from penstock.events import arrived, carried, followed, operation
from penstock.fetch.calls import Calls
from penstock.fetch.each import each_key, unless_missing
from penstock.fetch.engines import Engines
from penstock.fetch.fetcher import Fetcher
from penstock.fetch.operation import Operation
from penstock.fetch.pager import Pager
from penstock.fetch.pages import next_page, pages, uploads
from penstock.fetch.reading.batch import read_into, read_many
from penstock.fetch.reading.lookahead import Lookahead
from penstock.fetch.reading.reader import Reader
from penstock.fetch.reading.scatter import scatter
from penstock.fetch.writing.copy import copy
from penstock.fetch.writing.publish import publish, put
from penstock.fetch.writing.upload import Writer
from penstock.listing import Listing
from penstock.node.member import member
from penstock.options import StoreOptions
from penstock.protocols.driver import Attributes, Copy, Delete, Multipart
from penstock.providers.provider import Opening, Route
from penstock.providers.urls import Location, parse
from penstock.support import require, supports

if TYPE_CHECKING:
    from collections.abc import Callable, Generator, Hashable, Iterable, Iterator, Mapping, Sequence

    from penstock.events import Scope
    from penstock.protocols.driver import Driver
    from penstock.protocols.exchange import Exchange
    from penstock.protocols.fetching import Fetching
    from penstock.providers.provider import Provider
    from penstock.values import ObjectMeta, Page, Span, Upload
    from penstock.waiting import Inbox

    Layer = Callable[[Fetching], Fetching]

__all__ = ["Cache", "Calls", "Operation", "Reader", "Source", "Writer", "object_at", "open_cache", "open_source"]

T = TypeVar("T")

_SPARE = 4  # engines that are kept without a user: a loop over ``ps.load`` finds its connections again


@dataclass(frozen=True, slots=True)
class _Store:
    """What tells one engine from another."""

    scheme: str
    bucket: str
    options: StoreOptions
    settings: Hashable
    identity: Hashable


_engines: Engines[_Store] = Engines(_SPARE)
os.register_at_fork(after_in_child=_engines.forget)


class Source:
    """One bucket (or memory set, or file system), by full keys. Thread-safe, fork-safe, picklable; opened lazily.

    Every process has engines of its own, shared by all sources of the same store, settings and identity. A source that
    was used keeps the identity that environment and profile named then: what expires is renewed from the same profile,
    files, role or token file, read afresh, and keys of the environment stay those that it held. A new source takes what
    environment and profile name now. Every method may raise any ``PenstockError``; ``Transient`` ones only after the
    retry budget is spent.

    Attributes:
        root: The bucket's URL, ending in ``/``.
        options: The store's, of its provider's class.

    """

    def __init__(self, location: Location, store: StoreOptions | str | None = None, layer: Layer | None = None) -> None:
        """Point at the bucket of ``location``; nothing is sent. ``ConfigError`` for settings that cannot work.

        ``store`` is options, or the name of a profile that has them; ``layer`` is for ``through``.
        """
        self._resolve = (provider := location.provider).resolve
        self._given = store
        if isinstance(store, str):
            from penstock.providers.profiles.penstock import chosen  # few programs have profiles

            store = chosen(location, store)
        options = provider.take(StoreOptions() if store is None else store)
        self.options = options = options if location.local else with_cache(options)
        settings, identity = self._resolve(options, os.environ)
        self._provider = provider.variant(settings) or provider
        self.root = location.root
        self._store = _Store(location.scheme, location.bucket, options, settings, identity)
        self._engine: tuple[int, Fetcher] | None = None  # with its process
        self._closed = False
        self._layer = layer
        self._layered: tuple[Fetcher, Fetching] | None = None  # with the engine that it stands before

    def through(self, layer: Layer) -> Source:
        """Return a source of the same store whose reads pass through ``layer(fetching)``: a cache, say.

        ``layer`` is called once for each engine, so once a process (again after a fork), with what fetches from the
        store, and returns what reads ask instead (``penstock.protocols.fetching``). Reads are ``read``, ``read_many``,
        ``read_into``, ``scatter``, ``lookahead`` and ``open_read``; all other methods ask the store. A source that is
        pickled takes its layer along, so that has to be a class, or another thing that can be pickled.
        """
        if not callable(layer):
            raise Unusable(f"a layer is a function that takes what fetches and returns what reads, not {layer!r}")
        return Source(self._location(), self._given, layer)

    def url(self, key: str) -> str:
        """Return an object's URL."""
        return self.root + key

    def address(self, key: str) -> tuple[Hashable, ...]:
        """Return what tells an object from all others, by whatever URL: with and without a profile, say; no request."""
        store = self._store
        route = store.settings
        if isinstance(route, Route):
            return route.scheme, route.bucket, route.settings, route.base + key
        return store.scheme, store.bucket, route, key

    def supports(self, *verbs: Callable[..., object]) -> bool:
        """Return whether the store has all of these verbs of ``penstock.protocols.driver``: no request."""
        return all(supports(self._fetcher().driver, verb) for verb in verbs)

    @property
    def forks(self) -> bool:
        """Whether forked processes share it: not the memory of this one, nor what a foreign library opens."""
        return self._provider.abilities.forks

    def require(self, verb: Callable[..., T], key: str = "") -> T:
        """Return the driver's verb; ``Unsupported``, with the URL of ``key``, where the store lacks it: no request."""
        return require(self._fetcher().driver, verb, key)

    def ask(self, verb: Callable[[Driver], Exchange[T]]) -> T:
        """Carry out one verb of the store's driver, without what reads and writes add to it: for examining a store."""
        fetcher = self._fetcher()
        return fetcher.run(partial(verb, fetcher.driver))

    def head(self, key: str) -> ObjectMeta:
        """Describe one object: one request."""
        fetcher = self._fetcher()
        return fetcher.run(partial(fetcher.driver.head, key))

    def stat_many(self, keys: Sequence[str]) -> list[ObjectMeta]:
        """Describe objects, in order: one request each, up to 256 in flight; raises the first refusal, in order."""
        with operation("stat", self.url, ""):
            fetcher = self._fetcher()
            return [looking.result() for looking in each_key(fetcher, keys, fetcher.driver.head)]

    def stat_existing(self, keys: Sequence[str]) -> list[ObjectMeta | None]:
        """Describe objects as ``stat_many`` does; None stands for each that is not there."""
        with operation("stat", self.url, ""):
            return _stat_existing(self._fetcher(), keys)

    def fetching(self) -> Fetching:
        """Return what reads of this process ask: its engine, or cache and layer before it. May open the engine.

        For code that waits in another way than ``read_many`` does (``penstock.interop.awaiting``).
        """
        fetcher = self._fetcher()
        if self._layer is None and self.options.cache is None:
            return fetcher
        if (layered := self._layered) is None or layered[0] is not fetcher:
            # Not a method of its own: a circle would keep this source, and its connections, until the collector runs.
            stat = partial(_stat_where_possible, fetcher)
            below = cached(self.options.cache, fetcher, self.address(""), stat)
            layered = self._layered = fetcher, below if self._layer is None else self._layer(below)
        return layered[1]

    def waits(self, spans: Iterable[Span] = ()) -> bool:
        """Return whether starting reads of these spans, or any verb, may wait for something first: no request.

        The engine may have to be opened, credentials renewed, a version looked at; a layer may always wait.
        """
        opened = (engine := self._engine) is not None and engine[0] == os.getpid() and engine[1].usable()
        return not opened or bool(self._layer or self.options.cache) or self._fetcher().waits(spans)

    def calls(self, inbox: Inbox, scope: Scope | None = None) -> Calls:
        """Return what prepares verbs and sends them together, within ``scope``; ``inbox`` is told of each that ends."""
        return Calls(self._fetcher, self.fetching, inbox, scope)

    def page(self, prefix: str, *, token: str = "", start_after: str = "", delimiter: str = "") -> Page:
        """List one page of up to 1,000 keys in UTF-8 byte order: one request.

        ``Damaged`` where it is not what was asked for (``penstock.listing``).
        """
        return next_page(self._fetcher(), Listing(prefix, start_after, delimiter, token), self.url)

    def pages(self, prefix: str, *, delimiter: str = "") -> Iterator[Page]:
        """List all pages, in order, requested ahead (``fetch.pages``); ``Damaged`` where not what was asked for."""
        return followed("list", self.url, prefix, pages(self._fetcher, Listing(prefix, delimiter=delimiter), self.url))

    def pager(self) -> Pager:
        """Return what lists with many requests at once; it does not compare pages with what was asked for."""
        return Pager(self._fetcher(), self.url)

    def read(self, span: Span) -> bytes:
        """Read one span, verified: one request, or one for every 16 MiB of it, in parallel.

        ``Span(key, -n)``, the last ``n`` bytes, is one request, too; with a HEAD before it where the store has no such
        range, for an empty object, and beyond 16 MiB.
        """
        return self.read_many((span,))[0]

    def read_many(self, spans: Iterable[Span]) -> list[bytes]:
        """Read spans all at once; their bytes in order. The first error, in order, is raised."""
        spans = [*spans]
        with operation("read", self.url, spans[0].key if len(spans) == 1 else ""):
            return read_many(self.fetching(), spans)

    def read_into(self, span: Span, buffer: object) -> None:
        """Fill a writable buffer with the span, in parallel ranges; on any way out nothing writes into it any more."""
        with operation("read", self.url, span.key):
            read_into(self.fetching(), span, Buffer.borrow(buffer))

    def scatter(self, places: Iterable[tuple[Span, object]], window_bytes: int) -> Generator[Span]:
        """Fill writable buffers with spans of their sizes, one request each; yield the spans in order, once full.

        ``places`` is drawn from lazily, at most ``window_bytes`` (and a place) ahead of what was yielded: less where
        the processes of the machine hold more than their node allows. Close the iterator, or let it end: on any way
        out, Ctrl-C included, nothing writes into any buffer any more.
        """
        window = member.hold(Budget(window_bytes, maxsize), self.options.node)
        targets = ((span, Buffer.borrow(buffer)) for span, buffer in places)
        return followed("scatter", self.url, "", scatter(self.fetching(), targets, window))

    def lookahead(self, spans: Iterator[Span], workers: int = 1) -> Lookahead:
        """Return an iterator over the spans' bytes, in order, that reads ahead within this process's budget.

        The budget is ``options.read``'s, shared equally when ``workers`` processes read in parallel, and with the node.
        """
        ahead = self.options.read
        budget = member.hold(Budget(ahead.ahead_bytes, ahead.ahead_items).share(workers), self.options.node)
        began = monotonic()
        found = Lookahead(self.fetching(), spans, budget, operation("lookahead", self.url, ""))
        found.counts.opening_s = monotonic() - began
        return found

    def open_read(self, key: str, meta: ObjectMeta | None = None, *, block_bytes: int = 0) -> Reader:
        """Open an object as a seekable file, held to the version that ``meta`` describes, or to its present: a HEAD.

        ``block_bytes`` is what is read at once for small reads; 0 stands for 4 MiB.
        """
        return Reader(self.fetching, meta or self.head(key), self.url(key), block_bytes)

    def open_write(
        self,
        key: str,
        *,
        create_only: bool = False,
        replaces: str = "",
        metadata: Mapping[str, str] | None = None,
        content_type: str = "",
    ) -> Writer:
        """Open an object as a file that publishes when it is closed well; no request yet.

        ``content_type`` is by default the options'. ``create_only`` raises ``AlreadyExists`` then, where there is one
        already; ``replaces`` (an ETag) ``PreconditionFailed``, where that version is not there. Not both. On stores
        without conditional writes (Ceph's multipart, OSS) that is a look beforehand: two writers within a moment may
        both win (docs/stores.md).
        """
        kind = content_type or self.options.write.content_type
        attributes = Attributes(kind, metadata or {}, create_only, replaces)
        return Writer(self._fetcher(), key, self.options.write, attributes)

    def unfinished(self, prefix: str) -> Iterator[Upload]:
        """Yield uploads to keys that begin with ``prefix``, neither completed nor aborted: one request a page."""
        return followed("uploads", self.url, prefix, uploads(self._fetcher, prefix, self.url))

    def abort(self, upload: Upload) -> None:
        """Free what the store holds of an unfinished upload: one request. A writer that still uses it will fail."""
        fetcher = self._fetcher()
        fetcher.run(partial(require(fetcher.driver, Multipart, upload.key).abort, upload.key, upload.id))

    def put(
        self,
        key: str,
        data: bytes | bytearray | memoryview,
        *,
        metadata: Mapping[str, str] | None = None,
        content_type: str = "",
    ) -> str:
        """Write one object in one request; returns its ETag. ``content_type`` is by default the options'."""
        attributes = Attributes(content_type or self.options.write.content_type, metadata or {})
        return put(self._fetcher(), key, data, attributes)

    def publish(self, key: str, data: bytes | bytearray | memoryview, *, replaces: str = "") -> ObjectMeta:
        """Write a new object in one PUT, whatever its size (S3: up to 5 GiB), or replace the version ``replaces``.

        Three requests: a look before and one after, as ``open_write`` has them. Returns what the last one saw. Where
        the store keeps neither metadata nor the write's ETag it is read back, too, and tells by its bytes whose it is.

        Raises:
            AlreadyExists: There is one already.
            PreconditionFailed: The object there has not the ETag ``replaces``.
            Changed: It was written, and has been replaced by another writer's since.

        """
        kind = self.options.write.content_type
        attributes = Attributes(kind, create_only=not replaces, replaces=replaces)
        return publish(self._fetcher(), key, data, attributes)

    def delete(self, keys: Sequence[str]) -> None:
        """Delete objects, one request each, up to 256 in flight; raises the first refusal, a missing one is none."""
        if keys:
            fetcher = self._fetcher()
            verb = require(fetcher.driver, Delete, keys[0]).delete
            with operation("delete", self.url, ""):
                for deletion in each_key(fetcher, keys, verb):
                    deletion.result()

    def copy(self, key: str, to: str, known: ObjectMeta | None = None) -> None:
        """Copy within the bucket, server side: the version that ``known`` describes, or the present one (a HEAD).

        One request; beyond 1 GiB one for each 128 MiB and five more. ``Changed`` where it is another version by now, if
        the store heeds that (Ceph 16 does not, up to 1 GiB).
        """
        self.require(Copy, to)
        with operation("copy", self.url, to):
            copy(self._fetcher(), known or self.head(key), to, self.options.write)

    def close(self) -> None:
        """Use this source no more. Where no other source uses its engine, the connections close.

        What is under way ends with ``Cancelled`` then; files and iterators of this source are not used any more. A
        source need not be closed: engines without a source are closed, but for the latest four.
        """
        self._closed, engine, self._engine, self._layered = True, self._engine, None, None
        if engine is not None and engine[0] == os.getpid():
            _engines.leave(engine[1], self)

    def __enter__(self) -> Self:
        """Return itself."""
        return self

    def __exit__(self, *_: object) -> None:
        """Close."""
        self.close()

    def __reduce__(self) -> tuple[object, ...]:
        """Pickle as location and options (a profile's name); with secrets in them for workers only: ``Unusable``."""
        return arrived, (carried(), Source, self._location(), self._given, self._layer)

    def _location(self) -> Location:
        return Location(self._store.scheme, self._store.bucket, "")

    def _fetcher(self) -> Fetcher:
        """Return this process's engine: the same from the first use on, unless it broke or somebody closed it."""
        engine, pid = self._engine, os.getpid()
        if engine is None or engine[0] != pid or not engine[1].usable():
            if self._closed:
                raise Unusable("this source was closed: open another one", url=self.root)
            engine = self._engine = pid, self._open()
        return engine[1]

    def _open(self) -> Fetcher:
        fetcher = _engines.find(self._store, self)
        if fetcher is None:
            environ = dict(os.environ)  # an engine keeps the identity that it names now
            # Keys are looked up now, whatever they were when this was made.
            self._store = store = replace(self._store, identity=self._resolve(self.options, environ)[1])
            fetcher = _engines.open(store, self, lambda: _build(self._provider, store, environ))
        return fetcher


def open_source(url: str | os.PathLike[str], store: StoreOptions | str | None = None) -> tuple[Source, str]:
    """Return the source a URL points into and the key or prefix it names there. No request is made.

    Raises:
        InvalidURL: The URL cannot be parsed.
        UnknownScheme: No provider has its scheme.
        ConfigError: An option or environment variable that cannot work; options of another provider.

    """
    location = parse(url)
    return Source(location, store), location.key


def object_at(url: str | os.PathLike[str], store: StoreOptions | str | None = None) -> tuple[Source, str]:
    """Return what ``open_source`` does for the URL of one object: ``InvalidURL`` where it names a bucket only."""
    source, key = open_source(url, store)
    if not key:
        raise InvalidURL("this names a bucket, not an object in it", url=source.root)
    return source, key


def _stat_existing(fetcher: Fetcher, keys: Sequence[str]) -> list[ObjectMeta | None]:
    return [unless_missing(looking) for looking in each_key(fetcher, keys, fetcher.driver.head)]


def _stat_where_possible(fetcher: Fetcher, keys: Sequence[str]) -> list[ObjectMeta | None]:
    """Describe objects for a cache; None for each that cannot be: its read says why, and the other reads go on."""
    looks = each_key(fetcher, keys, fetcher.driver.head)
    return [looking.result() if looking.error is None else None for looking in looks]


def _build(provider: Provider, store: _Store, environ: Mapping[str, str]) -> Fetcher:
    """Open a driver, whose credentials ``environ`` names for good, and the transport it needs."""
    opening = Opening(provider, store.scheme, store.bucket, store.options, store.settings, environ)
    driver, transport = provider.begin(opening)
    fetcher = Fetcher(driver, transport, store.options.retry, store.options.read, provider.limits)
    return fetcher.share(repr((store.scheme, store.bucket, store.settings)), store.options.node)
