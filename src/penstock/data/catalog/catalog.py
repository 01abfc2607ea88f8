"""The catalog: a frozen table of a dataset's objects in shared memory, which workers map instead of copying."""

from __future__ import annotations

import os.path
from functools import cached_property
from operator import lt
from typing import TYPE_CHECKING, Any, overload

import numpy as np

from penstock.data.catalog.column import checked, encode, taken
from penstock.data.catalog.inventory import listed as inventoried
from penstock.data.catalog.journal import Beyond
from penstock.data.catalog.labels import check_rule, classified, label_of, names
from penstock.data.catalog.rows import (
    Conditions,
    Draw,
    Entry,
    divided,
    entry_of,
    matching,
    picked,
    positions,
    relocated,
    united,
)
from penstock.data.catalog.saved import Saved, digest_of, load, save
from penstock.data.catalog.scan import Listing, absent, listed, scan
from penstock.data.catalog.shards import find_shards, index_shards
from penstock.data.catalog.table import TableBuilder
from penstock.engine.listing.select import globs
from penstock.errors import Damaged, ManifestError, Unusable
from penstock.progress import tally, totals
from penstock.source import open_source
from penstock.stores.urls import parse
from penstock.values import Span, as_folder, whole
from penstock.verbs import open as open_object

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping, Sequence

    from numpy.typing import ArrayLike, NDArray

    from penstock.data.catalog.column import Categorical, Rows
    from penstock.data.catalog.labels import Labels, Rule
    from penstock.data.catalog.rows import Picked
    from penstock.data.catalog.table import Table
    from penstock.data.shards.format import ShardFormat
    from penstock.data.shards.keys import KeyRule, Missing
    from penstock.options import StoreOptions
    from penstock.stores.urls import Location

__all__ = ["Catalog", "Contents", "Entry"]

_new = tuple.__new__


