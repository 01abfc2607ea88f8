"""The samples that ``ps.pack`` writes, each as named members: objects of a catalog, or samples of a dataset."""

from __future__ import annotations

import hashlib
import json
import os
from abc import ABC, abstractmethod
from contextlib import closing
from functools import partial
from itertools import chain, islice
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from penstock.data.catalog.catalog import Catalog
from penstock.data.catalog.discovery.scan import absent
from penstock.data.order.orders import CatalogOrder
from penstock.data.reading.sample import FieldSample, Sample
from penstock.data.shards.encode import check_member
from penstock.data.shards.registry import suffixes
from penstock.errors import Damaged, Unusable, kind_of
from penstock.source import Source, open_source
from penstock.values import Span, as_folder

if TYPE_CHECKING:
    from collections.abc import Callable, Generator, Iterator

    from numpy.typing import NDArray

    from penstock.data.shards.keys import ArchiveFormat
    from penstock.options import StoreOptions

    Bytes = bytes | memoryview

_PIECE_BYTES = 8 << 20  # of a request for a long object
_AT_ONCE = 64  # samples of a dataset in one list
_MOST_FIELDS = 1 << 10
# Columns of rows: the names of samples, and their only images.
KEY, IMAGE = "__key__", "image"
_IMAGES = {
    *("bmp", "gif", "ico", "jfif", "jp2", "jpe", "jpeg", "jpg", "pbm", "pgm", "png", "pnm", "ppm", "tga", "tif"),
    *("tiff", "webp"),
}
_DIGITS = 9  # of the name of a sample without a key
# Files that lie beside shards.
_BESIDE = ("index.catalog", "pack.json", "index.json")


def is_image(field: str) -> bool:
    return field == IMAGE or field.rpartition(".")[2].lower() in _IMAGES


class PackedMember(NamedTuple):
    """Member to be written."""

    name: str
    size: int
    pieces: Iterator[Bytes]  # to be taken before the next member's
    again: Callable[[], Iterator[Bytes]]  # reads its bytes a second time
    field: str = ""  # of the sample


class Packable(NamedTuple):
    """Sample to be written: its number, its key and its members."""

    number: int
    key: str
    members: list[PackedMember]


class Members(ABC):
    """Samples to be written, of a catalog."""

    catalog: Catalog
    source: Source
    rows: NDArray[np.int64]  # entry of the catalog whose label and columns are those of each sample
    size_bytes: int | None  # of all members; None if unknown
    digest: str  # differs for other samples, as far as this can be told without reading them
    # of all samples, at most some thousand; None if samples have to be read to know
    fields: tuple[str, ...] | None = None
    images: int = 0  # most that a sample has; 0 if that is not known

    def values_digest(self) -> str:
        """Return a digest of the labels and columns of the samples, which their catalog will have."""
        given, whole = self.catalog, hashlib.sha256()
        labels = [] if given.bare else [given.label(row) for row in self.rows.tolist()]
        whole.update(json.dumps([given.classes, labels], default=str).encode())
        for name, column in given.columns.items():
            values = np.asarray(column)[self.rows]
            data = values.tobytes() if values.dtype != object else json.dumps(values.tolist(), default=str).encode()
            whole.update(json.dumps([name, values.dtype.str, values.shape, len(data)]).encode() + data)
        return whole.hexdigest()

    def sample_bytes(self) -> NDArray[np.int64]:
        """Return the bytes of each sample: int64, shape (samples,); zeros if they are not known."""
        return np.zeros(len(self.rows), np.int64)

    @abstractmethod
    def read(self, first: int) -> Generator[Packable]:
        """Yield the samples from number ``first`` on; a generator, which is closed to end its reads."""


