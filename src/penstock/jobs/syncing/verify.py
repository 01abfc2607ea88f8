"""``ps.verify``: a tree is compared with another tree or a catalog, or is read as a whole.

- Without anything to compare with, each object is read, and its bytes and name go into a digest of the tree. Digests
  are added up, so that the order and the parts do not matter.
- Against a tree: a dry run of ``ps.sync`` with ``checksum``; what it would copy is missing, or has other bytes.
- Against a catalog: one HEAD for each object.
"""

from __future__ import annotations

import os
from contextlib import closing
from dataclasses import dataclass
from functools import lru_cache, partial
from hashlib import sha256
from threading import Event
from typing import TYPE_CHECKING, Any, ClassVar

from penstock.data.catalog.catalog import Catalog
from penstock.data.catalog.saved import version_of
from penstock.engine.listing.select import globs, selector
from penstock.errors import Changed, NotFound, PenstockError, Unusable, worse_of
from penstock.jobs import tasks
from penstock.jobs.copying.copy import cost_bytes, silent_bytes
from penstock.jobs.parts.operation import JobPart, Means, Operation, Planned, fail
from penstock.jobs.parts.records import JobPlan, PartRecord, Records
from penstock.jobs.parts.run import Job, JobOptions, Sums, check_apart, require_job
from penstock.jobs.syncing.job import MOST_PARTS, PART_OBJECTS, OfRanges, in_parts, list_names
from penstock.jobs.syncing.mirror import SyncOptions
from penstock.jobs.syncing.sync import SyncRun
from penstock.jobs.tasks import run_jobs, suitable
from penstock.jobs.trees.selection import encode_key, in_range, local, stat_unsized, tree
from penstock.options import StoreOptions
from penstock.progress import bar
from penstock.schema import COUNT
from penstock.values import ObjectMeta, span_in, whole
from penstock.verbs import open as open_object

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator

    from penstock.jobs.parts.carriers import Ray
    from penstock.jobs.parts.records import PlanJournal
    from penstock.jobs.tasks import Task
    from penstock.source import Source

_CATALOG = ".catalog"
_PIECE_BYTES = 8 << 20  # of a large object
_COUNTS = ("verified", "verified_bytes", "failed")
_FORM = {"url": str, "against?": str, "include?": [str], "exclude?": [str]}


@dataclass(frozen=True, slots=True)
class Verified:
    """Result of ``ps.verify``.

    Attributes:
        objects: Number of objects that are as they should be.
        bytes: Their bytes.
        digest: SHA-256 digests of all names and bytes, added up, as 64 hexadecimal digits: equal for trees with the
            same names and bytes. Empty if the tree was compared with something.
        parts: Number of parts.
        seconds: Seconds that the parts took, added up.
    """

    objects: int
    bytes: int
    digest: str
    parts: int
    seconds: float


