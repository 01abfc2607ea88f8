"""Penstock's stores for pyarrow: a ``pyarrow.fs.FileSystem`` without fsspec.

Limits compared with Penstock's own calls: a file system has one scheme; files are read or replaced, never appended to;
a directory is a prefix with objects below it, so ``create_dir`` does nothing and an empty directory does not exist;
keys that end in ``/`` cannot be named. Unchanged: errors are Penstock's, an open file reads one version of its object,
and writes are atomic.
"""

from __future__ import annotations

from bisect import bisect_right
from collections import OrderedDict
from contextlib import suppress
from dataclasses import replace
from threading import Lock
from typing import TYPE_CHECKING, Any, Generic, NamedTuple, TypeVar

from penstock.copies import copy_object, delete_sources
from penstock.engine.blocks import SizedFile
from penstock.engine.waiting import Inbox
from penstock.errors import InvalidURL, NotFound, Unsupported, require_extras
from penstock.options import StoreOptions
from penstock.source import open_source
from penstock.stores.urls import check_deletable, parse, scheme_store
from penstock.values import UNKNOWN_SIZE, as_folder, span_in
from penstock.verbs import copy

with require_extras("penstock.interop.arrow needs pyarrow", pyarrow="parquet"):
    from pyarrow import PythonFile
    from pyarrow.fs import FileInfo, FileSystemHandler, FileType, PyFileSystem

if TYPE_CHECKING:
    import os
    from collections.abc import Iterable, Iterator, Mapping, Sequence

    from pyarrow.fs import FileSelector

    from penstock.engine.contracts.fetching import ReadOperation
    from penstock.source import Source
    from penstock.values import ObjectMeta


__all__ = ["PenstockHandler", "filesystem", "from_url"]

T = TypeVar("T")

_DESCRIBED = 20_000  # files
# pq.read_table opens a file for its footer, and again for its columns.
_OPENINGS = 2
_LAYOUTS = 64  # of Parquet files


def filesystem(scheme: str = "s3", *, store: StoreOptions | str | None = None) -> PyFileSystem:
    """Return a file system for a scheme's buckets; its paths are ``bucket/key``, with or without ``s3://`` in front.

    ``store`` gives the options or the profile of every path; default: environment. No request is made.
    """
    name = scheme.removesuffix("://")
    kind = scheme_store(name)
    if isinstance(store, StoreOptions):
        kind.take(store)
    return PyFileSystem(PenstockHandler(name, store))


def from_url(url: str | os.PathLike[str], *, store: StoreOptions | str | None = None) -> tuple[PyFileSystem, str]:
    """Return a file system and the path of a URL in it, as ``pyarrow.fs.FileSystem.from_uri`` does."""
    location = parse(url)
    files = filesystem(location.scheme, store=store)
    return files, files.normalize_path(location.url)


