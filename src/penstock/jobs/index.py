"""``ps.index``: catalogs of prefixes, or of the samples in shards, written to a file.

In this process an interrupted index continues from its journal. With ``job``, the walks of shards are parts: each keeps
what it has found in its shards. The last step joins this as an interrupted index is continued: all shards are known,
and the catalog has the same bytes as one that a single process makes.
"""

from __future__ import annotations

import json
import os
import zlib
from contextlib import contextmanager, suppress
from dataclasses import dataclass, replace
from hashlib import sha256
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar, Literal, overload

import numpy as np

from penstock.data.catalog.catalog import Catalog, make_catalog
from penstock.data.catalog.discovery.journal import WALKED, Journal, ShardJournal, Walked, journal, shard_journal
from penstock.data.catalog.discovery.scan import ScanOptions, absent, listed
from penstock.data.catalog.discovery.shards import (
    KeptWalks,
    Shard,
    Shards,
    find_shards,
    index_shards,
    read_shard_indexes,
    walked,
)
from penstock.data.catalog.discovery.stated import INDEX, named_files, read_stated
from penstock.data.catalog.labels import check_rule
from penstock.data.catalog.saved import Saved, is_catalog, load
from penstock.data.shards.registry import format_of
from penstock.data.video.frames import AudioFormat, VideoFormat
from penstock.data.video.saved import save_index
from penstock.engine.listing.select import Leftovers, globs
from penstock.errors import AlreadyExists, Changed, ConfigError, Damaged, PenstockError, Unusable, require_extras
from penstock.jobs.parts.operation import JobPart, Means, Operation, Planned, ignore_progress
from penstock.jobs.parts.run import JobOptions, complete_job, require_job
from penstock.options import StoreOptions
from penstock.progress import tally, totals
from penstock.schema import COUNT, read_json
from penstock.source import Source, open_source
from penstock.stores.urls import Location, parse
from penstock.values import switch, whole
from penstock.verbs import open as open_object

if TYPE_CHECKING:
    from collections.abc import Generator, Iterable, Sequence

    from numpy.typing import DTypeLike

    from penstock.data.catalog.labels import Rule
    from penstock.data.shards.format import ShardFormat
    from penstock.data.shards.keys import KeyRule, Missing
    from penstock.data.shards.mds import Stated
    from penstock.data.tokens.dataset import TokenDataset
    from penstock.data.tokens.packing import Pack
    from penstock.data.tokens.rows import Longer
    from penstock.jobs.parts.carriers import Ray
    from penstock.jobs.parts.records import JobPlan, PartRecord, Records

    _Kept = tuple[Catalog, Journal | ShardJournal]

