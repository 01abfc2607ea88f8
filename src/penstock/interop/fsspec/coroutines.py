"""The file system's coroutines, its names and entries, and the cache of listings.

A name omits the file system's own scheme, and no other. Listings are cached only with ``use_listings_cache=True``.
The functions at the end are blocking: they return files, directories and listings as fsspec's entries.
"""

from __future__ import annotations

import asyncio
import io
import re
from contextlib import suppress
from dataclasses import replace
from datetime import UTC, datetime
from itertools import count
from pathlib import Path
from typing import TYPE_CHECKING, Any, Self
from weakref import ref

from fsspec.asyn import AsyncFileSystem
from fsspec.callbacks import DEFAULT_CALLBACK
from fsspec.utils import isfilelike

from penstock.engine.blocks import compute_seek
from penstock.engine.contracts.driver import Delete
from penstock.errors import InvalidURL, NotFound, PenstockError, Unusable
from penstock.interop.awaiting import call, read_version, stat
from penstock.interop.fsspec import files
from penstock.interop.fsspec.files import GAP_BYTES, check_lists, read_slice, read_slices
from penstock.source import require_key
from penstock.stores.urls import check_deletable, parse
from penstock.values import UNKNOWN_SIZE, as_folder, span_in, whole

if TYPE_CHECKING:
    from collections.abc import Callable, Coroutine, Iterable, Sequence

    from fsspec.callbacks import Callback
    from fsspec.dircache import DirCache

    from penstock.interop.fsspec.files import TransactionFile
    from penstock.source import Source, Writer
    from penstock.values import ObjectMeta, Page

    Name = Callable[[str], str]  # URL -> fsspec's name
    Entry = dict[str, Any]


class Listings:
    """Results of ``ls``, by directory; dropped when they expire or when the same file system writes there."""

    def __init__(self, kept: DirCache | None) -> None:
        self._kept = kept
        self._since = object()  # changes with every write
        self._number = count()
        self._writers: dict[int, ref[Writer]] = {}

    def get(self, name: str) -> list[dict[str, Any]] | None:
        if self._kept is None:
            return None
        try:
            found: list[dict[str, Any]] = self._kept[name]
        except KeyError:
            return None
        return found

    def find(self, name: str) -> dict[str, Any] | None:
        """Return the entry of a file or directory from its parent's listing; None if it is not cached."""
        return next((each for each in self.get(parent(name)) or () if each["name"] == name), None)

    def since(self) -> object:
        """Return the argument of ``keep`` for a listing that begins now; None while open files may appear in it."""
        # Read before the writers are checked: opening a file first adds a writer, and then changes _since.
        since = self._since
        for number, writer in self._writers.copy().items():
            if (found := writer()) is None or found.closed:
                self._writers.pop(number, None)
        return None if self._writers else since

    def keep(self, name: str, found: list[dict[str, Any]], since: object) -> None:
        """Cache the entries of a directory, unless something was written since the listing began."""
        if self._kept is not None and since is not None:
            self._kept[name] = found
            # Checked after the listing is stored: a write only drops listings that are stored before it.
            if since is not self._since:
                self._kept.pop(name, None)

    def wait_for(self, writer: Writer) -> None:
        """Cache no listing until a file is closed, because it appears then."""
        if self._kept is not None:
            self._writers[next(self._number)] = ref(writer)

    def forget(self, name: str | None) -> None:
        """Drop the listings of a name, of everything below and of its parents; for None, all listings."""
        self._since = object()
        if self._kept is None:
            return
        if name is None:
            self._kept.clear()
            return
        for each in [each for each in self._kept if each == name or each.startswith(f"{name}/")]:
            self._kept.pop(each, None)
        above = name
        while (above := parent(above)) and not above.endswith("://"):
            self._kept.pop(above, None)


_QUALIFIED = re.compile(r"([A-Za-z][A-Za-z0-9+.-]*)://(.*)", re.DOTALL)


def strip_scheme(path: str, scheme: str) -> str:
    """Return the name of ``path`` in the file system of ``scheme``: without that scheme and without trailing ``/``.

    A URL of another scheme keeps its scheme.
    """
    own = f"{scheme}://"
    if path.startswith(own):
        return path[len(own) :].rstrip("/")
    found = _QUALIFIED.fullmatch(path)
    return f"{found[1]}://{found[2].rstrip('/')}" if found else path.rstrip("/")