def verify(  # noqa: PLR0913  each is named in the call
    url: str | os.PathLike[str],
    against: str | os.PathLike[str] | None = None,
    *,
    job: str | os.PathLike[str] | None = None,
    part: str | None = None,
    on: Ray | None = None,
    include: str | Iterable[str] = (),
    exclude: str | Iterable[str] = (),
    part_objects: int = PART_OBJECTS,
    progress: bool | None = None,
    processes: int | None = 1,
    store: StoreOptions | str | None = None,
) -> Verified:
    """Compare all objects below ``url`` with another tree or a catalog; or read all of them, for their digest.

    Every object of ``against`` has to be there: with the same bytes for a tree (proven by ETags, or by reading both, as
    ``ps.sync`` does with ``checksum``), with the size and the version (ETag) that a catalog has. Further objects below
    ``url`` are not looked at. Nothing is written but the records.

    Without ``against``, every object is read, and compared with the checksum that its store keeps, if it does.

    With ``job``, parts are recorded as by ``ps.copy_tree``: the same call continues, and checks again only what was
    not as it should be.

    Requests: one for each 1,000 objects; those of reading where bytes are compared; for a catalog one for each object.

    Args:
        url: Prefix or directory.
        against: Another prefix or directory, or a saved catalog, whose name ends in ``.catalog``.
        job: Folder for the records, outside the trees; default: none are written.
        part: This process's share of the parts, such as ``"3/16"``; with ``job``.
        on: Ray cluster that does the parts; with ``job``.
        include: Globs of relative keys of which one has to match; default: all. Not for catalogs.
        exclude: Globs of relative keys that are left out. Not for catalogs.
        part_objects: Most objects of a part.
        progress: Show a bar on standard error; default: if that is a terminal and rich is installed.
        processes: Processes that read small objects, this one included; None: as many as processors, at most 4.
        store: Options of all places, or the name of a profile.

    Returns:
        How many objects were verified, and the digest.

    Raises:
        NotFound: An object is missing; or there are none.
        Changed: An object has other bytes, another size or another version.
        Damaged: The bytes of an object do not match the store's checksum.
        Unusable: ``part`` or ``on`` without ``job``; ``include`` or ``exclude`` with a catalog.
        PenstockError: The worst failure, after all other objects.

    Example:
        >>> ps.verify("s3://bucket/train/3/").objects
        60
        >>> done = ps.copy_tree("s3://bucket/train/", "s3://bucket/copy/", job="s3://bucket/jobs/copy/")
        >>> ps.verify("s3://bucket/copy/", against="s3://bucket/train/").objects
        600
    """
    given = StoreOptions() if store is None else store
    chosen, most = (globs(include), globs(exclude)), whole(part_objects, "part_objects", 1)
    source, prefix = tree(url, given)
    here = source.url(prefix)
    operation: _Verifying
    trees = [here]
    if against is None:
        operation = _RangeComparison(here, *chosen, given, most)
    elif os.fspath(against).endswith(_CATALOG):
        if any(chosen):
            raise Unusable("include= and exclude= filter trees, not catalogs: save a filtered catalog (Catalog.filter)")
        operation = _RowComparison(here, os.fspath(against), _version(os.fspath(against), given), given, most)
    else:
        other, base = tree(against, given)
        trees.append(other.url(base))
        operation = _Comparing(here, trees[1], SyncOptions(False, True, *chosen, True), given, most)  # noqa: FBT003
    if job is None:
        require_job(part, on)
        return _at_once(operation, progress=progress, processes=processes)
    check_apart(Records(job, given), given, *trees)
    return _make_verified(Job(operation, job, JobOptions(part, on, progress, processes)).work(), operation)


def resume(records: Records, plan: JobPlan, **options: Any) -> Verified:  # noqa: ANN401  those of verify
    return verify(**plan.chosen(_FORM, records.url), job=records.url, **options)


def _at_once(operation: _Verifying, *, progress: bool | None, processes: int | None) -> Verified:
    record = PartRecord(0)
    with bar(operation.verb, None, None, shown=progress) as count:
        found = JobPart(0, operation.everything, again=False)
        worst = operation.work(found, record, Means(None, processes, count))  # type: ignore[arg-type]  # no data is kept
    if worst is not None:
        if record.failed > 1:
            worst.message += f"; {record.failed:,} objects failed, {record.counts['verified']:,} were verified"
        raise worst
    sums = Sums(parts=1)
    sums.add(record)
    return _make_verified(sums, operation)


def _make_verified(sums: Sums, operation: Operation) -> Verified:
    digest = f"{sums.digests % (1 << 256):064x}" if isinstance(operation, _RangeComparison) else ""
    counts = sums.counts
    if not counts["verified"] and not sums.parts_failed and sums.parts == 1:
        raise NotFound("nothing to verify: no object found", url=str(operation.arguments["url"]))
    return Verified(counts["verified"], counts["verified_bytes"], digest, sums.parts, sums.seconds)


