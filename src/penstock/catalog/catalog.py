"""The catalog: a frozen table of a dataset's objects that a million of them cost a worker nothing to hold."""

from __future__ import annotations

import hashlib
import json
from functools import cached_property
from itertools import filterfalse
from typing import TYPE_CHECKING, NamedTuple, overload

import numpy as np

from penstock.catalog.digest import digest_of
from penstock.catalog.saved import Saved, load, save
from penstock.catalog.scan import scan
from penstock.catalog.table import Table, TableBuilder, decode, encode
from penstock.errors import Damaged, ManifestError, NotFound, Unusable
from penstock.providers.urls import parse
from penstock.source import open_source
from penstock.values import Span, whole
from penstock.verbs import open as open_object

if TYPE_CHECKING:
    import os
    from collections.abc import Iterable, Iterator

    from numpy.typing import NDArray

    from penstock.options import StoreOptions
    from penstock.providers.urls import Location

__all__ = ["Catalog", "Entry", "as_folder"]


class Entry(NamedTuple):
    """One object of a catalog or a manifest.

    Attributes:
        key: Full key within the bucket; in a manifest, what stands there.
        size: Bytes; -1 when not known.
        label: Whatever the manifest says of it: any JSON value; None for nothing.
        etag: The version listed, without quotes; empty when not known.

    """

    key: str
    size: int = -1
    label: object = None
    etag: str = ""


