"""Locations of the objects of an array: in its own store, or, by references, within objects of other stores."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from math import prod
from typing import TYPE_CHECKING, Protocol

from penstock.data.zarr.format.opening import open_arrays
from penstock.data.zarr.format.references import MOST_ROOTS
from penstock.data.zarr.objects.joined import homed
from penstock.errors import Bug, Damaged, DatasetChanged, Forbidden, NotFound, Unsupported, Unusable
from penstock.stores.urls import parse
from penstock.values import Span

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from penstock.data.zarr.format.layout import Layout
    from penstock.data.zarr.format.references import Records, References
    from penstock.source import Source

_MOST_GROWTH, _MARGIN = 16, 1 << 20  # as for chunks of shards: data/zarr/format/index.py
_INDEX_BYTES = 16  # of a shard's index, per chunk

__all__ = ["Located", "OwnObjects", "ReferencedObjects", "check_absent"]


class Located(Protocol):
    """Actual locations of the objects of an array."""

    @property
    def sources(self) -> Mapping[str, Source]:
        """Stores that are read, by root."""

    def absent(self, error: NotFound | Forbidden) -> None:
        """Record that an object does not exist, which means the fill value.

        Raises:
            Damaged: The absence means that data is missing.
            Changed: The array does not exist any more.
            Forbidden: The store refused to read the object, and this does not mean a missing object.

        """

    def verify(self) -> None:
        """Check that the array still exists, if objects were absent since the last check; otherwise send no request.

        Raises:
            Changed: The array does not exist any more.

        """

    def numbered(self, number: Callable[[Source], int]) -> Located:
        """Return a copy with the number of each store among the stores of a dataset."""

    def find(self, span: Span) -> Span | bytes | None:
        """Return the location of a span of one of the array's objects, or its bytes; None if the object does not exist.

        Raises:
            PenstockError: A reference is invalid.

        """

    @property
    def records(self) -> Records | None:
        """References that are read on demand, which may lead to further stores; None for other locations."""

    def beside(self, key: str) -> tuple[Layout, Located] | None:
        """Return another array of the same store or document, and the locations of its objects; None if not found."""

    def url(self, key: str) -> str:
        """Return the URL of an object, for errors."""


class _Absences:
    """Absent objects of an array: count in all, count since the last check, and whether the array is gone."""

    __slots__ = ("count", "gone", "new")

    def __init__(self) -> None:
        self.count = self.new = 0
        self.gone = False

    def __reduce__(self) -> tuple[object, ...]:
        """Pickle without the counts."""
        return _Absences, ()


@dataclass(frozen=True, slots=True)
class OwnObjects:
    """Objects of an array in its own store; objects that were never written are absent.

    Objects of an array that is being deleted are absent, too. So the metadata document of the array's layout is checked
    again after the first absent object, the second, the fourth, and so on, and at the end of an epoch: one HEAD each.

    Attributes:
        source: The store.
        home: Number of the store among those of a dataset.
        document: Key of that document; empty if unknown.
        forbidden_is_missing: A refusal (403) means a missing object, too.

    """

    source: Source
    home: int = 0
    document: str = ""
    forbidden_is_missing: bool = False
    _absences: _Absences = field(default_factory=_Absences, compare=False, repr=False)

    @property
    def sources(self) -> Mapping[str, Source]:
        """The store, by its root."""
        return {self.source.root: self.source}

    def numbered(self, number: Callable[[Source], int]) -> OwnObjects:
        """Return a copy with the number of the store."""
        return replace(self, home=number(self.source))

    def absent(self, error: NotFound | Forbidden) -> None:
        """Record that an object does not exist; verify the array after the 1st, 2nd, 4th … absent object."""
        if isinstance(error, Forbidden) and not self.forbidden_is_missing:
            raise error
        absences = self._absences
        # Without a lock: a lost count of another thread matters little.
        absences.count += 1
        absences.new += 1
        if absences.gone or not absences.count & (absences.count - 1):
            self.verify()

    def verify(self) -> None:
        """Check that the array still exists, if objects were absent since the last check."""
        if not self.document or not self._absences.new:
            return
        self._absences.new = 0
        try:
            self.source.head(self.document)
        except NotFound as error:
            # From here on, every absent object is an error.
            self._absences.gone = True
            message = "the array was deleted while it was read: its metadata is gone, and absent chunks mean nothing"
            raise DatasetChanged(message, url=error.url) from error

    def find(self, span: Span) -> Span:
        """Return the span, with the number of the store."""
        return homed(span, self.home)

    @property
    def records(self) -> None:
        """None: the locations of objects are known."""
        return

    def beside(self, key: str) -> tuple[Layout, OwnObjects] | None:
        """Open another array of the store: five requests in parallel."""
        try:
            found = open_arrays(self.source, key, forbidden_is_missing=self.forbidden_is_missing)
        except NotFound as error:
            if error.missing == "bucket":
                raise
            return None
        if "" not in {*found, *found.refused}:  # a group
            return None
        return found[""], replace(self, document="", _absences=_Absences())

    def url(self, key: str) -> str:
        """Return the object's URL."""
        return self.source.url(key)


