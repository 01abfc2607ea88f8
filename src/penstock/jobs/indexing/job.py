"""``ps.index``: in this process as ``jobs.index`` does it; with ``job``, the walks of shards are parts.

A part keeps what it has found in its shards. The last step joins this as an interrupted index is continued: all shards
are known, and the catalog has the same bytes as one that a single process makes.
"""

from __future__ import annotations

import json
import zlib
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, ClassVar, Unpack, cast, overload

import numpy as np

from penstock.data.catalog.catalog import Catalog, make_catalog
from penstock.data.catalog.discovery.journal import WALKED, ShardJournal, Walked
from penstock.data.catalog.discovery.shards import KeptWalks, Shard, Shards, find_shards, index_shards, walked
from penstock.data.catalog.discovery.stated import INDEX, named_files, read_stated
from penstock.data.catalog.labels import check_rule
from penstock.data.catalog.saved import Saved, load
from penstock.data.shards.registry import format_of
from penstock.errors import Changed, Damaged, Unusable, public_url
from penstock.jobs.indexing.index import IndexKeywords, check_target, index_here
from penstock.jobs.parts.operation import Operation, Planned, ignore_progress
from penstock.jobs.parts.run import Job, JobOptions, read_result
from penstock.options import StoreOptions
from penstock.schema import COUNT, read_json
from penstock.source import open_source
from penstock.stores.urls import parse
from penstock.values import check_keywords
from penstock.verbs import open as open_object

if TYPE_CHECKING:
    import os

    from penstock.data.shards.mds import Stated
    from penstock.errors import PenstockError
    from penstock.jobs.parts.carriers import Ray
    from penstock.jobs.parts.operation import JobPart, Means
    from penstock.jobs.parts.records import JobPlan, PartRecord, Records
    from penstock.source import Source

# As many as are walked at once.
_SHARDS = 32
_ARGUMENTS = ("fields", "key", "missing", "skip")
_KEPT = ("format", *_ARGUMENTS, "index", "labels")
_FORM = {"url": str, "to": str, "format": str, **{f"{name}?": object for name in _KEPT[1:]}}
_SHARED = {
    "root": str,
    "base": str,
    "format": dict,
    "side": str,
    "stated": bool,
    "shards": [[str, COUNT, str]],
    "counts": ({str: COUNT}, None),
}


@overload
def index(
    url: str | os.PathLike[str],
    to: str | os.PathLike[str],
    *,
    job: str | os.PathLike[str] | None = None,
    part: None = None,
    on: Ray | None = None,
    progress: bool | None = None,
    store: StoreOptions | str | None = None,
    **how: Unpack[IndexKeywords],
) -> Catalog: ...
@overload
def index(
    url: str | os.PathLike[str],
    to: str | os.PathLike[str],
    *,
    job: str | os.PathLike[str] | None = None,
    part: str,
    on: Ray | None = None,
    progress: bool | None = None,
    store: StoreOptions | str | None = None,
    **how: Unpack[IndexKeywords],
) -> Catalog | None: ...
def index(  # noqa: PLR0913  see design/0095
    url: str | os.PathLike[str],
    to: str | os.PathLike[str],
    *,
    job: str | os.PathLike[str] | None = None,
    part: str | None = None,
    on: Ray | None = None,
    progress: bool | None = None,
    store: StoreOptions | str | None = None,
    **how: Unpack[IndexKeywords],
) -> Catalog | None:
    """List a prefix as ``Catalog.scan`` does, and save the catalog; with ``format``, of the samples inside shards.

    A listing that was killed or interrupted resumes when it is called again with the same arguments, unless
    ``restart`` is set. The entries found so far are in ``<to>.partial`` or, if ``to`` is not on this machine, in
    ``$XDG_CACHE_HOME/penstock`` (``~/.cache/penstock``); this file is removed once the catalog is saved. Objects that
    were written or deleted since the listing began may or may not be in the catalog. An index of shards is continued
    in the same way: only shards that are new, or were replaced since, are walked.

    With ``job``, the walks of shards are parts, 32 shards each, which are recorded in a folder as those of
    ``ps.copy_tree``: several machines share them, or a Ray cluster does them. The catalog has the same bytes.

    Args:
        url: The prefix; of shards also a glob, or a pattern such as ``"s3://bucket/train-{0000..0127}.tar"``.
        to: The file to write, in a store or on this machine.
        job: Folder for the records, for shards; the catalog is written once all parts are done.
        part: This process's share of the parts, such as ``"3/16"``; with ``job``.
        on: Ray cluster that does the parts; with ``job``.
        progress: As for ``Catalog.scan``; for shards a bar of shards and their bytes.
        store: Options of the store that holds ``url`` and ``to``; not used for a local ``to``.
        how: ``include``, ``exclude`` and ``labels`` as for ``Catalog.scan``; ``restart`` begins anew. For shards
            ``format``, and with it ``fields``, ``key``, ``missing``, ``skip``, ``index`` and ``labels`` as for
            ``Catalog.from_shards``.

    Returns:
        The catalog; None if a ``part`` of a job is done, and others have parts left.

    Raises:
        NotFound: No object or shard was found; nothing was written.
        Damaged: A shard is not what its format says; the shards before it are kept for the next call.
        AlreadyExists: ``to`` is there, and is no catalog.
        Unusable: An object has no label; another process lists into the same file; the disk is full; or
            ``job`` is given for objects, or with arguments that no record can hold.

    Example:
        >>> catalog = ps.index("s3://bucket/train/", "train.catalog", labels="folder")
        >>> len(catalog), catalog.classes[:3]
        (600, ('0', '1', '2'))
        >>> len(ps.Catalog.open("train.catalog", root="s3://bucket/train/"))
        600
        >>> ps.index("s3://bucket/shards/", "shards.catalog", format="tar", fields=("png", "cls"))
        <Catalog of 600 samples in 6 tar shards under s3://bucket/shards/>

    """
    check_keywords(how, IndexKeywords, "ps.index")
    if job is None:
        if part is not None or on is not None:
            raise Unusable("part= and on= share the parts of a job: pass job=, a folder for its records")
        return index_here(url, to, progress=progress, store=store, **how)
    return _in_parts(_operation(url, to, store, how), job, JobOptions(part, on, progress))


