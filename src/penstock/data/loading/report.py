"""Reports of a loader, made from its counts and shown as text, JSON or HTML."""

from __future__ import annotations

import os
import platform
from contextlib import suppress
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import TYPE_CHECKING

from penstock.data.loading.advice import Parallelism, Setup, advice, causes, main_cause
from penstock.data.loading.page import page, text
from penstock.data.loading.summary import Context, Prices, Summary, host_report
from penstock.errors import Unusable, printable, public_url
from penstock.verbs import open as open_object
from penstock.version import VERSION

if TYPE_CHECKING:
    from collections.abc import Iterable

    from penstock.data.datasets.batched import BatchableDataset
    from penstock.data.loading.requests import Requests
    from penstock.data.loading.stats import LoaderStats
    from penstock.engine.node.member import NodeRate
    from penstock.options import StoreOptions
    from penstock.values import Place

__all__ = ["LoaderReport", "report"]


@dataclass(frozen=True, slots=True)
class LoaderReport(Summary):
    """A ``Summary`` that ``print`` shows as text.

    Example:
        >>> loader = ps.DataLoader(ps.MapDataset.from_prefix("s3://bucket/train/"), batch_size=60)
        >>> batches = list(loader)
        >>> report = loader.report()
        >>> report.batches, report.samples, report.errors
        (10, 600, 0)

    """

    def html(self) -> str:
        """Return one HTML page with plots, which needs no network: write it to a file, and open that in a browser."""
        return page(self)

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
        """Return the report as text of at most 100 columns."""
        return text(self)


def report(
    stats: LoaderStats,
    requests: Requests,
    setup: Setup,
    dataset: BatchableDataset,
    prices: Prices | None,
    place: Place,
) -> LoaderReport:
    """Return the report on the counts; raises ``Unusable`` if ``prices`` has another type."""
    if prices is not None and not isinstance(prices, Prices):
        raise Unusable(f"prices are given as penstock.Prices(per_1000_requests=…, per_gib=…), not {prices!r}")
    hosts = requests.hosts()
    found = causes(stats, hosts, _at_once(setup))
    cause = main_cause(stats, found)
    slowest = tuple(each._replace(url=public_url(each.url)) for each in requests.slowest())
    reports = sorted((host_report(name, each) for name, each in hosts.items()), key=lambda each: -each.responses)
    total = stats.total
    return LoaderReport(
        cause,
        advice(cause, setup, [each.url for each in slowest]),
        stats.waiting_s,
        stats.computing_s,
        found,
        stats.batches,
        stats.samples,
        total.requests,
        total.retries,
        total.errors,
        total.cached,
        tuple(reports),
        stats.workers,
        slowest,
        None if prices is None else prices.of(total.requests, total.size_bytes),
        "" if prices is None else prices.currency,
        _own(requests.rates(), dataset),
        place.rank,
        place.world,
        _context(setup, dataset),
    )


def _context(setup: Setup, dataset: BatchableDataset) -> Context:
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


def _own(rates: Iterable[NodeRate], dataset: BatchableDataset) -> tuple[NodeRate, ...]:
    """Return the rates that limit the reads of ``dataset``; the processes of a machine also share other rates."""
    urls = [printable(each) for each in _urls(dataset)]

    def bounds(rate: NodeRate) -> bool:
        prefix = rate.requests.removeprefix("reads of ")
        return prefix != rate.requests and any(url.startswith(prefix) or prefix.startswith(url) for url in urls)

    return tuple(filter(bounds, rates))


def _urls(dataset: BatchableDataset) -> set[str]:
    """Return the URLs below which a dataset, and the datasets that it holds, read."""
    from penstock.data.datasets.batched import BatchableDataset  # not at the top: reports need no torch

    found = {_url(dataset)}
    if not found - {""}:
        with suppress(NotImplementedError):
            found = {dataset.spans([])[0].root}
    held = [each for each in vars(dataset).values() if isinstance(each, BatchableDataset) and each is not dataset]
    return found.union(*map(_urls, held))


def _url(dataset: BatchableDataset) -> str:
    contents = dataset.contents
    return "" if contents is None else contents.root + contents.base


def _at_once(setup: Setup) -> Parallelism:
    threads = min(setup.decode_threads, setup.prefetch * setup.batch_size)
    return Parallelism(setup.num_workers, threads, min(setup.decode_threads, setup.prefetch))
