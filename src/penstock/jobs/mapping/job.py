"""``ps.map``: each part of a source goes through a function into one shard.

Bytes of a shard depend on the plan, the part and the function alone. It is created only where nothing has its name; the
record of the part comes last. So an attempt that was taken for dead does no harm: it writes the same bytes, or fails.
"""

from __future__ import annotations

import json
import os
from contextlib import closing
from dataclasses import dataclass, field
from functools import partial
from itertools import chain
from typing import TYPE_CHECKING, Any, ClassVar, Literal

import numpy as np

from penstock.data.catalog.catalog import Catalog
from penstock.data.catalog.discovery.shards import Shard, Shards
from penstock.data.catalog.discovery.stated import INDEX
from penstock.data.shards.mds import MdsFormat
from penstock.data.shards.mds_columns import MDSColumn
from penstock.data.shards.mds_encode import index_json
from penstock.data.shards.registry import format_by
from penstock.data.shards.tokens import token_dtype
from penstock.errors import AlreadyExists, Changed, Damaged, NotFound, PenstockError, Unusable, kind_of
from penstock.jobs.mapping.function import FunctionCalls, MapFunction
from penstock.jobs.mapping.outputs import OURS, ShardFile, write_archive, write_lines, write_tokens
from penstock.jobs.mapping.pieces import (
    PIECE,
    SourceSample,
    cut_catalog,
    cut_files,
    find_source,
    open_kept,
    read_lines,
    read_samples,
    source_folder,
)
from penstock.jobs.packing.job import keep_catalog
from penstock.jobs.packing.pack import abort_uploads, catalog_shards, check_outside
from penstock.jobs.parts.operation import JobPart, Means, Operation, Planned
from penstock.jobs.parts.records import JobPlan, PartRecord, Records
from penstock.jobs.parts.run import Job, JobOptions, check_apart
from penstock.jobs.trees.guard import clear_unfinished
from penstock.jobs.trees.selection import local
from penstock.options import StoreOptions
from penstock.schema import COUNT, read_json
from penstock.source import open_source
from penstock.values import Span, as_folder, check_choice, whole

if TYPE_CHECKING:
    from collections.abc import Callable, Generator, Sequence

    from penstock.jobs.parts.carriers import Ray
    from penstock.source import Source

PART_BYTES = 256 << 20
FORMATS = ("tokens", "jsonl", "tar", "parquet", "mds")
_MANIFEST, _CATALOG, _RECORDS = "map.json", "index.catalog", ".map/"
_SUMS = ("samples", "kept", "left_out", "skipped", "outputs", "tokens", "shards", "shard_bytes")
_KEPT_FORM = {"offsets": [COUNT], "sizes": [COUNT], "columns?": [[str, str, (COUNT, None)]]}
_MANIFEST_FORM = {"penstock map": 1, "arguments": dict, **dict.fromkeys(_SUMS, COUNT), "parts": COUNT}
_MANIFEST_FORM |= {"files": [[str, COUNT, str]], "failures": [{"url": str, "error": str}]}


@dataclass(frozen=True, slots=True)
class MapDone:
    """Result of ``ps.map``; of a ``part``, while others are left, that of this process's share.

    Attributes:
        url: Folder of the shards.
        samples: Samples that were read: those kept, left out and skipped.
        kept: Samples with at least one output.
        left_out: Samples for which the function returned None, or an empty list.
        skipped: Samples for which it raised, with ``on_error="skip"``.
        outputs: What is in the shards: documents, lines, or samples.
        tokens: Tokens of all documents; 0 for other formats.
        shards: Number of shards; a part without outputs has none.
        shard_bytes: Bytes of all files of the shards.
        failures: The first skipped samples of each part, up to 20: ``url`` and ``error``.
        parts: Number of parts.
        complete: Whether all parts are done, and the catalog and ``map.json`` are written.
        catalog: URL of the catalog of the outputs; None for tokens, and before the end.
    """

    url: str
    samples: int
    kept: int
    left_out: int
    skipped: int
    outputs: int
    tokens: int
    shards: int
    shard_bytes: int
    failures: list[dict[str, str]] = field(repr=False)
    parts: int
    complete: bool
    catalog: str | None


