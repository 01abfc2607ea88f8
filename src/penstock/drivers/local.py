"""Files of this machine as objects: a put writes aside and renames, so nothing half written is ever seen."""

from __future__ import annotations

import os
import shutil
from contextlib import contextmanager, suppress
from dataclasses import replace
from errno import EBADF, EDQUOT, EINVAL, EIO, ENOLCK, ENOSYS, ENOTSUP
from fcntl import LOCK_EX, LOCK_NB, LOCK_UN, flock
from mimetypes import guess_type
from pathlib import Path
from sys import maxsize
from typing import TYPE_CHECKING
from uuid import uuid4

from penstock.drivers.direct import direct, octets, page_of
from penstock.errors import (
    AlreadyExists,
    Changed,
    Damaged,
    Forbidden,
    InvalidURL,
    NoSpace,
    NotFound,
    PenstockError,
    PreconditionFailed,
    Transient,
    Truncated,
    Unusable,
)
from penstock.protocols.driver import Abilities
from penstock.values import ObjectMeta, Upload, Uploads

if TYPE_CHECKING:
    import io
    from collections.abc import Iterator, Sequence

    from penstock.protocols.driver import Attributes, Part, Payload
    from penstock.protocols.exchange import Exchange
    from penstock.target import Target
    from penstock.values import Page, Span

__all__ = ["Local"]

_ASIDE = ".penstock-"  # names that are being written; never listed
_PIECE_BYTES = 1 << 20


