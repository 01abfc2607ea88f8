"""Reports of a loader, made from its counts and shown as text, JSON or HTML.

The page embeds its plots as SVG, and loads nothing from elsewhere.
"""

from __future__ import annotations

import os
import platform
from contextlib import suppress
from dataclasses import dataclass, fields, replace
from datetime import UTC, datetime
from html import escape
from math import floor, log10
from textwrap import wrap
from typing import TYPE_CHECKING, Any, Final

from penstock.data.loading.summary import (
    Context,
    Parallelism,
    Prices,
    Setup,
    Summary,
    advice,
    advise_order,
    causes,
    host_report,
    main_cause,
    measure_sleep,
)
from penstock.data.reading.iteration import resolve
from penstock.data.reading.reading import SampleDataset
from penstock.display import axes, html_page, panel, size, table
from penstock.errors import Unusable, printable, public_url
from penstock.verbs import open as open_object
from penstock.version import VERSION

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Sequence

    from matplotlib.axes import Axes

    from penstock.data.datasets.batched import SourceShare
    from penstock.data.loading.stats import Meter, ReaderStats
    from penstock.data.loading.summary import HostReport
    from penstock.engine.node.member import NodeRate
    from penstock.options import StoreOptions

_WIDTH: Final = 720
_EDGE: Final = 'stroke="#fff" stroke-width="1"'  # between parts of a bar
_HIGH: Final = 120
_SMALL_BYTES: Final = 256 << 10  # of samples of which a block of 1 MiB has several
# Any two differ by 27 or more in CIELAB, also for protanopes, deuteranopes and tritanopes: test_page.py verifies this.
COLOURS: Final = {
    "computing": "#64725c",
    "first byte": "#d7390d",
    "disk": "#88120d",
    "bandwidth": "#efb221",
    "throttled": "#bb449b",
    "paced": "#e4cbf6",
    "retries": "#7c0d9c",
    "memory budget": "#9f53f7",
    "opening": "#47b35b",
    "decode": "#1c0ef4",
    "collate": "#9aa0f7",
    "device": "#10f7bb",
    "python": "#39292f",
}
_OF_WORKERS: Final = {"working": COLOURS["decode"], "waiting": COLOURS["first byte"], "idle": "#d6d3d1"}
_STYLE: Final = """
td.n { text-align: right; font-variant-numeric: tabular-nums; white-space: nowrap; }
.key { display: inline-block; width: .8em; height: .8em; margin-right: .4em; border: 1px solid #fff; }
.advice { border-left: 4px solid #3a7d44; padding: .3rem 1rem; } svg { display: block; width: 100%; height: auto; }
svg text { font: 11px system-ui, sans-serif; fill: currentColor; }
"""


def _verdict(report: Summary) -> str:
    whole, counted = seconds(report.waiting_s + report.computing_s), f"{report.batches:,} batches"
    cause = f"It waited most for: <b>{escape(report.cause)}</b>." if report.cause else "It is not input bound."
    waited = f"The training loop waited <b>{report.waiting:.0%}</b> of {whole}, for {counted}. {cause}"
    cost = "" if report.cost is None else f"At the prices given, requests cost {report.cost:,.4f} {report.currency}."
    advice = f'<p class="advice">{escape(printable(report.recommendation))}</p>'
    made = f"<p>{escape(circumstances(report))}</p>" if report.context else ""
    return f"{made}<p>{waited}</p>{advice}<p>Reads: {reads(report)}. {escape(cost)}</p>"


def _spent(report: Summary) -> dict[str, float]:
    """Return the seconds of the training loop by activity: computing, or waiting for a cause; the most first."""
    spent: list[tuple[str, float]] = [("computing", report.computing_s), *report.causes.items()]
    return dict(sorted(((name, value) for name, value in spent if value > 0), key=lambda each: -each[1]))