def parent(name: str) -> str:
    """Return the parent of a name; for a bucket only the scheme, or an empty name."""
    found = _QUALIFIED.fullmatch(name)
    head, rest = (f"{found[1]}://", found[2]) if found else ("", name)
    return head + rest.rpartition("/")[0]


def url_of(name: str, scheme: str) -> str:
    """Return the URL of a name; raise ``InvalidURL`` if it has no bucket."""
    if _QUALIFIED.fullmatch(name):
        return name
    if not name:
        raise InvalidURL(f"buckets cannot be listed: name one, {scheme}://bucket/…")
    return f"{scheme}://{name}"


def _on_thread(name: str) -> Callable[..., Coroutine[Any, Any, Any]]:
    """Return a coroutine that calls a blocking method."""

    async def method(self: Coroutines, *args: Any, **options: Any) -> Any:
        return await call(getattr(self, name), *args, **options)

    return method


class Coroutines(AsyncFileSystem):  # type: ignore[misc]  # fsspec ships no type information
    """Coroutines over sources, for any event loop. Subclasses map names to sources and URLs."""

    _listings: Listings
    _place: Callable[[str], tuple[Source, str]]
    _url: Callable[[str], str]

    def _object(self, path: str) -> tuple[Source, str]:
        return require_key(*self._place(path))

    # -- descriptions ------------------------------------------------------------------------------------------------

    _ls = _on_thread("ls")
    _sign = _on_thread("sign")
    _modified = _on_thread("modified")
    _created = _on_thread("created")
    _cp_file = _on_thread("cp_file")

    async def _info(self, path: str, *, refresh: bool = False, **options: Any) -> Entry:
        files.check_options(options)
        name = self._strip_protocol(path)
        if not refresh and (kept := self._listings.find(name)) is not None:
            return dict(kept)
        source, key = self._place(name)
        if key:
            with suppress(NotFound):
                return file(source, await stat(source, key), self._strip_protocol)
        return await call(below, source, key, self._strip_protocol)

    async def _isdir(self, path: str) -> bool:
        return await self._type(path) == "directory"

    async def _isfile(self, path: str) -> bool:
        return await self._type(path) == "file"

    async def _type(self, path: str) -> str:
        try:
            return str((await self._info(path))["type"])
        except NotFound:
            return ""

    def _kind(self, path: str) -> str:
        try:
            return str(self.info(path)["type"])
        except NotFound:
            return ""

    async def _find(
        self,
        path: str,
        maxdepth: int | None = None,
        withdirs: bool = False,
        *,
        detail: bool = False,
        prefix: str = "",
        **options: Any,
    ) -> Any:
        """Return all files below a path, or the file itself: a flat listing, or with ``maxdepth`` one per directory.

        ``prefix`` limits the listing to names whose next component begins with it.
        """
        files.check_options(options)
        if maxdepth is not None and maxdepth < 1:
            message = f"maxdepth must be at least 1, got {maxdepth}"
            raise ValueError(message)
        source, key = self._place(path)
        if maxdepth is None:
            found = await call(under, source, key, prefix, self._strip_protocol, withdirs=withdirs)
        else:
            found = await self._levels(source, as_folder(key) + prefix, maxdepth, withdirs=withdirs)
        name = self._strip_protocol(path)
        if withdirs and key and (found or await self._isdir(path)):
            found[name] = directory(source, key, self._strip_protocol)
        if not found and key and not prefix and await self._isfile(path):
            found[name] = await self._info(path)
        names = sorted(found)
        return {each: found[each] for each in names} if detail else names

    async def _levels(self, source: Source, first: str, depth: int, *, withdirs: bool) -> dict[str, Entry]:
        found: dict[str, Entry] = {}
        prefixes = [first]
        while prefixes and depth:
            listed = await asyncio.gather(*(call(level, source, each, self._strip_protocol) for each in prefixes))
            shown = [each for here, _ in listed for each in here if withdirs or each["type"] == "file"]
            found |= {each["name"]: each for each in shown}
            prefixes, depth = [each for _, below in listed for each in below], depth - 1
        return found

    async def _du(self, path: str, total: bool = True, maxdepth: int | None = None, **options: Any) -> Any:
        """Return the sizes of all files below, as reported by listings; with ``total`` their sum."""
        found = await self._find(path, maxdepth=maxdepth, detail=True, **options)
        sizes = {name: each["size"] or 0 for name, each in found.items()}
        return sum(sizes.values()) if total else sizes

    # -- bytes -------------------------------------------------------------------------------------------------------

    async def _cat_file(self, path: str, start: int | None = None, end: int | None = None, **options: Any) -> bytes:
        files.check_options(options)
        source, key = self._object(path)
        return await read_slice(source, (key, start, end))

    async def _cat_ranges(
        self,
        paths: list[str],
        starts: Any,
        ends: Any,
        max_gap: int | None = None,
        batch_size: int | None = None,
        on_error: str = "return",
        **options: Any,
    ) -> list[bytes | PenstockError]:
        """Return ``paths[i][starts[i]:ends[i]]``, read in parallel; ranges up to ``max_gap`` apart share a request.

        ``max_gap`` is in bytes, 8 KiB by default. ``on_error="return"`` returns errors in place of the bytes,
        ``"raise"`` raises the first one, in order. Versions are not pinned: if an object is replaced meanwhile, its
        ranges may be of both versions.
        """
        files.check_options(options)
        if on_error not in ("return", "raise"):
            raise Unusable(f"on_error must be 'return' or 'raise', got {on_error!r}")
        gap_bytes = GAP_BYTES if max_gap is None else whole(max_gap, "max_gap", 0)
        firsts, stops = check_lists(paths, starts, ends)
        places: dict[str, tuple[Source, str]] = {}
        batches: dict[str, tuple[Source, list[int], list[tuple[str, int | None, int | None]]]] = {}
        found: list[bytes | PenstockError] = [b""] * len(paths)
        for at, path in enumerate(paths):
            try:
                source, key = places.get(path) or places.setdefault(path, self._object(path))
            except PenstockError as error:  # not the path of an object
                if on_error == "raise":
                    raise
                found[at] = error
                continue
            positions, wanted = batches.setdefault(source.root, (source, [], []))[1:]
            positions.append(at)
            wanted.append((key, firsts[at], stops[at]))
        results = await asyncio.gather(*(read_slices(each, wanted, gap_bytes) for each, _, wanted in batches.values()))
        for (_, positions, _), outcomes in zip(batches.values(), results, strict=True):
            for at, outcome in zip(positions, outcomes, strict=True):
                found[at] = outcome
        if on_error == "raise":
            for each in found:
                if isinstance(each, PenstockError):
                    raise each
        return found

    async def _cat(
        self,
        path: str | list[str],
        recursive: bool = False,
        on_error: str = "raise",
        batch_size: int | None = None,
        start: int | None = None,
        end: int | None = None,
        **options: Any,
    ) -> Any:
        if on_error not in ("raise", "omit", "return"):
            raise Unusable(f"on_error must be 'raise', 'omit' or 'return', got {on_error!r}")
        paths = await self._expand_path(path)
        if recursive:
            paths = sorted({name for each in paths for name in await self._find(each)})
        how = "raise" if on_error == "raise" else "return"
        found = await self._cat_ranges(paths, start, end, on_error=how, **options)
        if len(paths) == 1 and not isinstance(path, list) and paths[0] == self._strip_protocol(path):
            return found[0]
        pairs = zip(paths, found, strict=True)
        return {name: each for name, each in pairs if on_error != "omit" or not isinstance(each, PenstockError)}

    async def _pipe_file(self, path: str, value: object, mode: str = "overwrite", **options: Any) -> None:
        await call(self._pipe_here, path, value, mode, options)

    def _pipe_here(self, path: str, value: object, mode: str, options: dict[str, Any]) -> None:
        opening = _opening(mode)
        source, key = self._object(path)
        if self._intrans:
            with self.open(path, opening, **options) as file:
                file.write(value)
            return
        files.pipe(source, key, value, create=mode == "create", **files.attributes_of(options, self._url(path)))
        self.invalidate_cache(path)

    async def _put_file(
        self, lpath: str, rpath: str, callback: Callback = DEFAULT_CALLBACK, mode: str = "overwrite", **options: Any
    ) -> None:
        await call(self._put_here, lpath, rpath, callback, mode, options)

    def _put_here(self, lpath: str, rpath: str, callback: Callback, mode: str, options: dict[str, Any]) -> None:
        opening = _opening(mode)
        if not Path(lpath).is_dir():
            files.upload(lpath, self.open(rpath, opening, **options), callback)
            self.invalidate_cache(rpath)

    async def _get_file(self, rpath: str, lpath: Any, callback: Callback = DEFAULT_CALLBACK, **options: Any) -> None:
        files.check_options(options)
        source, key = self._place(rpath)
        target = lpath if isfilelike(lpath) else str(lpath)
        await call(files.download, source, key, target, callback)

    async def _rm_file(self, path: str, **options: Any) -> None:
        files.check_options(options)
        await call(self._rm_here, [path])

    async def _rm(
        self,
        path: str | list[str],
        recursive: bool = False,
        batch_size: int | None = None,
        maxdepth: int | None = None,
        **options: Any,
    ) -> None:
        """Delete files, 256 in parallel; with ``recursive`` everything below. Without it, missing files are ignored."""
        files.check_options(options)
        whole = recursive and maxdepth is None
        paths = await self._expand_path(self._deletable(path), recursive=recursive and not whole, maxdepth=maxdepth)
        await call(self._rm_all if whole else self._rm_here, paths)

    def _deletable(self, path: str | list[str]) -> list[str]:
        given = [path] if isinstance(path, str) else list(path)
        for each in given:
            check_deletable(parse(self._url(each)))
        return given

    def _rm_all(self, paths: Iterable[str]) -> None:
        """Delete files and all objects below, with the markers of consoles; nothing if one of the paths is missing."""
        found: list[tuple[str, Source, str]] = []
        for path in paths:
            source, key = self._object(path)
            below = source.keys_below(as_folder(key))
            if source.stat_existing([key])[0] is not None:
                below.append(key)
            elif not below:
                raise NotFound("neither an object nor a prefix of one", url=source.url(key))
            found += [(path, source, each) for each in below]
        self._delete(found)

    def _rm_here(self, paths: Iterable[str]) -> None:
        self._delete([(path, *self._object(path)) for path in paths])

    def _delete(self, found: Sequence[tuple[str, Source, str]]) -> None:
        """Delete keys, each once, and drop everything cached for the paths that led to them."""
        batches: dict[str, tuple[Source, dict[str, None]]] = {}
        for _, source, key in found:
            source.require(Delete, key)
            batches.setdefault(source.root, (source, {}))[1][key] = None
        try:
            for source, keys in batches.values():
                source.delete([*keys])
        finally:
            for path in dict.fromkeys(path for path, *_ in found):
                self.invalidate_cache(path)

    async def open_async(self, path: str, mode: str = "rb", **options: Any) -> Streamed | StreamedWriter:
        """Open a file with asynchronous reads and writes: ``rb``, ``wb`` or ``xb``."""
        if "b" not in mode or options.get("compression"):
            raise Unusable("open_async opens binary files, without compression", url=self._url(path))
        if mode == "rb":
            files.check_options(options)
            source, key = self._object(path)
            return Streamed(source, await stat(source, key))
        return StreamedWriter(await call(self.open, path, mode, **options))


