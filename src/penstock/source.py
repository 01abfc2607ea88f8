"""A bucket and the engines that serve it. The only module that connects stores with the fetch engine."""

from __future__ import annotations

import os
import re
from collections import OrderedDict
from dataclasses import dataclass, field, replace
from functools import partial
from sys import maxsize
from time import monotonic
from typing import TYPE_CHECKING, Any, NamedTuple, Self, TypeVar
from weakref import WeakSet, ref

from penstock.engine.budget import Budget
from penstock.engine.buffer import Buffer
from penstock.engine.cache.layer import add_cache
from penstock.engine.contracts.driver import Attributes, Copy, Delete, Multipart, Versions
from penstock.engine.fetch.batch import Batch, each_key, unless_missing
from penstock.engine.fetch.fetcher import Fetcher
from penstock.engine.fetch.pages import Pager, next_page, pages, uploads
from penstock.engine.listing.listing import Listing
from penstock.engine.node.member import member
from penstock.engine.operations.operation import VerbOperation, head_with_sums
from penstock.engine.read.lookahead import Lookahead
from penstock.engine.read.reader import CHANGED, Reader, complete_reads, read_into, scatter
from penstock.engine.support import require, supports
from penstock.engine.waiting import Turn
from penstock.engine.write.copy import copy
from penstock.engine.write.publish import publish, put
from penstock.engine.write.upload import Writer
from penstock.errors import Changed, InvalidURL, Unusable
from penstock.events import follow_items, list_restores, operation, restore_and_make
from penstock.options import StoreOptions
from penstock.options.typed import CACHE_VARIABLE, with_cache
from penstock.stores.store import Opening, Route
from penstock.stores.urls import Location, parse

if TYPE_CHECKING:
    from collections.abc import Callable, Generator, Hashable, Iterable, Iterator, Mapping, Sequence

    from penstock.engine.contracts.driver import Driver
    from penstock.engine.contracts.exchange import Exchange
    from penstock.engine.contracts.fetching import Fetching, ReadOperation
    from penstock.engine.waiting import Inbox
    from penstock.events import Scope
    from penstock.stores.store import Store
    from penstock.values import ObjectMeta, Page, Span, Upload

    Layer = Callable[[Fetching], Fetching]

__all__ = ["Batch", "Reader", "Source", "VerbOperation", "Writer", "object_at", "open_source"]

T = TypeVar("T")

# Engines kept without a user, so that a loop over ``ps.load`` reuses its connections.
_SPARE = 4
# Settings that say where a bucket is, and endpoints of which any leads to the same one.
_PLACED = ("endpoint", "account", "asks")
_PUBLIC = re.compile(r"https?://[^/]+\.(amazonaws|aliyuncs|googleapis)\.com")


@dataclass(frozen=True, slots=True)
class _EngineKey:
    """The key of an engine: sources with equal keys share one engine."""

    scheme: str
    bucket: str
    options: StoreOptions
    settings: Hashable
    identity: Hashable
    _hash: int = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        """Compute the hash once: it covers some hundred options."""
        hashed = hash((self.scheme, self.bucket, self.options, self.settings, self.identity))
        object.__setattr__(self, "_hash", hashed)

    def __hash__(self) -> int:
        return self._hash


class _KnownStore(NamedTuple):
    """A known store, with the values that stay valid while settings and identity are unchanged."""

    given: StoreOptions | str | None
    kind: Store
    taken: StoreOptions
    variant: Store
    store: _EngineKey


_known: dict[tuple[str, int], _KnownStore] = {}
_KNOWN = 64


