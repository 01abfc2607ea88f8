"""The steps of a run in the store: which are committed, which objects are orphans, and how both are deleted."""

from __future__ import annotations

import logging
import re
from typing import TYPE_CHECKING, NamedTuple
from uuid import uuid4

from penstock.checkpoint.commit.saving import CommittedCheckpoint
from penstock.checkpoint.integrity.manifest import MANIFEST, METADATA, Manifest, span, step_name, step_of
from penstock.checkpoint.run.stepindex import MOST_BYTES, STEP_INDEX, StepEntry, decode, encode
from penstock.errors import Changed, CheckpointError, NotFound, Unusable
from penstock.values import ObjectMeta, Span

if TYPE_CHECKING:
    from collections.abc import Container, Iterable, Iterator, Mapping, Sequence

    from penstock.source import Source
    from penstock.values import Upload

__all__ = ["StepDescription", "StepStore"]

_LOG = logging.getLogger("penstock")

_CLOCK = "clock"
_FEW = 16  # manifests in a page of 1,000 keys: with fewer it costs less to look at each than to list what lies between
_SAVE = re.compile(r"[0-9a-f]{32}")  # below a step's folder: a save's id; below the clock's: a look at it


class StepDescription(NamedTuple):
    """What is known of a committed step without reading it.

    Attributes:
        step: Which.
        size: Bytes of its objects together.
        objects: How many.
        metric: As it was saved with.

    """

    step: int
    size: int
    objects: int
    metric: float | None


