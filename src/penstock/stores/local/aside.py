"""Atomic writes by a temporary file and a rename, durable after a power failure; opening of regular files only."""

from __future__ import annotations

import os
import re
import stat
from contextlib import contextmanager, suppress
from errno import EBADF, EINVAL, ENOLCK, ENOSYS, ENOTSUP
from fcntl import LOCK_EX, LOCK_NB, LOCK_UN, flock
from io import FileIO
from resource import RLIM_INFINITY, RLIMIT_NOFILE, getrlimit
from sys import maxsize
from typing import TYPE_CHECKING

from penstock.engine.contracts.driver import UNFINISHED
from penstock.engine.waiting import irrevocable
from penstock.errors import AlreadyExists, NotFound, PreconditionFailed, Transient, Unusable

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

_NAME = re.compile(r"\.penstock-[0-9a-f]{32}")
_NAME_BYTES = 16
_INCAPABLE = (EBADF, EINVAL, ENOLCK, ENOSYS, ENOTSUP)  # of file systems that cannot lock or sync a folder


def is_aside(name: str) -> bool:
    return _NAME.fullmatch(name) is not None


def is_reserved(key: str) -> bool:
    if UNFINISHED not in key:
        return False
    *folders, name = key.split("/")
    return name.startswith(UNFINISHED) or any(map(is_aside, folders))


def names(count: int) -> list[str]:
    """Return random names for files that are written together, from one system call."""
    drawn = int.from_bytes(os.urandom(_NAME_BYTES))
    return [f"{(drawn + number) % (1 << 8 * _NAME_BYTES):0{2 * _NAME_BYTES}x}" for number in range(count)]


def begin(path: str, name: str = "") -> tuple[str, int, os.stat_result | None]:
    """Create an empty file next to ``path``, and the folders above it; ``name`` is one of ``names``, by default new.

    Returns its path, its descriptor, and the status of the file that it will replace: None without one. During the
    write, only users who may read the replaced file may read the new one.
    """
    try:
        return _create_aside(path, name)
    except (FileNotFoundError, NotADirectoryError):
        _make(os.path.dirname(path))
    return _create_aside(path, name)


def hold(descriptor: int) -> int | None:
    """Lock a temporary file, so that others see that its writer is alive; if descriptors are scarce, close it: None."""
    if descriptor >= most_kept():
        os.close(descriptor)
        return None
    _lock(descriptor)
    return descriptor


def release(descriptor: int) -> None:
    """Unlock and close a temporary file, for all child processes forked meanwhile, too."""
    with suppress(OSError):
        flock(descriptor, LOCK_UN)
    os.close(descriptor)


def is_held(aside: str) -> bool:
    """Return whether the writer of a temporary file is alive, here or in another process. False if the file is gone."""
    try:
        descriptor = os.open(aside, os.O_RDONLY | os.O_CLOEXEC | os.O_NOFOLLOW | os.O_NONBLOCK)
    except OSError as error:
        return not isinstance(error, FileNotFoundError)
    try:
        return not _lock(descriptor)
    finally:
        release(descriptor)


def most_kept() -> int:
    """Return the lowest descriptor number to close early: from a quarter of the limit on, descriptors are scarce."""
    most = getrlimit(RLIMIT_NOFILE)[0]
    return maxsize if most == RLIM_INFINITY else most // 4


def settle(file: FileIO, path: str) -> os.stat_result:
    """Sync and close the temporary file, with mode and owner of the file that it will replace; return its status."""
    with file:
        descriptor = file.fileno()
        old = _there(path)
        if old is not None:
            inherit(descriptor, old)
        os.fsync(descriptor)
        return os.fstat(descriptor)


def publish(aside: str, path: str, rename: Callable[[str, str], None] = os.replace) -> None:
    """Rename the settled temporary file to ``path``, and sync the folder, unless the folder may not be read.

    A link at ``path`` is itself replaced, not its target.
    """
    with irrevocable():
        rename(aside, path)
    flush(os.path.dirname(path))


def renaming(etag: Callable[[os.stat_result], str], *, new: bool, old: str) -> Callable[[str, str], None]:
    """Return a function that renames a file: only to a free path (``new``), only over the ETag ``old``, or always."""
    return _create if new else _replace(etag, old) if old else os.replace


def _create(aside: str, path: str) -> None:
    try:
        os.link(aside, path)  # unlike rename, refuses to replace
    except FileExistsError as error:
        raise AlreadyExists("the file exists already", url=path) from error
    os.unlink(aside)


def _replace(etag: Callable[[os.stat_result], str], old: str) -> Callable[[str, str], None]:
    """Return a function that renames over the file with the ETag ``old``, and locks its folder for it.

    A writer without a condition, or another program, may still write between the check and the rename, and is then
    overwritten; so may any writer if folders cannot be locked (NFS, a folder that may not be read).
    """

    def rename(aside: str, path: str) -> None:
        with _lock_folder(os.path.dirname(aside)) as alone:
            if not alone:
                raise Transient("another writer is replacing a file in this folder", url=path)
            try:
                found = etag(os.stat(path))
            except FileNotFoundError:
                found = ""
            if found != old:
                raise PreconditionFailed("cannot replace: the file has changed since its ETag was read", url=path)
            os.replace(aside, path)

    return rename