def _time(report: Summary) -> str:
    shown = _spent(report)
    rows = "".join(
        f'<tr><td><span class="key" style="background:{COLOURS[name]}"></span>{escape(name)}</td>'
        f'<td class="n">{seconds(value)}</td><td class="n">{value / sum(shown.values()):.1%}</td></tr>'
        for name, value in shown.items()
    )
    return f'<h2>Where the time went</h2>{_bar(shown, "time")}<table class="time">{rows}</table>'


def _bar(parts: dict[str, float], kind: str) -> str:
    whole, x, drawn = sum(parts.values()) or 1.0, 0.0, []
    for name, value in parts.items():
        width = value / whole * _WIDTH
        label = f"<title>{escape(name)}: {seconds(value)}</title>"
        colour = _OF_WORKERS.get(name) or COLOURS[name]
        drawn.append(f'<rect x="{x:.1f}" width="{width:.1f}" height="26" fill="{colour}" {_EDGE}>{label}</rect>')
        x += width
    return f'<svg class="{kind}" viewBox="0 0 {_WIDTH} 30" role="img">{"".join(drawn)}</svg>'


def _host(host: HostReport) -> str:
    first, speed = host.first_byte_s, host.body_bytes_per_s
    rows = [
        ("requests", f"{host.responses:,}"),
        ("failed, throttled, made again", f"{host.failed:,}, {host.throttled:,}, {host.retried:,}"),
        ("second ones for slow reads, answered first", f"{host.hedged:,}, {host.hedges_won:,}"),
        ("read, written", f"{size(host.received_bytes)}, {size(host.sent_bytes)}"),
        ("first byte p50, p95, p99", ", ".join(map(seconds, (first.p50, first.p95, first.p99)))),
    ]
    if speed.p50:
        rows.append(("body rate p50, p95, p99", ", ".join(map(rate, (speed.p50, speed.p95, speed.p99)))))
    plots = _histogram("seconds to the first byte", host.first_bytes, seconds)
    plots += _histogram("bytes per second of a body", host.body_rates, rate)
    return f"<h2>{escape(host.host)}</h2>{table(rows)}{plots}"


def _histogram(title: str, counts: Sequence[tuple[float, float, int]], unit: Callable[[float], str]) -> str:
    if not counts:
        return ""
    low, high = floor(log10(counts[0][0])), -floor(-log10(counts[-1][1]))
    scale, most = _WIDTH / max(1, high - low), max(count for _, _, count in counts)
    bars = "".join(
        f'<rect x="{(log10(start) - low) * scale:.1f}" y="{_HIGH - count / most * _HIGH + 4:.1f}" '
        f'width="{max(1.0, log10(stop / start) * scale - 0.5):.1f}" height="{count / most * _HIGH:.1f}" fill="#1d4ed8">'
        f"<title>{unit(start)} to {unit(stop)}: {count:,}</title></rect>"
        for start, stop, count in counts
    )
    ticks = "".join(
        f'<text x="{(power - low) * scale:.1f}" y="{_HIGH + 18}" '
        f'text-anchor="{"start" if power == low else "end" if power == high else "middle"}">{unit(10.0**power)}</text>'
        for power in range(low, high + 1)
    )
    box = f'viewBox="0 0 {_WIDTH} {_HIGH + 22}" role="img"'
    return f'<p>{title}</p><svg class="histogram" {box}>{bars}{ticks}</svg>'


def _rates(report: Summary) -> str:
    if not report.rates:
        return ""
    rows = ((each.requests, f"{each.per_s:,.1f}", f"{each.share_per_s:,.1f}") for each in report.rates)
    head = ("requests", "a second, this machine", "of them here")
    return f"<h2>Rates that the store was seen to take</h2>{table(rows, head, align='lrr')}"


