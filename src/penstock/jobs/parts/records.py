"""Records of a job that is done in parts: objects in a folder of a bucket, each written in one step.

- ``plan.json``: the operation and its parts. It is written once; a second planner takes the first one's. Its first line
  has all but the parts, so that a list of jobs reads only that.
- ``planning.json``: the parts so far of a plan that is being made, for a planner that continues after a kill.
- ``done/RUN/000012.json``: the result of part 12. A part without this record is repeated.
- ``failed/RUN/000012.json``: the same, of a part in which objects failed.
- ``data/RUN/000012``: data of a part for the last step of some operations.
- ``finished/RUN.json``: the last step was done.

RUN is drawn with the plan. So records of a deleted job are never read by its successor.
"""

from __future__ import annotations

import json
import os
import platform
import re
import secrets
from contextlib import suppress
from dataclasses import asdict, dataclass, field, fields
from datetime import datetime, timedelta
from functools import partial
from hashlib import sha256
from typing import TYPE_CHECKING, Any, Self

from penstock.engine.contracts.driver import Delete, Put
from penstock.errors import Changed, Damaged, NotFound, PenstockError, Unusable
from penstock.schema import COUNT, check_json, read_json
from penstock.source import open_source
from penstock.values import ObjectMeta, Span, as_folder
from penstock.version import VERSION

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterator, Mapping, Sequence

    from penstock.options import StoreOptions
    from penstock.source import Source

_FORMAT = 1
_THING = "the plan of a job"
_PLAN = "plan.json"
_PLANNING = "planning.json"
_DONE, _FAILED, _DATA, _FINISHED = "done/", "failed/", "data/", "finished/"
_DIGITS = 6
_RUN = "[0-9a-f]{8}"
# What is deleted with a job, of any of its runs; its data are below a folder of their own.
_RECORD = re.compile(
    rf"(?:{_DONE}|{_FAILED}){_RUN}/[0-9]+\.json|{_FINISHED}{_RUN}\.json|{_DATA}.+|{_PLANNING}", re.DOTALL
)
_MOST_BYTES = 64 << 20  # of a plan; 100,000 parts take some 10 MB
_PLANNING_FORM = {"penstock job": _FORMAT, "identity": str, "parts": [[str, COUNT, COUNT]]}
# Objects that a planner lists, at least, from one write of its journal to the next: some seconds.
_JOURNAL_OBJECTS = 1_000_000
_HEAD_BYTES = 64 << 10  # of a plan, read for its first line
_HEAD_FORM = {
    "penstock job": _FORMAT,
    "operation": str,
    "arguments": dict,
    "places": {str: str},
    "objects": COUNT,
    "size_bytes": COUNT,
    "created": str,
    "run": re.compile(_RUN),
    "part_count": COUNT,
}
_PLAN_FORM = _HEAD_FORM | {"parts": [list]}
_RECORD_FORM = {
    "part": COUNT,
    "counts": {str: COUNT},
    "failures": [{"url": str, "error": str}],
    "notes": {"digest?": re.compile("[0-9a-f]{1,64}"), "files?": {str: [COUNT, re.compile("[0-9a-f]{32}")]}},
    "began": str,
    "seconds": float,
    "cpu_seconds": float,
    "host": str,
    "process": COUNT,
}


@dataclass(frozen=True, slots=True)
class JobSummary:
    """Plan of a job without its parts."""

    operation: str
    arguments: Mapping[str, Any]
    objects: int
    size_bytes: int
    created: str
    places: Mapping[str, str]
    run: str
    part_count: int


@dataclass(frozen=True, slots=True)
class JobPlan:
    """Plan of a job, with its parts as the operation describes them."""

    operation: str
    arguments: Mapping[str, Any]  # without options of stores
    parts: tuple[Any, ...]
    objects: int
    size_bytes: int
    created: str  # UTC, as ISO 8601
    places: Mapping[str, str] = field(default_factory=dict)  # by URL, the endpoint that it leaves open
    # eight hexadecimal digits, drawn at random, which the records of its parts have in their names
    run: str = field(default_factory=partial(secrets.token_hex, 4))

    @property
    def identity(self) -> str:
        """Sixteen hexadecimal digits that identify operation, arguments and places."""
        text = json.dumps([_FORMAT, self.operation, self.arguments, self.places], sort_keys=True)
        return sha256(text.encode()).hexdigest()[:16]

    @property
    def summary(self) -> JobSummary:
        values = {each.name: getattr(self, each.name) for each in fields(JobSummary) if each.name != "part_count"}
        return JobSummary(**values, part_count=len(self.parts))

    def encoded(self) -> bytes:
        head = json.dumps({"penstock job": _FORMAT, "version": VERSION, **asdict(self.summary)})
        return f'{head[:-1]},\n"parts": {json.dumps(self.parts)}}}'.encode()

    @classmethod
    def decoded(cls, data: bytes, url: str) -> Self:
        values = read_json(data, _PLAN_FORM, _THING, url)
        given = {each.name: values[each.name] for each in fields(cls)}
        if (count := len(values["parts"])) != values["part_count"]:
            raise Damaged(
                f"cannot read {_THING}: part_count is {values['part_count']}, there are {count} parts", url=url
            )
        return cls(**given | {"parts": tuple(values["parts"])})

    def chosen(self, form: Mapping[str, object], url: str) -> dict[str, Any]:
        """Return the arguments that ``form``, a schema, has; raise ``Damaged`` if they do not match it."""
        check_json(self.arguments, form, "the arguments of a job", url)
        names = (name.removesuffix("?") for name in form)
        return {name: self.arguments[name] for name in names if name in self.arguments}


