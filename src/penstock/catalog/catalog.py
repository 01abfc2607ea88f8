"""The catalog: a frozen table of a dataset's objects that a million of them cost a worker nothing to hold."""

from __future__ import annotations

import os.path
from operator import lt
from typing import TYPE_CHECKING, Any, overload

import numpy as np

from penstock.catalog.contents import Contents
from penstock.catalog.entry import Entry, entry_of, relocated
from penstock.catalog.inventory.listing import listed as inventoried
from penstock.catalog.labels import check_rule, classified, names
from penstock.catalog.rows import Conditions, matching, picked, positions, united
from penstock.catalog.scanning.journal import Beyond
from penstock.catalog.scanning.nearest import absent
from penstock.catalog.scanning.scan import Listing, listed, scan
from penstock.catalog.select import globs
from penstock.catalog.split import Draw, divided
from penstock.catalog.storage.builder import TableBuilder
from penstock.catalog.storage.column import checked
from penstock.catalog.storage.saved import Saved, load, save
from penstock.catalog.storage.strings import encode
from penstock.errors import Damaged, ManifestError, Unusable
from penstock.progress import tally, totals
from penstock.providers.urls import parse
from penstock.source import open_source
from penstock.values import as_folder, whole
from penstock.verbs import open as open_object

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from numpy.typing import ArrayLike, NDArray

    from penstock.catalog.labels import Labels, Rule
    from penstock.options import StoreOptions
    from penstock.providers.urls import Location

__all__ = ["Catalog", "Entry"]


