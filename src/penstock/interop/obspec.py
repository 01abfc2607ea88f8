"""Penstock's stores for libraries that use obspec's protocols: ``Store(url)`` has all, blocking and asynchronous.

Limits compared with Penstock's own calls: an object's version (``version=``) and tags are not supported. Unchanged:
errors are Penstock's, under the names that obspec knows; a result is read from one version, and writes are atomic.
"""

from __future__ import annotations

from collections.abc import AsyncIterable, Iterable
from contextlib import contextmanager
from datetime import UTC, datetime
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from penstock.copies import move_object
from penstock.errors import (
    AlreadyExists,
    Changed,
    Forbidden,
    InvalidURL,
    NotFound,
    PenstockError,
    PreconditionFailed,
    Truncated,
    Unauthenticated,
    Unsupported,
    Unusable,
)
from penstock.interop import awaiting
from penstock.interop.awaiting import read
from penstock.source import open_source
from penstock.values import Span, as_folder, span_in, switch

if TYPE_CHECKING:
    import os
    from collections.abc import AsyncIterator, Iterator, Mapping, Sequence

    from obspec import GetOptions, ListResult, PutMode, PutResult
    from obspec import ObjectMeta as Described

    from penstock.options import StoreOptions
    from penstock.source import Source, Writer
    from penstock.values import ObjectMeta, Page


__all__ = ["Store"]

_PIECE_BYTES = 8 << 20
_PART_BYTES, _PARTS = 5 << 20, 12  # obspec's defaults, which have no effect