def members_of(given: object, form: ArchiveFormat, globs: tuple[Any, Any], how: tuple[bool | None, Any]) -> Members:
    """Return the samples of a URL, a catalog or a dataset.

    ``globs`` are ``include`` and ``exclude``, ``how`` is ``progress`` and ``store``.
    """
    progress, store = how
    if isinstance(given, (str, os.PathLike)):
        include, exclude = globs
        source, key = open_source(given, store)
        # A path has no slash at its end, and names begin below the directory.
        url = source.url(as_folder(key))
        catalog = Catalog.scan(url, include=include, exclude=exclude, allow_empty=True, progress=progress, store=store)
        if not len(catalog):
            raise absent(source, as_folder(key), os.fspath(given), chosen=bool(include or exclude))
        if not include:
            _refuse_shards(catalog)
        return ObjectMembers(catalog, form, store)
    if any(globs):
        raise Unusable("include= and exclude= choose among the objects of a URL: use Catalog.filter")
    if isinstance(given, Catalog) and given.format is None and not given.fields:
        return ObjectMembers(given, form, store)
    # Imported late: it needs torch.
    from penstock.data.datasets.dataset import CatalogDataset
    from penstock.data.datasets.map import MapDataset

    if isinstance(given, Catalog):
        return DatasetMembers(MapDataset(given, store=store), form)
    if not isinstance(given, CatalogDataset):
        parts = ": pack the datasets of ps.concat one by one" if hasattr(given, "parts") else ""
        raise Unusable(f"source must be a URL, a Catalog or a dataset of one, got {kind_of(given)}{parts}")
    plain = given.catalog.format is None and not given.catalog.fields
    if plain and given.transform is None and not given.overrides:
        return ObjectMembers(given.catalog, form, store, next(given.reads(list))[0])
    return DatasetMembers(given, form)


def _refuse_shards(catalog: Catalog) -> None:
    """Refuse a prefix of nothing but shards and their side files: whole files would become samples."""
    ends = tuple(suffixes())
    names = (span.key.lower().rpartition("/")[2] for span in catalog.spans(range(len(catalog))))
    if all(name.endswith(ends) or name in _BESIDE for name in names):
        raise Unusable(
            'cannot pack samples of shards by their prefix: pass ps.MapDataset.from_shards(…), or include="**" to pack '
            "whole files as samples",
            url=catalog.root + catalog.base,
        )


