"""``copy`` of zarr arrays: in this process as ``rechunk`` does it; with ``job``, ranges of regions are parts.

Regions are computed from the shapes on both sides and the memory, so all processes find the same ones; a digest in the
plan proves it. The last step writes the documents.
"""

from __future__ import annotations

import json
import os
from dataclasses import dataclass
from functools import lru_cache
from hashlib import sha256
from threading import Event
from typing import TYPE_CHECKING, Any, ClassVar, Literal

from penstock.errors import StateMismatch, Unusable, public_url
from penstock.interop.zarr.rechunk import MEMORY_BYTES, Copied, CopyOptions, CopyRun
from penstock.jobs.parts.operation import Operation, Planned
from penstock.jobs.parts.records import Records
from penstock.jobs.parts.run import Job, JobOptions, check_apart, require_job
from penstock.jobs.syncing.job import cut_keys, join_neighbours
from penstock.options import StoreOptions
from penstock.schema import COUNT
from penstock.stores.urls import parse

if TYPE_CHECKING:
    from penstock.errors import PenstockError
    from penstock.interop.zarr.documents import Node
    from penstock.interop.zarr.rechunk import Sizes
    from penstock.jobs.parts.carriers import Ray
    from penstock.jobs.parts.operation import JobPart, Means
    from penstock.jobs.parts.records import JobPlan, PartRecord

_PART_REGIONS, _PART_BYTES = 1_000, 4 << 30
_KEPT = ("chunks", "shards", "codec", "zarr_format", "memory_bytes")
_FORM = {"source": str, "dest": str, **{f"{name}?": object for name in _KEPT}}


def copy(
    source: str | os.PathLike[str] | Node,
    dest: str | os.PathLike[str],
    *,
    chunks: Sizes | None = None,
    shards: Sizes | Literal["none"] | None = None,
    codec: str | None = None,
    zarr_format: Literal[2, 3] | None = None,
    memory_bytes: int = MEMORY_BYTES,
    dry_run: bool = False,
    resume: bool = False,
    overwrite: bool = False,
    job: str | os.PathLike[str] | None = None,
    part: str | None = None,
    on: Ray | None = None,
    processes: int | None = 1,
    progress: bool | None = None,
    store: StoreOptions | str | None = None,
) -> Copied:
    """Copy a zarr array or group, with attributes, names of dimensions and fill values, into other chunks and shards.

    zarr decodes and encodes. Each array is divided into regions of whole objects of the destination. Regions are read,
    written and read back in parallel; the values read back must be equal, bit for bit. Regions are large enough to read
    every source object once, as far as ``memory_bytes`` allows. That limit is for data: the C library's allocator may
    keep some tens of MiB more.

    The metadata is written last, so no reader sees a partial copy as an array. Until then the destination has a folder
    ``.zarr-copy`` with the numbers of the finished regions: ``resume=True`` continues after a kill.

    With ``job``, up to 1,000 regions, or 4 GiB decoded, are a part, recorded in that folder as the parts of
    ``ps.copy_tree`` are: several machines share them, or a Ray cluster does them, and the same call continues. The
    metadata is written once all parts are done. ``memory_bytes`` is for each process, and belongs to the job.

    Requests: one for each read of a source object (``ArrayCopy.reads``), two per object of the destination, and one per
    second for the journal, or three for each part. The versions of the source's objects are listed at the beginning and
    at the end, except in stores that list nothing, and those of zarr's that Penstock does not know.

    Args:
        source: A URL; without ``job`` also an open zarr array or group, of any store.
        dest: A URL below which nothing exists, of a store that supports listing, writes and deletion.
        chunks: Sizes of a chunk: a sequence for every array of that many dimensions, or a mapping by dimension
            (``{"time": 1}``) or by array (``{"tas": (1, 180, 360)}``); -1 is the whole dimension. Default: unchanged.
        shards: Sizes of a shard, in the same forms; "none" for no shards. Default: unchanged.
        codec: ``zstd``, ``zstd:5``, ``gzip:6``, ``blosc-lz4``, ``blosc-zstd:3``, ``none``; default: unchanged.
        zarr_format: 3 converts format 2 to format 3. Default: unchanged.
        memory_bytes: The most memory for data, of all parallel regions together. Default: 1 GiB.
        dry_run: Only plan the copy.
        resume: Continue an unfinished copy, if there is one.
        overwrite: First delete everything at the destination.
        job: Folder for the records, outside both; default: none are written but the journal.
        part: This process's share of the parts, such as ``"3/16"``; with ``job``.
        on: Ray cluster that does the parts; with ``job``.
        processes: Processes of this machine that share the parts; None: as many as processors; with ``job``.
        progress: Show a bar on standard error; by default if that is a terminal and rich is installed.
        store: Options of both sides, or the name of a profile.

    Returns:
        The plan for each array, and the numbers of regions and bytes that were copied. With ``job``, the bytes are
        those of all recorded parts of this process's share, and ``complete`` says whether all parts are done.

    Raises:
        NotFound: No array or group exists at the source.
        AlreadyExists: The destination is not empty, and neither ``resume`` nor ``overwrite`` was given.
        StateMismatch: With ``resume``: the unfinished copy at the destination is a different one, or the source was
            written since. With ``job``: the source is another one than that of the plan, or was written since.
        DatasetChanged: The source was written while it was copied.
        Unusable: Invalid chunks, shards or codec; source and destination contain one another; too little memory; or
            ``job`` is given for an open array, or with ``dry_run``, ``resume`` or ``overwrite``.
        ChecksumMismatch: The values read back differ.
        PenstockError: The first failure; finished regions stay, and ``resume`` continues.

    Example:
        >>> import zarr
        >>> from penstock.interop.zarr import Store, copy
        >>> zarr.save_array(Store("s3://bucket/tas.zarr"), np.zeros((100, 8), "f4"))
        >>> copy("s3://bucket/tas.zarr", "s3://bucket/rows.zarr", chunks=(10, 8)).complete
        True
    """
    if job is None:
        require_job(part, on, processes)
        given = os.fspath(source) if isinstance(source, str | os.PathLike) else source
        options = CopyOptions(chunks, shards, codec, zarr_format, memory_bytes, dry_run, resume, overwrite)
        run = CopyRun(given, os.fspath(dest), options, store)
        run.execute(progress=progress)
        return run.result
    if not isinstance(source, str | os.PathLike):
        raise Unusable("source must be a URL where job= is given: other processes cannot open this array")
    for name, asked, instead in (
        ("dry_run", dry_run, "leave out job="),
        ("resume", resume, "the same call continues a job"),
        ("overwrite", overwrite, "delete the destination first (penstock rm -r)"),
    ):
        if asked:
            raise Unusable(f"{name}= is for a copy without job=: {instead}")
    limit = None if memory_bytes == MEMORY_BYTES else memory_bytes
    kept = dict(zip(_KEPT, (chunks, shards, codec, zarr_format, limit), strict=True))
    try:
        text = json.dumps({name: value for name, value in kept.items() if value is not None})
    except TypeError as error:
        raise Unusable(f"the records of a job must hold only numbers, texts, lists and mappings: {error}") from None
    stores = StoreOptions() if store is None else store
    operation = _ZarrCopy(parse(source).url.rstrip("/"), parse(dest).url.rstrip("/"), text, stores)
    return _in_parts(operation, job, JobOptions(part, on, progress, processes))