class Store:
    """The objects below a URL, with obspec's methods; those named ``…_async`` may be awaited on any event loop.

    Paths are relative to the URL and never begin with ``/``. Errors are Penstock's, under obspec's names.

    Args:
        url: A bucket or a prefix; opening it makes no request.
        store: Options, or the name of a profile; default: environment and profile.

    Example:
        >>> from penstock.interop.obspec import Store
        >>> store = Store("s3://bucket/train/3/")
        >>> store.get_range("0000.png", start=1, end=4)
        b'PNG'
    """

    def __init__(self, url: str | os.PathLike[str], store: StoreOptions | str | None = None) -> None:
        self._source, key = open_source(url, store)
        self._root = as_folder(key)

    @property
    def url(self) -> str:
        """The URL of the bucket or prefix, with a trailing ``/``."""
        return self._source.url(self._root)

    # -- metadata and reads ----------------------------------------------------------------------------------------

    def head(self, path: str) -> Described:
        """Return an object's metadata: one request.

        Args:
            path: The object.
        """
        with rename_errors():
            return describe_object(self._source.head(self._key(path)), path)

    async def head_async(self, path: str) -> Described:
        """Return an object's metadata: one request."""
        with rename_errors():
            return describe_object(await awaiting.stat(self._source, self._key(path)), path)

    def get(self, path: str, *, options: GetOptions | None = None) -> Result:
        """Return an object's metadata, one request; the result reads the bytes of this version on demand.

        Args:
            path: The object.
            options: Conditions (``if_match``, …), a ``range``, or ``head``, as in obspec.
        """
        with rename_errors():
            return self._result(path, self._source.head(self._key(path)), options or {})

    async def get_async(self, path: str, *, options: GetOptions | None = None) -> Result:
        """Return the same as ``get``."""
        with rename_errors():
            return self._result(path, await awaiting.stat(self._source, self._key(path)), options or {})

    def get_range(self, path: str, *, start: int, end: int | None = None, length: int | None = None) -> bytes:
        """Return a range, cut at the object's end: one request; if it ends beyond, also a HEAD and a second read.

        Args:
            path: The object.
            start: First byte.
            end: End, exclusive; or give ``length``.
            length: Number of bytes.
        """
        return self.get_ranges(path, starts=[start], ends=_one(end), lengths=_one(length))[0]

    async def get_range_async(
        self, path: str, *, start: int, end: int | None = None, length: int | None = None
    ) -> bytes:
        """Return the same as ``get_range``."""
        return (await self.get_ranges_async(path, starts=[start], ends=_one(end), lengths=_one(length)))[0]

    def get_ranges(
        self,
        path: str,
        *,
        starts: Sequence[int],
        ends: Sequence[int] | None = None,
        lengths: Sequence[int] | None = None,
    ) -> list[bytes]:
        """Return ranges, cut at the object's end: one request each, in parallel.

        If a range ends beyond the object, a HEAD follows and all ranges are read again.

        Args:
            path: The object.
            starts: First bytes.
            ends: Ends, exclusive; or give ``lengths``.
            lengths: Numbers of bytes.
        """
        with rename_errors():
            spans = _spans(self._key(path), starts, ends, lengths)
            try:
                return self._source.read_many(spans)
            except Truncated:
                meta = self._source.head(self._key(path))
                return self._source.read_many([_resolve_span(span, meta) for span in spans])

    async def get_ranges_async(
        self,
        path: str,
        *,
        starts: Sequence[int],
        ends: Sequence[int] | None = None,
        lengths: Sequence[int] | None = None,
    ) -> list[bytes]:
        """Return the same as ``get_ranges``."""
        with rename_errors():
            spans = _spans(self._key(path), starts, ends, lengths)
            try:
                return await awaiting.read_many(self._source, spans)
            except Truncated:
                meta = await awaiting.stat(self._source, self._key(path))
                return await awaiting.read_many(self._source, [_resolve_span(span, meta) for span in spans])

    def list(self, prefix: str | None = None, *, offset: str | None = None) -> Iterator[Sequence[Described]]:
        """Yield pages of up to 1,000 objects: one request each.

        Args:
            prefix: Path of a folder; default: all objects.
            offset: List only paths that sort after this one.
        """
        after = self._key(offset) if offset else ""
        with rename_errors():
            for page in self._source.pages(self._folder(prefix), start_after=after):
                yield self._described(page)

    async def list_async(
        self, prefix: str | None = None, *, offset: str | None = None
    ) -> AsyncIterator[Sequence[Described]]:
        """Yield the same pages as ``list``."""
        pages = self.list(prefix, offset=offset)
        while (page := await awaiting.call(next, pages, None)) is not None:
            yield page

    def list_with_delimiter(self, prefix: str | None = None) -> ListResult[Sequence[Described]]:
        """Return the objects and prefixes directly below a folder: one request per 1,000.

        Args:
            prefix: Path of the folder; default: the store's URL.
        """
        objects: list[Described] = []
        prefixes: list[str] = []
        with rename_errors():
            for page in self._source.pages(self._folder(prefix), delimiter="/"):
                objects += self._described(page)
                prefixes += [each[len(self._root) :].removesuffix("/") for each in page.prefixes]
        return {"common_prefixes": prefixes, "objects": objects}

    async def list_with_delimiter_async(self, prefix: str | None = None) -> ListResult[Sequence[Described]]:
        """Return the same as ``list_with_delimiter``."""
        return await awaiting.call(self.list_with_delimiter, prefix)

    # -- changes ---------------------------------------------------------------------------------------------------

    def put(
        self,
        path: str,
        file: object,  # a file, a local path, a buffer, or pieces
        *,
        attributes: Mapping[str, str] | None = None,
        tags: Mapping[str, str] | None = None,
        mode: PutMode | None = None,
        use_multipart: bool | None = None,
        chunk_size: int = _PART_BYTES,
        max_concurrency: int = _PARTS,
    ) -> PutResult:
        """Write an object, atomically: a PUT and a HEAD, or a multipart upload, depending on the store's options.

        Args:
            path: The object.
            file: A file, a local path, a buffer, or an iterable of pieces.
            attributes: ``Content-Type``, and user metadata by name.
            tags: Not supported.
            mode: ``overwrite`` (default), ``create``, or a mapping with the ``e_tag`` to replace.
            use_multipart: No effect: the store's options decide.
            chunk_size: No effect.
            max_concurrency: No effect.

        Returns:
            The ETag as ``e_tag``; ``version`` is None.

        Raises:
            NotSupportedError: Tags, or attributes that cannot be written.
        """
        with rename_errors():
            with self._writer(path, attributes, tags, mode) as writer:
                for piece in _iterate_input(file):
                    writer.write(piece)
            return _result(writer)

    async def put_async(
        self,
        path: str,
        file: object,  # the same, or an asynchronous iterable of pieces
        *,
        attributes: Mapping[str, str] | None = None,
        tags: Mapping[str, str] | None = None,
        mode: PutMode | None = None,
        use_multipart: bool | None = None,
        chunk_size: int = _PART_BYTES,
        max_concurrency: int = _PARTS,
    ) -> PutResult:
        """Return the same as ``put``; ``file`` may also be an asynchronous iterable of pieces."""
        if not isinstance(file, AsyncIterable):
            return await awaiting.call(partial(self.put, attributes=attributes, tags=tags, mode=mode), path, file)
        with rename_errors():
            writer = await awaiting.call(self._writer, path, attributes, tags, mode)
            try:
                async for piece in file:
                    await awaiting.call(writer.write, piece)
            except BaseException:
                await awaiting.call(writer.abort)
                raise
            await awaiting.call(writer.close)
            return _result(writer)

    def delete(self, paths: str | Sequence[str]) -> None:
        """Delete objects, one request each, in parallel; a missing object is not an error.

        Args:
            paths: An object, or several.
        """
        with rename_errors():
            self._source.delete([self._key(path) for path in ([paths] if isinstance(paths, str) else paths)])

    async def delete_async(self, paths: str | Sequence[str]) -> None:
        """Delete objects as ``delete`` does."""
        await awaiting.call(self.delete, paths)

    def copy(self, from_: str, to: str, *, overwrite: bool = True) -> None:
        """Copy an object server-side.

        Args:
            from_: The object.
            to: Its copy.
            overwrite: Replace an object at ``to``; False first checks with a HEAD that it does not exist.
        """
        with rename_errors():
            target = self._key(to)
            self._check_new(target, overwrite=overwrite)
            self._source.copy(self._key(from_), target)

    async def copy_async(self, from_: str, to: str, *, overwrite: bool = True) -> None:
        """Copy an object as ``copy`` does."""
        await awaiting.call(partial(self.copy, overwrite=overwrite), from_, to)

    def rename(self, from_: str, to: str, *, overwrite: bool = True) -> None:
        """Copy an object, then delete the source; not atomic.

        Args:
            from_: The object.
            to: Its new path.
            overwrite: As for ``copy``.

        Raises:
            InvalidURL: The names are equal; nothing was done.
        """
        with rename_errors():
            key, target = self._key(from_), self._key(to)
            self._check_new(target, overwrite=overwrite)
            move_object(self._source, key, self._source, target)

    async def rename_async(self, from_: str, to: str, *, overwrite: bool = True) -> None:
        """Rename an object as ``rename`` does."""
        await awaiting.call(partial(self.rename, overwrite=overwrite), from_, to)

    # -- helpers ---------------------------------------------------------------------------------------------------

    def _check_new(self, target: str, *, overwrite: bool) -> None:
        if not switch(overwrite, "overwrite") and self._source.stat_existing([target])[0] is not None:
            raise AlreadyExists("the object exists already", url=self._source.url(target))

    def _key(self, path: str) -> str:
        if not path or path.startswith("/"):
            raise InvalidURL(f"path must not be empty or begin with '/', got {path!r}", url=self.url)
        return self._root + path

    def _folder(self, prefix: str | None) -> str:
        return as_folder(self._key(prefix)) if prefix else self._root

    def _described(self, page: Page) -> Sequence[Described]:
        return [describe_object(each, each.key[len(self._root) :]) for each in page.entries]

    def _result(self, path: str, meta: ObjectMeta, options: Mapping[str, Any]) -> Result:
        check_conditions(options, meta, self._source.url(meta.key))
        span = (0, 0) if options.get("head") else resolve_range(options.get("range"), meta.size)
        return Result(self._source, meta, path, span)

    def _writer(
        self, path: str, attributes: Mapping[str, str] | None, tags: Mapping[str, str] | None, mode: PutMode | None
    ) -> Writer:
        if tags:
            raise NotSupportedError("tags of objects cannot be written", url=self.url)
        metadata = dict(attributes or {})
        kind = metadata.pop("Content-Type", "")
        lost = {"Content-Disposition", "Content-Encoding", "Content-Language", "Cache-Control"} & {*metadata}
        if lost:
            raise NotSupportedError(f"attributes cannot be written: {', '.join(sorted(lost))}", url=self.url)
        replaces = ""
        if isinstance(mode, dict):
            replaces = str(mode.get("e_tag") or "")
            if not replaces:
                raise NotSupportedError("mode= must have an e_tag; versions are not supported", url=self.url)
        elif mode not in (None, "overwrite", "create"):
            raise Unusable(f"mode must be 'create', 'overwrite' or {{'e_tag': …}}, got {mode!r}")
        return self._source.open_write(
            self._key(path), create_only=mode == "create", replaces=replaces, metadata=metadata, content_type=kind
        )