class Local:
    """The file system under ``root``; keys are paths relative to it, with ``/`` between components.

    An ETag is made of inode, size and modification time, so it changes when a file is replaced or rewritten.
    """

    abilities = Abilities(digests=False, copy_bytes=maxsize)

    def __init__(self, root: str = "/") -> None:
        """Serve the tree under ``root``."""
        self._root = root.rstrip("/") + "/"

    def url(self, key: str) -> str:
        """Return the path."""
        return self._root + key

    def prepare(self) -> None:
        """Nothing blocks here."""

    def head(self, key: str) -> Exchange[ObjectMeta]:
        """Describe one file, its content type by its name; a directory is no object."""

        def run() -> ObjectMeta:
            with self._errors(key):
                found = os.stat(self._path(key))
                if not os.path.isfile(self._path(key)):
                    raise NotFound("no such file (a directory is no object)", url=self.url(key))
                return replace(_meta(key, found), content_type=_type(key))

        return direct(run)

    def list(self, prefix: str, *, token: str = "", start_after: str = "", delimiter: str = "") -> Exchange[Page]:
        """List one page of the files whose path begins with ``prefix``, in UTF-8 byte order; links to files count."""

        def run() -> Page:
            with self._errors(prefix):
                after = token or start_after
                return page_of(self._walk(prefix, after), prefix, after=after, delimiter=delimiter)

        return direct(run)

    def read(self, span: Span, target: Target) -> Exchange[int]:
        """Read one span into the target."""

        def run() -> int:
            with self._errors(span.key), open(self._path(span.key), "rb", buffering=0) as file:
                size = self._pinned(file.fileno(), span.key, span.etag).size
                if span.whole and size != target.size:
                    raise Changed(
                        f"the file has {size} bytes and was listed with {target.size}", url=self.url(span.key)
                    )
                view, got = target.view(), 0
                while got < target.size and (count := os.preadv(file.fileno(), [view[got:]], span.start + got)):
                    got += count
                if got < target.size:
                    raise Truncated("the file ends before the range does", url=self.url(span.key))
                self._pinned(file.fileno(), span.key, span.etag)
                return got

        return direct(run)

    def get(self, key: str, etag: str) -> Exchange[bytes]:
        """Read a whole file."""

        def run() -> bytes:
            with self._errors(key), open(self._path(key), "rb", buffering=0) as file:
                before = self._pinned(file.fileno(), key, etag)
                data = file.readall()
                self._pinned(file.fileno(), key, before.etag)
                return data

        return direct(run)

    def put(self, key: str, body: Payload, attributes: Attributes) -> Exchange[str]:
        """Write aside, flush to the disk, rename. Files have no place for a content type or metadata."""

        def run() -> str:
            aside = self._aside(key)
            with self._errors(key, len(body.data)), _removed(aside):
                with open(aside, "xb", buffering=0) as file:
                    _write_all(file.fileno(), body.data, 0)
                return self._publish(aside, key, new=attributes.create_only, old=attributes.replaces)

        return direct(run)

    def delete(self, key: str) -> Exchange[None]:
        """Delete one file; a missing one is no error, and directories stay."""

        def run() -> None:
            with self._errors(key), suppress(FileNotFoundError):
                os.unlink(self._path(key))

        return direct(run)

    def copy(self, source: str, key: str, etag: str = "") -> Exchange[str]:
        """Copy one file aside and rename."""

        def run() -> str:
            with self._opened(source, etag) as file:
                aside = self._aside(key)
                with self._errors(key, _size(file)), _removed(aside):
                    with open(aside, "xb", buffering=0) as copy:
                        shutil.copyfileobj(file, copy, _PIECE_BYTES)
                    self._pinned(file.fileno(), source, etag)
                    return self._publish(aside, key)

        return direct(run)

    def create(self, key: str, attributes: Attributes) -> Exchange[str]:
        """Create the file aside; its path is the upload's id."""
        del attributes  # see put

        def run() -> str:
            aside = self._aside(key)
            with self._errors(key):
                open(aside, "xb").close()
            return aside

        return direct(run)

    def part(self, key: str, upload: str, part: Part, body: Payload) -> Exchange[str]:
        """Write one part where it belongs."""

        def run() -> str:
            with self._errors(key, len(body.data)), open(upload, "r+b", buffering=0) as file:
                _write_all(file.fileno(), body.data, part.offset)
            return str(part.number)

        return direct(run)

    def copy_part(self, key: str, upload: str, part: Part, span: Span) -> Exchange[str]:
        """Write a span of another file where the part belongs."""

        def run() -> str:
            at, stop = span.start, span.stop or 0
            with (
                self._opened(span.key, span.etag) as file,
                self._errors(key, stop - at),
                open(upload, "r+b", buffering=0) as copy,
            ):
                while at < stop:
                    data = os.pread(file.fileno(), min(_PIECE_BYTES, stop - at), at)
                    if not data:
                        raise Truncated("the file ends before the range does", url=self.url(span.key))
                    _write_all(copy.fileno(), data, part.offset + at - span.start)
                    at += len(data)
                self._pinned(file.fileno(), span.key, span.etag)
            return str(part.number)

        return direct(run)

    def complete(
        self, key: str, upload: str, etags: Sequence[str], *, create_only: bool = False, replaces: str = ""
    ) -> Exchange[str]:
        """Rename the file to where it is seen."""
        del etags

        def run() -> str:
            with self._errors(key):
                return self._publish(upload, key, new=create_only, old=replaces)

        return direct(run)

    def abort(self, key: str, upload: str) -> Exchange[None]:
        """Remove the file aside."""

        def run() -> None:
            with self._errors(key), suppress(FileNotFoundError):
                os.unlink(upload)

        return direct(run)

    def uploads(self, prefix: str, *, token: str = "") -> Exchange[Uploads]:
        """List the files aside below the prefix's folder, on one page; which keys they were for cannot be told."""
        del token

        def run() -> Uploads:
            folder = prefix.rpartition("/")[0]
            with self._errors(prefix):
                found = [
                    Upload(path[len(self._root) :], path, os.stat(path).st_mtime)
                    for at, _, names in os.walk(self._root + folder)
                    for path in [os.path.join(at, name) for name in names if name.startswith(_ASIDE)]
                ]
            return Uploads(tuple(sorted(found, key=lambda each: octets(each.key))))

        return direct(run)

    def _path(self, key: str) -> str:
        if not key or key.endswith("/"):
            raise InvalidURL("a file's path does not end in '/'", url=self.url(key))
        return self._root + key

    def _aside(self, key: str) -> str:
        path = Path(self._path(key))
        with self._errors(key):
            path.parent.mkdir(parents=True, exist_ok=True)
        return str(path.parent / f"{_ASIDE}{uuid4().hex}")

    def _publish(self, aside: str, key: str, *, new: bool = False, old: str = "") -> str:
        descriptor = os.open(aside, os.O_RDONLY)
        try:
            os.fsync(descriptor)
            etag = _meta(key, os.fstat(descriptor)).etag
        finally:
            os.close(descriptor)
        if new:
            try:
                os.link(aside, self._path(key))  # unlike rename, this refuses to replace
            except FileExistsError as error:
                raise AlreadyExists("there is a file already", url=self.url(key)) from error
            os.unlink(aside)
        elif old:
            self._replace(aside, key, old)
        else:
            os.replace(aside, self._path(key))
        return etag

    def _replace(self, aside: str, key: str, old: str) -> None:
        """Rename over the file whose ETag is ``old``, with the folder locked against others who do the same.

        Who writes without a condition, or with another program, may still come between the look and the rename, and is
        replaced; so may anybody where folders cannot be locked (NFS).
        """
        with _locked(os.path.dirname(aside)) as alone:
            if not alone:
                raise Transient("another writer is replacing a file in this folder", url=self.url(key))
            try:
                found = _meta(key, os.stat(self._path(key))).etag
            except FileNotFoundError:
                found = ""
            if found != old:
                raise PreconditionFailed("the file is no longer the one that was to be replaced", url=self.url(key))
            os.replace(aside, self._path(key))

    def _opened(self, key: str, etag: str) -> io.FileIO:
        with self._errors(key):
            file = open(self._path(key), "rb", buffering=0)  # noqa: SIM115  the caller's to close
            try:
                self._pinned(file.fileno(), key, etag)
            except Changed:
                file.close()
                raise
            return file

    def _pinned(self, descriptor: int, key: str, etag: str) -> ObjectMeta:
        found = _meta(key, os.fstat(descriptor))
        if etag and etag != found.etag:
            raise Changed("the file is no longer the one that was listed or opened", url=self.url(key))
        return found

    def _walk(self, prefix: str, after: str) -> Iterator[ObjectMeta]:
        """Yield files in key order, skipping directories that lie wholly before ``after``."""
        folder = prefix.rpartition("/")[0]
        pending = [f"{folder}/" if folder else ""]
        while pending:
            at = pending.pop()
            if at.endswith("/") or not at:
                children = sorted(self._children(at), key=octets, reverse=True)
                pending += [
                    child
                    for child in children
                    if (child.startswith(prefix) or prefix.startswith(child))
                    and (octets(child) > octets(after) or after.startswith(child))
                ]
            elif at.startswith(prefix):
                with suppress(FileNotFoundError):  # deleted while listing
                    yield _meta(at, os.stat(self._root + at))

    def _children(self, folder: str) -> Sequence[str]:
        try:
            with os.scandir(self._root + folder) as entries:
                return [
                    f"{folder}{entry.name}/" if entry.is_dir(follow_symlinks=False) else folder + entry.name
                    for entry in entries
                    if not entry.name.startswith(_ASIDE) and (entry.is_dir(follow_symlinks=False) or entry.is_file())
                ]
        except (FileNotFoundError, NotADirectoryError):
            return []

    @contextmanager
    def _errors(self, key: str, writing_bytes: int = 0) -> Iterator[None]:
        try:
            yield
        except PenstockError:
            raise
        except (FileNotFoundError, NotADirectoryError, IsADirectoryError) as error:
            raise NotFound(f"no such file: {error.strerror}", url=self.url(key)) from error
        except PermissionError as error:
            raise Forbidden(f"not allowed: {error.strerror}", url=self.url(key)) from error
        except ValueError as error:
            raise InvalidURL(f"no file can be called that: {error}", url=self.url(key)) from error
        except OSError as error:
            if error.errno in NoSpace.ERRNOS:
                raise NoSpace(self._room(error, key, writing_bytes), url=self.url(key)) from error
            kind = Damaged if error.errno in _BROKEN else Unusable
            raise kind(f"the file system refused: {error.strerror}", url=self.url(key)) from error

    def _room(self, error: OSError, key: str, writing_bytes: int) -> str:
        """Say how much was to be written and how much would have gone there; a quota's rest nobody tells."""
        said = error.strerror or "no space left"
        if not writing_bytes:
            return said
        said = f"{said}: {writing_bytes} bytes were to be written"
        with suppress(OSError):
            found = os.statvfs(os.path.dirname(self._path(key)))
            return said if error.errno == EDQUOT else f"{said}, {found.f_bavail * found.f_frsize} are free"
        return said