def resume(records: Records, plan: JobPlan, **options: Any) -> Copied:
    """Continue a job of this operation with the arguments that its plan has; see ``copy`` for ``options``."""
    return copy(**plan.chosen(_FORM, records.url), job=records.url, **options)


def _in_parts(operation: _ZarrCopy, job: str | os.PathLike[str], how: JobOptions) -> Copied:
    check_apart(Records(job, operation.store), operation.store, f"{operation.source}/", f"{operation.dest}/")
    _run.cache_clear()
    work = Job(operation, job, how)
    # Also of a copy that is finished.
    run = _run(operation, work.plan.parts[0][0]) if work.plan.parts else operation.run()
    sums = work.work()
    planned = run.result
    return Copied(
        planned.arrays, planned.regions, size_bytes=sums.counts["copied_bytes"], complete=work.records.finished()
    )


@dataclass(frozen=True, slots=True)
class _ZarrCopy(Operation):
    """Copies of ranges of regions."""

    name: ClassVar[str] = "zarr_copy"
    verb: ClassVar[str] = "copying"
    counts: ClassVar[tuple[str, ...]] = ("regions", "copied_bytes", "failed")
    part: ClassVar[object] = [str, COUNT, COUNT, COUNT, COUNT]

    source: str
    dest: str
    how: str
    store: StoreOptions | str

    @property
    def urls(self) -> tuple[str, ...]:
        return self.source, self.dest

    @property
    def arguments(self) -> dict[str, Any]:
        return {"source": public_url(self.source), "dest": public_url(self.dest), **json.loads(self.how)}

    def run(self) -> CopyRun:
        return CopyRun(self.source, self.dest, CopyOptions(**json.loads(self.how)), self.store)

    def planned(self) -> Planned:
        run = self.run()
        run.journal.check_empty()
        digest = _digest_run(run)
        sizes = ((str(each.number), each.size_bytes) for each in run.regions())
        parts = [
            (digest, int(last) + 1 - number, int(last) + 1, number, size_bytes)
            for last, number, size_bytes in join_neighbours([*cut_keys(sizes, _PART_REGIONS, _PART_BYTES)])
        ]
        return Planned(parts, run.result.regions, sum(each[-1] for each in parts))

    def work(self, part: JobPart, record: PartRecord, means: Means) -> PenstockError | None:
        digest, start, stop = part.piece[:3]
        run = _run(self, digest)
        record.counts = dict.fromkeys(self.counts, 0)
        for region in run.copied(run.regions(start, stop), Event()):
            means.count(1, region.size_bytes)
            record.counts["regions"] += 1
            record.counts["copied_bytes"] += region.size_bytes
        return None

    def finish(self, plan: JobPlan, records: Records) -> None:
        # Planned again: the source may have been written since the parts of this process began.
        _run.cache_clear()
        run = _run(self, plan.parts[0][0]) if plan.parts else self.run()
        run.publish()


@lru_cache(maxsize=1)
def _run(operation: _ZarrCopy, digest: str) -> CopyRun:
    run = operation.run()
    if _digest_run(run) != digest:
        raise StateMismatch(
            "cannot copy by this plan: the source was written since, or this is another version of Penstock; delete "
            "the records (penstock jobs rm) and the destination, and start over",
            url=run.journal.url,
        )
    return run


def _digest_run(run: CopyRun) -> str:
    boxes = [(each.path, *each.regions.box) for each in run.result.arrays]
    return sha256(f"{run.digest()} {run.versions()} {boxes}".encode()).hexdigest()[:32]