def _result(writer: Writer) -> PutResult:
    return {"e_tag": writer.etag or None, "version": None}


def _one(value: int | None) -> list[int] | None:
    return None if value is None else [value]


def _spans(key: str, starts: Sequence[int], ends: Sequence[int] | None, lengths: Sequence[int] | None) -> list[Span]:
    if (ends is None) == (lengths is None):
        raise Unusable("a range must have either an end or a length, not both")
    stops = ends if ends is not None else [start + length for start, length in zip(starts, lengths or (), strict=False)]
    if len(stops) != len(starts):
        raise Unusable(f"starts and ends must have the same length, got {len(starts)} and {len(stops)}")
    for start, stop in zip(starts, stops, strict=True):
        if not 0 <= start < stop:
            raise Unusable(f"the range [{start}, {stop}) holds no byte")
    return [Span(key, start, stop) for start, stop in zip(starts, stops, strict=True)]


def _resolve_span(span: Span, meta: ObjectMeta) -> Span:
    start, stop = resolve_range((span.start, span.stop), meta.size)
    return Span(span.key, start, stop, meta.etag)


def _iterate_input(file: Any) -> Iterator[Any]:
    if isinstance(file, Path):
        with file.open("rb") as opened:
            yield from iter(partial(opened.read, _PIECE_BYTES), b"")
    elif hasattr(file, "read"):
        yield from iter(partial(file.read, _PIECE_BYTES), b"")
    elif isinstance(file, Iterable) and not isinstance(file, bytes | bytearray | memoryview) and not _is_buffer(file):
        yield from file
    else:
        yield file


