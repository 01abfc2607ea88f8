"""The catalog: a frozen table of a dataset's objects in shared memory, which workers map instead of copying."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from itertools import groupby
from operator import lt
from typing import TYPE_CHECKING, Any, TypeAlias, overload

import numpy as np

from penstock.data.catalog.columns.column import check_column, encode
from penstock.data.catalog.comparison import CatalogDiff, ComparedRows, check_comparable
from penstock.data.catalog.contents import Contents
from penstock.data.catalog.discovery.inventory import listed as inventoried
from penstock.data.catalog.discovery.journal import Beyond
from penstock.data.catalog.discovery.scan import ScanOptions, absent, listed, report_scanned
from penstock.data.catalog.discovery.shards import added_shards, find_shards, read_shard_indexes
from penstock.data.catalog.groups import (
    FieldObjects,
    NamedObjects,
    addable,
    check_grouping,
    group_objects,
    join_catalogs,
)
from penstock.data.catalog.labels import check_rule, classify_rows, names
from penstock.data.catalog.rows import (
    Conditions,
    Entry,
    build_table,
    divide_rows,
    entry_of,
    match_entries,
    pick_rows,
    positions,
    unite_tables,
)
from penstock.data.catalog.saved import (
    HEAD_BYTES,
    Saved,
    check_home,
    from_bytes,
    load,
    relocate_catalog,
    save,
    to_bytes,
)
from penstock.data.ranks import is_own, share_result
from penstock.engine.listing.select import Leftovers, globs
from penstock.errors import Damaged, NotFound, Unusable
from penstock.progress import tally, totals
from penstock.source import object_at, open_source
from penstock.stores.urls import parse
from penstock.values import common_folder, switch, whole
from penstock.verbs import open as open_object

if TYPE_CHECKING:
    from collections.abc import Iterable

    from numpy.typing import ArrayLike, NDArray

    from penstock.data.catalog.columns.table import Table
    from penstock.data.catalog.groups import GroupRule
    from penstock.data.catalog.labels import Labels, Rule
    from penstock.data.catalog.rows import Picked
    from penstock.data.shards.format import ShardFormat
    from penstock.data.shards.keys import KeyRule, Missing
    from penstock.options import StoreOptions

JoinRule: TypeAlias = "str | Callable[[str], str | None] | Sequence[str]"


class Catalog(Contents):
    """A list of objects, or of byte ranges of objects, in a fixed order and in shared memory.

    Only ``scan``, ``from_shards``, ``from_inventory``, ``refresh``, ``open`` and ``save`` make requests.

    ``catalog[i]`` is an ``Entry`` (negative ``i`` counts from the end; IndexError past it). ``catalog[a:b:c]``,
    ``catalog[indices]``, ``filter`` and ``split`` return catalogs over the same memory: they copy no entry, and
    pickling one pickles the whole table. A key may occur more than once.

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

    def __init__(self, *_given: object, **_options: object) -> None:
        """Refuse to be called: a catalog comes from one of the methods that read, list or join."""
        raise Unusable("cannot call Catalog: use Catalog.scan, from_shards, from_inventory, open, join or build")

    @classmethod
    def scan(  # noqa: PLR0913  the same arguments as from_prefix; see design/0020
        cls,
        url: str | os.PathLike[str],
        *,
        include: str | Iterable[str] = (),
        exclude: str | Iterable[str] = (),
        labels: Rule | None = None,
        group: GroupRule | None = None,
        fields: Sequence[str] | None = None,
        missing: Missing = "error",
        allow_empty: bool = False,
        versions: bool = False,
        progress: bool | None = None,
        share: bool = True,
        store: StoreOptions | str | None = None,
    ) -> Catalog:
        """List every object whose key begins with the URL's: one request per 1,000 objects, in parallel where possible.

        Directory markers are left out, and so are leftovers of other tools, which the log names once: names that begin
        with ``.``, ``_SUCCESS``, ``_temporary/``, ``__MACOSX/``, ``Thumbs.db``, ``*.tmp``, ``*.part`` and the like. A
        glob of ``include`` with such a name reads them: ``include="_SUCCESS"``.

        Args:
            url: The bucket or prefix.
            include: Globs over the key below the prefix, of which one must match; default: all objects.
            exclude: Globs of which none may match.
            labels: Rule of classes: see ``with_labels``; default: no labels.
            group: Rule by which several objects make one sample: see ``with_groups``; default: each object is a sample.
            fields: Fields to take, the first of which leads: see ``with_groups``; default: all, sorted by name.
            missing: Treatment of a sample that lacks a field: see ``with_groups``.
            allow_empty: Return an empty catalog if no object is found.
            versions: Record version ids (S3, OSS, Google Cloud Storage). Reads ask for these versions, so they find the
                same bytes after objects were replaced or deleted, until the versions themselves are deleted. Costs one
                request and, on S3, some 32 bytes of memory an object. Save the catalog: a new scan has new versions.
            progress: Show the number of objects found on standard error; default: if that is a terminal and rich is
                installed.
            share: With a process group of several ranks, list on one of them and send the catalog to the others: the
                n-th call with the same arguments has the same result on all ranks. A rank that hears nothing for 20 s
                lists for itself. Not for local folders, nor with a lambda as an argument.
            store: Options, or the name of a profile; default: environment and profile.

        Returns:
            The catalog, in UTF-8 byte order of the keys; of groups, in that of their first objects.

        Raises:
            NotFound: No object or sample was found, and ``allow_empty`` is False. At most two more requests look
                for similar names to suggest. Or a link in a local folder leads to no file.
            ConfigError: A glob is invalid.
            Unusable: An object has no label, a group lacks a field, or the bucket keeps no versions to record.

        Example:
            >>> catalog = ps.Catalog.scan("s3://bucket/train/", include="[34]/*.png", labels="folder")
            >>> len(catalog), catalog.classes
            (120, ('3', '4'))
        """
        check_rule(labels)
        if group is not None or fields is not None or missing != "error":
            check_grouping(group, fields, missing)
        include, exclude, versions = globs(include), globs(exclude), switch(versions, "versions")

        def scan() -> Catalog:
            source, prefix = open_source(url, store)
            with tally(f"listing {source.url(prefix)}", shown=progress) as count:
                left = Leftovers(prefix, include)
                how = ScanOptions(include, exclude, progress=totals(count), leftovers=left, versions=versions)
                base, table = listed(source, prefix, how)
            catalog = make_catalog(source.root, base, table)
            otherwise = "pass allow_empty=True to allow this"
            if not (switch(allow_empty, "allow_empty") or len(catalog)):
                otherwise = f"{left}, or {otherwise}" if len(left) else otherwise
                raise absent(source, prefix, os.fspath(url), chosen=bool(include or exclude), instead=otherwise)
            report_scanned(source, base, table.keys)
            if group is not None:
                catalog = catalog.with_groups(group, fields=fields, missing=missing)
                if not (switch(allow_empty, "allow_empty") or len(catalog)):
                    wanted = " and ".join(map(repr, catalog.fields))
                    message = f"no sample has the fields {wanted}, with missing={missing!r}; {otherwise}"
                    raise NotFound(message, url=source.url(prefix))
            return catalog if labels is None else catalog.with_labels(labels)

        arguments = ("scan", include, exclude, labels, group, fields, missing, allow_empty, versions)
        return _share(url, arguments, store, scan) if switch(share, "share") else scan()

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
        Objects written since then are missing; reading an object that was replaced raises ``Changed``.

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
        return make_catalog(place.root, place.key[: place.key.rfind("/") + 1], table)

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
        index: str | None = None,
        allow_empty: bool = False,
        versions: bool = False,
        progress: bool | None = None,
        share: bool = True,
        store: StoreOptions | str | None = None,
    ) -> Catalog:
        """Find the samples inside shards, objects that hold many samples; nothing is copied or converted.

        Of a shard, as much is read as finds its samples: the directory of a zip file; all bytes of JSON lines, and of a
        tar or TFRecord file with samples below 256 KiB, otherwise the headers. Save the catalog: opening it reads none.

        Args:
            urls: The shards: a prefix, below which all objects with the end of a shard are taken; a glob
                (``"s3://bucket/train-*.tar"``), which with ``format`` takes objects of any name; a pattern
                (``"s3://bucket/train-{0000..0127}.tar"``); or a list of URLs, in the order of the samples.
            format: ``"tar"``, ``"zip"``, ``"parquet"`` (rows), ``"mds"`` (Mosaic), ``"litdata"``, ``"jsonl"`` (lines),
                ``"tfrecord"``, or ``"tar.gz"``, ``"jsonl.gz"``, ``"tfrecord.gz"`` (also zstd); default: by the names.
            fields: Fields to take, which are the ends of the members' names: ``("jpg", "cls")``; default: all. A single
                name, ``"jpg"``: a sample is that member itself, and not a mapping. Of JSON lines: the values of these
                names, ``("text", "label")``; default: a sample is the bytes of its line. Of Parquet, MDS and LitData:
                columns. TFRecords have none.
            key: Rule for an archive's members of a sample: ``"first-dot"`` (default): those whose names agree up to the
                first dot; ``"last-dot"``; a regular expression with the groups ``key`` and ``field``; or a function of
                the name that returns both, or None to leave the member out.
            missing: Treatment of a sample that lacks one of ``fields``: ``"error"`` (default), ``"drop"``, or
                ``"none"`` for None as the value; a sample that has none of them is left out.
            skip: Globs of the names of members that are left out.
            labels: Rule of classes: see ``with_labels``. The name of a sample is that of its shard below the prefix, a
                slash and its key: ``"train-0001.tar/cat/0017"``.
            index: Side indexes of tar files to read in place of the shards: ``"energon"`` (``x.tar.idx``) or
                ``"wds2idx"`` (DALI's ``x.idx``). Some headers of each shard are compared with its index, and every
                other when it is read. The URL of a wids JSON file: shards are walked, and their samples counted.
            allow_empty: Return an empty catalog if the shards hold no sample.
            versions: Record the version id of each shard, as for ``scan``: one request and a HEAD a shard.
            progress: Show a bar of shards and their bytes, where ``scan`` shows the number of objects.
            share: With a process group of several ranks, find the samples on one of them: see ``scan``.
            store: Options of the store, or the name of a profile; default: environment and profile.

        Returns:
            The catalog: each entry is the byte range of a sample.

        Raises:
            NotFound: No shard was found; or the shards hold no sample, and ``allow_empty`` is False.
            Damaged: A shard contradicts its format or its side index, or a sample lacks a field; the text says where.
            Unsupported: A shard has something that cannot be read by its place (a link, a compressed archive).
            Unusable: An argument is invalid, or the format is unknown.

        Example:
            >>> catalog = ps.Catalog.from_shards("s3://bucket/shards/", fields=("png", "cls"))
            >>> len(catalog), ps.MapDataset(catalog)[0]["cls"].read()
            (600, b'0')
        """
        check_rule(labels)
        arguments = {"fields": fields, "key": key, "missing": missing, "skip": skip}
        given = [*urls] if isinstance(urls, Iterator) else urls

        def find() -> Catalog:
            shards = find_shards(given, format, arguments, store).pinned(versions=switch(versions, "versions"))
            shards = shards.sided(index, store, labels=labels is not None)
            table = read_shard_indexes(shards, labels, progress=progress, allow_empty=allow_empty)
            return make_catalog(shards.source.root, shards.base, table)

        said = ("from_shards", format, arguments, labels, index, allow_empty, versions)
        return _share(given, said, store, find) if switch(share, "share") else find()

    @classmethod
    def open(
        cls,
        url: str | os.PathLike[str],
        *,
        root: str | os.PathLike[str] | Mapping[str, str | os.PathLike[str]] | None = None,
        store: StoreOptions | str | None = None,
    ) -> Catalog:
        """Return the catalog that ``save`` wrote, all of it verified: HEAD, GET, and above 64 KiB a GET each 16 MiB.

        Of a file of 1 MiB or more, a process reads the first 64 KiB alone if another process of this user on this
        machine has the same catalog open: both use one copy in memory.
        The file names the objects that are read with your credentials. So without ``root``, the objects must be in the
        same bucket as the file, or both on this machine.

        Args:
            url: The file.
            root: URL below which the objects are: where they were listed, or where a copy of them is. For a copy,
                names, sizes, labels and digest stay the same; versions are unknown, and building it takes a second
                table. For samples whose fields are at different places: a URL for each field.
            store: Options of the store that holds the file, or the name of a profile; default: environment and profile.

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
            source, key = object_at(url, store)
            with source.open_read(key, block_bytes=HEAD_BYTES) as reader:
                found = load(reader)
            if root is None:
                check_home(found, place)
            else:
                found = relocate_catalog(found, root)
        except Damaged as error:
            error.url = place.url
            raise
        return _from_saved(found)

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
        given key (Azure) are listed completely. Pass the same arguments as to ``scan``; versions are recorded if this
        catalog has them. Of shards, those whose keys sort after the last shard's are listed, and only these are walked.

        Args:
            url: The prefix that was listed, for shards also a glob; by default everything below ``base``.
            include: As for ``scan``.
            exclude: As for ``scan``.
            labels: As for ``scan``, for the new objects; required if the catalog has classes.
            progress: As for ``scan``.
            store: As for ``scan``.

        Raises:
            Unusable: The keys are not in strictly ascending order; the catalog has columns; it has classes and
                ``labels`` is not given, or the reverse; ``url`` is not below ``base``; or globs are given for shards.
        """
        if self.fields:
            raise Unusable("a catalog of groups cannot be refreshed, since groups may get new objects: scan again")
        source, prefix = open_source(self.root + self.base if url is None else url, store)
        if source.root != self.root or not prefix.startswith(self.base):
            raise Unusable(f"the catalog lists objects below {self.root}{self.base}", url=source.url(prefix))
        form, objects = self._table.format, [*map(int, self._table.objects(self._indices))]
        if form is not None:
            # One number for all samples of a shard.
            objects = [number for number, _ in groupby(objects)]
        keys = [self._table.keys[number] for number in objects]
        if not all(map(lt, keys, keys[1:])):
            raise Unusable("the keys are not sorted and unique, so new ones cannot be found: scan again")
        if self._table.columns or (labels is None) is not (self._table.classes is None):
            raise Unusable("labels= is needed exactly if the catalog has classes; columns cannot be refreshed")
        if form is not None:
            if include or exclude:
                raise Unusable("include= and exclude= are for objects: pass a glob as the URL of shards")
            added = added_shards(source, prefix, form, keys[-1] if keys else b"").pinned(versions=self.versioned)
            if not added.found:
                return self
            return self + make_catalog(
                self.root, added.base, read_shard_indexes(added, labels, progress=progress, allow_empty=True)
            )
        with tally(f"listing {source.url(prefix)}", shown=progress) as count:
            known = Beyond(keys[-1] if keys else b"")
            include, exclude = globs(include), globs(exclude)
            left = Leftovers(prefix, include)
            how = ScanOptions(include, exclude, progress=totals(count), known=known, leftovers=left)
            found = listed(source, prefix, replace(how, versions=self.versioned))
        new = make_catalog(source.root, *found)
        return self + (new if labels is None else new.with_labels(labels)) if len(new) else self

    def save(self, url: str | os.PathLike[str], *, store: StoreOptions | str | None = None) -> None:
        """Write this catalog to a file that ``open`` reads: about 22 bytes per object, plus its key.

        The write is atomic and replaces the previous file. A part of a catalog is copied first, a whole catalog is not.

        Args:
            url: The file.
            store: Options, or the name of a profile; default: environment and profile.
        """
        with open_object(url, "wb", store=store) as writer:
            save(writer, self._saved())

    # Public here: the reference lists what a class has itself.
    version, fingerprint, versioned = Contents.version, Contents.fingerprint, Contents.versioned

    def diff(self, other: Catalog) -> CatalogDiff:
        """Return the entries that ``other``, a later catalog, has added, removed or changed; makes no request.

        Compares names below ``base``, sizes and versions: see ``CatalogDiff``. Takes about 3 µs and 100 bytes an entry.

        Args:
            other: A catalog of objects, or of samples in shards.

        Raises:
            Unusable: A catalog has samples of several objects.
        """
        check_comparable(other, Catalog)
        mine = ComparedRows(self._table, self._indices, self.base)
        theirs = ComparedRows(other._table, other._indices, other.base)
        return CatalogDiff.of(self, mine, other, theirs)

    @classmethod
    def build(cls, root: str, base: str, entries: Iterable[Entry]) -> Catalog:
        """Return a catalog of entries, in order; takes twice the table's memory meanwhile.

        Args:
            root: URL of the bucket, such as ``s3://bucket/``.
            base: Prefix that is not part of the names. When a key does not begin with it, it becomes "": names are
                relative to it for all entries or none.
            entries: The entries, with full keys.

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
        return make_catalog(root, *build_table(base, entries))

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
            return self._showing(self._table, self._rows[index])
        if hasattr(index, "__index__") and not isinstance(index, (bool, np.ndarray)) and not getattr(index, "ndim", 0):
            try:
                return entry_of(self._table, self._rows[index])
            except IndexError:
                raise IndexError(f"index {index} is outside a catalog of {len(self)} objects") from None
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
        return self._picked(match_entries(self._table, self._indices, len(encode(self.base)), asked))

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
        return tuple(map(self._picked, divide_rows(self._table, self._indices, parts, skip, number, by)))

    def __add__(self, other: Catalog) -> Catalog:
        """Return a catalog of the entries of both, in order.

        Parts of the same catalog are joined without copying. Classes are merged by name.

        Raises:
            Unusable: The catalogs are of different buckets, or only one has classes, or a column.
        """
        if not isinstance(other, Catalog):
            return NotImplemented
        if self.root != other.root:
            raise Unusable(f"cannot join objects of {self.root} and {other.root}: a catalog has one bucket")
        first, second = addable(
            FieldObjects(self.root, self.base, self._table),
            FieldObjects(other.root, other.base, other._table),
        )
        base = common_folder(self.base, other.base)
        return make_catalog(self.root, base, *unite_tables(first, self._indices, second, other._indices))

    def with_groups(
        self, group: GroupRule, *, fields: Sequence[str] | None = None, missing: Missing = "error"
    ) -> Catalog:
        r"""Return a catalog of samples that each consist of several of these objects; makes no request.

        The name and the label of a sample are those of the object of its first field.

        Args:
            group: ``"stem"``: objects whose names are equal up to the first dot of the last component; the rest is the
                field (``0001.jpg`` and ``0001.json`` make the sample ``0001`` with the fields ``jpg`` and ``json``).
                ``"folder"``: objects in the same folder; the field is the name in it. A regular expression that matches
                the whole name below ``base``, with the groups ``(?P<key>…)`` and ``(?P<field>…)``. A function that
                takes this name and returns ``(key, field)``, or None to leave the object out.
            fields: Fields to take, in this order; other objects are left out. Default: all, sorted by name.
            missing: Treatment of a sample that lacks a field: ``"error"``, ``"drop"`` (it is left out) or ``"none"``
                (the value of the field is None).

        Raises:
            Unusable: An argument is invalid, the rule does not match an object, or a sample lacks a field or has one
                twice.

        Example:
            >>> catalog = ps.Catalog.scan("s3://bucket/train/").with_groups("folder", fields=("0000.png", "0001.png"))
            >>> sample = ps.MapDataset(catalog)[3]
            >>> sample.key, sample.fields, sample["0001.png"].key
            ('3', ('0000.png', '0001.png'), 'train/3/0001.png')
        """
        wanted = check_grouping(group, fields, missing)
        if self.format is not None:
            raise Unusable("samples of shards have fields by key=: pass that to from_shards, or use Catalog.join")
        if self.fields:
            raise Unusable("the samples of this catalog consist of several objects already")
        found = NamedObjects(self.root, self.base, self._table, self._indices)
        return self._showing(group_objects(found, group, wanted, missing))

    @classmethod
    def join(
        cls,
        catalogs: Mapping[str, Catalog],
        *,
        on: JoinRule | Mapping[str, JoinRule] = "stem",
        missing: Missing = "error",
    ) -> Catalog:
        """Return a catalog of samples that each have an entry of several catalogs, with equal keys; makes no request.

        The catalogs may be of different prefixes, buckets and stores; an entry may be an object, or a range of one. The
        first catalog leads: its entries, in its order, are the samples, and their labels and columns are those of the
        samples. Entries of the others that belong to none are left out.

        Args:
            catalogs: The catalog of each field.
            on: Rule from the name of an entry, below the ``base`` of its catalog, to its key. ``"stem"``: the name up
                to the first dot of its last component. A regular expression that matches the whole name, with the group
                ``(?P<key>…)``. A function that takes the name and returns the key, or None to leave the entry out. A
                list with the key of each entry; if the first catalog has one, ``sample.key`` is the name of its object.
                Or a mapping with one of these for each field.
            missing: Treatment of a sample without an entry in one of the others: as in ``with_groups``.

        Raises:
            Unusable: An argument is invalid, an entry has no key, a key occurs twice in a catalog, or a sample lacks a
                field.

        Example:
            >>> images, masks = ps.Catalog.scan("s3://bucket/train/3/"), ps.Catalog.scan("s3://bucket/train/4/")
            >>> sample = ps.MapDataset(ps.Catalog.join({"image": images, "mask": masks}))[1]
            >>> sample.key, sample["image"].key, sample["mask"].key
            ('0001', 'train/3/0001.png', 'train/4/0001.png')
        """
        given: Any = catalogs
        if not isinstance(given, Mapping) or not given:
            raise Unusable(f"join takes a mapping, such as {{'image': catalog, 'mask': catalog}}, got {catalogs!r}")
        check_grouping("stem", [*catalogs], missing)
        for field, each in given.items():
            if not isinstance(each, Catalog) or each.fields:
                raise Unusable(f"{field!r} must be a Catalog whose samples are single entries, got {each!r}")
        found = {
            field: NamedObjects(each.root, each.base, each._table, each._indices)  # noqa: SLF001  the same class
            for field, each in catalogs.items()
        }
        lead = next(iter(catalogs.values()))
        return make_catalog(lead.root, lead.base, join_catalogs(found, on, missing))

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
        return self._showing(table.having(classes=classify_rows(labels, blocks, table.rows, classes)))

    def with_columns(self, **columns: Sequence[Any] | ArrayLike) -> Catalog:
        """Return this catalog with the given columns.

        Slices, ``filter``, ``split``, ``+``, ``save`` and workers keep the columns; ``sample.columns`` has the values
        of one sample. An existing column of the same name is replaced.

        Args:
            **columns: For each column one value (bool, int, float or str) for each entry.

        Raises:
            Unusable: A column has the wrong length, or values of another type.
        """
        made = {name: check_column(name, values, len(self)) for name, values in columns.items()}
        table = self._table.take(self._indices)
        return self._showing(table.having(columns=table.columns | made))

    def _showing(self, table: Table, rows: range | Picked | None = None) -> Catalog:
        return make_catalog(self.root, self.base, table, rows)

    def _picked(self, chosen: NDArray[np.int64]) -> Catalog:
        return self._showing(self._table, pick_rows(self._indices, chosen))


def make_catalog(root: str, base: str, table: Table, rows: range | Picked | None = None) -> Catalog:
    """Return the catalog of ``rows`` (default all) of a table whose keys all begin with ``base``."""
    made = Catalog.__new__(Catalog)
    Contents.__init__(made, root, base, table, rows)
    return made


def _from_saved(found: Saved) -> Catalog:
    catalog = make_catalog(found.root, found.base, found.table)
    catalog.__dict__["digest"] = found.digest
    return catalog


def _share(given: Any, arguments: object, store: object, make: Callable[[], Catalog]) -> Catalog:  # noqa: ANN401  as find_shards takes
    urls = [given] if isinstance(given, str) or not hasattr(given, "__iter__") else [*given]
    if is_own(urls):
        return make()

    def pack(catalog: Catalog) -> bytes:
        return to_bytes(catalog._saved())  # noqa: SLF001  of this file

    return share_result(f"{urls!r} {store!r}", arguments, make, pack, lambda data: _from_saved(from_bytes(data)))


def scan_all(url: str, store: StoreOptions | str | None, exclude: str | Iterable[str] = ()) -> Catalog:
    """Return the catalog of all objects below ``url``, leftovers included, as other libraries list them."""
    source, prefix = open_source(url, store)
    return make_catalog(source.root, *listed(source, prefix, ScanOptions(exclude=exclude)))
