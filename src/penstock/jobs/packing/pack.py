"""``ps.pack`` in this process: objects or samples into shards with their catalog, the same bytes every time.

1. ``members_of`` lists and groups the objects to pack, and refuses names that cannot be members.
2. ``Destination`` checks its contents: a finished pack, shards of an interrupted one, or other objects.
3. Each shard is written in one step. A record next to it, written just before it appears, has its digest and the places
   of its samples; then the shard is read back and compared.
4. ``pack.json`` names the shards with their digests, and the catalog comes last. Records are then deleted.

A killed pack leaves whole shards with their records, and no catalog; the same call continues after them.
"""

from __future__ import annotations

import hashlib
import json
import re
import zlib
from contextlib import closing, suppress
from copy import copy
from dataclasses import asdict, dataclass, field, fields, replace
from operator import itemgetter
from typing import TYPE_CHECKING, Any, TypeAlias, cast

import numpy as np

from penstock.data.catalog.catalog import Catalog, make_catalog
from penstock.data.catalog.discovery.shards import Shard, Shards, table_of_extents, walked
from penstock.data.catalog.discovery.stated import INDEX
from penstock.data.parquet import libraries
from penstock.data.shards.encode import ENCODERS, ArchiveEncoder
from penstock.data.shards.format import Extents, ShardFormat
from penstock.data.shards.mds import MdsFormat
from penstock.data.shards.mds_encode import MDS_BYTES, columns_from, index_json
from penstock.data.shards.registry import format_by
from penstock.engine.contracts.driver import Multipart, Put
from penstock.engine.listing.select import globs
from penstock.errors import AlreadyExists, Changed, ChecksumMismatch, Damaged, NotFound, PreconditionFailed, Unusable
from penstock.jobs.packing.members import Coming, Members, ObjectMembers, Packable, PackedMember, members_of
from penstock.jobs.packing.rows import MdsMembers, MdsWriting, RowWriting
from penstock.jobs.trees.guard import clear_unfinished
from penstock.jobs.trees.selection import local
from penstock.schema import COUNT, read_json
from penstock.source import Source, Writer, open_source
from penstock.values import ObjectMeta, Span, as_folder, check_choice, cut_spans, switch, whole

if TYPE_CHECKING:
    import os
    from collections.abc import Callable, Generator, Iterable, Mapping, Sequence

    from penstock.data.shards.keys import ArchiveFormat, KeyRule
    from penstock.data.shards.mds_columns import MDSColumn
    from penstock.jobs.packing.members import Bytes
    from penstock.options import StoreOptions

_SHARD_BYTES = 256 << 20
_PIECE_BYTES = 8 << 20  # of a request that reads back
_TOGETHER_BYTES = 64 << 20  # of a member that is kept until its sum is known; a longer one is read twice
_DIGITS = 6
_LOOKS = 5  # at a shard that several processes write
# Those that Ray writes (``ray.data``) have the number of a task, and one within it.
_OURS = re.compile(rf"shard-(\d{{{_DIGITS}}}(?:-\d{{3,}})?)\.(?:tar|zip|parquet|mds)(\.partial)?")
_CATALOG, _MANIFEST, _PARTIAL = "index.catalog", "pack.json", ".partial"
_VERSION = 1
_MANIFEST_FORM = {
    "penstock pack": _VERSION,
    "plan": str,
    "format": {"name": str},
    "shards": [{"name": str, "bytes": COUNT}],
}
_SHARD_FORM = {"plan": str, "first": COUNT, "size": COUNT, "sha256": str, "offsets": [COUNT], "sizes": [COUNT]}
_SHARD_FORM |= {"etag": str, "compared": bool, "version": _VERSION}
_CONTENT = {
    "tar": "application/x-tar",
    "zip": "application/zip",
    "parquet": "application/vnd.apache.parquet",
    "mds": "application/octet-stream",
}


@dataclass(frozen=True, slots=True)
class PackOptions:
    """Options of ``ps.pack``: see there."""

    samples: int | None = None
    bytes: int | None = None
    key: KeyRule = "first-dot"
    include: str | Iterable[str] = ()
    exclude: str | Iterable[str] = ()
    columns: Mapping[str, str] | None = None
    overwrite: bool = False
    verify: bool = True

    def __post_init__(self) -> None:
        for name in ("samples", "bytes"):
            if (value := getattr(self, name)) is not None:
                whole(value, name, 1)
        for name in ("overwrite", "verify"):
            switch(getattr(self, name), name)

    def limited(self, form_name: str) -> PackOptions:
        """Return these options with the format's default maximum of bytes, if neither limit is given."""
        if self.samples is not None or self.bytes is not None:
            return self
        return replace(self, bytes=MDS_BYTES if form_name == "mds" else _SHARD_BYTES)


