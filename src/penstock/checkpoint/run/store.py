"""A run's steps in the store: lists committed steps, finds orphaned objects, and deletes both.

``StepEntry`` and its index, one object, save retention a request for each step. ``upload_folder`` and
``download_folder`` save and restore a folder of files as one checkpoint, atomically.
"""

from __future__ import annotations

import json
import logging
import operator
import os
import re
import shutil
import stat
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple, NoReturn, Self
from uuid import uuid4

from penstock.checkpoint.commit import CommittedCheckpoint, Saving
from penstock.checkpoint.integrity import (
    MANIFEST,
    METADATA,
    MOST_VALUES,
    Manifest,
    check_value_count,
    fits,
    span,
    step_name,
    step_of,
)
from penstock.errors import (
    AlreadyExists,
    Changed,
    CheckpointError,
    Forbidden,
    NoSpace,
    NotFound,
    PenstockError,
    Unusable,
    kind_of,
)
from penstock.progress import current
from penstock.values import ObjectMeta, Upload, span_in

if TYPE_CHECKING:
    from collections.abc import Container, Iterable, Iterator, Mapping, Sequence

    from penstock.source import Source

_PIECE_BYTES = 16 << 20
_STEPS = 10**18  # folder names have at most 18 digits
# Prefix of temporary names; files with it are not listed as objects either.
_ASIDE = ".penstock-"


def upload_folder(folder: str | os.PathLike[str], saving: Saving) -> None:
    """Write each file below ``folder``, hidden or linked, as a data object; refuse all if one cannot be kept."""
    files = list(_files(Path(folder)))
    for name, _ in files:
        saving.check(name)
    for name, path in files:
        with path.open("rb") as file, saving.open(name) as writer:
            while piece := file.read(_PIECE_BYTES):
                writer.write(piece)
        saving.add(name, writer.checksums())


def download_folder(committed: CommittedCheckpoint, folder: str | os.PathLike[str]) -> None:
    """Write every data object below ``folder``, which appears (from a hidden one) once all are verified."""
    target = Path(folder).absolute()
    if target.exists() and not (target.is_dir() and not any(target.iterdir())):
        message = "cannot restore: the folder has contents; name an empty folder, or one that does not exist"
        raise AlreadyExists(message, url=str(target))
    with _translate_os_errors(target):
        target.parent.mkdir(parents=True, exist_ok=True)
    aside = target.with_name(f"{_ASIDE}{uuid4().hex}")
    try:
        with _translate_os_errors(target):
            aside.mkdir()
        for name in sorted(committed.manifest.objects):
            with _translate_os_errors(target / name.partition("/")[2]):
                _write(committed, name, aside / name.partition("/")[2])
        with _translate_os_errors(target):
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
def _translate_os_errors(path: Path) -> Iterator[None]:
    try:
        yield
    except PenstockError:
        raise
    except PermissionError as error:
        raise Forbidden(f"not allowed: {error.strerror}", url=str(path)) from error
    except OSError as error:
        if error.errno in NoSpace.ERRNOS:
            raise NoSpace(f"no space for the folder: {error.strerror}", url=str(path)) from error
        # For example, two names that it treats as one: by case, by Unicode form, or a file and a folder.
        raise Unusable(f"the file system does not take this file: {error.strerror}", url=str(path)) from error


def _files(folder: Path) -> Iterator[tuple[str, Path]]:
    if not folder.is_dir():
        raise NotFound("the folder does not exist", url=str(folder))
    # Not rglob: it skips a folder that it cannot read, and the step would lack files without an error.
    walked = os.walk(folder, onerror=_refuse_folder)
    entries = [Path(at, name) for at, folders, files in walked for name in (*folders, *files)]
    found = sorted(path for path in entries if path.is_symlink() or not path.is_dir())
    for path in found:
        name = path.relative_to(folder).as_posix()
        if not path.exists() or not stat.S_ISREG(path.stat().st_mode):
            raise Unusable("cannot save: neither a file nor a folder", url=str(path))
        yield name, path
    if not found:
        raise Unusable("cannot save: the folder contains no files", url=str(folder))