@dataclass(slots=True)
class PartRecord:
    """Record of one part."""

    part: int  # its number, from 0
    counts: dict[str, int] = field(default_factory=dict)  # objects by outcome, and bytes
    failures: list[dict[str, str]] = field(default_factory=list)  # the first 20: ``url`` and ``error``
    notes: dict[str, Any] = field(default_factory=dict)  # of the operation
    began: str = ""  # UTC, as ISO 8601
    seconds: float = 0.0
    cpu_seconds: float = 0.0  # of all processors, those of processes that it started included
    host: str = field(default_factory=platform.node)
    process: int = field(default_factory=os.getpid)

    @property
    def failed(self) -> int:
        return self.counts.get("failed", 0)


@dataclass(frozen=True, slots=True)
class Share:
    """One of several processes that share the parts of a job: number ``number`` of ``count``, from 1."""

    number: int = 1
    count: int = 1

    def __post_init__(self) -> None:
        if not 1 <= self.number <= self.count:
            raise Unusable(f"part must be like 3/16: one of 16 processes, from 1 to 16; got {self.number}/{self.count}")

    @classmethod
    def of(cls, text: str | None) -> Share:
        """Return the share that ``text`` names, "3/16"; all parts for None."""
        if text is None:
            return cls()
        number, mark, count = str(text).partition("/")
        if not (mark and number.isdecimal() and count.isdecimal()):
            raise Unusable(f"part must be like 3/16: one of 16 processes, from 1 to 16; got {text!r}")
        return cls(int(number), int(count))

    def has(self, part: int) -> bool:
        return part % self.count == self.number - 1


