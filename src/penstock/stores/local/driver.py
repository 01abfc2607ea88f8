"""``file://`` and bare paths: files of this machine as objects, each written atomically.

A put writes a temporary file and renames it. A batch of small files flushes its folders once for all. A listing walks
a directory tree in byte order of the paths, not through linked folders.
"""

from __future__ import annotations

import os
from contextlib import contextmanager, suppress
from dataclasses import replace
from errno import EDQUOT, EIO, ELOOP
from io import FileIO
from time import monotonic
from typing import TYPE_CHECKING, NamedTuple

from penstock.engine.contracts.driver import UNKNOWN_BYTES, Abilities, Ending
from penstock.engine.waiting import irrevocable
from penstock.errors import (
    Changed,
    Damaged,
    Forbidden,
    InvalidURL,
    NoSpace,
    NotFound,
    PenstockError,
    Transient,
    Truncated,
    Unusable,
)
from penstock.stores.direct import blocking, group_prefixes, key_bytes, page_from, reading, too_large
from penstock.stores.local import aside as asides
from penstock.stores.local.aside import begin, flush, inherit, is_aside, most_kept, names
from penstock.stores.store import Opening, Store
from penstock.values import ObjectMeta, Span, Upload, Uploads, content_type_of

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Mapping, MutableSequence, Sequence

    from penstock.engine.buffer import Buffer
    from penstock.engine.contracts.driver import Attributes, Beginning, Driver, Payload, UploadPart
    from penstock.engine.contracts.exchange import Transport
    from penstock.values import Page

    Items = Iterator[ObjectMeta | str]

_PIECE_BYTES = 1 << 20


