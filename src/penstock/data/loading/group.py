"""Merged reports of all ranks, from files that each rank wrote, with the rank that waits longest."""

from __future__ import annotations

import json
from collections.abc import Iterable
from dataclasses import asdict, dataclass
from html import escape
from textwrap import wrap
from typing import TYPE_CHECKING, Any, Final

from penstock.data.loading.report import COLOURS, seconds
from penstock.data.loading.summary import Summary
from penstock.display import axes, html_page, panel, table
from penstock.errors import Damaged, NotFound, Unusable
from penstock.schema import COUNT, read_json
from penstock.verbs import glob
from penstock.verbs import open as open_object

if TYPE_CHECKING:
    import os
    from collections.abc import Iterator, Mapping

    from matplotlib.axes import Axes

    from penstock.options import StoreOptions

_WIDE: Final = 100
# Limit for a report that another program wrote: all missing ranks are listed.
_MOST_RANKS: Final = 1 << 20
_MOST_BYTES: Final = 16 << 20  # limit for a report; most take some ten thousand
_WHAT: Final = "a report (LoaderReport.save writes them)"
_REPORT: Final = {
    "rank": COUNT,
    "world": range(1, _MOST_RANKS + 1),
    "batches": COUNT,
    "samples": COUNT,
    "waiting_s": float,
    "computing_s": float,
    "recommendation": str,
    "cause": (str, None),
}


@dataclass(frozen=True, slots=True)
class RankReport:
    """Short form of one rank's report: see ``LoaderReport``.

    Attributes:
        rank: Number of the rank.
        world: Number of ranks.
        waiting_s: Seconds that the rank's training loop waited for batches.
        computing_s: Seconds between receiving a batch and asking for the next one; includes waits for other ranks.
        cause: Main cause of waiting; None if the rank is not input bound.
        recommendation: One recommendation.
        batches: Batches received.
        samples: Samples in these batches.
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
        """Share of time that the rank's training loop waited for batches, 0 to 1."""
        whole_s = self.waiting_s + self.computing_s
        return self.waiting_s / whole_s if whole_s else 0.0


@dataclass(frozen=True, slots=True)
class GroupReport:
    """Reports of several ranks; ``print`` shows them as text.

    Attributes:
        ranks: One report per rank, in order of rank.

    Example:
        >>> loader = ps.DataLoader(ps.MapDataset.from_prefix("s3://bucket/train/3/"), batch_size=20)
        >>> batches = list(loader)
        >>> group = ps.observe.merge_reports(loader.report())
        >>> group.slowest.rank, group.missing
        (0, ())
    """

    ranks: tuple[RankReport, ...]

    @property
    def slowest(self) -> RankReport:
        """The report of the rank that waited longest for its batches.

        In a step that all ranks take together, the other ranks wait for this one. Their waits are part of the step and
        count as computing.
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
        """Return one HTML page, which loads nothing from the network."""
        return html_page("Penstock: report of all ranks", self._table())

    def _repr_html_(self) -> str:
        return panel("Report of all ranks", self._table())

    def plot(self, *, ax: Axes | None = None) -> Axes:
        """Return axes with the seconds that each rank computed and waited.

        Args:
            ax: Axes of matplotlib to draw into; default: those of a new figure.

        Raises:
            MissingExtra: matplotlib is not installed.

        Example:
            >>> loader = ps.DataLoader(ps.MapDataset.from_prefix("s3://bucket/train/3/"), batch_size=20)
            >>> batches = list(loader)
            >>> ps.observe.merge_reports(loader.report()).plot().get_ylabel()
            'rank'
        """
        ax = axes(ax, (7.0, 1.5 + 0.3 * len(self.ranks)))
        names = [str(each.rank) for each in self.ranks]
        computing = [each.computing_s for each in self.ranks]
        ax.barh(names, computing, color=COLOURS["computing"], label="computing")
        waits = ax.barh(
            names,
            [each.waiting_s for each in self.ranks],
            left=computing,
            color=COLOURS["first byte"],
            label="waiting for batches",
        )
        ax.bar_label(waits, [f"{each.waiting:.0%} {each.cause or ''}".strip() for each in self.ranks], padding=4)
        # Room for the labels.
        ax.margins(x=0.25)
        ax.set_xlim(left=0)
        ax.invert_yaxis()
        ax.set_xlabel("seconds")
        ax.set_ylabel("rank")
        ax.set_title(f"Rank {self.slowest.rank} waited longest: {seconds(self.slowest.waiting_s)}")
        ax.legend(loc="upper left", bbox_to_anchor=(0.0, -0.15), ncols=2)
        return ax

    def _table(self) -> str:
        rows = (
            (
                *(each.rank, seconds(each.waiting_s), f"{each.waiting:.0%}", each.batches, each.samples),
                each.cause or "not input bound",
            )
            for each in self.ranks
        )
        head = ("rank", "waited", "of its time", "batches", "samples", "waited for")
        return "".join(f"<p>{escape(each)}</p>" for each in self._verdict()) + table(rows, head, align="rrrrrl")

    def __str__(self) -> str:
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
        reports: Reports, or the URLs that ``LoaderReport.save`` has written; patterns as for ``ps.glob``. If a rank has
            two reports, the one with more batches is used.
        store: Options of the store that holds the URLs.

    Raises:
        NotFound: An object does not exist, or no object matches a pattern.
        Damaged: An object is not a report.
        Unusable: No report was given, or ``reports`` has another type.

    Example:
        >>> loader = ps.DataLoader(ps.MapDataset.from_prefix("s3://bucket/train/3/"), batch_size=20)
        >>> batches = list(loader)
        >>> loader.report().save("s3://bucket/reports/{rank}.json")
        's3://bucket/reports/0.json'
        >>> ps.observe.merge_reports("s3://bucket/reports/*.json").ranks[0].samples
        60
    """
    given = [reports] if isinstance(reports, Summary | str) or hasattr(reports, "__fspath__") else reports
    if not isinstance(given, Iterable):
        raise Unusable(f"reports must be LoaderReports or URLs of saved reports, got {given!r}")
    found: dict[int, RankReport] = {}
    for each in _all(given, store):  # type: ignore[arg-type]  # a single report or URL was put into a list
        held = found.get(each.rank)
        if held is None or held.batches <= each.batches:
            found[each.rank] = each
    if not found:
        raise Unusable(
            "merge_reports needs at least one report: ps.observe.merge_reports('s3://bucket/run/report-*.json')"
        )
    return GroupReport(tuple(found[rank] for rank in sorted(found)))


def _all(given: Iterable[str | os.PathLike[str] | Summary], store: StoreOptions | str | None) -> Iterator[RankReport]:
    for each in given:
        if isinstance(each, Summary):
            yield _short(each.values())
            continue
        urls = [meta.url for meta in glob(each, store=store)]
        if not urls:
            raise NotFound("no object matches this name or pattern", url=str(each))
        for url in urls:
            yield _read_report(url, store)


def _read_report(url: str | os.PathLike[str], store: StoreOptions | str | None) -> RankReport:
    with open_object(url, "rb", store=store) as file:
        text = file.read(_MOST_BYTES + 1)
    values = read_json(text, _REPORT, _WHAT, str(url))
    if values["rank"] >= values["world"] or min(values["waiting_s"], values["computing_s"]) < 0:
        raise Damaged(f"cannot read {_WHAT}: a rank beyond the last one, or negative seconds", url=str(url))
    return _short(values)


def _short(values: Mapping[str, Any]) -> RankReport:
    return RankReport(**{name: values[name] for name in RankReport.__slots__})
