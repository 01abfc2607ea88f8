"""The waist: a bucket and the engines behind it. The only file that joins drivers, transport and fetch."""

from __future__ import annotations

import os
from dataclasses import dataclass, replace
from functools import partial
from typing import TYPE_CHECKING, TypeVar

from penstock.budget import Budget
from penstock.config.endpoint import path_style
from penstock.config.resolve import StoreSettings, resolve
from penstock.config.urls import Location, parse
from penstock.drivers.credentials import Held, source
from penstock.drivers.local import Local
from penstock.drivers.memory import Memory
from penstock.drivers.s3 import S3, Bucket
from penstock.errors import NotFound, UnknownScheme
from penstock.events import Listed, emit, listening
from penstock.fetch.copy import copy
from penstock.fetch.fetcher import Fetcher
from penstock.fetch.lookahead import Lookahead
from penstock.fetch.publish import publish
from penstock.fetch.reader import Reader
from penstock.fetch.scatter import scatter
from penstock.fetch.upload import Writer, put
from penstock.options import StoreOptions
from penstock.protocols.driver import Attributes
from penstock.target import Target
from penstock.transport.loop import connect
from penstock.transport.work import Threads

if TYPE_CHECKING:
    from collections.abc import Callable, Generator, Iterable, Iterator, Mapping, Sequence
    from concurrent.futures import Future

    from penstock.protocols.driver import Driver
    from penstock.protocols.exchange import Exchange, Transport
    from penstock.values import ObjectMeta, Page, Span, Upload, Uploads

__all__ = ["Reader", "Source", "Writer", "open_source"]

T = TypeVar("T")

_AT_ONCE = 256  # looks or deletions in flight


@dataclass(frozen=True, slots=True)
class _Store:
    """What tells one engine from another."""

    scheme: str
    bucket: str
    options: StoreOptions
    settings: StoreSettings | None


_engines: dict[_Store, Fetcher] = {}
os.register_at_fork(after_in_child=_engines.clear)  # threads and connections stay behind with the parent