def make_packing(
    source: object,
    url: str | os.PathLike[str],
    form_name: str,
    options: PackOptions,
    store: StoreOptions | str | None,
    *,
    progress: bool | None = None,
) -> Packing:
    """Return a pack ready to begin: arguments are checked, and samples and the destination are listed."""
    check_choice(form_name, (*_CONTENT,), "format")
    mds, options = form_name == "mds", options.limited(form_name)
    if options.columns is not None:
        if not mds:
            raise Unusable(f'columns= is for format="mds", got it with format={form_name!r}')
        columns_from(options.columns)
    # Which objects form a sample is the same rule for all formats.
    rule = cast("ArchiveFormat", format_by(form_name if form_name in ENCODERS else "tar", (), {"key": options.key}))
    rule.described()  # refuses a function, which no catalog can keep
    if form_name == "parquet":
        libraries("a shard")
    chosen = globs(options.include), globs(options.exclude)
    target, key = open_source(url, store)
    target.require(Put, key)
    base = as_folder(key)
    if isinstance(source, str) or hasattr(source, "__fspath__"):
        check_outside(*open_source(source, store), target, base)
    members = members_of(source, rule, chosen, (progress, store))
    if not len(members.rows):
        raise NotFound("there is nothing to pack: the source has no samples")
    form: ShardFormat = rule
    if mds:
        members = rows = MdsMembers(members, rule, options.columns)
        form = MdsFormat(columns=rows.columns)
    elif form_name == "parquet":
        form = format_by(form_name, (), {})
    return Packing(members, form, options, Destination(target, base, overwrite=options.overwrite, mds=mds))


def check_outside(source: Source, prefix: str, target: Source, base: str) -> None:
    """Refuse shards below the prefix whose objects they are made of."""
    *here, mine = source.address(prefix)
    *there, its = target.address(base)
    if here == there and str(its).startswith(as_folder(str(mine))):
        raise Unusable("the shards would be in the prefix that is read: name another destination", url=target.url(base))


@dataclass(frozen=True, slots=True)
class ShardRecord:
    """Shard that was written, or is about to appear; a record next to the shard has these fields."""

    plan: str  # digest of all that the bytes of shards depend on
    first: int  # number of the first sample
    size: int
    sha256: str
    offsets: list[int] = field(repr=False)
    sizes: list[int] = field(repr=False)
    etag: str = ""  # empty before the shard has appeared
    compared: bool = False  # it was read back and compared, or need not be
    version: int = _VERSION

    @classmethod
    def decoded(cls, data: bytes, url: str) -> ShardRecord:
        values = read_json(data, _SHARD_FORM, "the record of a shard", url)
        if len(values["offsets"]) != len(values["sizes"]):
            raise Damaged("cannot read the record of a shard: it must have as many sizes as offsets", url=url)
        return cls(**{each.name: values[each.name] for each in fields(cls)})