class _Engines:
    """Engines by the key that identifies their store.

    Users hold their engine. This object holds the ``spare`` engines that were asked for last, so that opening a store
    again and again finds its connections. An engine that is neither held nor spare is garbage-collected, and its
    connections close.
    """

    def __init__(self, spare: int) -> None:
        self._spare = spare
        self.forget()

    def forget(self) -> None:
        """Start empty; after a fork, threads and connections stay with the parent."""
        self._turn = Turn()
        self._all: dict[_EngineKey, ref[Fetcher]] = {}
        self._recent: OrderedDict[_EngineKey, Fetcher] = OrderedDict()
        self._users: dict[int, WeakSet[object]] = {}  # by the engine's identity

    def __len__(self) -> int:
        return sum(each() is not None for each in list(self._all.values()))

    def find(self, key: _EngineKey, user: object) -> Fetcher | None:
        """Return the store's engine if it has a usable one, and register ``user`` with it; else None."""
        with self._turn:
            held = self._all.get(key)
            engine = held() if held is not None else None
            return self._join(key, engine, user) if engine is not None and engine.usable() else None

    def open(self, key: _EngineKey, user: object, make: Callable[[], Fetcher]) -> Fetcher:
        with self._turn:
            return self.find(key, user) or self._join(key, make(), user)

    def leave(self, engine: Fetcher, user: object) -> None:
        """Unregister ``user`` from the engine; close the engine if this was its last user."""
        with self._turn:
            users = self._users.get(id(engine), WeakSet())
            users.discard(user)
            if users:
                return
            self._recent = OrderedDict((key, each) for key, each in self._recent.items() if each is not engine)
        engine.close()

    def _join(self, key: _EngineKey, engine: Fetcher, user: object) -> Fetcher:
        if id(engine) not in self._users:
            self._users[id(engine)] = WeakSet()
            self._all[key] = ref(engine, self._gone(key, id(engine)))
        self._users[id(engine)].add(user)
        self._recent[key] = engine
        self._recent.move_to_end(key)
        while len(self._recent) > self._spare:
            self._recent.popitem(last=False)
        return engine

    def _gone(self, key: _EngineKey, engine: int) -> Callable[[ref[Fetcher]], None]:
        # The garbage collector may run this on any thread, so it must not wait.
        def forget(held: ref[Fetcher]) -> None:
            if self._all.get(key) is held:
                self._all.pop(key, None)
            self._users.pop(engine, None)

        return forget


_engines = _Engines(_SPARE)
os.register_at_fork(after_in_child=_engines.forget)