def _each(
    metas: Iterator[ObjectMeta],
    work: Callable[[ObjectMeta], Task[int]],
    record: PartRecord,
    means: Means,
    processes: int,
) -> tuple[int, PenstockError | None]:
    """Verify objects in parallel; return the sum of the results, and the worst failure."""
    counts, total, worst = dict.fromkeys(_COUNTS, 0), 0, None
    with closing(run_jobs(metas, work, cost_bytes, Event(), processes=processes)) as results:
        for meta, result in results:
            means.count(1, meta.size)
            if isinstance(result, PenstockError):
                worst = worse_of(worst, result)
                counts["failed"] += 1
                fail(record, result)
            else:
                total += result
                counts["verified"] += 1
                counts["verified_bytes"] += meta.size
    record.counts = counts
    return total, worst


class _Verifying(Operation):
    """Operation that compares, and changes nothing."""

    __slots__ = ()

    name: ClassVar[str] = "verify"
    verb: ClassVar[str] = "verifying"
    counts: ClassVar[tuple[str, ...]] = _COUNTS
    places: ClassVar[tuple[str, ...]] = ("url", "against")
    everything: ClassVar[tuple[Any, None]] = ("", None)
    compares: ClassVar[bool] = True
    shares: ClassVar[bool] = True


@dataclass(frozen=True, slots=True)
class _RangeComparison(_Verifying, OfRanges):
    """Digests of ranges of keys."""

    places: ClassVar[tuple[str, ...]] = ("url",)

    url: str
    include: tuple[str, ...]
    exclude: tuple[str, ...]
    store: StoreOptions | str
    part_objects: int

    def details(self) -> dict[str, Any]:
        return {"include": [*self.include], "exclude": [*self.exclude]}

    def make_plan(self, journal: PlanJournal | None) -> Planned:
        _, prefix = tree(self.url, self.store)

        def list_tree(after: str) -> Iterator[tuple[str, int]]:
            return ((each.key[len(prefix) :], each.size) for each in self._listed(after, None))

        found = in_parts(list_tree, self.part_objects, journal)
        if not found.parts:
            raise NotFound("nothing to verify: no object found", url=self.url)
        return found

    def work(self, part: JobPart, record: PartRecord, means: Means) -> PenstockError | None:
        source, prefix = tree(self.url, self.store)

        async def read(meta: ObjectMeta) -> int:
            if silent_bytes(meta) or not meta.size:
                # As a whole: only then is a store's checksum compared.
                digest = sha256(await tasks.read(source, span_in(meta)))
            else:
                digest = await tasks.run_blocking(_digest_object, source, meta)
            name = encode_key(meta.key[len(prefix) :])
            return int.from_bytes(sha256(b"%d %s %s" % (meta.size, digest.digest(), name)).digest(), "big")

        processes = suitable(means.processes, source)
        total, worst = _each(self._listed(*part.piece), read, record, means, processes)
        record.notes["digest"] = f"{total % (1 << 256):064x}"
        return worst

    def _listed(self, after: str, until: str | None) -> Iterator[ObjectMeta]:
        source, prefix = tree(self.url, self.store)
        chosen = selector(self.include, self.exclude)
        for entries in in_range(source, prefix, after, until):
            kept = (each for each in stat_unsized(source, entries) if chosen(each.key[len(prefix) :], each.size))
            # A marker of a directory is no object of the tree.
            yield from (each for each in kept if each.size or not each.key.endswith("/"))


def _digest_object(source: Source, meta: ObjectMeta) -> Any:  # noqa: ANN401  hashlib names no type of its digests
    """Read a large object from its beginning to its end, which is compared with the store's checksum."""
    digest = sha256()
    summed = source.head(meta.key, sums=True)
    if (summed.size, summed.etag) != (meta.size, meta.etag):
        raise Changed("was replaced after it was listed", url=source.url(meta.key))
    with source.open_read(meta.key, summed) as reader:
        while piece := reader.read(_PIECE_BYTES):
            digest.update(piece)
    return digest


