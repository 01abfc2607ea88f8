"""Counts become OpenTelemetry's metrics, read when they are collected."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, Any, Final

from penstock.observe.metrics.board import counted
from penstock.observe.metrics.counts import CACHE_COUNTS, COUNTS, DISTRIBUTIONS

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping

    from opentelemetry.metrics import Meter

    from penstock.histogram import Histogram
    from penstock.observe.metrics.counts import CacheCount, Count, Distribution

__all__ = ["observe"]

_QUANTILES: Final = (0.5, 0.95, 0.99)


def observe(meter: Meter, namespace: str, attributes: Mapping[str, str] | None = None) -> Callable[[], None]:
    """Let ``meter`` ask for the counts of this process; returns a function that ends this.

    ``attributes`` are those of each metric, beside ``server.address`` and ``quantile``.

    Histograms are gauges of quantiles, of what came since they were collected last: the API has no histograms that are
    read.
    """
    state = _State(attributes or {})
    for count in COUNTS:
        name = f"{namespace}.{count.name}"
        meter.create_observable_counter(name, [_count(count, state)], unit=count.unit, description=count.help)
    for of in CACHE_COUNTS:
        name = f"{namespace}.{of.name}"
        meter.create_observable_counter(name, [_cache_count(of, state, namespace)], unit=of.unit, description=of.help)
    for each in DISTRIBUTIONS:
        name = f"{namespace}.{each.name}"
        meter.create_observable_gauge(name, [_quantiles(each, state)], unit=each.unit, description=each.help)
    return state.end


class _State:
    def __init__(self, attributes: Mapping[str, str]) -> None:
        self.attributes = {**attributes}
        self.pid = os.getpid()
        self.ended = False

    def end(self) -> None:
        self.ended = True

    @property
    def silent(self) -> bool:
        """Whether nothing is to be told: an instrument cannot be removed, and a forked child inherits it."""
        return self.ended or self.pid != os.getpid()


def _count(count: Count, state: _State) -> Callable[[Any], Iterable[Any]]:
    def ask(_options: object) -> Iterable[Any]:
        from opentelemetry.metrics import Observation

        hosts = {} if state.silent else counted().hosts
        return [
            Observation(count.value(host), {**state.attributes, "server.address": name}) for name, host in hosts.items()
        ]

    return ask


def _cache_count(of: CacheCount, state: _State, namespace: str) -> Callable[[Any], Iterable[Any]]:
    def ask(_options: object) -> Iterable[Any]:
        from opentelemetry.metrics import Observation

        caches = {} if state.silent else counted().caches
        return [
            Observation(of.value(cache), state.attributes | {f"{namespace}.cache": name})
            for name, cache in caches.items()
        ]

    return ask


def _quantiles(each: Distribution, state: _State) -> Callable[[Any], Iterable[Any]]:
    before: dict[str, Histogram] = {}

    def ask(_options: object) -> Iterable[Any]:
        from opentelemetry.metrics import Observation

        told = []
        for name, host in ({} if state.silent else counted().hosts).items():
            now = each.value(host).copy()
            since = now - before[name] if name in before else now
            before[name] = now
            if since.count:
                told += [
                    Observation(since.quantile(share), state.attributes | {"server.address": name, "quantile": share})
                    for share in _QUANTILES
                ]
        return told

    return ask