class LocalDriver:
    """File system under ``root``; keys are paths relative to it, with ``/`` between components.

    An ETag consists of inode, size and modification time, so it changes when a file is replaced or rewritten.
    """

    abilities = Abilities(digest=None)

    def __init__(self, root: str = "/") -> None:
        self._root = root.rstrip("/") + "/"
        self._walks = DirectoryWalks()
        self._held: dict[str, int | None] = {}  # by temporary file: the descriptor that locks it
        self._times: dict[str, Mapping[str, str]] = {}  # by temporary file: the upload's metadata with mtime

    def url(self, key: str) -> str:
        return self._root + key

    def prepare(self) -> None:
        """Do nothing: nothing blocks here."""

    @blocking
    def head(self, key: str) -> ObjectMeta:
        """Describe one file, with a content type by its name; a directory raises ``NotFound``."""
        with self._errors(key):
            found = asides.describe(self._allowed(key))
            return replace(_meta(key, found), content_type=content_type_of(key))

    @blocking
    def list(self, prefix: str, *, token: str = "", start_after: str = "", delimiter: str = "") -> Page:
        """List one page of files whose path begins with ``prefix``, in UTF-8 byte order; includes links to files."""
        with self._errors(prefix):
            items = self._walks.left(prefix, delimiter, token)
            if items is None:
                after = token or start_after
                found = (_meta(*each) for each in walk(self._root, prefix, after))
                items = group_prefixes(found, prefix, after, delimiter)
            page, left = page_from(items)
            # Many listings only ask for the first page: do not keep those.
            if token:
                self._walks.keep(prefix, delimiter, page.token, left)
            return page

    @reading
    def read(self, span: Span, target: Buffer) -> tuple[int, str]:
        key, etag = span.key, span.etag
        with self._errors(key):
            descriptor, found = asides.open_regular(self._allowed(key), listed=bool(etag))
            try:
                self._check(found, key, etag)
                if span.whole and found.st_size != target.size:
                    message = f"the file has {found.st_size} bytes, but was listed with {target.size}"
                    raise Changed(message, url=self.url(key))
                self._fill(descriptor, key, target.view(), span.start)
                self._check(after := os.fstat(descriptor), key, etag)
            finally:
                os.close(descriptor)
        # A file that is written to meanwhile, such as a log, has no version.
        version = etag or _etag(found)
        return target.size, version if etag or version == _etag(after) else ""

    @blocking
    def suffix(self, key: str, etag: str, target: Buffer) -> Ending | None:
        with self._opened(key, etag) as (file, found):
            start = max(0, found.size - target.size)
            self._fill(file.fileno(), key, target.view()[: found.size - start], start)
            self._check(os.fstat(file.fileno()), key, found.etag)
            return Ending(start, found.size, found.etag, found.size - start)

    @reading
    def get(
        self, key: str, etag: str, most_bytes: int = UNKNOWN_BYTES, buffer: Buffer | None = None
    ) -> tuple[bytes | Beginning, str]:
        del buffer  # the size is known before the read
        with self._opened(key, etag) as (file, before):
            if before.size > most_bytes:
                raise too_large(most_bytes, self.url(key))
            data = file.readall()
            self._check(os.fstat(file.fileno()), key, before.etag)
            return data, before.etag

    @blocking
    def put(self, key: str, body: Payload, attributes: Attributes) -> str:
        """Write a temporary file, flush it, rename it. Content type and metadata are dropped, except ``mtime``.

        That is the modification time, in seconds since the epoch; rclone and s3fs use the same name.
        """
        (found,) = self._put_all(((key, body, attributes),))
        if isinstance(found, PenstockError):
            raise found
        return found

    @blocking
    def put_many(self, prefix: str, puts: Sequence[tuple[str, Payload, Attributes]]) -> Sequence[str | PenstockError]:
        """Write files as ``put`` does; their folders are flushed once for all of them."""
        del prefix  # for messages without a key
        return self._put_all(puts)

    @blocking
    def delete(self, key: str) -> None:
        """Delete one file; a missing file is not an error, and directories stay."""
        with self._errors(key), suppress(FileNotFoundError):
            try:
                with irrevocable():
                    os.unlink(self._path(key))
            except IsADirectoryError as error:
                raise Unusable(
                    "this is a directory, but delete removes only files: use penstock rm -r for its contents",
                    url=self.url(key),
                ) from error

    @blocking
    def copy(self, source: str, key: str, etag: str = "") -> str:
        with self._opened(source, etag) as (file, found), self._errors(key, found.size):
            aside, descriptor, _ = asides.begin(self._allowed(key))
            with asides.removed(aside), FileIO(descriptor, "r+b") as copy:
                self._transfer(file, copy, Span(source, 0, found.size), 0)
                self._check(os.fstat(file.fileno()), source, found.etag)
                return self._publish(aside, copy, key)

    @blocking
    def create(self, key: str, attributes: Attributes) -> str:
        with self._errors(key):
            aside, descriptor, _ = asides.begin(self._allowed(key))
            self._held[aside] = asides.hold(descriptor)
        if "mtime" in attributes.metadata:
            self._times[aside] = attributes.metadata
        return aside

    @blocking
    def part(self, key: str, upload: str, part: UploadPart, body: Payload) -> str:
        with self._errors(key, len(body.data)), open(upload, "r+b", buffering=0) as file:
            write_all(file.fileno(), body.data, part.offset)
        return str(part.number)

    @blocking
    def copy_part(self, key: str, upload: str, part: UploadPart, span: Span) -> str:
        with (
            self._opened(span.key, span.etag) as (file, _),
            self._errors(key, (span.stop or 0) - span.start),
            open(upload, "r+b", buffering=0) as copy,
        ):
            self._transfer(file, copy, span, part.offset)
            self._check(os.fstat(file.fileno()), span.key, span.etag)
        return str(part.number)

    @blocking
    def complete(
        self, key: str, upload: str, etags: Sequence[str], *, create_only: bool = False, replaces: str = ""
    ) -> str:
        del etags
        with self._errors(key):
            file = FileIO(os.open(upload, os.O_RDONLY | os.O_CLOEXEC), "rb")
            with file:
                set_time(file.fileno(), self._times.pop(upload, {}))
                found = self._publish(upload, file, key, new=create_only, old=replaces)
            self._release(upload)
            return found

    @blocking
    def abort(self, key: str, upload: str) -> None:
        self._times.pop(upload, None)
        with self._errors(key), suppress(FileNotFoundError):
            os.unlink(upload)
        self._release(upload)

    @blocking
    def uploads(self, prefix: str, *, token: str = "") -> Uploads:
        """List temporary files under ``prefix`` without a living writer, on one page; final keys are unknown."""
        del token
        with self._errors(prefix):
            found = list_unfinished(self._root, prefix)
            return Uploads(tuple(each for each in found if not asides.is_held(each.id)))

    def _release(self, upload: str) -> None:
        if (descriptor := self._held.pop(upload, None)) is not None:
            asides.release(descriptor)

    def _path(self, key: str) -> str:
        if not key or key.endswith("/"):
            below = "ps.sync copies all below a prefix, and ps.delete takes ps.list(url)"
            raise InvalidURL(f"the path of a file must not end in '/'; {below}", url=self.url(key))
        return self._root + key

    def _allowed(self, key: str) -> str:
        if asides.is_reserved(key):
            raise InvalidURL(
                "names that begin with '.penstock-' are reserved for files being written", url=self.url(key)
            )
        return self._path(key)

    def _publish(self, aside: str, file: FileIO, key: str, *, new: bool = False, old: str = "") -> str:
        path = self._path(key)
        found = asides.settle(file, path)
        asides.publish(aside, path, asides.renaming(_etag, new=new, old=old))
        return _etag(found)

    def _put_all(self, puts: Sequence[tuple[str, Payload, Attributes]]) -> Sequence[str | PenstockError]:
        files: dict[int, NewFile] = {}
        results: MutableSequence[str | PenstockError] = []
        for number, (key, body, attributes) in enumerate(puts):
            rename = asides.renaming(_etag, new=attributes.create_only, old=attributes.replaces)
            try:
                files[number] = NewFile(self._allowed(key), body.data, attributes.metadata, rename)
                results.append("")
            except InvalidURL as error:
                results.append(error)
        for number, found in zip(files, write_files([*files.values()]), strict=True):
            key, body, _ = puts[number]
            results[number] = _etag(found) if isinstance(found, os.stat_result) else self._ours(found, key, body)
        return results

    def _ours(self, error: OSError | ValueError | PenstockError, key: str, body: Payload) -> PenstockError:
        if isinstance(error, PenstockError):
            return error
        ours = self.error(error, key, len(body.data))
        ours.__cause__ = error
        return ours

    def _transfer(self, file: FileIO, copy: FileIO, span: Span, offset: int) -> None:
        at, stop = span.start, span.stop or 0
        while at < stop:
            data = os.pread(file.fileno(), min(_PIECE_BYTES, stop - at), at)
            if not data:
                raise Truncated("the file ends before the range does", url=self.url(span.key))
            write_all(copy.fileno(), data, offset + at - span.start)
            at += len(data)

    def _fill(self, descriptor: int, key: str, view: memoryview, start: int) -> None:
        got = 0
        while got < len(view) and (count := os.preadv(descriptor, [view[got:]], start + got)):
            got += count
        if got < len(view):
            raise Truncated("the file ends before the range does", url=self.url(key))

    @contextmanager
    def _opened(self, key: str, etag: str) -> Iterator[tuple[FileIO, ObjectMeta]]:
        with self._errors(key), asides.open_file_io(self._allowed(key), listed=bool(etag)) as file:
            found = os.fstat(file.fileno())
            self._check(found, key, etag)
            yield file, _meta(key, found)

    def _check(self, found: os.stat_result, key: str, etag: str) -> None:
        if etag and etag != _etag(found):
            raise Changed("the file has changed since it was listed or opened", url=self.url(key))

    def _errors(self, key: str, writing_bytes: int = 0) -> _Errors:
        return _Errors(self, key, writing_bytes)

    def error(self, error: OSError | ValueError, key: str, writing_bytes: int) -> PenstockError:
        if isinstance(error, (FileNotFoundError, NotADirectoryError, IsADirectoryError)):
            folder = os.path.dirname(self.url(key))
            text = f"no such file: {error.strerror}"
            if not os.path.isdir(folder):
                text = f"no such folder: {folder}; a path without s3:// is local"
            absent = NotFound(text, url=self.url(key))
            if link := _broken_link(self.url(key)):
                absent = NotFound(f"the link {link} leads to a file that does not exist", url=self.url(key))
                absent.missing = "target"
            return absent
        if isinstance(error, PermissionError):
            return Forbidden(f"not allowed: {error.strerror}", url=self._below(error, key))
        if isinstance(error, ValueError):
            return InvalidURL(f"invalid file name: {error}", url=self.url(key))
        # Files are opened without blocking: NFS or Samba hold a lease, and give it up now.
        if isinstance(error, BlockingIOError):
            return Transient("another host holds a lease on this file", url=self.url(key))
        if error.errno in NoSpace.ERRNOS:
            return NoSpace(self._room(error, key, writing_bytes), url=self.url(key))
        kind = Damaged if error.errno in _BROKEN else Unusable
        return kind(f"the file system refused: {error.strerror}", url=self.url(key))

    def _below(self, error: OSError, key: str) -> str:
        """Return the path in an error if it is below ``key`` (a listed prefix), else the path of ``key``."""
        path, url = error.filename, self.url(key)
        return path if isinstance(path, str) and path.startswith(url) else url

    def _room(self, error: OSError, key: str, writing_bytes: int) -> str:
        """Return the text for a full disk or quota: the bytes to be written and, for a disk, the free bytes."""
        text = error.strerror or "no space left"
        if not writing_bytes:
            return text
        text = f"{text}: cannot write {writing_bytes} bytes"
        with suppress(OSError):
            found = os.statvfs(os.path.dirname(self._path(key)))
            return text if error.errno == EDQUOT else f"{text}, {found.f_bavail * found.f_frsize} bytes are left"
        return text