class Catalog:
    """``len(catalog)`` objects in a fixed order, held in shared memory.

    ``scan``, ``open`` and ``save`` ask a store; nothing else here does.

    ``catalog[i]`` is an ``Entry`` (negative ``i`` counts from the end; IndexError past it). ``catalog[a:b:c]`` is a
    Catalog over the same memory: it copies nothing, and pickles the whole. A key may stand in it more than once.

    Attributes:
        root: What every key is appended to to make its URL: ``s3://bucket/``.
        base: The prefix of all keys that does not count as part of their names; "" when they have none in common.

    """

    def __init__(self, root: str, base: str, table: Table, rows: range | None = None) -> None:
        """Show ``rows`` (default all) of a table whose keys all begin with ``base``; others make it for you."""
        self.root = root
        self.base = base
        self._table = table
        self._rows = range(table.rows) if rows is None else rows

    @classmethod
    def scan(
        cls,
        url: str | os.PathLike[str],
        *,
        include: str | Iterable[str] = (),
        exclude: str | Iterable[str] = (),
        allow_empty: bool = False,
        store: StoreOptions | None = None,
    ) -> Catalog:
        """List every object whose key begins with the URL's; one request for each 1,000, in parallel where it can.

        ``include`` and ``exclude`` are globs over the key below the prefix; directory markers are left out.

        Raises:
            NotFound: Nothing is there, and ``allow_empty`` is not set.

        """
        source, prefix = open_source(url, store)
        catalog = cls(source.root, *scan(source, prefix, include=include, exclude=exclude))
        return catalog if allow_empty else catalog.filled(source.url(prefix))

    @classmethod
    def open(
        cls,
        url: str | os.PathLike[str],
        *,
        root: str | os.PathLike[str] | None = None,
        store: StoreOptions | None = None,
    ) -> Catalog:
        """Read a catalog that ``save`` has written, and verify all of it: HEAD, GET, and one GET for each 16 MiB.

        A file says which objects are read, with your credentials; so without ``root`` they must lie in the bucket that
        the file lies in, or both on this machine. ``root`` says below which URL they lie: where they were listed, or
        where there is a copy. Of a copy names, sizes, labels and digest stay; versions are not known, and it takes a
        second table.

        Raises:
            NotFound: No such file.
            ManifestError: It is no catalog, a newer one, cut short, or needs ``root``.
            ChecksumMismatch: It has changed since it was written.

        """
        place = parse(url)
        try:
            with open_object(url, "rb", store=store) as reader:
                saved = load(reader)
            catalog = cls(saved.root, saved.base, saved.table)
            catalog.__dict__["digest"] = saved.digest
            if root is None and saved.root != place.root:
                where = saved.root + saved.base
                raise ManifestError(f"its objects lie elsewhere: if you mean to read them, pass root={where!r}")
            return catalog if root is None else catalog._below(parse(root))
        except Damaged as error:
            error.url = place.url
            raise

    def save(self, url: str | os.PathLike[str], *, store: StoreOptions | None = None) -> None:
        """Write this catalog, or this part of one, to a file that ``open`` reads: some 50 bytes per object and its key.

        The file appears whole or not at all, and replaces what is there. A part is copied first; nothing else is.
        """
        table = self._table.take(self._rows)
        with open_object(url, "wb", store=store) as writer:
            save(writer, Saved(self.root, self.base, self.digest, table))

    def filled(self, url: str) -> Catalog:
        """Return itself; raises ``NotFound``, about ``url``, when it is empty."""
        if not len(self):
            message = "no objects there (after include= and exclude=); pass allow_empty=True if that is meant"
            raise NotFound(message, url=url)
        return self

    def _below(self, place: Location) -> Catalog:
        """Return the catalog of the same names at another place; itself for where they were listed."""
        below, skip = as_folder(place.key), len(self.base)
        if (place.root, below) == (self.root, self.base):
            return self
        entries = (entry._replace(key=below + entry.key[skip:], etag="") for entry in self)
        return Catalog.build(place.root, below, entries if place.scheme != "file" else map(_contained, entries))

    @classmethod
    def build(cls, root: str, base: str, entries: Iterable[Entry]) -> Catalog:
        """Write ``entries`` (full keys) into a table as they come; holds twice the table's bytes while it does.

        When a key does not begin with ``base``, ``base`` becomes "": a name is either relative for all or for none.

        Raises:
            Unusable: A label cannot be written as JSON (tuples become lists, keys of dicts strings).

        """
        growing = TableBuilder()
        inside = True
        for key, size, label, etag in entries:
            growing.add(encode(key), size, etag, label)
            inside = inside and key.startswith(base)
        return cls(root, base if inside else "", growing.freeze())

    def __len__(self) -> int:
        """Return how many objects there are."""
        return len(self._rows)

    @overload
    def __getitem__(self, index: int) -> Entry: ...
    @overload
    def __getitem__(self, index: slice) -> Catalog: ...
    def __getitem__(self, index: int | slice) -> Entry | Catalog:
        """Return one entry, or a catalog of some."""
        if isinstance(index, slice):
            return Catalog(self.root, self.base, self._table, self._rows[index])
        return self._entry(self._rows[index])

    def split(self, fraction: float, *, seed: int = 0) -> tuple[Catalog, Catalog]:
        """Return about ``fraction`` of the objects, drawn at random, and all the others: two catalogs, in this order.

        On which side an object is follows from its name below ``base`` and ``seed`` alone, so it stays there when the
        prefix has grown. Both are tables of their own, made at some 10 µs per object.

        Raises:
            Unusable: ``fraction`` is not within [0, 1], or ``seed`` no whole number.

        """
        if not 0 <= fraction <= 1:
            raise Unusable(f"a fraction lies within 0 and 1, not {fraction!r}")
        key, skip, limit = str(whole(seed, "seed")).encode()[:64], len(encode(self.base)), int(fraction * 2**64)

        def first(entry: Entry) -> bool:
            draw = hashlib.blake2b(encode(entry.key)[skip:], digest_size=8, key=key).digest()
            return int.from_bytes(draw, "big") < limit

        return (
            Catalog.build(self.root, self.base, filter(first, self)),
            Catalog.build(self.root, self.base, filterfalse(first, self)),
        )

    def __iter__(self) -> Iterator[Entry]:
        """Yield the entries in order."""
        return map(self._entry, self._rows)

    def __repr__(self) -> str:
        """Say what and how much, not which."""
        return f"<Catalog of {len(self):,} objects under {self.root}{self.base}>"

    def _entry(self, row: int) -> Entry:
        table = self._table
        return Entry(
            key=decode(table.keys[row]),
            size=table.sizes[row],
            label=self._label(row),
            etag=decode(table.etags[row]),
        )

    def _label(self, row: int) -> object:
        label = self._table.labels[row]
        try:
            return json.loads(label) if label else None
        except (ValueError, RecursionError) as error:  # only where a catalog was written by something else
            raise ManifestError(f"the label of {decode(self._table.keys[row])!r} is not JSON") from error

    def span(self, index: int) -> Span:
        """Return all bytes of one object, pinned to the version that was listed; ``stop`` is None for an unknown size.

        One call per sample: about 1 µs.
        """
        row, table = self._rows[index], self._table
        size = table.sizes[row]
        return Span(decode(table.keys[row]), 0, size if size >= 0 else None, decode(table.etags[row]), whole=True)

    def label(self, index: int) -> object:
        """Return one object's label."""
        return self._label(self._rows[index])

    @property
    def sizes(self) -> NDArray[np.int64]:
        """Bytes of each object, -1 where unknown: int64, shape (len,), read-only; a view unless sliced with a step."""
        sizes = _some(np.frombuffer(self._table.sizes, np.int64), self._rows)
        sizes.flags.writeable = False
        return sizes

    @property
    def total_bytes(self) -> int:
        """Bytes of all objects together; -1 when one is unknown."""
        sizes = self.sizes
        if (sizes < 0).any():
            return -1
        return (int((sizes >> 32).sum()) << 32) + int((sizes & 0xFFFFFFFF).sum())  # the sum may pass 2⁶³

    @cached_property
    def digest(self) -> str:
        """SHA-256, in hex, of the names below ``base`` and the sizes, in order.

        Neither where they lie nor ETags count, so a copy elsewhere has the same one. Computed once, at about 0.1 µs per
        object, and carried along when pickled.
        """
        return digest_of(self._table, self._rows, encode(self.base))


def as_folder(key: str) -> str:
    """Return the prefix of everything below ``key``; "" is the whole bucket."""
    return key if key.endswith("/") or not key else key + "/"


def _contained(entry: Entry) -> Entry:
    """Return an entry whose name stays below the directory that ``root`` named: whoever wrote it may be a stranger."""
    if ".." in entry.key.split("/"):
        raise ManifestError(f"{entry.key[:200]!r} leads out of its directory")
    return entry


def _some(values: NDArray[np.int64], rows: range) -> NDArray[np.int64]:
    if rows.step == 1:
        return values[rows.start : rows.stop]
    return values[np.arange(rows.start, rows.stop, rows.step)]
