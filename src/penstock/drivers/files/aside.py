"""Writes a file beside the one it will be, and renames: what is seen is whole, and survives a power failure."""

from __future__ import annotations

import os
import re
from contextlib import contextmanager, suppress
from errno import EBADF, EINVAL, ENOLCK, ENOSYS, ENOTSUP
from fcntl import LOCK_EX, LOCK_NB, LOCK_UN, flock
from typing import TYPE_CHECKING

from penstock.drivers.files.regular import require
from penstock.errors import AlreadyExists, PreconditionFailed, Transient, Unusable
from penstock.protocols.driver import UNFINISHED

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from io import FileIO

__all__ = [
    "begin",
    "flush",
    "inherit",
    "is_aside",
    "is_reserved",
    "names",
    "publish",
    "removed",
    "renaming",
    "settle",
]

_NAME = re.compile(r"\.penstock-[0-9a-f]{32}")
_NAME_BYTES = 16
_INCAPABLE = (EBADF, EINVAL, ENOLCK, ENOSYS, ENOTSUP)  # of file systems that can neither lock nor sync a folder


def is_aside(name: str) -> bool:
    """Say whether a file or folder of this name is one that is being written."""
    return _NAME.fullmatch(name) is not None


def is_reserved(key: str) -> bool:
    """Say whether a key cannot be told from a file that is being written, or lies in a folder that is."""
    if UNFINISHED not in key:
        return False
    *folders, name = key.split("/")
    return name.startswith(UNFINISHED) or any(map(is_aside, folders))


def names(count: int) -> list[str]:
    """Draw names for files that are written together: one call of the system for all of them."""
    drawn = int.from_bytes(os.urandom(_NAME_BYTES))
    return [f"{(drawn + number) % (1 << 8 * _NAME_BYTES):0{2 * _NAME_BYTES}x}" for number in range(count)]


def begin(path: str, name: str = "") -> tuple[str, int, os.stat_result | None]:
    """Create an empty file beside ``path``, and the folders above it.

    Returns its path, its descriptor, and what is known of the file that it will replace: None where there is none.
    While it is written, only those may read it who may read what it will replace. ``name`` is one of ``names``; by
    default it is drawn.

    Raises:
        Unusable: At ``path`` there is something that is no regular file, or above it something that is no folder.

    """
    try:
        return _created(path, name)
    except (FileNotFoundError, NotADirectoryError):
        _make(os.path.dirname(path))
    return _created(path, name)


def settle(file: FileIO, path: str) -> os.stat_result:
    """Sync the file aside, and close it; return what is known of it then.

    What it will replace at ``path`` hands down its mode and, where this process may set them, its owner and group.
    """
    with file:
        descriptor = file.fileno()
        old = _there(path)
        if old is not None:
            inherit(descriptor, old)
        os.fsync(descriptor)
        return os.fstat(descriptor)


def publish(aside: str, path: str, rename: Callable[[str, str], None] = os.replace) -> None:
    """Make the file aside, which is settled, the one at ``path``, and sync the folder, unless it may not be read.

    At ``path`` a link is replaced, and not what it points to.

    Args:
        aside: As ``begin`` returned it.
        path: The file's own path.
        rename: Puts the first path in the second's place.

    """
    rename(aside, path)
    flush(os.path.dirname(path))


def renaming(etag: Callable[[os.stat_result], str], *, new: bool, old: str) -> Callable[[str, str], None]:
    """Return what renames a file to its place: where there is none (``new``), over the ETag ``old``, or in any case."""
    return _create if new else _replace(etag, old) if old else os.replace


def _create(aside: str, path: str) -> None:
    """Rename where there is nothing; raises ``AlreadyExists``."""
    try:
        os.link(aside, path)  # unlike rename, this refuses to replace
    except FileExistsError as error:
        raise AlreadyExists("there is a file already", url=path) from error
    os.unlink(aside)


def _replace(etag: Callable[[os.stat_result], str], old: str) -> Callable[[str, str], None]:
    """Return what renames over the file whose ETag is ``old``, its folder locked against others who do the same.

    Who writes without a condition, or with another program, may still come between the look and the rename, and is
    replaced; so may anybody where folders cannot be locked (NFS, a folder that may not be read).
    """

    def rename(aside: str, path: str) -> None:
        with _locked(os.path.dirname(aside)) as alone:
            if not alone:
                raise Transient("another writer is replacing a file in this folder", url=path)
            try:
                found = etag(os.stat(path))
            except FileNotFoundError:
                found = ""
            if found != old:
                raise PreconditionFailed("the file is no longer the one that was to be replaced", url=path)
            os.replace(aside, path)

    return rename


class removed:  # noqa: N801  a block's name, as contextlib has them; no generator, as there is one for each file
    """A block after whose failure the file aside is removed."""

    __slots__ = ("_aside",)

    def __init__(self, aside: str) -> None:
        self._aside = aside

    def __enter__(self) -> None:
        """Do nothing."""

    def __exit__(self, kind: object, error: BaseException | None, trace: object) -> None:
        """Remove the file after a failure."""
        if error is not None:
            with suppress(OSError):
                os.unlink(self._aside)


def inherit(descriptor: int, old: os.stat_result, also: int = 0) -> None:
    """Give a file the mode of the one that it will replace and, where this process may set them, owner and group."""
    now = os.fstat(descriptor)
    if (now.st_uid, now.st_gid) != (old.st_uid, old.st_gid):
        with suppress(PermissionError):
            os.fchown(descriptor, old.st_uid, old.st_gid)
    os.fchmod(descriptor, old.st_mode & 0o777 | also)


def flush(folder: str) -> None:
    """Have what was renamed in a folder survive a power failure, unless the folder may not be read."""
    if (descriptor := _folder(folder)) is None:
        return
    try:
        os.fsync(descriptor)
    except OSError as error:
        if error.errno not in _INCAPABLE:
            raise
    finally:
        os.close(descriptor)


def _created(path: str, name: str) -> tuple[str, int, os.stat_result | None]:
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
    """Return what is known of the file that will be replaced; None for none."""
    try:
        found = os.stat(path)
    except FileNotFoundError:  # a link to nothing is replaced as well
        return None
    require(found, path)
    return found


def _make(folder: str) -> None:
    """Make a folder and those above it, and have each survive a power failure."""
    missing = []
    while folder and not os.path.isdir(folder):
        missing.append(folder)
        folder = os.path.dirname(folder)
    for each in reversed(missing):
        try:
            os.mkdir(each)
        except FileExistsError as error:
            if not os.path.isdir(each):
                raise Unusable("this is needed as a directory and is something else", url=each) from error
        else:
            flush(os.path.dirname(each))


def _folder(path: str) -> int | None:
    """Open a folder to sync or lock it; None where it may be written and not read (a drop box): it can be neither."""
    try:
        return os.open(path or "/", os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    except PermissionError:
        return None


@contextmanager
def _locked(folder: str) -> Iterator[bool]:
    """Hold a folder's lock and say so; False: another has it. Where folders have none it is as if held."""
    if (descriptor := _folder(folder)) is None:
        yield True
        return
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
        if error.errno not in _INCAPABLE:
            raise
    return True
