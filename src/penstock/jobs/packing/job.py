"""``ps.pack``: in this process as ``pack`` does it; with ``job``, each shard is a part.

Borders of shards are computed from names and sizes when the job is planned. The catalog is kept with
the records, so that every part has the same samples. The last step writes the manifest and the catalog.
"""

from __future__ import annotations

import json
import re
from dataclasses import asdict, dataclass, fields, replace
from functools import lru_cache
from itertools import pairwise
from typing import TYPE_CHECKING, Any, ClassVar, overload

from penstock.data.catalog.catalog import Catalog
from penstock.engine.listing.select import globs
from penstock.errors import Changed, Conflict, Damaged, PenstockError, Unusable, kind_of
from penstock.jobs.packing.pack import Destination, Packing, PackOptions, ShardRecord, make_packing
from penstock.jobs.parts.operation import JobPart, Means, Operation, Planned
from penstock.jobs.parts.records import JobPlan, PartRecord, Records
from penstock.jobs.parts.run import JobOptions, check_apart, complete_job, require_job
from penstock.options import StoreOptions
from penstock.progress import bar
from penstock.schema import COUNT
from penstock.source import open_source
from penstock.values import as_folder

if TYPE_CHECKING:
    import os
    from collections.abc import Iterable, Mapping

    from penstock.data.shards.keys import KeyRule
    from penstock.jobs.parts.carriers import Ray

_VERSION = re.compile("[0-9a-f]{64}")
_TEXTS = [str]
_FORM = {
    "source": str,
    "url": str,
    "format": str,
    "catalog": (_VERSION, ""),
    "samples": (COUNT, None),
    "bytes": (COUNT, None),
    "key": str,
    "include": _TEXTS,
    "exclude": _TEXTS,
    "columns": ({str: str}, None),
    "overwrite": bool,
    "verify": bool,
}


