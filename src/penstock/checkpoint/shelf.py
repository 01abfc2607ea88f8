"""Where a run's steps stand in the store: which are committed, what is nobody's, and how either goes."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple
from uuid import uuid4

from penstock.checkpoint.commit import Committed
from penstock.checkpoint.layout import MANIFEST, Manifest, step_name, step_of
from penstock.errors import CheckpointError, NotFound, Unusable
from penstock.values import Span

if TYPE_CHECKING:
    from collections.abc import Container, Iterator

    from penstock.source import Source
    from penstock.values import ObjectMeta

__all__ = ["Described", "Shelf"]

_CLOCK = "clock"


class Described(NamedTuple):
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


class Shelf:
    """The steps below ``prefix``, a key that ends in ``/`` or is empty."""

    def __init__(self, source: Source, prefix: str) -> None:
        """Look at nothing yet."""
        self._source = source
        self._prefix = prefix

    def folder(self, step: int) -> str:
        """Return the key that all of a step's objects begin with."""
        return f"{self._prefix}{step_name(step)}/"

    def url(self, step: int) -> str:
        """Return a step's URL."""
        return self._source.url(self.folder(step))

    def steps(self) -> list[int]:
        """Return the committed steps, oldest first: a listing of folders, and one request for each, side by side."""
        return list(self._found())

    def latest(self) -> int | None:
        """Return the newest committed step; None where there is none. A listing of folders, and a request or two."""
        return next((step for step in reversed(self._folders()) if self._committed(step)), None)

    def describe(self, step: int) -> Described:
        """Describe a committed step: two requests. Raises ``NotFound``."""
        return _described(step, Committed(self._source, self.folder(step)).manifest)

    def described(self) -> Iterator[tuple[int, Described | None]]:
        """Yield each committed step and its description, oldest first; None for one whose manifest is damaged."""
        for step, manifest in self.manifests():
            yield step, None if manifest is None else _described(step, manifest)

    def readable(self, step: int) -> Committed | None:
        """Return a committed step; None where its manifest is damaged. Raises ``NotFound``."""
        try:
            return Committed(self._source, self.folder(step))
        except CheckpointError:
            return None

    def delete(self, step: int) -> None:
        """Delete a committed step; of one whose manifest is damaged the rest is ``clean``'s. Raises ``NotFound``."""
        committed = self.readable(step)
        if committed is None:
            self._source.delete([self.folder(step) + MANIFEST])
        else:
            committed.delete()

    def clean(self, older_than_s: float, mine: Container[str]) -> list[str]:
        """Delete what no committed step names, and abort uploads that never ended; return their URLs.

        Nobody can see whether a save still runs elsewhere: ``older_than_s``, by the store's own clock, must be longer
        than any save takes. What the saves ``mine`` wrote stays. Lists everything below the prefix.
        """
        named, damaged = set[str](), set[str]()
        for step, manifest in self.manifests():
            if manifest is None:
                damaged.add(self.folder(step))  # what it named nobody knows
            else:
                named.update(self.folder(step) + name for name in (MANIFEST, *manifest.objects))
        latest = self._clock() - older_than_s

        def old(key: str, since: float | None) -> bool:
            return since is not None and since <= latest and not key.startswith(tuple(damaged))

        def orphaned(key: str) -> bool:
            return key not in named and self._foreign(key, mine)

        entries = [entry for page in self._source.pages(self._prefix) for entry in page.entries]
        unread = [each.key for each in entries if old(each.key, each.modified) and orphaned(each.key)]
        # What is named is whole, so an upload to it is one whose beginning was answered too late and made again.
        uploads = [
            each
            for each in self._source.unfinished(self._prefix)
            if old(each.key, each.begun) and (each.key in named or orphaned(each.key))
        ]
        self._source.delete(unread)
        for upload in uploads:
            self._source.abort(upload)
        return [self._source.url(key) for key in [*unread, *(upload.key for upload in uploads)]]

    def manifests(self) -> Iterator[tuple[int, Manifest | None]]:
        """Yield each committed step and its manifest, oldest first; None for one that is damaged."""
        found = self._found()
        spans = (Span(meta.key, 0, meta.size, meta.etag, whole=True) for meta in found.values())
        with self._source.lookahead(spans) as documents:
            for (step, meta), document in zip(found.items(), documents, strict=True):
                try:
                    yield step, Manifest.decode(document, self._source.url(meta.key))
                except CheckpointError:
                    yield step, None

    def _found(self) -> dict[int, ObjectMeta]:
        """Return what the store says of the manifest of each committed step, oldest first."""
        folders = self._folders()
        manifests = self._source.known([self.folder(step) + MANIFEST for step in folders])
        return {step: manifest for step, manifest in zip(folders, manifests, strict=True) if manifest is not None}

    def _foreign(self, key: str, mine: Container[str]) -> bool:
        """Say whether a key is of some save, and none of ``mine``; what is no checkpoint's is left alone."""
        folder, _, rest = key.removeprefix(self._prefix).partition("/")
        save = rest.partition("/")[0]
        return (step_of(folder) is not None and save not in mine) or folder == _CLOCK

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
        prefixes = [prefix for page in self._source.pages(self._prefix, delimiter="/") for prefix in page.prefixes]
        found = [step_of(prefix.removeprefix(self._prefix).rstrip("/")) for prefix in prefixes]
        return sorted(step for step in found if step is not None)

    def _committed(self, step: int) -> bool:
        try:
            self._source.head(self.folder(step) + MANIFEST)
        except NotFound:
            return False
        return True


def _described(step: int, manifest: Manifest) -> Described:
    sizes = [sealed.size for sealed in manifest.objects.values()]
    return Described(step, sum(sizes), len(sizes), manifest.content.get("metric"))