def _workers(workers: Iterable[ReaderStats]) -> str:
    drawn = []
    for number, each in enumerate(workers):
        idle = max(0.0, each.elapsed_s - each.waiting_s - each.working_s)
        parts = {"working": each.working_s, "waiting": each.waiting_s, "idle": idle}
        text = (
            f"{each.batches:,} batches, working {seconds(each.working_s)}, waiting for bytes {seconds(each.waiting_s)}"
        )
        drawn.append(f"<p>{number}: {text}</p>{_bar(parts, 'worker')}")
    return f"<h2>Workers</h2>{''.join(drawn)}"


def _slowest(report: Summary) -> str:
    if not report.slowest:
        return ""
    rows = ((seconds(each.elapsed_s), size(each.size_bytes), each.attempts, each.url) for each in report.slowest)
    return f"<h2>The slowest reads</h2>{table(rows, ('took', 'bytes', 'attempts', 'object'), align='rrrl')}"


_WIDE: Final = 100
_BAR: Final = 30
_URL: Final = 60
_NAME: Final = 30


def _lines(report: Summary) -> Iterator[str]:
    counted = f"{report.batches:,} batches, {report.samples:,} samples"
    whole = seconds(report.waiting_s + report.computing_s)
    yield f"The training loop waited {report.waiting:.0%} of {whole}: {counted}."
    yield f"Cause: {report.cause}." if report.cause else "It is not input bound."
    yield from wrap(report.recommendation, _WIDE)
    yield f"Reads: {reads(report)}."
    yield from wrap(circumstances(report), _WIDE)
    yield ""
    longest = max(report.causes.values(), default=0.0)
    for cause, spent in sorted(report.causes.items(), key=lambda each: -each[1]):
        if spent > 0:
            yield f"  {cause:14}{seconds(spent):>9}  {'█' * max(1, round(spent / longest * _BAR))}"
    for host in report.hosts:
        yield from _host_text(host)
    yield from _sources_text(report)
    if report.rates:
        yield "\nRates that the store was seen to take:"
    for bound in report.rates:
        yield f"  {bound.requests}: {bound.per_s:,.1f} a second on this machine, {bound.share_per_s:,.1f} of them here"
    if report.cost is not None:
        yield f"\nRequests and bytes at the prices given: {report.cost:,.4f} {report.currency}."
    if report.slowest:
        yield "\nThe slowest reads:"
    for each in report.slowest:
        url = each.url if len(each.url) <= _URL else f"…{each.url[1 - _URL :]}"
        again = f", {each.attempts} attempts" if each.attempts > 1 else ""
        yield f"  {seconds(each.elapsed_s):>9}  {size(each.size_bytes):>9}  {url}{again}"


def _shares(report: Summary) -> Iterator[tuple[str, str, str, str, str]]:
    """Yield each source of a mixture: its name, share wanted, share delivered, samples, and wait."""
    total = sum(each.samples for each in report.sources) or 1
    for each in report.sources:
        share = each.samples / total
        yield each.name, f"{each.wanted:.1%}", f"{share:.1%}", f"{each.samples:,}", seconds(each.waited_s)


def _shorten_name(name: str) -> str:
    return name if len(name) <= _NAME else name[: _NAME - 1] + "…"


def _sources_text(report: Summary) -> Iterator[str]:
    if report.sources:
        yield f"\nSources of the mixture:{'wanted':>16}{'delivered':>11}{'samples':>12}{'waited':>10}"
    for name, *shown in _shares(report):
        yield f"  {_shorten_name(name):31}" + "".join(
            f"{value:>{width}}" for value, width in zip(shown, (8, 11, 12, 10), strict=True)
        )


def _sources(report: Summary) -> str:
    return f"<h2>Sources of the mixture</h2>{_shares_table(report)}" if report.sources else ""


def _shares_table(report: Summary) -> str:
    return table(_shares(report), ("source", "wanted", "delivered", "samples", "waited"), align="lrrrr")