class ObjectMembers(Members):
    """Objects of a catalog, in samples by key, in the order of their first objects; 40 bytes of memory each."""

    def __init__(
        self, catalog: Catalog, form: ArchiveFormat, store: StoreOptions | str | None, source: Source | None = None
    ) -> None:
        """Group the objects; HEAD requests for those of unknown size."""
        self.catalog, self._form = catalog, form
        self.source = source or open_source(catalog.root + catalog.base, store)[0]
        self._sizes, self._etags = catalog.sizes, dict[int, str]()
        self._base = len(catalog.base)
        if (unknown := np.flatnonzero(self._sizes < 0)).size:
            self._sizes = self._sizes.copy()
            metas = self.source.stat_many([catalog.span(row).key for row in unknown.tolist()])
            self._sizes[unknown] = [each.size for each in metas]
            self._etags = dict(zip(unknown.tolist(), (each.etag for each in metas), strict=True))
        self._images = np.zeros(len(catalog), bool)
        keys, places, self.digest = self._names()
        _, firsts, numbers = np.unique(keys, return_index=True, return_inverse=True)
        of = firsts[numbers]
        self._order = np.argsort(of, kind="stable")
        self._starts = np.append(np.flatnonzero(np.diff(of[self._order], prepend=-1)), len(keys))
        self._check_places(places)
        self.rows = self._order[self._starts[:-1]]
        self.images = int(np.bincount(numbers[self._images]).max(initial=0))
        self.size_bytes = int(self._sizes.sum())
        self._check_labels()

    def _names(self) -> tuple[NDArray[np.int64], NDArray[np.int64], str]:
        """Return sums of the key, and of key and field, of each object, and a digest of all."""
        whole, fields = hashlib.sha256(), dict[str, None]()
        keys, places = (np.zeros(len(self.catalog), np.int64) for _ in range(2))
        for row, span in enumerate(self.catalog.spans(range(len(self.catalog)))):
            name = span.key[self._base :]
            key, field = split_member_name(self._form, name, self.catalog.root + span.key)
            keys[row], places[row] = hash(key), hash((key, field))
            self._images[row] = is_image(field)
            if len(fields) < _MOST_FIELDS:
                fields[field] = None
            whole.update(
                json.dumps([name, span.start, int(self._sizes[row]), self._etags.get(row, span.etag)]).encode()
            )
        self.fields = (*fields,)
        return keys, places, whole.hexdigest()

    def _check_places(self, places: NDArray[np.int64]) -> None:
        found, counts = np.unique(places, return_counts=True)
        for place in found[counts > 1].tolist():
            rows = np.flatnonzero(places == place).tolist()
            urls = [self.catalog.root + self.catalog.span(row).key for row in rows[:2]]
            raise Unusable(
                f"would be the same field of the same sample as {urls[0]}: leave one out (exclude=…), or pass another "
                "key=",
                url=urls[1],
            )

    def _check_labels(self) -> None:
        """Refuse objects of one sample whose labels or columns are not the same."""
        first = np.repeat(self.rows, np.diff(self._starts))
        differ = np.zeros(len(first), bool)
        values = [np.asarray(each) for each in self.catalog.columns.values()]
        for each in [*values, *([self.catalog.labels] if self.catalog.classes else [])]:
            one, other = each[self._order], each[first]
            same = one == other
            # NaN, as a missing value has it, differs from itself.
            if each.dtype.kind == "f":
                same |= np.isnan(one) & np.isnan(other)
            differ |= ~same
        if differ.any():
            row = int(self._order[int(np.argmax(differ))])
            raise Unusable(
                "has another label or other columns than the first object of its sample",
                url=self.catalog.root + self.catalog.span(row).key,
            )

    def _span(self, row: int) -> Span:
        span = self.catalog.span(row)
        if row in self._etags:
            return span._replace(stop=int(self._sizes[row]), etag=self._etags[row])
        return span

    def read(self, first: int) -> Generator[Packable]:
        rows = self._order[self._starts[first] :]
        pieces = chain.from_iterable(map(_split_span, map(self._span, rows.tolist())))
        with self.source.lookahead(pieces) as bodies:
            for number in range(first, len(self.rows)):
                rows = self._order[self._starts[number] : self._starts[number + 1]]
                members = [self._member(self._span(row), bodies) for row in rows.tolist()]
                key, _ = split_member_name(self._form, members[0].name, "")
                yield Packable(number, key, members)

    def sample_bytes(self) -> NDArray[np.int64]:
        return np.add.reduceat(self._sizes[self._order], self._starts[:-1])

    def measured(self) -> Iterator[list[tuple[str, int]]]:
        """Yield the names and sizes of the members of each sample; nothing is read."""
        for number in range(len(self.rows)):
            rows = self._order[self._starts[number] : self._starts[number + 1]]
            spans = map(self._span, rows.tolist())
            yield [(span.key[self._base :], (span.stop or 0) - span.start) for span in spans]

    def _member(self, span: Span, bodies: Iterator[bytes]) -> PackedMember:
        pieces = [*_split_span(span)]
        name, size = span.key[self._base :], (span.stop or 0) - span.start
        _, field = split_member_name(self._form, name, "")
        return PackedMember(name, size, islice(bodies, len(pieces)), lambda: self._again(pieces), field)

    def _again(self, pieces: list[Span]) -> Iterator[Bytes]:
        with self.source.lookahead(iter(pieces)) as bodies:
            yield from bodies


def _split_span(span: Span) -> Iterator[Span]:
    """Yield a span in pieces; without a version as a whole, so that versions are not mixed."""
    stop = span.stop or 0
    if not span.etag or stop - span.start <= _PIECE_BYTES:
        yield span
        return
    for start in range(span.start, stop, _PIECE_BYTES):
        yield Span(span.key, start, min(stop, start + _PIECE_BYTES), span.etag)