class Contents:
    """Rows of a table in a fixed order, as a catalog shows them: no method here makes a request.

    Attributes:
        root: URL of the bucket, to which a key is appended to form its URL: ``s3://bucket/``.
        base: The prefix of all keys that is not part of their names; "" when they have no prefix in common.

    """

    def __init__(self, root: str, base: str, table: Table, rows: range | Picked | None = None) -> None:
        """Show ``rows`` (default all) of a table whose keys all begin with ``base``; ``Catalog`` has constructors."""
        self.root = root
        self.base = base
        self._table = table
        self._rows = range(table.rows) if rows is None else rows

    def __len__(self) -> int:
        """Return the number of entries."""
        return len(self._rows)

    @property
    def classes(self) -> tuple[str, ...]:
        """The class names by label; () without classes. A part of a catalog keeps the classes of the whole."""
        return () if self._table.classes is None else self._table.classes.categories

    @property
    def labels(self) -> NDArray[np.int64]:
        """The labels as class numbers: int64, shape (len,), a copy.

        Raises:
            Unusable: The catalog has no classes.

        """
        if self._table.classes is None:
            raise Unusable('this catalog has no classes: scan(…, labels="folder"), or with_labels(…)')
        return taken(self._table.classes.numbers.values, self._indices).astype(np.int64)

    @property
    def columns(self) -> Mapping[str, NDArray[Any] | Categorical]:
        """The user's columns by name: arrays of numbers or ``Categorical``, of length ``len(self)``; read-only."""
        return {name: column.seen(self._indices) for name, column in self._table.columns.items()}

    def row(self, index: int) -> dict[str, Any]:
        """Return one entry's values of the user's columns, as Python objects."""
        table = self._table
        return (
            {name: column.value(self._rows[index]) for name, column in table.columns.items()} if table.columns else {}
        )

    @property
    def _indices(self) -> Rows:
        """The rows in a form that can index arrays: a range, or an array of row numbers."""
        return self._rows if isinstance(self._rows, range) else self._rows.values

    def __iter__(self) -> Iterator[Entry]:
        """Yield the entries in order."""
        return (entry_of(self._table, row) for row in self._rows)

    def __repr__(self) -> str:
        """Return the number of entries and the URL above them."""
        if self._table.format is not None:
            shards = f"{len(self._table.keys):,} {self._table.format.name} shards"
            return f"<Catalog of {len(self):,} samples in {shards} under {self.root}{self.base}>"
        return f"<Catalog of {len(self):,} objects under {self.root}{self.base}>"

    def span(self, index: int) -> Span:
        """Return the byte span of one entry, pinned to the listed version; an unknown size gives ``stop`` None.

        Called once per sample; takes about 1 µs.
        """
        row, table = self._rows[index], self._table
        size, of, ranges = table.sizes.view[row], row, table.ranges
        if ranges is not None:
            of, start = ranges.objects.view[row], ranges.offsets.view[row]
            if start >= 0:
                return Span(table.keys.text(of), start, start + size, table.etags.text(of))
        # The last argument is positional: passing it by name would take longer than reading the size.
        return Span(table.keys.text(of), 0, size if size >= 0 else None, table.etags.text(of), True)  # noqa: FBT003

    def spans(self, indices: Iterable[int]) -> Iterator[Span]:
        """Yield ``span`` of each entry; the columns are looked up only once."""
        rows, table = self._rows, self._table
        sizes, key, etag = table.sizes.view, table.keys.text, table.etags.text
        if table.ranges is not None:
            objects, offsets = table.ranges.objects.view, table.ranges.offsets.view
            for index in indices:
                row = rows[index]
                start, of, size = offsets[row], objects[row], sizes[row]
                if start < 0:
                    yield self.span(index)
                else:
                    yield _new(Span, (key(of), start, start + size, etag(of), False, 0, None))
            return
        for index in indices:
            row = rows[index]
            size = sizes[row]
            # Build the tuple directly: calling the class runs a Python function.
            yield _new(Span, (key(row), 0, size if size >= 0 else None, etag(row), True, 0, None))

    @cached_property
    def bare(self) -> bool:
        """Whether the entries have neither labels nor values of the user's columns."""
        table = self._table
        return table.classes is None and not table.columns and not table.labels.parts

    @property
    def format(self) -> ShardFormat | None:
        """The format of the shards that hold the samples; None if each entry is an object, or plain bytes of one."""
        return self._table.format

    def label(self, index: int) -> object:
        """Return one entry's label."""
        return label_of(self._table, self._rows[index])

    @property
    def sizes(self) -> NDArray[np.int64]:
        """Bytes of each entry, -1 where unknown: int64, shape (len,), a read-only copy; about 1 ns per object."""
        sizes = taken(self._table.sizes.values, self._indices).astype(np.int64)
        sizes.flags.writeable = False
        return sizes

    def extents(self, entries: range) -> tuple[NDArray[np.int64], NDArray[np.int64], NDArray[np.int64]] | None:
        """Return where some entries are: the number of their object, first byte (-1: the whole object), and bytes.

        Args:
            entries: Numbers of the entries, in steps of 1.

        Returns:
            Three int64 arrays of shape (len(entries),); None if every entry of the catalog is a whole object.

        """
        ranges = self._table.ranges
        if ranges is None:
            return None
        rows = self._rows[entries.start : entries.stop]
        found = [
            taken(each.values, rows if isinstance(rows, range) else rows.values).astype(np.int64)
            for each in (ranges.objects, ranges.offsets, self._table.sizes)
        ]
        return found[0], found[1], found[2]

    @property
    def total_bytes(self) -> int:
        """Bytes of all entries together; -1 when any size is unknown."""
        sizes = self.sizes
        if (sizes < 0).any():
            return -1
        return (int((sizes >> 32).sum()) << 32) + int((sizes & 0xFFFFFFFF).sum())  # the sum may pass 2⁶³

    @cached_property
    def digest(self) -> str:
        """SHA-256, in hex, of the names below ``base`` and the sizes, in order.

        The location and the ETags are not included, so a copy of the objects elsewhere has the same digest. The digest
        is computed once, at about 0.1 µs per object, and pickled with the catalog.
        """
        return digest_of(self._table, self._indices, encode(self.base))