class Destination:
    """Prefix of the shards, and its existing objects with our names."""

    def __init__(
        self, source: Source, base: str, *, overwrite: bool, mds: bool = False, only: Sequence[str] | None = None
    ) -> None:
        """List the names of shards, or look up ``only`` some; a HEAD for each of these."""
        self.source, self.base, self.overwrite = source, base, overwrite
        self.last = (_CATALOG, _MANIFEST, INDEX) if mds else (_CATALOG, _MANIFEST)
        self.found: dict[str, tuple[int, str]] = {}  # size and ETag, by name
        named = source.stat_existing([base + name for name in (self.last if only is None else only)])
        metas = [each for each in named if each is not None]
        for page in source.pages(f"{base}shard-", delimiter="/") if only is None else ():
            metas += [each for each in page.entries if _OURS.fullmatch(each.key[len(base) :])]
        for each in metas:
            self.found[each.key[len(base) :]] = each.size, each.etag

    def url(self, name: str) -> str:
        return self.source.url(self.base + name)

    def finished(self, plan: str) -> Catalog | None:
        """Return the catalog of a finished pack of this plan; None without one."""
        there = [name for name in self.last if name in self.found]
        if not there:
            return None
        if self.overwrite:
            return None
        known = self._manifest()
        if known is not None and known["plan"] == plan and self._complete(known["shards"]):
            if len(there) < len(self.last):
                return None
            self.delete([name for name in self.found if name.endswith(_PARTIAL)])
            return Catalog.open(self.url(_CATALOG), root=self.url(""), store=self.source.options)
        raise self.refusal(there[0], "the destination has a pack of a different source or with different arguments")

    def clear(self) -> None:
        """Delete the manifest and catalog of a pack to be replaced, because its shards will change."""
        with suppress(Damaged):
            if (known := self._manifest()) is not None and known["format"]["name"] == "mds":
                self.found.setdefault(INDEX, (0, ""))
        self.delete([*self.last, INDEX])

    def _complete(self, shards: list[dict[str, Any]]) -> bool:
        return all(self.found.get(each["name"], (-1, ""))[0] == each["bytes"] for each in shards)

    def refusal(self, name: str, why: str) -> AlreadyExists:
        return AlreadyExists(f"{why}: name another destination, or pass overwrite=True", url=self.url(name))

    def record(self, name: str, plan: str, first: int) -> ShardRecord | None:
        """Return the record of a shard of this plan that begins with sample ``first``."""
        if name + _PARTIAL not in self.found:
            return None
        key = self.base + name + _PARTIAL
        known = ShardRecord.decoded(self.source.read(Span(key)), self.source.url(key))
        return known if (known.plan, known.first) == (plan, first) else None

    def keep(self, name: str, record: ShardRecord) -> None:
        self.source.put(self.base + name + _PARTIAL, json.dumps(asdict(record)).encode())
        self.found[name + _PARTIAL] = 0, ""

    def delete(self, names: Iterable[str]) -> None:
        names = [name for name in names if self.found.pop(name, None) is not None]
        self.source.delete([self.base + name for name in names])

    def delete_late_records(self) -> None:
        """Delete records that slower processes wrote after the pack's last step had deleted all."""
        late = [name for name in self.found if name.endswith(_PARTIAL)]
        if not late or (known := self._manifest()) is None:
            return
        for name in late:
            with suppress(NotFound):
                record = ShardRecord.decoded(self.source.read(Span(self.base + name)), self.url(name))
                if record.plan == known["plan"]:
                    self.delete([name])

    def _manifest(self) -> dict[str, Any] | None:
        if _MANIFEST not in self.found:
            return None
        data = self.source.read(Span(self.base + _MANIFEST))
        found: dict[str, Any] = read_json(data, _MANIFEST_FORM, "the manifest of a pack", self.url(_MANIFEST))
        return found


def read_back(source: Source, meta: ObjectMeta, update: Callable[[bytes], object]) -> None:
    """Call ``update``, of a digest, with the bytes of a shard, in order."""
    with source.lookahead(cut_spans(meta, _PIECE_BYTES)) as bodies:
        for each in bodies:
            update(each)


def catalog_shards(
    shards: Shards, places: Sequence[tuple[list[int], list[int]]], labels: list[bytes] | None = None
) -> Catalog:
    """Return the catalog of written shards, given the first bytes and the sizes of the samples of each."""
    if shards.format.in_units:
        # The places of rows are those of their row groups, which the end of each file has.
        found = [extents for _, extents in sorted(walked(shards, range(len(places))), key=itemgetter(0))]
    else:
        columns = shards.format.columns if isinstance(shards.format, MdsFormat) else None
        pairs = ((np.array(offsets, np.int64), np.array(sizes, np.int64)) for offsets, sizes in places)
        found = [Extents(*each, schema=columns) for each in pairs]
    return make_catalog(shards.source.root, shards.base, table_of_extents(shards, found, labels))


def abort_uploads(source: Source, base: str, names: re.Pattern[str]) -> None:
    """Abort unfinished uploads of shards with these names, which killed processes have left."""
    if local(source) or not source.supports(Multipart):
        return
    for upload in source.unfinished(f"{base}shard-"):
        if names.fullmatch(upload.key[len(base) :]):
            source.abort(upload)