@dataclass(frozen=True, slots=True)
class ReferencedObjects:
    """Objects of an array that are parts of other objects, by references; an absent target is an error.

    Attributes:
        references: The part of another object that each object is.
        sources: Stores of the targets, by root.
        most_bytes: Most bytes of one read; a reference to more is damaged.
        open: Function that opens the store of a URL of a reference.
        homes: Numbers of the stores among those of a dataset, by root.

    """

    references: References
    sources: Mapping[str, Source]
    most_bytes: int
    open: Callable[[str], Source]
    homes: dict[str, int] = field(default_factory=dict)
    _number: Callable[[Source], int] | None = None

    @classmethod
    def of(
        cls, references: References, sources: Mapping[str, Source], layout: Layout, opener: Callable[[str], Source]
    ) -> ReferencedObjects:
        """Return the locations of the objects of an array."""
        most_bytes = _MOST_GROWTH * layout.chunk_bytes + _INDEX_BYTES * prod(layout.ratios) + _MARGIN
        return cls(references, sources, most_bytes, opener)

    @property
    def records(self) -> Records | None:
        """The references, if they are read on demand; else None."""
        return self.references.records

    def numbered(self, number: Callable[[Source], int]) -> ReferencedObjects:
        """Return a copy with the numbers of the stores."""
        return replace(self, homes={root: number(source) for root, source in self.sources.items()}, _number=number)

    def absent(self, error: NotFound | Forbidden) -> None:
        """Raise: a reference must lead to an existing object."""
        if isinstance(error, Forbidden):
            raise error
        message = f"a reference leads to an object that is not there: {error.message}"
        raise Damaged(message, url=error.url) from error

    def verify(self) -> None:
        """Do nothing: each absent object is an error at once."""

    def find(self, span: Span) -> Span | bytes | None:
        """Return the location of a span of one of the array's objects, or its bytes; None without a reference."""
        found = self.references.at(span.key)
        if found is None:
            return None
        if isinstance(found, bytes):
            return found[span.start : span.stop]
        location = found.location
        part = _within(span, found.start, found.stop)
        if part.stop is not None and part.stop - part.start > self.most_bytes:
            size = part.stop - part.start
            raise Damaged(
                f"the reference {span.key!r} has {size} bytes, and no chunk has: it is damaged", url=found.url
            )
        home = self.homes.get(location.root)
        return homed(part._replace(key=location.key), self._new_home(found.url) if home is None else home)

    def _new_home(self, url: str) -> int:
        """Return the number of a store that is new among the targets of references."""
        if self._number is None:
            raise Bug("the stores of references were not numbered")
        if len(self.homes) >= MOST_ROOTS:
            raise Unsupported(f"these references lead to more than {MOST_ROOTS:,} buckets", url=self.references.url)
        return self.homes.setdefault(parse(url).root, self._number(self.open(url)))

    def beside(self, key: str) -> tuple[Layout, ReferencedObjects] | None:
        """Return another array of the document."""
        arrays = self.references.arrays
        if key not in {*arrays, *arrays.refused}:
            return None
        layout = arrays[key]
        return layout, ReferencedObjects.of(self.references, self.sources, layout, self.open)

    def url(self, key: str) -> str:
        """Return the URL of the target of an object of the array; without a target, of the document and the key."""
        found = self.references.known(key)
        document = f"{self.references.url or 'references'}#{key.rstrip('/')}"
        return document if found is None or isinstance(found, bytes) else found.url


def check_absent(objects: Located, error: NotFound | Forbidden) -> None:
    """Accept an absent object (404, or 403 if ``objects`` allow it) as a missing chunk, or raise.

    Raises:
        Unusable: The bucket does not exist.
        PenstockError: The same errors as ``Located.absent``.

    """
    if isinstance(error, NotFound) and error.missing == "bucket":
        raise Unusable(error.message, url=error.url) from error
    objects.absent(error)


def _within(span: Span, start: int, stop: int | None) -> Span:
    """Return a span that counts within bytes ``[start, stop)`` of an object as a span of the whole object."""
    # The whole object, or all from some byte on; only references that begin at 0 have no end.
    if stop is None:
        return span
    if span.start < 0:
        return Span("", max(start, stop + span.start), stop)
    end = stop if span.stop is None else min(stop, start + span.stop)
    return Span("", min(start + span.start, end), end)