def resume(records: Records, plan: JobPlan, **options: Any) -> Catalog | None:  # noqa: ANN401  those of index
    """Continue a job of this operation with the arguments that its plan has; see ``index`` for ``options``."""
    arguments = plan.chosen(_FORM, records.url)
    url, to = arguments.pop("url"), arguments.pop("to")
    given = options.get("store")
    how = JobOptions(options.get("part"), options.get("on"))
    return _in_parts(_operation(url, to, given, cast("IndexKeywords", arguments)), records.url, how)


def _in_parts(operation: _IndexOperation, job: str | os.PathLike[str], how: JobOptions) -> Catalog | None:
    work = Job(operation, job, how)
    work.work()
    if not work.records.finished():
        return None
    found = read_result(operation.catalog)
    return make_catalog(found.root, found.base, found.table)


def _operation(
    url: str | os.PathLike[str], to: str | os.PathLike[str], store: StoreOptions | str | None, how: IndexKeywords
) -> _IndexOperation:
    if how.get("format") is None:
        raise Unusable("job= is for the samples inside shards: pass format=; one process lists objects in parallel")
    if how.get("include") or how.get("exclude"):
        raise Unusable("include= and exclude= are for objects: pass a glob as the URL of shards")
    if how.get("restart"):
        raise Unusable("restart= is for an index without job=: delete the records (penstock jobs rm), or name others")
    given = {name: value for name, value in how.items() if value is not None and name in {*_KEPT}}
    try:
        text = json.dumps(given)
    except TypeError as error:
        raise Unusable(f"the records of a job hold texts and lists of them only: {error}") from None
    if "labels" in given:
        check_rule(given["labels"])
    return _IndexOperation(
        parse(url).url, check_target(to, store).url, text, StoreOptions() if store is None else store
    )


class _KnownWalks(ShardJournal):
    """Walks in memory, by the key of the shard."""

    def __init__(self) -> None:
        self.known = {}

    def add(self, key: str, walked: Walked) -> None:
        """Keep a walk."""
        self.known[key] = walked