class Records:
    """Records of a job below a URL.

    Safe for any number of processes at once. ``run`` is the plan's, and empty until the plan was read or made, which
    the first look at a record does.
    """

    def __init__(self, url: str | os.PathLike[str], store: StoreOptions | str, run: str = "") -> None:
        """Open the folder; no request."""
        self._source, key = open_source(url, store)
        self._base = as_folder(key)
        self._source.require(Put, self._base)
        self.url = self._source.url(self._base)
        self.run = run

    def plan(self) -> JobPlan | None:
        """Return the plan; None before there is one. One or two requests."""
        meta = self._find_plan()
        if meta is None:
            return None
        if meta.size > _MOST_BYTES:
            raise Damaged(f"{_THING} must have at most {_MOST_BYTES} bytes", url=self._source.url(meta.key))
        data = self._source.read(Span(meta.key, 0, meta.size, meta.etag, whole=True))
        found = JobPlan.decoded(data, self._source.url(meta.key))
        self.run = found.run
        return found

    def summary(self) -> JobSummary | None:
        """Return the plan without its parts, read from its first line; None before there is one. One or two requests.

        The whole plan is read where its arguments take more than 64 KiB.
        """
        meta = self._find_plan()
        if meta is None:
            return None
        stop = min(meta.size, _HEAD_BYTES)
        data = bytes(self._source.read(Span(meta.key, 0, stop, meta.etag, whole=stop == meta.size)))
        head, mark, _ = data.partition(b",\n")
        if mark:
            values = read_json(head + b"}", _HEAD_FORM, _THING, self._source.url(meta.key))
            found = JobSummary(**{each.name: values[each.name] for each in fields(JobSummary)})
        else:
            plan = self.plan()
            if plan is None:
                return None
            found = plan.summary
        self.run = found.run
        return found

    def _find_plan(self) -> ObjectMeta | None:
        try:
            return self._source.head(self._base + _PLAN)
        except NotFound:
            return None

    def planned(self, made: Callable[[PlanJournal], JobPlan], like: JobPlan, part: object = list) -> JobPlan:
        """Return the plan, created and published first if missing; refuse the plan of a job other than ``like``."""
        found, made_here = self.plan(), ""
        if found is None:
            journal = PlanJournal(self._source, self._base + _PLANNING, like.identity)
            try:
                found = made(journal)
                data = found.encoded()
                if len(data) > _MOST_BYTES:
                    advice = f"at most {_MOST_BYTES} are allowed: take larger parts (part_objects=, part_bytes=)"
                    raise Unusable(f"{len(found.parts)} parts have a plan of {len(data)} bytes; {advice}", url=self.url)
                self._source.publish(self._base + _PLAN, data)
                self.run = made_here = found.run
                journal.remove()
            except PenstockError:
                # Another process was faster, and may have begun to write: both do the same parts.
                if (found := self.plan()) is None:
                    raise
        if found.identity != like.identity:
            # Of two jobs of one operation, what differs says enough.
            pairs = like.arguments.items() if found.operation == like.operation else ()
            alike = {name for name, value in pairs if found.arguments.get(name, ...) == value}
            its, mine = (f"{each.operation} with {_format_arguments(each, alike)}" for each in (found, like))
            raise Unusable(
                f"job= has a different job: {its}, not {mine}; choose another job=, or delete it (penstock jobs rm)",
                url=self.url,
            )
        if found.run != made_here:
            check_json([*found.parts], [part], "the parts of a job", self._source.url(self._base + _PLAN))
        return found

    def numbers(self, *, failed: bool = False) -> set[int]:
        """Return the parts that are done, or those in which objects failed: one request for each 1,000."""
        return {number for number, _ in self._listed(_FAILED if failed else _DONE)}

    def _below(self, kind: str) -> str:
        if not self.run and self.summary() is None:
            raise NotFound("no plan of a job found", url=self.url)
        return f"{self._base}{kind}{self.run}"

    def _name(self, kind: str, part: int, end: str = ".json") -> str:
        return f"{self._below(kind)}/{part:0{_DIGITS}}{end}"

    def _listed(self, kind: str) -> Iterator[tuple[int, ObjectMeta]]:
        folder = f"{self._below(kind)}/"
        for page in self._source.pages(folder):
            for entry in page.entries:
                number = entry.key[len(folder) :].removesuffix(".json")
                if number.isdecimal():
                    yield int(number), entry

    def write(self, record: PartRecord, *, again: bool = False) -> None:
        """Write the record of a part; ``again``: replace the record of an earlier, failed attempt."""
        name = self._name(_FAILED if record.failed else _DONE, record.part)
        self._source.put(name, json.dumps(asdict(record)).encode())
        if again and not record.failed:
            self._source.delete([self._name(_FAILED, record.part)])

    def read(self, chosen: Callable[[int], bool] | None = None, *, failed: bool = False) -> Iterator[PartRecord]:
        """Yield the records of parts that are done, or of those in which objects failed: one request each, in parallel.

        ``chosen`` says of which parts; the default is all. A process that does the same part may rewrite its record
        meanwhile: any version is read.
        """
        found = self._listed(_FAILED if failed else _DONE)
        metas = [(number, meta) for number, meta in found if chosen is None or chosen(number)]
        # Each in its own request, whose answer is kept until it was parsed: memory is that of some parts.
        with self._source.lookahead(Span(meta.key, most=meta.size) for _, meta in metas) as bodies:
            for number, meta in metas:
                try:
                    body = bodies.advance().take()
                except NotFound as error:
                    # Another process has done the part meanwhile, whose record of failures it deletes.
                    if not failed or error.missing == "bucket":
                        raise
                    continue
                yield self._record(bytes(body), number, self._source.url(meta.key))

    def read_all(self, chosen: Callable[[int], bool] | None = None) -> Iterator[PartRecord]:
        """Yield the records of parts that are done, then those of other parts, in which objects failed."""
        done = set[int]()
        for record in self.read(chosen):
            done.add(record.part)
            yield record
        yield from self.read(lambda number: number not in done and (chosen is None or chosen(number)), failed=True)

    def record(self, part: int) -> PartRecord | None:
        """Return the record of a part that is done; None if it is not: one request."""
        key = self._name(_DONE, part)
        try:
            return self._record(bytes(self._source.read(Span(key))), part, self._source.url(key))
        except NotFound as error:
            if error.missing == "bucket":
                raise
            return None

    @staticmethod
    def _record(data: bytes, part: int, url: str) -> PartRecord:
        values = read_json(data, _RECORD_FORM, "the record of a part", url)
        record = PartRecord(**{each.name: values[each.name] for each in fields(PartRecord)})
        if record.part != part:
            raise Damaged(f"cannot read the record of a part: part must be {part}, got {record.part}", url=url)
        if record.began and not _is_time(record):
            raise Damaged("cannot read the record of a part: began and seconds are not times", url=url)
        return record

    def place(self, name: str) -> str:
        """Return the URL of data of the job, which are deleted with the records."""
        return f"{self.url}{_DATA}{name}"

    def keep(self, part: int, data: bytes) -> None:
        """Keep data of a part for the last step, before its record is written."""
        self._source.put(self._name(_DATA, part, ""), data)

    def kept(self, parts: int) -> Iterator[tuple[str, bytes]]:
        """Yield URL and content of the kept data of each part, in order; read ahead."""
        keys = [self._name(_DATA, part, "") for part in range(parts)]
        with self._source.lookahead(map(Span, keys)) as bodies:
            for key, body in zip(keys, bodies, strict=True):
                yield self._source.url(key), bytes(body)

    def finished(self) -> bool:
        return self._source.stat_existing([f"{self._below(_FINISHED)}.json"])[0] is not None

    def finish(self) -> None:
        self._source.put(f"{self._below(_FINISHED)}.json", b"{}")

    def remove(self) -> int:
        """Delete all records, the plan last, and nothing else; return their number."""
        self._source.require(Delete, self._base)
        kinds = (_DONE, _FAILED, _FINISHED, _DATA, _PLANNING)
        pages = (page for kind in kinds for page in self._source.pages(self._base + kind))
        keys = (entry.key for page in pages for entry in page.entries)
        found = [key for key in keys if _RECORD.fullmatch(key[len(self._base) :])]
        if self.summary() is not None:
            found.append(self._base + _PLAN)
        if not found:
            raise NotFound("no plan of a job found", url=self.url)
        self._source.delete(found[:-1])
        self._source.delete(found[-1:])
        return len(found)