class Catalog(Contents):
    """``len(catalog)`` objects, or byte ranges of objects, in a fixed order, held in shared memory.

    ``scan``, ``from_inventory``, ``refresh``, ``open`` and ``save`` ask a store; nothing else here does.

    ``catalog[i]`` is an ``Entry`` (negative ``i`` counts from the end; IndexError past it). ``catalog[a:b:c]``,
    ``catalog[indices]``, ``filter`` and ``split`` give catalogs over the same memory: they copy no entry, and pickle
    the whole. A key may stand in it more than once.

    Attributes:
        root: What every key is appended to to make its URL: ``s3://bucket/``.
        base: The prefix of all keys that does not count as part of their names; "" when they have none in common.

    """

    @classmethod
    def scan(  # noqa: PLR0913  from_prefix has its arguments, and see design/0020
        cls,
        url: str | os.PathLike[str],
        *,
        include: str | Iterable[str] = (),
        exclude: str | Iterable[str] = (),
        labels: Rule | None = None,
        allow_empty: bool = False,
        progress: bool | None = None,
        store: StoreOptions | str | None = None,
    ) -> Catalog:
        """List every object whose key begins with the URL's; one request for each 1,000, in parallel where it can.

        ``include`` and ``exclude`` are globs over the key below the prefix; directory markers are left out.
        ``labels``: see ``with_labels``. ``progress`` shows on standard error how many were found; by default where that
        is a terminal and rich is installed.

        Raises:
            NotFound: Nothing is there, and ``allow_empty`` is not set: two more requests say what is near.
            ConfigError: A glob is none.
            Unusable: An object has no label.

        """
        if labels is not None:
            check_rule(labels)
        include, exclude = globs(include), globs(exclude)
        source, prefix = open_source(url, store)
        with tally(f"listing {source.url(prefix)}", shown=progress) as count:
            found = scan(source, prefix, include=include, exclude=exclude, progress=totals(count))
        catalog = cls(source.root, *found)
        if not (allow_empty or len(catalog)):
            otherwise = "pass allow_empty=True if that is meant"
            raise absent(source, prefix, os.fspath(url), chosen=bool(include or exclude), instead=otherwise)
        return catalog if labels is None else catalog.with_labels(labels)

    @classmethod
    def from_inventory(
        cls,
        manifest: str | os.PathLike[str],
        url: str | os.PathLike[str],
        *,
        include: str | Iterable[str] = (),
        exclude: str | Iterable[str] = (),
        progress: bool | None = None,
        store: StoreOptions | str | None = None,
    ) -> Catalog:
        """Return what a listing of ``url`` would have brought when the store wrote an inventory of its bucket.

        A HEAD and a GET (one more for each 16 MiB) for the manifest, its checksum, and each file; no LIST. Objects
        written since are missing; reading one that was replaced is ``Changed``. Labels: ``with_labels``.

        Args:
            manifest: S3 Inventory's ``manifest.json`` or the ``…_manifest.json`` of a report of Google's Storage
                Insights, of files in CSV or Parquet (which needs the extra ``parquet``); a copy of all of it, too.
            url: The prefix of the objects, in the inventory's bucket.
            include: As for ``scan``.
            exclude: As for ``scan``.
            progress: As for ``scan``.
            store: How to reach the inventory.

        Raises:
            Unusable: The inventory is of another bucket, or written as ORC.
            ManifestError: It cannot be read, or lists a key twice.
            ChecksumMismatch: A file has another size or MD5 than its manifest says.

        """
        place, wanted = parse(url), (globs(include), globs(exclude))
        with tally(f"reading the inventory of {place.root}", shown=progress) as count:
            table = inventoried(manifest, place, wanted, totals(count), store)
        return cls(place.root, place.key[: place.key.rfind("/") + 1], table)

    @classmethod
    def open(
        cls,
        url: str | os.PathLike[str],
        *,
        root: str | os.PathLike[str] | None = None,
        store: StoreOptions | str | None = None,
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
                found = load(reader)
            catalog = cls(found.root, found.base, found.table)
            catalog.__dict__["digest"] = found.digest
            if root is None and found.root != place.root:
                where = found.root + found.base
                raise ManifestError(f"its objects lie elsewhere: if you mean to read them, pass root={where!r}")
            return catalog if root is None else catalog._below(parse(root))
        except Damaged as error:
            error.url = place.url
            raise

    def refresh(
        self,
        url: str | os.PathLike[str] | None = None,
        *,
        include: str | Iterable[str] = (),
        exclude: str | Iterable[str] = (),
        labels: Rule | None = None,
        progress: bool | None = None,
        store: StoreOptions | str | None = None,
    ) -> Catalog:
        """Return this catalog with the objects whose keys sort after its last one: requests for these alone.

        That is all that is new where names grow with time (dates, counters). What was added before the last key, has
        changed, or was deleted is not noticed: ``scan`` lists everything. Stores that cannot begin a listing after a
        key (Azure) are listed whole. The arguments are those of ``scan``; pass the same ones.

        Args:
            url: The prefix that was listed; by default everything below ``base``.
            include: As for ``scan``.
            exclude: As for ``scan``.
            labels: As for ``scan``, of the new objects: a catalog with classes needs it.
            progress: As for ``scan``.
            store: As for ``scan``.

        Raises:
            Unusable: This catalog is not in the order of keys, has classes and ``labels`` is not given, or has columns;
                ``url`` does not lie below ``base``.

        """
        source, prefix = open_source(self.root + self.base if url is None else url, store)
        if source.root != self.root or not prefix.startswith(self.base):
            raise Unusable(f"the catalog lists objects below {self.root}{self.base}", url=source.url(prefix))
        keys = [self._table.keys[row] for row in self._table.objects(self._indices)]
        if not all(map(lt, keys, keys[1:])):
            raise Unusable("the keys are not in order, each once, so what is new cannot be told: scan again")
        if self._table.columns or (labels is None) is not (self._table.classes is None):
            raise Unusable("a catalog with classes needs labels= for what is new, and columns cannot be made up")
        with tally(f"listing {source.url(prefix)}", shown=progress) as count:
            known = Beyond(keys[-1] if keys else b"")
            found = listed(source, prefix, Listing(include, exclude, progress=totals(count), known=known))
        new = Catalog(source.root, *found)
        return self + (new if labels is None else new.with_labels(labels)) if len(new) else self

    def save(self, url: str | os.PathLike[str], *, store: StoreOptions | str | None = None) -> None:
        """Write this catalog, or this part of one, to a file that ``open`` reads: some 22 bytes per object and its key.

        The write is atomic and replaces the previous file. A part is copied first; nothing else is.
        """
        table = self._table.take(self._indices)
        with open_object(url, "wb", store=store) as writer:
            save(writer, Saved(self.root, self.base, self.digest, table))

    def _below(self, place: Location) -> Catalog:
        """Return the catalog of the same names at another place; itself for where they were listed."""
        below = as_folder(place.key)
        if (place.root, below) == (self.root, self.base):
            return self
        table = self._table.take(self._indices)
        moved = Catalog.build(place.root, below, relocated(self, self.base, place, labelled=table.classes is None))
        return Catalog(
            place.root,
            moved.base,
            moved._table.having(  # noqa: SLF001  its own
                classes=table.classes, columns=table.columns
            ),
        )

    @classmethod
    def build(cls, root: str, base: str, entries: Iterable[Entry]) -> Catalog:
        """Write ``entries`` (full keys) into a table as they come; holds twice the table's bytes while it does.

        When a key does not begin with ``base``, ``base`` becomes "": a name is either relative for all or for none.

        Raises:
            Unusable: A label cannot be written as JSON (tuples become lists, keys of dicts strings); a range without
                a size.

        """
        growing = TableBuilder()
        inside = True
        for key, size, label, etag, offset in entries:
            growing.add(encode(key), size, etag, label, offset)
            inside = inside and key.startswith(base)
        return cls(root, base if inside else "", growing.freeze())

    @overload
    def __getitem__(self, index: int) -> Entry: ...
    @overload
    def __getitem__(self, index: slice | Sequence[int] | ArrayLike) -> Catalog: ...
    def __getitem__(self, index: Any) -> Entry | Catalog:
        """Return one entry; or a catalog of those that a slice, indices (in their order) or a mask names.

        Raises:
            IndexError: An index lies past the end.
            Unusable: What is given is neither.

        """
        if isinstance(index, slice):
            return Catalog(self.root, self.base, self._table, self._rows[index])
        if hasattr(index, "__index__") and not isinstance(index, (bool, np.ndarray)) and not getattr(index, "ndim", 0):
            return entry_of(self._table, self._rows[index])
        return self._picked(positions(index, len(self)))

    def filter(
        self,
        *,
        size: tuple[int | None, int | None] | None = None,
        include: str | Iterable[str] = (),
        exclude: str | Iterable[str] = (),
        mask: Sequence[bool] | ArrayLike | None = None,
        labels: object = None,
    ) -> Catalog:
        """Return the catalog of those entries that meet all conditions, in their order; no request.

        Globs take some 0.5 µs per entry, all else some 10 ns. The classes and their numbers stay.

        Args:
            size: Least and most bytes, both inclusive; None without a bound.
            include: Globs over the key below ``base``, of which one must match.
            exclude: Globs of which none may match.
            mask: One bool for each entry.
            labels: Class names or labels, or one of them, to keep.

        Raises:
            Unusable: A condition is none; no entry is left to choose from what is known (unknown sizes, no labels).

        """
        asked = Conditions(size, globs(include), globs(exclude), mask, labels)
        return self._picked(matching(self._table, self._indices, len(encode(self.base)), asked))

    def split(self, *parts: float, seed: int = 0, by: str = "sample") -> tuple[Catalog, ...]:
        """Return parts of the catalog, drawn at random, each in this order; no request.

        ``split(0.9)`` makes parts of about nine tenths and one tenth: each entry is drawn by its name below ``base``
        and ``seed`` alone, so it stays on its side when the prefix has grown, and wherever the objects lie. Counts
        (``split(540, 60)``) are exact, and so is ``by="label"``: of every class each part has its fraction, rounded,
        and one entry at least; a few entries change sides when the prefix has grown. Classes stay those of the whole.

        Args:
            parts: Fractions that make 1, or counts that make ``len(catalog)``; one alone is the first of two parts.
            seed: Any whole number.
            by: "sample", or "label" for fractions of each class.

        Raises:
            Unusable: Parts that do not fit, a part without an entry, or a class with fewer entries than parts.

        """
        skip, number = len(encode(self.base)), whole(seed, "seed")
        return tuple(map(self._picked, divided(self._table, self._indices, parts, Draw(skip, number, by))))

    def __add__(self, other: Catalog) -> Catalog:
        """Return the entries of both, in order; of parts of one catalog without copying. Classes are united by name.

        Raises:
            Unusable: They lie in different buckets; or only one has classes, or a column.

        """
        if not isinstance(other, Catalog):
            return NotImplemented
        if self.root != other.root:
            raise Unusable(f"objects of {self.root} and {other.root}: a catalog holds those of one bucket")
        base = self.base
        if base != other.base:  # characters are meant: keys are no paths
            base = os.path.commonprefix([base, other.base])  # noqa: RUF071
            base = base[: base.rfind("/") + 1]
        return Catalog(self.root, base, *united(self._table, self._indices, other._table, other._indices))

    def with_labels(self, labels: Labels, *, classes: Sequence[str] | None = None) -> Catalog:
        r"""Return this catalog with the numbers of classes as labels, and ``classes``; no request.

        Args:
            labels: "folder" is the last directory of the key; a pattern with one group (``r"_(\w+)\.jpg$"``) is
                searched in the key below ``base``; a function is given that key and returns the class as str;
                a sequence has a class name for each entry, or its number where ``classes`` are given.
            classes: The names in the order of their numbers, such as ``training.classes``; default: those found,
                sorted by code point, so they are the same wherever the same objects are listed.

        Raises:
            Unusable: An entry has no label, or one that is not in ``classes``.

        """
        table = self._table.take(self._indices)
        blocks = names(table, range(table.rows), len(encode(self.base)))
        return Catalog(self.root, self.base, table.having(classes=classified(labels, blocks, table.rows, classes)))

    def with_columns(self, **columns: Sequence[Any] | ArrayLike) -> Catalog:
        """Return this catalog with columns of yours, each one value (bool, int, float or str) for each entry.

        They travel through slices, ``filter``, ``split``, ``+``, ``save`` and to workers, and a sample has its own in
        ``sample.columns``. A name that is there already is replaced.

        Raises:
            Unusable: A column of another length, or of values of another kind.

        """
        made = {name: checked(name, values, len(self)) for name, values in columns.items()}
        table = self._table.take(self._indices)
        return Catalog(self.root, self.base, table.having(columns=table.columns | made))

    def _picked(self, chosen: NDArray[np.int64]) -> Catalog:
        return Catalog(self.root, self.base, self._table, picked(self._indices, chosen))