class PenstockHandler(FileSystemHandler):  # type: ignore[misc]  # pyarrow ships no type information
    """A thread-safe handler for pyarrow. Errors are Penstock's; for missing files also ``FileNotFoundError``."""

    def __init__(self, scheme: str, store: StoreOptions | str | None = None) -> None:
        self.scheme = scheme
        self.store = store
        self._described: Recent[ObjectMeta] = Recent(_DESCRIBED, _OPENINGS)
        self._layouts: Recent[Layout] = Recent(_LAYOUTS)

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, PenstockHandler):
            return NotImplemented
        return (self.scheme, self.store) == (other.scheme, other.store)

    def __hash__(self) -> int:
        return hash(self.scheme)

    def __reduce__(self) -> tuple[object, ...]:
        """Pickle as scheme and options; options refuse to be pickled if they hold secrets."""
        return PenstockHandler, (self.scheme, self.store)

    def get_type_name(self) -> str:
        return f"penstock+{self.scheme}"

    def normalize_path(self, path: str) -> str:
        """Return a path without scheme and trailing ``/``; raise ``InvalidURL`` for a path of another scheme."""
        own = f"{self.scheme}://"
        if "://" in path and not path.startswith(own):
            message = f"this file system accepts only paths of {own}: create a new one with arrow.from_url(url)"
            raise InvalidURL(message, url=path)
        bare = path.removeprefix(own)
        return bare.rstrip("/") or bare[:1]

    def get_file_info(self, paths: Sequence[str]) -> list[FileInfo]:
        """Describe files and directories: one HEAD each, in parallel; if it finds no file, a listing of one page."""
        places = [self._place(path) for path in paths]
        metas = dict(self._looked_up(places))
        return [
            self._directory_info(path, *place) if meta is None else self._file_info(path, meta)
            for path, place in zip(paths, places, strict=True)
            for meta in (metas.get((place[0].root, place[1])),)
        ]

    def get_file_info_selector(self, selector: FileSelector) -> list[FileInfo]:
        """Describe the entries below a directory: one request per 1,000 objects; two more if there are none."""
        base = self.normalize_path(selector.base_dir)
        source, key = self._place(base)
        found = list(self._below(source, base, as_folder(key), recursive=selector.recursive))
        if not found and key:
            self._check_directory(source, key, allow_not_found=selector.allow_not_found)
        return found

    def create_dir(self, path: str, recursive: bool) -> None:
        """Do nothing: a prefix need not be created."""

    def delete_dir(self, path: str) -> None:
        self.delete_dir_contents(path, missing_dir_ok=False)

    def delete_dir_contents(self, path: str, missing_dir_ok: bool = False) -> None:
        """Delete all objects below, one request each, in parallel."""
        source, key = self._place(path)
        check_deletable(parse(source.url(as_folder(key))))
        keys = source.keys_below(as_folder(key))
        if not keys and not missing_dir_ok:
            raise NotFound("no such directory", url=source.url(key))
        source.delete(keys)

    def delete_root_dir_contents(self) -> None:
        raise InvalidURL("this would delete all buckets: name the objects to delete", url=f"{self.scheme}://")

    def delete_file(self, path: str) -> None:
        """Delete a file: a HEAD and a DELETE; raise ``NotFound`` if it does not exist."""
        source, key = self._file(path)
        source.head(key)
        self._described.forget(path)
        source.delete([key])

    def move(self, src: str, dest: str) -> None:
        """Copy a file, or all files below a directory, then delete the sources; not atomic."""
        source, key = self._file(src)
        if source.stat_existing([key])[0] is not None:
            pairs = {src: dest}
        else:
            below = self._below(source, src, as_folder(key), recursive=True)
            pairs = {each.path: dest + each.path[len(src) :] for each in below if each.type == FileType.File}
        if not pairs:
            raise NotFound("no object or folder has this URL", url=source.url(key))
        copies = []
        for path, to in pairs.items():
            self._described.forget(to)
            copies.append(copy_object(*self._place(path), *self._place(to)))
            self._described.forget(path)
        delete_sources(copies)

    def copy_file(self, src: str, dest: str) -> None:
        """Copy a file, server-side within a bucket."""
        self._described.forget(dest)
        copy(self._url(src), self._url(dest), store=self.store)

    def open_input_stream(self, path: str) -> PythonFile:
        """Open a file for sequential reads, with read-ahead: a HEAD."""
        source, key = self._file(path)
        return PythonFile(source.open_read(key), mode="r")

    def open_input_file(self, path: str) -> PythonFile:
        """Open a file for random access: a HEAD, and a GET for each range that is read.

        After ``get_file_info`` or ``get_file_info_selector`` has described the file, the first two openings make no
        HEAD. They read the described version; if it was replaced, reads raise ``Changed``.
        """
        source, key = self._file(path)
        meta = self._described.get(path) or source.head(key)
        return PythonFile(RandomFile(source, meta, self._layouts), mode="r")

    def open_output_stream(self, path: str, metadata: Mapping[str, str] | None) -> PythonFile:
        """Open a file that is published atomically when it is closed: one PUT and a HEAD, or a multipart upload.

        ``metadata`` is stored with the object; its entry ``Content-Type`` becomes the object's content type.
        """
        source, key = self._file(path)
        self._described.forget(path)
        extra = {_decode_if_bytes(name): _decode_if_bytes(value) for name, value in dict(metadata or {}).items()}
        kind = extra.pop("Content-Type", "")
        return PythonFile(source.open_write(key, metadata=extra, content_type=kind), mode="w")

    def open_append_stream(self, path: str, metadata: Mapping[str, str] | None) -> PythonFile:
        raise Unsupported("objects are replaced, not appended to: write another file", url=self._url(path))

    def _url(self, path: str) -> str:
        bare = self.normalize_path(path)
        if not bare:
            raise InvalidURL(f"buckets cannot be listed: name one, {self.scheme}://bucket/…")
        return f"{self.scheme}://{bare}"

    def _place(self, path: str) -> tuple[Source, str]:
        return open_source(self._url(path), self.store)

    def _file(self, path: str) -> tuple[Source, str]:
        source, key = self._place(path)
        if not key:
            raise InvalidURL("this names a bucket, not a file in it", url=source.root)
        return source, key

    def _looked_up(self, places: Iterable[tuple[Source, str]]) -> Iterator[tuple[tuple[str, str], ObjectMeta | None]]:
        keys: dict[str, tuple[Source, list[str]]] = {}
        for source, key in places:
            keys.setdefault(source.root, (source, []))[1].append(key)
        for root, (source, names) in keys.items():
            named = [name for name in names if name]
            yield from zip([(root, name) for name in named], source.stat_existing(named), strict=True)

    def _directory_info(self, path: str, source: Source, key: str) -> FileInfo:
        there = not key or source.page(as_folder(key)).entries
        return FileInfo(path, FileType.Directory if there else FileType.NotFound)

    def _check_directory(self, source: Source, key: str, *, allow_not_found: bool) -> None:
        """Check a path without entries below: raise if it is a file or does not exist, accept a directory marker."""
        if source.page(as_folder(key)).entries:
            return
        if source.stat_existing([key])[0] is not None:
            raise NotADirectoryError(source.url(key))
        if not allow_not_found:
            raise NotFound("no such directory", url=source.url(key))

    def _below(self, source: Source, base: str, prefix: str, *, recursive: bool) -> Iterator[FileInfo]:
        """Yield the entries below a prefix, each directory once, with paths below ``base``."""
        folders: set[str] = set()
        for page in source.pages(prefix, delimiter="" if recursive else "/"):
            for folder in page.prefixes:
                yield FileInfo(f"{base}/{folder[len(prefix) :].rstrip('/')}", FileType.Directory)
            for each in page.entries:
                name = each.key[len(prefix) :]
                for folder in _folders(name):
                    if folder not in folders:
                        folders.add(folder)
                        yield FileInfo(f"{base}/{folder}", FileType.Directory)
                if name and not name.endswith("/"):
                    yield self._file_info(f"{base}/{name}", each)

    def _file_info(self, path: str, meta: ObjectMeta) -> FileInfo:
        size = None
        if meta.size != UNKNOWN_SIZE:
            size = meta.size
            self._described.keep(path, meta)
        return FileInfo(path, FileType.File, size=size, mtime=meta.modified)