def _refuse_folder(error: OSError) -> NoReturn:
    raise Unusable(f"cannot save: the folder cannot be read ({error.strerror})", url=str(error.filename)) from error


STEP_INDEX = "penstock-steps.json"
MOST_BYTES = 64 << 20  # larger indexes are ignored
_VERSION = 1


class StepEntry(NamedTuple):
    """Data that retention needs about a committed step."""

    etag: str  # of the manifest version that this entry describes; empty if unknown
    metric: float | None
    objects: tuple[str, ...]  # names relative to its folder

    @classmethod
    def of(cls, manifest: Manifest | None, etag: str) -> Self:
        """Return a manifest's entry; a damaged manifest (None) gives an empty one, so it is read again next time."""
        if manifest is None:
            return cls("", None, ())
        return cls(etag, _convert_metric(manifest.content.get("metric")), tuple(manifest.sizes))


def encode(entries: Mapping[int, StepEntry]) -> bytes:
    steps = {str(step): [entry.etag, entry.metric, *entry.objects] for step, entry in sorted(entries.items())}
    return json.dumps({"penstock_steps": _VERSION, "steps": steps}, separators=(",", ":")).encode()


def decode(data: bytes) -> dict[int, StepEntry]:
    """Return the index's entries; empty if it is damaged or of another version, as manifests contain the same data."""
    try:
        check_value_count(data, MOST_VALUES)
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
    return StepEntry(etag, _convert_metric(metric), names)


def _convert_metric(metric: object) -> float | None:
    try:
        return float(metric) if isinstance(metric, int | float) else None
    except OverflowError:
        return None


_LOG = logging.getLogger("penstock")

_CLOCK = "clock"
# Manifests per page of 1,000 keys: with fewer, one HEAD each costs less than to list the keys between them.
_FEW = 16
# A name below a step's folder: a save's id. Below the clock's folder: a probe of the store's time.
_SAVE = re.compile(r"[0-9a-f]{32}")


class StepDescription(NamedTuple):
    """The description of a committed step, without its data.

    Attributes:
        step: The step's number.
        size: Total bytes of its objects.
        objects: Number of its objects.
        metric: The metric that the step was saved with.
    """

    step: int
    size: int
    objects: int
    metric: float | None


def checked_step(step: int) -> int:
    try:
        number = operator.index(step)
    except TypeError:
        raise Unusable(f"step must be an integer, got {kind_of(step)}") from None
    if not 0 <= number < _STEPS:
        raise Unusable(f"step must be 0 to {_STEPS - 1:,}, got {number:,}")
    return number