def circumstances(report: Summary) -> str:
    """Return the time, machine and loader options of the report as a sentence; "" if they are unknown."""
    made = report.context
    if made is None:
        return ""
    readers = f"num_workers={made.num_workers}" if made.num_workers else f"decode_threads={made.decode_threads}"
    of = f" of {made.url}" if made.url else ""
    rank = f", rank {report.rank} of {report.world}" if report.world > 1 else ""
    return (
        f"{made.time}, Penstock {made.version} on {made.host}{rank}: a loader{of}, batch_size={made.batch_size}, "
        f"{readers}, prefetch={made.prefetch}."
    )


def reads(report: Summary) -> str:
    """Return the number of requests, and of the retried, failed and cached ones, as text."""
    kinds = (
        (report.retries, "repeated"),
        (report.errors, "failed for good"),
        (report.cached, "from a cache or another worker, without one"),
    )
    text = f"{report.requests:,} requests" + "".join(f", {count:,} {word}" for count, word in kinds if count)
    used = f" for {size(report.used_bytes)} of samples" if report.used_bytes else ""
    return f"{text}; {size(report.read_bytes)} read{used}"


def _host_text(host: HostReport) -> Iterator[str]:
    first, speed = host.first_byte_s, host.body_bytes_per_s
    troubles = [(host.failed, "failed"), (host.throttled, "throttled"), (host.retried, "made again")]
    troubles += [(host.hedged, "second ones for slow reads"), (host.hedges_won, "of these answered first")]
    named = "".join(f", {count:,} {word}" for count, word in troubles if count)
    yield f"\n{host.host}: {host.responses:,} requests{named}; {size(host.received_bytes)} read"
    yield f"  first byte   p50 {seconds(first.p50)}, p95 {seconds(first.p95)}, p99 {seconds(first.p99)}"
    if speed.p50:
        yield f"  body rate    p50 {rate(speed.p50)}, p95 {rate(speed.p95)}, p99 {rate(speed.p99)}"


def seconds(value: float) -> str:
    for unit, least in (("s", 1.0), ("ms", 1e-3)):
        if value >= least:
            return f"{value / least:,.1f} {unit}"
    return f"{value * 1e6:,.0f} µs"


def rate(value: float) -> str:
    return f"{size(value)}/s"