def _opening(mode: str) -> str:
    """Return the mode of ``open`` for fsspec's mode of a transfer."""
    if mode not in ("overwrite", "create"):
        raise Unusable(f"mode must be 'overwrite' or 'create', got {mode!r}")
    return "wb" if mode == "overwrite" else "xb"


class Streamed:
    """An asynchronous reader of one version of an object; each read requests exactly its bytes, without read-ahead."""

    def __init__(self, source: Source, meta: ObjectMeta) -> None:
        self._source = source
        self._meta = meta
        self._at = 0
        self.mode = "rb"
        self.closed = False

    @property
    def size(self) -> int:
        return self._meta.size

    def tell(self) -> int:
        return self._at

    def seek(self, offset: int, whence: int = io.SEEK_SET) -> int:
        self._at = compute_seek(offset, whence, self._at, self._meta.size)
        return self._at

    async def read(self, length: int | None = -1) -> bytes:
        """Return up to ``length`` bytes, fewer only at the end; for None or a negative length all remaining bytes."""
        if self.closed:
            raise Unusable("this file is closed", url=self._source.url(self._meta.key))
        left = max(0, self._meta.size - self._at)
        count = left if length is None or length < 0 else min(length, left)
        if not count:
            return b""
        data, version = await read_version(self._source, span_in(self._meta, self._at, self._at + count))
        if not self._meta.etag:
            # Some servers name the version in answers to GET alone.
            self._meta = replace(self._meta, etag=version)
        self._at += count
        return data

    async def close(self) -> None:
        self.closed = True

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.close()