_BROKEN = (EIO,)
_LOCKLESS = (EBADF, EINVAL, ENOLCK, ENOSYS, ENOTSUP)  # what file systems say that cannot lock a folder


def _size(file: io.FileIO) -> int:
    return os.fstat(file.fileno()).st_size


def _meta(key: str, found: os.stat_result) -> ObjectMeta:
    etag = f"{found.st_ino:x}-{found.st_size:x}-{found.st_mtime_ns:x}"
    return ObjectMeta(key, found.st_size, etag, found.st_mtime)


def _type(key: str) -> str:
    """Guess a content type by a name; of what is compressed nothing: it would be what it is a type of unpacked."""
    kind, packed = guess_type(f"x/{key}")  # not a URL, whatever it begins with
    return "" if packed else kind or ""


def _write_all(descriptor: int, data: bytes | bytearray | memoryview, offset: int) -> None:
    view, done = memoryview(data).cast("B"), 0
    while done < len(view):
        done += os.pwrite(descriptor, view[done:], offset + done)


@contextmanager
def _locked(folder: str) -> Iterator[bool]:
    """Hold a folder's lock and say so; False: another has it. Where folders have none it is as if held."""
    descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
    try:
        yield _lock(descriptor)
    finally:
        with suppress(OSError):
            flock(descriptor, LOCK_UN)  # a child forked meanwhile has the descriptor too, and would keep the lock
        os.close(descriptor)


def _lock(descriptor: int) -> bool:
    try:
        flock(descriptor, LOCK_EX | LOCK_NB)
    except BlockingIOError:
        return False
    except OSError as error:
        if error.errno not in _LOCKLESS:
            raise
    return True


@contextmanager
def _removed(aside: str) -> Iterator[None]:
    """Remove the file aside when the block fails."""
    try:
        yield
    except BaseException:
        with suppress(OSError):
            os.unlink(aside)
        raise