class Packing:
    """Pack in progress; ``plan`` is a digest of everything that determines the bytes of shards."""

    def __init__(self, members: Members, form: ShardFormat, options: PackOptions, there: Destination) -> None:
        self.members, self._form, self._options, self._there = members, form, options, there
        about = [_VERSION, form.described(), options.samples, options.bytes, members.digest, members.values_digest()]
        self._columns: tuple[MDSColumn, ...] = form.columns if isinstance(form, MdsFormat) else ()
        if form.name not in ENCODERS:
            about.append(options.key)
        self.plan = hashlib.sha256(json.dumps(about, default=str).encode()).hexdigest()
        self._coming = Coming(members)
        self._count: Callable[[int, int], None] = lambda _samples, _bytes: None

    def run(self, count: Callable[[int, int], None]) -> Catalog:
        self._count, there = count, self._there
        if (finished := there.finished(self.plan)) is not None:
            return finished
        self._check_others()
        if there.overwrite:
            there.clear()
        records: list[tuple[str, ShardRecord]] = []
        at = 0
        with closing(self._coming):
            while at < len(self.members.rows):
                if len(records) == 10**_DIGITS:
                    raise Unusable(f"more than {10**_DIGITS} shards: pass a larger samples= or bytes=")
                name = self.name(len(records))
                # What is there may be of a transform that was changed since.
                record = (None if there.overwrite else self._known(name, at)) or self._written(name, at)
                records.append((name, record))
                at += len(record.offsets)
        return self.finish(records)

    def name(self, number: int) -> str:
        return f"shard-{number:0{_DIGITS}}.{self._form.name}"

    def starts(self) -> list[int]:
        """Return the first sample of each shard; refuse samples that must be read to find it."""
        options, members = self._options, self.members
        if options.bytes is None:
            return [*range(0, len(members.rows), options.samples or 1)]
        if not isinstance(members, ObjectMembers) or self._form.name not in ENCODERS:
            raise Unusable("with bytes=, the borders of shards are not known in advance: pass samples= instead")
        starts, writing = [0], self._archive()
        for number, sample in enumerate(members.measured()):
            if writing.is_full(sample):
                starts.append(number)
                writing = self._archive()
            writing.measure(sample)
        return starts

    def at(self, only: Sequence[str] | None = None) -> Packing:
        """Return this pack with the current objects at the destination, or ``only`` some names."""
        there, now = self._there, copy(self)
        now._there = Destination(  # noqa: SLF001  its own class
            there.source, there.base, overwrite=there.overwrite, mds=bool(self._columns), only=only
        )
        now._coming = Coming(self.members)  # noqa: SLF001
        return now

    def shared_shard(self, number: int, first: int, count: Callable[[int, int], None]) -> ShardRecord:
        """Write one shard unless it exists; return its record. Other processes may do the same."""
        name = self.name(number)
        for _ in range(_LOOKS):
            # It is the other's shard, which is looked at anew.
            with suppress(AlreadyExists, Changed, PreconditionFailed):
                return self._here(name, first, count)
        return self._here(name, first, count)

    def _here(self, name: str, first: int, count: Callable[[int, int], None]) -> ShardRecord:
        packing = self.at([name, name + _PARTIAL])
        packing._count = count  # noqa: SLF001  its own class
        with closing(packing._coming):  # noqa: SLF001
            return packing._known(name, first) or packing._written(name, first)  # noqa: SLF001

    def now(self, name: str, record: ShardRecord) -> ShardRecord:
        """Return a record with the shard's current version; another process may have written it since."""
        there = self._there
        size, etag = there.found.get(name, (-1, ""))
        if size != record.size:
            raise NotFound("a shard that was written has been deleted", url=there.url(name))
        if etag == record.etag:
            return record
        self.compare(name, record, etag)
        return replace(record, etag=etag)

    def check(self) -> bool:
        """Return whether this pack is finished; refuse objects of other packs."""
        if self._there.finished(self.plan) is not None:
            return True
        self._check_others()
        return False

    def clear(self) -> None:
        """Abort unfinished uploads of killed processes, once all shards are written."""
        abort_uploads(self._there.source, self._there.base, _OURS)

    def _check_others(self) -> None:
        """Refuse shards that no record belongs to, before anything is written."""
        for name in self._there.found:
            found = _OURS.fullmatch(name)
            if found and not found[2] and name + _PARTIAL not in self._there.found and not self._there.overwrite:
                raise self._there.refusal(name, "found a shard that this pack did not write")

    def _known(self, name: str, first: int) -> ShardRecord | None:
        """Return the record of an existing shard that is complete and equal to the planned one."""
        there = self._there
        record, found = there.record(name, self.plan, first), there.found.get(name)
        if found is None:
            if name + _PARTIAL in there.found and record is None and not there.overwrite:
                raise there.refusal(name + _PARTIAL, "an interrupted pack has a different source or arguments")
            return None
        size, etag = found
        if record is not None and record.size == size and (not record.etag or not etag or record.etag == etag):
            try:
                record = self._settled(name, record, etag)
            except ChecksumMismatch:
                if not there.overwrite:
                    raise
            else:
                self._count(len(record.offsets), sum(record.sizes))
                return record
        if not there.overwrite:
            raise there.refusal(name, "found an object that is not this pack's shard")
        return None

    def stream(self, named: Callable[[int], str]) -> Generator[tuple[str, ShardRecord]]:
        """Overwrite the destination with all samples; yield each shard's name and unkept record."""
        there, kind, at = self._there, _CONTENT[self._form.name], 0
        number = 0
        with closing(self._coming):
            self._coming.seek(0)
            while self._coming.peek() is not None:
                name, shard = named(number), self._shard()
                with there.source.open_write(there.base + name, content_type=kind) as writer:
                    shard.fill(writer, self._coming, at)
                record = ShardRecord(self.plan, at, shard.size, shard.sha256, shard.offsets, shard.sizes, writer.etag)
                if self._options.verify:
                    self.compare(name, record, writer.etag)
                yield name, record
                at, number = at + len(shard.offsets), number + 1

    def _written(self, name: str, first: int) -> ShardRecord:
        there, shard = self._there, self._shard()
        # Only what was listed may be replaced.
        _, etag = there.found.get(name, (-1, ""))
        new = name not in there.found
        kind = _CONTENT[self._form.name]
        with there.source.open_write(there.base + name, create_only=new, replaces=etag, content_type=kind) as writer:
            shard.fill(writer, self._coming, first)
            record = ShardRecord(self.plan, first, shard.size, shard.sha256, shard.offsets, shard.sizes)
            there.keep(name, record)
        return self._settled(name, record, writer.etag)

    def _shard(self) -> ShardWriting:
        return open_shard(self._form, self.members, self._options, self._count)

    def _archive(self) -> _ShardWriting:
        return _ShardWriting(ENCODERS[self._form.name](), self._options, self._count)

    def _settled(self, name: str, record: ShardRecord, etag: str) -> ShardRecord:
        """Compare a shard with its record, unless done before, and keep the record with the shard's version."""
        if record.compared:
            return record
        if self._options.verify:
            self.compare(name, record, etag)
        record = replace(record, etag=etag, compared=self._options.verify)
        self._there.keep(name, record)
        return record

    def compare(self, name: str, record: ShardRecord, etag: str) -> None:
        key, source, sha256 = self._there.base + name, self._there.source, hashlib.sha256()
        read_back(source, ObjectMeta(key, record.size, etag), sha256.update)
        if sha256.hexdigest() != record.sha256:
            raise ChecksumMismatch(
                "the shard differs from the written data when read back: pass overwrite=True to write it again",
                url=source.url(key),
            )

    def finish(self, records: list[tuple[str, ShardRecord]]) -> Catalog:
        """Write the manifest and the catalog, and delete records and the shards of an earlier pack."""
        there, form = self._there, self._form
        names = {name for name, _ in records}
        old = [name for name in there.found if (ours := _OURS.fullmatch(name)) and not ours[2] and name not in names]
        if old and not there.overwrite:
            raise there.refusal(old[0], "found a shard that this pack did not write")
        shards = Shards(
            there.source, there.base, [Shard(there.base + name, each.size, each.etag) for name, each in records], form
        )
        places = [(each.offsets, each.sizes) for _, each in records]
        catalog = self._labelled(catalog_shards(shards, places, self._labels()))
        there.delete(old)
        manifest = {
            "penstock pack": _VERSION,
            "plan": self.plan,
            "format": (catalog.format or form).described(),
            "samples": len(catalog),
            "shards": [
                {"name": name, "samples": len(each.offsets), "bytes": each.size, "sha256": each.sha256}
                for name, each in records
            ],
        }
        there.source.put(
            there.base + _MANIFEST, json.dumps(manifest, indent=1).encode(), content_type="application/json"
        )
        if self._columns:
            rows = [(name, len(each.offsets), each.size, each.sha256) for name, each in records]
            index = index_json(self._columns, rows, self._options.bytes)
            there.source.put(there.base + INDEX, index, content_type="application/json")
        catalog.save(there.url(_CATALOG), store=there.source.options)
        there.delete([name for name in there.found if name.endswith(_PARTIAL)])
        if local(there.source):
            clear_unfinished(there.source, there.base)
        return catalog

    def _labels(self) -> list[bytes] | None:
        """Return the labels of a manifest as JSON; None without any, or with classes."""
        catalog = self.members.catalog
        if catalog.bare or catalog.classes:
            return None
        labels = [catalog.label(row) for row in self.members.rows.tolist()]
        return [b"" if each is None else json.dumps(each).encode() for each in labels]

    def _labelled(self, catalog: Catalog) -> Catalog:
        given, rows = self.members.catalog, self.members.rows
        if given.classes:
            catalog = catalog.with_labels(given.labels[rows].tolist(), classes=given.classes)
        columns = {name: np.asarray(each)[rows] for name, each in given.columns.items()}
        return catalog.with_columns(**columns) if columns else catalog