@dataclass(frozen=True, slots=True, init=False)
class LoaderReport(Summary):
    """A ``Summary`` that ``print`` shows as text, as ``DataLoader.report`` returns it.

    Args:
        summary: The values.

    Example:
        >>> loader = ps.DataLoader(ps.MapDataset.from_prefix("s3://bucket/train/3/"), batch_size=20)
        >>> batches = list(loader)
        >>> report = loader.report()
        >>> report.batches, report.samples, report.errors
        (3, 60, 0)
    """

    def __init__(self, summary: Summary) -> None:
        for each in fields(Summary):
            object.__setattr__(self, each.name, getattr(summary, each.name))

    def html(self) -> str:
        """Return one HTML page with plots, which needs no network: write it to a file, and open that in a browser."""
        parts = [_verdict(self), _time(self), _sources(self), *map(_host, self.hosts)]
        parts += [_rates(self), _workers(self.workers), _slowest(self)]
        return html_page("Penstock: report of a loader", "".join(parts), _STYLE)

    def _repr_html_(self) -> str:
        spent = _spent(self)
        rows = ((name, seconds(value), f"{value / sum(spent.values()):.1%}") for name, value in spent.items())
        parts = [table(rows, align="lrr")] if spent else []
        parts += [_shares_table(self)] if self.sources else []
        return panel("Report of a loader", _verdict(self), *parts)

    def plot(self, *, ax: Axes | None = None) -> Axes:
        """Return axes with the time of the training loop: computing, and waiting by cause.

        Args:
            ax: Axes of matplotlib to draw into; default: those of a new figure.

        Raises:
            MissingExtra: matplotlib is not installed.

        Example:
            >>> loader = ps.DataLoader(ps.MapDataset.from_prefix("s3://bucket/train/3/"), batch_size=20)
            >>> batches = list(loader)
            >>> loader.report().plot().get_xlabel()
            'seconds'
        """
        spent = dict(reversed(_spent(self).items()))
        total = sum(spent.values())
        ax = axes(ax, (7.0, 1.2 + 0.35 * len(spent)))
        bars = ax.barh([*spent], [*spent.values()], color=[COLOURS[name] for name in spent])
        ax.bar_label(bars, [f"{seconds(each)}, {each / total:.0%}" for each in spent.values()], padding=4)
        # Room for the labels.
        ax.margins(x=0.25)
        ax.set_xlim(left=0)
        ax.set_xlabel("seconds")
        ax.set_title(f"The training loop waited {self.waiting:.0%} of {seconds(total)}")
        return ax

    def plot_sources(self, *, ax: Axes | None = None) -> Axes:
        """Return axes with the share of samples that each source of a ``ps.Mix`` should deliver, and has delivered.

        Args:
            ax: Axes of matplotlib to draw into; default: those of a new figure.

        Raises:
            MissingExtra: matplotlib is not installed.
            Unusable: The dataset is not a mixture.

        Example:
            >>> digits = {name: ps.MapDataset.from_prefix(f"s3://bucket/train/{name}/") for name in "37"}
            >>> loader = ps.DataLoader(ps.Mix(digits, weights={"3": 3, "7": 1}), batch_size=20)
            >>> batches = list(loader)
            >>> [each.get_text() for each in loader.report().plot_sources().get_xticklabels()]
            ['3', '7']
        """
        if not self.sources:
            raise Unusable("plot_sources() needs a loader over a ps.Mix: this report has no sources")
        total = sum(each.samples for each in self.sources) or 1
        ax = axes(ax, (max(4.0, 1.5 + len(self.sources)), 3.5))
        shares = {
            "wanted": [each.wanted for each in self.sources],
            "delivered": [each.samples / total for each in self.sources],
        }
        for at, (name, values) in enumerate(shares.items()):
            places = [number + 0.4 * at - 0.2 for number in range(len(values))]
            bars = ax.bar(places, [100 * each for each in values], 0.38, label=name)
            ax.bar_label(bars, [f"{each:.1%}" for each in values], padding=2)
        names = [_shorten_name(printable(each.name)) for each in self.sources]
        ax.set_xticks(range(len(names)), names, parse_math=False)
        ax.margins(y=0.15)
        ax.set_ylabel("samples, %")
        ax.set_title("Sources of the mixture")
        ax.legend()
        return ax

    def save(self, url: str | os.PathLike[str], *, store: StoreOptions | str | None = None) -> str:
        """Write the report as JSON, for ``merge_reports``, with one request.

        Each rank calls this independently; none waits for another.

        Args:
            url: The file; ``{rank}`` in it is replaced by this rank's number.
            store: Options, or the name of a profile; default: environment and profile.

        Returns:
            The URL that was written.

        Raises:
            Unusable: There are several ranks, and ``{rank}`` is missing.
        """
        if self.world > 1 and "{rank}" not in os.fspath(url):
            raise Unusable(
                f"{self.world} ranks would overwrite each other's report: put {{rank}} into the URL", url=os.fspath(url)
            )
        named = os.fspath(url).replace("{rank}", str(self.rank))
        with open_object(named, "wb", store=store) as file:
            file.write(self.json().encode())
        return named

    def __str__(self) -> str:
        return "\n".join(_lines(self))