_ARGUMENTS = ("fields", "key", "missing", "skip")
_OF_SHARDS = (*_ARGUMENTS, "index")
_HEAD_BYTES = 64  # of a file that may be a catalog
# Shards of a part: as many as are walked at once.
_SHARDS = 32
_FORM = {"url": str, "to": str, "format": str, **{f"{name}?": object for name in (*_OF_SHARDS, "labels")}}
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
    dest: str | os.PathLike[str],
    *,
    format: Literal["packing"],
    length: int,
    pack: Pack = "best-fit",
    longer: Longer = "cut",
    dtype: DTypeLike | None = None,
    store: StoreOptions | str | None = None,
) -> TokenDataset: ...
@overload
def index(  # type: ignore[overload-overlap]  # no other format has these names
    url: str | os.PathLike[str],
    dest: str | os.PathLike[str],
    *,
    format: Literal["mp4", "audio"],
    track: int | None = None,
    progress: bool | None = None,
    store: StoreOptions | str | None = None,
) -> dict[str, int]: ...
@overload
def index(
    url: str | os.PathLike[str],
    dest: str | os.PathLike[str],
    *,
    include: str | Iterable[str] = (),
    exclude: str | Iterable[str] = (),
    labels: Rule | None = None,
    versions: bool = False,
    restart: bool = False,
    format: str | ShardFormat | None = None,
    fields: str | Sequence[str] | None = None,
    key: KeyRule | None = None,
    missing: Missing | None = None,
    skip: str | Sequence[str] | None = None,
    index: str | None = None,
    job: str | os.PathLike[str] | None = None,
    part: None = None,
    on: Ray | None = None,
    processes: int | None = 1,
    progress: bool | None = None,
    store: StoreOptions | str | None = None,
) -> Catalog: ...
@overload
def index(
    url: str | os.PathLike[str],
    dest: str | os.PathLike[str],
    *,
    include: str | Iterable[str] = (),
    exclude: str | Iterable[str] = (),
    labels: Rule | None = None,
    versions: bool = False,
    restart: bool = False,
    format: str | ShardFormat | None = None,
    fields: str | Sequence[str] | None = None,
    key: KeyRule | None = None,
    missing: Missing | None = None,
    skip: str | Sequence[str] | None = None,
    index: str | None = None,
    job: str | os.PathLike[str] | None = None,
    part: str,
    on: Ray | None = None,
    processes: int | None = 1,
    progress: bool | None = None,
    store: StoreOptions | str | None = None,
) -> Catalog | None: ...
def index(  # noqa: PLR0913  each is named in the call
    url: str | os.PathLike[str],
    dest: str | os.PathLike[str],
    *,
    include: str | Iterable[str] = (),
    exclude: str | Iterable[str] = (),
    labels: Rule | None = None,
    versions: bool = False,
    restart: bool = False,
    format: str | ShardFormat | None = None,  # noqa: A002  the field's word
    fields: str | Sequence[str] | None = None,
    key: KeyRule | None = None,
    missing: Missing | None = None,
    skip: str | Sequence[str] | None = None,
    index: str | None = None,
    length: int | None = None,
    pack: Pack = "best-fit",
    longer: Longer = "cut",
    dtype: DTypeLike | None = None,
    track: int | None = None,
    job: str | os.PathLike[str] | None = None,
    part: str | None = None,
    on: Ray | None = None,
    processes: int | None = 1,
    progress: bool | None = None,
    store: StoreOptions | str | None = None,
) -> Catalog | TokenDataset | dict[str, int] | None:
    """List a prefix as ``Catalog.scan`` does, and save the catalog; with ``format``, of the samples inside shards.

    ``format="packing"`` plans rows of packed documents from the indexes of token files, and writes the plan, with which
    ``TokenDataset.from_shards(url, length=…, pack=…, plan=dest)`` opens at once. One process makes it, without a job,
    in some 6 minutes of CPU and 40 GB of memory for 10⁹ documents.

    ``format="mp4"`` reads the tables of frames of MP4 and MOV files, and writes them to an index, with which
    ``VideoDataset.from_shards(url, index=dest)`` opens without a request for each file. One process makes it, without a
    job, and writes it once all files were read. Repeated with the same ``dest``, it reads only files that are new, or
    were replaced since. ``format="audio"`` does the same for sound files and ``AudioDataset``.

    A listing that was killed or interrupted resumes when it is called again with the same arguments, unless
    ``restart`` is set. The entries found so far are in ``<dest>.partial`` or, if ``dest`` is not on this machine, in
    ``$XDG_CACHE_HOME/penstock`` (``~/.cache/penstock``); this file is removed once the catalog is saved. Objects that
    were written or deleted since the listing began may or may not be in the catalog. An index of shards is continued
    in the same way: only shards that are new, or were replaced since, are walked.

    With ``job``, the walks of shards are parts, 32 shards each, which are recorded in a folder as those of
    ``ps.copy_tree``: several machines share them, or a Ray cluster does them. The catalog has the same bytes.

    Args:
        url: The prefix; of shards also a glob, or a pattern such as ``"s3://bucket/train-{0000..0127}.tar"``.
        dest: The file to write, in a store or on this machine.
        include: Globs over keys, as for ``Catalog.scan``; not for shards.
        exclude: The same, of objects to leave out.
        labels: Rule of labels, as for ``Catalog.scan`` and ``Catalog.from_shards``.
        versions: Record version ids, as for ``Catalog.scan`` and ``Catalog.from_shards``; not with ``job``.
        restart: Start over; not with ``job``, whose records are deleted for that.
        format: Format of the shards, as for ``Catalog.from_shards``, or ``"packing"``, ``"mp4"`` or ``"audio"``;
            default: objects are listed.
        fields: Fields of each sample in shards, as for ``Catalog.from_shards``.
        key: Rule by which names of members form samples, as there.
        missing: Samples that lack a field, as there.
        skip: Fields to leave out, as there.
        index: Index files next to the shards, as there.
        length: Tokens of a row of packed documents; with ``format="packing"``.
        pack: How these are packed, as for ``TokenDataset.from_shards``.
        longer: What becomes of documents longer than a row, as there.
        dtype: Type of the tokens, as there.
        track: ID of the video or audio track, as for ``VideoDataset.from_shards``; with ``"mp4"`` and ``"audio"``.
        job: Folder for the records, for shards; the catalog is written once all parts are done.
        part: This process's share of the parts, such as ``"3/16"``; with ``job``.
        on: Ray cluster that does the parts; with ``job``.
        processes: Processes of this machine that share the parts; None: as many as processors; with ``job``.
        progress: As for ``Catalog.scan``; for shards and videos a bar of these and their bytes.
        store: Options of the store that holds ``url`` and ``dest``; not used for a local ``dest``.

    Returns:
        The catalog; None if a ``part`` of a job is done, and others have parts left. With ``format="packing"``, the
        dataset of the rows. With ``"mp4"`` and ``"audio"``, the numbers of ``files`` and ``frames``, and the
        bytes of these (``frame_bytes``).

    Raises:
        NotFound: No object or shard was found; nothing was written.
        Damaged: A shard contradicts its format; the shards before it are kept for the next call.
        AlreadyExists: ``dest`` exists, and is not a catalog; or not a plan or an index of media files, if one is
            written.
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
        >>> ps.index("s3://bucket/videos/", "s3://bucket/videos.index", format="mp4")["files"]
        2
    """
    how = _IndexOptions(include, exclude, labels, versions, restart, format, fields, key, missing, skip, index)
    packing = length, pack, longer, dtype
    if format != "packing" and packing != (None, "best-fit", "cut", None):
        raise Unusable("length=, pack=, longer= and dtype= are for packed rows: pass format='packing' with them")
    if format not in ("mp4", "audio") and track is not None:
        raise Unusable("track= is of videos and sound: pass format='mp4' or format='audio' with it")
    if format in ("packing", "mp4", "audio"):
        others = {**how.given((*_OF_SHARDS, "labels")), "versions": versions, "restart": restart}
        others |= {"job": job, "part": part, "on": on, "processes": processes != 1}
        if given := [name for name, value in others.items() if value]:
            raise Unusable(
                f"{given[0]}= cannot be combined with format={format!r}: one process reads and writes it all"
            )
        if format == "packing":
            return _index_packing(url, dest, packing, store)
        number = None if track is None else whole(track, "track", 1)
        form = AudioFormat(number) if format == "audio" else VideoFormat(number)
        videos = save_index(url, dest, form, store, progress=progress)
        return {"files": len(videos), "frames": int(videos.counts.sum()), "frame_bytes": videos.frame_bytes}
    if job is None:
        require_job(part, on, processes)
        return _index_here(url, dest, how, progress=progress, store=store)
    operation = _make_operation(url, dest, how, store)
    found = complete_job(operation, job, JobOptions(part, on, progress, processes), operation.catalog)
    return None if found is None else make_catalog(found.root, found.base, found.table)