class DatasetMembers(Members):
    """Samples of a dataset, in the order of its catalog, as its transform returns them."""

    def __init__(self, dataset: Any, form: ArchiveFormat) -> None:  # noqa: ANN401  a CatalogDataset: a late import
        self._dataset, self._form = dataset, form
        self.catalog: Catalog = dataset.catalog
        self.source = next(dataset.reads())[0]
        self.rows = np.arange(len(self.catalog))
        self.size_bytes = None
        whole = hashlib.sha256()
        every, base = range(len(self.catalog)), self.catalog.base
        if self.catalog.fields:
            whole.update(json.dumps([*self.catalog.fields, self.catalog.digest]).encode())
        for span in (
            chain.from_iterable(self.catalog.members(every)) if self.catalog.fields else self.catalog.spans(every)
        ):
            found = [] if span is None else [span.key.removeprefix(base), span.start, span.stop, span.etag]
            whole.update(json.dumps(found).encode())
        described = None if self.catalog.format is None else self.catalog.format.described()
        transform = getattr(dataset.transform, "__qualname__", type(dataset.transform).__name__)
        self.digest = json.dumps([whole.hexdigest(), described, type(dataset).__qualname__, transform])

    def read(self, first: int) -> Generator[Packable]:
        with closing(self.samples(first)) as samples:
            for number, sample in samples:
                yield self._packable(number, sample)

    def samples(self, first: int) -> Generator[tuple[int, Sample]]:
        """Yield number and sample from number ``first`` on."""
        last = len(self.catalog)
        batches = ([*range(at, min(last, at + _AT_ONCE))] for at in range(first, last, _AT_ONCE))
        lists, _ = self._dataset.ordered(CatalogOrder()).lists(batches, 1)
        with closing(lists):
            for number, sample in enumerate(chain.from_iterable(lists), first):
                if not isinstance(sample, Sample):
                    raise Unusable(
                        f"samples must be ps.Sample to be packed, got {kind_of(sample)}: pass the dataset "
                        "without its transform",
                        url=self.url(number),
                    )
                yield number, sample

    def url(self, number: int) -> str:
        found: str = self._dataset.url_of(number)
        return found

    def _packable(self, number: int, sample: Sample) -> Packable:
        url = self.url(number)
        values = self._values(number, sample, url)
        pairs = {split_member_name(self._form, name, url): name for name in values}
        fields = {name: field for (_, field), name in pairs.items()}
        keys = {key for key, _ in pairs}
        if len(keys) != 1 or len(pairs) != len(values):
            raise Unusable(
                f"{', '.join(map(repr, values)) or 'a sample without fields'} would not be read as one sample: pass "
                'another key=, such as key="last-dot"',
                url=url,
            )
        members = [make_member(name, data, fields[name]) for name, data in values.items()]
        return Packable(number, keys.pop(), members)

    def _values(self, number: int, sample: Sample, url: str) -> dict[str, Bytes]:
        form = self.catalog.format
        if isinstance(sample, FieldSample):
            key, names = sample.key, sample.fields
            if not key and KEY in names:
                # Rows that were packed before, or written by datasets from WebDataset's tar files.
                key, names = str(sample[KEY] or ""), tuple(name for name in names if name != KEY)
            key = key or f"{number:0{_DIGITS}}"
            found = ((name, encode_field(sample[name], name, url)) for name in names)
            return {f"{key}.{name}": data for name, data in found if data is not None}
        if form is None:
            return {sample.key.removeprefix(self.catalog.base): sample.data}
        return {f"{number:0{_DIGITS}}.{self.only_field}": sample.data}

    @property
    def only_field(self) -> str:
        """Name of the only field of a shard's sample, whose bytes have no separate name."""
        form = self.catalog.format
        fields = getattr(form, "fields", ())
        if isinstance(fields, str) and fields:
            return fields
        return {"jsonl": "json"}.get("" if form is None else form.name, "bin")