def _folders(name: str) -> Iterator[str]:
    at = name.find("/")
    while at >= 0:
        yield name[:at]
        at = name.find("/", at + 1)


def _decode_if_bytes(value: str | bytes) -> str:
    return value.decode() if isinstance(value, bytes) else value


# Files up to this size are read in one request: a second request takes longer than the transfer of the bytes.
_WHOLE_BYTES = 1 << 20
# pyarrow first reads this much of a Parquet file's end (kDefaultFooterReadSize).
_ASKED_BYTES = 64 << 10
# Read instead of _ASKED_BYTES, because the footer may be longer.
_TAIL_BYTES = 128 << 10
# The longest end of a file that is kept for the next opening.
_KEPT_BYTES = 256 << 10
_MAGIC = b"PAR1"
# Bytes of a Parquet file after its footer: the footer's length and the magic number.
_ENDING = 8
_AHEAD_READS = 32
# A read ahead is given up after this many other reads: six for each of pyarrow's 8 threads.
_PATIENCE = 48
# Reads ahead begin up to this many row groups before the current one: pyarrow's threads read in any order.
_BEHIND = 4
# Additional reads ahead: after a read ahead was used; when columns are requested in a second row group.
_HIT, _SCAN = 2, 8
_AHEAD_BYTES = 64 << 20