def map(  # noqa: A001, PLR0913  the field's word; each argument is named in the call
    source: str | os.PathLike[str] | Catalog,
    function: Callable[..., Any],
    dest: str | os.PathLike[str],
    *,
    format: Literal["tokens", "jsonl", "tar", "parquet", "mds"],  # noqa: A002  the field's word
    dtype: str | None = None,
    job: str | os.PathLike[str] | None = None,
    part: str | None = None,
    on: Ray | None = None,
    processes: int | None = 1,
    batch: int | None = None,
    fields: Sequence[str] = (),
    version: str | None = None,
    seed: int | None = None,
    on_error: Literal["raise", "skip"] = "raise",
    part_bytes: int = PART_BYTES,
    progress: bool | None = None,
    store: StoreOptions | str | None = None,
) -> MapDone:
    """Call a function for each sample of a source, and write what it returns into shards: tokens, or samples.

    A part is some ``part_bytes`` of the source: lines of JSON or text that begin in a range of bytes, rows of Parquet
    in whole row groups, samples of other shards, objects; a compressed file of lines as a whole. Its outputs, in order,
    are one shard, ``shard-000012.bin`` for example. Parts are recorded: the same call continues after a stop of any
    kind, and several processes or machines share them. Each sample is in the shards once, with the same bytes however
    often the map was interrupted. A shard that is there already must have the bytes of this call (``Changed``).

    The function gets a ``dict`` for a JSON line (any JSON value), a ``str`` for a line of text, a ``ps.Sample`` for
    everything else. It returns an output; or None, which leaves the sample out; or a list of outputs. An output is an
    array or list of integers for tokens, or ``{"tokens": …, "loss": …}`` with a mask of 0 and 1, written next to the
    tokens; for other formats a dict of fields. ``__key__`` names a sample of tar and Parquet.

    Requests: those of reading the source, and for each part those of its shard, three for its record and the data of
    the catalog, and two at the end. A map that is done is recognised by ``map.json`` and a listing of the shards.
    Memory, in each process: the read-ahead, one output and one upload; of MDS a shard; of a compressed file its bytes.

    Args:
        source: Prefix, glob or pattern of JSON lines (``.jsonl``, ``.gz`` or ``.zst``), Parquet or other shards; glob
            or name of text (``.txt``); prefix of objects; or a ``Catalog``.
        function: A function, or a class whose object each process makes once. Its result must depend on the sample
            alone. Other processes get it by its name, or as code where cloudpickle is installed.
        dest: Prefix or directory for the shards, outside the source.
        format: Format of the shards: Megatron's ``.bin`` and ``.idx`` (``"tokens"``), ``"jsonl"``, ``"tar"``,
            ``"parquet"``, or ``"mds"``.
        dtype: Type of tokens, which Megatron's index has to know: ``"uint16"``, ``"int32"`` (default), …; a token
            outside its range is refused.
        job: Folder for the records; default: ``.map/`` in ``dest``. ``penstock jobs`` shows and deletes them.
        part: This process's share of the parts, such as ``"3/16"``.
        on: Ray cluster that does the parts.
        processes: Processes of this machine that share the parts; None: as many as processors.
        batch: Samples in a list that the function gets, within a part; it returns a list of as many values.
        fields: Fields of the samples of the source; default: all.
        version: Version of the function in place of its source text: say, with the digest of its tokenizer.
        seed: The function also gets a ``numpy.random.Generator``, which depends on seed, part and sample.
        on_error: ``"raise"``: the part of a sample for which the function raises fails, the others go on, and the first
            error is raised at the end. ``"skip"``: such samples are counted and left out, up to a tenth of a part.
        part_bytes: Most bytes of the source in a part.
        progress: Show a bar on standard error; default: if that is a terminal and rich is installed.
        store: Options of all places, or the name of a profile.

    Returns:
        Counts, which add up; the catalog of the outputs.

    Raises:
        NotFound: There is nothing to map.
        AlreadyExists: Shards of another map are at the destination.
        Changed: A part of the source was replaced, or the function gave other bytes than in an earlier attempt.
        Unusable: The function raises, or returns a value that does not fit the format; it is another function than that
            of the records; its source text cannot be found, and ``version`` is not given; the destination is inside the
            source; or an argument is invalid.
        PenstockError: The worst failure, after all other parts; the same call tries failed parts again.

    Example:
        >>> lengths = lambda sample: {"name": sample.key, "bytes": sample.size}
        >>> done = ps.map("s3://bucket/train/3/", lengths, "s3://bucket/lengths/", format="jsonl")
        >>> done.samples, done.outputs, done.shards, done.complete
        (60, 60, 1, True)
    """
    given = StoreOptions() if store is None else store
    check_choice(format, FORMATS, "format")
    if isinstance(fields, str):
        raise Unusable(f"fields must be several names, such as ({fields!r},), got {fields!r}")
    calls = FunctionCalls(MapFunction(function, version), batch, seed, on_error)
    catalog = source if isinstance(source, Catalog) else None
    here, there, records = _settle_places(source, dest, job, given)
    operation = _Map(
        here,
        there,
        format,
        _name_dtype(dtype, format),
        "" if catalog is None else catalog.version,
        (*fields,),
        whole(part_bytes, "part_bytes", 1),
        calls,
        given,
        records.url,
    )
    if (finished := operation.finished()) is not None:
        return finished
    if catalog is not None:
        if fields:
            raise Unusable("fields= is for a URL: a Catalog has its fields")
        keep_catalog(catalog, operation.place(catalog.version), given)
    open_kept.cache_clear()
    work = Job(operation, records.url, JobOptions(part, on, progress, processes))
    sums = work.work()
    finished = operation.finished()
    if finished is None and work.records.finished():
        # It was deleted.
        operation.finish(work.plan, work.records)
        finished = operation.finished()
    if finished is not None:
        return finished
    mine = {name: sums.counts[name] for name in _SUMS}
    return MapDone(operation.url, **mine, failures=[], parts=sums.parts, complete=False, catalog=None)


