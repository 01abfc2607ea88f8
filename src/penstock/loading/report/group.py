"""The reports of all ranks as one, which names the rank that waits longest; of files that each rank has written."""

from __future__ import annotations

import json
from collections.abc import Iterable
from contextlib import suppress
from dataclasses import asdict, dataclass
from html import escape
from math import isfinite
from textwrap import wrap
from typing import TYPE_CHECKING, Any, Final

from penstock.catalog.glob import glob
from penstock.errors import Damaged, NotFound, Unusable
from penstock.loading.report.page import document
from penstock.loading.report.summary import Summary
from penstock.loading.report.text import seconds
from penstock.verbs import open as open_object

if TYPE_CHECKING:
    import os
    from collections.abc import Iterator, Mapping

    from penstock.options import StoreOptions

__all__ = ["GroupReport", "RankReport", "merge_reports"]

_WIDE: Final = 100
_MOST_RANKS: Final = 1 << 20  # of a report that another program wrote: all that are missing are named
_MOST_BYTES: Final = 16 << 20  # of a report, which takes some ten thousand


@dataclass(frozen=True, slots=True)
class RankReport:
    """What one rank reports, in short: see ``LoaderReport``.

    Attributes:
        rank: Its number.
        world: How many there are.
        waiting_s: Seconds that its training loop waited for batches.
        computing_s: Seconds between receiving a batch and asking for the next one; waits for other ranks are in these.
        cause: What it waits for most; None where it is not input bound.
        recommendation: One thing to do.
        batches: Which it received.
        samples: In these.

    """

    rank: int
    world: int
    waiting_s: float
    computing_s: float
    cause: str | None
    recommendation: str
    batches: int
    samples: int

    @property
    def waiting(self) -> float:
        """Share of time that its loop waited for batches, 0 to 1."""
        whole_s = self.waiting_s + self.computing_s
        return self.waiting_s / whole_s if whole_s else 0.0


@dataclass(frozen=True, slots=True)
class GroupReport:
    """The reports of several ranks; ``print`` shows it as text.

    Attributes:
        ranks: One report each, by rank.

    """

    ranks: tuple[RankReport, ...]

    @property
    def slowest(self) -> RankReport:
        """The rank that waited longest for its batches: in a step that all ranks take together, the others wait for it.

        Their waits lie within the step, and count as computing.
        """
        return max(self.ranks, key=lambda each: each.waiting_s)

    @property
    def missing(self) -> tuple[int, ...]:
        """Ranks that have not reported."""
        there = {each.rank for each in self.ranks}
        return tuple(rank for rank in range(max(each.world for each in self.ranks)) if rank not in there)

    def values(self) -> dict[str, Any]:
        """Return everything as dicts, lists, numbers and texts."""
        ranks = [asdict(each) | {"waiting": each.waiting} for each in self.ranks]
        return {"slowest": self.slowest.rank, "missing": [*self.missing], "ranks": ranks}

    def json(self) -> str:
        """Return everything as JSON."""
        return json.dumps(self.values())

    def html(self) -> str:
        """Return one page, which needs no network."""
        head = "".join(f'<th class="n">{each}</th>' for each in ("rank", "waited", "of its time", "batches", "samples"))
        rows = "".join(
            f'<tr><td class="n">{each.rank}</td><td class="n">{seconds(each.waiting_s)}</td>'
            f'<td class="n">{each.waiting:.0%}</td><td class="n">{each.batches:,}</td>'
            f'<td class="n">{each.samples:,}</td><td>{escape(each.cause or "not input bound")}</td></tr>'
            for each in self.ranks
        )
        verdict = "".join(f"<p>{escape(each)}</p>" for each in self._verdict())
        return document(
            "Penstock: report of all ranks", f"{verdict}<table><tr>{head}<th>waited for</th></tr>{rows}</table>"
        )

    def __str__(self) -> str:
        """Return it as text of at most 100 columns."""
        lines = [line for each in self._verdict() for line in wrap(each, _WIDE)]
        lines += ["", f"  {'rank':>5} {'waited':>10} {'of its time':>12} {'batches':>10} {'samples':>12}  waited for"]
        lines += [
            f"  {each.rank:>5} {seconds(each.waiting_s):>10} {each.waiting:>12.0%} {each.batches:>10,} "
            f"{each.samples:>12,}  {each.cause or 'not input bound'}"
            for each in self.ranks
        ]
        return "\n".join(lines)

    def _verdict(self) -> Iterator[str]:
        worst = self.slowest
        cause = f"most for: {worst.cause}" if worst.cause else "and is not input bound"
        yield (
            f"{len(self.ranks)} ranks. Rank {worst.rank} waited longest for its batches, {seconds(worst.waiting_s)} "
            f"({worst.waiting:.0%} of its time), {cause}."
        )
        yield worst.recommendation
        if self.missing:
            yield f"No report of: {', '.join(map(str, self.missing))}."


