"""File system handler for pyarrow over Penstock's stores."""

from __future__ import annotations

from typing import TYPE_CHECKING

from pyarrow import PythonFile
from pyarrow.fs import FileInfo, FileSystemHandler, FileType, PyFileSystem

from penstock.copies import copy_object, delete_sources
from penstock.errors import InvalidURL, NotFound, Unsupported
from penstock.interop.arrow.files import RandomFile
from penstock.interop.recent import Recent
from penstock.options import StoreOptions
from penstock.source import open_source
from penstock.stores.urls import check_deletable, parse, scheme_provider
from penstock.values import UNKNOWN_SIZE, as_folder
from penstock.verbs import copy

if TYPE_CHECKING:
    import os
    from collections.abc import Iterable, Iterator, Mapping, Sequence

    from pyarrow.fs import FileSelector

    from penstock.interop.arrow.files import Layout
    from penstock.source import Source
    from penstock.values import ObjectMeta

__all__ = ["PenstockHandler", "filesystem", "from_url"]

_DESCRIBED = 20_000  # files
# pq.read_table opens a file for its footer, and again for its columns.
_OPENINGS = 2
_LAYOUTS = 64  # of Parquet files


def filesystem(scheme: str = "s3", *, store: StoreOptions | str | None = None) -> PyFileSystem:
    """Return a file system for a scheme's buckets; its paths are ``bucket/key``, with or without ``s3://`` in front.

    ``store`` gives the options or the profile of every path; default: environment. No request is made.

    Raises:
        UnknownScheme: No provider has ``scheme``.
        ConfigError: ``store`` holds options of another provider.

    """
    name = scheme.removesuffix("://")
    provider = scheme_provider(name)
    if isinstance(store, StoreOptions):
        provider.take(store)
    return PyFileSystem(PenstockHandler(name, store))


def from_url(url: str | os.PathLike[str], *, store: StoreOptions | str | None = None) -> tuple[PyFileSystem, str]:
    """Return a file system and the path of a URL in it, as ``pyarrow.fs.FileSystem.from_uri`` does.

    Raises:
        InvalidURL: The URL cannot be parsed.
        UnknownScheme: No provider has its scheme.

    """
    location = parse(url)
    files = filesystem(location.scheme, store=store)
    return files, files.normalize_path(location.url)


class PenstockHandler(FileSystemHandler):  # type: ignore[misc]  # pyarrow ships no type information
    """A thread-safe handler for pyarrow. Errors are Penstock's; for missing files also ``FileNotFoundError``."""

    def __init__(self, scheme: str, store: StoreOptions | str | None = None) -> None:
        """Keep the scheme and the options; open nothing yet."""
        self.scheme = scheme
        self.store = store
        self._described: Recent[ObjectMeta] = Recent(_DESCRIBED, _OPENINGS)
        self._layouts: Recent[Layout] = Recent(_LAYOUTS)

    def __eq__(self, other: object) -> bool:
        """Compare scheme and options."""
        if not isinstance(other, PenstockHandler):
            return NotImplemented
        return (self.scheme, self.store) == (other.scheme, other.store)

    def __hash__(self) -> int:
        """Hash the scheme."""
        return hash(self.scheme)

    def __reduce__(self) -> tuple[object, ...]:
        """Pickle as scheme and options; options refuse to be pickled if they hold secrets."""
        return PenstockHandler, (self.scheme, self.store)

    def get_type_name(self) -> str:
        """Return ``penstock+`` and the scheme."""
        return f"penstock+{self.scheme}"

    def normalize_path(self, path: str) -> str:
        """Return a path without scheme and trailing ``/``; raise ``InvalidURL`` for a path of another scheme."""
        own = f"{self.scheme}://"
        if "://" in path and not path.startswith(own):
            message = f"this file system has paths of {own}: make another one with arrow.from_url(url)"
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
        """Describe the entries below a directory: one request per 1,000 objects; two more if there are none.

        Raises:
            NotFound: Nothing exists at the path, unless ``selector.allow_not_found``.
            NotADirectoryError: The path is a file.

        """
        base = self.normalize_path(selector.base_dir)
        source, key = self._place(base)
        found = list(self._below(source, base, as_folder(key), recursive=selector.recursive))
        if not found and key:
            self._check_directory(source, key, allow_not_found=selector.allow_not_found)
        return found

    def create_dir(self, path: str, recursive: bool) -> None:  # noqa: FBT001  pyarrow's signature
        """Do nothing: a prefix need not be created."""

    def delete_dir(self, path: str) -> None:
        """Delete all objects below, one request each, in parallel; raise ``InvalidURL`` for a whole bucket."""
        self.delete_dir_contents(path, missing_dir_ok=False)

    def delete_dir_contents(self, path: str, missing_dir_ok: bool = False) -> None:  # noqa: FBT001, FBT002  pyarrow's
        """Delete all objects below, one request each, in parallel.

        Raises:
            InvalidURL: The path is a whole bucket.
            NotFound: Nothing exists below, unless ``missing_dir_ok``.

        """
        source, key = self._place(path)
        check_deletable(parse(source.url(as_folder(key))))
        keys = [each.key for page in source.pages(as_folder(key)) for each in page.entries]
        if not keys and not missing_dir_ok:
            raise NotFound("no such directory", url=source.url(key))
        source.delete(keys)

    def delete_root_dir_contents(self) -> None:
        """Raise ``InvalidURL``: this would delete all buckets."""
        raise InvalidURL("these are all buckets: name what is to be deleted", url=f"{self.scheme}://")

    def delete_file(self, path: str) -> None:
        """Delete a file: a HEAD and a DELETE; raise ``NotFound`` if it does not exist."""
        source, key = self._file(path)
        source.head(key)
        self._described.forget(path)
        source.delete([key])

    def move(self, src: str, dest: str) -> None:
        """Copy a file, or all files below a directory, then delete the sources; not atomic.

        Raises:
            NotFound: Nothing exists at ``src``.
            Unusable: A copy may be its source under another name; nothing was deleted.

        """
        source, key = self._file(src)
        if source.stat_existing([key])[0] is not None:
            pairs = {src: dest}
        else:
            below = self._below(source, src, as_folder(key), recursive=True)
            pairs = {each.path: dest + each.path[len(src) :] for each in below if each.type == FileType.File}
        if not pairs:
            raise NotFound("nothing there", url=source.url(key))
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
        extra = {_text(name): _text(value) for name, value in dict(metadata or {}).items()}
        kind = extra.pop("Content-Type", "")
        return PythonFile(source.open_write(key, metadata=extra, content_type=kind), mode="w")

    def open_append_stream(self, path: str, metadata: Mapping[str, str] | None) -> PythonFile:  # noqa: ARG002
        """Raise ``Unsupported``: objects are replaced, not appended to."""
        raise Unsupported("objects are replaced, not appended to: write another file", url=self._url(path))

    def _url(self, path: str) -> str:
        bare = self.normalize_path(path)
        if not bare:
            raise InvalidURL(f"buckets are not listed: name one, {self.scheme}://bucket/…")
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
        page = source.page(as_folder(key)) if key else None
        there = page is None or bool(page.entries)
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


def _text(value: str | bytes) -> str:
    return value.decode() if isinstance(value, bytes) else value
