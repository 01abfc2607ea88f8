"""A store as obspec's protocols have it: paths below a URL, blocking and awaited."""

from __future__ import annotations

from collections.abc import AsyncIterable, Iterable
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from penstock.errors import AlreadyExists, InvalidURL, Truncated, Unusable
from penstock.interop import awaiting
from penstock.interop.obspec.errors import NotSupportedError, renamed
from penstock.interop.obspec.results import Result, bounds, check_conditions, described
from penstock.source import open_source
from penstock.values import Span, as_folder

if TYPE_CHECKING:
    import os
    from collections.abc import AsyncIterator, Iterator, Mapping, Sequence

    from obspec import GetOptions, ListResult, PutMode, PutResult
    from obspec import ObjectMeta as Described

    from penstock.options import StoreOptions
    from penstock.source import Writer
    from penstock.values import ObjectMeta, Page

__all__ = ["Store"]

_PIECE_BYTES = 8 << 20


class Store:
    """What lies below a URL, by obspec's methods; those whose names end in ``_async`` are awaited, on any event loop.

    Paths are relative to the URL and never begin with ``/``. Errors are Penstock's, under obspec's names.
    """

    def __init__(self, url: str | os.PathLike[str], store: StoreOptions | str | None = None) -> None:
        """Point at a bucket or a prefix; nothing is sent. ``store`` is options or a profile."""
        self._source, key = open_source(url, store)
        self._root = as_folder(key)

    @property
    def url(self) -> str:
        """What it was made with, ending in ``/``."""
        return self._source.url(self._root)

    # -- looking and reading ---------------------------------------------------------------------------------------

    def head(self, path: str) -> Described:
        """Describe an object: one request."""
        with renamed():
            return described(self._source.head(self._key(path)), path)

    async def head_async(self, path: str) -> Described:
        """Describe an object: one request."""
        with renamed():
            return described(await awaiting.stat(self._source, self._key(path)), path)

    def get(self, path: str, *, options: GetOptions | None = None) -> Result:
        """Describe an object, one request, to be read when its bytes are asked for: of that version."""
        with renamed():
            return self._result(path, self._source.head(self._key(path)), options or {})

    async def get_async(self, path: str, *, options: GetOptions | None = None) -> Result:
        """Describe an object as ``get``."""
        with renamed():
            return self._result(path, await awaiting.stat(self._source, self._key(path)), options or {})

    def get_range(self, path: str, *, start: int, end: int | None = None, length: int | None = None) -> bytes:
        """Return a range, cut at the object's end: one request; a HEAD and another one where it ends beyond."""
        return self.get_ranges(path, starts=[start], ends=_one(end), lengths=_one(length))[0]

    async def get_range_async(
        self, path: str, *, start: int, end: int | None = None, length: int | None = None
    ) -> bytes:
        """Return a range as ``get_range``."""
        return (await self.get_ranges_async(path, starts=[start], ends=_one(end), lengths=_one(length)))[0]

    def get_ranges(
        self,
        path: str,
        *,
        starts: Sequence[int],
        ends: Sequence[int] | None = None,
        lengths: Sequence[int] | None = None,
    ) -> list[bytes]:
        """Return ranges, one request each, all at once; as ``get_range`` where one ends beyond the object's end."""
        with renamed():
            spans = _spans(self._key(path), starts, ends, lengths)
            try:
                return self._source.read_many(spans)
            except Truncated:
                meta = self._source.head(self._key(path))
                return self._source.read_many([_cut(span, meta) for span in spans])

    async def get_ranges_async(
        self,
        path: str,
        *,
        starts: Sequence[int],
        ends: Sequence[int] | None = None,
        lengths: Sequence[int] | None = None,
    ) -> list[bytes]:
        """Return ranges as ``get_ranges``."""
        with renamed():
            spans = _spans(self._key(path), starts, ends, lengths)
            try:
                return await awaiting.read_many(self._source, spans)
            except Truncated:
                meta = await awaiting.stat(self._source, self._key(path))
                return await awaiting.read_many(self._source, [_cut(span, meta) for span in spans])

    def list(self, prefix: str | None = None, *, offset: str | None = None) -> Iterator[Sequence[Described]]:
        """Yield what lies below ``prefix``, a path, a page of up to 1,000 at a time: one request each."""
        below, token = self._folder(prefix), ""
        after = self._key(offset) if offset else ""
        with renamed():
            while True:
                page = self._source.page(below, token=token, start_after="" if token else after)
                yield self._described(page)
                token = page.token
                if not token:
                    return

    async def list_async(
        self, prefix: str | None = None, *, offset: str | None = None
    ) -> AsyncIterator[Sequence[Described]]:
        """Yield what ``list`` does."""
        pages = self.list(prefix, offset=offset)
        while (page := await awaiting.call(next, pages, None)) is not None:
            yield page

    def list_with_delimiter(self, prefix: str | None = None) -> ListResult[Sequence[Described]]:
        """Return what lies right below ``prefix``: one request for each 1,000."""
        objects: list[Described] = []
        prefixes: list[str] = []
        with renamed():
            for page in self._source.pages(self._folder(prefix), delimiter="/"):
                objects += self._described(page)
                prefixes += [each[len(self._root) :].removesuffix("/") for each in page.prefixes]
        return {"common_prefixes": prefixes, "objects": objects}

    async def list_with_delimiter_async(self, prefix: str | None = None) -> ListResult[Sequence[Described]]:
        """Return what ``list_with_delimiter`` does."""
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
        **_: object,
    ) -> PutResult:
        """Write an object, atomically: a PUT and a HEAD, or an upload in parts, as the options of the store say.

        ``mode`` is ``overwrite``, ``create``, or the ``e_tag`` that is to be replaced. The store's options say what
        ``use_multipart``, ``chunk_size`` and ``max_concurrency`` would.
        """
        with renamed():
            with self._writer(path, attributes, tags, mode) as writer:
                for piece in _pieces(file):
                    writer.write(piece)
            return _result(writer)

    async def put_async(
        self,
        path: str,
        file: object,  # the same, or pieces that are awaited
        *,
        attributes: Mapping[str, str] | None = None,
        tags: Mapping[str, str] | None = None,
        mode: PutMode | None = None,
        **_: object,
    ) -> PutResult:
        """Write an object as ``put``; its pieces may be awaited, too."""
        if not isinstance(file, AsyncIterable):
            return await awaiting.call(partial(self.put, attributes=attributes, tags=tags, mode=mode), path, file)
        with renamed():
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
        """Delete objects, one request each, many at once; a missing one is no error."""
        with renamed():
            self._source.delete([self._key(path) for path in ([paths] if isinstance(paths, str) else paths)])

    async def delete_async(self, paths: str | Sequence[str]) -> None:
        """Delete objects as ``delete``."""
        await awaiting.call(self.delete, paths)

    def copy(self, from_: str, to: str, *, overwrite: bool = True) -> None:
        """Copy an object on the server's side. Without ``overwrite`` a HEAD before it looks whether there is one."""
        with renamed():
            target = self._key(to)
            if not overwrite and self._source.stat_existing([target])[0] is not None:
                raise AlreadyExists("there is one already", url=self._source.url(target))
            self._source.copy(self._key(from_), target)

    async def copy_async(self, from_: str, to: str, *, overwrite: bool = True) -> None:
        """Copy an object as ``copy``."""
        await awaiting.call(partial(self.copy, overwrite=overwrite), from_, to)

    def rename(self, from_: str, to: str, *, overwrite: bool = True) -> None:
        """Copy an object, and delete it then: not atomic."""
        self.copy(from_, to, overwrite=overwrite)
        self.delete(from_)

    async def rename_async(self, from_: str, to: str, *, overwrite: bool = True) -> None:
        """Rename an object as ``rename``."""
        await awaiting.call(partial(self.rename, overwrite=overwrite), from_, to)

    # -- inside ----------------------------------------------------------------------------------------------------

    def _key(self, path: str) -> str:
        if not path or path.startswith("/"):
            raise InvalidURL(f"{path!r} is no path below this: it is empty, or begins with '/'", url=self.url)
        return self._root + path

    def _folder(self, prefix: str | None) -> str:
        return as_folder(self._key(prefix)) if prefix else self._root

    def _described(self, page: Page) -> Sequence[Described]:
        return [described(each, each.key[len(self._root) :]) for each in page.entries]

    def _result(self, path: str, meta: ObjectMeta, options: Mapping[str, Any]) -> Result:
        check_conditions(options, meta, self._source.url(meta.key))
        span = (0, 0) if options.get("head") else bounds(options.get("range"), meta.size)
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
                raise NotSupportedError("mode= names no e_tag, and versions cannot be named", url=self.url)
        elif mode not in (None, "overwrite", "create"):
            raise Unusable(f"mode={mode!r}: 'create', 'overwrite' or {{'e_tag': …}}")
        return self._source.open_write(
            self._key(path), create_only=mode == "create", replaces=replaces, metadata=metadata, content_type=kind
        )