class _Errors:
    """Context manager that translates errors of the file system; not a generator, since each file uses several."""

    __slots__ = ("_driver", "_key", "_writing_bytes")

    def __init__(self, driver: LocalDriver, key: str, writing_bytes: int) -> None:
        self._driver, self._key, self._writing_bytes = driver, key, writing_bytes

    def __enter__(self) -> None:
        """Do nothing."""

    def __exit__(self, kind: object, error: BaseException | None, trace: object) -> None:
        if isinstance(error, (OSError, ValueError)) and not isinstance(error, PenstockError):
            raise self._driver.error(error, self._key, self._writing_bytes) from error


_BROKEN = (EIO,)


def _etag(found: os.stat_result) -> str:
    return f"{found.st_ino:x}-{found.st_size:x}-{found.st_mtime_ns:x}"


def _meta(key: str, found: os.stat_result) -> ObjectMeta:
    return ObjectMeta(key, found.st_size, _etag(found), found.st_mtime)


_MOST = 4  # listings in progress; each holds the names in its current folders
_LONG_S = 60.0  # a later page is treated as a new listing's


class DirectoryWalks:
    """Rest of the latest listings, by the token of their last page.

    Each page takes the rest and keeps it again, so two threads never continue the same one. A token without a rest is
    not an error: the driver walks again. The contents of a folder are never older than the listing that continues.
    """

    def __init__(self) -> None:
        self._left: dict[tuple[str, str, str], tuple[float, Items]] = {}

    def left(self, prefix: str, delimiter: str, token: str) -> Items | None:
        """Remove and return the items after a page; None if they are unknown.

        Without a token a new listing begins, and the rests of earlier listings of this prefix are dropped.
        """
        if not token:
            for key in [key for key in list(self._left) if key[:2] == (prefix, delimiter)]:
                self._left.pop(key, None)
        kept_s, items = self._left.pop((prefix, delimiter, token), (-_LONG_S, None))
        return items if monotonic() - kept_s < _LONG_S else None

    def keep(self, prefix: str, delimiter: str, token: str, items: Items) -> None:
        """Keep the items after the page with this token; an empty token marks the end."""
        if token:
            self._left[prefix, delimiter, token] = monotonic(), items
            for oldest in list(self._left)[:-_MOST]:
                self._left.pop(oldest, None)


