"""Metrics for Prometheus: counts and histograms by host, over this process and its workers."""

from __future__ import annotations

import os
from dataclasses import dataclass, field
from secrets import token_hex
from typing import TYPE_CHECKING, Any, ClassVar, Final

from penstock.errors import MissingExtra, Unusable
from penstock.observe.board import COUNTERS, DISTRIBUTIONS, Board, Notice, cumulate_buckets
from penstock.values import whole

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from penstock.histogram import Histogram
    from penstock.observe.sink import Record

_LAST_PORT: Final = 65535
_BOUNDS: Final = {
    "first_byte_seconds": tuple(1e-6 * 2**power for power in range(9, 27)),  # 0.5 ms to 67 s
    "body_bytes_per_second": tuple(1e3 * 2**power for power in range(4, 24)),  # 16 kB/s to 8 GB/s
}


@dataclass(frozen=True)
class Prometheus:
    """Metrics that Prometheus scrapes: of this process, and of the workers that it starts, by host and by cache.

    A scrape reads counts that are always kept, so requests cost no more. Needs the extra ``prometheus``.

    Attributes:
        port: Port for ``GET /metrics``; with ``LOCAL_RANK`` in the environment (torchrun), each rank adds its
            ``LOCAL_RANK``. None: no server; the metrics are added to ``prometheus_client.REGISTRY``.
        address: Address of the machine to listen on; ``"0.0.0.0"``: all addresses.

    Raises:
        Unusable: The port is not a number from 1 to 65535.

    Example:
        >>> from penstock.observe import Prometheus, to
        >>> with to(Prometheus(port=None)):
        ...     meta = ps.stat("s3://bucket/train/3/0000.png")
        ...     from prometheus_client import REGISTRY, generate_latest
        ...     print(b"penstock_requests_total" in generate_latest(REGISTRY))
        True
    """

    port: int | None = 9464
    address: str = "127.0.0.1"
    events: ClassVar[bool] = False
    _board: str = field(default_factory=lambda: token_hex(16), init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        """Refuse ports that do not exist, and 0, which would select a port that no scraper knows."""
        if self.port is not None and whole(self.port, "a port", 1) > _LAST_PORT:
            raise Unusable(f"port must be at most {_LAST_PORT}, got {self.port}")

    def open(self, *, first: bool) -> _Exposed | Notice:
        """Return a writer, which takes no events: the first process listens, its workers write counts for it.

        Raises:
            MissingExtra: ``prometheus_client`` is not installed.
            OSError: The port is already in use.
        """
        if not first:
            return Notice(self._board)
        try:
            import prometheus_client
        except ModuleNotFoundError:
            raise MissingExtra("metrics for Prometheus need pip install 'penstock[prometheus]'") from None
        registry = prometheus_client.REGISTRY if self.port is None else prometheus_client.CollectorRegistry()
        board = Board(self._board)
        try:
            collector = _Collector(board)
            registry.register(collector)
            server = None
            if self.port is not None:
                port = self.port + int(os.environ.get("LOCAL_RANK") or 0)
                server, _ = prometheus_client.start_http_server(port, self.address, registry)
        except BaseException:
            board.close()
            raise
        return _Exposed(board, registry, collector, server)


class _Collector:
    """A collector, which a registry asks for metrics."""

    def __init__(self, board: Board) -> None:
        self._board = board
        self._pid = os.getpid()

    def describe(self) -> list[Any]:
        """Return an empty list; otherwise a registry would ask for all metrics at registration."""
        return []

    def collect(self) -> Iterator[Any]:
        """Yield the current metrics; none in a forked child, whose parent has them."""
        if self._pid != os.getpid():
            return
        from prometheus_client.core import CounterMetricFamily, HistogramMetricFamily

        tally = self._board.gather()
        tables: tuple[Mapping[str, Any], ...] = tally
        for label, counters, rows in zip(("host", "cache", "operation"), COUNTERS, tables, strict=True):
            for counter in counters if rows or label == "host" else ():
                family = CounterMetricFamily(f"penstock_{counter.name}", counter.help, labels=[label])
                for name, counts in rows.items():
                    family.add_metric([name], counter.value(counts))
                yield family
        for each in DISTRIBUTIONS:
            shown = HistogramMetricFamily(f"penstock_{each.name}", each.help, labels=["host"])
            for name, host in tally.hosts.items():
                histogram = each.value(host)
                shown.add_metric([name], _buckets(histogram, _BOUNDS[each.name]), histogram.total)
            yield shown


def _buckets(histogram: Histogram, bounds: tuple[float, ...]) -> list[tuple[str, float]]:
    names = [*(f"{bound:.6g}" for bound in bounds), "+Inf"]
    return [(name, float(count)) for name, count in zip(names, cumulate_buckets(histogram, bounds), strict=True)]


class _Exposed:
    def __init__(self, board: Board, registry: Any, collector: _Collector, server: Any) -> None:  # noqa: ANN401  of an optional library
        self._board, self._registry, self._collector, self._server = board, registry, collector, server

    def write(self, records: Sequence[Record]) -> None:
        """Do nothing: this sink takes no events."""

    def close(self) -> None:
        self._registry.unregister(self._collector)
        if self._server is not None:
            self._server.shutdown()
            self._server.server_close()
        self._board.close()

    def leave(self) -> None:
        if self._server is not None:
            # Closes only this process's copy of the socket: the port belongs to the parent.
            self._server.socket.close()