def _settle_places(
    source: str | os.PathLike[str] | Catalog,
    dest: str | os.PathLike[str],
    job: str | os.PathLike[str] | None,
    store: StoreOptions | str,
) -> tuple[str, str, Records]:
    """Return the URLs of source and destination, and the records; refuse places within one another."""
    target, key = open_source(dest, store)
    base = as_folder(key)
    there = target.url(base)
    records = Records(f"{there}{_RECORDS}" if job is None else job, store)
    if isinstance(source, Catalog):
        here, prefix = open_source(source.root + source.base, store)
    elif isinstance(source, str | os.PathLike):
        here, prefix = open_source(source, store)
        folder = source_folder(prefix)
        check_outside(here, folder, target, base)
        check_apart(records, store, here.url(as_folder(folder)))
    else:
        raise Unusable(f"source must be a URL or a Catalog, got {kind_of(source)}")
    if job is not None:
        check_apart(records, store, there)
    return here.url(prefix), there, records


def _name_dtype(given: str | None, form: str) -> str:
    if form != "tokens":
        if given is not None:
            raise Unusable(f'dtype= is for format="tokens", got it with format={form!r}')
        return ""
    dtype = token_dtype("int32" if given is None else given)
    if dtype == np.uint32:
        raise Unusable('Megatron\'s index has no uint32: pass dtype="int32", which holds any vocabulary')
    return dtype.name


