"""Where the objects of an array lie: in the array's own store, or, by references, within objects of other stores."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from math import prod
from typing import TYPE_CHECKING, Protocol

from penstock.datasets.zarr.objects.joined import homed
from penstock.errors import Bug, Damaged, DatasetChanged, NotFound, Unsupported, Unusable
from penstock.formats.zarr.opening import open_arrays
from penstock.formats.zarr.virtual.references import MOST_ROOTS
from penstock.providers.urls import parse
from penstock.values import Span

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from penstock.formats.zarr.layout import Layout
    from penstock.formats.zarr.virtual.records import Records
    from penstock.formats.zarr.virtual.references import References
    from penstock.source import Source

_MOST_GROWTH, _MARGIN = 16, 1 << 20  # as of the chunks of shards: formats/zarr/index.py
_INDEX_BYTES = 16  # of a shard's index, for each chunk

__all__ = ["Located", "OwnObjects", "ReferencedObjects", "check_absent"]


class Located(Protocol):
    """Says where what an array calls its objects really lies."""

    @property
    def sources(self) -> Mapping[str, Source]:
        """The stores that are read, by their roots."""

    def absent(self, error: NotFound) -> None:
        """Take note that one of the objects is not there, which means the fill value.

        Raises:
            Damaged: It means that something is missing.
            Changed: The array is not there any more.

        """

    def verify(self) -> None:
        """Look whether the array is still there, where objects were absent since the last look; else no request.

        Raises:
            Changed: It is not.

        """

    def numbered(self, number: Callable[[Source], int]) -> Located:
        """Return the same, with the number that each store has among those of a dataset."""

    def find(self, span: Span) -> Span | bytes | None:
        """Return where a span of one of the array's objects lies, or its bytes; None: there is no such object.

        Raises:
            PenstockError: A reference cannot be meant.

        """

    @property
    def records(self) -> Records | None:
        """What says where objects lie, where that is read when it is needed: then other stores may come with it."""

    def beside(self, key: str) -> tuple[Layout, Located] | None:
        """Return another array of the same store or document, and where its objects lie; None: there is none."""

    def url(self, key: str) -> str:
        """Return where an object lies, for errors."""


class _Absences:
    """How many objects of an array were not there, how many of them since the last look, and whether it is gone."""

    __slots__ = ("count", "gone", "new")

    def __init__(self) -> None:
        self.count = self.new = 0
        self.gone = False

    def __reduce__(self) -> tuple[object, ...]:
        """Arrive in another process without any."""
        return _Absences, ()


@dataclass(frozen=True, slots=True)
class OwnObjects:
    """The array's objects are objects of its store; those that were never written are not there.

    Nor are those of an array that is being deleted. So the document that the array's layout was made of is looked for
    again after the first absent object, the second, the fourth, and so on, and at the end of an epoch: one HEAD each.

    Attributes:
        source: The store.
        home: Its number among those of a dataset.
        document: The key of that document; empty where none is known.

    """

    source: Source
    home: int = 0
    document: str = ""
    _absences: _Absences = field(default_factory=_Absences, compare=False, repr=False)

    @property
    def sources(self) -> Mapping[str, Source]:
        """Its store."""
        return {self.source.root: self.source}

    def numbered(self, number: Callable[[Source], int]) -> OwnObjects:
        """Return the same, with the store's number."""
        return replace(self, home=number(self.source))

    def absent(self, error: NotFound) -> None:  # noqa: ARG002  what every array's objects are told
        """Take note that an object is not there."""
        absences = self._absences
        absences.count += 1  # by several threads: that one is not counted matters little
        absences.new += 1
        if absences.gone or not absences.count & (absences.count - 1):
            self.verify()

    def verify(self) -> None:
        """Look whether the array is still there, where objects were absent since the last look."""
        if not self.document or not self._absences.new:
            return
        self._absences.new = 0
        try:
            self.source.head(self.document)
        except NotFound as error:
            self._absences.gone = True  # every absent object is an error from here on
            message = "the array was deleted while it was read: its metadata is gone, and absent chunks mean nothing"
            raise DatasetChanged(message, url=error.url) from error

    def find(self, span: Span) -> Span:
        """Return the span, of that store."""
        return homed(span, self.home)

    @property
    def records(self) -> None:
        """None: where objects lie is known."""
        return

    def beside(self, key: str) -> tuple[Layout, OwnObjects] | None:
        """Open another array of the store: five requests in parallel."""
        try:
            found = open_arrays(self.source, key)
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
    """The array's objects are parts of other objects, by references; one that is not there is an error.

    Attributes:
        references: Which part of which object each is.
        sources: The stores of these, by their roots.
        most_bytes: What is read at once, at most: a reference to more is damaged.
        open: Opens the store of a URL that a reference leads to.
        homes: The stores' numbers among those of a dataset.

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
        """Return where the objects of an array lie."""
        most_bytes = _MOST_GROWTH * layout.chunk_bytes + _INDEX_BYTES * prod(layout.ratios) + _MARGIN
        return cls(references, sources, most_bytes, opener)

    @property
    def records(self) -> Records | None:
        """The references, where they are read when they are needed."""
        return self.references.records

    def numbered(self, number: Callable[[Source], int]) -> ReferencedObjects:
        """Return the same, with the stores' numbers."""
        return replace(self, homes={root: number(source) for root, source in self.sources.items()}, _number=number)

    def absent(self, error: NotFound) -> None:
        """Refuse: the reference says that there is something."""
        message = f"a reference leads to an object that is not there: {error.message}"
        raise Damaged(message, url=error.url) from error

    def verify(self) -> None:
        """Do nothing: whatever is absent is an error at once."""

    def find(self, span: Span) -> Span | bytes | None:
        """Return where the part lies that a span of one of the array's objects is."""
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
        """Return the number of a store that no reference has led to before."""
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
        """Return the URL of the object that an object of the array is a part of."""
        found = self.references.known(key)
        document = f"{self.references.url or 'references'}#{key.rstrip('/')}"
        return document if found is None or isinstance(found, bytes) else found.url


def check_absent(objects: Located, error: NotFound) -> None:
    """Let a 404 be a missing chunk where it may be one.

    Raises:
        Unusable: The bucket is not there.
        PenstockError: As ``Located.absent``.

    """
    if error.missing == "bucket":
        raise Unusable(error.message, url=error.url) from error
    objects.absent(error)


def _within(span: Span, start: int, stop: int | None) -> Span:
    """Return a span of bytes ``[start, stop)`` of an object as a span of that object."""
    if stop is None:  # all of an object, or from some byte on: which only those that begin at 0 say of themselves
        return span
    if span.start < 0:
        return Span("", max(start, stop + span.start), stop)
    end = stop if span.stop is None else min(stop, start + span.stop)
    return Span("", min(start + span.start, end), end)