def report(
    meter: Meter, setup: Setup, dataset: SampleDataset, prices: Prices | None, sources: tuple[SourceShare, ...]
) -> LoaderReport:
    """Return the report on the counts; raises ``Unusable`` if ``prices`` has another type."""
    if prices is not None and not isinstance(prices, Prices):
        raise Unusable(f"prices must be penstock.observe.Prices(per_1000_requests=…, per_gib=…), got {prices!r}")
    stats, requests, place = meter.stats(), meter.requests, resolve(None)
    hosts, total = requests.hosts(), stats.total
    found = causes(stats, hosts, _at_once(setup))
    cause, advised = main_cause(stats, found), replace(setup, asleep=measure_sleep(stats, setup))
    used_bytes = _used_bytes(dataset, stats.samples)
    slowest = tuple(each._replace(url=public_url(each.url)) for each in requests.slowest())
    advised_order = advise_order(setup, total.read_bytes, used_bytes)
    reports = sorted((host_report(name, each) for name, each in hosts.items()), key=lambda each: -each.responses)
    return LoaderReport(
        Summary(
            cause=cause,
            recommendation=advised_order or advice(cause, advised, [each.url for each in slowest]),
            waiting_s=stats.waiting_s,
            computing_s=stats.computing_s,
            causes=found,
            batches=stats.batches,
            samples=stats.samples,
            requests=total.requests,
            retries=total.retries,
            errors=total.errors,
            cached=total.cached,
            hosts=tuple(reports),
            workers=stats.workers,
            slowest=slowest,
            cost=None if prices is None else prices.of(total.requests, total.read_bytes),
            currency="" if prices is None else prices.currency,
            rates=_own(requests.rates(), dataset),
            rank=place.rank,
            world=place.world,
            context=_context(setup, dataset),
            sources=sources,
            read_bytes=total.read_bytes,
            used_bytes=used_bytes,
        )
    )


def _used_bytes(dataset: SampleDataset, samples: int) -> int:
    contents: Any = dataset.contents
    known = max(getattr(contents, "total_bytes", 0), 0)
    return round(known * samples / len(contents)) if known else 0


def _context(setup: Setup, dataset: SampleDataset) -> Context:
    return Context(
        datetime.now(UTC).isoformat(timespec="seconds"),
        platform.node(),
        VERSION,
        printable(public_url(_url(dataset))),
        setup.batch_size,
        setup.num_workers,
        0 if setup.num_workers else setup.decode_threads,
        setup.prefetch,
    )


def _own(rates: Iterable[NodeRate], dataset: SampleDataset) -> tuple[NodeRate, ...]:
    """Return the rates that limit the reads of ``dataset``; the processes of a machine also share other rates."""
    urls = [printable(each) for each in _urls(dataset)]

    def bounds(rate: NodeRate) -> bool:
        prefix = rate.requests.removeprefix("reads of ")
        return prefix != rate.requests and any(url.startswith(prefix) or prefix.startswith(url) for url in urls)

    return tuple(filter(bounds, rates))


def _urls(dataset: SampleDataset) -> set[str]:
    """Return the URLs below which a dataset, and the datasets that it holds, read."""
    found = {_url(dataset)}
    if not found - {""}:
        with suppress(NotImplementedError):
            found = {source.root for source, _ in dataset.reads(list)}
    return found.union(*map(_urls, _list_inner_datasets(dataset)))


def is_scattered(dataset: SampleDataset) -> bool:
    """Return whether small samples of files are each read by one request, in a dataset or those that it holds."""
    contents: Any = dataset.contents
    runs, units = getattr(dataset, "_runs", None), getattr(getattr(contents, "format", None), "in_units", True)
    if not units or getattr(runs, "single", False):
        small = 0 <= contents.total_bytes < _SMALL_BYTES * len(contents)
        return small and (runs is None or units)
    return any(map(is_scattered, _list_inner_datasets(dataset)))


def _list_inner_datasets(dataset: SampleDataset) -> list[SampleDataset]:
    values = [each for value in vars(dataset).values() for each in (value if isinstance(value, tuple) else (value,))]
    return [each for each in values if isinstance(each, SampleDataset) and each is not dataset]


def _url(dataset: SampleDataset) -> str:
    contents = dataset.contents
    return "" if contents is None else contents.root + contents.base


def _at_once(setup: Setup) -> Parallelism:
    threads = min(setup.decode_threads, setup.prefetch * setup.batch_size)
    return Parallelism(setup.num_workers, threads, min(setup.decode_threads, setup.prefetch))
