"""Makes a loader's report of what was counted, which shows itself as text, JSON and a page."""

from __future__ import annotations

import os
from dataclasses import dataclass
from typing import TYPE_CHECKING

from penstock.errors import Unusable, public_url
from penstock.loading.report.advice import Setup, advice
from penstock.loading.report.causes import Parallelism, causes, main_cause
from penstock.loading.report.page import page
from penstock.loading.report.summary import Prices, Summary, host_report
from penstock.loading.report.text import text
from penstock.verbs import open as open_object

if TYPE_CHECKING:
    from penstock.loading.requests import Requests
    from penstock.loading.stats import LoaderStats
    from penstock.options import StoreOptions
    from penstock.values import Place

__all__ = ["LoaderReport", "report"]


@dataclass(frozen=True, slots=True)
class LoaderReport(Summary):
    """A ``Summary`` that ``print`` shows as text."""

    def html(self) -> str:
        """Return one page with plots, which needs no network: write it to a file, and open that in a browser."""
        return page(self)

    def save(self, url: str | os.PathLike[str], *, store: StoreOptions | str | None = None) -> str:
        """Write it as JSON, for ``merge_reports``: one request. ``{rank}`` in ``url`` is this rank's number.

        Each rank calls it by itself; none waits for another. Returns the URL that was written. ``Unusable`` where there
        are several ranks and ``{rank}`` is missing.
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
        """Return it as text of at most 100 columns."""
        return text(self)


def report(stats: LoaderStats, requests: Requests, setup: Setup, prices: Prices | None, place: Place) -> LoaderReport:
    """Return the report on what was counted; ``Unusable`` where ``prices`` are none."""
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
        requests.rates(),
        place.rank,
        place.world,
    )


def _at_once(setup: Setup) -> Parallelism:
    threads = min(setup.decode_threads, setup.prefetch * setup.batch_size)
    return Parallelism(setup.num_workers, threads, min(setup.decode_threads, setup.prefetch))