class removed:  # noqa: N801  a context manager, lower case as in contextlib; not a generator, since every file uses one
    """Context manager that removes the temporary file after a failure."""

    __slots__ = ("_aside",)

    def __init__(self, aside: str) -> None:
        self._aside = aside

    def __enter__(self) -> None:
        """Do nothing."""

    def __exit__(self, kind: object, error: BaseException | None, trace: object) -> None:
        if error is not None:
            with suppress(OSError):
                os.unlink(self._aside)


def inherit(descriptor: int, old: os.stat_result, also: int = 0) -> None:
    """Copy the mode of the file to be replaced to its successor and, if this process may set them, owner and group."""
    now = os.fstat(descriptor)
    if (now.st_uid, now.st_gid) != (old.st_uid, old.st_gid):
        with suppress(PermissionError):
            os.fchown(descriptor, old.st_uid, old.st_gid)
    os.fchmod(descriptor, old.st_mode & 0o777 | also)


def flush(folder: str) -> None:
    """Sync a folder, so that renames in it survive a power failure, unless the folder may not be read."""
    if (descriptor := _open_folder(folder)) is None:
        return
    try:
        os.fsync(descriptor)
    except OSError as error:
        if error.errno not in _INCAPABLE:
            raise
    finally:
        os.close(descriptor)


def _create_aside(path: str, name: str) -> tuple[str, int, os.stat_result | None]:
    folder, mark, _ = path.rpartition("/")
    aside = f"{folder}{mark}{UNFINISHED}{name or names(1)[0]}"
    old = _there(path)
    flags = os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC
    descriptor = os.open(aside, flags, 0o666 if old is None else 0o600)
    if old is not None:
        try:
            inherit(descriptor, old, 0o600)
        except BaseException:
            os.close(descriptor)
            with suppress(OSError):
                os.unlink(aside)
            raise
    return aside, descriptor, old


def _there(path: str) -> os.stat_result | None:
    try:
        found = os.stat(path)
    except FileNotFoundError:  # also for a dangling link
        return None
    require(found, path)
    return found


def _make(folder: str) -> None:
    """Create a folder and its parents, and sync them, so that they survive a power failure."""
    missing = []
    while folder and not os.path.isdir(folder):
        missing.append(folder)
        folder = os.path.dirname(folder)
    for each in reversed(missing):
        try:
            os.mkdir(each)
        except FileExistsError as error:
            if not os.path.isdir(each):
                raise Unusable("this must be a directory, but is not", url=each) from error
        else:
            flush(os.path.dirname(each))


def _open_folder(path: str) -> int | None:
    """Open a folder to sync or lock it; None if it is not readable (a drop box), and so supports neither."""
    try:
        return os.open(path or "/", os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    except PermissionError:
        return None


@contextmanager
def _lock_folder(folder: str) -> Iterator[bool]:
    """Hold a folder's lock; yield False if another process holds it. Folders without locks count as held."""
    if (descriptor := _open_folder(folder)) is None:
        yield True
        return
    try:
        yield _lock(descriptor)
    finally:
        with suppress(OSError):
            # A child forked meanwhile has the descriptor, too, and would keep the lock.
            flock(descriptor, LOCK_UN)
        os.close(descriptor)


def _lock(descriptor: int) -> bool:
    try:
        flock(descriptor, LOCK_EX | LOCK_NB)
    except BlockingIOError:
        return False
    except OSError as error:
        if error.errno not in _INCAPABLE:
            raise
    return True


_FLAGS = os.O_RDONLY | os.O_CLOEXEC | os.O_NONBLOCK | os.O_NOCTTY
_KINDS = {
    stat.S_IFDIR: "a directory",
    stat.S_IFIFO: "a FIFO",
    stat.S_IFSOCK: "a socket",
    stat.S_IFCHR: "a character device",
    stat.S_IFBLK: "a block device",
}


def describe(path: str) -> os.stat_result:
    """Return the status of a regular file whose size its file system reports; links are followed."""
    found = _readable(os.stat(path), path)
    if not found.st_size:
        # Only to check that the file is really empty.
        with suppress(PermissionError), open_file_io(path):
            pass
    return found


def open_file_io(path: str, *, listed: bool = False) -> FileIO:
    return FileIO(open_regular(path, listed=listed)[0], "rb")


def open_regular(path: str, *, listed: bool = False) -> tuple[int, os.stat_result]:
    """Open a regular file for reading; return its descriptor and its status. Never blocks.

    The type is checked before the open, since opening a device may have effects, unless the file was ``listed`` as a
    regular file. It is always checked again after the open. Raises as ``describe``, and the errors of ``os.open``.
    """
    if not listed:
        _readable(os.stat(path), path)
    descriptor = os.open(path, _FLAGS)
    try:
        found = _readable(os.fstat(descriptor), path)
        if not found.st_size and _has_more(descriptor):
            raise Unusable(
                "the file system does not report the size of this file (as in /proc): copy it to a disk first", url=path
            )
    except BaseException:
        os.close(descriptor)
        raise
    return descriptor, found


def require(found: os.stat_result, path: str) -> None:
    if not stat.S_ISREG(found.st_mode):
        kind = _KINDS.get(stat.S_IFMT(found.st_mode), "something else")
        raise Unusable(f"this is {kind}, not a regular file: name a file", url=path)


def _readable(found: os.stat_result, path: str) -> os.stat_result:
    if stat.S_ISDIR(found.st_mode):
        raise NotFound("no such file (this is a directory)", url=path)
    require(found, path)
    return found


def _has_more(descriptor: int) -> bool:
    try:
        # A size now means that the byte was written since.
        return bool(os.pread(descriptor, 1, 0)) and not os.fstat(descriptor).st_size
    except OSError:
        return False