def _is_buffer(file: object) -> bool:
    """Return whether ``file`` is a buffer; numpy's arrays are buffers and iterable."""
    try:
        memoryview(file)  # type: ignore[arg-type]
    except TypeError:
        return False
    return True


class Result:
    """An object, or a range of it, in the version that existed at the call of ``get``.

    Attributes:
        meta: Metadata of the object.
        attributes: ``Content-Type``, and user metadata by name.
        range: The position of the first byte, and the position after the last byte.
    """

    def __init__(self, source: Source, meta: ObjectMeta, path: str, span: tuple[int, int]) -> None:
        self._source = source
        self._meta = meta
        self.range = span
        self.meta: Described = describe_object(meta, path)
        self.attributes: dict[str, str] = {"Content-Type": meta.content_type} if meta.content_type else {}
        self.attributes |= meta.metadata

    def buffer(self) -> bytes:
        """Return all bytes: one GET, or one per 16 MiB, in parallel."""
        start, stop = self.range
        with rename_errors():
            return self._source.read(span_in(self._meta, start, stop)) if start < stop else b""

    async def buffer_async(self) -> bytes:
        start, stop = self.range
        with rename_errors():
            return await read(self._source, span_in(self._meta, start, stop)) if start < stop else b""

    def __iter__(self) -> Iterator[bytes]:
        """Yield the bytes in pieces of 8 MiB, read ahead."""
        with rename_errors(), self._source.lookahead(self._parts()) as pieces:
            yield from pieces

    async def __aiter__(self) -> AsyncIterator[bytes]:
        """Yield the bytes in pieces of 8 MiB, one request each, one after another."""
        for part in self._parts():
            with rename_errors():
                yield await read(self._source, part)

    def _parts(self) -> Iterator[Span]:
        start, stop = self.range
        return (span_in(self._meta, at, min(at + _PIECE_BYTES, stop)) for at in range(start, stop, _PIECE_BYTES))