class Source:
    """A bucket (or memory set, or file system), by full keys. Thread-safe, fork-safe, picklable; opened lazily.

    Every process has separate engines, shared by all sources of the same store, settings and identity. A source keeps
    the identity that environment and profile named at its first use. Expiring credentials are renewed from the same
    profile, files, role or token file, which are read again; keys from the environment stay the same. A new source uses
    the current environment and profile. Every method may raise any ``PenstockError``; ``Transient`` errors only after
    the retry budget is spent. ``root`` is the bucket's URL, ending in ``/``.
    """

    def __init__(self, location: Location, store: StoreOptions | str | None = None, layer: Layer | None = None) -> None:
        """Refer to the bucket of ``location``; sends nothing. Raise ``ConfigError`` for settings that cannot work.

        ``store`` is options, or the name of a profile that has them; ``layer`` is used by ``through``.
        """
        self._resolve = (kind := location.store).resolve
        self._given = store
        self.root = root = location.root
        known = _known.get((root, id(store)))
        if known is None or known.given is not store or known.kind is not kind or isinstance(store, str):
            known, taken = None, _take_options(location, store)
        else:
            taken = known.taken
        # Most stores have no cache, and a program may open them once for each object.
        plain = location.local or (taken.cache is None and not os.environ.get(CACHE_VARIABLE))
        self.options = options = taken if plain else with_cache(taken)
        settings, identity = self._resolve(options, os.environ)
        if known is None or _is_store_changed(known.store, options, settings, identity):
            key = _EngineKey(location.scheme, location.bucket, options, settings, identity)
            known = _KnownStore(store, kind, taken, kind.variant(settings) or kind, key)
            if len(_known) >= _KNOWN:
                _known.clear()
            _known[root, id(store)] = known
        self._kind, self._store = known.variant, known.store
        self._engine: tuple[int, Fetcher] | None = None  # with its process id
        self._closed = False
        self._layer = layer
        self._layered: tuple[Fetcher, Fetching] | None = None  # with the engine below it

    def through(self, layer: Layer) -> Source:
        """Return a source of the same store whose reads pass through ``layer(fetching)``, for example a cache.

        ``layer`` is called once per engine, so once per process (again after a fork), with the ``Fetching`` of the
        store, and returns the one that reads use (``engine.contracts.fetching``). All methods that do not read use the
        store directly. Pickling a source pickles its layer, which may be a class.
        """
        if not callable(layer):
            raise Unusable(f"layer must be a function from Fetching to Fetching, got {layer!r}")
        return Source(self._location(), self._given, layer)

    def url(self, key: str) -> str:
        return self.root + key

    def shares(self, other: Source) -> bool:
        return self._store == other._store and self._layer is other._layer

    def address(self, key: str) -> tuple[Hashable, ...]:
        """Return a key that identifies an object independent of its URL, for example of a profile in it; no request."""
        store = self._store
        route = store.settings
        if isinstance(route, Route):
            return route.scheme, route.bucket, route.settings, route.base + key
        return store.scheme, store.bucket, route, key

    @property
    def place(self) -> str:
        """Details beyond a URL, for records: a profile's bucket, an endpoint, an account; empty for public services.

        Machines may differ in the other settings (proxy, CA file, region) and see the same objects.
        """
        settings: Any = self._store.settings
        words = []
        if isinstance(settings, Route):
            words.append(f"{settings.scheme}://{settings.bucket}/{settings.base}")
            settings = settings.settings
        words += [settings] if isinstance(settings, str) else [getattr(settings, name, "") for name in _PLACED]
        return " ".join(str(each) for each in words if each and not _PUBLIC.fullmatch(str(each)))

    def supports(self, *verbs: Callable[..., object]) -> bool:
        """Return whether the store has all of these verbs of ``penstock.engine.contracts.driver``: no request."""
        return all(supports(self._fetcher().driver, verb) for verb in verbs)

    @property
    def forks(self) -> bool:
        """Whether forked processes see the same store: not memory of this process, nor a foreign library's objects."""
        return self._kind.abilities.forks

    @property
    def sums(self) -> bool:
        return self._fetcher().driver.abilities.sums

    def require(self, verb: Callable[..., T], key: str = "") -> T:
        """Return the driver's verb; raise ``Unsupported`` with the URL of ``key`` if the store lacks it. No request."""
        return require(self._fetcher().driver, verb, key)

    def ask(self, verb: Callable[[Driver], Exchange[T]]) -> T:
        """Run one verb of the store's driver directly, without the logic of reads and writes: to examine a store."""
        fetcher = self._fetcher()
        return fetcher.run(partial(verb, fetcher.driver))

    def head(self, key: str, *, sums: bool = False) -> ObjectMeta:
        """Return one object's metadata: one request. With ``sums`` include its checksum, if the store reports one."""
        fetcher = self._fetcher()
        return fetcher.run(head_with_sums(fetcher.driver, key) if sums else partial(fetcher.driver.head, key))

    def stat_many(self, keys: Sequence[str], *, versions: bool = False) -> list[ObjectMeta]:
        """Return objects' metadata, in order: one request each, up to 256 in flight; raise the first error in order.

        With ``versions``, the etags hold version ids.
        """
        with operation("stat", self.url, ""):
            fetcher = self._fetcher()
            verb = require(fetcher.driver, Versions).head_version if versions else fetcher.driver.head
            return [looking.result() for looking in each_key(fetcher, keys, verb)]

    def stat_existing(self, keys: Sequence[str]) -> list[ObjectMeta | None]:
        with operation("stat", self.url, ""):
            fetcher = self._fetcher()
            return [unless_missing(looking) for looking in each_key(fetcher, keys, fetcher.driver.head)]

    def fetching(self) -> Fetching:
        """Return the ``Fetching`` that reads in this process use: the engine, or the cache and layer on top of it.

        May open the engine. For code that waits in another way than ``read_many`` (``penstock.interop.awaiting``).
        """
        fetcher = self._fetcher()
        if self._layer is None and self.options.cache is None:
            return fetcher
        if (layered := self._layered) is None or layered[0] is not fetcher:
            # Not a bound method: a reference cycle would keep this source and its connections until garbage collection.
            stat = partial(_stat_where_possible, fetcher)
            below = add_cache(self.options.cache, fetcher, self.address(""), stat)
            layered = self._layered = fetcher, below if self._layer is None else self._layer(below)
        return layered[1]

    def waits(self, spans: Iterable[Span] = ()) -> bool:
        """Return whether starting reads of these spans, or any verb, may have to wait first; no request.

        The engine may have to be opened, credentials to be renewed, a version to be checked. A layer may always wait.
        """
        opened = (engine := self._engine) is not None and engine[0] == os.getpid() and engine[1].usable()
        return not opened or bool(self._layer or self.options.cache) or self._fetcher().waits(spans)

    def batch(self, inbox: Inbox, scope: Scope | None = None) -> Batch:
        return Batch(self._fetcher, self.fetching, inbox, scope)

    def page(self, prefix: str, *, token: str = "", start_after: str = "", delimiter: str = "") -> Page:
        """Return one page of up to 1,000 keys in UTF-8 byte order: one request, or more for steps without keys.

        Raise ``Damaged`` if the response does not match the request (``penstock.engine.listing.listing``).
        """
        listing = Listing(prefix, start_after, delimiter, token)
        page = next_page(self._fetcher(), listing, self.url)
        while page.advanced and page.token and not (page.entries or page.prefixes):
            page = next_page(self._fetcher(), listing, self.url)
        return page

    def pages(self, prefix: str, *, start_after: str = "", delimiter: str = "") -> Iterator[Page]:
        """Yield all pages in order, requested ahead (``fetch.pages``); raise ``Damaged`` for one that is wrong."""
        listing = Listing(prefix, start_after, delimiter)
        return follow_items("list", self.url, prefix, pages(self._fetcher, listing, self.url))

    def keys_below(self, prefix: str) -> list[str]:
        return [each.key for page in self.pages(prefix) for each in page.entries]

    def pager(self, *, versions: bool = False) -> Pager:
        """Return a ``Pager``, which lists with many parallel requests and does not check pages against the request.

        With ``versions``, its etags hold version ids (``engine.contracts.driver.Versions``).
        """
        return Pager(self._fetcher(), self.url, versions=versions)

    def check_versioned(self, prefix: str) -> None:
        """Raise ``Unusable`` unless the bucket keeps the versions that writes replace: one request."""
        fetcher = self._fetcher()
        if not fetcher.run(partial(require(fetcher.driver, Versions, prefix).versioning, prefix)):
            raise Unusable(
                "cannot record versions: versioning of the bucket is not enabled; enable it (on S3: "
                "PutBucketVersioning), or leave out versions=True, so that replaced objects raise Changed",
                url=self.url(prefix),
            )

    def read(self, span: Span) -> bytes:
        """Return one span's bytes, verified: one request, or one per 16 MiB, in parallel.

        ``Span(key, -n)``, the last ``n`` bytes, is also one request. A HEAD precedes it if the store lacks such ranges,
        for an empty object, and beyond 16 MiB.
        """
        return self.read_many((span,))[0]

    def read_many(self, spans: Iterable[Span]) -> list[bytes]:
        """Return the bytes of spans, in order, read in parallel. Raise the first error, in order.

        Raise ``Changed`` if spans of one object turn out to be of several versions.
        """
        return [data for data, _ in self.read_versions(spans)]

    def read_version(self, span: Span) -> tuple[bytes, str]:
        """Return one span's bytes, as ``read`` does, and their version; empty if the store names none.

        For an index or a header: the data that it locates are read in the same version.
        """
        return self.read_versions((span,))[0]

    def read_versions(self, spans: Iterable[Span]) -> list[tuple[bytes, str]]:
        spans = [*spans]
        with operation("read", self.url, spans[0].key if len(spans) == 1 else ""):
            reads = complete_reads(self.fetching(), spans)
            found = [(each.take(), each.version) for each in reads]
            for error in self.find_changes(reads).values():
                raise error
            return found

    def find_changes(self, reads: Sequence[ReadOperation]) -> dict[str, Changed]:
        """Return an error for each object that these reads returned in more than one version, by its key."""
        found: dict[str, Changed] = {}
        versions: dict[str, str] = {}
        for read in reads if len(reads) > 1 else ():
            key, version = read.span.key, read.version
            if version and versions.setdefault(key, version) != version:
                found[key] = Changed(CHANGED, url=self.url(key))
        return found

    def read_into(self, span: Span, buffer: object) -> None:
        """Fill a writable buffer with a span, in parallel ranges; after any end, nothing writes into it."""
        with operation("read", self.url, span.key):
            read_into(self.fetching(), span, Buffer.borrow(buffer))

    def scatter(self, places: Iterable[tuple[Span, object]], window_bytes: int) -> Generator[Span]:
        """Fill writable buffers with spans of their sizes, one request each; yield the spans in order, once full.

        ``places`` is consumed lazily, at most ``window_bytes`` plus one place ahead of the consumer; less if the
        processes of this machine use more than their node allows. Close the iterator, or exhaust it: after it ends in
        any way, Ctrl-C included, nothing writes into any buffer.
        """
        window = member.hold(Budget(window_bytes, maxsize), self.options.node)
        targets = ((span, Buffer.borrow(buffer)) for span, buffer in places)
        return follow_items("scatter", self.url, "", scatter(self.fetching(), targets, window))

    def lookahead(self, spans: Iterator[Span], workers: int = 1, layer: Layer | None = None) -> Lookahead:
        """Return an iterator over the spans' bytes, in order, that reads ahead within this process's budget.

        The budget is that of ``options.read``, divided equally over ``workers`` parallel processes, and limited by the
        node. The reads pass through ``layer``, if given.
        """
        ahead = self.options.read
        budget = member.hold(Budget(ahead.ahead_bytes, ahead.ahead_items).share(workers), self.options.node)
        began = monotonic()
        fetching = self.fetching() if layer is None else layer(self.fetching())
        found = Lookahead(fetching, spans, budget, operation("lookahead", self.url, ""))
        found.counts.opening_s = monotonic() - began
        return found

    def open_read(
        self,
        key: str,
        meta: ObjectMeta | None = None,
        *,
        block_bytes: int | None = None,
        read_ahead: int | None = None,
    ) -> Reader:
        """Open an object as a seekable file, bound to the version of ``meta``, or to the current one (a HEAD).

        A sequential read of the whole object is verified by the store's checksum, if ``meta`` has it.
        ``block_bytes`` and ``read_ahead`` are those of ``ps.open``.
        """
        return Reader(self.fetching, meta or self.head(key, sums=True), self.url(key), block_bytes, read_ahead)

    def open_write(
        self,
        key: str,
        *,
        create_only: bool = False,
        replaces: str = "",
        metadata: Mapping[str, str] | None = None,
        content_type: str = "",
    ) -> Writer:
        """Open an object as a file that publishes when it is closed successfully; no request yet.

        ``content_type`` defaults to that of the options. With ``create_only`` closing raises ``AlreadyExists`` if the
        object exists. With ``replaces`` (an ETag) it raises ``PreconditionFailed`` if that version is not there. Give
        only one of them. Stores without conditional writes (Ceph's multipart, OSS) are checked by a request beforehand:
        two writers within a moment may both succeed (docs/stores.md).
        """
        kind = content_type or self.options.write.content_type
        attributes = Attributes(kind, metadata or {}, create_only, replaces)
        return Writer(self._fetcher(), key, self.options.write, attributes)

    def unfinished(self, prefix: str) -> Iterator[Upload]:
        return follow_items("uploads", self.url, prefix, uploads(self._fetcher, prefix, self.url))

    def abort(self, upload: Upload) -> None:
        fetcher = self._fetcher()
        fetcher.run(partial(require(fetcher.driver, Multipart, upload.key).abort, upload.key, upload.id))

    def put(
        self,
        key: str,
        data: bytes | bytearray | memoryview,
        *,
        create_only: bool = False,
        replaces: str = "",
        metadata: Mapping[str, str] | None = None,
        content_type: str = "",
    ) -> str:
        """Write one object in one request, and return its ETag. ``content_type`` defaults to that of the options.

        A condition (``create_only``, or the ETag that it ``replaces``) is left to the store; ``publish`` checks it too.
        """
        kind = content_type or self.options.write.content_type
        return put(self._fetcher(), key, data, Attributes(kind, metadata or {}, create_only, replaces))

    def publish(self, key: str, data: bytes | bytearray | memoryview, *, replaces: str = "") -> ObjectMeta:
        """Write a new object in one PUT of any size (S3: up to 5 GiB), or replace the version ``replaces``.

        Costs three requests: a check before and one after, as in ``open_write``; returns the metadata of the last. If
        the store keeps neither metadata nor the write's ETag, the object is also read back, and its bytes show which
        writer wrote it. ``Conflict`` if another writer was first: see ``engine.write.publish``.
        """
        kind = self.options.write.content_type
        attributes = Attributes(kind, create_only=not replaces, replaces=replaces)
        return publish(self._fetcher(), key, data, attributes)

    def delete(self, keys: Sequence[str]) -> None:
        """Delete objects, one request each, up to 256 in flight; raise the first error. Missing objects are allowed."""
        if keys:
            fetcher = self._fetcher()
            verb = require(fetcher.driver, Delete, keys[0]).delete
            with operation("delete", self.url, ""):
                for deletion in each_key(fetcher, keys, verb):
                    deletion.result()

    def copy(self, key: str, to: str, known: ObjectMeta | None = None) -> None:
        """Copy within the bucket, server-side: the version of ``known``, or the current one (a HEAD).

        Costs one request; beyond 1 GiB one per 128 MiB and five more. Raise ``Changed`` if the object was replaced, if
        the store checks that (Ceph 16 does not, up to 1 GiB).
        """
        self.require(Copy, to)
        with operation("copy", self.url, to):
            copy(self._fetcher(), known or self.head(key), to, self.options.write)

    def close(self) -> None:
        """Close this source, and its engine's connections if no other source uses that engine.

        Operations in progress then end with ``Cancelled``; files and iterators of this source can no longer be used.
        Closing is optional: engines without a source are closed, except for the latest four.
        """
        self._closed, engine, self._engine, self._layered = True, self._engine, None, None
        if engine is not None and engine[0] == os.getpid():
            _engines.leave(engine[1], self)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def __reduce__(self) -> tuple[object, ...]:
        """Pickle as location and options (or a profile's name); raise ``Unusable`` for secrets, except to workers."""
        return restore_and_make, (list_restores(), Source, self._location(), self._given, self._layer)

    def _location(self) -> Location:
        return Location(self._store.scheme, self._store.bucket, "")

    def _fetcher(self) -> Fetcher:
        """Return this process's engine: the same one, until it breaks or is closed."""
        engine, pid = self._engine, os.getpid()
        if engine is None or engine[0] != pid or not engine[1].usable():
            if self._closed:
                raise Unusable("this source is closed: open a new one", url=self.root)
            engine = self._engine = pid, self._open()
        return engine[1]

    def _open(self) -> Fetcher:
        fetcher = _engines.find(self._store, self)
        if fetcher is None:
            environ = dict(os.environ)  # the engine keeps this identity
            # Credentials are resolved now, and not when this source was made.
            self._store = store = replace(self._store, identity=self._resolve(self.options, environ)[1])
            fetcher = _engines.open(store, self, lambda: _build(self._kind, store, environ))
        return fetcher