def resume(records: Records, plan: JobPlan, **options: Any) -> Catalog | None:  # noqa: ANN401  those of index
    named = plan.chosen(_FORM, records.url)
    found: Catalog | None = index(named.pop("url"), named.pop("to"), **named, job=records.url, **options)
    return found


@dataclass(frozen=True, slots=True)
class _IndexOptions:
    """Options of ``ps.index``: see there."""

    include: str | Iterable[str]
    exclude: str | Iterable[str]
    labels: Rule | None
    versions: bool
    restart: bool
    format: str | ShardFormat | None
    fields: str | Sequence[str] | None
    key: KeyRule | None
    missing: Missing | None
    skip: str | Sequence[str] | None
    index: str | None

    def __post_init__(self) -> None:
        check_rule(self.labels)
        switch(self.restart, "restart")
        switch(self.versions, "versions")
        if self.format is not None and (self.include or self.exclude):
            raise Unusable("include= and exclude= are for objects: pass a glob as the URL of shards")

    def given(self, names: Iterable[str]) -> dict[str, Any]:
        return {name: value for name in names if (value := getattr(self, name)) is not None}


def _index_here(
    url: str | os.PathLike[str],
    to: str | os.PathLike[str],
    how: _IndexOptions,
    *,
    progress: bool | None,
    store: StoreOptions | str | None,
) -> Catalog:
    place = _check_target(to, store)
    make = _objects if how.format is None else _samples
    with make(url, _partial(place), how, progress, store) as (catalog, kept):
        catalog.save(to, store=None if place.local else store)
        kept.remove()
    return catalog


