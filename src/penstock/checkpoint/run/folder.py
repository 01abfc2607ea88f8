"""A folder of files as one checkpoint: all of it in the store or nothing, and all of it back on a disk or nothing."""

from __future__ import annotations

import os
import shutil
import stat
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING
from uuid import uuid4

from penstock.errors import AlreadyExists, Forbidden, NoSpace, NotFound, PenstockError, Unusable
from penstock.progress import current

if TYPE_CHECKING:
    from collections.abc import Iterator

    from penstock.checkpoint.commit.saving import CommittedCheckpoint, Saving

__all__ = ["download_folder", "upload_folder"]

_PIECE_BYTES = 16 << 20
_ASIDE = ".penstock-"  # what has this in front is not listed as an object either


def upload_folder(folder: str | os.PathLike[str], saving: Saving) -> None:
    """Write each file below ``folder`` as a data object of ``saving``: one after another, each in parallel parts.

    Names and bytes are kept, hidden files too; times, modes and empty folders are not. Links to files are followed.

    Raises:
        NotFound: There is no such folder.
        Unusable: It has no file, or something in it cannot be kept: it is named, and nothing was sent.

    """
    files = list(_files(Path(folder)))
    for name, _ in files:
        saving.check(name)
    for name, path in files:
        with path.open("rb") as file, saving.open(name) as writer:
            while piece := file.read(_PIECE_BYTES):
                writer.write(piece)
        saving.add(name, writer.checksums())


def download_folder(committed: CommittedCheckpoint, folder: str | os.PathLike[str]) -> None:
    """Write every data object as a file below ``folder``, verified; the folder appears once all of it is there.

    Until then it is beside it under a hidden name, which only a killed process leaves behind.

    Raises:
        AlreadyExists: There is something in ``folder`` already.
        Unusable: The file system cannot hold a name, or takes two of them for one.

    """
    target = Path(folder).absolute()
    if target.exists() and not (target.is_dir() and not any(target.iterdir())):
        raise AlreadyExists("there is something there already", url=str(target))
    with _told(target):
        target.parent.mkdir(parents=True, exist_ok=True)
    aside = target.with_name(f"{_ASIDE}{uuid4().hex}")
    try:
        with _told(target):
            aside.mkdir()
        for name in sorted(committed.manifest.objects):
            with _told(target / name.partition("/")[2]):
                _write(committed, name, aside / name.partition("/")[2])
        with _told(target):
            aside.rename(target)
    finally:
        shutil.rmtree(aside, ignore_errors=True)


def _write(committed: CommittedCheckpoint, name: str, path: Path) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    buffer, progress = bytearray(_PIECE_BYTES), current()
    with committed.open(name) as reader, path.open("xb", buffering=0) as file:
        while count := reader.readinto(buffer):
            rest = memoryview(buffer)[:count]
            while rest:
                rest = rest[file.write(rest) :]
            progress(0, count)
        progress(1, 0)
        os.fsync(file.fileno())  # it counts as there once it has its name: not before a lost machine would have it


@contextmanager
def _told(path: Path) -> Iterator[None]:
    """Raise what the file system refuses as an error of ours."""
    try:
        yield
    except PenstockError:
        raise
    except PermissionError as error:
        raise Forbidden(f"not allowed: {error.strerror}", url=str(path)) from error
    except OSError as error:
        if error.errno in NoSpace.ERRNOS:
            raise NoSpace(f"the folder does not fit there: {error.strerror}", url=str(path)) from error
        # As where it takes two names for one: by case, by the form of accents, or a file's and a folder's.
        raise Unusable(f"the file system does not take this file: {error.strerror}", url=str(path)) from error


def _files(folder: Path) -> Iterator[tuple[str, Path]]:
    """Yield name and path of each file below, in order."""
    if not folder.is_dir():
        raise NotFound("there is no such folder", url=str(folder))
    found = sorted(path for path in folder.rglob("*") if path.is_symlink() or not path.is_dir())
    for path in found:
        name = path.relative_to(folder).as_posix()
        if not path.exists() or not stat.S_ISREG(path.stat().st_mode):
            raise Unusable("this is neither a file nor a folder, and cannot be kept", url=str(path))
        yield name, path
    if not found:
        raise Unusable("there is no file in it", url=str(folder))