class RowMembers(Members):
    """Samples that are mappings from fields to values, which are read once, in order.

    ``prefix`` begins the numbers of rows that have no name in a field of ``keys``. With a field ``key``, as
    ``penstock.ray.read`` makes rows of objects, ``bytes`` has the object of this name.
    """

    def __init__(self, rows: Iterator[dict[str, Any]], form: ArchiveFormat, prefix: str, keys: tuple[str, ...]) -> None:
        self._rows, self._form, self._prefix, self._keys = rows, form, prefix, keys
        self.catalog = Catalog.build("memory://rows/", "", [])
        self.rows, self.size_bytes, self.digest = np.zeros(0, np.int64), None, ""

    def read(self, first: int) -> Generator[Packable]:
        for number, row in enumerate(self._rows, first):
            sample = self._packable(number, row)
            if self.fields is None:
                # Those of later rows must be among them.
                self.fields = tuple(each.field for each in sample.members)
                self.images = sum(map(is_image, self.fields))
            yield sample

    def _packable(self, number: int, row: dict[str, Any]) -> Packable:
        named = next((name for name in self._keys if name in row), None)
        given = f"{self._prefix}{number:0{_DIGITS}}" if named is None else str(row.pop(named))
        key, members = given, list[PackedMember]()
        if "key" in self._keys and isinstance(data := row.get("bytes"), bytes):
            key, field = split_member_name(self._form, given, "")
            members.append(make_member(given, data, field))
            del row["bytes"]
        for name, value in row.items():
            whole, found = f"{key}.{name}", encode_field(value, name, "")
            if found is None:
                continue
            if split_member_name(self._form, whole, "") != (key, name):
                raise Unusable(
                    f"the field {name!r} of the row {given!r} would be read as "
                    f"{split_member_name(self._form, whole, '')[1]!r}: "
                    'rename one of them, or pass another key=, such as key="last-dot"'
                )
            members.append(make_member(whole, found, name))
        if not members:
            raise Unusable(f"the row {given!r} has no field: it needs a column in addition to its key")
        return Packable(number, key, members)


def make_member(name: str, data: Bytes, field: str = "") -> PackedMember:
    return PackedMember(name, len(data), _once(data), partial(_once, data), field)


class Coming:
    """Samples from a given number on, one at a time; the next sample is kept until it is taken."""

    def __init__(self, members: Members) -> None:
        self._members = members
        self._reading: Generator[Packable] | None = None
        self._next: Packable | None = None

    def seek(self, number: int) -> None:
        if self._next is None or self._next.number != number:
            self.close()
            self._reading = self._members.read(number)
            self._next = next(self._reading, None)

    def peek(self) -> Packable | None:
        return self._next

    def advance(self) -> None:
        """Advance to the next sample, once the bytes of this sample were taken."""
        assert self._reading is not None  # noqa: S101  seek came first
        self._next = next(self._reading, None)

    def close(self) -> None:
        reading, self._reading, self._next = self._reading, None, None
        if reading is not None:
            reading.close()


def _once(data: Bytes) -> Iterator[Bytes]:
    yield data


def encode_field(value: object, name: str, url: str) -> Bytes | None:
    """Return the bytes of a field: those it has, UTF-8 of a text, or JSON; None for None."""
    if value is None or isinstance(value, bytes):
        return value
    if isinstance(value, Sample):
        return value.data
    if isinstance(value, str):
        try:
            return value.encode()
        except UnicodeEncodeError as error:
            raise Unusable(
                f"the field {name!r} is not valid text, it contains a lone surrogate ({error.reason}): "
                "correct it in the source, or leave the field (fields=…) or the sample out",
                url=url,
            ) from None
    if isinstance(value, (np.generic, np.ndarray)):
        value = value.tolist()
    try:
        return json.dumps(value, ensure_ascii=False, allow_nan=False).encode()
    except UnicodeEncodeError:
        # Half of a pair of surrogates: JSON has an escape for it.
        return json.dumps(value, allow_nan=False).encode()
    except (TypeError, ValueError) as error:
        raise Unusable(
            f"the field {name!r} is {kind_of(value)}, neither bytes nor text nor JSON ({error}): leave it out "
            "(fields=…), or turn it into bytes",
            url=url,
        ) from None


def split_member_name(form: ArchiveFormat, name: str, url: str) -> tuple[str, str]:
    """Return the key and the field of a member's name; refuse a name that readers would ignore."""
    try:
        check_member(name)
        found = form.split(name, 0)
    except Unusable as error:
        error.url = error.url or url
        raise
    except Damaged:
        raise Unusable(
            f"the name {name!r} has no key and field by key={form.key!r}: leave it out (exclude=…), or pass another "
            "key=",
            url=url,
        ) from None
    if found is None:
        raise Unusable(f"readers ignore the name {name!r} (__…__): leave it out (exclude=…)", url=url)
    return found