def _index_packing(
    url: str | os.PathLike[str],
    to: str | os.PathLike[str],
    packing: tuple[int | None, Pack, Longer, DTypeLike | None],
    store: StoreOptions | str | None,
) -> TokenDataset:
    """Plan rows of packed documents, save the plan, and return their dataset."""
    with require_extras("packed rows need torch", torch="torch"):
        # Imported late: to list objects needs no torch.
        from penstock.data.tokens.dataset import TokenDataset, check_packing
        from penstock.data.tokens.opening import Manner
        from penstock.data.tokens.plans import open_rows, save_plan

    length, pack, longer, dtype = packing
    shape = check_packing(length, pack, longer, {})
    rows, files = open_rows(url, Manner.checked(None, dtype, "documents"), shape, store, None)
    save_plan(files, rows, to, store)
    return TokenDataset(rows)


def _check_target(to: str | os.PathLike[str], store: StoreOptions | str | None) -> Location:
    """Return the place of a new catalog; a HEAD and a GET show whether another file would be lost."""
    place = parse(to)
    if not place.key or place.key.endswith("/"):
        raise Unusable("the catalog must be the URL of a file, got that of a folder", url=place.url)
    head = b""
    # Nothing is there, or reading is not allowed: the write will show.
    with suppress(PenstockError), open_object(to, "rb", store=None if place.local else store) as file:
        head = file.read(_HEAD_BYTES)
    if not is_catalog(head):
        raise AlreadyExists(
            "cannot write the catalog: the existing file is not a catalog; choose another name", url=place.url
        )
    return place


@contextmanager
def _objects(
    url: str | os.PathLike[str],
    partial: Path,
    how: _IndexOptions,
    progress: bool | None,  # noqa: FBT001  as given
    store: StoreOptions | str | None,
) -> Generator[_Kept]:
    """Yield the catalog of a prefix, and the journal of its listing."""
    if given := next(iter(how.given(_OF_SHARDS)), None):
        raise Unusable(f"{given}= is for samples inside shards: pass format=, such as format='tar'")
    include, exclude = globs(how.include), globs(how.exclude)
    source, prefix = open_source(url, store)
    about = {"url": source.url(prefix), "store": _identity(source), "include": [*include], "exclude": [*exclude]}
    # A listing without ids is not continued by one that records them.
    about |= {"versions": ["latest"]} if how.versions else {}
    with journal(partial, about, restart=how.restart) as kept:
        with tally(f"listing {source.url(prefix)}", shown=progress) as count:
            left = Leftovers(prefix, include)
            what = ScanOptions(include, exclude, progress=totals(count), known=kept, leftovers=left)
            found = listed(source, prefix, replace(what, versions=how.versions))
        catalog = make_catalog(source.root, *found)
        if not len(catalog):
            kept.remove()
            instead = str(left) if len(left) else ""
            raise absent(source, prefix, os.fspath(url), chosen=bool(include or exclude), instead=instead)
        yield (catalog if how.labels is None else catalog.with_labels(how.labels)), kept


@contextmanager
def _samples(
    url: str | os.PathLike[str],
    partial: Path,
    how: _IndexOptions,
    progress: bool | None,  # noqa: FBT001  as given
    store: StoreOptions | str | None,
) -> Generator[_Kept]:
    """Yield the catalog of the samples in shards, and the journal of its walks."""
    shards = find_shards(url, how.format, {name: getattr(how, name) for name in _ARGUMENTS}, store)
    shards = shards.pinned(versions=how.versions)
    shards = shards.sided(how.index, store, labels=how.labels is not None)
    # Keys of samples are kept only for labels.
    about = {"store": _identity(shards.source), "shards": shards.format.described(), "keys": how.labels is not None}
    about |= {"side": shards.side}
    with shard_journal(partial, about, restart=how.restart) as kept:
        table = read_shard_indexes(shards, how.labels, progress=progress, journal=kept)
        yield make_catalog(shards.source.root, shards.base, table), kept