def merge_reports(
    reports: str | os.PathLike[str] | Summary | Iterable[str | os.PathLike[str] | Summary],
    *,
    store: StoreOptions | str | None = None,
) -> GroupReport:
    """Return the reports of several ranks as one.

    Args:
        reports: Reports, or the URLs that ``LoaderReport.save`` has written; patterns are ``ps.glob``'s. Of two reports
            of one rank the one of more batches counts.
        store: Options of the URLs' stores.

    Raises:
        NotFound: An object is not there, or no object matches a pattern.
        Damaged: An object holds no report.
        Unusable: There is no report at all, or ``reports`` are none of these.

    """
    given = [reports] if isinstance(reports, Summary | str) or hasattr(reports, "__fspath__") else reports
    if not isinstance(given, Iterable):
        raise Unusable(f"reports are LoaderReports, or URLs of saved ones, not {given!r}")
    found: dict[int, RankReport] = {}
    for each in _all(given, store):  # type: ignore[arg-type]  # what is one report or URL was put into a list
        held = found.get(each.rank)
        if held is None or held.batches <= each.batches:
            found[each.rank] = each
    if not found:
        raise Unusable("merge_reports takes one report or more: ps.merge_reports('s3://bucket/run/report-*.json')")
    return GroupReport(tuple(found[rank] for rank in sorted(found)))


def _all(given: Iterable[str | os.PathLike[str] | Summary], store: StoreOptions | str | None) -> Iterator[RankReport]:
    for each in given:
        if isinstance(each, Summary):
            yield _short(each.values())
            continue
        urls = [meta.url for meta in glob(each, store=store)]
        if not urls:
            raise NotFound("there is no object of this name, or none that matches", url=str(each))
        for url in urls:
            yield _read(url, store)


def _read(url: str | os.PathLike[str], store: StoreOptions | str | None) -> RankReport:
    with open_object(url, "rb", store=store) as file:
        text = file.read(_MOST_BYTES + 1)
    with suppress(ValueError, TypeError, LookupError, RecursionError):
        values = json.loads(text)
        if _is_one(values):
            return _short(values)
    raise Damaged("this is no report: LoaderReport.save writes them", url=str(url))


def _short(values: Mapping[str, Any]) -> RankReport:
    return RankReport(**{name: values[name] for name in RankReport.__slots__})


def _is_one(values: Mapping[str, Any]) -> bool:
    """Say whether a file's values are a report's."""
    counts = [values[name] for name in ("rank", "world", "batches", "samples")]
    spans = [values[name] for name in ("waiting_s", "computing_s")]
    return (
        all(type(each) is int and each >= 0 for each in counts)
        and all(type(each) in (int, float) and isfinite(each) and each >= 0 for each in spans)
        and counts[0] < counts[1] <= _MOST_RANKS
        and isinstance(values["recommendation"], str)
        and isinstance(values["cause"], str | None)
    )