@overload
def pack(
    source: object,
    dest: str | os.PathLike[str],
    *,
    format: str = "tar",
    samples: int | None = None,
    bytes: int | None = None,
    key: KeyRule = "first-dot",
    include: str | Iterable[str] = (),
    exclude: str | Iterable[str] = (),
    columns: Mapping[str, str] | None = None,
    overwrite: bool = False,
    verify: bool = True,
    job: str | os.PathLike[str] | None = None,
    part: None = None,
    on: Ray | None = None,
    processes: int | None = 1,
    progress: bool | None = None,
    store: StoreOptions | str | None = None,
) -> Catalog: ...
@overload
def pack(
    source: object,
    dest: str | os.PathLike[str],
    *,
    format: str = "tar",
    samples: int | None = None,
    bytes: int | None = None,
    key: KeyRule = "first-dot",
    include: str | Iterable[str] = (),
    exclude: str | Iterable[str] = (),
    columns: Mapping[str, str] | None = None,
    overwrite: bool = False,
    verify: bool = True,
    job: str | os.PathLike[str] | None = None,
    part: str,
    on: Ray | None = None,
    processes: int | None = 1,
    progress: bool | None = None,
    store: StoreOptions | str | None = None,
) -> Catalog | None: ...
def pack(  # noqa: PLR0913  each is named in the call
    source: object,
    dest: str | os.PathLike[str],
    *,
    format: str = "tar",  # noqa: A002  the field's word
    samples: int | None = None,
    bytes: int | None = None,  # noqa: A002  a unit, as in other options
    key: KeyRule = "first-dot",
    include: str | Iterable[str] = (),
    exclude: str | Iterable[str] = (),
    columns: Mapping[str, str] | None = None,
    overwrite: bool = False,
    verify: bool = True,
    job: str | os.PathLike[str] | None = None,
    part: str | None = None,
    on: Ray | None = None,
    processes: int | None = 1,
    progress: bool | None = None,
    store: StoreOptions | str | None = None,
) -> Catalog | None:
    """Write objects or samples into shards, ``shard-000000.tar`` and so on, with their catalog, ``index.catalog``.

    Objects with the same key (the name up to its first dot) form one sample. The order is that of the source's catalog:
    ``catalog[permutation]`` packs in another. The same source gives the same bytes. Names in the shards are keys below
    the prefix; fields of samples that are neither bytes nor text are written as JSON.

    Each shard appears in one step, is read back and compared; the catalog comes last. Repeat an interrupted call to
    continue it: shards that it has finished are not written again, unless ``overwrite`` is set. The code of a dataset's
    transform is not compared: pass ``overwrite=True`` after a change of it. ``pack.json`` names the shards, with sizes
    and SHA-256.

    MDS, mosaicml-streaming's format, has columns in place of names, which are not kept, and ``index.json`` next to the
    shards, which its readers need. Every sample has the same fields. Bytes become ``bytes`` (``jpg``: ``jpeg``,
    ``png``: ``png``), other values the encoding of their type; ``columns={"cls": "int"}`` names them, chooses among the
    fields, and takes numbers from text.

    Costs those of reading the samples, and for each shard those of its upload, of reading it back, and of two small
    records, which are deleted at the end. Memory: the read-ahead and one upload, whatever the size of the shards; of
    MDS also one shard (at most 1 GiB without ``bytes``), of Parquet three times a row group (about 8 MiB, or a sample).

    With ``job``, each shard is a part, recorded in a folder as the parts of ``ps.copy_tree`` are: several machines
    share them, or a Ray cluster does them. The shards have the same bytes. The source is a URL or a catalog of objects,
    which is kept in the folder; a limit of ``bytes`` is for tar and zip.

    Args:
        source: URL of a prefix; a ``Catalog``; or a dataset whose samples are ``ps.Sample``.
        dest: Prefix or directory for the shards.
        format: ``"tar"`` (ustar, pax where a name or size needs it), ``"zip"`` (stored, with CRC-32), ``"mds"``, or
            ``"parquet"``: rows with ``__key__`` and a column of bytes for each field. The only image of a sample is the
            column ``image``, as Hugging Face's ``datasets`` reads it; of several, each has a column.
        samples: Most samples of a shard.
        bytes: Most bytes of a shard, unless it is a single sample; default: 256 MiB (MDS: 64 MiB) if ``samples`` is not
            given.
        key: Rule by which objects form samples, and the shards are read: see ``Catalog.from_shards``.
        include: Globs over the key below a URL, of which one must match.
        exclude: Globs of which none may match.
        columns: For MDS: encodings of the columns by name; default: by the values of the first sample.
        overwrite: Rewrite all shards at the destination; with a job, those without a record.
        verify: Read each shard back and compare it.
        job: Folder for the records; the catalog is written once all shards are.
        part: This process's share of the shards, such as ``"3/16"``; with ``job``.
        on: Ray cluster that writes the shards; with ``job``.
        processes: Processes of this machine that share the shards; None: as many as processors; with ``job``.
        progress: Show a bar on standard error; default: if that is a terminal and rich is installed.
        store: Options of both sides, or the name of a profile. A dataset has its own.

    Returns:
        The catalog of the samples in the shards, as ``Catalog.from_shards`` would find them, with the labels and
        columns of the source. None if a ``part`` of a job is done, and others have shards left.

    Raises:
        NotFound: There is nothing to pack.
        AlreadyExists: Other shards, or a catalog, are at the destination, and ``overwrite`` is not set.
        Unusable: A name cannot be that of a member, two members would have one place, a sample lacks a column or its
            value does not fit, or an argument is invalid.
        ChecksumMismatch: A shard that was read back differs from the written data.

    Example:
        >>> catalog = ps.pack("s3://bucket/train/", "s3://bucket/packed/", samples=100)
        >>> catalog
        <Catalog of 600 samples in 6 tar shards under s3://bucket/packed/>
        >>> ps.MapDataset.from_catalog("s3://bucket/packed/index.catalog")[0].fields
        ('png',)
    """
    options = PackOptions(samples, bytes, key, include, exclude, columns, overwrite, verify)
    if job is None:
        require_job(part, on, processes)
        packing = make_packing(source, dest, format, options, store, progress=progress)
        with bar("packing", len(packing.members.rows), packing.members.size_bytes, shown=progress) as count:
            return packing.run(count)
    given = StoreOptions() if store is None else store
    records = Records(job, given)
    here, catalog = _resolve_source(source, given)
    there, prefix = open_source(dest, given)
    folder = there.url(as_folder(prefix))
    check_apart(records, given, here, folder)
    chosen = {"include": globs(include), "exclude": globs(exclude)}
    if catalog is not None and any(chosen.values()):
        raise Unusable("include= and exclude= choose among the objects of a URL: use Catalog.filter")
    text = json.dumps(asdict(options) | chosen, default=_refuse_record_value)
    operation = _Pack(here, folder, format, text, "" if catalog is None else catalog.version, given, records.url)
    if catalog is not None and records.plan() is None:
        keep_catalog(catalog, operation.place(operation.catalog), given)
    return _complete(operation, JobOptions(part, on, progress, processes))


def resume(records: Records, plan: JobPlan, **options: Any) -> Catalog | None:  # noqa: ANN401  those of pack
    named = plan.chosen(_FORM, records.url)
    text = json.dumps({each.name: named[each.name] for each in fields(PackOptions)})
    store = options.get("store") or StoreOptions()
    operation = _Pack(named["source"], named["url"], named["format"], text, named["catalog"], store, records.url)
    return _complete(
        operation, JobOptions(options.get("part"), options.get("on"), processes=options.get("processes", 1))
    )