def _identity(source: Source) -> str:
    # The same URL names different buckets at different endpoints: an index must not resume at another endpoint.
    return sha256(repr(source.address("")).encode("utf-8", "surrogatepass")).hexdigest()


def _partial(place: Location) -> Path:
    if place.local:
        return Path(f"/{place.key}.partial")
    cache = os.environ.get("XDG_CACHE_HOME", "")
    try:
        home = Path(cache) if Path(cache).is_absolute() else Path.home() / ".cache"
    except RuntimeError:
        # For example in a container whose user has no entry in /etc/passwd.
        raise ConfigError("no home directory found for the partial listing: set XDG_CACHE_HOME") from None
    return home / "penstock" / f"index-{sha256(json.dumps(place.url).encode()).hexdigest()[:32]}.partial"


def _make_operation(
    url: str | os.PathLike[str], to: str | os.PathLike[str], how: _IndexOptions, store: StoreOptions | str | None
) -> _IndexOperation:
    if how.format is None:
        raise Unusable("job= is for the samples inside shards: pass format=; listing objects needs no job")
    if how.restart:
        raise Unusable("restart= cannot be combined with job=: delete the records (penstock jobs rm), or choose others")
    if how.versions:
        raise Unusable("versions= cannot be combined with job=: leave one out")
    try:
        text = json.dumps(how.given(("format", *_OF_SHARDS, "labels")))
    except TypeError as error:
        raise Unusable(f"the records of a job must hold only texts and lists of texts: {error}") from None
    stores = StoreOptions() if store is None else store
    return _IndexOperation(parse(url).url, _check_target(to, store).url, text, stores)


class _KnownWalks(ShardJournal):
    """Walks in memory, by the key of the shard."""

    def __init__(self) -> None:
        self.known = {}

    def add(self, key: str, walked: Walked) -> None:
        self.known[key] = walked


@dataclass(frozen=True, slots=True)
class _IndexOperation(Operation):
    """Walks of shards."""

    name: ClassVar[str] = "index"
    verb: ClassVar[str] = "indexing shards"
    counts: ClassVar[tuple[str, ...]] = ("shards", "shard_bytes", "samples", "failed")
    part: ClassVar[object] = [_SHARED, COUNT, COUNT]
    places: ClassVar[tuple[str, ...]] = ("url", "to")

    url: str
    to: str
    how: str
    store: StoreOptions | str

    def details(self) -> dict[str, Any]:
        found: dict[str, Any] = json.loads(self.how)
        return found

    @property
    def store_of_catalog(self) -> StoreOptions | str | None:
        return None if parse(self.to).local else self.store

    def catalog(self) -> Saved:
        with open_object(self.to, "rb", store=self.store_of_catalog) as file:
            return load(file)

    def planned(self) -> Planned:
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
    try:
        text = zlib.decompress(data)
    except zlib.error as error:
        raise Damaged(f"cannot read the walks of a part: not compressed by zlib ({error})", url=url) from None
    found: dict[str, list[Any]] = read_json(text, {str: WALKED}, "the walks of a part", url)
    return found


def _counts_of(shards: Shards, group: list[Shard]) -> dict[str, int] | None:
    """Return the entries of some shards in a wids JSON file; None without one."""
    if shards.counts is None:
        return None
    names = (each.key.rpartition("/")[2] for each in group)
    return {name: shards.counts[name] for name in names if name in shards.counts}


def _find_stated(source: Source, base: str, found: list[Shard]) -> dict[str, Stated]:
    """Return the entries of some shards in the index.json of MDS."""
    stated = read_stated(source, base + INDEX) or []
    known: dict[str, Stated] = {}
    for packed in (False, True):
        known |= zip(named_files(base, stated, packed=packed), stated, strict=True)
    if missing := next((each.key for each in found if each.key not in known), None):
        what = f"{INDEX} no longer lists this shard: delete the records, and start over"
        raise Changed(what, url=source.url(missing))
    return {each.key: known[each.key] for each in found}
