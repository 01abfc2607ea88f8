"""What of a copy is done: a plan and lists of regions, kept at the destination until the copy is complete."""

from __future__ import annotations

import json
import uuid
from typing import TYPE_CHECKING, Any

from penstock.errors import AlreadyExists, Damaged, NotFound, StateMismatch
from penstock.interop.zarr.rechunk.hierarchy import DOCUMENTS
from penstock.values import Span

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from penstock.source import Source

__all__ = ["Journal", "ranges"]

_FOLDER = ".zarr-copy/"  # a name that no array and no group of zarr has chunks in
_VERSION = 1


class Journal:
    """The objects of one destination that say how far a copy came.

    ``plan.json`` names the copy, by a digest, and the shape of its regions; each run adds one object, ``done-….json``,
    which it replaces as it goes on. Regions are named by their number among all of the copy.
    """

    def __init__(self, source: Source, base: str) -> None:
        """Stand at the folder ``base`` (empty, or ending in ``/``) of ``source``; no request."""
        self._source = source
        self._base = base
        self._folder = base + _FOLDER
        self._own = f"{self._folder}done-{uuid.uuid4().hex}.json"

    @property
    def url(self) -> str:
        """Where the copy goes."""
        return self._source.url(self._base)

    def plan(self) -> dict[str, Any] | None:
        """Return the plan of an unfinished copy; None for none. One request. Raises ``Damaged``."""
        plan = self._read(f"{self._folder}plan.json")
        if plan is not None and not (isinstance(plan, dict) and isinstance(plan.get("boxes"), dict)):
            raise Damaged("the plan of an unfinished copy cannot be read: begin anew with --overwrite", url=self.url)
        return plan

    def begin(self, digest: str, boxes: dict[str, tuple[int, ...]]) -> None:
        """Write the plan: one request. Raises ``AlreadyExists`` where another copy was begun in the meantime."""
        text = json.dumps({"version": _VERSION, "digest": digest, "boxes": boxes})
        with self._source.open_write(f"{self._folder}plan.json", create_only=True) as file:
            file.write(text.encode())

    def check(self, plan: dict[str, Any], digest: str) -> None:
        """Refuse to go on with another copy. Raises ``StateMismatch``."""
        if plan.get("version") != _VERSION or plan.get("digest") != digest:
            message = "the unfinished copy there is of another source, or of other chunks, shards or codecs"
            raise StateMismatch(f"{message}: repeat it as it was begun, or begin anew with --overwrite", url=self.url)

    def done(self) -> set[int]:
        """Return the numbers of the regions that are written and verified: one request for each run before."""
        found: set[int] = set()
        for key in self._keys():
            for start, stop in self._read(key) or ():
                found.update(range(start, stop))
        return found

    def add(self, numbers: Iterable[int]) -> None:
        """Replace what this run has done, atomically: one request."""
        self._source.put(self._own, json.dumps([*ranges(numbers)]).encode())

    def end(self) -> None:
        """Delete the journal, the plan first: a copy without a plan is complete."""
        self._source.delete([f"{self._folder}plan.json"])
        if keys := [*self._keys()]:
            self._source.delete(keys)

    def check_empty(self) -> None:
        """Refuse a destination with objects in it: one request. Raises ``AlreadyExists``."""
        for page in self._source.pages(self._base):
            if not page.entries:
                continue
            if page.entries[0].key.startswith(self._folder):
                remedy = "--resume (resume=True) goes on with it, --overwrite begins anew"
                raise AlreadyExists(f"an unfinished copy is there: {remedy}", url=self.url)
            remedy = "choose another, or --overwrite (overwrite=True) deletes what is there"
            raise AlreadyExists(f"the destination is not empty: {remedy}", url=self.url)

    def clear(self) -> None:
        """Delete all objects of the destination: those that make it an array or a group first, then the others."""
        for first in (True, False):
            for page in self._source.pages(self._base):
                keys = [each.key for each in page.entries]
                chosen = [each for each in keys if not first or each.rpartition("/")[2] in DOCUMENTS]
                if chosen:
                    self._source.delete(chosen)

    def holds(self, objects: dict[str, bytes]) -> bool:
        """Say whether all of these are there, as they are: one request for each."""
        return all(self._read_bytes(self._base + key) == data for key, data in objects.items())

    def write(self, objects: dict[str, bytes]) -> None:
        """Write metadata, in order: one request for each."""
        for key, data in objects.items():
            self._source.put(self._base + key, data)

    def _keys(self) -> Iterator[str]:
        for page in self._source.pages(self._folder):
            yield from (each.key for each in page.entries if "/done-" in each.key)

    def _read(self, key: str) -> Any:  # noqa: ANN401  JSON
        data = self._read_bytes(key)
        try:
            return None if data is None else json.loads(data)
        except ValueError as error:
            message = "the journal of an unfinished copy is damaged: begin anew with --overwrite"
            raise Damaged(message, url=self._source.url(key)) from error

    def _read_bytes(self, key: str) -> bytes | None:
        try:
            return self._source.read(Span(key))
        except NotFound as error:
            if error.missing == "bucket":
                raise
            return None


def ranges(numbers: Iterable[int]) -> Iterator[tuple[int, int]]:
    """Yield numbers as half-open ranges, in order."""
    start = stop = -1
    for number in sorted(numbers):
        if number != stop:
            if stop > start:
                yield start, stop
            start = number
        stop = number + 1
    if stop > start:
        yield start, stop