def _result(writer: Writer) -> PutResult:
    return {"e_tag": writer.etag or None, "version": None}


def _one(value: int | None) -> list[int] | None:
    return None if value is None else [value]


def _spans(key: str, starts: Sequence[int], ends: Sequence[int] | None, lengths: Sequence[int] | None) -> list[Span]:
    if (ends is None) == (lengths is None):
        raise Unusable("a range has an end or a length: one of them, and not both")
    stops = ends if ends is not None else [start + length for start, length in zip(starts, lengths or (), strict=False)]
    if len(stops) != len(starts):
        raise Unusable(f"{len(starts)} ranges begin, and {len(stops)} end")
    for start, stop in zip(starts, stops, strict=True):
        if not 0 <= start < stop:
            raise Unusable(f"the range [{start}, {stop}) holds no byte")
    return [Span(key, start, stop) for start, stop in zip(starts, stops, strict=True)]


def _cut(span: Span, meta: ObjectMeta) -> Span:
    start, stop = bounds((span.start, span.stop), meta.size)
    return Span(span.key, start, stop, meta.etag)


def _pieces(file: Any) -> Iterator[Any]:  # noqa: ANN401  whatever obspec takes
    if isinstance(file, Path):
        with file.open("rb") as opened:
            yield from iter(partial(opened.read, _PIECE_BYTES), b"")
    elif hasattr(file, "read"):
        yield from iter(partial(file.read, _PIECE_BYTES), b"")
    elif isinstance(file, Iterable) and not isinstance(file, bytes | bytearray | memoryview) and not _plain(file):
        yield from file
    else:
        yield file


def _plain(file: object) -> bool:
    """Say whether it has memory of its own: numpy's arrays can be iterated over, too."""
    try:
        memoryview(file)  # type: ignore[arg-type]
    except TypeError:
        return False
    return True