class Catalog(Contents):
    """A list of objects, or of byte ranges of objects, in a fixed order and in shared memory.

    Only ``scan``, ``from_shards``, ``from_inventory``, ``refresh``, ``open`` and ``save`` make requests.

    ``catalog[i]`` is an ``Entry`` (negative ``i`` counts from the end; IndexError past it). ``catalog[a:b:c]``,
    ``catalog[indices]``, ``filter`` and ``split`` return catalogs over the same memory: they copy no entry, and
    pickling one pickles the whole table. A key may occur more than once.

    Args:
        table: The entries in memory, which ``scan``, ``open`` or ``build`` makes.
        rows: The rows of ``table`` that belong to this catalog; default: all.

    Attributes:
        root: URL of the bucket, to which a key is appended to form its URL: ``s3://bucket/``.
        base: The prefix of all keys that is not part of their names; "" when they have no prefix in common.

    Example:
        >>> catalog = ps.Catalog.scan("s3://bucket/train/", labels="folder")
        >>> len(catalog), catalog[-1].key
        (600, 'train/9/0059.png')
        >>> [len(each) for each in catalog.split(0.9, seed=1, by="label")]
        [540, 60]

    """

    @classmethod
    def scan(  # noqa: PLR0913  the same arguments as from_prefix; see design/0020
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
        """List every object whose key begins with the URL's: one request per 1,000 objects, in parallel where possible.

        Directory markers are left out.

        Args:
            url: The bucket or prefix.
            include: Globs over the key below the prefix, of which one must match; default: all objects.
            exclude: Globs of which none may match.
            labels: Rule of classes: see ``with_labels``; default: no labels.
            allow_empty: Return an empty catalog if no object is found.
            progress: Show the number of objects found on standard error; default: if that is a terminal and rich is
                installed.
            store: Options, or the name of a profile; default: environment and profile.

        Returns:
            The catalog, in UTF-8 byte order of the keys.

        Raises:
            NotFound: No object was found, and ``allow_empty`` is not set. At most two more requests look for similar
                names to suggest.
            ConfigError: A glob is invalid.
            Unusable: An object has no label.

        Example:
            >>> catalog = ps.Catalog.scan("s3://bucket/train/", include="[34]/*.png", labels="folder")
            >>> len(catalog), catalog.classes
            (120, ('3', '4'))

        """
        if labels is not None:
            check_rule(labels)
        include, exclude = globs(include), globs(exclude)
        source, prefix = open_source(url, store)
        with tally(f"listing {source.url(prefix)}", shown=progress) as count:
            found = scan(source, prefix, include=include, exclude=exclude, progress=totals(count))
        catalog = cls(source.root, *found)
        if not (allow_empty or len(catalog)):
            otherwise = "pass allow_empty=True to allow this"
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
        """Return the objects below ``url`` that an inventory of the bucket lists, as of the time it was written.

        Costs a HEAD and a GET (one more for each 16 MiB) for the manifest, its checksum, and each file; no LIST.
        Objects written since then are missing; reading an object that was replaced raises ``Changed``. For labels see
        ``with_labels``.

        Args:
            manifest: S3 Inventory's ``manifest.json``, or the ``…_manifest.json`` of a Google Storage Insights report.
                The files are CSV or Parquet (which needs the extra ``parquet``). A complete copy elsewhere works, too.
            url: The prefix of the objects, in the inventory's bucket.
            include: As for ``scan``.
            exclude: As for ``scan``.
            progress: As for ``scan``.
            store: Options of the store that holds the inventory.

        Raises:
            Unusable: The inventory lists another bucket, or its format is ORC.
            ManifestError: The inventory cannot be read, or lists a key twice.
            ChecksumMismatch: The size or MD5 of a file differs from the manifest.

        Example:
            Not run, needs an inventory that S3 has written::

                manifest = "s3://inventories/bucket/daily/2026-11-26T01-00Z/manifest.json"
                catalog = ps.Catalog.from_inventory(manifest, "s3://bucket/train/", include="*.png")

        """
        place, wanted = parse(url), (globs(include), globs(exclude))
        with tally(f"reading the inventory of {place.root}", shown=progress) as count:
            table = inventoried(manifest, place, wanted, totals(count), store)
        return cls(place.root, place.key[: place.key.rfind("/") + 1], table)

    @classmethod
    def from_shards(  # noqa: PLR0913  the same arguments as the datasets' from_shards; see design/0020
        cls,
        urls: str | os.PathLike[str] | Iterable[str | os.PathLike[str]],
        *,
        format: str | ShardFormat | None = None,  # noqa: A002  the field's word
        fields: str | Sequence[str] | None = None,
        key: KeyRule | None = None,
        missing: Missing | None = None,
        skip: str | Sequence[str] | None = None,
        labels: Rule | None = None,
        progress: bool | None = None,
        store: StoreOptions | str | None = None,
    ) -> Catalog:
        """Find the samples inside shards, objects that hold many samples; nothing is copied or converted.

        Of each shard, as much is read as is needed to find its samples: of JSON lines all bytes; of a tar or TFRecord
        file with samples below 256 KiB all bytes, otherwise the headers. Save the catalog, and later runs read nothing
        of this.

        Args:
            urls: The shards: a prefix, below which all objects with the end of a shard are taken; a glob
                (``"s3://bucket/train-*.tar"``), which with ``format`` takes objects of any name; a pattern
                (``"s3://bucket/train-{0000..0127}.tar"``); or a list of URLs, in the order of the samples.
            format: ``"tar"``, ``"jsonl"`` (JSON lines) or ``"tfrecord"``; default: by the ends of the names.
                ``-00000-of-00010`` may follow the end of a name.
            fields: Fields to take, which are the ends of the members' names: ``("jpg", "cls")``; default: all. A single
                name, ``"jpg"``: a sample is that member itself, and not a mapping. Of JSON lines: the values of these
                names, ``("text", "label")``; default: a sample is the bytes of its line. TFRecords have none.
            key: Which members of an archive form a sample: ``"first-dot"`` (default): those whose names agree up to the
                first dot; ``"last-dot"``; a regular expression with the groups ``key`` and ``field``; or a function of
                the name that returns both, or None to leave the member out.
            missing: What happens to a sample that lacks one of ``fields``: ``"error"`` (default), ``"drop"``, or
                ``"none"`` for None as the value.
            skip: Globs of the names of members that are left out.
            labels: Rule of classes: see ``with_labels``. The name of a sample is that of its shard below the prefix, a
                slash and its key: ``"train-0001.tar/cat/0017"``.
            progress: As for ``scan``.
            store: Options of the store, or the name of a profile; default: environment and profile.

        Returns:
            The catalog: each entry is the byte range of a sample.

        Raises:
            NotFound: There is no shard.
            Damaged: A shard is not what its format says, or a sample lacks a field; the text names the place.
            Unsupported: A shard has something that cannot be read by its place (a link, a compressed archive).
            Unusable: An argument is invalid, or the format cannot be told.

        Example:
            >>> catalog = ps.Catalog.from_shards("s3://bucket/shards/", fields=("png", "cls"))
            >>> len(catalog), ps.MapDataset(catalog)[0]["cls"].read()
            (600, b'0')

        """
        if labels is not None:
            check_rule(labels)
        arguments = {"fields": fields, "key": key, "missing": missing, "skip": skip}
        with tally("indexing shards", shown=progress) as count:
            shards = find_shards(urls, format, arguments, store)
            table = index_shards(shards, labels, totals(count))
        return cls(shards.source.root, shards.base, table)

    @classmethod
    def open(
        cls,
        url: str | os.PathLike[str],
        *,
        root: str | os.PathLike[str] | None = None,
        store: StoreOptions | str | None = None,
    ) -> Catalog:
        """Read a catalog that ``save`` wrote, and verify all of it: HEAD, GET, and one GET for each 16 MiB.

        The file names the objects that are read with your credentials. So without ``root``, the objects must be in the
        same bucket as the file, or both on this machine.

        Args:
            url: The file.
            root: URL below which the objects are: where they were listed, or where a copy of them is. For a copy,
                names, sizes, labels and digest stay the same; versions are unknown, and building it takes a second
                table.
            store: Options of the store that holds the file, or the name of a profile; default: environment and profile.

        Returns:
            The catalog.

        Raises:
            NotFound: No such file.
            ManifestError: The file is not a catalog, has a newer format, is truncated, or needs ``root``.
            ChecksumMismatch: The file has changed since it was written.

        Example:
            >>> ps.Catalog.scan("s3://bucket/train/").save("s3://bucket/train.catalog")
            >>> ps.Catalog.open("s3://bucket/train.catalog")
            <Catalog of 600 objects under s3://bucket/train/>

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
        """Return this catalog plus the objects whose keys sort after its last key; only these are listed.

        These are all new objects where names grow with time (dates, counters). Objects that were added before the last
        key, changed or deleted are not noticed: ``scan`` lists everything. Stores that cannot begin a listing after a
        given key (Azure) are listed completely. Pass the same arguments as to ``scan``.

        Args:
            url: The prefix that was listed; by default everything below ``base``.
            include: As for ``scan``.
            exclude: As for ``scan``.
            labels: As for ``scan``, for the new objects; required if the catalog has classes.
            progress: As for ``scan``.
            store: As for ``scan``.

        Raises:
            Unusable: The keys are not in strictly ascending order; the catalog has columns; it has classes and
                ``labels`` is not given, or the reverse; or ``url`` is not below ``base``.

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
        """Write this catalog to a file that ``open`` reads: about 22 bytes per object, plus its key.

        The write is atomic and replaces the previous file. A part of a catalog is copied first, a whole catalog is not.

        Args:
            url: The file.
            store: Options, or the name of a profile; default: environment and profile.

        """
        table = self._table.take(self._indices)
        with open_object(url, "wb", store=store) as writer:
            save(writer, Saved(self.root, self.base, self.digest, table))

    def _below(self, place: Location) -> Catalog:
        """Return the catalog of the same names below ``place``; this catalog if ``place`` is where they were listed."""
        below = as_folder(place.key)
        if (place.root, below) == (self.root, self.base):
            return self
        table = self._table.take(self._indices)
        moved = Catalog.build(place.root, below, relocated(self, self.base, place, labelled=table.classes is None))
        return Catalog(
            place.root,
            moved.base,
            moved._table.having(  # noqa: SLF001  the same class
                classes=table.classes, columns=table.columns, format=table.format
            ),
        )

    @classmethod
    def build(cls, root: str, base: str, entries: Iterable[Entry]) -> Catalog:
        """Build a catalog of entries, in order; takes twice the table's memory meanwhile.

        Args:
            root: URL of the bucket, such as ``s3://bucket/``.
            base: Prefix that is not part of the names. When a key does not begin with it, it becomes "": names are
                relative to it for all entries or none.
            entries: The entries, with full keys.

        Returns:
            The catalog.

        Raises:
            Unusable: A label cannot be written as JSON (tuples become lists, keys of dicts strings), or a range has
                no size.

        Example:
            >>> from penstock.data.catalog.catalog import Entry
            >>> entries = [Entry("train/3/0000.png", offset=1, size=3), Entry("train/4/0000.png", offset=1, size=3)]
            >>> catalog = ps.Catalog.build("s3://bucket/", "train/", entries)
            >>> ps.MapDataset(catalog)[0].data.tobytes()
            b'PNG'

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
        """Return one entry, or a catalog of the entries that a slice, indices (in their order) or a mask selects.

        Raises:
            IndexError: An index is out of range.
            Unusable: ``index`` has another type.

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
        """Return a catalog of the entries that meet all conditions, in their order; makes no request.

        Globs take about 0.5 µs per entry, the other conditions about 10 ns. Classes and their numbers stay the same.

        Args:
            size: Smallest and largest size in bytes, both inclusive; None for no bound.
            include: Globs over the key below ``base``, of which one must match.
            exclude: Globs of which none may match.
            mask: One bool for each entry.
            labels: Class names or labels to keep: one, or several.

        Raises:
            Unusable: A condition is invalid, or needs sizes or labels that entries lack.

        """
        asked = Conditions(size, globs(include), globs(exclude), mask, labels)
        return self._picked(matching(self._table, self._indices, len(encode(self.base)), asked))

    def split(self, *parts: float, seed: int = 0, by: str = "sample") -> tuple[Catalog, ...]:
        """Return random parts of the catalog, each in the catalog's order; makes no request.

        ``split(0.9)`` makes parts of about nine tenths and one tenth. The part of an entry depends only on its name
        below ``base`` (in shards also on its place) and on ``seed``, so it stays the same when objects are added to the
        prefix, or copied elsewhere.
        Counts (``split(540, 60)``) are exact. So is ``by="label"``: each part has its fraction of every class, rounded,
        and at least one entry. In both cases, a few entries change parts when objects are added. All parts keep the
        classes of the whole.

        Args:
            parts: Fractions that sum to 1, or counts that sum to ``len(catalog)``; a single number is the first of two
                parts.
            seed: Any whole number.
            by: "sample", or "label" for fractions of each class.

        Raises:
            Unusable: The parts do not add up, a part would be empty, or a class has fewer entries than there are parts.

        """
        skip, number = len(encode(self.base)), whole(seed, "seed")
        return tuple(map(self._picked, divided(self._table, self._indices, parts, Draw(skip, number, by))))

    def __add__(self, other: Catalog) -> Catalog:
        """Return a catalog of the entries of both, in order.

        Parts of the same catalog are joined without copying. Classes are merged by name.

        Raises:
            Unusable: The catalogs are of different buckets, or only one has classes, or a column.

        """
        if not isinstance(other, Catalog):
            return NotImplemented
        if self.root != other.root:
            raise Unusable(f"objects of {self.root} and {other.root}: a catalog holds those of one bucket")
        base = self.base
        if base != other.base:
            # Compare by character, not by path component: keys are not paths.
            base = os.path.commonprefix([base, other.base])  # noqa: RUF071
            base = base[: base.rfind("/") + 1]
        return Catalog(self.root, base, *united(self._table, self._indices, other._table, other._indices))

    def with_labels(self, labels: Labels, *, classes: Sequence[str] | None = None) -> Catalog:
        r"""Return this catalog with class numbers as labels, and with ``classes``; makes no request.

        Args:
            labels: "folder": the last directory of the key. A pattern with one group (``r"_(\w+)\.jpg$"``): searched in
                the key below ``base``. A function: takes that key and returns the class as str. A sequence: a class
                name for each entry, or its number if ``classes`` is given.
            classes: Class names in the order of their numbers, such as ``training.classes``; default: the names found,
                sorted by code point, so that the same objects always give the same classes.

        Raises:
            Unusable: An entry has no label, or one that is not in ``classes``.

        """
        table = self._table.take(self._indices)
        blocks = names(table, range(table.rows), len(encode(self.base)))
        return Catalog(self.root, self.base, table.having(classes=classified(labels, blocks, table.rows, classes)))

    def with_columns(self, **columns: Sequence[Any] | ArrayLike) -> Catalog:
        """Return this catalog with the given columns.

        Slices, ``filter``, ``split``, ``+``, ``save`` and workers keep the columns; ``sample.columns`` has the values
        of one sample. An existing column of the same name is replaced.

        Args:
            **columns: For each column one value (bool, int, float or str) for each entry.

        Raises:
            Unusable: A column has the wrong length, or values of another type.

        """
        made = {name: checked(name, values, len(self)) for name, values in columns.items()}
        table = self._table.take(self._indices)
        return Catalog(self.root, self.base, table.having(columns=table.columns | made))

    def _picked(self, chosen: NDArray[np.int64]) -> Catalog:
        return Catalog(self.root, self.base, self._table, picked(self._indices, chosen))