class StepStore:
    """The steps below ``prefix``, a key that ends in ``/`` or is empty."""

    def __init__(self, source: Source, prefix: str) -> None:
        """Look at nothing yet."""
        self._source = source
        self._prefix = prefix
        self._index: tuple[str, dict[int, StepEntry]] = "", {}  # its ETag, and what it says

    def folder(self, step: int) -> str:
        """Return the key that all of a step's objects begin with."""
        return f"{self._prefix}{step_name(step)}/"

    def url(self, step: int) -> str:
        """Return a step's URL."""
        return self._source.url(self.folder(step))

    def steps(self) -> list[int]:
        """Return the committed steps, oldest first: a listing of folders, and one request for each, in parallel."""
        return list(self._found(self._folders()))

    def latest(self) -> int | None:
        """Return the newest committed step; None where there is none. A listing of folders, and a request or two."""
        folders, before = self._folders(), None
        while folders != before:  # what was listed may be superseded before it is looked at
            found = next((step for step in reversed(folders) if self._committed(step)), None)
            if found is not None or not folders:
                return found
            folders, before = self._folders(), folders
        return None

    def survey(self, new: Mapping[int, StepEntry] | None = None) -> dict[int, StepEntry]:
        """Return the committed steps, and what the rules that keep them must know, oldest first.

        What is there, and in which version, the store says: a listing, or where steps have many objects a listing of
        folders and a HEAD for each. What the index, or ``new`` (saved just now), tells of a manifest of that ETag needs
        no look; any other is read, in parallel. A request for the index where another process wrote it last.
        """
        found, index = self._current()
        indexed = {**self._indexed(index), **(new or {})}
        known = {
            step: indexed[step] for step, meta in found.items() if meta.etag and _tells(indexed.get(step), meta.etag)
        }
        unknown = {step: meta for step, meta in found.items() if step not in known}
        known |= {step: StepEntry.of(manifest, etag) for step, etag, manifest in self._read(unknown)}
        return dict(sorted(known.items()))

    def note(self, committed: Mapping[int, StepEntry]) -> None:
        """Write the index, for the next survey: one request."""
        self._index = self._source.put(self._prefix + STEP_INDEX, encode(committed)), dict(committed)

    def drop(self, superseded: Mapping[int, StepEntry]) -> None:
        """Delete committed steps, in parallel, the manifests first."""
        self._source.delete([self.folder(step) + MANIFEST for step in superseded])
        objects = [self.folder(step) + name for step, entry in superseded.items() for name in entry.objects]
        self._source.delete(objects)

    def describe(self, step: int) -> StepDescription:
        """Describe a committed step: two requests. Raises ``NotFound``."""
        return _described(step, CommittedCheckpoint(self._source, self.folder(step)).manifest)

    def described(self) -> Iterator[tuple[int, StepDescription | None]]:
        """Yield each committed step and its description, oldest first; None for one whose manifest is damaged."""
        for step, manifest in self.manifests():
            yield step, None if manifest is None else _described(step, manifest)

    def readable(self, step: int) -> CommittedCheckpoint | None:
        """Return a committed step; None where its manifest is damaged. Raises ``NotFound``."""
        try:
            return CommittedCheckpoint(self._source, self.folder(step))
        except CheckpointError:
            return None

    def delete(self, steps: Sequence[int]) -> None:
        """Delete committed steps, in parallel; of one whose manifest is damaged the rest is ``clean``'s.

        Raises:
            NotFound: One of them is not committed; it is named, and nothing was deleted.

        """
        found = {step: StepEntry.of(manifest, etag) for step, etag, manifest in self._read(self._found(steps))}
        for step in steps:
            if step not in found:
                raise NotFound("no checkpoint is committed there", url=self.url(step))
        self.drop(found)

    def clean(self, older_than_s: float, mine: Container[str]) -> list[str]:
        """Delete what no committed step names, and abort unfinished uploads; return their URLs.

        Whether a save still runs elsewhere cannot be seen: ``older_than_s``, by the store's own clock, must be longer
        than any save takes. What the saves ``mine`` wrote stays. Lists everything below the prefix.
        """
        named, unknown = set[str](), set[str]()
        for step, manifest in self.manifests():
            if manifest is None:
                unknown.add(self.folder(step))  # what it named is not known
            else:
                named.update(self.folder(step) + name for name in (MANIFEST, *manifest.objects))
        latest = self._clock() - older_than_s

        def old(key: str, since: float | None) -> bool:
            return since is not None and since <= latest and not key.startswith(tuple(unknown))

        def orphaned(key: str) -> bool:
            return key not in named and self._foreign(key, mine)

        entries = [entry for page in self._source.pages(self._prefix) for entry in page.entries]
        unknown.update(self._torchs(each.key for each in entries))
        unread = [each.key for each in entries if old(each.key, each.modified) and orphaned(each.key)]
        # What is named is whole, so an upload to it is one whose beginning was answered too late and made again.
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
        """Yield each committed step and its manifest, in order; None for one that is damaged."""
        for step, _, manifest in self._read(self._found(self._folders())):
            yield step, manifest

    def _read(self, found: Mapping[int, ObjectMeta]) -> Iterator[tuple[int, str, Manifest | None]]:
        """Yield each step's manifest and its ETag, in order: its present one, and none where it is gone meanwhile."""
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
        """Return each committed step's manifest as the store tells of it now, oldest first, and the index."""
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
        """Return what the store says of the manifest of each step that is committed, in order."""
        manifests = self._source.stat_existing([self.folder(step) + MANIFEST for step in folders])
        return {step: manifest for step, manifest in zip(folders, manifests, strict=True) if manifest is not None}

    def _foreign(self, key: str, mine: Container[str]) -> bool:
        """Say whether a key is of some save, and none of ``mine``; what is no checkpoint's is left alone."""
        folder, _, rest = key.removeprefix(self._prefix).partition("/")
        if folder == _CLOCK:
            return _SAVE.fullmatch(rest) is not None
        save = rest.partition("/")[0]
        return step_of(folder) is not None and _SAVE.fullmatch(save) is not None and save not in mine

    def _aside(self, key: str) -> bool:
        """Say whether this is how a disk holds a manifest or an index that is being written: beside it."""
        folder, _, name = key.removeprefix(self._prefix).rpartition("/")
        return name.startswith(".penstock-") and (not folder or step_of(folder) is not None)

    def _torchs(self, keys: Iterable[str]) -> Iterator[str]:
        """Yield the folders of steps that are checkpoints in torch's layout, whose objects no manifest names."""
        for key in keys:
            folder, _, rest = key.removeprefix(self._prefix).partition("/")
            if rest == METADATA and step_of(folder) is not None:
                yield f"{self._prefix}{folder}/"

    def _unfinished(self) -> Iterator[Upload]:
        """Yield unfinished uploads; none where the store cannot list them, which is logged."""
        try:
            yield from self._source.unfinished(self._prefix)
        except Unusable as error:
            _LOG.warning("unfinished uploads are left as they are, for this store does not list them: %s", error)

    def _clock(self) -> float:
        """Return the store's time: when an object written just now was."""
        key = f"{self._prefix}{_CLOCK}/{uuid4().hex}"
        self._source.put(key, b"")
        try:
            now = self._source.head(key).modified
        finally:
            self._source.delete([key])
        if now is None:
            raise Unusable("this store does not say when objects were written, so orphans cannot be told from saves")
        return now

    def _folders(self) -> list[int]:
        return self._listed()[0]

    def _listed(self) -> tuple[list[int], ObjectMeta | None]:
        """Return which steps have folders, oldest first, and the index, if there is one: one listing."""
        prefixes, index = list[str](), None
        for page in self._source.pages(self._prefix, delimiter="/"):
            prefixes += page.prefixes
            index = next((each for each in page.entries if each.key == self._prefix + STEP_INDEX), index)
        found = [step_of(prefix.removeprefix(self._prefix).rstrip("/")) for prefix in prefixes]
        return sorted(step for step in found if step is not None), index

    def _indexed(self, meta: ObjectMeta | None) -> dict[int, StepEntry]:
        """Return what the index says; nothing where there is none, or it is replaced just now."""
        if meta is None or meta.size > MOST_BYTES:
            return {}
        if not meta.etag or meta.etag != self._index[0]:
            try:
                document = self._source.read(Span(meta.key, 0, meta.size, meta.etag, whole=True))
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


def _tells(entry: StepEntry | None, etag: str) -> bool:
    return entry is not None and entry.etag == etag


def _described(step: int, manifest: Manifest) -> StepDescription:
    sizes = [checksums.size for checksums in manifest.objects.values()]
    return StepDescription(step, sum(sizes), len(sizes), manifest.content.get("metric"))