def describe_object(meta: ObjectMeta, path: str) -> Described:
    """Return the metadata in obspec's format; ``last_modified`` is the epoch (1970) if the store does not report it."""
    written = datetime.fromtimestamp(meta.modified or 0.0, UTC)
    return {"path": path, "last_modified": written, "size": meta.size, "e_tag": meta.etag or None, "version": None}


def resolve_range(wanted: Any, size: int) -> tuple[int, int]:
    """Return the bounds ``[start, stop)`` of a range in an object of ``size`` bytes."""
    match wanted:
        case None:
            return 0, size
        case {"offset": int(start)}:
            stop = size
        case {"suffix": int(count)}:
            start, stop = max(0, size - count), size
        case (int(start), int(stop)):
            stop = min(stop, size)
        case _:
            raise Unusable(f"range must be (start, stop), {{'offset': n}} or {{'suffix': n}}, got {wanted!r}")
    if not 0 <= start < stop:
        raise Unusable(f"the range {wanted!r} holds no byte of {size}")
    return start, stop


_OPTIONS = frozenset(
    ("head", "if_match", "if_modified_since", "if_none_match", "if_unmodified_since", "range", "version")
)


def check_conditions(options: Mapping[str, Any], meta: ObjectMeta, url: str) -> None:
    """Check obspec's options; raise ``PreconditionError``, ``NotModifiedError`` or ``NotSupportedError``."""
    if unknown := options.keys() - _OPTIONS:
        raise NotSupportedError(f"get has no option {', '.join(sorted(unknown))}", url=url)
    if options.get("version") is not None:
        raise NotSupportedError("versions of objects are not supported", url=url)
    if not _fits(options.get("if_match"), meta.etag, default=True):
        raise PreconditionError("the ETag of the object does not match if_match", url=url)
    if _fits(options.get("if_none_match"), meta.etag, default=False):
        raise NotModifiedError("the ETag of the object matches if_none_match", url=url)
    since, until = options.get("if_modified_since"), options.get("if_unmodified_since")
    if since is None and until is None:
        return
    if meta.modified is None:
        raise NotSupportedError("the store does not report modification times: use if_match", url=url)
    if until is not None and meta.modified > until.timestamp():
        raise PreconditionError("the object was modified after if_unmodified_since", url=url)
    if since is not None and meta.modified <= since.timestamp():
        raise NotModifiedError("the object was not modified after if_modified_since", url=url)


def _fits(condition: str | None, etag: str, *, default: bool) -> bool:
    if condition is None:
        return default
    return condition.strip() == "*" or etag in [each.strip().strip('"') for each in condition.split(",")]


class NotFoundError(NotFound):
    """A missing object or bucket."""


class InvalidPathError(InvalidURL):
    """A path that no object can have."""


class NotSupportedError(Unsupported):
    """An operation that the store or Penstock does not support."""


class AlreadyExistsError(AlreadyExists):
    """An object that exists already."""


class PreconditionError(PreconditionFailed):
    """An object that does not match the requested version or condition."""


class NotModifiedError(PenstockError):
    """An object that has not changed since the known version."""


class PermissionDeniedError(Forbidden):
    """An operation that the credentials do not permit."""


class UnauthenticatedError(Unauthenticated):
    """Missing, unknown or expired credentials."""


_KINDS: tuple[type[PenstockError], ...] = (
    *(NotFoundError, InvalidPathError, NotSupportedError, AlreadyExistsError),
    *(PreconditionError, PermissionDeniedError, UnauthenticatedError),
)
# Penstock's class -> obspec's, which is a subclass.
_NAMES = {each.__bases__[0]: each for each in _KINDS} | {Changed: PreconditionError}


def convert_error(error: PenstockError) -> PenstockError:
    """Return an error under the class name that obspec knows, or the error itself if obspec does not know it."""
    kind = next((kind for each, kind in _NAMES.items() if isinstance(error, each)), None)
    if kind is None or isinstance(error, kind):
        return error
    other = kind(error.message, url=error.url, attempts=error.attempts, elapsed_s=error.elapsed_s)
    other.code, other.retry_after_s = error.code, error.retry_after_s
    return other


@contextmanager
def rename_errors() -> Iterator[None]:
    try:
        yield
    except PenstockError as error:
        known = convert_error(error)
        if known is error:
            raise
        raise known from error