class StepStore:
    """Steps below ``prefix``, a key that ends in ``/`` or is empty."""

    def __init__(self, source: Source, prefix: str) -> None:
        self._source = source
        self._prefix = prefix
        self._index: tuple[str, dict[int, StepEntry]] = "", {}  # its ETag and entries

    def folder(self, step: int) -> str:
        return f"{self._prefix}{step_name(step)}/"

    def url(self, step: int) -> str:
        return self._source.url(self.folder(step))

    def steps(self) -> list[int]:
        return list(self._found(self._folders()))

    def latest(self) -> int | None:
        folders, before = self._folders(), None
        # A listed step may be deleted as superseded before it is checked.
        while folders != before:
            found = next((step for step in reversed(folders) if self._committed(step)), None)
            if found is not None or not folders:
                return found
            folders, before = self._folders(), folders
        return None

    def survey(self, new: Mapping[int, StepEntry] | None = None) -> dict[int, StepEntry]:
        """Return the committed steps, oldest first, with the data that retention needs.

        The store tells which steps exist, and in which version: by a listing, or by a listing of folders and HEADs if
        steps have many objects. Entries of the index, or of ``new`` (saved just now), are used for manifests with the
        same ETag; other manifests are read in parallel. Costs a request for the index if another process wrote it last.
        """
        found, index = self._current()
        indexed = {**self._indexed(index), **(new or {})}
        etags = {step: meta.etag for step, meta in found.items() if meta.etag}
        known = {step: entry for step, entry in indexed.items() if etags.get(step) == entry.etag}
        unknown = {step: meta for step, meta in found.items() if step not in known}
        known |= {step: StepEntry.of(manifest, etag) for step, etag, manifest in self._read(unknown)}
        return dict(sorted(known.items()))

    def note(self, committed: Mapping[int, StepEntry]) -> None:
        """Write the index for the next ``survey``: one request."""
        self._index = self._source.put(self._prefix + STEP_INDEX, encode(committed)), dict(committed)

    def drop(self, superseded: Mapping[int, StepEntry]) -> None:
        """Delete committed steps, in parallel, manifests first."""
        self._source.delete([self.folder(step) + MANIFEST for step in superseded])
        objects = [self.folder(step) + name for step, entry in superseded.items() for name in entry.objects]
        self._source.delete(objects)

    def describe(self, step: int) -> StepDescription:
        return _describe_step(step, CommittedCheckpoint(self._source, self.folder(step)).manifest)

    def described(self) -> Iterator[tuple[int, StepDescription | None]]:
        for step, manifest in self.manifests():
            yield step, None if manifest is None else _describe_step(step, manifest)

    def readable(self, step: int) -> CommittedCheckpoint | None:
        """Return a committed step, or None if its manifest is damaged; raise ``NotFound`` if it is not committed."""
        try:
            return CommittedCheckpoint(self._source, self.folder(step))
        except CheckpointError:
            return None

    def delete(self, steps: Sequence[int]) -> None:
        found = {step: StepEntry.of(manifest, etag) for step, etag, manifest in self._read(self._found(steps))}
        for step in steps:
            if step not in found:
                raise NotFound("no committed checkpoint found", url=self.url(step))
        self.drop(found)

    def clean(self, older_than_s: float, mine: Container[str]) -> list[str]:
        """Delete orphans as ``CheckpointManager.clean`` does, except objects of the saves ``mine``; return URLs."""
        named, unknown = set[str](), set[str]()
        for step, manifest in self.manifests():
            if manifest is None:
                unknown.add(self.folder(step))  # its objects are not known
            else:
                named.update(self.folder(step) + name for name in (MANIFEST, *manifest.sizes))
        latest = self._clock() - older_than_s

        def old(key: str, since: float | None) -> bool:
            return since is not None and since <= latest and not key.startswith(tuple(unknown))

        def orphaned(key: str) -> bool:
            return key not in named and self._foreign(key, mine)

        entries = [entry for page in self._source.pages(self._prefix) for entry in page.entries]
        unknown.update(self._torchs(each.key for each in entries))
        unread = [each.key for each in entries if old(each.key, each.modified) and orphaned(each.key)]
        # A named object is complete, so an unfinished upload to it is a retried request that was answered late.
        uploads = [
            each
            for each in self._unfinished()
            if old(each.key, each.begun) and (each.key in named or orphaned(each.key) or self._aside(each.key))
        ]
        self._source.delete(unread)
        for upload in uploads:
            self._source.abort(upload)
        return [self._source.url(key) for key in [*unread, *(upload.key for upload in uploads)]]

    def manifests(self) -> Iterator[tuple[int, Manifest | None]]:
        for step, _, manifest in self._read(self._found(self._folders())):
            yield step, manifest

    def _read(self, found: Mapping[int, ObjectMeta]) -> Iterator[tuple[int, str, Manifest | None]]:
        """Yield each step with its manifest and ETag, in order; rereads a replaced manifest and skips a deleted one."""
        with self._source.lookahead(span(meta) for meta in found.values()) as documents:
            for step, meta in found.items():
                try:
                    document = documents.advance().take()
                    yield step, meta.etag, Manifest.decode(document, self._source.url(meta.key))
                except (Changed, NotFound):
                    yield from self._again(step)
                except CheckpointError:
                    yield step, "", None

    def _again(self, step: int) -> Iterator[tuple[int, str, Manifest | None]]:
        try:
            now = self.readable(step)
        except NotFound:
            return
        yield (step, "", None) if now is None else (step, now.etag, now.manifest)

    def _current(self) -> tuple[dict[int, ObjectMeta], ObjectMeta | None]:
        """Return the metadata of each committed step's current manifest, oldest first, and of the index, or None."""
        found, index = dict[int, ObjectMeta](), None
        for pages, page in enumerate(self._source.pages(self._prefix), 1):
            for meta in page.entries:
                folder, _, name = meta.key.removeprefix(self._prefix).partition("/")
                step = step_of(folder)
                if step is not None and name == MANIFEST:
                    found[step] = meta
                index = meta if meta.key == self._prefix + STEP_INDEX else index
            if page.token and len(found) < _FEW * pages:
                folders, index = self._listed()
                return self._found(folders), index
        return found, index

    def _found(self, folders: Sequence[int]) -> dict[int, ObjectMeta]:
        manifests = self._source.stat_existing([self.folder(step) + MANIFEST for step in folders])
        return {step: manifest for step, manifest in zip(folders, manifests, strict=True) if manifest is not None}

    def _foreign(self, key: str, mine: Container[str]) -> bool:
        """Return whether a key belongs to a save that is not one of ``mine``; other keys are left alone."""
        folder, _, rest = key.removeprefix(self._prefix).partition("/")
        if folder == _CLOCK:
            return _SAVE.fullmatch(rest) is not None
        save = rest.partition("/")[0]
        return step_of(folder) is not None and _SAVE.fullmatch(save) is not None and save not in mine

    def _aside(self, key: str) -> bool:
        """Return whether a key is the temporary file of a manifest or an index that a disk is writing."""
        folder, _, name = key.removeprefix(self._prefix).rpartition("/")
        return name.startswith(".penstock-") and (not folder or step_of(folder) is not None)

    def _torchs(self, keys: Iterable[str]) -> Iterator[str]:
        """Yield the folders of steps in torch's layout, whose objects no manifest names."""
        for key in keys:
            folder, _, rest = key.removeprefix(self._prefix).partition("/")
            if rest == METADATA and step_of(folder) is not None:
                yield f"{self._prefix}{folder}/"

    def _unfinished(self) -> Iterator[Upload]:
        try:
            yield from self._source.unfinished(self._prefix)
        except Unusable as error:
            _LOG.warning("unfinished uploads were kept, because this store cannot list them: %s", error)

    def _clock(self) -> float:
        """Return the store's current time: the modification time of an object written just now."""
        key = f"{self._prefix}{_CLOCK}/{uuid4().hex}"
        self._source.put(key, b"")
        try:
            now = self._source.head(key).modified
        finally:
            self._source.delete([key])
        if now is None:
            raise Unusable("orphans cannot be found: this store does not report modification times")
        return now

    def _folders(self) -> list[int]:
        return self._listed()[0]

    def _listed(self) -> tuple[list[int], ObjectMeta | None]:
        """Return the steps that have folders, oldest first, and the index, if it exists: one listing."""
        prefixes, index = list[str](), None
        for page in self._source.pages(self._prefix, delimiter="/"):
            prefixes += page.prefixes
            index = next((each for each in page.entries if each.key == self._prefix + STEP_INDEX), index)
        found = [step_of(prefix.removeprefix(self._prefix).rstrip("/")) for prefix in prefixes]
        return sorted(step for step in found if step is not None), index

    def _indexed(self, meta: ObjectMeta | None) -> dict[int, StepEntry]:
        """Return the index's entries; empty if it does not exist, or was replaced during the read."""
        if meta is None or meta.size > MOST_BYTES:
            return {}
        if not meta.etag or meta.etag != self._index[0]:
            try:
                document = self._source.read(span_in(meta))
            except (Changed, NotFound):
                return {}
            self._index = meta.etag, decode(document)
        return self._index[1]

    def _committed(self, step: int) -> bool:
        try:
            self._source.head(self.folder(step) + MANIFEST)
        except NotFound:
            return False
        return True


def _describe_step(step: int, manifest: Manifest) -> StepDescription:
    sizes = manifest.sizes
    return StepDescription(step, sum(sizes.values()), len(sizes), manifest.content.get("metric"))