@dataclass(frozen=True, slots=True)
class _Comparing(_Verifying, OfRanges):
    """Comparisons of ranges of two trees."""

    url: str
    against: str
    options: SyncOptions
    store: StoreOptions | str
    part_objects: int

    def details(self) -> dict[str, Any]:
        return {"include": [*self.options.include], "exclude": [*self.options.exclude]}

    def make_plan(self, journal: PlanJournal | None) -> Planned:
        mirror = SyncRun(self.against, self.url, self.options, self.store).mirror
        return in_parts(partial(list_names, mirror, self.options), self.part_objects, journal)

    def work(self, part: JobPart, record: PartRecord, means: Means) -> PenstockError | None:
        run = SyncRun(self.against, self.url, self.options, self.store, part.piece)
        counts, worst = dict.fromkeys(_COUNTS, 0), None
        with closing(run.outcomes(processes=means.processes, count=means.count)) as outcomes:
            for outcome in outcomes:
                if outcome.status == "skipped":
                    continue
                counts["failed"] += 1
                error = outcome.error or self._difference(run, outcome.source, outcome.dest)
                worst = worse_of(worst, error)
                fail(record, error, outcome.dest)
        counts["verified"], counts["verified_bytes"] = run.unchanged, run.unchanged_bytes
        record.counts = counts
        return worst

    def _difference(self, run: SyncRun, source: str, dest: str) -> PenstockError:
        target = run.mirror.target
        if target.stat_existing([dest.removeprefix(target.root)])[0] is None:
            return NotFound(f"missing: {source} has it", url=dest)
        return Changed(f"the bytes are not those of {source}", url=dest)


@dataclass(frozen=True, slots=True)
class _RowComparison(_Verifying):
    """Comparisons of objects with rows of a catalog."""

    everything: ClassVar[tuple[int, None]] = (0, None)
    part: ClassVar[object] = [COUNT, COUNT, COUNT, COUNT]

    url: str
    against: str
    version: str
    store: StoreOptions | str
    part_objects: int

    def details(self) -> dict[str, Any]:
        return {"version": self.version}

    def planned(self) -> Planned:
        catalog = _open_catalog(self.against, self.version, self.url, self.store)
        parts = []
        step = max(self.part_objects, -(-len(catalog) // MOST_PARTS))
        for first in range(0, len(catalog), step):
            stop = min(first + step, len(catalog))
            parts.append((first, stop, stop - first, int(catalog.sizes[first:stop].clip(0).sum())))
        return Planned(parts, len(catalog), sum(each[-1] for each in parts))

    def work(self, part: JobPart, record: PartRecord, means: Means) -> PenstockError | None:
        catalog = _open_catalog(self.against, self.version, self.url, self.store)
        first, stop = part.piece[:2]
        source, _ = tree(self.url, self.store)
        plain = catalog.format is None
        wanted: dict[str, ObjectMeta] = {}
        for span in catalog.spans(range(first, len(catalog) if stop is None else stop)):
            size = span.stop if plain and span.stop is not None else -1
            wanted[span.key] = ObjectMeta(span.key, size, span.etag)

        async def described(meta: ObjectMeta) -> int:
            found = await tasks.head(source, meta.key, meta.etag)
            if meta.size >= 0 and found.size != meta.size:
                raise Changed(f"has {found.size:,} bytes, but {meta.size:,} in the catalog", url=source.url(meta.key))
            if meta.etag and found.etag != meta.etag:
                raise Changed("has another version than the catalog", url=source.url(meta.key))
            return 0

        _, failure = _each(iter(wanted.values()), described, record, means, suitable(means.processes, source))
        return failure


def _version(against: str, store: StoreOptions | str) -> str:
    with open_object(against, "rb", store=_store_of(against, store)) as file:
        return version_of(file, against)


def _store_of(against: str, store: StoreOptions | str) -> StoreOptions | str | None:
    return None if local(tree(against, store)[0]) else store


@lru_cache(maxsize=1)
def _open_catalog(against: str, version: str, url: str, store: StoreOptions | str) -> Catalog:
    catalog = Catalog.open(against, root=url, store=_store_of(against, store))
    # After the catalog was read, so that it has no later version.
    if _version(against, store) != version:
        raise Changed("the catalog was replaced while it was compared: repeat the call", url=against)
    if catalog.fields:
        raise Unusable("the samples of the catalog are in several places: verify each place separately", url=against)
    return catalog