class StreamedWriter:
    """An asynchronous writer that publishes only when it is closed successfully."""

    def __init__(self, writer: Writer | TransactionFile) -> None:
        self._writer = writer
        self.mode = writer.mode

    @property
    def closed(self) -> bool:
        return self._writer.closed

    def tell(self) -> int:
        return self._writer.tell()

    async def write(self, data: bytes | bytearray | memoryview) -> int:
        return await call(self._writer.write, data)

    async def close(self) -> None:
        """Close the file and publish the object, unless an exception propagates through the caller."""
        # Not visible on the thread that publishes.
        error = self._writer._unwinding()  # noqa: SLF001  for wrappers of a writer
        await (call(self._writer.close) if error is None else self.discard())

    async def discard(self) -> None:
        abort = getattr(self._writer, "abort", None) or self._writer.discard  # type: ignore[union-attr]
        await call(abort)

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, kind: type[BaseException] | None, *_: object) -> None:
        await (self.close() if kind is None else self.discard())


def file(source: Source, meta: ObjectMeta, name: Name) -> Entry:
    """Return a file's entry: ``size`` in bytes, None if a listing does not report it; times by the store's clock."""
    written = None if meta.modified is None else datetime.fromtimestamp(meta.modified, UTC)
    size = None if meta.size == UNKNOWN_SIZE else meta.size
    entry = {"name": name(source.url(meta.key)), "type": "file", "size": size, "ETag": meta.etag}
    return entry | {"LastModified": written, "mtime": meta.modified}


