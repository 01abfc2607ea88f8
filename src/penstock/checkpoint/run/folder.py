"""A folder of files as one checkpoint, saved and restored atomically.

The step index of a run: its committed steps in one object, which saves retention a request for each step.
"""

from __future__ import annotations

import json
import os
import shutil
import stat
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple, Self
from uuid import uuid4

from penstock.checkpoint.integrity.manifest import MOST_VALUES, fits, limited
from penstock.errors import AlreadyExists, Forbidden, NoSpace, NotFound, PenstockError, Unusable
from penstock.progress import current

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from penstock.checkpoint.commit import CommittedCheckpoint, Saving
    from penstock.checkpoint.integrity.manifest import Manifest


__all__ = ["MOST_BYTES", "STEP_INDEX", "StepEntry", "decode", "download_folder", "encode", "upload_folder"]

_PIECE_BYTES = 16 << 20
# Prefix of temporary names; files with it are not listed as objects either.
_ASIDE = ".penstock-"


def upload_folder(folder: str | os.PathLike[str], saving: Saving) -> None:
    """Write each file below ``folder`` as a data object of ``saving``: one after another, each in parallel parts.

    Names and bytes are kept, including hidden files. Times, modes and empty folders are not. Links to files are
    followed.

    Raises:
        NotFound: The folder does not exist.
        Unusable: The folder contains no file, or an entry that cannot be kept; the message names it, and nothing was
            sent.

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
    """Write every data object as a file below ``folder``, verified; the folder appears after all files are written.

    Until then the files are in a hidden folder beside it; only a killed process leaves that behind.

    Raises:
        AlreadyExists: ``folder`` is not empty.
        Unusable: The file system cannot hold a name, or treats two names as the same.

    """
    target = Path(folder).absolute()
    if target.exists() and not (target.is_dir() and not any(target.iterdir())):
        message = "cannot restore into what is there already: name an empty folder, or one that does not exist"
        raise AlreadyExists(message, url=str(target))
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
        # Flush before the rename: a folder under its final name must survive a machine failure.
        os.fsync(file.fileno())


@contextmanager
def _told(path: Path) -> Iterator[None]:
    """Raise Penstock's error for an error of the file system."""
    try:
        yield
    except PenstockError:
        raise
    except PermissionError as error:
        raise Forbidden(f"not allowed: {error.strerror}", url=str(path)) from error
    except OSError as error:
        if error.errno in NoSpace.ERRNOS:
            raise NoSpace(f"the folder does not fit there: {error.strerror}", url=str(path)) from error
        # For example, two names that it treats as one: by case, by Unicode form, or a file and a folder.
        raise Unusable(f"the file system does not take this file: {error.strerror}", url=str(path)) from error


def _files(folder: Path) -> Iterator[tuple[str, Path]]:
    """Yield the name and path of each file below ``folder``, sorted by path."""
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


STEP_INDEX = "penstock-steps.json"
MOST_BYTES = 64 << 20  # larger indexes are ignored
_VERSION = 1


class StepEntry(NamedTuple):
    """The data that retention needs about a committed step.

    Attributes:
        etag: ETag of the manifest version that this entry describes; empty if unknown.
        metric: The metric that the step was saved with.
        objects: Names of its data objects, relative to its folder, which are deleted with it.

    """

    etag: str
    metric: float | None
    objects: tuple[str, ...]

    @classmethod
    def of(cls, manifest: Manifest | None, etag: str) -> Self:
        """Return a manifest's entry; a damaged manifest (None) gives an empty one, so it is read again next time."""
        if manifest is None:
            return cls("", None, ())
        return cls(etag, _number(manifest.content.get("metric")), tuple(manifest.objects))


def encode(entries: Mapping[int, StepEntry]) -> bytes:
    """Return the index as JSON."""
    steps = {str(step): [entry.etag, entry.metric, *entry.objects] for step, entry in sorted(entries.items())}
    return json.dumps({"penstock_steps": _VERSION, "steps": steps}, separators=(",", ":")).encode()


def decode(data: bytes) -> dict[int, StepEntry]:
    """Return the index's entries; empty if it is damaged or of another version, as manifests contain the same data."""
    try:
        limited(data, MOST_VALUES)
        document = json.loads(data)
        if document["penstock_steps"] != _VERSION:
            return {}
        return {int(step): _entry(*fields) for step, fields in document["steps"].items()}
    except (ValueError, KeyError, TypeError, AttributeError, RecursionError):
        return {}


def _entry(etag: object, metric: object, *objects: object) -> StepEntry:
    names = tuple(name for name in objects if isinstance(name, str) and fits(name))
    if not isinstance(etag, str) or len(names) != len(objects):
        raise ValueError(objects)
    return StepEntry(etag, _number(metric), names)


def _number(metric: object) -> float | None:
    """Return a metric as a float; None for any other value."""
    try:
        return float(metric) if isinstance(metric, int | float) else None
    except OverflowError:
        return None