class NewFile(NamedTuple):
    """File to be written: its path, its bytes, metadata (only ``mtime`` counts), and the function that renames it."""

    path: str
    data: bytes | bytearray | memoryview
    metadata: Mapping[str, str]
    rename: Callable[[str, str], None] = os.replace


def write_files(files: Sequence[NewFile]) -> list[os.stat_result | OSError | ValueError | PenstockError]:
    """Write files, and return for each its status or the error.

    All are written before the first is flushed, and all are flushed before the first is renamed: on most file systems
    the first flush commits the data of the others, too.
    """
    most = most_kept()
    begun = [_Aside(file, name, most) for file, name in zip(files, names(len(files)), strict=True)]
    try:
        for stage in (_Aside.write, _Aside.settle, _Aside.publish):
            _each(begun, stage)
        folders: dict[str, list[_Aside]] = {}
        for aside in begun:
            folders.setdefault(aside.file.path.rpartition("/")[0], []).append(aside)
        for folder, inside in folders.items():
            _flush(folder, inside)
    finally:
        for aside in begun:
            aside.close()
    return [aside.error or aside.found for aside in begun]


class _Aside:
    """File that is being written: the request, the status once it is settled, or the error that prevented the write."""

    __slots__ = ("_descriptor", "_most", "_name", "_old", "_path", "error", "file", "found")

    def __init__(self, file: NewFile, name: str, most: int) -> None:
        """Begin with nothing: ``name`` is the temporary file's; descriptors from ``most`` on are not kept open."""
        self.file = file
        self._name, self._most = name, most
        self.found: os.stat_result
        self.error: OSError | ValueError | PenstockError | None = None
        self._path = ""
        self._descriptor = -1
        self._old: os.stat_result | None = None

    def write(self) -> None:
        self._path, self._descriptor, self._old = begin(self.file.path, self._name)
        write_all(self._descriptor, self.file.data, 0)
        set_time(self._descriptor, self.file.metadata)
        if self._descriptor >= self._most:
            self._let_go()

    def settle(self) -> None:
        if self._descriptor < 0:
            self._descriptor = os.open(self._path, os.O_RDONLY | os.O_CLOEXEC)
        if self._old is not None:
            inherit(self._descriptor, self._old)
        os.fsync(self._descriptor)
        self.found = os.fstat(self._descriptor)
        self._let_go()

    def publish(self) -> None:
        with irrevocable():
            self.file.rename(self._path, self.file.path)
        self._path = ""

    def close(self) -> None:
        if self._descriptor >= 0:
            with suppress(OSError):
                self._let_go()
        if self._path:
            with suppress(OSError):
                os.unlink(self._path)

    def _let_go(self) -> None:
        descriptor, self._descriptor = self._descriptor, -1
        os.close(descriptor)