def directory(source: Source, key: str, name: Name) -> Entry:
    return {"name": name(source.url(key)), "type": "directory", "size": 0}


def info(source: Source, key: str, name: Name) -> Entry:
    """Return the entry of a file or directory: one request, two if it is not a file; raise ``NotFound``."""
    if key:
        with suppress(NotFound):
            return file(source, source.head(key), name)
    return below(source, key, name)


def below(source: Source, key: str, name: Name) -> Entry:
    """Return a directory's entry: one request; raise ``NotFound`` if nothing exists below, except for a bucket."""
    page = source.page(as_folder(key), delimiter="/")
    if key and not _full(page):
        raise NotFound("neither an object nor a prefix of one", url=source.url(key))
    return directory(source, key, name)


def ls(source: Source, key: str, name: Name) -> list[Entry]:
    """Return the entries directly below, or the file itself: one request per 1,000, one more if there are none."""
    pages = [*source.pages(as_folder(key), delimiter="/")]
    if key and not any(_full(page) for page in pages):
        return [file(source, source.head(key), name)]
    return [entry for page in pages for entry in _convert_page(source, page, name)]


def level(source: Source, prefix: str, name: Name) -> tuple[list[Entry], list[str]]:
    """Return the entries that begin with ``prefix``, up to the next ``/``, and the prefixes of the next level."""
    pages = [*source.pages(prefix, delimiter="/")]
    found = [entry for page in pages for entry in _convert_page(source, page, name)]
    return found, [prefix for page in pages for prefix in page.prefixes]


def under(source: Source, key: str, stem: str, name: Name, *, withdirs: bool) -> dict[str, Entry]:
    """Return by name the files below a key whose next component begins with ``stem``: one request per 1,000."""
    base = as_folder(key)
    metas = [each for page in source.pages(base + stem) for each in page.entries]
    found = {entry["name"]: entry for entry in (file(source, each, name) for each in _real(metas))}
    if withdirs:
        folders = {each.key[: at + 1] for each in metas for at, char in enumerate(each.key) if char == "/"}
        folders = {each for each in folders if len(each) > len(base)}
        found |= {entry["name"]: entry for entry in (directory(source, each.rstrip("/"), name) for each in folders)}
    return found


def latest(source: Source, key: str, entry: Entry) -> float | None:
    """Return the modification time of a file, or the newest one below a directory, in seconds since the epoch."""
    if entry["type"] == "file":
        modified: float | None = entry["mtime"]
        return modified
    times = [each.modified for page in source.pages(as_folder(key)) for each in page.entries]
    return max((each for each in times if each is not None), default=None)


def _real(metas: Iterable[ObjectMeta]) -> list[ObjectMeta]:
    # A key that ends in "/" is a console's marker of a folder: it stands for the directory, not for a file in it.
    return [each for each in metas if not each.key.endswith("/")]


def _full(page: Page) -> bool:
    return bool(page.entries or page.prefixes)


def _convert_page(source: Source, page: Page, name: Name) -> list[Entry]:
    files = [file(source, each, name) for each in _real(page.entries)]
    return files + [directory(source, each.rstrip("/"), name) for each in page.prefixes]