class PlanJournal:
    """Parts of a plan that is being made. Planners of one job may write it at the same time: each has a beginning.

    Any journal is safe to continue: parts are ranges without gaps, whatever their number, and counts are estimates.
    """

    def __init__(self, source: Source, key: str, identity: str) -> None:
        self._source, self._key, self._identity = source, key, identity
        self._written = 0  # objects of the parts that were written or read
        self._kept = False

    def read(self) -> list[tuple[str, int, int]]:
        """Return the parts of a planner that did not finish: last name, objects, bytes; one request or two."""
        try:
            meta = self._source.head(self._key)
            if meta.size > _MOST_BYTES:
                return []
            data = self._source.read(Span(self._key, 0, meta.size, meta.etag, whole=True))
            values = read_json(data, _PLANNING_FORM, "the journal of a plan", self._source.url(self._key))
        except (NotFound, Changed, Damaged):
            # The plan is made from the beginning.
            return []
        if values["identity"] != self._identity:
            return []
        self._kept = True
        parts = [(last, objects, size_bytes) for last, objects, size_bytes in values["parts"]]
        self._written = sum(objects for _, objects, _ in parts)
        return parts

    def is_due(self, objects: int) -> bool:
        return objects - self._written >= _JOURNAL_OBJECTS

    def write(self, parts: Sequence[tuple[str, int, int]], objects: int) -> None:
        """Write the parts so far, of ``objects`` objects: one request."""
        text = json.dumps({"penstock job": _FORMAT, "identity": self._identity, "parts": [*parts]})
        self._source.put(self._key, text.encode())
        self._written, self._kept = objects, True

    def remove(self) -> None:
        if self._kept:
            self._source.delete([self._key])


def jobs_below(url: str | os.PathLike[str], store: StoreOptions | str) -> Iterator[Records]:
    """Yield the jobs whose folders are directly in ``url``, and the one that it is: two requests for each folder."""
    source, key = open_source(url, store)
    base = as_folder(key)
    folders = [base]
    for page in source.pages(base, delimiter="/"):
        folders += page.prefixes
    for folder, meta in zip(folders, source.stat_existing([each + _PLAN for each in folders]), strict=True):
        if meta is not None:
            yield Records(source.url(folder), store)


def _is_time(record: PartRecord) -> bool:
    with suppress(ValueError, OverflowError):
        end = datetime.fromisoformat(record.began) + timedelta(seconds=record.seconds)
        return end.tzinfo is not None
    return False


def _format_arguments(plan: JobPlan, without: Collection[str]) -> str:
    given = {name: value for name, value in plan.arguments.items() if name not in without}
    given |= {f"endpoint of {url}": place for url, place in plan.places.items()} if not given else {}
    return ", ".join(f"{name}={value!r}" for name, value in given.items()) or "the endpoints of the stores themselves"