class _Ahead(NamedTuple):
    """A read ahead, and the number of requested reads when it began."""

    read: ReadOperation
    at: int


class RandomFile(SizedFile):
    """A random-access file of one version of an object, without blocks; pyarrow's threads use it in turn.

    pyarrow lets only one thread at a time read from a Python file, so the requests for a Parquet file's columns would
    run one after another. Therefore, once the footer was read, the columns requested so far are read ahead in the next
    row groups. The limit of reads ahead grows by one for each run of columns, by eight when a run is requested in a
    second row group, and by two for each read ahead that is used; up to 32 reads and 64 MiB. The limit shrinks when
    reads ahead are not used, for example because a filter skips row groups.

    A file of up to ``whole_bytes`` is read in one request, even if only a part is needed.
    """

    mode = "rb"

    def __init__(
        self, source: Source, meta: ObjectMeta, layouts: Recent[Layout], *, whole_bytes: int = _WHOLE_BYTES
    ) -> None:
        """Open the object that ``meta`` describes; ``layouts`` caches Parquet footers and their layouts, by version.

        The cache is shared by files because pyarrow reads the footer through one file and the columns through another,
        which reads the footer again; Ray Data opens a file three times.
        """
        super().__init__(meta.size)
        self._source = source
        self._meta = meta
        self._tail_bytes = meta.size if meta.size <= whole_bytes else _TAIL_BYTES
        self._inbox = Inbox()
        self._ahead: OrderedDict[tuple[int, int], _Ahead] = OrderedDict()
        self._layouts = layouts
        self._layout = layouts.get(self._version)
        # The file's last bytes; for a small file all bytes.
        self._tail = b"" if self._layout is None else self._layout.tail
        self._asked: set[tuple[int, int]] = set()  # ranges requested or read ahead
        self._runs: dict[tuple[int, ...], None] = {}  # requested runs of columns, in order
        self._first = 0  # lowest row group requested
        # Limit of parallel reads ahead; requested reads so far; reads ahead that were given up.
        self._most = self._count = self._given_up = 0

    @property
    def name(self) -> str:
        return self._source.url(self._meta.key)

    @property
    def _version(self) -> str:
        return f"{self._meta.etag} {self._meta.size} {self.name}"

    def read(self, size: int | None = -1, /) -> bytes | memoryview:  # pyarrow takes any buffer
        """Return up to ``size`` bytes, fewer only at the end of the file: at most one request."""
        left = max(0, self._meta.size - self._at)
        count = left if size is None or size < 0 else min(size, left)
        data = self._range(self._at, self._at + count) if count else b""
        self._at += count
        return data

    def readinto(self, buffer: object, /) -> int:
        view = memoryview(buffer).cast("B")  # type: ignore[arg-type]
        data = self.read(len(view))
        view[: len(data)] = data
        return len(data)

    def close(self) -> None:
        if not self.closed:
            waiting = [read for read, _ in self._ahead.values() if not read.complete]
            if waiting:
                self._source.fetching().cancel_reads(waiting)
            self._ahead.clear()
            self._tail, self._layout = b"", None
        super().close()

    def _range(self, start: int, stop: int) -> bytes | memoryview:
        size = self._meta.size
        least = max(0, size - self._tail_bytes)
        if not least or (stop == size and start >= least) or self._is_footer(start, stop):
            self._hold(least if not least or size - start == _ASKED_BYTES else start)
        held = size - len(self._tail)
        if start >= held:
            return memoryview(self._tail)[start - held : stop - held]
        ahead = self._ahead.pop((start, stop), None)
        self._predict(start, stop, hit=ahead is not None)
        if ahead is None:
            return self._read(start, stop)
        self._inbox.wait(ahead.read)
        return ahead.read.take()

    def _read(self, start: int, stop: int) -> bytes:
        """Read a range; the first one decides the version if the metadata, such as a listing's, name none."""
        data, version = self._source.read_version(span_in(self._meta, start, stop))
        if not self._meta.etag:
            self._meta = replace(self._meta, etag=version)
        return data

    def _is_footer(self, start: int, stop: int) -> bool:
        """Return whether the range is a Parquet footer, by the length in the file's last bytes, if already read."""
        ends = stop == self._meta.size - _ENDING and self._tail.endswith(_MAGIC)
        return ends and stop - start == int.from_bytes(self._tail[-_ENDING:-4], "little")

    def _hold(self, start: int) -> None:
        held = self._meta.size - len(self._tail)
        if start < held:
            self._tail = self._read(start, held) + self._tail
            if start:
                self._learn()

    def _learn(self) -> None:
        """Parse a Parquet file's footer if the bytes in memory contain all of it."""
        tail = self._tail
        footer = int.from_bytes(tail[-_ENDING:-4], "little") if tail.endswith(_MAGIC) else len(tail)
        if self._layout is None and len(tail) >= footer + _ENDING:
            from pyarrow import ArrowException, BufferReader
            from pyarrow.parquet import read_metadata

            # Not a valid Parquet file after all: its reader will report that.
            with suppress(ArrowException, OSError, ValueError):
                # Without a version, other bytes of the same size could come later.
                kept = tail if self._meta.etag and len(tail) <= _KEPT_BYTES else b""
                self._layout = Layout(read_metadata(BufferReader(tail)), kept)
                self._layouts.keep(self._version, self._layout)

    def _predict(self, start: int, stop: int, *, hit: bool) -> None:
        """Start reads ahead of the bytes expected after the requested range."""
        place = self._layout.place(start, stop) if self._layout else None
        if self._layout is None or place is None:
            return
        group, columns = place
        self._first = min(self._first, group) if self._runs else group
        self._expect(columns, hit=hit)
        self._asked.add((start, stop))
        self._count += 1
        self._forget()
        for first, end in self._layout.ahead(max(self._first, group - _BEHIND), self._runs):
            held = sum(stop - start for start, stop in self._ahead)
            if len(self._ahead) >= self._most or held + end - first > _AHEAD_BYTES:
                return
            if (first, end) not in self._asked:
                self._asked.add((first, end))
                self._begin(first, end)

    def _expect(self, columns: tuple[int, ...], *, hit: bool) -> None:
        """Raise the limit of reads ahead: after a hit, for new columns, or if all row groups seem to be read."""
        if hit:
            more = _HIT
        elif columns not in self._runs:
            more = 1
        else:
            more = 0 if self._given_up else _SCAN
        self._most = min(self._most + more, _AHEAD_READS)
        self._runs[columns] = None

    def _forget(self) -> None:
        """Drop read-ahead data that many other reads did not request."""
        while self._ahead and self._count - next(iter(self._ahead.values())).at > _PATIENCE:
            _, (read, _) = self._ahead.popitem(last=False)
            self._most -= 1
            self._given_up += 1
            if not read.complete:
                self._source.fetching().cancel_reads((read,))

    def _begin(self, start: int, stop: int) -> None:
        fetching = self._source.fetching()
        reads = fetching.prepare_reads(((span_in(self._meta, start, stop), None),), self._inbox)
        self._ahead[start, stop] = _Ahead(reads[0], self._count)
        fetching.send_reads(reads)