@dataclass(frozen=True, slots=True)
class _Map(Operation):
    """Shards of the outputs of a function."""

    name: ClassVar[str] = "map"
    verb: ClassVar[str] = "mapping"
    counts: ClassVar[tuple[str, ...]] = (*_SUMS, "failed")
    part: ClassVar[object] = [PIECE, COUNT, COUNT]
    places: ClassVar[tuple[str, ...]] = ("source", "url")
    resumes: ClassVar[bool] = False

    source: str
    url: str
    form: str
    dtype: str
    catalog: str
    fields: tuple[str, ...]
    part_bytes: int
    calls: FunctionCalls
    store: StoreOptions | str
    job: str

    def details(self) -> dict[str, Any]:
        found = {name: getattr(self, name) for name in ("dtype", "catalog", "part_bytes")}
        how = {name: getattr(self.calls, name) for name in ("batch", "seed", "on_error")}
        return {"format": self.form, "fields": [*self.fields], "function": self.calls.function.identity, **found, **how}

    def place(self, version: str) -> str:
        return Records(self.job, self.store).place(f"{version}.catalog")

    def _opened(self) -> tuple[Source, str]:
        return open_source(self.url, self.store)

    def planned(self) -> Planned:
        source, base = self._opened()
        if there := [key for key in source.keys_below(f"{base}shard-") if OURS.fullmatch(key[len(base) :])]:
            advice = "delete it, or name another destination"
            raise AlreadyExists(f"found a shard that this map did not write: {advice}", url=source.url(there[0]))
        files: list[Shard] = []
        catalog: Catalog | None = None
        if self.catalog:
            catalog = open_kept(self.place(self.catalog), self.source, self.store)
        else:
            _, files, catalog = find_source(self.source, self.fields, self.store)
        if catalog is None:
            parts: list[Any] = [
                (ranges, sum(not start for *_, start, _ in ranges), sum(stop - start for *_, start, stop in ranges))
                for ranges in cut_files(files, self.part_bytes)
            ]
        else:
            if not self.catalog:
                keep_catalog(catalog, self.place(catalog.version), self.store)
            sizes, version = catalog.sizes.clip(0), catalog.version
            borders = cut_catalog(catalog, self.part_bytes)
            parts = [
                ((version, catalog.base, *each), each[1] - each[0], int(sizes[slice(*each)].sum())) for each in borders
            ]
        if not parts:
            raise NotFound("nothing to map: the source has no bytes", url=self.source)
        return Planned(parts, sum(each[1] for each in parts), sum(each[2] for each in parts))

    def work(self, part: JobPart, record: PartRecord, means: Means) -> PenstockError | None:
        record.counts = dict.fromkeys(_SUMS, 0)
        with closing(self._samples(part.piece[0], means)) as samples:
            outputs = self.calls.outputs(samples, record, integers=self.form == "tokens")
            found: dict[str, Any] = {"files": {}, "offsets": [], "sizes": []}
            with closing(outputs):
                if (first := next(outputs, None)) is not None:
                    found = self._write(chain([first], outputs), part.number)
        files = found.pop("files")
        record.counts["tokens"] = found.pop("tokens", 0)
        record.counts["shards"], record.counts["shard_bytes"] = bool(files) + 0, sum(size for size, _ in files.values())
        record.notes["files"] = files
        if self.form != "tokens":
            means.records.keep(part.number, json.dumps(found).encode())
        return None

    def _samples(self, piece: Any, means: Means) -> Generator[SourceSample]:  # noqa: ANN401  checked with the plan
        source, key = open_source(self.source, self.store)
        folder, listed = source_folder(key), isinstance(piece[0], str)
        keys = [piece[1]] if listed else [each[0] for each in piece]
        if not all(each.startswith(folder) or (listed and folder.startswith(each)) for each in keys):
            raise Damaged("cannot read the plan of a map: it leads outside the source", url=self.source)
        if listed:
            version, base, first, stop = piece
            catalog = open_kept(self.place(version), source.url(base), self.store)
            samples, objects = read_samples(catalog, first, stop, self.store), 1
        else:
            samples, objects = read_lines(source, piece, self.fields), 0
        with closing(samples):
            for sample in samples:
                yield sample
                means.count(objects, sample.size)

    def _write(self, outputs: Any, part: int) -> dict[str, Any]:  # noqa: ANN401  pairs of samples and outputs
        open_file = partial(ShardFile, *self._opened(), part)
        if self.form == "tokens":
            return write_tokens(outputs, open_file, self.dtype)
        return (
            write_lines(outputs, open_file)
            if self.form == "jsonl"
            else write_archive(outputs, open_file, self.form, part)
        )

    def finish(self, plan: JobPlan, records: Records) -> None:
        source, base = self._opened()
        done = sorted(records.read(), key=lambda record: record.part)
        named = {
            f"shard-{each.part:06d}{end}": (each.part, size, digest)
            for each in done
            for end, (size, digest) in sorted(each.notes["files"].items())
        }
        listed = {meta.key[len(base) :]: meta for page in source.pages(f"{base}shard-") for meta in page.entries}
        for name in sorted(named.keys() | {name for name in listed if OURS.fullmatch(name)}):
            if name not in named:
                raise Changed("found a shard that no part of this map has recorded", url=source.url(base + name))
            if name not in listed or listed[name].size not in (-1, named[name][1]):
                raise NotFound("a shard that was written has been deleted", url=source.url(base + name))
        if self.form != "tokens" and named:
            shards = [Shard(base + name, size, listed[name].etag) for name, (_, size, _) in named.items()]
            kept = [read_json(each, _KEPT_FORM, "places of a part", url) for url, each in records.kept(len(plan.parts))]
            self._save_catalog(source, base, shards, [kept[part] for part, *_ in named.values()])
        sums = {name: sum(each.counts[name] for each in done) for name in _SUMS}
        failures = [failure for each in done for failure in each.failures]
        files = [(name, size, digest) for name, (_, size, digest) in named.items()]
        found = {"penstock map": 1, "arguments": self.arguments, **sums, "parts": len(done), "failures": failures}
        source.put(f"{base}{_MANIFEST}", json.dumps(found | {"files": files}, indent=1).encode())
        abort_uploads(source, base, OURS)
        if local(source):
            clear_unfinished(source, base)

    def _save_catalog(self, source: Source, base: str, shards: list[Shard], places: list[dict[str, Any]]) -> None:
        form = MdsFormat(columns=_agreed_columns(places, self.url)) if self.form == "mds" else None
        found = Shards(source, base, shards, form or format_by(self.form, (), {}))
        if form is not None:
            sized = zip(shards, places, strict=True)
            rows = [(shard.key[len(base) :], len(place["sizes"]), shard.size, "") for shard, place in sized]
            source.put(base + INDEX, index_json(form.columns, rows, None), content_type="application/json")
        catalog = catalog_shards(found, [(place["offsets"], place["sizes"]) for place in places])
        catalog.save(self.url + _CATALOG, store=self.store)

    def finished(self) -> MapDone | None:
        """Return the result of this map if it is done; refuse the destination of another one."""
        source, base = self._opened()
        try:
            data = source.read(Span(f"{base}{_MANIFEST}"))
        except NotFound as error:
            if error.missing == "bucket":
                raise
            return None
        known = read_json(data, _MANIFEST_FORM, "the result of a map", source.url(f"{base}{_MANIFEST}"))
        mine, its = json.loads(json.dumps(dict(self.arguments))), known["arguments"]
        if differs := [f"{name}={its.get(name)!r}" for name in mine if its.get(name) != mine[name]]:
            text = f"another map, with {', '.join(differs)}, wrote these shards: name another destination"
            raise AlreadyExists(text, url=self.url)
        sizes = {meta.key[len(base) :]: meta.size for page in source.pages(f"{base}shard-") for meta in page.entries}
        if gone := [name for name, size, _ in known["files"] if sizes.get(name, size + 1) not in (size, -1)]:
            text = "a shard of this map was deleted or replaced: map into another destination"
            raise NotFound(text, url=source.url(base + gone[0]))
        counts = {name: known[name] for name in (*_SUMS, "failures", "parts")}
        catalog = f"{self.url}{_CATALOG}" if self.form != "tokens" and known["shards"] else None
        return MapDone(self.url, **counts, complete=True, catalog=catalog)


def _agreed_columns(places: list[dict[str, Any]], url: str) -> tuple[MDSColumn, ...]:
    """Return the columns of MDS, which the first sample of each part has decided."""
    columns = {tuple(MDSColumn(*each) for each in place["columns"]) for place in places}
    if len(columns) > 1:
        raise Unusable("first samples of parts differ in fields or types: return the same for all samples", url=url)
    return columns.pop()