class Source:
    """One bucket (or memory set, or file system), by full keys. Thread-safe, fork-safe, picklable; opened lazily.

    Every process has engines of its own, shared by all sources of the same store. Every method may raise any
    ``PenstockError``; ``Transient`` ones only after the retry budget is spent.
    """

    def __init__(self, location: Location, options: StoreOptions) -> None:
        """Point at the bucket of ``location``; nothing is sent. ``ConfigError`` for settings that cannot work."""
        settings = resolve(options) if location.scheme == "s3" else None
        self._store = _Store(location.scheme, location.bucket, options, settings)
        self.options = options

    @property
    def root(self) -> str:
        """The bucket's URL, ending in ``/``."""
        return f"{self._store.scheme}://{self._store.bucket}/"

    def url(self, key: str) -> str:
        """Return an object's URL."""
        return self.root + key

    def head(self, key: str) -> ObjectMeta:
        """Describe one object: one request."""
        fetcher = self._fetcher()
        return fetcher.run(lambda: fetcher.driver.head(key))

    def heads(self, keys: Sequence[str]) -> list[ObjectMeta]:
        """Describe objects, in order: one request each, up to 256 in flight; raises the first refusal, in order."""
        return [looking.result() for looking in self._each(keys, self._fetcher().driver.head)]

    def known(self, keys: Sequence[str]) -> list[ObjectMeta | None]:
        """Describe objects as ``heads`` does; None stands for each that is not there."""
        return [_unless_missing(looking) for looking in self._each(keys, self._fetcher().driver.head)]

    def page(self, prefix: str, *, token: str = "", start_after: str = "", delimiter: str = "") -> Page:
        """List one page of up to 1,000 keys in UTF-8 byte order: one request."""
        fetcher = self._fetcher()
        page = fetcher.run(
            lambda: fetcher.driver.list(prefix, token=token, start_after=start_after, delimiter=delimiter)
        )
        if listening():
            emit(Listed(self.url(prefix), len(page.entries)))
        return page

    def pages(self, prefix: str, *, delimiter: str = "") -> Iterator[Page]:
        """List all pages, one request each, one after another."""
        page = self.page(prefix, delimiter=delimiter)
        yield page
        while page.token:
            page = self.page(prefix, token=page.token, delimiter=delimiter)
            yield page

    def read(self, span: Span) -> bytes:
        """Read one span, verified: one request, or one for every 16 MiB of it, in parallel."""
        return self.read_many((span,))[0]

    def read_many(self, spans: Iterable[Span]) -> list[bytes]:
        """Read spans all at once; their bytes in order. The first error, in order, is raised."""
        return self._fetcher().read_many(spans)

    def read_into(self, span: Span, buffer: object) -> None:
        """Fill a writable buffer with the span, in parallel ranges and without a copy.

        On any way out, Ctrl-C included, nothing writes into the buffer any more.
        """
        self._fetcher().read_into(span, Target.borrow(buffer))

    def scatter(self, places: Iterable[tuple[Span, object]], window_bytes: int) -> Generator[Span]:
        """Fill writable buffers with spans of their sizes, one request each; yield the spans in order, once full.

        ``places`` is drawn from lazily, at most ``window_bytes`` (and a place) ahead of what was yielded. Close the
        iterator, or let it end: on any way out, Ctrl-C included, nothing writes into any buffer any more.
        """
        targets = ((span, Target.borrow(buffer)) for span, buffer in places)
        return scatter(self._fetcher(), targets, window_bytes)

    def lookahead(self, spans: Iterator[Span], workers: int = 1) -> Lookahead:
        """Return an iterator over the spans' bytes, in order, that reads ahead within this process's budget.

        The budget is ``options.read``'s, shared equally when ``workers`` processes read side by side.
        """
        ahead = self.options.read
        return Lookahead(self._fetcher(), spans, Budget(ahead.ahead_bytes, ahead.ahead_items).share(workers))

    def open_read(self, key: str, meta: ObjectMeta | None = None) -> Reader:
        """Open an object as a seekable file, held to the version that ``meta`` describes, or to its present: a HEAD."""
        return Reader(self._fetcher, meta or self.head(key))

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

        ``content_type`` is by default the options'.

        ``create_only`` raises ``AlreadyExists`` then, where there is one already; ``replaces`` (an ETag)
        ``PreconditionFailed``, where that version is not there. Not both. On stores without conditional writes (Ceph's
        multipart, OSS) that is a look beforehand: two writers within a moment may both win (docs/stores.md).
        """
        kind = content_type or self.options.write.content_type
        attributes = Attributes(kind, metadata or {}, create_only, replaces)
        return Writer(self._fetcher(), key, self.options.write, attributes)

    def unfinished(self, prefix: str) -> Iterator[Upload]:
        """Yield uploads to keys that begin with ``prefix``, neither completed nor aborted; one request a page."""
        fetcher, token = self._fetcher(), ""
        while True:
            page = fetcher.run(_listing(fetcher, prefix, token))
            yield from page.entries
            token = page.token
            if not token:
                return

    def abort(self, upload: Upload) -> None:
        """Free what the store holds of an unfinished upload: one request. Whoever still writes it will fail."""
        fetcher = self._fetcher()
        fetcher.run(lambda: fetcher.driver.abort(upload.key, upload.id))

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

        Three requests: a look before and one after, as ``open_write`` has them. Returns what the last one saw.

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
        for deletion in self._each(keys, self._fetcher().driver.delete):
            deletion.result()

    def copy(self, key: str, to: str, known: ObjectMeta | None = None) -> None:
        """Copy within the bucket, server side: the version that ``known`` describes, or the present one (a HEAD).

        One request; beyond 1 GiB one for each 128 MiB and five more. ``Changed`` where it is another version by now, if
        the store heeds that (Ceph 16 does not, up to 1 GiB).
        """
        copy(self._fetcher(), known or self.head(key), to, self.options.write)

    def __reduce__(self) -> tuple[object, ...]:
        """Pickle as location and options: secrets travel only if they were passed as options."""
        return Source, (Location(self._store.scheme, self._store.bucket, ""), self.options)

    def _each(self, keys: Sequence[str], verb: Callable[[str], Exchange[T]]) -> Iterator[Future[T]]:
        """Carry a verb of this process's driver out for each key, side by side; futures in their order."""
        fetcher = self._fetcher()
        for at in range(0, len(keys), _AT_ONCE):
            for operation in [fetcher.start(partial(verb, key)) for key in keys[at : at + _AT_ONCE]]:
                yield operation.future

    def _fetcher(self) -> Fetcher:
        fetcher = _engines.get(self._store)
        if fetcher is None:
            fetcher = _engines.setdefault(self._store, _build(self._store))
        return fetcher


def open_source(url: str | os.PathLike[str], store: StoreOptions | None = None) -> tuple[Source, str]:
    """Return the source a URL points into and the key or prefix it names there. No request is made.

    Raises:
        InvalidURL: The URL cannot be parsed.
        UnknownScheme: No driver for its scheme.
        ConfigError: An option or environment variable that cannot work.

    """
    location = parse(url)
    return Source(location, store or StoreOptions()), location.key


def _listing(fetcher: Fetcher, prefix: str, token: str) -> Callable[[], Exchange[Uploads]]:
    return lambda: fetcher.driver.uploads(prefix, token=token)


def _unless_missing(looking: Future[ObjectMeta]) -> ObjectMeta | None:
    error = looking.exception()  # raised, it would keep alive whatever its callers hold: see Fetcher.run
    return None if isinstance(error, NotFound) else looking.result()


def _build(store: _Store) -> Fetcher:
    """Open a driver and the transport it needs."""
    options = store.options
    driver: Driver
    transport: Transport
    if store.settings is not None:
        driver, transport = _s3(store.bucket, options, store.settings)
    elif store.scheme == "file":
        driver, transport = Local(), Threads()
    elif store.scheme == "memory":
        driver, transport = Memory(store.bucket), Threads(2)
    else:
        raise UnknownScheme(f"no driver for {store.scheme}://")
    return Fetcher(driver, transport, options.retry, options.read)


def _s3(bucket: str, options: StoreOptions, settings: StoreSettings) -> tuple[S3, Transport]:
    virtual = not path_style(bucket, settings.addressing, settings.endpoint)
    driver = S3(Bucket(bucket, settings.endpoint, virtual), settings.region, Held(source(options)))
    return driver, connect(replace(options.transport, ca_file=settings.ca_file, proxy=settings.proxy))