class _ShardWriting:
    """Bytes of one archive, with digest and version once written."""

    def __init__(self, encoder: ArchiveEncoder, options: PackOptions, count: Callable[[int, int], None]) -> None:
        self._encoder, self._options, self._count = encoder, options, count
        self._sha256 = hashlib.sha256()
        self._keys: set[str] = set()
        self.offsets: list[int] = []
        self.sizes: list[int] = []

    @property
    def size(self) -> int:
        return self._encoder.position

    @property
    def sha256(self) -> str:
        return self._sha256.hexdigest()

    def fill(self, writer: Writer, coming: Coming, first: int) -> None:
        coming.seek(first)
        while (sample := coming.peek()) is not None and not self.is_full([(m.name, m.size) for m in sample.members]):
            self._add(writer, sample)
            coming.advance()
        self._send(writer, self._encoder.end())

    def measure(self, sample: list[tuple[str, int]]) -> None:
        """Advance as if a sample of these names and sizes had been written."""
        for name, size in sample:
            self._encoder.header(name, size)
            self._encoder.padding()
        self.offsets.append(self.size)

    def is_full(self, sample: list[tuple[str, int]]) -> bool:
        """Return whether a sample of these names and sizes belongs to the next shard."""
        options = self._options
        if not self.offsets:
            return False
        if options.samples is not None and len(self.offsets) >= options.samples:
            return True
        if options.bytes is None:
            return False
        encoder = self._encoder
        added = sum(encoder.added_bytes(name, size) for name, size in sample)
        return encoder.position + encoder.end_bytes + added > options.bytes

    def _add(self, writer: Writer, sample: Packable) -> None:
        if sample.key in self._keys:
            raise Unusable(
                f"two samples of one shard have the key {sample.key!r}: give them different names, or pass a smaller "
                "samples="
            )
        self._keys.add(sample.key)
        start = stop = self.size
        for each in sample.members:
            self._member(writer, each)
            stop = self.size
            self._send(writer, self._encoder.padding())
        self.offsets.append(start)
        self.sizes.append(stop - start)
        self._count(1, sum(each.size for each in sample.members))

    def _member(self, writer: Writer, member: PackedMember) -> None:
        pieces: Iterable[Bytes] = member.pieces
        crc = 0
        if self._encoder.sums:
            if member.size <= _TOGETHER_BYTES:
                pieces = [*pieces]
            for each in pieces:
                crc = zlib.crc32(each, crc)
            if member.size > _TOGETHER_BYTES:
                pieces = member.again()
        self._send(writer, self._encoder.header(member.name, member.size, crc))
        written, again = 0, 0
        for each in pieces:
            self._send(writer, each)
            written += len(each)
            again = zlib.crc32(each, again) if self._encoder.sums else 0
        if written != member.size or again != crc:
            raise Changed(f"{member.name!r} was replaced while it was packed")

    def _send(self, writer: Writer, data: Bytes) -> None:
        if len(data):
            self._sha256.update(data)
            writer.write(data)


ShardWriting: TypeAlias = "_ShardWriting | MdsWriting | RowWriting"


def open_shard(
    form: ShardFormat, members: Members, options: PackOptions, count: Callable[[int, int], None]
) -> ShardWriting:
    """Return the writing of a shard of ``members``."""
    most = options.samples, options.bytes
    if isinstance(form, MdsFormat):
        return MdsWriting(form.columns, most, count)
    if form.in_units:
        return RowWriting(members, most, count)
    return _ShardWriting(ENCODERS[form.name](), options, count)