def _resolve_source(source: Any, store: StoreOptions | str) -> tuple[str, Catalog | None]:  # noqa: ANN401  checked here
    """Return the URL below which the objects are, and the catalog if one was given."""
    if isinstance(source, Catalog):
        if source.format is not None or source.fields:
            raise Unusable("a job packs plain objects: pack the samples of this catalog without job=")
        return source.root + source.base, source
    if not (isinstance(source, str) or hasattr(source, "__fspath__")):
        raise Unusable(f"source of a job must be a URL or a Catalog of objects, got {kind_of(source)}")
    found, key = open_source(source, store)
    return found.url(as_folder(key)), None


def keep_catalog(catalog: Catalog, url: str, store: StoreOptions | str) -> None:
    """Save a catalog under a name with its version; other processes may do the same."""
    source, key = open_source(url, store)
    if source.stat_existing([key])[0] is None:
        try:
            catalog.save(url, store=store)
        except (Conflict, Damaged):
            if source.stat_existing([key])[0] is None:
                raise


def _complete(operation: _Pack, how: JobOptions) -> Catalog | None:
    # The environment may have changed since the last call, and name another endpoint.
    _plan_packing.cache_clear()

    def read() -> Catalog:
        source, key = open_source(operation.url, operation.store)
        Destination(source, key, overwrite=False).delete_late_records()
        return Catalog.open(f"{operation.url}index.catalog", root=operation.url, store=operation.store)

    return complete_job(operation, operation.job, how, read)


def _refuse_record_value(value: object) -> None:
    raise Unusable(f"the records of a job must hold only texts and numbers, got {kind_of(value)}")


@dataclass(frozen=True, slots=True)
class _Pack(Operation):
    """Packing of samples into shards; each shard is a part."""

    name: ClassVar[str] = "pack"
    verb: ClassVar[str] = "packing"
    counts: ClassVar[tuple[str, ...]] = ("samples", "shards", "shard_bytes", "failed")
    part: ClassVar[object] = [COUNT, COUNT, _VERSION, COUNT, COUNT]
    places: ClassVar[tuple[str, ...]] = ("source", "url")

    source: str
    url: str
    form: str
    how: str
    catalog: str
    store: StoreOptions | str
    job: str

    def details(self) -> dict[str, Any]:
        return {"format": self.form, "catalog": self.catalog, **json.loads(self.how)}

    def place(self, version: str) -> str:
        return Records(self.job, self.store).place(f"{version}.catalog")

    def planned(self) -> Planned:
        """List the samples to pack, keep the list, and compute the borders of shards."""
        how, version = json.loads(self.how), self.catalog
        if not version:
            found = Catalog.scan(self.source, include=how["include"], exclude=how["exclude"], store=self.store)
            version = found.version
            keep_catalog(found, self.place(version), self.store)
        packing = _plan_packing(self, version)
        if packing.check():
            raise Unusable("this pack is finished, and needs no job: ps.Catalog.open opens its catalog", url=self.url)
        starts = [*packing.starts(), len(packing.members.rows)]
        sizes = packing.members.sample_bytes()
        parts = [(first, stop, version, stop - first, int(sizes[first:stop].sum())) for first, stop in pairwise(starts)]
        return Planned(parts, len(packing.members.rows), int(sizes.sum()))

    def work(self, part: JobPart, record: PartRecord, means: Means) -> PenstockError | None:
        first, stop, version = part.piece[:3]
        made = _plan_packing(self, version).shared_shard(part.number, first, means.count)
        if len(made.offsets) != stop - first:
            raise Changed("a shard contains unplanned samples: delete the records, and start over", url=self.url)
        means.records.keep(part.number, json.dumps(asdict(made)).encode())
        record.counts = {"samples": len(made.offsets), "shards": 1, "shard_bytes": made.size}
        return None

    def finish(self, plan: JobPlan, records: Records) -> None:
        packing = _plan_packing(self, plan.parts[0][2]).at()
        found = (ShardRecord.decoded(data, url) for url, data in records.kept(len(plan.parts)))
        named = ((packing.name(number), each) for number, each in enumerate(found))
        packing.finish([(name, packing.now(name, each)) for name, each in named])
        packing.clear()


@lru_cache(maxsize=1)
def _plan_packing(operation: _Pack, version: str) -> Packing:
    # Names of objects begin below the source, as in a catalog that was made of it.
    catalog = Catalog.open(operation.place(version), root=operation.source, store=operation.store)
    how = json.loads(operation.how)
    options = replace(PackOptions(**how), include=(), exclude=())
    return make_packing(catalog, operation.url, operation.form, options, operation.store)