class Layout:
    """The column chunks of each row group, in byte order; read from a ``pyarrow.parquet.FileMetaData`` when needed.

    Attributes:
        tail: The last bytes of the file, with all of the footer; empty if they are not kept.
    """

    def __init__(self, metadata: Any, tail: bytes = b"") -> None:
        self._metadata, self.tail = metadata, tail
        self._count = metadata.num_row_groups
        self._chunks: dict[int, list[tuple[int, int, int]]] = {}
        self._runs: dict[tuple[int, int, int], tuple[int, int]] = {}
        # Only of the first column: a footer of 1,000 columns and 1,000 row groups has a million column chunks.
        groups = [metadata.row_group(number) for number in range(self._count)] if self._count > 1 else []
        self._starts = [_range(group, 0)[0] for group in groups if group.num_columns]

    def place(self, start: int, stop: int) -> tuple[int, tuple[int, ...]] | None:
        """Return the row group and the columns whose consecutive chunks are ``[start, stop)``.

        None if the range is anything else, or if the file has only one row group.
        """
        at = bisect_right(self._starts, start) - 1
        held = [each for each in self._ranges(at) if start <= each[0] and each[1] <= stop] if at >= 0 else []
        if not held or (held[0][0], held[-1][1]) != (start, stop):
            return None
        return at, tuple(column for *_, column in held)

    def ahead(self, first: int, runs: Iterable[tuple[int, ...]]) -> Iterator[tuple[int, int]]:
        """Yield the byte range of each run of columns (as ``place`` returns them), from row group ``first`` on."""
        for number in range(max(0, first), self._count):
            for columns in runs:
                start, stop = self._run(number, columns)
                # A row group may store its columns in a different order.
                if start < stop:
                    yield start, stop

    def _run(self, number: int, columns: tuple[int, ...]) -> tuple[int, int]:
        key = number, columns[0], columns[-1]
        found = self._runs.get(key)
        if found is None:
            group = self._metadata.row_group(number)
            found = self._runs[key] = _range(group, columns[0])[0], _range(group, columns[-1])[1]
        return found

    def _ranges(self, number: int) -> list[tuple[int, int, int]]:
        found = self._chunks.get(number)
        if found is None:
            group = self._metadata.row_group(number)
            found = self._chunks[number] = sorted(_range(group, column) for column in range(group.num_columns))
        return found


def _range(group: Any, number: int) -> tuple[int, int, int]:
    column = group.column(number)
    start = column.data_page_offset
    if column.dictionary_page_offset:  # None; some writers store 0
        start = min(start, column.dictionary_page_offset)
    return start, start + column.total_compressed_size, number


class Recent(Generic[T]):
    """A mapping that drops its least recently used entries, and optionally limits how often each is returned."""

    def __init__(self, most: int, uses: int = 0) -> None:
        """Keep up to ``most`` values, each for ``uses`` calls of ``get``; 0 means any number of calls."""
        self._most = most
        self._uses = uses
        self._kept: dict[str, tuple[T, int]] = {}
        self._lock = Lock()

    def keep(self, key: str, value: T) -> None:
        with self._lock:
            self._kept.pop(key, None)
            self._kept[key] = value, self._uses
            if len(self._kept) > self._most:
                del self._kept[next(iter(self._kept))]

    def get(self, key: str) -> T | None:
        with self._lock:
            value, left = self._kept.pop(key, (None, 0))
            if value is not None and left != 1:
                self._kept[key] = value, max(0, left - 1)
            return value

    def forget(self, key: str) -> None:
        with self._lock:
            self._kept.pop(key, None)