def _each(begun: Iterable[_Aside], stage: Callable[[_Aside], None]) -> None:
    for aside in begun:
        if aside.error is None:
            try:
                stage(aside)
            except (OSError, ValueError, PenstockError) as error:
                aside.error = error


def _flush(folder: str, inside: Sequence[_Aside]) -> None:
    try:
        if any(aside.error is None for aside in inside):
            flush(folder)
    except OSError as error:
        for aside in inside:
            aside.error = aside.error or error


def write_all(descriptor: int, data: bytes | bytearray | memoryview, offset: int) -> None:
    view, done = memoryview(data).cast("B"), 0
    while done < len(view):
        done += os.pwrite(descriptor, view[done:], offset + done)


def set_time(descriptor: int, metadata: Mapping[str, str]) -> None:
    """Set a file's modification time to ``mtime`` of the metadata, if there is one: seconds since the epoch."""
    if "mtime" not in metadata:
        return
    with suppress(ValueError, OverflowError):  # not a valid time
        nanoseconds = round(float(metadata["mtime"]) * 1e9)
        os.utime(descriptor, ns=(nanoseconds, nanoseconds))


class Local(Store):
    """``file://`` and bare paths. The bucket is empty, and a key is an absolute path without its leading slash."""

    name = "the file system"
    schemes = ("file",)
    abilities = LocalDriver.abilities
    any_options = True

    def open(self, opening: Opening) -> tuple[Driver, Transport]:  # noqa: ARG002  there is one file system
        from penstock.engine.transport.work import Threads

        return LocalDriver(), Threads()

    def bucket_fault(self, bucket: str) -> str:
        fault = "a file URL names no host: write file:///absolute/path with three slashes, or a bare path"
        return fault if bucket else ""


def walk(root: str, prefix: str, after: str) -> Iterator[tuple[str, os.stat_result]]:
    """Yield files below ``root`` whose key begins with ``prefix``, in key order; includes links to files.

    Directories wholly before ``after`` are skipped. A link to a directory is followed only if ``prefix`` itself leads
    through it, so a cycle of links ends.
    """
    folder = prefix.rpartition("/")[0]
    pending = [f"{folder}/" if folder else ""]
    while pending:
        at = pending.pop()
        if at.endswith("/") or not at:
            children = sorted(_children(root, at), key=key_bytes, reverse=True)
            pending += [
                child
                for child in children
                if (child.startswith(prefix) or prefix.startswith(child))
                and (key_bytes(child) > key_bytes(after) or after.startswith(child))
            ]
        elif at.startswith(prefix):
            with suppress(FileNotFoundError):  # deleted while listing
                yield at, os.stat(root + at)


def list_unfinished(root: str, prefix: str) -> list[Upload]:
    """Return the temporary files whose own path begins with ``prefix``; their final keys are unknown."""
    found = []
    for at, _, files in os.walk(root + prefix.rpartition("/")[0]):
        for path in (os.path.join(at, name) for name in files if is_aside(name)):
            if path.startswith(root + prefix):
                with suppress(FileNotFoundError):  # published or removed while listing
                    found.append(Upload(path[len(root) :], path, os.lstat(path).st_mtime))
    return sorted(found, key=lambda each: key_bytes(each.key))


def _broken_link(path: str) -> str:
    """Return the link on the way to a path whose target does not exist; empty if there is none."""
    while len(above := os.path.dirname(path)) < len(path):
        if os.path.islink(path):
            return "" if os.path.exists(path) else path
        path = above
    return ""


def _children(root: str, folder: str) -> Sequence[str]:
    try:
        with os.scandir(root + folder) as entries:
            return [
                f"{folder}{entry.name}/" if entry.is_dir(follow_symlinks=False) else folder + entry.name
                for entry in entries
                if not is_aside(entry.name) and (entry.is_dir(follow_symlinks=False) or _is_file(entry))
            ]
    except (FileNotFoundError, NotADirectoryError):
        return []


def _is_file(entry: os.DirEntry[str]) -> bool:
    try:
        return entry.is_file()
    except OSError as error:
        if error.errno != ELOOP:  # a link to itself is not a file
            raise
        return False