@dataclass(frozen=True, slots=True)
class _IndexOperation(Operation):
    """Walks of shards."""

    name: ClassVar[str] = "index"
    verb: ClassVar[str] = "indexing shards"
    counts: ClassVar[tuple[str, ...]] = ("shards", "shard_bytes", "samples", "failed")
    part: ClassVar[object] = [_SHARED, COUNT, COUNT]

    url: str
    to: str
    how: str
    store: StoreOptions | str

    @property
    def urls(self) -> tuple[str, ...]:
        """The shards, and the catalog."""
        return self.url, self.to

    @property
    def arguments(self) -> dict[str, Any]:
        """The shards, the catalog, and what is taken of them."""
        return {"url": public_url(self.url), "to": public_url(self.to), **json.loads(self.how)}

    @property
    def store_of_catalog(self) -> StoreOptions | str | None:
        """Options of the store of the catalog."""
        return None if parse(self.to).local else self.store

    def catalog(self) -> Saved:
        """Read the catalog that was written."""
        with open_object(self.to, "rb", store=self.store_of_catalog) as file:
            return load(file)

    def planned(self) -> Planned:
        """List the shards."""
        how = json.loads(self.how)
        shards = find_shards(self.url, how["format"], {name: how.get(name) for name in _ARGUMENTS}, self.store)
        shards = shards.sided(how.get("index"), self.store, labels="labels" in how)
        shared: dict[str, Any] = {"root": shards.source.root, "base": shards.base, "format": shards.format.described()}
        shared |= {"side": shards.side, "stated": shards.stated is not None}
        groups = [shards.found[first : first + _SHARDS] for first in range(0, len(shards.found), _SHARDS)]
        parts = [
            (
                {**shared, "shards": each, "counts": _counts_of(shards, each)},
                len(each),
                sum(shard.size for shard in each),
            )
            for each in groups
        ]
        return Planned(parts, len(shards.found), sum(each[-1] for each in parts))

    def work(self, part: JobPart, record: PartRecord, means: Means) -> PenstockError | None:
        """Walk the shards of a part, and keep what was found."""
        shards, known = self._shards([part.piece[0]]), _KnownWalks()
        walks = KeptWalks(means.count, known)
        record.counts = dict.fromkeys(self.counts, 0)
        for number, extents in walked(shards, range(len(shards.found))):
            shard = shards.found[number]
            shards.check_count(shard, len(extents.offsets))
            # Keys of samples are kept only for labels.
            walks.add(shard, extents if "labels" in json.loads(self.how) else extents._replace(keys=()))
            means.count(1, shard.size)
            for name, number_of in (("shards", 1), ("shard_bytes", shard.size), ("samples", len(extents.offsets))):
                record.counts[name] += number_of
        means.records.keep(part.number, zlib.compress(json.dumps(known.known).encode(), 1))
        return None

    def finish(self, plan: JobPlan, records: Records) -> None:
        """Join what the parts have found, and save the catalog."""
        shards, known = self._shards([piece for piece, *_ in plan.parts]), _KnownWalks()
        for url, data in records.kept(len(plan.parts)):
            for key, found in _walks(data, url).items():
                size, etag, offsets, sizes, *rest = found
                # Arrays take a quarter of the memory of lists.
                arrays: Any = (np.array(each, np.int64) for each in (offsets, sizes))
                known.add(key, Walked(size, etag, *arrays, *rest))
        labels = json.loads(self.how).get("labels")
        table = index_shards(shards, labels, KeptWalks(ignore_progress, known))
        shards.check_some(table)
        make_catalog(shards.source.root, shards.base, table).save(self.to, store=self.store_of_catalog)

    def _shards(self, pieces: list[dict[str, Any]]) -> Shards:
        first = pieces[0]
        source, _ = open_source(first["root"], self.store)
        found = [Shard(*each) for piece in pieces for each in piece["shards"]]
        counts = None
        if first["counts"] is not None:
            counts = {name: count for piece in pieces for name, count in piece["counts"].items()}
        stated = _find_stated(source, first["base"], found) if first["stated"] else None
        return Shards(source, first["base"], found, format_of(first["format"]), first["side"], counts, stated)


def _walks(data: bytes, url: str) -> dict[str, list[Any]]:
    """Return what a part has kept, by the key of the shard."""
    try:
        text = zlib.decompress(data)
    except zlib.error as error:
        raise Damaged(f"cannot read the walks of a part: not compressed by zlib ({error})", url=url) from None
    found: dict[str, list[Any]] = read_json(text, {str: WALKED}, "the walks of a part", url)
    return found


def _counts_of(shards: Shards, group: list[Shard]) -> dict[str, int] | None:
    """Return what a wids JSON file says of some shards; None without one."""
    if shards.counts is None:
        return None
    names = (each.key.rpartition("/")[2] for each in group)
    return {name: shards.counts[name] for name in names if name in shards.counts}


def _find_stated(source: Source, base: str, found: list[Shard]) -> dict[str, Stated]:
    """Return what the index.json of MDS shards states of some of them."""
    stated = read_stated(source, base + INDEX) or []
    known: dict[str, Stated] = {}
    for packed in (False, True):
        known |= zip(named_files(base, stated, packed=packed), stated, strict=True)
    if missing := next((each.key for each in found if each.key not in known), None):
        what = f"{INDEX} does not name this shard any more: delete the records, and begin anew"
        raise Changed(what, url=source.url(missing))
    return {each.key: known[each.key] for each in found}