def open_source(url: str | os.PathLike[str], store: StoreOptions | str | None = None) -> tuple[Source, str]:
    location = parse(url)
    return Source(location, store), location.key


def object_at(url: str | os.PathLike[str], store: StoreOptions | str | None = None) -> tuple[Source, str]:
    """Return the source and key of one object's URL; raise ``InvalidURL`` if the URL names only a bucket."""
    return require_key(*open_source(url, store))


def require_key(source: Source, key: str) -> tuple[Source, str]:
    """Return both; raise ``InvalidURL`` for an empty key."""
    if not key:
        raise InvalidURL("this names a bucket, not an object in it", url=source.root)
    return source, key


def _take_options(location: Location, store: StoreOptions | str | None) -> StoreOptions:
    """Return options of the class of the location's store; a text names the profile that has them."""
    if isinstance(store, str):
        from penstock.stores.profiles.store import choose_options  # few programs have profiles

        store = choose_options(location, store)
    return location.store.take((location.store.defaults or StoreOptions()) if store is None else store)


def _is_store_changed(store: _EngineKey, options: StoreOptions, settings: Hashable, identity: Hashable) -> bool:
    """Return whether a store has other options, settings or identity; equal ones are often the same objects."""
    if store.options is options and store.settings is settings:
        return store.identity != identity
    return (store.options, store.settings, store.identity) != (options, settings, identity)


def _stat_where_possible(fetcher: Fetcher, keys: Sequence[str]) -> list[ObjectMeta | None]:
    """Return objects' metadata for a cache, None after any error: the read reports it, and other reads continue."""
    looks = each_key(fetcher, keys, fetcher.driver.head)
    return [looking.result() if looking.error is None else None for looking in looks]


def _build(kind: Store, store: _EngineKey, environ: Mapping[str, str]) -> Fetcher:
    opening = Opening(store.scheme, store.bucket, store.options, store.settings, environ)
    driver, transport = kind.begin(opening)
    fetcher = Fetcher(driver, transport, store.options.retry, store.options.read, kind.limits)
    return fetcher.share(repr((store.scheme, store.bucket, store.settings)), store.options.node)
